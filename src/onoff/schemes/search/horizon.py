"""What the rest of a run costs after a query: dynamic programming over sets, as deep as there is time.

`successors` values a set by lower bounds on each request that follows it. No table need reach all of them at once, and
where many sets have the same bounds, they do not tell which of them can. So, with

    V(S, t, 0)   the sum of the bounds on the t requests after query S
    V(S, t, d)   the least  sum of m_Q (|Q| + V(Q, t - 1, d - 1))  over masses m that the rows P_x, x in S, can follow

V grows with the depth d up to V(S, t, t), what the cheapest of all ways to go on costs. Few sets need to be valued:
the program is solved with the bounds for sets not valued yet, the sets that it uses are valued, and again until it uses
none but valued ones. As the bounds are not above the values, no other set could do better. Sets that symmetries of the
chain take to one another have the same value.

All that is found is kept as long as the chain's rows are: tables of one session meet the same sets again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np

from onoff.model.rows import Floats, Rows
from onoff.schemes.search.hall import NOTICED, HallProgram, Sets
from onoff.schemes.search.pricing import WORTHWHILE, Duals, subset_gains
from onoff.schemes.search.successors import bounds_by_request, powers_of
from onoff.schemes.search.symmetry import symmetries

MOST_VALUED_SOURCES = 12
"""Sources of a chain up to which sets are valued: a program looks at all sets of them again and again."""
MOST_PROGRAMS_KEPT = 1000
"""Programs of one chain that are kept; beyond, the oldest is let go."""
MOST_LOOKS = 400
"""Rounds of one program at most: a number, not a time, so that the same rows give the same table."""

Asked = tuple[int, ...]
"""Sources, ascending."""

_horizons: WeakKeyDictionary[Rows, Horizon] = WeakKeyDictionary()


class Horizon:
    """The values of sets of sources of `chain`, which has the row P_x of every source x."""

    def __init__(self, chain: Rows) -> None:
        self.lock = Lock()
        """To be held while values are asked for: programs are live."""
        self.solved = 0
        """Programs solved so far."""
        self._weights, self._columns, self._n, self._group = chain.weights, chain.columns, chain.n, chain.group
        self._powers = powers_of(chain)
        self._known: dict[tuple[int, int], dict[Asked, float]] = {}
        self._steps: dict[Asked, _Step] = {}
        found = symmetries(chain.probabilities(), lambda: False) if chain.distinct == chain.n else None
        self._maps: list[list[int]] = []
        if found is not None:  # a row for each source, a column for each that is reached: both are to go the same way
            same = (found.of_rows[:, chain.columns] == chain.columns[found.of_columns]).all(axis=1)
            self._maps = found.of_rows[same].tolist()

    @property
    def tells_more(self) -> bool:
        """Whether values are worth their time: without symmetries few sets have equal bounds."""
        return bool(self._maps)

    @classmethod
    def of(cls, chain: Rows) -> Horizon:
        """The one of this chain."""
        if chain not in _horizons:
            _horizons[chain] = cls(chain)
        return _horizons[chain]

    def values(self, columns: Asked, bounds: Floats, requests: int, depth: int) -> Floats:
        """V of every set of `columns` by the number whose bits are its members; the bound where it is not known."""
        found = bounds.copy()
        bit = {x: 1 << at for at, x in enumerate(columns)}
        for chosen, value in self._known.get((requests, depth), {}).items():
            if all(x in bit for x in chosen):
                found[sum(bit[x] for x in chosen)] = value
        return found

    def missing(self, sets: list[Asked], requests: int, depth: int) -> list[Asked]:
        """Those of the sets whose V is not known."""
        known = self._known.get((requests, depth), {})
        return [] if depth == 0 else [chosen for chosen in sets if chosen not in known]

    def value(self, chosen: Asked, requests: int, depth: int, is_over: Callable[[], bool]) -> bool:
        """Find V of one set, and of all others that this takes; False where it `is_over` before."""
        if not self.missing([chosen], requests, depth):
            return True  # by now, through an image of it
        rows = sorted(set(self._group[list(chosen)].tolist()))
        if len(rows) == 1:
            return self._keep(chosen, requests, depth, float(requests))
        step = self._step(chosen, rows)
        while True:
            after = self.values(step.columns, step.bounds[requests - 1], requests - 1, depth - 1)
            if is_over() or not step.minimise(after, is_over):
                return False
            self.solved += 1
            fresh = self.missing(step.used(), requests - 1, depth - 1)
            if not fresh:
                return self._keep(chosen, requests, depth, step.program.value)
            if not all(self.value(one, requests - 1, depth - 1, is_over) for one in fresh):
                return False

    def _keep(self, chosen: Asked, requests: int, depth: int, value: float) -> bool:
        """Keep the value for a set and all that symmetries take it to."""
        known = self._known.setdefault((requests, depth), {})
        known[chosen] = value
        images = [chosen]
        for image in images:
            for g in self._maps:
                other = tuple(sorted(g[x] for x in image))
                if other not in known:
                    known[other] = value
                    images.append(other)
        return True

    def _step(self, chosen: Asked, rows: list[int]) -> _Step:
        """The program of the request after `chosen`."""
        if chosen not in self._steps:
            part = Rows.from_integers(self._weights[rows], self._n, self._columns)
            if len(self._steps) >= MOST_PROGRAMS_KEPT:
                del self._steps[next(iter(self._steps))]
            following = np.ascontiguousarray(self._powers[:, part.columns])
            self._steps[chosen] = _Step(part, bounds_by_request(following))
        return self._steps[chosen]


class _Step:
    """The program of one request: masses that its rows can follow, and what sets of its columns may cost later."""

    def __init__(self, rows: Rows, bounds: Floats) -> None:
        self.columns: Asked = tuple(rows.columns.tolist())
        self.bounds = bounds
        self.program = HallProgram(rows)
        one = np.eye(self.program.size, dtype=bool)
        self.program.add_sets(np.vstack([one, np.ones((1, len(one)), dtype=bool)]))
        self.program.add_cuts(np.vstack([one, ~one, self.program.p > 0]))
        self._sizes = np.bitwise_count(np.arange(1 << len(one))).astype(np.float64)

    def minimise(self, after: Floats, is_over: Callable[[], bool]) -> bool:
        """Minimise the mean of |Q| + after(Q); False where it `is_over` before."""
        costs = self._sizes + after
        self.program.prefer(lambda sets: costs[numbers_of(sets)], math.inf)
        return solve_to_the_end(self.program, lambda: priced(self.program, costs), is_over) is not None

    def used(self) -> list[Asked]:
        """The sets of sources with mass."""
        sets = self.program.sets[: len(self.program.masses)][self.program.masses > NOTICED]
        columns = np.array(self.columns)
        return [tuple(columns[chosen].tolist()) for chosen in sets]


def solve_to_the_end(
    program: HallProgram, price: Callable[[], Sets], is_over: Callable[[], bool]
) -> tuple[Sets, Floats] | None:
    """Solve, cut and price until nothing is new: the last sets that all rows can follow, with masses.

    is_over: Whether to stop before: then the last masses that all rows could follow, if any.
    """
    found = None
    for _ in range(MOST_LOOKS):
        if not program.solve(is_over):
            break
        missing, violated = program.short_rows()
        cuts = program.add_cuts(violated[missing > NOTICED])
        if not cuts:
            used = program.masses > 0
            found = program.sets[: len(used)][used], program.masses[used]
        if (not program.add_sets(price()) and not cuts) or is_over():
            break
    return found


def priced(program: HallProgram, costs: Floats) -> Sets:
    """The sets that gain most by the duals of the program, of all; costs: of every set by its number."""
    gains = subset_gains(Duals.of(program.t, program.y, program.cuts), program.cost_dual) - costs
    gains[0] = -np.inf
    best = np.argsort(-gains, kind="stable")[: 4 * program.size]
    best = best[gains[best] > WORTHWHILE]
    return np.asarray((best[:, None] >> np.arange(program.size)) & 1 == 1)


def numbers_of(sets: Sets) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of each set of columns: its members as bits."""
    return np.asarray(sets @ (1 << np.arange(sets.shape[1], dtype=np.int64)), dtype=np.int64)
