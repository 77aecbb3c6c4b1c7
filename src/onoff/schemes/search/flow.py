"""Integer maximum flows of rows into sets: who can follow a proposal, and where one cannot, the reason.

Setting
    p_u     the rows, in units; source x of row u has p_u(x) to send
    m_S     the masses of sets S, in units; x may send to every S that holds it, S takes at most m_S

Row u can send all it has exactly where every set C of sources is met by enough sets (the Hall inequalities):

    sum of m_S over S that meet C  >=  p_u(C)                 for every C

A maximum flow decides it. Where units are missing, the sources that the last search could still reach are a C
that violates it most: all S that meet C are full, and p_u(C) exceeds them by just the missing units.

Dinic's algorithm, one row after the other on the same arrays, int64 throughout: `_levels` looks for sets with room,
layer by layer, `_blocking_flow` pushes along the levels until nothing fits, and again until no set with room is found.
Sets are given as CSR: edge e joins source items[e] to the set that holds e in offsets. A row costs a few passes over
the edges of the sources that it can want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from onoff.model.rows import Integers
from onoff.system.kernels import kernel

SPARSE_ROW = 3
"""Rows that can want fewer than one source in so many are sent along their own edges only."""
EDGES_AT_A_TIME = 300_000
"""Rows times edges between two looks at the clock: some hundredths of a second."""


def cells_of(
    weights: Integers, offsets: Integers, items: Integers, units: Integers, is_over: Callable[[], bool]
) -> Integers | None:
    """Flows of every row that all fill the sets alike, as cells (row, edge, weight); None where it `is_over` before.

    units: of each set; lowered in place to what every row can fill.
    """
    found = []
    for first, last in _blocks(weights, items):
        if is_over():
            return None
        row, edge, weight, _, _ = _flows(weights[first:last], offsets, items, units, True)
        found.append(np.array([row + first, edge, weight]))
    return cut_to(np.hstack(found), offsets, units)


def fitted(weights: Integers, offsets: Integers, items: Integers, units: Integers, cells: Integers) -> Integers:
    """Cells that are nearly a flow of every row, cut until they are one that fills the sets alike.

    units: of each set; lowered in place to what every row fills.
    """
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    _fit(weights.copy(), owner, items, units, cells)
    return cut_to(cells, offsets, units)


def cut_to(cells: Integers, offsets: Integers, units: Integers) -> Integers:
    """The cells of every row cut to the masses; those of one row and set are together."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.asarray(cells[:, : int(_cut_to(cells, cells.shape[1], owner, units))])


def short_rows(
    weights: Integers, offsets: Integers, items: Integers, units: Integers, is_over: Callable[[], bool]
) -> tuple[Integers, npt.NDArray[np.bool_]] | None:
    """The units that each row cannot place, and the set of columns that proves it; None where it `is_over` before."""
    missing, violated = np.zeros(len(weights), dtype=np.int64), np.zeros(weights.shape, dtype=bool)
    for first, last in _blocks(weights, items):
        if is_over():
            return None
        *_, missing[first:last], violated[first:last] = _flows(weights[first:last], offsets, items, units, False)
    return missing, violated


def _blocks(weights: Integers, items: Integers) -> Iterator[tuple[int, int]]:
    """Some rows at a time, so that the clock is looked at between them."""
    density = np.count_nonzero(weights) / max(weights.size, 1)
    step = max(
        int(EDGES_AT_A_TIME / (density * len(items) + 1)), 4
    )  # what is common to all rows is worked out each time
    for first in range(0, len(weights), step):
        yield first, min(first + step, len(weights))


