"""Ten requests after a private one: what choosing among optimal tables saves.

    python benchmarks/look_ahead.py [--descents K] [--against-programming [CHAIN ...]]

The last query is all that matters, and from it the next one is drawn with the masses of its table, whoever the user is.
So queries are a Markov chain of their own: descents through it are shared out systematically (see
`onoff.lab.walk`), and in every state they meet the exact cost of its table is counted. Beside it the sum of
lower bounds for P, P^2, ..., P^10, and Algorithm 1 with the paper's filter as memory.

With --against-programming, small chains: ten OFF requests over the sum of those bounds as shipped; where the cost
of the next request alone decides among optimal tables; where that of the rest of the run does; and by dynamic
programming over sets, which may pay more now to pay less later (see `over_sets`). About five minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.over_sets import OverSets, dihedral

from onoff.lab import families
from onoff.lab.walk import Pattern, States, expected_costs, sampled_runs, standard_error
from onoff.model.bounds import step_bounds
from onoff.model.chain import MarkovChain

STEPS = 10
CHAINS = {
    "ring 20": lambda: families.ring(20),
    "grid 4x4": lambda: families.grid(4, 4),
    "grid 5x5": lambda: families.grid(5, 5),
    "dense 20": lambda: families.dirichlet(20, 1.0, np.random.default_rng(0)),
}
WAYS: dict[str, dict[str, Any]] = {
    "look ahead": {"scheme": "optimal", "look_ahead": True, "budget": 10.0},
    "plain": {"scheme": "optimal", "look_ahead": False, "budget": 10.0},
    "greedy, filter": {"scheme": "greedy", "memory": "bayes-filter"},
}
SMALL_CHAINS = {
    "ring 12": lambda: families.ring(12),
    "sticky 10": lambda: families.sticky(10, np.random.default_rng(0)),
    "dense 10 (0.3)": lambda: families.dirichlet(10, 0.3, np.random.default_rng(0)),
    "dense 10 (0.1)": lambda: families.dirichlet(10, 0.1, np.random.default_rng(0)),
}
NEAR_THE_BEST = 0.005
"""How far the shipped choice may be from dynamic programming, relatively."""
CLEAR = 3.0
"""Standard errors by which looking ahead must be cheaper."""


def run(descents: int = 400, seed: int = 1) -> dict[str, Any]:
    """Totals over ten steps, each with its standard error, with and without looking ahead."""
    cases = []
    for name, matrix in CHAINS.items():
        chain = MarkovChain(matrix())
        case: dict[str, Any] = {"chain": name, "lower": sum(step.lower for step in step_bounds(chain, STEPS))}
        for way, options in WAYS.items():
            print(f"look_ahead: {name}, {way}", file=sys.stderr, flush=True)
            case[way] = total(chain, descents, seed, **options)
        (ahead, its_error), (plain, error) = case["look ahead"], case["plain"]
        case["saved"] = [plain - ahead, math.hypot(error, its_error)]
        cases.append(case)
    return {"benchmark": "look_ahead", "ok": all(c["saved"][0] > CLEAR * c["saved"][1] for c in cases), "cases": cases}


def total(chain: MarkovChain, descents: int, seed: int, **options: Any) -> list[float]:
    """The expected cost of ten OFF requests after an ON one, and its standard error."""
    pattern = Pattern.parse(f"ON OFF*{STEPS}")
    runs = sampled_runs(States(chain, **options), pattern, descents, np.random.default_rng(seed))
    totals = runs[:, 1:].sum(axis=1)
    return [float(totals.mean()), float(standard_error(totals))]


def against_programming(name: str) -> dict[str, Any]:
    """Ten requests of a small chain over the sum of their bounds: shipped, one request ahead, the rest, the best."""
    matrix = SMALL_CHAINS[name]()
    chain = MarkovChain(matrix)
    lower = sum(step.lower for step in step_bounds(chain, STEPS))
    sets = OverSets(chain.dense(), STEPS, dihedral(chain.n) if name.startswith("ring") else None)
    costs = expected_costs(States(chain, **WAYS["look ahead"]), Pattern.parse(f"ON OFF*{STEPS}"), most_states=5000)
    assert costs is not None
    totals = {"shipped": sum(step.cost for step in costs[1:]), "one ahead": sets.one_ahead()}
    totals |= {"rest of the run": sets.held(), "programming": sets.best()}
    return {"chain": name, **{way: total / lower for way, total in totals.items()}}


def run_against_programming(names: list[str]) -> dict[str, Any]:
    """The small chains of these names."""
    cases = []
    for name in names:
        cases.append(against_programming(name))
        print(f"look_ahead: {cases[-1]}", file=sys.stderr, flush=True)
    near = all(case["shipped"] <= case["programming"] * (1 + NEAR_THE_BEST) for case in cases)
    return {"benchmark": "look_ahead against programming", "ok": near, "cases": cases}


def show(result: dict[str, Any]) -> str:
    """A line for each chain."""
    columns = [*WAYS, "saved"]
    lines = [f"| chain | lower bounds | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for case in result["cases"]:
        cells = [case["chain"], f"{case['lower']:.3f}", *(f"{case[c][0]:.3f} ± {case[c][1]:.3f}" for c in columns)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--descents", type=int, default=400)
    parser.add_argument("--against-programming", nargs="*", choices=SMALL_CHAINS, metavar="CHAIN")
    options = parser.parse_args()
    if options.against_programming is not None:
        result = run_against_programming(options.against_programming or list(SMALL_CHAINS))
    else:
        result = run(options.descents)
        print(show(result), file=sys.stderr)
    print(json.dumps(result, indent=2))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
