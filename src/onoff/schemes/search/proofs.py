"""Lower bounds that are proved: certificates from the duals of a search. `check_certificate` decides what they prove.

    from_duals     the duals of the master program, for few sources, where every set can be looked at
    from_tree      the same with a branch-and-bound tree over "x is in S" that bounds what any set gains
    from_coupling  the duals of a program over couplings of rows
    from_supports  no duals: how many sources it takes to meet the support of every row (see `no_fewer_than`)
    best           the certificate with the largest bound that the checker accepts

Gain. Given t and y_A >= 0 over sets A of columns, the duals of the master program (see `master`), no table costs less
than  t - sum of y_A low(A) - g,   where  low(A) = min_u p_u(A)  and g is the largest gain of any set,

    gain(S) = t - |S| - sum of y_A over A that contain S

Tree. With 0 <= s, e <= 1 instead of whole numbers, this linear program bounds every gain from above:

    maximise  t - sum of y_A  - sum of s_x + sum of y_A e_A     s_x: x is in S;   e_A <= sum of s_x over x not in A

Its duals w_A of the inequalities prove the bound in one sum (see `onoff.model.checker`), so the leaves of the tree,
with their w, are the proof. The node with the largest bound is branched on next, at the source nearest to one half.
Ended at any moment, the largest bound of a leaf bounds every gain.

Rounding. Each y is rounded down to units, so that no inequality is missed but for t; then t is lowered by the most that
any leaf of the tree still misses, in integers. Whatever the floats were, the result holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidTable
from onoff.model.certificate import (
    LEAF,
    MOST_BRANCHES,
    SCALE,
    Certificate,
    HittingBound,
    RowCertificate,
    SetCertificate,
    SimpleBound,
    no_fewer_than,
)
from onoff.model.checker import FEW_SOURCES, check_certificate, leaf_bound, row_excess
from onoff.model.rows import Floats, Rows
from onoff.schemes.search.exact import Sets, meets

if TYPE_CHECKING:
    from onoff.schemes.search.portfolio import Board, IsOver, Problem

LARGEST = 2**50
"""The largest dual of a coupling: the sums over a thousand rows fit in 64 bits."""
WORTHWHILE = 1e-9
"""Gains from which a set is worth adding."""
MOST_LEAVES = 4000
"""Leaves of a tree at most, so that a proof can be checked in seconds."""
WHOLE = 1e-6
"""How far from a whole number a variable may be to count as one."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Duals:
    """t and y over the sets `inside` (the A): the dual of the master program."""

    t: float
    y: Floats
    inside: Sets

    @classmethod
    def of(cls, t: float, y: Floats, cuts: Sets) -> Duals:
        """The duals of cuts, without those that say nothing."""
        used = y > 0
        return cls(t, y[used], ~cuts[: len(y)][used])

    def value(self, p: Floats) -> float:
        """What the duals prove for rows p if no set gains: t less the sum of y_A low(A)."""
        return float(self.t - self.y @ (p @ self.inside.T).min(axis=0))

    def gains(self, sets: Sets) -> Floats:
        """gain(S) for each of `sets`."""
        contained = ~meets(sets, ~self.inside)
        return np.asarray(self.t - sets.sum(axis=1) - np.where(contained, self.y, 0.0).sum(axis=1), dtype=np.float64)


def subset_gains(duals: Duals, price: float = 1.0) -> Floats:
    """t - price |S| - sum of y_A over A that contain S, for every set S by the number whose bits are its members."""
    columns = duals.inside.shape[1]
    weight = np.zeros(1 << columns)
    np.add.at(weight, duals.inside @ (1 << np.arange(columns)), duals.y)
    for x in range(columns):  # sums over supersets, one element at a time
        halves = weight.reshape(-1, 2, 1 << x)
        halves[:, 0] += halves[:, 1]
    return np.asarray(duals.t - price * np.bitwise_count(np.arange(1 << columns)) - weight, dtype=np.float64)


def best_subsets(gains: Floats, most: int) -> Sets:
    """Of all sets of columns by their numbers, those that gain, best first, `most` at the most; gains are spoilt."""
    gains[0] = -np.inf
    order = np.argpartition(-gains, most)[:most] if most < len(gains) else np.arange(len(gains))
    order = order[gains[order] > WORTHWHILE]
    order = order[np.argsort(-gains[order], kind="stable")]
    return np.asarray((order[:, None] >> np.arange(len(gains).bit_length() - 1)) & 1 == 1)


def prove_duals(rows: Rows, board: Board, duals: Duals, is_over: Callable[[], bool]) -> Sets:
    """Offer the bound that the duals prove, by all sets of few sources, else by a tree; returns sets that gain.

    is_over: asked before each branch of a tree; where it ends early the bound is a lower one.
    """
    value = duals.value(rows.probabilities())
    if len(rows.columns) <= FEW_SOURCES:
        gains = subset_gains(duals)
        most = max(float(gains[1:].max()), 0.0)
        if value - most > board.lower:
            board.prove(from_duals(rows, duals, most))
        return best_subsets(gains, 2 * len(rows.columns))
    tree = branch(duals, is_over)
    if value - max(tree.most, 0.0) > board.lower:
        board.prove(from_tree(rows, duals, tree))
    return tree.sets


