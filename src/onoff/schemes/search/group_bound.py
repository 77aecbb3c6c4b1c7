"""A lower bound for many sparse rows: groups of a dozen rows, and how they share the cost of each source.

Setting
    G        a group of rows;   a *way*: for each row of a group a source that it wants
    w_G(x)   the share of source x that G pays, adding up to 1 over the groups
    phi_u(x) what it counts where row u takes x

    bound  =  sum over G of  ( sum of phi_u(x) p_u(x)  -  the largest excess of a way )
    excess of the way (x_u)  =  sum of phi_u(x_u)  -  sum of w_G(x) over the different x_u

Whatever w and phi are, this is a lower bound on the cost of every table (see `GroupCertificate`; an excess is taken off
phi). It is concave, and its slope is known where the worst way of each group is: p_u(x), less 1 where the way takes x,
and 1 for each share that it pays. The worst way is found by a dynamic program over the rows that have a source already.

So w and phi climb: steps along a mean of the last slopes, as long as the distance to the cost of a table suggests
(Polyak), and shorter ones from the best point so far whenever that has not improved for a while.

Where near rows want the same sources, as places on a map, groups of a dozen rows prove nine tenths of what a table
costs. Where rows want random sources, or no two of them share more than one, they prove no more than the outer bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from onoff.model.certificate import SCALE, GroupCertificate, RowGroup
from onoff.model.checker import group_excess
from onoff.model.rows import Floats, Integers, Rows
from onoff.schemes.search.kinds import MANY
from onoff.schemes.search.portfolio import Board, IsOver, Problem
from onoff.system.kernels import kernel

GROUP_ROWS = 12
"""Rows of a group: a dynamic program over its subsets takes a fraction of a millisecond."""
APART = 0.3
"""How much a row that shares sources with rows outside of a group counts against taking it in."""
KEPT = 0.7
"""How much of the mean of the last slopes is kept at each step."""
PATIENCE, NOTEWORTHY, SLOWER, SLOWEST = 25, 1e-4, 0.7, 1e-3
"""Steps without a gain of this part after which they are made shorter, by this factor; and where they end."""


class GroupBound:
    """The bound by groups of sparse rows.

    least_seconds: that must be left for it: without it a session's tables are made sooner.
    most_wanted: columns that a row can want, on average; of full rows each dozen proves the outer bound and no more.
    most_blocks: of all groups, up to which a step takes some milliseconds. A column that all of twelve rows want makes
    four thousand.
    """

    def __init__(
        self, share: float = 0.9, *, least_seconds: float = 0.5, most_wanted: float = 20.0, most_blocks: int = 500_000
    ) -> None:
        self.share, self.least_seconds = share, least_seconds
        self.most_wanted, self.most_blocks = most_wanted, most_blocks

    def applies(self, problem: Problem) -> bool:
        """Sparse rows over many columns, with groups of few blocks, and time that is not for looking ahead."""
        if problem.looks_ahead:
            return False
        sparse = problem.entries <= self.most_wanted * problem.distinct and problem.size >= MANY
        return sparse and problem.clock.left() >= self.least_seconds and blocks_of(problem.rows) <= self.most_blocks

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """One climb."""
        sharing = Sharing(problem.rows)
        sharing.climb(board.cost, is_over)
        if sharing.bound > board.lower:
            board.prove(sharing.certificate())
        yield


class Sharing:
    """Shares and phi for `rows`, and the best bound so far, as far as floats can tell.

    Entries are the pairs of a row and a source that it wants, of one group after the other, by their sources; shares
    have an index for each group and source, `start` is where their entries begin. A block is a set of rows of a group
    that take the same source; they are kept by their lowest row.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        p = rows.probabilities()
        self.groups = dealt(p > 0)
        group, source, row, place = _entries(p > 0, self.groups)
        self._p: Floats = p[row, source]
        self._place = place
        new = np.append(True, (group[1:] != group[:-1]) | (source[1:] != source[:-1]))
        self._start: Integers = np.append(np.flatnonzero(new), len(new))
        self._source, self._group = source[new], group[new]
        self._in_groups = np.bincount(self._source, minlength=p.shape[1])
        self._blocks = _Blocks(self._group, self._start, place, [len(members) for members in self.groups])
        together = np.diff(self._start)
        self.shares: Floats = together / np.bincount(source, minlength=p.shape[1])[self._source]
        self.phi: Floats = np.repeat(self.shares / together, together)
        self.bound = self._look(self.phi, self.shares)[0]

    def climb(self, cost: float, is_over: Callable[[], bool]) -> None:
        """Raise the bound towards `cost`, that of a table, until the steps are short or it `is_over`."""
        phi, shares = self.phi, self.shares
        along_phi, along_shares = np.zeros_like(phi), np.zeros_like(shares)
        pace, idle = 1.0, 0
        while pace > SLOWEST and not is_over():
            value, up_phi, up_shares = self._look(phi, shares)
            idle = 0 if value > self.bound * (1 + NOTEWORTHY) else idle + 1
            if value > self.bound:
                self.bound, self.phi, self.shares = value, phi, shares
            if value >= cost:
                return
            if idle > PATIENCE:
                pace, idle = pace * SLOWER, 0
                phi, shares = self.phi, self.shares
                along_phi, along_shares = np.zeros_like(phi), np.zeros_like(shares)
                continue
            along_phi = KEPT * along_phi + (1 - KEPT) * up_phi
            along_shares = KEPT * along_shares + (1 - KEPT) * up_shares
            step = pace * (cost - value) / (along_phi @ along_phi + along_shares @ along_shares)
            phi = phi + step * along_phi
            shares = self._whole(shares + step * along_shares)

    def _look(self, phi: Floats, shares: Floats) -> tuple[float, Floats, Floats]:
        """The bound by phi and shares, and its slopes; those of shares along what keeps their sums."""
        excess, chosen = self._blocks.worst_ways(phi, shares)
        taken = self._blocks.entries_of(chosen)
        paid = np.bincount(self._blocks.column[chosen], minlength=len(shares))
        return float(phi @ self._p) - excess, self._p - taken, paid - self._mean(paid)

    def _mean(self, of_shares: Floats | Integers) -> Floats:
        sums = np.bincount(self._source, weights=of_shares, minlength=len(self._in_groups))
        return np.asarray((sums / np.maximum(self._in_groups, 1))[self._source])

    def _whole(self, shares: Floats) -> Floats:
        """Shares near the given ones that are not negative and add up to 1 for every source."""
        for _ in range(3):
            shares = np.maximum(shares - self._mean(shares) + 1 / self._in_groups[self._source], 0.0)
        return np.asarray(shares / (self._mean(shares) * self._in_groups[self._source]))

    def certificate(self) -> GroupCertificate:
        """The best point in integers: rounded down, and phi of one row of a group lowered by what is left of excess."""
        units = np.floor(self.shares * SCALE * (1 - 2.0**-50)).astype(np.int64)  # no sum exceeds SCALE
        phi = np.floor(self.phi * SCALE).astype(np.int64)
        column = np.repeat(np.arange(len(units)), np.diff(self._start))
        groups = []
        for g, members in enumerate(self.groups):
            mine = np.flatnonzero(self._group == g)
            entries = slice(self._start[mine[0]], self._start[mine[-1] + 1])
            lines = np.zeros((len(members), len(mine)), dtype=np.int64)
            able = np.zeros(lines.shape, dtype=bool)
            lines[self._place[entries], column[entries] - mine[0]] = phi[entries]
            able[self._place[entries], column[entries] - mine[0]] = True
            lines[0, able[0]] -= group_excess(lines, able, units[mine])
            sources = self.rows.columns[self._source[mine]]
            phis = tuple(map(_plain, lines))
            groups.append(RowGroup(_plain(members), _plain(sources), _plain(units[mine]), phis))
        return GroupCertificate(tuple(groups))


