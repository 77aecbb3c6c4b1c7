"""Sessions in time: processor seconds for each OFF request of a run of ten, and the cost over its lower bounds.

    python benchmarks/session.py [--sizes 17 100 300 1000] [--chains dense sticky ...] [--runs R] [--out FILE.json]

A private request, then ten OFF ones, by the schemes `auto`, `greedy` and `race`, each with the budget that a session
gives it. "First" is the table after everything, which is kept on disk; "each" the tables of the other nine requests,
for which somebody waits: the mean and the largest. Making kernels ready, once in a process, is left out of them and
said at the end. The cost is the expected one of every table met, summed, over the sum of the lower bounds for P, P^2,
..., P^10, with its standard error over some runs.

Runs are paired: run r makes the same requests and draws the same random numbers with every scheme. "Dearer" is the mean
of what `auto` costs more than the scheme in the same run, with its standard error; a run is not `ok` where that is more
than two standard errors above 0.

Algorithm 1 is left out where its table after everything does not fit in memory (4 GB for a thousand full rows).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onoff.lab import families
from onoff.model.bounds import step_bounds
from onoff.model.chain import MarkovChain
from onoff.schemes import greedy
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.session.session import TableCache
from onoff.system.kernels import preparing_seconds

STEPS = 10
SIZES = (17, 100, 300, 1000)
RUNS = {17: 12, 100: 4}
"""Runs for a number of sources; else FEW_RUNS."""
FEW_RUNS = 3
CLEAR = 2.0
"""Standard errors from which a difference counts."""
CHAINS: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "dense": lambda n, rng: families.dirichlet(n, 1.0, rng),
    "sticky": lambda n, rng: families.sticky(n, rng),
    "zipf": lambda n, rng: families.zipf(n, rng),
    "grid": lambda n, _: families.FAMILIES["grid"](n if n != 17 else 16, np.random.default_rng(0)),
    "out-degree 6": lambda n, rng: families.out_degree(n, 6, rng),
}


def run(
    sizes: Sequence[int] = SIZES, chains: Sequence[str] = tuple(CHAINS), runs: int | None = None, seed: int = 1
) -> dict[str, Any]:
    """Every chain, size and scheme.

    Parameters
    ----------
    sizes
        Numbers of sources.
    chains
        Names of CHAINS.
    runs
        Of each scheme; None for the usual number.
    seed
        Of the chains and the runs.
    """
    cases = []
    for n in sizes:
        for name in chains:
            chain = MarkovChain(CHAINS[name](n, np.random.default_rng(seed)))
            lower = sum(step.lower for step in step_bounds(chain, STEPS))
            auto: list[float] = []
            for scheme in ("auto", "greedy", "race"):
                if scheme == "greedy" and not greedy.fits_in_memory(chain.rows()):
                    print(f"session: {name}, N = {chain.n}, greedy does not fit in memory", file=sys.stderr, flush=True)
                    continue
                print(f"session: {name}, N = {chain.n}, {scheme}", file=sys.stderr, flush=True)
                tables = TableCache(chain, scheme)  # the table after everything is kept, as on disk
                walks = [walk(chain, tables, seed + at) for at in range(runs or RUNS.get(n, FEW_RUNS))]
                ratios = [cost / lower for cost, _ in walks]
                auto = ratios if scheme == "auto" else auto
                each = np.array([seconds for _, seconds in walks])
                cases.append(
                    {
                        "chain": name,
                        "n": chain.n,
                        "scheme": scheme,
                        "over_bounds": mean_and_error(ratios),
                        "dearer": mean_and_error([ours - its for ours, its in zip(auto, ratios, strict=True)]),
                        "first_seconds": float(each[:, 0].max()),
                        "mean_seconds": float(each[:, 1:].mean()),
                        "largest_seconds": float(each[:, 1:].max()),
                    }
                )
                print(_line(cases[-1]), file=sys.stderr, flush=True)
    ok = not any(map(clearly_dearer, cases))
    return {"benchmark": "session", "ok": ok, "preparing_seconds": preparing_seconds(), "cases": cases}


def mean_and_error(values: Sequence[float]) -> list[float]:
    """The mean, and its standard error."""
    return [float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))]


def clearly_dearer(case: dict[str, Any]) -> bool:
    """Whether `auto` costs more than this scheme, beyond what so few runs can tell."""
    mean, error = case["dearer"]
    return bool(mean > CLEAR * error + 1e-9)


def walk(chain: MarkovChain, tables: TableCache, seed: int) -> tuple[float, list[float]]:
    """The summed expected cost of ten OFF requests, and the processor seconds of each."""
    rng = np.random.default_rng(seed)
    session = Session(chain, tables=tables, entropy=SeededEntropy(rng))
    path = chain.sample(STEPS + 1, rng).tolist()
    session.request(path[0], private=True)
    cost, seconds = 0.0, []
    for x in path[1:]:
        before = time.thread_time() - preparing_seconds()
        session.prepare()
        seconds.append(time.thread_time() - preparing_seconds() - before)
        cost += session.expected_cost(private=False)
        session.request(x, private=False)
    return cost, seconds


def show(result: dict[str, Any]) -> str:
    """A line for each case."""
    lines = [
        "| chain | N | scheme | cost / bounds | auto dearer by | first s | each s | largest s |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    lines += map(_line, result["cases"])
    lines.append(f"\nMaking kernels ready took {result['preparing_seconds']:.1f} s besides.")
    return "\n".join(lines)


def _line(c: dict[str, Any]) -> str:
    seconds = " | ".join(f"{c[key]:.2f}" for key in ("first_seconds", "mean_seconds", "largest_seconds"))
    costs = " | ".join("{:.3f} ± {:.3f}".format(*c[key]) for key in ("over_bounds", "dearer"))
    return f"| {c['chain']} | {c['n']} | {c['scheme']} | {costs} | {seconds} |"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of sources")
    parser.add_argument("--chains", choices=tuple(CHAINS), nargs="+", default=tuple(CHAINS), help="kinds of chains")
    parser.add_argument("--runs", type=int, help="runs of each scheme")
    parser.add_argument("--out", type=Path, help="write the JSON to this file")
    options = parser.parse_args()
    result = run(options.sizes, options.chains, options.runs)
    print(show(result), file=sys.stderr)
    document = json.dumps(result, indent=2)
    print(document)
    if options.out is not None:
        options.out.write_text(document + "\n", encoding="utf-8")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
