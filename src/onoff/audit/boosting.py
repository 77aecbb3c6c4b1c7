"""Boosted trees that choose one of some values: a law of the value of each case, from features of each (case, value).

    p(x | case) ~ exp(start[case, x] + sum over trees of RATE * tree(features[case, x]))

Each tree is grown by Newton's method on the likelihood of the values that were chosen: features are cut into BINS
quantiles, every node is split where that gains most, DEPTH times, and a leaf adds -G / (H + RIDGE), G and H being the
sums of first and second derivatives of the loss over its pairs. How many trees are kept is decided on every
HELD_BACK-th case, which the trees do not see; none, where the first of them does not help. So where there is nothing to
learn the start is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onoff.audit.attacker import choice_law
from onoff.model.rows import Floats, Integers

BINS, DEPTH = 16, 3
MOST_TREES, PATIENCE = 80, 8
"""Trees at most, and trees without progress after which no more are grown."""
RATE, RIDGE = 0.2, 5.0
HELD_BACK = 4
PROGRESS = 1e-3
"""By how much, in nats a case, the held-back cases must gain for another tree to be kept."""

Bins = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ChoiceTree:
    """A whole binary tree: node i has the children 2i + 1 and 2i + 2. Pairs with a bin above `cut` go to the second."""

    feature: Integers
    cut: Integers
    leaf: Floats

    def __call__(self, bins: Bins) -> Floats:
        """What each pair, a row of bins, gets."""
        node = np.zeros(len(bins), dtype=np.int64)
        for _ in range(DEPTH):
            node = 2 * node + 1 + (bins[np.arange(len(bins)), self.feature[node]] > self.cut[node])
        return self.leaf[node - len(self.feature)]


@dataclass(frozen=True)
class Boosted:
    """Trees, and the quantiles that their features are cut at; shape (features, BINS - 1)."""

    edges: Floats
    trees: tuple[ChoiceTree, ...]

    def law(self, features: Floats, start: Floats) -> Floats:
        """The law of the value of each case; shape (cases, values)."""
        bins = _binned(features, self.edges)
        return choice_law(_summed(self.trees, bins).reshape(*start.shape, 1), start, np.ones(1))


def boost(features: Floats, chosen: Integers, start: Floats) -> Boosted:
    """Grow trees on cases whose values are known."""
    flat = features.reshape(-1, features.shape[2])
    edges = np.quantile(flat, np.linspace(0, 1, BINS + 1)[1:-1], axis=0).T
    held = np.arange(len(chosen)) % HELD_BACK == 0
    learn, test = (_Cases(_binned(features[some], edges), chosen[some], start[some].copy()) for some in (~held, held))
    trees: list[ChoiceTree] = []
    kept, best = 0, test.loss()
    while len(trees) < MOST_TREES and len(trees) - kept < PATIENCE:
        tree = learn.tree()
        trees.append(tree)
        for part in (learn, test):
            part.add(tree)
        loss = test.loss()
        if loss < best - PROGRESS:
            kept, best = len(trees), loss
    return Boosted(edges, tuple(trees[:kept]))


@dataclass
class _Cases:
    """Cases with the scores that the trees so far give them."""

    bins: Bins
    chosen: Integers
    scores: Floats

    def add(self, tree: ChoiceTree) -> None:
        self.scores += RATE * tree(self.bins).reshape(self.scores.shape)

    def law(self) -> Floats:
        p = np.exp(self.scores - self.scores.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True), dtype=np.float64)

    def loss(self) -> float:
        return float(-np.log(self.law()[np.arange(len(self.chosen)), self.chosen]).mean())

    def tree(self) -> ChoiceTree:
        """The next tree."""
        law = self.law()
        slope, bend = law.copy(), (law * (1 - law)).ravel()
        slope[np.arange(len(self.chosen)), self.chosen] -= 1
        down = slope.ravel()
        inner = 2**DEPTH - 1
        feature, cut = np.zeros(inner, dtype=np.int64), np.zeros(inner, dtype=np.int64)
        node = np.zeros(len(self.bins), dtype=np.int64)
        for level in range(DEPTH):
            first, count = 2**level - 1, 2**level
            feature[first : first + count], cut[first : first + count] = _splits(
                self.bins, node - first, count, down, bend
            )
            node = 2 * node + 1 + (self.bins[np.arange(len(node)), feature[node]] > cut[node])
        sums = [np.bincount(node - inner, weights=part, minlength=inner + 1) for part in (down, bend)]
        return ChoiceTree(feature, cut, -sums[0] / (sums[1] + RIDGE))


def _splits(bins: Bins, node: Integers, nodes: int, down: Floats, bend: Floats) -> tuple[Integers, Integers]:
    """For each node the feature and the cut that gain most."""
    features = bins.shape[1]
    place = (node[:, None] * features + np.arange(features)) * BINS + bins
    sums = []
    for part in (down, bend):
        total = np.bincount(place.ravel(), weights=np.repeat(part, features), minlength=nodes * features * BINS)
        sums.append(total.reshape(nodes, features, BINS).cumsum(axis=2))
    g, h = sums
    gain = g**2 / (h + RIDGE) + (g[..., -1:] - g) ** 2 / (h[..., -1:] - h + RIDGE)
    best = gain[..., :-1].reshape(nodes, -1).argmax(axis=1)
    return np.divmod(best, BINS - 1)


def _binned(features: Floats, edges: Floats) -> Bins:
    """The bin of each feature of each pair; shape (cases * values, features)."""
    flat = features.reshape(-1, features.shape[2])
    return np.stack([np.searchsorted(edge, column) for edge, column in zip(edges, flat.T, strict=True)], axis=1)


def _summed(trees: tuple[ChoiceTree, ...], bins: Bins) -> Floats:
    total = np.zeros(len(bins))
    for tree in trees:
        total += RATE * tree(bins)
    return total
