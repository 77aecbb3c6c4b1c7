"""Ten requests after a private one: what choosing among optimal tables saves.

    python benchmarks/look_ahead.py [--paths K]

The last query is all that matters, and from it the next one is drawn with the masses of its table, whoever the user is.
So queries are a Markov chain of their own: its paths are sampled, and along each the exact costs of its tables are
added up. Beside it the sum of lower bounds for P, P^2, ..., P^10, and Algorithm 1 with the paper's filter as memory,
over simulated users.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onoff.bounds import step_bounds
from onoff.chain import MarkovChain
from onoff.experiments import families
from onoff.experiments.simulate import simulate
from onoff.experiments.switching import Pattern
from onoff.memory import LastQuery
from onoff.rows import UNIT
from onoff.table import QueryTable
from onoff.tables import Tables

STEPS = 10
CHAINS = {
    "ring 20": lambda: families.ring(20),
    "grid 5x5": lambda: families.grid(5, 5),
    "dense 20": lambda: families.dirichlet(20, 1.0, np.random.default_rng(0)),
}


def run(paths: int = 100, seed: int = 1) -> dict[str, Any]:
    """Totals over ten steps, with and without looking ahead."""
    cases = []
    for name, matrix in CHAINS.items():
        chain = MarkovChain(matrix())
        case: dict[str, Any] = {"chain": name, "lower": sum(step.lower for step in step_bounds(chain, STEPS))}
        for label, look_ahead in (("plain", False), ("look ahead", True)):
            print(f"look_ahead: {name}, {label}", file=sys.stderr, flush=True)
            totals = _totals(chain, look_ahead, paths, np.random.default_rng(seed))
            case[label] = [float(totals.mean()), float(totals.std(ddof=1) / np.sqrt(paths))]
        pattern = Pattern.parse(f"ON OFF*{STEPS}")
        found = simulate(chain, "greedy", pattern, users=paths, seed=seed, memory="bayes-filter")
        case["greedy, filter"] = float(found.cost[1:].sum())
        cases.append(case)
    return {"benchmark": "look_ahead", "ok": all(c["look ahead"][0] < c["plain"][0] for c in cases), "cases": cases}


def _totals(chain: MarkovChain, look_ahead: bool, paths: int, rng: np.random.Generator) -> Any:
    tables = Tables(chain, "optimal", look_ahead=look_ahead, budget=5.0)
    totals = np.zeros(paths)
    for at in range(paths):
        query = tuple(range(chain.n))
        for _ in range(STEPS):
            memory = LastQuery(chain, query, query[0])
            if memory.rows.distinct == 1:
                totals[at] += 1.0
                query = (int(rng.choice(memory.rows.columns)),)
                continue
            table = tables.of(memory)
            if not isinstance(table, QueryTable):
                raise TypeError("a table was expected")
            totals[at] += table.cost
            query = table.query(int(rng.choice(len(table), p=table.mass / UNIT)))
    return totals


def show(result: dict[str, Any]) -> str:
    """A line for each chain."""
    lines = ["| chain | lower bounds | look ahead | plain | greedy, filter |", "|---|---|---|---|---|"]
    for case in result["cases"]:
        with_error = [f"{case[label][0]:.3f} ± {case[label][1]:.3f}" for label in ("look ahead", "plain")]
        cells = [case["chain"], f"{case['lower']:.3f}", *with_error, f"{case['greedy, filter']:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--paths", type=int, default=100)
    result = run(parser.parse_args().paths)
    print(show(result), file=sys.stderr)
    print(json.dumps(result, indent=2))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