@kernel
def _flows(weights, offsets, items, units, lower):  # type: ignore[no-untyped-def]
    """Maximum flows of every row into the sets: (row, edge, weight of the cells, missing units, violated sets).

    The residual graph of a row: a source with units left starts, any source may send to any set that holds it, a set
    may give back what a source sent, a set with room ends.

    lower: lower `units` in place to what each row can fill, and give its cells, which are still to be cut to what the
    rows after it can. Otherwise the masses stay as they are for every row and no cells are kept.
    """
    m, n = weights.shape
    k = len(offsets) - 1
    owner, first, touching = _by_source(offsets, items, n)
    cells = np.empty((3, n + k), np.int64)
    kept = 0
    missing = np.zeros(m, np.int64)
    violated = np.zeros((m, n), np.bool_)
    every_source, every_edge = np.arange(n), np.arange(len(items))
    for r in range(m):
        sources, edges, ends, of_edge = every_source, every_edge, offsets, items
        of_set, begin, listed = owner, first, touching
        if SPARSE_ROW * np.count_nonzero(weights[r]) < n:
            sources = np.flatnonzero(weights[r])
            edges, ends, of_edge = _edges_of(sources, owner, first, touching, k)
            of_set, begin, listed = _by_source(ends, of_edge, len(sources))
        left = weights[r][sources]
        room = units.copy()
        flow = np.zeros(len(edges), np.int64)
        source_level, set_level = np.empty(len(sources), np.int64), np.empty(k, np.int64)
        while _levels(left, room, flow, ends, of_edge, of_set, begin, listed, source_level, set_level):
            _blocking_flow(left, room, flow, ends, of_edge, of_set, begin, listed, source_level, set_level)
        for at in range(len(sources)):
            missing[r] += left[at]
            violated[r, sources[at]] = source_level[at] >= 0  # what the last search could reach: a side of a least cut
        if lower:
            for s in range(k):
                units[s] -= room[s]
            used = np.count_nonzero(flow)
            if kept + used > cells.shape[1]:
                larger = np.empty((3, 2 * (kept + used)), np.int64)
                larger[:, :kept] = cells[:, :kept]
                cells = larger
            for e in range(len(edges)):
                if flow[e] > 0:
                    cells[0, kept], cells[1, kept], cells[2, kept] = r, edges[e], flow[e]
                    kept += 1
    return cells[0, :kept].copy(), cells[1, :kept].copy(), cells[2, :kept].copy(), missing, violated


@kernel
def cheapest_flows(weights, offsets, items, least, most):  # type: ignore[no-untyped-def]
    """The cheapest flow of every row where a unit in a set costs its size: (row, edge, weight of the cells, filled).

    Sets are in order of size, the last one takes every source and what is left. Each takes at most `most`; every row
    first fills `least`, as far as it can: `filled` is what the row that filled least got, for each set. What rows can
    send into sets is a polymatroid, so opening sets by size, and augmenting each time, is optimal.
    """
    m, n = weights.shape
    k = len(offsets) - 1
    owner, first, touching = _by_source(offsets, items, n)
    cells = np.empty((3, n + k), np.int64)
    kept = 0
    filled = least.copy()
    source_level, set_level = np.empty(n, np.int64), np.empty(k, np.int64)
    for r in range(m):
        left, flow = weights[r].copy(), np.zeros(len(items), np.int64)
        room = least.copy()
        while _levels(left, room, flow, offsets, items, owner, first, touching, source_level, set_level):
            _blocking_flow(left, room, flow, offsets, items, owner, first, touching, source_level, set_level)
        for s in range(k):
            filled[s] = min(filled[s], least[s] - room[s])
        opened = 0
        while opened < k and left.any():
            size = offsets[opened + 1] - offsets[opened]
            while opened < k and offsets[opened + 1] - offsets[opened] == size:
                room[opened] += most[opened] - least[opened]
                opened += 1
            while _levels(left, room, flow, offsets, items, owner, first, touching, source_level, set_level):
                _blocking_flow(left, room, flow, offsets, items, owner, first, touching, source_level, set_level)
        used = np.count_nonzero(flow)
        if kept + used > cells.shape[1]:
            larger = np.empty((3, 2 * (kept + used)), np.int64)
            larger[:, :kept] = cells[:, :kept]
            cells = larger
        for e in range(len(items)):
            if flow[e] > 0:
                cells[0, kept], cells[1, kept], cells[2, kept] = r, e, flow[e]
                kept += 1
    return cells[0, :kept].copy(), cells[1, :kept].copy(), cells[2, :kept].copy(), filled


