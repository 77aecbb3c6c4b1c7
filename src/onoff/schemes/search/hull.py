"""Hull reduction: rows inside the convex hull of others are coupled for free.

If row u is a mixture of others,  p_u = sum of w_v p_v,  then whatever masses these can follow u can follow too: it
takes the mixture of what they take. No inequality of Hall is larger for u than for all of them, so the optimum, its
masses and its proof are those of the extreme rows, and the search looks at these alone. Rows that are mixtures of few
topics have few extreme rows: 40 of 150 for five topics.

In integers. Rows are rounded to units and mixtures are found in floats, so that the mixture of what others take is
only nearly what a row has to take. `lifted` rounds it down, cuts it to what the row has, lowers each mass to what every
row fills, and lets what is left go to everything possible: a few units, and the table is exact.

A row is inside if some mixture comes as near to it as NEAR. That can be only where rows depend on one another, so the
rank of random projections of the rows is looked at first, at the cost of a few of their products. In the space of
these projections a mixture solves a few equations in numbers that are not negative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onoff.model.rows import Floats, Integers, Rows
from onoff.schemes.search.exact import from_cells
from onoff.schemes.search.flow import fitted
from onoff.tables.table import QueryTable

NEAR = 1e-9
"""How far from a mixture of others, in probability, a row may be and count as inside."""
DIRECTIONS_TRIED = 4000
"""Random directions in which the farthest row is extreme."""
MOST_DIMENSIONS = 40
"""Rank of the rows up to which mixtures are looked for: beyond, few rows of a thousand are inside."""


def extreme_rows(rows: Rows, is_over: Callable[[], bool]) -> tuple[Integers, Floats]:
    """Which distinct rows are not inside the convex hull of others, and for each row its weights of these.

    All of them where it `is_over` before.
    """
    from scipy.optimize import nnls

    p = rows.probabilities()
    everyone = np.arange(rows.distinct), np.eye(rows.distinct)
    points = _projected(p)
    if points is None:
        return everyone
    lifted, weights = np.column_stack([points, np.ones(rows.distinct)]).T.copy(), np.eye(rows.distinct)
    # Farthest in some direction: extreme for sure. Most others are mixtures of these alone, which is quick to see.
    towards = np.random.default_rng(0).standard_normal((points.shape[1], DIRECTIONS_TRIED))
    farthest = np.isin(everyone[0], np.argmax(points @ towards, axis=0))
    order = np.argsort(np.linalg.norm(points - points.mean(axis=0), axis=1))  # the middle first
    inside: list[int] = []
    for alone in (True, False):  # by the farthest rows alone, then by all
        others = farthest.copy() if alone else ~np.isin(everyone[0], inside)
        for u in order[~np.isin(order, inside) & ~farthest[order]].tolist():
            if is_over():
                return everyone
            others[u] = False
            found = nnls(lifted[:, others], lifted[:, u])[0]
            if np.abs(found @ p[others] - p[u]).sum() <= NEAR:
                weights[u], weights[u, others] = 0.0, found
                inside.append(u)
            else:
                others[u] = not alone
    for u in reversed(inside):  # mixtures of rows that were found to be inside later
        weights[u] = weights[u] @ weights
    extreme = np.setdiff1d(everyone[0], inside)
    return extreme, np.ascontiguousarray(weights[:, extreme])


def lifted(rows: Rows, table: QueryTable, weights: Floats) -> QueryTable:
    """The table for all rows from the one of the extreme rows.

    weights: of the extreme rows in each row.
    """
    from scipy.sparse import csr_array

    alone = table.sizes < len(rows.columns)  # the query for everything takes what is left
    edges = np.repeat(alone, table.sizes)
    place = np.cumsum(edges) - 1
    amounts = table.weights.astype(np.float64)
    taken: Any = csr_array((amounts, table.slots, table.starts), shape=(table.rows.distinct, len(edges)))
    mixed: Any = csr_array(weights) @ taken[table.rows.group]
    mixed.sort_indices()
    row, slot = np.repeat(np.arange(len(weights)), np.diff(mixed.indptr)), mixed.indices.astype(np.int64)
    weight = np.floor(mixed.data * (1 - 2.0**-50)).astype(np.int64)
    kept = edges[slot]
    cells = np.array([row[kept], place[slot[kept]], weight[kept]])
    offsets = np.append(0, np.cumsum(table.sizes[alone]))
    items = np.searchsorted(rows.columns, table.items[edges])
    units = table.mass[alone].copy()
    return from_cells(rows, offsets, items, units, fitted(rows.weights, offsets, items, units, cells))


def _projected(p: Floats) -> Floats | None:
    """The rows in as many dimensions as they span; None where they span too many, or are independent."""
    count = min(MOST_DIMENSIONS + 1, *p.shape)
    seen = p @ np.random.default_rng(0).standard_normal((p.shape[1], count))
    _, singular, directions = np.linalg.svd(seen, full_matrices=False)
    rank = int(np.count_nonzero(singular > NEAR * singular[0]))
    if rank > MOST_DIMENSIONS or rank >= len(p):
        return None
    return np.asarray(seen @ directions[:rank].T / singular[:rank] * np.sqrt(len(p)), dtype=np.float64)
