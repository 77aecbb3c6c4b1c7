"""Reduce the mass of "everything": units that rows could not place in a proposal are placed by Algorithm 1.

A rebuilt table sends whatever its rows could not place to the query for everything possible, the costliest one.
But what they could not place is again a matrix of rows, the same number of units in each, and Algorithm 1 couples any
such rows in integers. Its queries take the place of "everything":

    cost after  =  cost of what was placed  +  (part that was not) * (cost of Algorithm 1 for the rest)

so a search that was stopped early loses a few per cent where it would have lost a multiple.
"""

from __future__ import annotations

import math

import numpy as np

from onoff.model.rows import UNIT, Integers, Rows
from onoff.schemes import greedy
from onoff.tables.table import QueryTable

WORTH_REPAIRING = 2**-30
"""The mass of "everything" from which it is worth while."""


def repaired(table: QueryTable, most: float = math.inf) -> QueryTable:
    """`table`, or a cheaper one in which the rows of its query for everything are spread out by Algorithm 1.

    most: What the repaired table may cost. Where it would cost more, which is counted in no time, it is not made.
    """
    left = everything_left(table)
    units = int(table.mass[-1])
    if left is None or units < WORTH_REPAIRING * UNIT or not greedy.fits_in_memory(table.rows):
        return table
    placed = table.cost - units / UNIT * len(table.rows.columns)
    if not greedy.costs_less(left, most - placed, units):
        return table
    mended = laid_together(table.rows, table, greedy.build(left, units))
    return min(table, mended, key=lambda one: one.exact_cost)


def everything_left(table: QueryTable) -> Rows | None:
    """What the rows place in the query for everything possible, the last one; None where there is no such query."""
    rows = table.rows
    if len(rows.columns) != int(table.offsets[-1] - table.offsets[-2]):
        return None
    return Rows(rows.n, rows.columns, table.block(len(table) - 1), np.arange(rows.distinct))


def laid_together(rows: Rows, *tables: QueryTable) -> QueryTable:
    """One table of several, each for what the rows place in the last query, for everything, of the one before."""
    cells, before = [], 0
    for at, table in enumerate(tables):
        query, row, source, weight = _cells(table)
        kept = len(table) if at == len(tables) - 1 else len(table) - 1
        placed = query < kept
        cells.append((query[placed] + before, row[placed], source[placed], weight[placed]))
        before += kept
    query, row, source, weight = map(np.concatenate, zip(*cells, strict=True))
    member = np.zeros((before, len(rows.columns)), dtype=bool)
    column = np.zeros(rows.n, dtype=np.int64)
    column[rows.columns] = np.arange(len(rows.columns))
    member[query, column[source]] = True  # what no row takes need not be asked
    by_set, first = greedy.equal_sets(member)
    place = np.empty(len(member), dtype=np.int64)
    place[by_set] = np.searchsorted(first, np.arange(len(member)), side="right") - 1
    owner, items = np.nonzero(member[by_set[first]])
    offsets = np.searchsorted(owner, np.arange(len(first) + 1)).astype(np.int64)
    return QueryTable.from_csr(rows, offsets, rows.columns[items], place[query], row, source, weight)


def _cells(table: QueryTable) -> tuple[Integers, Integers, Integers, Integers]:
    """Query, row, source and weight of every cell."""
    query = np.repeat(np.arange(len(table)), table.sizes)[table.slots]
    row = np.repeat(np.arange(table.rows.distinct), np.diff(table.starts))
    return query, row, table.items[table.slots], table.weights