class _Blocks:
    """Every block of every group, by group and lowest row: its rows as bits, its share, and its entries."""

    def __init__(self, group: Integers, start: Integers, place: Integers, sizes: list[int]) -> None:
        from scipy.sparse import csr_array

        masks, columns, flags = [], [], []
        for c, (first, last) in enumerate(pairwise(start)):
            some = (np.arange(1, 1 << (last - first))[:, None] >> np.arange(last - first)) & 1
            masks.append(some @ (1 << place[first:last]))
            columns.append(np.full(len(some), c))
            flags.append(some)
        mask, column = np.concatenate(masks), np.concatenate(columns)
        lowest = np.bitwise_count((mask & -mask) - 1).astype(np.int64)
        rank = np.cumsum([0, *sizes])[group[column]] + lowest  # over the rows of all groups
        order = np.argsort(rank, kind="stable")
        self.mask: Integers = mask[order]
        self.column: Integers = column[order]
        self._first = np.searchsorted(rank[order], np.arange(sum(sizes) + 1)).astype(np.int64)
        self._sizes = np.array(sizes, dtype=np.int64)
        lines, entries = [], []
        before = 0
        for some, first in zip(flags, start[:-1], strict=True):
            line, at = np.nonzero(some)
            lines.append(before + line)
            entries.append(first + at)
            before += len(some)
        line, entry = np.concatenate(lines), np.concatenate(entries)
        shape = before, int(start[-1])
        self._holds: Any = csr_array((np.ones(len(line)), (line, entry)), shape=shape)[order]
        self._held: Any = self._holds.T.tocsr()

    def worst_ways(self, phi: Floats, shares: Floats) -> tuple[float, npt.NDArray[np.bool_]]:
        """The sum over the groups of the largest excess of a way; and the blocks of these ways."""
        worth = self._holds @ phi - shares[self.column]
        chosen = np.zeros(len(worth), dtype=np.bool_)
        return float(_worst_ways(self._sizes, self._first, self.mask, worth, chosen)), chosen

    def entries_of(self, chosen: npt.NDArray[np.bool_]) -> Floats:
        """1 for each entry of the chosen blocks, which have no row in common."""
        return np.asarray(self._held @ chosen.astype(np.float64))


