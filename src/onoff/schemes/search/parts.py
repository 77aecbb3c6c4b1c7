"""Rows that fall into parts without a source in common: each part is solved alone, and the tables are laid together.

A walk on a torus with even sides that never stays goes from white cells to black ones and back: rows of white cells
know only black cells. A query Y for all rows is a query for each part, cut to the sources of that part, so costs and
lower bounds add up. Laid together: both tables as intervals of masses on a line from 0 to 1; where query a lies above
query b, ask for both. Which queries lie above which is the same for all rows, so nothing is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onoff.model.rows import UNIT, Rows
from onoff.schemes.search.rebuild import rebuild
from onoff.tables.table import QueryTable


def parts_of(rows: Rows) -> list[tuple[int, ...]]:
    """The distinct rows of each part, ascending; one part where they hang together.

    >>> parts_of(Rows.of([[0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.25, 0.75, 0, 0], [0, 0, 0.5, 0.5]]))
    [(0, 2), (1, 3)]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    row, column = np.nonzero(rows.weights)
    nodes = rows.distinct + len(rows.columns)
    joins = coo_array((np.ones(len(row), dtype=np.int8), (row, rows.distinct + column)), shape=(nodes, nodes))
    count, label = connected_components(joins, directed=False)
    label = label[: rows.distinct]
    return [tuple(np.flatnonzero(label == one).tolist()) for one in range(count)]


def joined(rows: Rows, tables: Sequence[QueryTable]) -> QueryTable:
    """One table for all rows from tables for their parts."""
    ends = [np.cumsum(table.mass.astype(object)).tolist() for table in tables]
    queries, masses, before = [], [], 0
    for end in sorted(set().union(*ends)):
        place = [int(np.searchsorted(np.array(some, dtype=object), end)) for some in ends]
        queries.append([x for table, k in zip(tables, place, strict=True) for x in table.query(k)])
        masses.append((end - before) / UNIT)
        before = end
    return rebuild(rows, queries, masses)
