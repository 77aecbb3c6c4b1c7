"""What a tree proves by the number of its leaves, where rows have six random successors of equal masses.

    python benchmarks/trees.py [--sources 60 100] [--seconds 40]

No small part of such rows proves more than the outer bound (see docs/explanation/optimum.md), so that what is left is
branch and bound over all sources. A search makes a table and the duals of the master program in the given seconds of
processor time; then the tree of `branching` is grown for these duals, and after 1, 2, 4, ... leaves it is printed what
it proves, over the outer bound. `needed` are the leaves, as a power of two, after which a bound would be within ten per
cent of the cost, if each doubling went on raising it as the measured ones after the first few did.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes.optimal import default_portfolio
from onoff.schemes.search.portfolio import Board, Clock, Problem, search
from onoff.schemes.search.proofs import branch

SUCCESSORS = 6
MOST_DOUBLINGS, FIRST_DOUBLINGS = 11, 3
"""Doublings of the leaves that are measured; and those after which the bound rises evenly."""
NEAR = 1.1
"""The cost over the bound that is asked for."""


def run(sources: int, seconds: float, doublings: int = MOST_DOUBLINGS, seed: int = 1) -> dict[str, Any]:
    """What trees prove for one number of sources.

    Parameters
    ----------
    sources
        How many; each has six random successors.
    seconds
        Of processor time, for the table and the duals.
    doublings
        Of the leaves.
    seed
        Of the rows.
    """
    rows = Rows.of(families.equal_masses(sources, SUCCESSORS, np.random.default_rng(seed)))
    problem = Problem(rows, Clock(seconds))
    board = Board(problem)
    search(problem, board, default_portfolio())
    duals = board.duals
    if duals is None:
        raise RuntimeError(f"{seconds:g} s are too short for duals of {sources} sources: give more")
    promised = duals.value(rows.probabilities())
    bounds = [promised - max(branch(duals, after(2**k - 1)).most, 0.0) for k in range(doublings + 1)]
    cost, outer = board.cost, problem.lower
    first = min(FIRST_DOUBLINGS, doublings - 1)
    rise = (bounds[-1] - bounds[first]) / (doublings - first)
    needed = first + (cost / NEAR - bounds[first]) / rise if rise > 0 else float("inf")
    return {
        "sources": sources,
        "cost": cost,
        "outer": outer,
        "proved_by_leaves": {str(2**k): bound for k, bound in enumerate(bounds)},
        "rise_by_doubling": rise,
        "doublings_needed": needed,
    }


def after(steps: int) -> Callable[[], bool]:
    """A clock that is over after so many looks at it."""
    left = [steps]

    def is_over() -> bool:
        left[0] -= 1
        return left[0] < 0

    return is_over


def show(found: dict[str, Any]) -> str:
    """A few lines for one number of sources."""
    outer = found["outer"]
    lines = [f"{found['sources']} sources: cost {found['cost']:.3f}, {found['cost'] / outer:.3f} of the outer bound"]
    lines += [f"  {leaves:>5} leaves prove {bound / outer:.4f}" for leaves, bound in found["proved_by_leaves"].items()]
    lines.append(
        f"  a doubling raises the bound by {found['rise_by_doubling']:.2f} messages; ten per cent needs "
        f"2**{found['doublings_needed']:.0f} leaves"
    )
    return "\n".join(lines)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sources", type=int, nargs="+", default=[60, 100])
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    cases = []
    for sources in options.sources:
        cases.append(run(sources, options.seconds))
        print(show(cases[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "trees", "cases": cases}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
