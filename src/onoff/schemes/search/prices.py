"""Many sparse rows: sets that pay at prices, and prices that follow what was taken.

Setting
    phi_u(x)  what row u offers for taking x;   S  a set of sources, each of which costs 1
    gain(S)   sum over rows of the largest phi_u(x) with x in S,  less |S|

A set that gains most at given prices is what the dual of the program would add (`pricing`). Let it be taken, for a
moment: each row takes the source of S that it offers most for. Then prices follow,

    phi_u(x)  +=  pace * (p_u(x) - 1 where u took x),

so that a source taken too seldom by a row is offered more for. The rows are met on average: phi cannot run away, and
phi / pace is just what each row is behind or ahead. And with a small pace every set gains nearly the most that any
can, so that on average they cost nearly the optimum (a subgradient method; "herding" where it is used to draw samples).

The set that gains most is not looked for from scratch: after a step of prices the last one nearly is it, and a few
sources are added, dropped or exchanged. Of the sets of the last steps the master program (`hall`) makes a table, in a
few rounds and without pricing: 225 places on a map with six equal successors each cost 48.6, by exchanges alone 50.9.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.hall import Sets
from onoff.system.kernels import kernel

PACES = ((0.1, 500), (0.05, 1000), (0.02, 2000), (0.01, 2000))
"""How fast prices follow, and for how many steps; each pace starts where the one before ended."""
LAST_PACE, KEPT_SETS, STEPS_APART = 0.005, 1200, 4
"""The last pace, the sets that are kept of its steps, and how many steps apart they are."""
AT_A_TIME = 100
"""Steps between two looks at the clock."""
SWEEPS = 6
"""Times that all sources are looked at in a step, at most."""
WORTH_TURNING = 1e-9
"""What an exchange must gain."""
UNMET = 1e3
"""What a row counts for that can take nothing of a set: more than any source costs."""


def steps_for(p: Floats) -> int:
    """Positive entries of the rows times steps of prices: what `priced_sets` looks at, about."""
    steps = sum(steps for _, steps in PACES) + KEPT_SETS * STEPS_APART
    return steps * int(np.count_nonzero(p))


def priced_sets(p: Floats, is_over: Callable[[], bool]) -> Sets | None:
    """Sets that nearly gain the most at prices at which the rows are met on average; None where it `is_over` before."""
    market = _Market(p)
    for pace, steps in PACES:
        for _ in range(steps // AT_A_TIME):
            if is_over():
                return None
            market.trade(pace, np.zeros((AT_A_TIME, p.shape[1]), dtype=bool))
    kept = []
    for _ in range(KEPT_SETS * STEPS_APART // AT_A_TIME):
        if is_over():
            return None
        taken = np.zeros((AT_A_TIME, p.shape[1]), dtype=bool)
        market.trade(LAST_PACE, taken)
        kept.append(taken[::STEPS_APART])
    return np.concatenate(kept)


class _Market:
    """Prices, and the set that gains most at them. Entries are the positive p_u(x), by rows; `of_column` by columns."""

    def __init__(self, p: Floats) -> None:
        row, column = np.nonzero(p)
        self._p: Floats = p[row, column]
        self._row, self._column = row.astype(np.int64), column.astype(np.int64)
        self._first = np.searchsorted(row, np.arange(len(p) + 1)).astype(np.int64)
        self._of_column: Integers = np.argsort(column, kind="stable")
        self._start = np.searchsorted(column[self._of_column], np.arange(p.shape[1] + 1)).astype(np.int64)
        self._phi = np.zeros(len(row))
        self._inside = np.ones(p.shape[1], dtype=np.bool_)

    def trade(self, pace: float, taken: Sets) -> None:
        """A step of prices for each line of `taken`, where the set of the step is put."""
        net = self._first, self._column, self._start, self._of_column, self._row
        _trade(*net, self._p, self._phi, self._inside, pace, taken)


@kernel
def _trade(first, column, start, of_column, row, p, phi, inside, pace, taken):  # type: ignore[no-untyped-def]
    """Find a set that gains most, let rows take of it, let prices follow; once for each line of `taken`."""
    rows = len(first) - 1
    best = np.zeros(rows, np.int64)
    second = np.zeros(rows, np.int64)
    for step in range(len(taken)):
        for u in range(rows):
            _rank(u, first, column, phi, inside, best, second)
        for sweep in range(SWEEPS):
            if not _sweep(sweep, first, column, start, of_column, row, phi, inside, best, second):
                break
        taken[step] = inside
        for e in range(len(p)):
            phi[e] += pace * p[e]
        for u in range(rows):
            phi[best[u]] -= pace


@kernel
def _rank(u, first, column, phi, inside, best, second):  # type: ignore[no-untyped-def]
    """The entries of the two sources in the set that row u offers most for; -1 where there is none."""
    best[u], second[u] = -1, -1
    for e in range(first[u], first[u + 1]):
        if inside[column[e]]:
            if best[u] < 0 or phi[e] > phi[best[u]]:
                best[u], second[u] = e, best[u]
            elif second[u] < 0 or phi[e] > phi[second[u]]:
                second[u] = e


@kernel
def _turn(x, first, column, start, of_column, row, phi, inside, best, second):  # type: ignore[no-untyped-def]
    """Take x into the set, or out of it."""
    inside[x] = not inside[x]
    for k in range(start[x], start[x + 1]):
        _rank(row[of_column[k]], first, column, phi, inside, best, second)


@kernel
def _gain_of_turning(x, start, of_column, row, phi, inside, best, second):  # type: ignore[no-untyped-def]
    """What the set gains where x is taken into it, or out of it."""
    gain = 1.0 if inside[x] else -1.0
    for k in range(start[x], start[x + 1]):
        e = of_column[k]
        u = row[e]
        if inside[x]:
            if best[u] == e:
                gain -= phi[e] - phi[second[u]] if second[u] >= 0 else UNMET
        elif best[u] < 0:
            gain += UNMET
        elif phi[e] > phi[best[u]]:
            gain += phi[e] - phi[best[u]]
    return gain


@kernel
def _sweep(offset, first, column, start, of_column, row, phi, inside, best, second):  # type: ignore[no-untyped-def]
    """Look at every source once: take it in, take it out, or take it in for another one; whether anything changed."""
    changed = False
    columns = len(inside)
    for at in range(columns):
        x = (at + offset * 7919) % columns
        gain = _gain_of_turning(x, start, of_column, row, phi, inside, best, second)
        if gain > WORTH_TURNING:
            _turn(x, first, column, start, of_column, row, phi, inside, best, second)
            changed = True
        elif not inside[x]:
            _turn(x, first, column, start, of_column, row, phi, inside, best, second)
            other, most = -1, WORTH_TURNING
            for k in range(start[x], start[x + 1]):
                u = row[of_column[k]]
                for e in (best[u], second[u]):
                    if e >= 0 and column[e] != x:
                        more = _gain_of_turning(column[e], start, of_column, row, phi, inside, best, second)
                        if gain + more > most:
                            other, most = column[e], gain + more
            turned = other if other >= 0 else x
            _turn(turned, first, column, start, of_column, row, phi, inside, best, second)
            changed = changed or other >= 0
    return changed
