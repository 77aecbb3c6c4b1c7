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

from onoff.kernels import kernel
from onoff.rows import UNIT, Integers, Rows
from onoff.table import QueryTable


def rebuild(rows: Rows, queries: Sequence[Sequence[int]], masses: npt.ArrayLike, **labels: Any) -> QueryTable:
    """The exact table nearest to the proposal: `masses[k]`, a float from 0 to 1, on the set `queries[k]` of sources.

    Equal queries are added up, sources that no row can reach are left out of them; masses that are negative or
    not numbers count as zero. `labels` go to the table (scheme, lower_bound, details).
    """
    reach = len(rows.columns)
    sets, units = _distinct(rows, queries, np.asarray(masses, dtype=np.float64))
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    items = np.fromiter((x for s in sets for x in s), dtype=np.int64, count=int(offsets[-1]))
    row, edge, weight = _flows(rows.weights, offsets, items, units, effort=rows.distinct * len(items))

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


@kernel
def _flows(weights, offsets, items, units):  # type: ignore[no-untyped-def]
    """Maximum flows of every row into the sets. Lowers `units` in place; the cells (row, edge, weight) that fit it.

    Edge e joins source items[e] to the set that holds e in offsets. The residual graph of a row: a source with units
    left starts, any source may send to any set that holds it, a set may give back what a source sent, a set with
    room ends.
    """
    m, n = weights.shape
    k = len(offsets) - 1
    edges = len(items)
    owner = np.empty(edges, np.int64)
    for s in range(k):
        for e in range(offsets[s], offsets[s + 1]):
            owner[e] = s
    first = np.zeros(n + 1, np.int64)  # the edges of each source, as CSR
    for e in range(edges):
        first[items[e] + 1] += 1
    for x in range(n):
        first[x + 1] += first[x]
    touching = np.empty(edges, np.int64)
    fill = first[:-1].copy()
    for e in range(edges):
        touching[fill[items[e]]] = e
        fill[items[e]] += 1

    flow = np.empty(edges, np.int64)
    source_level, set_level = np.empty(n, np.int64), np.empty(k, np.int64)
    source_arc, set_arc = np.empty(n, np.int64), np.empty(k, np.int64)
    frontier, following = np.empty(n, np.int64), np.empty(n, np.int64)
    layer = np.empty(k, np.int64)
    sources, into, back = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)

    cell_row = np.empty(n + k, np.int64)
    cell_edge = np.empty(n + k, np.int64)
    cell_weight = np.empty(n + k, np.int64)
    cells = 0
    for r in range(m):
        left = weights[r].copy()
        room = units.copy()
        flow[:] = 0
        while True:
            # Levels, layer by layer, until a layer of sets has room.
            source_level[:] = -1
            set_level[:] = -1
            reached = 0
            for x in range(n):
                if left[x] > 0:
                    source_level[x] = 0
                    frontier[reached] = x
                    reached += 1
            level = 0
            room_found = False
            while reached > 0 and not room_found:
                sets_reached = 0
                for at in range(reached):
                    x = frontier[at]
                    for a in range(first[x], first[x + 1]):
                        s = owner[touching[a]]
                        if set_level[s] < 0:
                            set_level[s] = level + 1
                            layer[sets_reached] = s
                            sets_reached += 1
                            room_found = room_found or room[s] > 0
                reached = 0
                level += 2
                if not room_found:
                    for at in range(sets_reached):
                        s = layer[at]
                        for e in range(offsets[s], offsets[s + 1]):
                            if flow[e] > 0 and source_level[items[e]] < 0:
                                source_level[items[e]] = level
                                following[reached] = items[e]
                                reached += 1
                    frontier, following = following, frontier
            if not room_found:
                break

            # A blocking flow: depth first along the levels, every arc given up for good once it leads nowhere.
            for x in range(n):
                source_arc[x] = first[x]
            for s in range(k):
                set_arc[s] = offsets[s]
            for start in range(n):
                if left[start] == 0:
                    continue
                sources[0] = start
                depth = 0
                while True:
                    x = sources[depth]
                    while source_arc[x] < first[x + 1]:
                        if set_level[owner[touching[source_arc[x]]]] == source_level[x] + 1:
                            break
                        source_arc[x] += 1
                    if source_arc[x] == first[x + 1]:
                        if depth == 0:
                            break
                        depth -= 1
                        set_arc[owner[into[depth]]] += 1
                        continue
                    into[depth] = touching[source_arc[x]]
                    s = owner[into[depth]]
                    if room[s] > 0:
                        push = min(left[start], room[s])
                        for d in range(depth):
                            push = min(push, flow[back[d]])
                        for d in range(depth):
                            flow[back[d]] -= push
                            flow[into[d]] += push
                        flow[into[depth]] += push
                        left[start] -= push
                        room[s] -= push
                        if left[start] == 0:
                            break
                        depth = 0
                        continue
                    while set_arc[s] < offsets[s + 1]:
                        e = set_arc[s]
                        if flow[e] > 0 and source_level[items[e]] == set_level[s] + 1:
                            break
                        set_arc[s] += 1
                    if set_arc[s] == offsets[s + 1]:
                        source_arc[x] += 1
                    else:
                        back[depth] = set_arc[s]
                        depth += 1
                        sources[depth] = items[back[depth - 1]]

        for s in range(k):
            units[s] -= room[s]
        for e in range(edges):
            if flow[e] > 0:
                if cells == len(cell_row):
                    cell_row = np.append(cell_row, np.empty(cells, np.int64))
                    cell_edge = np.append(cell_edge, np.empty(cells, np.int64))
                    cell_weight = np.append(cell_weight, np.empty(cells, np.int64))
                cell_row[cells] = r
                cell_edge[cells] = e
                cell_weight[cells] = flow[e]
                cells += 1

    # Cut every row to the final masses. The cells of one row and one set lie side by side.
    kept = 0
    row_before, set_before, allowed = -1, -1, 0
    for c in range(cells):
        r, e = cell_row[c], cell_edge[c]
        if r != row_before or owner[e] != set_before:
            row_before, set_before, allowed = r, owner[e], units[owner[e]]
        weight = min(cell_weight[c], allowed)
        allowed -= weight
        if weight > 0:
            cell_row[kept], cell_edge[kept], cell_weight[kept] = r, e, weight
            kept += 1
    return cell_row[:kept].copy(), cell_edge[:kept].copy(), cell_weight[:kept].copy()
