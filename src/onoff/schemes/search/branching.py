"""The most that any set gains by some duals, proved: branch and bound over "x is in S" with linear programs.

    maximise  t - sum of y_A  - sum of s_x + sum of y_A e_A     s_x: x is in S;   e_A <= sum of s_x over x not in A

with 0 <= s, e <= 1 instead of whole numbers bounds every gain from above. Its duals w_A of the inequalities prove the
bound in one sum (see `onoff.model.checker`), so the leaves of the tree, with their w, are the proof.

The node with the largest bound is branched on next, at the source nearest to one half. Stopped at any moment, the
largest bound of a leaf bounds every gain: the longer, the better. Sets that come out whole on the way are worth adding.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from onoff.model.certificate import LEAF
from onoff.model.rows import Floats
from onoff.schemes.search.hall import Sets
from onoff.schemes.search.pricing import WORTHWHILE, Duals

MOST_LEAVES = 4000
"""Leaves of a tree at most, so that a proof can be checked in seconds."""
WHOLE = 1e-6
"""How far from a whole number a variable may be to count as one."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Leaf:
    """Columns undecided and columns taken, what a set of this leaf gains at most, and the duals that prove it."""

    free: Mask
    taken: Mask
    bound: float
    w: Floats
    split: int


@dataclass(frozen=True)
class Tree:
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


def branch(duals: Duals, is_over: Callable[[], bool]) -> Tree:
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
    return Tree(nodes, leaves, relaxed.sets())


class _Relaxed:
    """The linear program, with the bounds of a node on one live model."""

    def __init__(self, duals: Duals) -> None:
        import highspy

        count, columns = duals.inside.shape
        self.duals = duals
        self.constant = duals.t - float(duals.y.sum())
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
        over = np.maximum(w[may_go] @ outside[may_go] - 1, 0).sum()
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
