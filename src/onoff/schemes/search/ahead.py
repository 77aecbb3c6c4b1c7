"""Among tables of equal cost, one whose queries have cheap successors: a second objective on the master program.

The cost is held and the value of what follows (see `successors`) minimised, over sets that are priced for it: a set is
worth adding where

    t - sum of y_A over A that contain S - c |S| - value(S)  >  0,          c the dual of "the cost is held".

Up to ALL_SUBSETS columns every set is looked at, so that the second objective is solved to its end. Beyond, sets are
climbed to as if all values were equal, and judged by their values.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Floats
from onoff.schemes.search.hall import NOTICED, Sets
from onoff.schemes.search.pricing import WORTHWHILE, Duals, by_climbing, subset_gains
from onoff.schemes.search.proposals import systematic
from onoff.schemes.search.search import SHAKING, Search
from onoff.schemes.search.successors import SuccessorCost
from onoff.tables.table import QueryTable

SAME_COST = 1e-9
"""Tables whose costs differ by less, relatively, count as equal when the future is looked at."""
MOST_LOOKS = 400
"""Rounds of looking ahead at most: a number, not a time, so that the same rows give the same table."""
ALL_SETS_VALUED = 17
"""Columns up to which every set is priced with its value."""


def look_ahead(search: Search, table: QueryTable, future: SuccessorCost) -> QueryTable:
    """`table`, or one as cheap whose queries have cheaper successors, as far as the time allows.

    Parameters
    ----------
    search
        That found the table, and its clock.
    table
        What was found.
    future
        What a query costs later.
    """
    if search.best is None or search.best.value > table.cost * (1 + SAME_COST):
        return table
    program, found = search.program, None
    values = future.of_all() if program.size <= ALL_SETS_VALUED else None
    program.add_sets(systematic(program.p, 8, search.rng))
    program.prefer(future, max(search.best.value, search.lower) * (1 + SAME_COST))
    for _ in range(MOST_LOOKS):
        if search.clock.left() < 0 or not program.solve(search.clock.is_over):
            break
        missing, violated = program.short_rows()
        cuts = program.add_cuts(violated[missing > NOTICED])
        if not cuts:
            used = program.masses > 0
            found = program.sets[used], program.masses[used]
        priced = _climbed(search, future) if values is None else _priced(search, values)
        if not program.add_sets(priced) and not cuts:
            break
    if found is None:
        return table
    ahead = search.made_of(*found)
    return ahead if ahead.cost <= table.cost * (1 + 2 * SAME_COST) else table


def _priced(search: Search, values: Floats) -> Sets:
    """The sets that gain most, of all."""
    program = search.program
    gains = subset_gains(Duals.of(program.t, program.y, program.cuts), program.cost_dual) - values
    gains[0] = -np.inf
    best = np.argsort(-gains, kind="stable")[: 4 * program.size]
    best = best[gains[best] > WORTHWHILE]
    return np.asarray((best[:, None] >> np.arange(program.size)) & 1 == 1)


def _climbed(search: Search, future: SuccessorCost) -> Sets:
    """Sets that gain, as far as climbing finds any."""
    program = search.program
    weight = program.cost_dual
    if weight <= 0:
        return np.zeros((0, program.size), dtype=bool)
    duals = Duals.of(program.t / weight, program.y / weight, program.cuts)
    sets, gains = by_climbing(duals, search.starts(), SHAKING[0], search.rng)
    return sets[weight * gains - future(sets) > WORTHWHILE]