class Supports:
    """The bound by the supports, for rows with zeros.

    steps: sets looked at for each number of sources; the second time, with all that the checker allows, only where the
    incumbent costs a whole number, as it does where this bound is the optimum.
    steps_a_second: of one row, compiled, on a slow machine; half of the time of the strategy at most is taken.
    """

    def __init__(self, share: float, steps: int = MOST_BRANCHES, *, steps_a_second: float = 5e8) -> None:
        self.share, self.steps, self.steps_a_second = share, steps, steps_a_second

    def applies(self, problem: Problem) -> bool:
        """Full rows are met by a single source."""
        return not problem.full

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """One bound."""
        again = self.steps >= MOST_BRANCHES
        if again and not (np.isfinite(board.cost) and abs(board.cost - round(board.cost)) < WHOLE):
            return
        affordable = self.steps_a_second / problem.distinct / 4 * self.share * min(problem.clock.budget, 1e6)
        found = from_supports(problem.rows, min(self.steps, int(affordable)), int(board.lower) + 1)
        if found is not None and found.least > board.lower:
            board.prove(found)
        yield


class Tree:
    """The bound that the most promising duals of the master program prove, by branch and bound.

    share: all of the time that is left.
    """

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def applies(self, problem: Problem) -> bool:
        """Wherever there are duals, and the time is not better spent on looking ahead."""
        return not problem.looks_ahead

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """One tree."""
        if board.duals is not None:
            prove_duals(problem.rows, board, board.duals, is_over)
        yield


def from_duals(rows: Rows, duals: Duals, most: float) -> SetCertificate:
    """For few sources, where no tree is needed: t lowered by `most`, the largest gain of any set."""
    units = np.floor(duals.y * SCALE).astype(np.int64)
    kept = np.flatnonzero(units)
    sets = tuple(tuple(rows.columns[duals.inside[a]].tolist()) for a in kept)
    lost = len(units)  # each y lost less than one unit, and t - sum y must not exceed what it was
    t = int(np.floor((duals.t - max(most, 0.0)) * SCALE)) - lost
    return SetCertificate(t, sets, tuple(units[kept].tolist()))


def from_tree(rows: Rows, duals: Duals, tree: Branches) -> SetCertificate:
    """The certificate of duals whose gains `tree` has bounded."""
    y = np.floor(duals.y * SCALE).astype(np.int64)
    kept = np.flatnonzero(y)
    y, inside = y[kept], duals.inside[kept]
    place = {int(a): at for at, a in enumerate(kept)}
    t = int(np.floor(duals.t * SCALE))
    worst, leaves = 0, []
    for leaf in tree.leaves:
        w = np.clip(np.floor(leaf.w[kept] * SCALE), 0, y).astype(np.int64)
        if leaf.free.any() or leaf.taken.any():
            worst = max(worst, leaf_bound(t, y, w, inside, leaf.free, leaf.taken, SCALE))
        leaves.append(tuple((place[int(kept[a])], int(w[a])) for a in np.flatnonzero(w)))
    sets = tuple(tuple(rows.columns[line].tolist()) for line in inside)
    nodes = tuple(LEAF if x == LEAF else int(rows.columns[x]) for x in tree.nodes)
    return SetCertificate(t - worst, sets, tuple(y.tolist()), nodes, tuple(leaves))


