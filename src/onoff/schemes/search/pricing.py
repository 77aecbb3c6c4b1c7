"""Sets that would make the master program cheaper: by climbing, or by looking at all subsets.

Given the duals t and y_A >= 0 over sets A of columns (see `hall`), a set S not in the pool is worth adding where

    gain(S) = t - |S| - sum of y_A over A that contain S   >  0

To gain, S must leave many A: adding x to S leaves every A that does not hold x. This is facility location, so

    climbing    from many starts, add the best x as long as it gains, swap or drop one; quick, no proof
    all subsets the sums over A containing S for all S at once (a transform over the lattice of subsets): small C
    branching   branch and bound, in a module of its own: sets, and a proof at any time

The largest gain g over all S makes the duals a proof: value - max(g, 0) is a lower bound on the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onoff.model.rows import Floats
from onoff.schemes.search.hall import Sets, each_once
from onoff.system.kernels import kernel

ALL_SETS_PRICED = 14
"""Columns up to which all subsets are looked at."""
WORTHWHILE = 1e-9
"""Gains from which a set is worth adding."""


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
        outside = (~self.inside).astype(np.float64)
        contained = (sets.astype(np.float64) @ outside.T) == 0
        return np.asarray(self.t - sets.sum(axis=1) - contained @ self.y, dtype=np.float64)


def by_climbing(duals: Duals, starts: Sets, noise: float, rng: np.random.Generator) -> tuple[Sets, Floats]:
    """Sets found from each of `starts`, best first, with gains. With noise, each start sees the duals shaken."""
    columns = duals.inside.shape[1]
    shaken = np.tile(duals.y, (len(starts) if noise else 1, 1))
    if noise:
        shaken *= np.maximum(1 + noise * rng.standard_normal(shaken.shape), 0)
    # Each A by its sparser side: the members where they are few, else those left out.
    by_members = duals.inside.sum(axis=1) <= columns / 2
    side = np.where(by_members[:, None], duals.inside, ~duals.inside)
    owner, members = np.nonzero(side)
    offsets = np.searchsorted(owner, np.arange(len(side) + 1)).astype(np.int64)
    chosen = starts.copy()
    _climb(offsets, members.astype(np.int64), by_members, shaken, chosen)
    sets = each_once(chosen[chosen.any(axis=1)])
    gains = duals.gains(sets)
    order = np.argsort(-gains, kind="stable")
    return sets[order], gains[order]


def by_all_subsets(duals: Duals) -> tuple[Sets, Floats]:
    """Every set with a gain, best first; the largest gain of all comes first even where none is positive."""
    gains = subset_gains(duals)
    gains[0] = -np.inf
    order = np.argsort(-gains, kind="stable")
    order = order[: max(1, int(np.count_nonzero(gains > WORTHWHILE)))]
    return (order[:, None] >> np.arange(duals.inside.shape[1])) & 1 == 1, gains[order]


def subset_gains(duals: Duals, price: float = 1.0) -> Floats:
    """t - price |S| - sum of y_A over A that contain S, for every set S by the number whose bits are its members."""
    columns = duals.inside.shape[1]
    weight = np.zeros(1 << columns)
    np.add.at(weight, duals.inside @ (1 << np.arange(columns)), duals.y)
    for x in range(columns):  # sums over supersets, one element at a time
        halves = weight.reshape(-1, 2, 1 << x)
        halves[:, 0] += halves[:, 1]
    return np.asarray(duals.t - price * np.bitwise_count(np.arange(1 << columns)) - weight, dtype=np.float64)


@kernel
def _climb(offsets, members, by_members, shaken, chosen):  # type: ignore[no-untyped-def]
    """Climb from each line of `chosen`, in place: add while it gains, then swap or drop one element, and again.

    A is given by its members or by what it leaves out. left[A] counts the elements of S that are not in A, so S lies in
    A where it is 0; worth[x] + base is what adding x gains: the y of all A that contain S but not x, less 1.
    """
    count, columns = len(offsets) - 1, chosen.shape[1]
    first, listed = _listing(offsets, members, columns)
    worth = np.empty(columns)
    left = np.empty(count, np.int64)
    named = np.zeros(count, np.bool_)
    for at in range(len(chosen)):
        y = shaken[at % len(shaken)]
        inside = chosen[at]
        base = _empty_set(offsets, members, by_members, y, left, worth)
        start = np.flatnonzero(inside)
        inside[:] = False
        for x in start:
            base = _toggle(x, offsets, members, by_members, first, listed, y, inside, left, worth, named, base)
        steps = 0
        improved = True
        while improved and steps < 50 * columns:
            x = _best_outside(inside, worth, base, 1e-9)
            while x >= 0 and steps < 50 * columns:
                base = _toggle(x, offsets, members, by_members, first, listed, y, inside, left, worth, named, base)
                x = _best_outside(inside, worth, base, 1e-9)
                steps += 1
            improved = False
            for x in np.flatnonzero(inside):  # out on trial: does another do better, or none at all?
                base = _toggle(x, offsets, members, by_members, first, listed, y, inside, left, worth, named, base)
                steps += 1
                back = worth[x] + base
                if back < -1e-9 or _best_outside(inside, worth, base, max(back, 0.0) + 1e-9) >= 0:
                    improved = True
                    break
                base = _toggle(x, offsets, members, by_members, first, listed, y, inside, left, worth, named, base)


@kernel
def _listing(offsets, members, columns):  # type: ignore[no-untyped-def]
    """Which A list each element, as CSR."""
    first = np.zeros(columns + 1, np.int64)
    for e in range(len(members)):
        first[members[e] + 1] += 1
    for x in range(columns):
        first[x + 1] += first[x]
    listed = np.empty(len(members), np.int64)
    fill = first[:-1].copy()
    for a in range(len(offsets) - 1):
        for e in range(offsets[a], offsets[a + 1]):
            listed[fill[members[e]]] = a
            fill[members[e]] += 1
    return first, listed


@kernel
def _empty_set(offsets, members, by_members, y, left, worth):  # type: ignore[no-untyped-def]
    """Fill in `left` and `worth` for the empty S; the base."""
    left[:] = 0
    worth[:] = -1.0
    base = 0.0
    for a in range(len(y)):
        if by_members[a]:
            base += y[a]
        for e in range(offsets[a], offsets[a + 1]):
            worth[members[e]] += -y[a] if by_members[a] else y[a]
    return base


@kernel
def _best_outside(inside, worth, base, least):  # type: ignore[no-untyped-def]
    """The element outside S whose adding gains most, if more than `least`; else -1."""
    best, found = least, -1
    for x in range(len(inside)):
        if not inside[x] and worth[x] + base > best:
            best, found = worth[x] + base, x
    return found


@kernel
def _toggle(x, offsets, members, by_members, first, listed, y, inside, left, worth, named, base):  # type: ignore[no-untyped-def]
    """Take x into S or out of it; the new base."""
    adding = not inside[x]
    inside[x] = adding
    for i in range(first[x], first[x + 1]):
        named[listed[i]] = True
    for a in range(len(y)):
        if named[a] != by_members[a]:  # A does not hold x
            before = left[a]
            left[a] += 1 if adding else -1
            if before == 0 or left[a] == 0:
                share = -y[a] if adding else y[a]
                if by_members[a]:
                    base += share
                    share = -share
                for e in range(offsets[a], offsets[a + 1]):
                    worth[members[e]] += share
    for i in range(first[x], first[x + 1]):
        named[listed[i]] = False
    return base
