"""Among tables of equal cost, one whose queries have cheap successors: a second objective on the master program.

The cost is held and the value of what follows minimised, over sets that are priced for it: a set is worth adding where

    t - sum of y_A over A that contain S - c |S| - value(S)  >  0,          c the dual of "the cost is held".

Sets are valued by their bounds (see `successors`). Up to ALL_SETS_VALUED columns every set is looked at, so that the
second objective is solved to its end; beyond, sets are climbed to as if all values were equal, and judged by them.

In small chains with symmetries many sets have equal bounds and yet are not worth the same. There the sets that come out
are valued again, by programs of their own (see `horizon`), a request deeper each time, until it is deep enough or the
time is up. Elsewhere that gains less than a thousandth over ten requests, for ten times the time.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from onoff.model.rows import Floats, Rows
from onoff.schemes.search.cheapest import table_of
from onoff.schemes.search.hall import Sets
from onoff.schemes.search.horizon import MOST_VALUED_SOURCES, Horizon, numbers_of, priced, solve_to_the_end
from onoff.schemes.search.pricing import WORTHWHILE, Duals, by_climbing
from onoff.schemes.search.proposals import systematic
from onoff.schemes.search.search import SHAKING, Search
from onoff.schemes.search.successors import SuccessorCost
from onoff.tables.table import QueryTable

SAME_COST = 1e-9
"""Tables whose costs differ by less, relatively, count as equal when the future is looked at."""
ALL_SETS_VALUED = 17
"""Columns up to which every set is priced with its value."""
MOST_PROGRAMS = 120
"""Programs that may be solved to value sets for one table."""
DEEPEST = 4
"""Requests after which sets are valued by their bounds, at the most."""


def look_ahead(search: Search, table: QueryTable, chain: Rows) -> QueryTable:
    """`table`, or one as cheap whose queries have cheaper successors, as far as the time allows."""
    if search.best is None or search.best.value > table.cost * (1 + SAME_COST):
        return table
    program, future = search.program, SuccessorCost(search.rows, chain)
    program.add_sets(systematic(program.p, 8, search.rng))
    most = max(search.best.value, search.lower) * (1 + SAME_COST)
    if program.size <= ALL_SETS_VALUED:
        found = _deepened(search, chain, future, most)
    else:
        program.prefer(future, most)
        found = solve_to_the_end(program, lambda: _climbed(search, future), search.clock.is_over)
    search.clock.left()
    if found is None:
        return table
    ahead = table_of(search.rows, *found)
    return ahead if ahead.cost <= table.cost * (1 + 2 * SAME_COST) else table


def _deepened(search: Search, chain: Rows, future: SuccessorCost, most: float) -> tuple[Sets, Floats] | None:
    """Sets and masses that cost no more than `most`, for the deepest values there is time for."""
    values = future.of_all()
    if chain.m != chain.n or chain.n > MOST_VALUED_SOURCES:
        return _solved_with(search, values, most)
    horizon, found = Horizon.of(chain), None
    with horizon.lock:
        last = horizon.solved + MOST_PROGRAMS
        for depth in range(1 + (min(DEEPEST, future.requests) if horizon.tells_more else 0)):
            deeper = _at_depth(search, horizon, values, most, (future.requests, depth), last)
            if deeper is None:
                break
            found = deeper
    return found


def _at_depth(
    search: Search, horizon: Horizon, bounds: Floats, most: float, run: tuple[int, int], last: int
) -> tuple[Sets, Floats] | None:
    """Sets and masses for values of one depth; None where there is no time for it, or for more than `last` programs."""
    sources = search.rows.columns
    while True:
        found = _solved_with(search, horizon.values(tuple(sources.tolist()), bounds, *run), most)
        if found is None or (run[1] > 0 and search.clock.is_over()):
            return None
        fresh = horizon.missing([tuple(sources[chosen].tolist()) for chosen in found[0]], *run)
        if not fresh:
            return found
        for chosen in fresh:
            if not horizon.value(chosen, *run, lambda: search.clock.is_over() or horizon.solved >= last):
                return None


def _solved_with(search: Search, values: Floats, most: float) -> tuple[Sets, Floats] | None:
    """Sets and masses that cost no more than `most` and have the least values, of all sets."""
    search.program.prefer(partial(_looked_up, values), most)
    return solve_to_the_end(search.program, partial(priced, search.program, values), search.clock.is_over)


def _looked_up(values: Floats, sets: Sets) -> Floats:
    return np.asarray(values[numbers_of(sets)], dtype=np.float64)


def _climbed(search: Search, future: SuccessorCost) -> Sets:
    """Sets that gain, as far as climbing finds any."""
    program = search.program
    weight = program.cost_dual
    if weight <= 0:
        return np.zeros((0, program.size), dtype=bool)
    duals = Duals.of(program.t / weight, program.y / weight, program.cuts)
    sets, gains = by_climbing(duals, search.starts(), SHAKING[0], search.rng)
    return sets[weight * gains - future(sets) > WORTHWHILE]
