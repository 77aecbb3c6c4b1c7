"""How many passes over the matrix a chain's rows and bounds take: times over that of one pass, in one run.

    python benchmarks/passes.py [--sources 1000] [--times 9]

A pass is a compiled loop that reads every float of the matrix once and adds it up, on one thread. Each time is the
least processor time of some calls; kernels are ready before. Rows are dense, Dirichlet(1). `bounds` sorts each column:
`sort` is what numpy takes for that alone.

What a processor without AVX-512 takes is seen on one that has it, too, with the names of such a one in the environment:
NUMBA_CPU_NAME=znver2 NUMBA_CPU_FEATURES=+avx2,+avx,+fma,+bmi,+bmi2,+sse4.2,+sse4.1,+popcnt.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from onoff.lab import families
from onoff.model.bounds import bounds
from onoff.model.chain import MarkovChain
from onoff.system.kernels import kernel


@kernel
def added_up(matrix):  # type: ignore[no-untyped-def]
    """The sum of all entries, one after the other."""
    total = 0.0
    for u in range(matrix.shape[0]):
        for x in range(matrix.shape[1]):
            total += matrix[u, x]
    return total


def run(sources: int = 1000, times: int = 9) -> dict[str, Any]:
    """Passes of each call. times: how often each is made."""
    matrix = families.dirichlet(sources, 1.0, np.random.default_rng(1))
    chain = MarkovChain(matrix)
    rows = chain.rows()
    one = least(lambda: added_up(matrix), 3 * times)
    calls: dict[str, Callable[[], object]] = {"rows": chain.rows, "bounds": lambda: bounds(rows)}
    calls["sort"] = lambda: np.sort(rows.weights, axis=0)
    passes = {name: least(call, times) / one for name, call in calls.items()}
    return {"benchmark": "passes", "sources": sources, "pass_seconds": one, "passes": passes}


def least(call: Callable[[], object], times: int) -> float:
    """The least processor seconds of some calls, after one that is not counted."""
    call()
    found = []
    for _ in range(times):
        before = time.thread_time()
        call()
        found.append(time.thread_time() - before)
    return min(found)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--times", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps(run(options.sources, options.times), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
