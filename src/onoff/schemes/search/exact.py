"""From proposed queries and masses in floats to a table that is exact: a float may propose, integers decide.

Setting
    S, m_S  the proposed queries and the mass of each, from a linear program or any other search
    p_u     the rows, in units

Rebuild. A row can follow the proposal where it can send its units, each from its source x to a query S that holds x, so
that every S gets m_S: a flow. In one pass over the distinct rows:

1. Floor the masses to units. "Everything possible" takes whatever is left over, so it takes no part in the flows.
2. For each row an integer maximum flow into the queries (see `flow`). A query that this row cannot fill is lowered to
   what it did get, at once, so that the rows after it need not fill more.
3. Cut the flow of every row to the masses that were left in the end; cutting always fits.
4. What each row has not sent goes to everything possible; it is the same number of units for every row.

The result satisfies every identity of a table whatever the floats said, even if they were nonsense. What it costs
more than the proposal is (units lowered) x (N - |S|): a proposal that misses its constraints by 1e-10 loses about
that.

Repair. What the rows could not place is again a matrix of rows, the same number of units in each, and Algorithm 1
couples any such rows in integers. Its queries take the place of "everything", so that a search that was stopped early
loses a few per cent where it would have lost a multiple.

Components. Rows that fall into parts without a source in common are solved part by part: a query for all rows is a
query for each part, so costs and lower bounds add up. Both tables are laid out as intervals of masses from 0 to 1;
where query a lies above query b, ask for both. Which lie above which is the same for all rows, so nothing is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.model.rows import UNIT, Floats, Integers, Rows
from onoff.schemes import greedy
from onoff.schemes.search.flow import cells_of
from onoff.system.kernels import kernel
from onoff.tables.table import QueryTable

ROOT_OF_UNIT = 2**30
"""Its square is UNIT."""
WORTH_REPAIRING = 2**-30
"""The mass of "everything" from which a repair is worth while."""
CELLS_A_SECOND = 4e6
"""Cells of a table of Algorithm 1 that are made in a second and laid together with others."""

Sets: TypeAlias = npt.NDArray[np.bool_]
"""Sets of columns, one per line, as truth values."""


def csr(sets: Sets) -> tuple[Integers, Integers]:
    """The members of each set, one after the other, as (offsets, items)."""
    owner, items = np.nonzero(sets)
    return np.searchsorted(owner, np.arange(len(sets) + 1)).astype(np.int64), items.astype(np.int64)


def each_once(sets: Sets) -> Sets:
    """The different sets, the small ones first."""
    if not len(sets):
        return sets
    by_set, first = greedy.equal_sets(sets)
    return np.asarray(sets[by_set[first]])


def meets(some: Sets, others: Sets) -> Sets:
    """Which of `some` sets have an element in common with which of the `others`."""
    found = np.zeros((len(some), len(others)), dtype=np.bool_)
    _meets(_words(some), _words(others), found)
    return found


def _words(sets: Sets) -> npt.NDArray[np.uint64]:
    """Each set as bits, 64 to a word."""
    padded = np.zeros((len(sets), -(-sets.shape[1] // 64) * 64), dtype=bool)
    padded[:, : sets.shape[1]] = sets
    return np.ascontiguousarray(np.packbits(padded, axis=1).view(np.uint64))


@kernel
def _meets(some, others, found):  # type: ignore[no-untyped-def]
    """Fill in whether the bits of each pair of lines have one in common: O(lines x lines x words)."""
    for a in range(len(some)):
        for b in range(len(others)):
            for w in range(some.shape[1]):
                if some[a, w] & others[b, w]:
                    found[a, b] = True
                    break


def sets_of(table: QueryTable) -> Sets:
    """The queries of a table as flags over the columns of its rows."""
    sets = np.zeros((len(table), len(table.rows.columns)), dtype=bool)
    owner = np.repeat(np.arange(len(table)), np.diff(table.offsets))
    sets[owner, np.searchsorted(table.rows.columns, table.items)] = True
    return sets


def table_of(
    rows: Rows, sets: Sets, masses: npt.ArrayLike, is_over: Callable[[], bool] = lambda: False, seconds: float = np.inf
) -> QueryTable | None:
    """The exact table nearest to some masses, repaired; None where it `is_over` before it was made.

    seconds: that a repair may take.
    """
    table = _rebuilt(rows, sets, masses, is_over)
    return None if table is None else repaired(table, seconds)


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
    table = _rebuilt(rows, sets, masses, lambda: False)
    assert table is not None
    return table.labelled(**labels)


def _rebuilt(rows: Rows, sets: Sets, masses: npt.ArrayLike, is_over: Callable[[], bool]) -> QueryTable | None:
    sets, units = _distinct(sets, np.asarray(masses, dtype=np.float64))
    offsets, items = csr(sets)
    found = cells_of(rows.weights, offsets, items, units, is_over)
    return None if found is None else from_cells(rows, offsets, items, units, found)


def from_cells(rows: Rows, offsets: Integers, items: Integers, units: Integers, cells: Integers) -> QueryTable:
    """The table of sets whose masses every row fills by `cells` (row, edge, weight); the rest goes to everything.

    cells: row by row, edges ascending.
    """
    row, edge, weight = cells
    kept = np.repeat(units > 0, np.diff(offsets))
    left = rows.weights.copy()
    np.subtract.at(left, (row, items[edge]), weight)
    rest_row, rest = np.nonzero(left)
    sizes, mass = np.diff(offsets)[units > 0], units[units > 0]
    items, slots = items[kept], np.concatenate([(np.cumsum(kept) - 1)[edge], np.count_nonzero(kept) + rest])
    if len(rest):
        sizes, mass = np.append(sizes, len(rows.columns)), np.append(mass, left[0].sum())
        items = np.concatenate([items, np.arange(len(rows.columns))])
    row = np.concatenate([row, rest_row])
    order = np.argsort(row, kind="stable")  # two ascending runs, merged
    starts = np.searchsorted(row[order], np.arange(rows.distinct + 1)).astype(np.int64)
    weights = np.concatenate([weight, left[rest_row, rest]])[order]
    ends = np.append(0, np.cumsum(sizes)).astype(np.int64)
    return QueryTable(rows, ends, rows.columns[items], mass.astype(np.int64), starts, slots[order], weights)


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


def repaired(table: QueryTable, seconds: float = np.inf) -> QueryTable:
    """`table`, or a cheaper one in which the rows of its query for everything are spread out by Algorithm 1.

    seconds: that it may take.
    """
    left = everything_left(table)
    units = int(table.mass[-1])
    fits = left is not None and units >= WORTH_REPAIRING * UNIT and greedy.fits_in_memory(table.rows)
    if left is None or not fits or greedy.most_cells(left, units) > CELLS_A_SECOND * seconds:
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
    member[query, np.searchsorted(rows.columns, source)] = True  # what no row takes need not be asked
    by_set, first = greedy.equal_sets(member)
    place = np.empty(len(member), dtype=np.int64)
    place[by_set] = np.searchsorted(first, np.arange(len(member)), side="right") - 1
    offsets, items = csr(member[by_set[first]])
    return QueryTable.from_csr(rows, offsets, rows.columns[items], place[query], row, source, weight)


def _cells(table: QueryTable) -> tuple[Integers, Integers, Integers, Integers]:
    """Query, row, source and weight of every cell."""
    query = np.searchsorted(table.offsets, table.slots, side="right") - 1
    row = np.repeat(np.arange(table.rows.distinct), np.diff(table.starts))
    return query, row, table.items[table.slots], table.weights


def components(rows: Rows) -> list[tuple[int, ...]]:
    """The distinct rows of each part, ascending; one part where they hang together.

    >>> components(Rows.of([[0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.25, 0.75, 0, 0], [0, 0, 0.5, 0.5]]))
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
    """One table for all rows from tables for their components."""
    ends = [np.cumsum(table.mass.astype(object)).tolist() for table in tables]
    queries, masses, before = [], [], 0
    for end in sorted(set().union(*ends)):
        place = [int(np.searchsorted(np.array(some, dtype=object), end)) for some in ends]
        queries.append([x for table, k in zip(tables, place, strict=True) for x in table.query(k)])
        masses.append((end - before) / UNIT)
        before = end
    return rebuild(rows, queries, masses)
