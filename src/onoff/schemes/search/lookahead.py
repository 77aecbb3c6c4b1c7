"""Look-ahead: among tables of equal cost, one whose queries have cheap successors.

With the last query as memory, the request after query S has to hide which x in S it came from; the k-th request after
it costs at least

    V_k(S)  =  max(sum over z of max P^k(x, z),  2 - sum over z of min P^k(x, z)),      max and min over x in S,

for k = 1 the optimum if |S| <= 3 and mostly beyond. What follows is valued at the sum of V_k(S) over the next RUN
requests, as if all were OFF. The expected value is linear in the masses, so the master program finds those with the
cheapest successors among all that cost no more: a second objective, over sets that are priced for it. With c the dual
of "the cost is held", a set is worth adding where

    t - sum of y_A over A that contain S - c |S| - value(S)  >  0

Up to ALL_SETS_VALUED columns every set is looked at, so that the second objective is solved to its end; beyond, sets
are climbed to as if all values were equal, and judged by them.

Exact values. No table need reach all bounds at once, and where many sets have the same bounds, as in chains with
symmetries, they do not tell which of them can. So, for small chains,

    V(S, t, 0)   the sum of the bounds on the t requests after query S
    V(S, t, d)   the least  sum of m_Q (|Q| + V(Q, t - 1, d - 1))  over masses m that the rows P_x, x in S, can follow

V grows with the depth d up to V(S, t, t), what the cheapest of all ways to go on costs. Few sets need to be valued: the
program is solved with the bounds for sets not valued yet, the sets that it uses are valued, and again until it uses
none but valued ones. As the bounds are not above the values, no other set could do better. Sets that symmetries of the
chain take to one another have the same value. What is found is kept as long as the chain's rows are: tables of one
session meet the same sets again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np

from onoff.model.rows import Floats, Rows
from onoff.schemes.search.exact import Sets, csr, sets_of, table_of
from onoff.schemes.search.herding import races, systematic
from onoff.schemes.search.master import NOTICED, MasterProgram, by_climbing
from onoff.schemes.search.orbits import symmetries
from onoff.schemes.search.portfolio import MANY, SMALL_QUERIES, Board, IsOver, Problem
from onoff.schemes.search.proofs import WORTHWHILE, Duals, best_subsets, subset_gains
from onoff.system.kernels import kernel
from onoff.tables.table import QueryTable

SAME_COST = 1e-9
"""Tables whose costs differ by less, relatively, count as equal."""
ALL_SETS_VALUED = 17
"""Columns up to which every set is priced with its value."""
MOST_PROGRAMS, DEEPEST = 120, 4
"""Programs that may be solved to value sets for one table, and the depth of values at the most."""
MOST_VALUED_SOURCES = 12
"""Sources of a chain up to which sets have exact values: a program looks at all sets of them again and again."""
MOST_PROGRAMS_KEPT = 1000
"""Programs of one chain that are kept; beyond, the oldest is let go."""
MOST_LOOKS = 400
"""Rounds of one program at most: a number, not a time, so that the same rows give the same table."""
SHAKEN = 0.05
"""By how much the duals are shaken that sets are climbed by."""
RACES, MOST_RACES = 40, 1000
"""Races for each column, and in all, whose sets are looked at."""
RUN = 10
"""Requests that are looked ahead."""
MOST_POWERS = 4 * 10**6
"""Entries of the powers of a chain that are kept: fewer requests are looked ahead where sources are many."""

Asked = tuple[int, ...]
"""Sources, ascending."""

_horizons: WeakKeyDictionary[Rows, Horizon] = WeakKeyDictionary()
_powers: WeakKeyDictionary[Rows, Floats] = WeakKeyDictionary()


def look_ahead(problem: Problem, board: Board, chain: Rows) -> QueryTable:
    """The incumbent, or a table as cheap whose queries have cheaper successors, as far as the time allows."""
    table = board.table()
    few = problem.few and 2 < problem.distinct < MANY and problem.lower <= SMALL_QUERIES
    if few or problem.clock.is_over():  # few rows give few cuts a round: it would take too long
        return table
    program, is_over = MasterProgram(problem.rows), problem.clock.is_over
    one = np.eye(program.size, dtype=bool)
    program.aim(central=problem.central)
    program.add_sets(np.vstack([np.ones((1, program.size), dtype=bool), one, sets_of(table), board.sets]))
    rng = problem.rng()
    program.add_sets(
        np.vstack([systematic(program.p, 8, rng)[0], races(program.p, min(RACES * program.size, MOST_RACES), rng)])
    )
    program.add_cuts(np.vstack([one, ~one, program.p > 0, board.cuts]))
    values = SuccessorCost(problem.rows, chain)
    most = table.cost * (1 + SAME_COST)
    if program.size <= ALL_SETS_VALUED:
        found = _deepened(program, chain, values, most, is_over)
    else:
        program.prefer(values, most)
        found = solve_to_the_end(program, lambda: _climbed(program, values, rng), is_over)
    ahead = None if found is None else table_of(problem.rows, *found, is_over)
    return table if ahead is None or ahead.cost > table.cost * (1 + 2 * SAME_COST) else ahead


def _deepened(
    program: MasterProgram, chain: Rows, future: SuccessorCost, most: float, is_over: IsOver
) -> tuple[Sets, Floats] | None:
    """Sets and masses that cost no more than `most`, for the deepest values there is time for."""
    values = future.of_all()
    if chain.m != chain.n or chain.n > MOST_VALUED_SOURCES:
        return _solved_with(program, values, most, is_over)
    horizon, found = Horizon.of(chain), None
    with horizon.lock:
        last = horizon.solved + MOST_PROGRAMS
        for depth in range(1 + (min(DEEPEST, future.requests) if horizon.tells_more else 0)):
            deeper = _at_depth(program, future.sources, horizon, values, most, (future.requests, depth), last, is_over)
            if deeper is None:
                break
            found = deeper
    return found


def _at_depth(
    program: MasterProgram,
    sources: Asked,
    horizon: Horizon,
    bounds: Floats,
    most: float,
    run: tuple[int, int],
    last: int,
    is_over: IsOver,
) -> tuple[Sets, Floats] | None:
    """Sets and masses for values of one depth; None where there is no time for it, or for more than `last` programs."""
    while True:
        found = _solved_with(program, horizon.values(sources, bounds, *run), most, is_over)
        if found is None or (run[1] > 0 and is_over()):
            return None
        fresh = horizon.missing([tuple(np.array(sources)[chosen].tolist()) for chosen in found[0]], *run)
        if not fresh:
            return found
        for chosen in fresh:
            if not horizon.value(chosen, *run, lambda: is_over() or horizon.solved >= last):
                return None


def _solved_with(program: MasterProgram, values: Floats, most: float, is_over: IsOver) -> tuple[Sets, Floats] | None:
    """Sets and masses that cost no more than `most` and have the least values, of all sets."""
    program.prefer(lambda sets: np.asarray(values[numbers_of(sets)], dtype=np.float64), most)
    return solve_to_the_end(program, partial(priced, program, values), is_over)


def _climbed(program: MasterProgram, future: SuccessorCost, rng: np.random.Generator) -> Sets:
    """Sets that gain, as far as climbing finds any."""
    weight = program.cost_dual
    if weight <= 0:
        return np.zeros((0, program.size), dtype=bool)
    duals = Duals.of(program.t / weight, program.y / weight, program.cuts)
    starts = np.vstack([np.eye(program.size, dtype=bool), program.used()[0]])
    sets, gains = by_climbing(duals, starts, SHAKEN, rng)
    return sets[weight * gains - future(sets) > WORTHWHILE]


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
        self.program = MasterProgram(rows)
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


class SuccessorCost:
    """The sum of V_k of sets of columns of `rows`, where `chain` holds the row P_x of every source x.

    Call it with sets; `of_all` gives that of every set at once.
    """

    def __init__(self, rows: Rows, chain: Rows) -> None:
        self.sources: Asked = tuple(rows.columns.tolist())
        self._following: Floats = np.ascontiguousarray(powers_of(chain)[:, rows.columns])
        self.requests = len(self._following)
        """How many requests are looked ahead."""

    def __call__(self, sets: Sets) -> Floats:
        offsets, items = csr(sets)
        found = np.empty(len(sets))
        _values(self._following, offsets, items, found)
        return found

    def of_all(self) -> Floats:
        """The value of every set of columns, by the number whose bits are its members; that of no column is 0."""
        values: Floats = bounds_by_request(self._following)[-1]
        return values


def bounds_by_request(following: Floats) -> Floats:
    """V_1 + ... + V_t of every set of columns, shape (requests + 1, sets): line t is for the next t requests.

    following: P^k(x, z) for k = 1, 2, ..., each column x and each source z.
    """
    powers, columns, sources = following.shape
    found = np.zeros((powers + 1, 1 << columns))
    for power, values in zip(following, found[1:], strict=True):
        highest, lowest = np.zeros((2, 1 << columns))
        for z in range(sources):
            highest += _over_sets(np.maximum, power[:, z])
            lowest += _over_sets(np.minimum, power[:, z])
        values[1:] = np.maximum(highest, 2 - lowest)[1:]
    return np.cumsum(found, axis=0)


def _over_sets(extreme: np.ufunc, values: Floats) -> Floats:
    """The largest or smallest value of each set of columns: of all sets of the first columns, and these with the next.

    That of no column is infinite. numpy does it as quickly as compiled code, so that none is needed.
    """
    found = np.empty(1 << len(values))
    found[0] = -np.inf if extreme is np.maximum else np.inf
    for x, value in enumerate(values):
        extreme(found[: 1 << x], value, out=found[1 << x : 2 << x])
    return found


def powers_of(chain: Rows) -> Floats:
    """P, P^2, ..., kept as long as the chain is."""
    if chain not in _powers:
        p = np.zeros((chain.m, chain.n))
        p[:, chain.columns] = chain.probabilities()[chain.group]
        powers = [p]
        if chain.m == chain.n:  # a chain's rows may be all that is known of it
            for _ in range(1, min(RUN, max(MOST_POWERS // p.size, 1))):
                powers.append(powers[-1] @ p)
        _powers[chain] = np.array(powers)
    return _powers[chain]


@kernel
def _values(following, offsets, items, found):  # type: ignore[no-untyped-def]
    """Fills in the value of each set."""
    powers, _, sources = following.shape
    for s in range(len(found)):
        found[s] = 0.0
        for k in range(powers):
            highest = 0.0
            lowest = 0.0
            for z in range(sources):
                high = following[k, items[offsets[s]], z]
                low = high
                for e in range(offsets[s] + 1, offsets[s + 1]):
                    value = following[k, items[e], z]
                    high = max(high, value)
                    low = min(low, value)
                highest += high
                lowest += low
            found[s] += max(highest, 2 - lowest)


def solve_to_the_end(
    program: MasterProgram, price: Callable[[], Sets], is_over: Callable[[], bool]
) -> tuple[Sets, Floats] | None:
    """Solve, cut and price until nothing is new: the last sets that all rows can follow, with masses.

    is_over: Whether to stop before: then the last masses that all rows could follow, if any.
    """
    found = None
    for _ in range(MOST_LOOKS):
        if not program.solve(is_over):
            break
        short = program.short_rows(is_over)
        if short is None:
            break
        cuts = program.add_cuts(short[1][short[0] > NOTICED])
        if not cuts:
            found = program.used()
        if (not program.add_sets(price()) and not cuts) or is_over():
            break
    return found


def priced(program: MasterProgram, costs: Floats) -> Sets:
    """The sets that gain most by the duals of the program, of all; costs: of every set by its number."""
    return best_subsets(subset_gains(program.duals(), program.cost_dual) - costs, 4 * program.size)


def numbers_of(sets: Sets) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of each set of columns: its members as bits."""
    return np.asarray(sets @ (1 << np.arange(sets.shape[1], dtype=np.int64)), dtype=np.int64)
