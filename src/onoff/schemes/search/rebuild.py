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

from onoff.model.rows import UNIT, Integers, Rows
from onoff.schemes.search.flow import flows
from onoff.tables.table import QueryTable


def rebuild(rows: Rows, queries: Sequence[Sequence[int]], masses: npt.ArrayLike, **labels: Any) -> QueryTable:
    """The exact table nearest to the proposal: `masses[k]`, a float from 0 to 1, on the set `queries[k]` of sources.

    Equal queries are added up, sources that no row can reach are left out of them; masses that are negative or
    not numbers count as zero. `labels` go to the table (scheme, lower_bound, details).

    Parameters
    ----------
    rows
        What the table is for.
    queries
        Sets of sources.
    masses
        Of each set, a float from 0 to 1.
    """
    reach = len(rows.columns)
    sets, units = _distinct(rows, queries, np.asarray(masses, dtype=np.float64))
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    items = np.fromiter((x for s in sets for x in s), dtype=np.int64, count=int(offsets[-1]))
    row, edge, weight, _, _ = flows(rows.weights, offsets, items, units, True, effort=rows.distinct * len(items))

    left = rows.weights.copy()
    np.subtract.at(left, (row, items[edge]), weight)
    rest_row, rest = np.nonzero(left)
    kept = np.flatnonzero(units)  # lowered by the flows
    sizes = np.diff(offsets)[kept]
    everything = [np.arange(reach)] if len(rest) else []
    owner = np.repeat(np.arange(len(sets)), np.diff(offsets))
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


def _distinct(
    rows: Rows, queries: Sequence[Sequence[int]], masses: npt.NDArray[np.float64]
) -> tuple[list[tuple[int, ...]], Integers]:
    """The proposed sets as columns, by size and order, each once, without everything; and their masses in units."""
    position = {source: at for at, source in enumerate(rows.columns.tolist())}
    total: dict[tuple[int, ...], int] = {}
    for query, mass in zip(queries, np.clip(np.nan_to_num(masses), 0, 1), strict=True):
        units = int(mass * UNIT)
        key = tuple(sorted({position[x] for x in query if x in position}))
        if units > 0 and 0 < len(key) < len(position):
            total[key] = min(total.get(key, 0) + units, UNIT)
    sets = sorted(total, key=lambda s: (len(s), s))
    return sets, np.array([total[s] for s in sets], dtype=np.int64)
