"""Sets that would make the master program cheaper: by climbing, by all subsets, or by a small integer program.

Given the duals t and y_A >= 0 over sets A of columns (see `hall`), a set S not in the pool is worth adding where

    gain(S) = t - |S| - sum of y_A over A that contain S   >  0

To gain, S must leave many A: adding x to S leaves every A that does not hold x. This is facility location, so

    climbing    from many starts, add the best x as long as it gains, swap or drop one; quick, no proof
    all subsets the sums over A containing S for all S at once (a transform over the lattice of subsets): small C
    program     an integer program in HiGHS; its bound on the largest gain is a proof at any time

The largest gain g over all S makes the duals a proof: value - max(g, 0) is a lower bound on the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onoff.model.rows import Floats
from onoff.schemes.search.hall import Sets
from onoff.system.kernels import kernel
from onoff.system.shutdown import check, is_shutting_down

ALL_SUBSETS = 14
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
    effort = len(starts) * len(members)
    _climb(offsets, members.astype(np.int64), by_members, shaken, chosen, effort=effort)
    sets = np.unique(chosen[chosen.any(axis=1)], axis=0)
    gains = duals.gains(sets)
    order = np.argsort(-gains, kind="stable")
    return sets[order], gains[order]


def by_all_subsets(duals: Duals) -> tuple[Sets, Floats]:
    """Every set with a gain, best first; the largest gain of all comes first even where none is positive."""
    columns = duals.inside.shape[1]
    weight = np.zeros(1 << columns)
    np.add.at(weight, duals.inside @ (1 << np.arange(columns)), duals.y)
    for x in range(columns):  # sums over supersets, one element at a time
        halves = weight.reshape(-1, 2, 1 << x)
        halves[:, 0] += halves[:, 1]
    masks = np.arange(1 << columns)
    members = (masks[:, None] >> np.arange(columns)) & 1 == 1
    gains = duals.t - members.sum(axis=1) - weight
    gains[0] = -np.inf
    order = np.argsort(-gains, kind="stable")
    order = order[: max(1, int(np.count_nonzero(gains > WORTHWHILE)))]
    return members[order], gains[order]


def by_program(duals: Duals, seconds: float) -> tuple[Sets, float]:
    """The best sets that an integer program finds in the time, and a proven bound on every gain.

    maximise t - sum of y_A - sum of s_x + sum of y_A e_A   where s_x: x is in S;  e_A <= sum of s_x over x not in A: S
    leaves A.
    """
    import highspy

    count, columns = duals.inside.shape
    model = highspy.Highs()
    model.silent()
    for option, setting in {"threads": 1, "time_limit": max(seconds, 0.1), "mip_rel_gap": 0.0}.items():
        model.setOptionValue(option, setting)
    one = np.ones(columns)
    none, nothing = np.zeros(0, dtype=np.int32), np.zeros(0)
    model.addCols(columns, one, 0 * one, one, 0, none, none, nothing)
    kinds = np.full(columns, highspy.HighsVarType.kInteger)
    model.changeColsIntegrality(columns, np.arange(columns, dtype=np.int32), kinds)
    ones = np.ones(count)
    model.addCols(count, -duals.y, 0 * ones, ones, 0, none, none, nothing)
    for at, inside in enumerate(duals.inside):
        outside = np.flatnonzero(~inside)
        indices = np.append(outside, columns + at).astype(np.int32)
        model.addRow(0.0, highspy.kHighsInf, len(indices), indices, np.append(np.ones(len(outside)), -1.0))
    model.addRow(1.0, highspy.kHighsInf, columns, np.arange(columns, dtype=np.int32), one)
    model.cbMipInterrupt.subscribe(lambda event: event.interrupt() if is_shutting_down() else None)
    model.run()
    check()
    constant = duals.t - float(duals.y.sum())
    bound = constant - float(model.getInfo().mip_dual_bound)
    found = [np.array(model.getSolution().col_value[:columns])] if model.getSolution().value_valid else []
    found += [np.array(saved.col_value[:columns]) for saved in model.getSavedMipSolutions()]
    sets = np.array(found).reshape(-1, columns) > 0.5
    return np.unique(sets[sets.any(axis=1)], axis=0), bound


@kernel
def _climb(offsets, members, by_members, shaken, chosen):  # type: ignore[no-untyped-def]
    """Climb from each line of `chosen`, in place: add while it gains, then swap or drop one element, and again.

    A is given by its members or by what it leaves out. left[A] counts the elements of S that are not in A, so S lies in
    A where it is 0; worth[x] + base is what adding x gains: the y of all A that contain S but not x, less 1.
    """
    count = len(offsets) - 1
    columns = chosen.shape[1]
    first = np.zeros(columns + 1, np.int64)  # which A list each element, as CSR
    for e in range(len(members)):
        first[members[e] + 1] += 1
    for x in range(columns):
        first[x + 1] += first[x]
    listed = np.empty(len(members), np.int64)
    fill = first[:-1].copy()
    for a in range(count):
        for e in range(offsets[a], offsets[a + 1]):
            listed[fill[members[e]]] = a
            fill[members[e]] += 1

    worth = np.empty(columns)
    left = np.empty(count, np.int64)
    named = np.zeros(count, np.bool_)
    waiting = np.empty(columns, np.int64)
    for at in range(len(chosen)):
        y = shaken[at % len(shaken)]
        inside = chosen[at]
        left[:] = 0
        worth[:] = -1.0
        base = 0.0
        for a in range(count):
            if by_members[a]:
                base += y[a]
                for e in range(offsets[a], offsets[a + 1]):
                    worth[members[e]] -= y[a]
            else:
                for e in range(offsets[a], offsets[a + 1]):
                    worth[members[e]] += y[a]
        entering = 0  # the elements of the start come in one after the other
        for x in range(columns):
            if inside[x]:
                waiting[entering] = x
                entering += 1
                inside[x] = False
        trying = -1  # the place among `waiting` of the element that is out on trial, when swapping
        change = -1
        steps = 0
        while steps < 50 * columns:
            steps += 1
            if entering > 0:
                entering -= 1
                change = waiting[entering]
                trial = False
            elif trying < 0 or change < 0:
                trial = False
                change = -1
                best = 1e-9
                for x in range(columns):
                    if not inside[x] and worth[x] + base > best:
                        best = worth[x] + base
                        change = x
                if change < 0:  # nothing to add: take elements out on trial, one after the other
                    if trying < 0:
                        trying = 0
                        size = 0
                        for x in range(columns):
                            if inside[x]:
                                waiting[size] = x
                                size += 1
                    if trying >= size:
                        break
                    change = waiting[trying]
                    trying += 1
                    trial = True
                else:
                    trying = -1
            else:
                trial = False

            # Toggle `change`.
            adding = not inside[change]
            inside[change] = adding
            for i in range(first[change], first[change + 1]):
                named[listed[i]] = True
            for a in range(count):
                if named[a] != by_members[a]:  # A does not hold `change`
                    before = left[a]
                    left[a] += 1 if adding else -1
                    if before == 0 or left[a] == 0:
                        share = -y[a] if adding else y[a]
                        if by_members[a]:
                            base += share
                            share = -share
                        for e in range(offsets[a], offsets[a + 1]):
                            worth[members[e]] += share
            for i in range(first[change], first[change + 1]):
                named[listed[i]] = False

            if trial:  # `change` is out: does another do better, or none at all?
                back = worth[change] + base
                best = max(back, 0.0) + 1e-9
                other = -1
                for x in range(columns):
                    if not inside[x] and worth[x] + base > best:
                        best = worth[x] + base
                        other = x
                if other >= 0:
                    trying = -1  # `other` is added in the next step, as the best there is
                    change = -1
                elif back < -1e-9:
                    trying = -1
                    change = -1
                # else it comes back in: `change` is toggled again in the next step, and the trials go on
            else:
                change = -1
