"""From proposed queries and masses in floats to a table that is exact: a float may propose, integers decide.

Setting
    S, m_S  the proposed queries and the mass of each, from a linear program or any other search
    p_u     the rows, in units

A row can follow the proposal where it can send its units, each from its source x to a query S that holds x, so
that every S gets m_S: a flow. In one pass over the distinct rows:

1. Floor the masses to units. "Everything possible" takes whatever is left over, so it takes no part in the flows.
2. For each row an integer maximum flow into the queries (Dinic, levels and current arcs). A query that this row
   cannot fill is lowered to what it did get, at once, so that the rows after it need not fill more.
3. Cut the flow of every row to the masses that were left in the end; cutting always fits.
4. What each row has not sent goes to everything possible; it is the same number of units for every row.

The result satisfies every identity of a table whatever the floats said, even if they were nonsense. What it costs
more than the proposal is (units lowered) x (N - |S|): a proposal that misses its constraints by 1e-10 loses about
that. Time: one flow per distinct row over sum |S| edges, compiled; memory: the cells that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onoff.model.rows import UNIT, Floats, Integers, Rows
from onoff.schemes import greedy
from onoff.schemes.search.flow import flows
from onoff.schemes.search.hall import Sets
from onoff.tables.table import QueryTable

ROOT_OF_UNIT = 2**30
"""Its square is UNIT."""


def rebuild(rows: Rows, queries: Sequence[Sequence[int]], masses: npt.ArrayLike, **labels: Any) -> QueryTable:
    """The exact table nearest to the proposal: `masses[k]`, a float from 0 to 1, on the set `queries[k]` of sources.

    Equal queries are added up, sources that no row can reach are left out of them; masses that are negative or
    not numbers count as zero. `labels` go to the table (scheme, lower_bound, details).
    """
    position = {source: at for at, source in enumerate(rows.columns.tolist())}
    sets = np.zeros((len(queries), len(position)), dtype=bool)
    for flags, query in zip(sets, queries, strict=True):
        flags[[position[x] for x in query if x in position]] = True
    return rebuild_sets(rows, sets, masses, **labels)


def rebuild_sets(rows: Rows, sets: Sets, masses: npt.ArrayLike, **labels: Any) -> QueryTable:
    """`rebuild` for sets of columns as flags."""
    reach = len(rows.columns)
    sets, units = _distinct(sets, np.asarray(masses, dtype=np.float64))
    owner, items = np.nonzero(sets)
    offsets = np.searchsorted(owner, np.arange(len(sets) + 1)).astype(np.int64)
    row, edge, weight, _, _ = flows(rows.weights, offsets, items, units, True)

    left = rows.weights.copy()
    np.subtract.at(left, (row, items[edge]), weight)
    rest_row, rest = np.nonzero(left)
    kept = np.flatnonzero(units)  # lowered by the flows
    sizes = np.diff(offsets)[kept]
    everything = [np.arange(reach)] if len(rest) else []
    place = np.zeros(len(sets) + 1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    return QueryTable.from_csr(
        rows,
        offsets=np.cumsum([0, *sizes, *map(len, everything)], dtype=np.int64),
        items=rows.columns[np.concatenate([items[units[owner] > 0], *everything]).astype(np.int64)],
        query=np.concatenate([place[owner[edge]], np.full(len(rest), len(kept))], dtype=np.int64),
        row=np.concatenate([row, rest_row], dtype=np.int64),
        source=rows.columns[np.concatenate([items[edge], rest])],
        weight=np.concatenate([weight, left[rest_row, rest]]),
        **labels,
    )


def _distinct(sets: Sets, masses: Floats) -> tuple[Sets, Integers]:
    """The sets by size and order, each once, without the empty one and everything; and their masses in units."""
    units = (np.clip(np.nan_to_num(masses), 0, 1) * UNIT).astype(np.int64)
    sizes = sets.sum(axis=1)
    kept = (units > 0) & (sizes > 0) & (sizes < sets.shape[1])
    sets, units = sets[kept], units[kept]
    if not len(sets):
        return sets, units
    by_set, first = greedy.equal_sets(sets)
    high, low = np.divmod(units[by_set], ROOT_OF_UNIT)  # sums of nonsense must not overflow
    high, low = np.add.reduceat(high, first), np.add.reduceat(low, first)
    return sets[by_set[first]], np.minimum(np.minimum(high, ROOT_OF_UNIT) * ROOT_OF_UNIT + low, UNIT)