@kernel
def _edges_of(sources, owner, first, touching, k):  # type: ignore[no-untyped-def]
    """The edges of some sources in order of their sets: (edge, offsets of the k sets, place of the source in the list).

    A row sends along no other edge, so that the flow of a sparse row need not look at the others.
    """
    ends = np.zeros(k + 1, np.int64)
    for x in sources:
        for a in range(first[x], first[x + 1]):
            ends[owner[touching[a]] + 1] += 1
    for s in range(k):
        ends[s + 1] += ends[s]
    edges, of_edge = np.empty(ends[k], np.int64), np.empty(ends[k], np.int64)
    fill = ends[:-1].copy()
    for at in range(len(sources)):
        for a in range(first[sources[at]], first[sources[at] + 1]):
            s = owner[touching[a]]
            edges[fill[s]], of_edge[fill[s]] = touching[a], at
            fill[s] += 1
    return edges, ends, of_edge


@kernel
def _by_source(offsets, items, n):  # type: ignore[no-untyped-def]
    """The set of each edge, and the edges of each source as CSR: (owner, first, touching)."""
    edges = len(items)
    owner = np.empty(edges, np.int64)
    for s in range(len(offsets) - 1):
        for e in range(offsets[s], offsets[s + 1]):
            owner[e] = s
    first = np.zeros(n + 1, np.int64)
    for e in range(edges):
        first[items[e] + 1] += 1
    for x in range(n):
        first[x + 1] += first[x]
    touching = np.empty(edges, np.int64)
    fill = first[:-1].copy()
    for e in range(edges):
        touching[fill[items[e]]] = e
        fill[items[e]] += 1
    return owner, first, touching


@kernel
def _levels(left, room, flow, offsets, items, owner, first, touching, source_level, set_level):  # type: ignore[no-untyped-def]
    """Levels of sources and sets, layer by layer, until a layer of sets has room; whether one has. -1: not reached."""
    n = len(left)
    frontier, following = np.empty(n, np.int64), np.empty(n, np.int64)
    layer = np.empty(len(room), np.int64)
    source_level[:] = -1
    set_level[:] = -1
    reached = 0
    for x in range(n):
        if left[x] > 0:
            source_level[x] = 0
            frontier[reached] = x
            reached += 1
    level = 0
    while reached > 0:
        room_found = False
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
        if room_found:
            return True
        level += 2
        reached = 0
        for at in range(sets_reached):
            s = layer[at]
            for e in range(offsets[s], offsets[s + 1]):
                if flow[e] > 0 and source_level[items[e]] < 0:
                    source_level[items[e]] = level
                    following[reached] = items[e]
                    reached += 1
        frontier, following = following, frontier
    return False


@kernel
def _blocking_flow(left, room, flow, offsets, items, owner, first, touching, source_level, set_level):  # type: ignore[no-untyped-def]
    """Push along the levels, depth first, every arc given up for good once it leads nowhere."""
    n = len(left)
    source_arc, set_arc = first[:-1].copy(), offsets[:-1].copy()
    sources, into, back = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    for start in range(n):
        sources[0] = start
        depth = 0
        while left[start] > 0:
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


@kernel
def _cut_to(cells, count, owner, units):  # type: ignore[no-untyped-def]
    """Cut the cells of every row to the final masses, in place; how many are left. Those of one set are together."""
    kept = 0
    row_before, set_before, allowed = -1, -1, 0
    for c in range(count):
        r, e = cells[0, c], cells[1, c]
        if r != row_before or owner[e] != set_before:
            row_before, set_before, allowed = r, owner[e], units[owner[e]]
        weight = min(cells[2, c], allowed)
        allowed -= weight
        if weight > 0:
            cells[0, kept], cells[1, kept], cells[2, kept] = r, e, weight
            kept += 1
    return kept


@kernel
def _fit(left, owner, items, units, cells):  # type: ignore[no-untyped-def]
    """Cut cells (row, edge, weight), row by row, to what each row has of each source, and units to what it then fills.

    left: shape (rows, sources), what each row has; it is spent. O(cells + rows x sets).
    """
    filled = np.zeros(len(units), np.int64)
    at = 0
    for r in range(len(left)):
        filled[:] = 0
        while at < cells.shape[1] and cells[0, at] == r:
            e = cells[1, at]
            weight = max(min(cells[2, at], left[r, items[e]]), 0)
            cells[2, at] = weight
            left[r, items[e]] -= weight
            filled[owner[e]] += weight
            at += 1
        for s in range(len(units)):
            units[s] = min(units[s], filled[s])