def from_coupling(phi: Floats) -> RowCertificate:
    """The duals of a coupling of all rows, lowered alike in every row until no way of taking sources exceeds them."""
    units = np.clip(np.floor(phi * SCALE), -LARGEST, LARGEST).astype(np.int64)
    less = -(-max(row_excess(units, SCALE), 0) // len(units))
    return RowCertificate(tuple(range(len(units))), tuple(map(tuple, (units - less).tolist())))


def from_supports(rows: Rows, most_steps: int, first: int = 2) -> HittingBound | None:
    """The largest number of sources that so many steps prove to be needed for the supports, from `first` on."""
    supports, least = rows.weights > 0, first
    while no_fewer_than(supports, least, most_steps):
        least += 1
    return HittingBound(least - 1) if least > first else None


def best(rows: Rows, certificates: Iterable[Certificate]) -> Certificate:
    """The certificate with the largest bound that the checker accepts; the outer bound where it accepts none.

    >>> best(Rows.of([[0.5, 0.5], [0.25, 0.75]]), [SetCertificate(5 * SCALE, (), ())]).name
    'outer'
    """
    accepted: list[tuple[object, int, Certificate]] = []
    for at, certificate in enumerate((*certificates, SimpleBound("outer"))):
        try:
            accepted.append((check_certificate(rows, certificate), -at, certificate))
        except InvalidTable:
            continue
    return max(accepted, key=lambda one: one[:2])[2]


@dataclass(frozen=True)
class Leaf:
    """Columns undecided and columns taken, what a set of this leaf gains at most, and the duals that prove it."""

    free: Mask
    taken: Mask
    bound: float
    w: Floats
    split: int


@dataclass(frozen=True)
class Branches:
    """Nodes in the order node, side with, side without (a column or LEAF), and the leaves in that order."""

    nodes: list[int]
    leaves: list[Leaf]
    sets: Sets
    """Sets that gain, found on the way."""

    @property
    def most(self) -> float:
        """No set gains more."""
        return max(leaf.bound for leaf in self.leaves)


@dataclass
class _Node:
    leaf: Leaf
    sides: tuple[_Node, _Node] | None = field(default=None)


def branch(duals: Duals, is_over: Callable[[], bool]) -> Branches:
    """The tree for `duals`, grown until no set gains more than the best one found, or until it `is_over`."""
    relaxed = _Relaxed(duals)
    columns = duals.inside.shape[1]
    root = _Node(relaxed.leaf(np.ones(columns, dtype=bool), np.zeros(columns, dtype=bool)))
    open_ = [(-root.leaf.bound, 0, root)]
    count = 1
    while open_ and count < MOST_LEAVES and not is_over():
        bound, _, node = heapq.heappop(open_)
        if -bound <= max(relaxed.best, 0.0) + WORTHWHILE or node.leaf.split < 0:
            break
        rest = node.leaf.free.copy()
        rest[node.leaf.split] = False
        with_it = node.leaf.taken.copy()
        with_it[node.leaf.split] = True
        node.sides = (_Node(relaxed.leaf(rest, with_it)), _Node(relaxed.leaf(rest, node.leaf.taken)))
        count += 1
        for side in node.sides:
            heapq.heappush(open_, (-side.leaf.bound, 2 * count + (side is node.sides[0]), side))
    nodes: list[int] = []
    leaves: list[Leaf] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        nodes.append(LEAF if node.sides is None else node.leaf.split)
        if node.sides is None:
            leaves.append(node.leaf)
        else:
            waiting += reversed(node.sides)
    return Branches(nodes, leaves, relaxed.sets())


class _Relaxed:
    """The linear program, with the bounds of a node on one live model."""

    def __init__(self, duals: Duals) -> None:
        import highspy

        count, columns = duals.inside.shape
        self.duals = duals
        self.best = -np.inf
        self._found: list[Mask] = []
        self._columns = np.arange(columns, dtype=np.int32)
        self._model = highspy.Highs()
        self._model.silent()
        self._model.setOptionValue("threads", 1)
        none, nothing = np.zeros(0, dtype=np.int32), np.zeros(0)
        one, ones = np.ones(columns), np.ones(count)
        self._model.addCols(columns, one, 0 * one, one, 0, none, none, nothing)
        self._model.addCols(count, -duals.y, 0 * ones, ones, 0, none, none, nothing)
        for at, inside in enumerate(duals.inside):
            outside = np.flatnonzero(~inside)
            indices = np.append(outside, columns + at).astype(np.int32)
            self._model.addRow(0.0, highspy.kHighsInf, len(indices), indices, np.append(np.ones(len(outside)), -1.0))

    def leaf(self, free: Mask, taken: Mask) -> Leaf:
        """The program with some columns fixed."""
        self._model.changeColsBounds(len(free), self._columns, taken * 1.0, (taken | free) * 1.0)
        self._model.run()
        solution = self._model.getSolution()
        w = np.clip(np.array(solution.row_dual), 0.0, self.duals.y)
        s = np.array(solution.col_value[: len(free)])
        away = np.minimum(s, 1 - s)
        self._note(s > 0.5)
        split = int(np.argmax(away))
        if away[split] <= WHOLE:  # whole: nothing to branch on, unless S is empty, which is no set at all
            split = int(np.argmax(free)) if free.any() and not (s > WHOLE).any() else -1
        return Leaf(free, taken, self._bound(free, taken, w), w, split)

    def _bound(self, free: Mask, taken: Mask, w: Floats) -> float:
        """The bound that w proves, independent of what the solver reports; see `checker.leaf_bound`."""
        if not (free | taken).any():
            return -np.inf
        duals = self.duals
        alive = duals.inside[:, taken].all(axis=1)
        y, w, outside = duals.y[alive], w[alive], ~duals.inside[alive][:, free]
        may_go = outside.any(axis=1)
        over = np.maximum(
            (w[may_go, None] * outside[may_go]).sum(axis=0) - 1, 0
        ).sum()  # so small, threads are in the way
        return float(duals.t - taken.sum() - y.sum() + (y - w)[may_go].sum() + over)

    def _note(self, chosen: Mask) -> None:
        if chosen.any():
            gain = float(self.duals.gains(chosen[None])[0])
            self.best = max(self.best, gain)
            if gain > WORTHWHILE:
                self._found.append(chosen)

    def sets(self) -> Sets:
        """Sets that gain, each once."""
        return np.unique(np.array(self._found, dtype=bool).reshape(-1, len(self._columns)), axis=0)
