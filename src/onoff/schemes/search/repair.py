"""Make less of "everything": where a proposal left rows with units to place, place them by Algorithm 1.

A rebuilt table sends whatever its rows could not place to the query for everything possible, the dearest there is.
But what they could not place is again a matrix of rows: the same number of units in each, so divided by it they are
rows like any others, and Algorithm 1 has a table for these. Its queries, with masses scaled down, take the place of
"everything"; one more rebuild makes the whole exact.

    cost after  =  cost of what was placed  +  (part that was not) * (cost of Algorithm 1 for the rest)

so a search that was stopped early loses a few per cent where it would have lost a multiple.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import UNIT, Rows, to_units
from onoff.schemes import greedy
from onoff.schemes.search.rebuild import rebuild
from onoff.tables.table import QueryTable

WORTH_REPAIRING = 2**-30
"""The mass of "everything" from which it is worth while."""


def repaired(table: QueryTable) -> QueryTable:
    """`table`, or a cheaper one in which the rows of its query for everything are spread out by Algorithm 1."""
    rows = table.rows
    everything = tuple(rows.columns.tolist())
    if (
        table.queries[-1] != everything
        or int(table.mass[-1]) < WORTH_REPAIRING * UNIT
        or not greedy.fits_in_memory(rows)
    ):
        return table
    left = table.block(len(table) - 1)
    rest = Rows.from_integers(np.stack([to_units(row) for row in left.tolist()]), rows.n, rows.columns)
    spread = greedy.build(rest)
    masses = np.concatenate([table.mass[:-1] / UNIT, spread.mass / UNIT * (int(table.mass[-1]) / UNIT)])
    mended = rebuild(rows, [*table.queries[:-1], *spread.queries], masses)
    return min(table, mended, key=lambda one: one.exact_cost)
