"""Integer maximum flows of rows into sets: who can follow a proposal, and where one cannot, the reason.

Setting
    p_u     the rows, in units; source x of row u has p_u(x) to send
    m_S     the masses of sets S, in units; x may send to every S that holds it, S takes at most m_S

Row u can send all it has exactly where every set C of sources is met by enough sets (Hall, Gale):

    sum of m_S over S that meet C  >=  p_u(C)                 for every C

A maximum flow decides it. Where units are missing, the sources that the last search could still reach are a C
that violates it most: all S that meet C are full, and p_u(C) exceeds them by just the missing units.

Dinic's algorithm, levels and current arcs, one row after the other on the same arrays; int64 throughout.
Both `rebuild` (flows decide the table) and `optimal` (violated sets become cuts) run on this kernel.
"""

from __future__ import annotations

import numpy as np

from onoff.system.kernels import kernel


@kernel
def flows(weights, offsets, items, units, lower):  # type: ignore[no-untyped-def]
    """Maximum flows of every row into the sets: (row, edge, weight of the cells, missing units, violated sets).

    Edge e joins source items[e] to the set that holds e in offsets. The residual graph of a row: a source with units
    left starts, any source may send to any set that holds it, a set may give back what a source sent, a set with
    room ends.

    lower: lower `units` in place to what every row can fill, and give the cells that fit them. Otherwise the masses
    stay as they are for every row and no cells are kept.
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
    missing = np.zeros(m, np.int64)
    violated = np.zeros((m, n), np.bool_)
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

        for x in range(n):
            missing[r] += left[x]
            violated[r, x] = source_level[x] >= 0  # what the last search could reach: the source side of a least cut
        if not lower:
            continue
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
    return cell_row[:kept].copy(), cell_edge[:kept].copy(), cell_weight[:kept].copy(), missing, violated
