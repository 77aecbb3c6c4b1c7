"""CheapestTable: the cheapest table that a search has made so far.

A search finds sets and masses that the rows can follow nearly or as far as floats can tell. `table_of` makes the exact
table nearest to them: rebuilt in integers (see `rebuild`), and what no row could place spread by Algorithm 1 (see
`repair`). Two tables need no search: that of Algorithm 1, and one of the sets of races (see `transport`), which is the
same for the same rows.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Floats, Rows
from onoff.schemes import greedy
from onoff.schemes.search import transport
from onoff.schemes.search.hall import SMALL_PROGRAM, Sets
from onoff.schemes.search.rebuild import rebuild_sets
from onoff.schemes.search.repair import repaired
from onoff.tables.table import QueryTable

LARGE = 200 * 200
"""Rows times columns from which even the start of a search takes seconds."""
RACING = 10**6
"""Rows times sources of raced sets: a number that does not depend on the budget."""
CLEARLY_MORE = 1.05
"""No table is made of masses that cost so many times the cheapest one: a rebuild does not make them cheaper."""


def table_of(rows: Rows, sets: Sets, masses: Floats, most: float = np.inf) -> QueryTable:
    """The exact table nearest to some masses, repaired unless it would then still cost more than `most`."""
    return repaired(rebuild_sets(rows, sets, masses), most)


def sets_of(table: QueryTable) -> Sets:
    """The queries of a table as flags over the columns of its rows."""
    sets = np.zeros((len(table), len(table.rows.columns)), dtype=bool)
    owner = np.repeat(np.arange(len(table)), np.diff(table.offsets))
    sets[owner, np.searchsorted(table.rows.columns, table.items)] = True
    return sets


class CheapestTable:
    """The cheapest table for `rows` that was offered; `table` is None before the first one."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.table: QueryTable | None = None
        self._has_algorithm_1 = False
        self._postponed: list[tuple[Sets, Floats]] = []

    @property
    def cost(self) -> float:
        """Expected messages of a query; infinite before the first table."""
        return np.inf if self.table is None else self.table.cost

    def offer(self, table: QueryTable) -> None:
        """Keep the table if it is cheaper than the one before."""
        if self.table is None or table.exact_cost < self.table.exact_cost:
            self.table = table

    def offer_masses(self, sets: Sets, masses: Floats) -> None:
        """Offer the table of these masses."""
        self.offer(table_of(self.rows, sets, masses, CLEARLY_MORE * self.cost))

    def postpone(self, sets: Sets, masses: Floats) -> None:
        """Offer the table of these masses; of few sources only at `offer_postponed`, as making it takes a moment."""
        if self.rows.weights.size <= SMALL_PROGRAM:
            self._postponed.append((sets, masses))
        else:
            self.offer_masses(sets, masses)

    def offer_postponed(self) -> None:
        """Offer the tables of all masses that were postponed."""
        for sets, masses in self._postponed:
            self.offer_masses(sets, masses)

    def offer_algorithm_1(self) -> None:
        """Offer the table of Algorithm 1 where it fits in memory and costs less, which is known long before."""
        if self._has_algorithm_1 or not greedy.fits_in_memory(self.rows):
            return
        if greedy.costs_less(self.rows, self.cost):
            self.offer(greedy.build(self.rows))

    def begin_with_algorithm_1(self) -> QueryTable:
        """Offer the table of Algorithm 1, whatever it costs, and return it."""
        self._has_algorithm_1 = True
        table = greedy.build(self.rows)
        self.offer(table)
        return table

    def offer_races(self, lower_bound: float) -> None:
        """Offer a table of the sets of races, unless it is clearly more expensive than the cheapest one.

        lower_bound: on the cost of every table, which bounds the work of a rebuild for each race.
        """
        p = self.rows.probabilities()
        most = int(np.clip(RACING / (self.rows.distinct * lower_bound), 50, transport.MOST_RACED))
        sets = transport.raced_sets(p, np.random.default_rng(0), most)
        sizes = sets.sum(axis=1)
        if sizes.min() < self.cost:
            found = transport.raced(p, sets)
            if found.masses @ sizes / found.masses.sum() < CLEARLY_MORE * self.cost:
                self.offer_masses(found.sets, found.masses)
