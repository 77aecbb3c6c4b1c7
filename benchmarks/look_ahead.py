"""Ten requests after a private one: what choosing among optimal tables saves.

    python benchmarks/look_ahead.py [--descents K]

The last query is all that matters, and from it the next one is drawn with the masses of its table, whoever the user is.
So queries are a Markov chain of their own: descents through it are shared out systematically (see
`onoff.experiments.expected`), and in every state they meet the exact cost of its table is counted. Beside it the sum of
lower bounds for P, P^2, ..., P^10, and Algorithm 1 with the paper's filter as memory.
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

from onoff.experiments import families
from onoff.experiments.expected import sampled_runs, standard_error
from onoff.experiments.states import States
from onoff.experiments.switching import Pattern
from onoff.model.bounds import step_bounds
from onoff.model.chain import MarkovChain

STEPS = 10
CHAINS = {
    "ring 20": lambda: families.ring(20),
    "grid 5x5": lambda: families.grid(5, 5),
    "dense 20": lambda: families.dirichlet(20, 1.0, np.random.default_rng(0)),
}
WAYS: dict[str, dict[str, Any]] = {
    "look ahead": {"scheme": "optimal", "look_ahead": True, "budget": 10.0},
    "plain": {"scheme": "optimal", "look_ahead": False, "budget": 10.0},
    "greedy, filter": {"scheme": "greedy", "memory": "bayes-filter"},
}
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
    result = run(parser.parse_args().descents)
    print(show(result), file=sys.stderr)
    print(json.dumps(result, indent=2))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
