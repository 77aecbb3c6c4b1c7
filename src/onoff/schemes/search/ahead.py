"""Among tables of equal cost, one whose queries have cheap successors: a second objective on the master program."""

from __future__ import annotations

from onoff.schemes.search.hall import NOTICED
from onoff.schemes.search.pricing import WORTHWHILE, Duals, by_climbing
from onoff.schemes.search.proposals import systematic
from onoff.schemes.search.search import SHAKING, Search
from onoff.schemes.search.successors import SuccessorCost
from onoff.tables.table import QueryTable

SAME_COST = 1e-9
"""Tables whose costs differ by less, relatively, count as equal when the future is looked at."""
MOST_LOOKS = 40
"""Rounds of looking ahead at most: a number, not a time, so that the same rows give the same table."""


def look_ahead(search: Search, table: QueryTable, future: SuccessorCost) -> QueryTable:
    """`table`, or one as cheap whose queries have cheaper successors, as far as a few rounds find one."""
    if search.best is None or search.best.value > table.cost * (1 + SAME_COST):
        return table
    program, found = search.program, None
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
        if not _price(search, future) and not cuts:
            break
    return table if found is None else search.made_of(*found)


def _price(search: Search, future: SuccessorCost) -> int:
    """Add sets that are as cheap as any now and have cheap successors; how many."""
    program = search.program
    weight = program.cost_dual
    if weight <= 0:
        return 0
    duals = Duals.of(program.t / weight, program.y / weight, program.cuts)
    sets, gains = by_climbing(duals, search.starts(), SHAKING[0], search.rng)
    true_gains = weight * gains - future(sets)
    return program.add_sets(sets[true_gains > WORTHWHILE])