def blocks_of(rows: Rows) -> int:
    """How many blocks the groups have."""
    wanted = rows.weights > 0
    return sum(int((1 << wanted[members].sum(axis=0)).sum()) for members in dealt(wanted))


def dealt(wanted: npt.NDArray[np.bool_]) -> list[Integers]:
    """All rows dealt into groups of at most GROUP_ROWS that want the same sources; each ascending.

    >>> [group.tolist() for group in dealt(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 1]]) > 0)]
    [[0, 2], [1, 3]]
    """
    flags = wanted.astype(np.float32)
    common = flags @ flags.T
    left = np.ones(len(wanted), dtype=bool)
    outside = common.sum(axis=1)  # what each row has in common with those that are left
    groups = []
    while left.any():
        chosen = [int(np.flatnonzero(left)[np.argmin(outside[left])])]  # in a corner
        inside = np.zeros(len(wanted))
        while True:
            left[chosen[-1]] = False
            outside -= common[chosen[-1]]
            inside += common[chosen[-1]]
            near = np.flatnonzero(left & (inside > 0))
            if len(chosen) == GROUP_ROWS or not len(near):
                break
            chosen.append(int(near[np.argmax(inside[near] - APART * outside[near])]))
        groups.append(np.sort(np.array(chosen)))
    return groups


def _entries(wanted: npt.NDArray[np.bool_], groups: list[Integers]) -> tuple[Integers, Integers, Integers, Integers]:
    """Group, source, row and place of the row in its group, of every entry, by group and source."""
    found = []
    for g, members in enumerate(groups):
        source, place = np.nonzero(wanted[members].T)
        found.append((np.full(len(source), g), source, members[place], place))
    group, source, row, place = map(np.concatenate, zip(*found, strict=True))
    return group, source, row, place


def _plain(values: Integers) -> tuple[int, ...]:
    return tuple(values.tolist())


@kernel
def _worst_ways(sizes, first, mask, worth, chosen):  # type: ignore[no-untyped-def]
    """The largest worth of blocks that make up each group, added up, and in `chosen` these blocks.

    Blocks are put together from the lowest row on: best[rows] is the most that so many rows are worth, last[rows] the
    block that came last.
    """
    total = 0.0
    at = 0
    for g in range(len(sizes)):
        everyone = (1 << sizes[g]) - 1
        best = np.full(everyone + 1, -np.inf)
        last = np.zeros(everyone + 1, np.int64)
        best[0] = 0.0
        for inside in range(everyone):
            if best[inside] == -np.inf:
                continue
            u = 0
            while inside >> u & 1:
                u += 1
            for k in range(first[at + u], first[at + u + 1]):
                if mask[k] & inside == 0 and best[inside] + worth[k] > best[inside | mask[k]]:
                    best[inside | mask[k]] = best[inside] + worth[k]
                    last[inside | mask[k]] = k
        total += best[everyone]
        rest = everyone
        while rest > 0:
            chosen[last[rest]] = True
            rest ^= mask[last[rest]]
        at += sizes[g]
    return total
