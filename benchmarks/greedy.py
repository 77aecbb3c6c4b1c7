"""Algorithm 1: the compiled integers of `schemes.greedy` against the literal transcription, in one run.

Dense chains, rows from Dirichlet(1). Both get the same rows and must give the same cost. Times are the best of a
few runs for the fast one, after a first call that loads what is compiled; the literal one runs once.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from benchmarks.literal_algorithm1 import algorithm1, as_queries

from onoff.lab.families import dirichlet
from onoff.model.rows import UNIT, Rows
from onoff.schemes import greedy

SIZES = (32, 64, 128)
WANTED_RATIO = 20
"""At the largest size."""


def seconds(work: Callable[[], Any], repeat: int = 1) -> float:
    """The shortest of `repeat` runs, by the clock of the processor: others may be at work on the machine."""
    best = math.inf
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def exponent(sizes: list[int], times: list[float]) -> float:
    """The slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def literal_table(rows: Rows) -> dict[tuple[tuple[int, ...], int, int], Fraction]:
    """p(y, x | u) as the literal transcription has it."""
    out, _ = algorithm1([[Fraction(units, UNIT) for units in row] for row in rows.weights.tolist()])
    return as_queries(out)


def run(sizes: tuple[int, ...] = SIZES, seed: int = 1) -> dict[str, Any]:
    """Times, ratios and growth for every size."""
    rng = np.random.default_rng(seed)
    greedy.build(Rows.of(dirichlet(40, 1.0, rng)))  # loads or compiles the kernels
    cases = []
    for n in sizes:
        rows = Rows.of(dirichlet(n, 1.0, rng))
        print(f"greedy: N = {n}", file=sys.stderr)
        fast = seconds(lambda rows=rows: greedy.build(rows), repeat=3)
        found: list[dict[tuple[tuple[int, ...], int, int], Fraction]] = []
        slow = seconds(lambda rows=rows, found=found: found.append(literal_table(rows)))
        cost = greedy.build(rows).exact_cost
        if sum((len(y) * mass for (y, _, u), mass in found[0].items() if u == 0), start=Fraction(0)) != cost:
            raise AssertionError(f"N = {n}: the literal transcription has another cost")
        case = {"n": n, "seconds": fast, "literal_seconds": slow, "ratio": slow / fast, "cost": float(cost)}
        cases.append(case)
    return {
        "benchmark": "greedy",
        "cases": cases,
        "growth_exponent": exponent([c["n"] for c in cases], [c["seconds"] for c in cases]),
        "literal_growth_exponent": exponent([c["n"] for c in cases], [c["literal_seconds"] for c in cases]),
        "ok": cases[-1]["ratio"] >= WANTED_RATIO,
    }


def show(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    lines = [f"{'N':>6} {'greedy':>10} {'literal':>10} {'ratio':>8} {'cost':>8}"]
    for c in result["cases"]:
        lines.append(
            f"{c['n']:>6} {c['seconds']:>9.4f}s {c['literal_seconds']:>9.2f}s {c['ratio']:>8.0f} {c['cost']:>8.3f}"
        )
    lines.append(
        f"time grows as N^{result['growth_exponent']:.2f} (literal: N^{result['literal_growth_exponent']:.2f}); "
        f"at least {WANTED_RATIO} times faster at N = {result['cases'][-1]['n']}: {'yes' if result['ok'] else 'NO'}"
    )
    return "\n".join(lines)
