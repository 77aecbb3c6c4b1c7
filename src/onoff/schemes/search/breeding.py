"""Few rows over many sources: a pool of sets that is bred, and masses for it by a quasi-Newton ascent.

The class. Where the optimum is the outer bound, each source x is asked for just as often as its *home* wants it, the
row with the largest p_u(x), so in every query that holds x its home takes x. The pool holds such sets only: at most one
source of each home, and a home whose source is there takes nothing else. Whatever meets the sums of `transport` then
costs the outer bound.

Masses. In the terms of `transport`, a = exp f maximises  sum of p_u(x) f_u(x) - M sum of m_S,  which is smooth and
concave in f: a few dozen steps of L-BFGS come nearer than thousands of scalings. Its gradient is what is off. The
nearest point on the way counts, not the last one: a pool that has no solution lets f go astray.

Breeding. The pool begins with systematic samples and the sets of Algorithm 1. From generation to generation sets are
drawn by their masses and changed in a few sources, each change kept with the chance (Metropolis) that makes sets as
frequent as their masses would be if all sets were in the pool. Short ascents do at first, while the pool is poor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.descent import descend
from onoff.schemes.search.hall import Sets
from onoff.schemes.search.proposals import systematic
from onoff.schemes.search.transport import Pool, Transported
from onoff.system.kernels import kernel

MOST_BRED_ROWS = 24
"""Rows up to which sets are bred."""
SMALLEST_POOL, LARGEST_POOL, SETS_PER_SOURCE = 3000, 8000, 20
"""How many sets a pool that is bred has."""
MOST_KNOWN = 4000
"""Sets of another table that are worth beginning with."""
MOVES = 16
"""Changes tried on each set that is bred."""
SCALINGS = 25
"""Scalings to begin with."""
STAGES = ((10, 10, 20), (40,), (80,), (160,), (240,), (320,))
"""Steps of the ascent of each generation, stage by stage."""
FLAT = 1e-3
"""A step in f counts as if p were at least this: where p is small, f hardly matters."""


class Breeding:
    """Masses for sets in the class of the outer bound, better from stage to stage."""

    def __init__(self, p: Floats, known: Sets, rng: np.random.Generator) -> None:
        """known: sets to begin with, besides systematic samples; those outside the class are left out."""
        self.p, self.rng = p, rng
        rows, columns = p.shape
        self.home = np.argmax(p, axis=0)
        tied = np.count_nonzero(p == p.max(axis=0), axis=0) > 1
        self.homes_are_tied = bool(10 * np.count_nonzero(tied) > columns)
        """Whether a tenth of the sources have more than one row that could be their home, as where masses are equal."""
        self._of_home = np.argsort(self.home, kind="stable")
        self._first = np.searchsorted(self.home[self._of_home], np.arange(rows + 1))
        self._size = int(np.clip(SETS_PER_SOURCE * columns, SMALLEST_POOL, LARGEST_POOL))
        orders = int(np.clip(self._size // columns, 4, 100))
        begun = np.vstack([systematic(p, orders, rng), known])
        homes = np.zeros((len(begun), rows), dtype=np.int64)
        at, source = np.nonzero(begun)
        np.add.at(homes, (at, self.home[source]), 1)
        self._slots = np.unique(self._by_home(begun[homes.max(axis=1) <= 1]), axis=0)
        pool = Pool(p, self._sets(), np.ascontiguousarray(self._slots.T))
        pool.scale(SCALINGS)
        self._masses, self._a = pool.masses, pool.a

    def stages(self, is_over: Callable[[], bool]) -> Iterator[Transported]:
        """The masses at the end of each stage, until it `is_over`. What they are does not depend on when that is."""
        for stage in STAGES:
            off = 1.0
            for steps in stage:
                if is_over():
                    return
                self._breed()
                off = self._ascend(steps, is_over)
            if is_over():
                return
            yield Transported(self._sets(), self._masses, off)

    def _breed(self) -> None:
        masses = self._masses
        parents = self._slots[self.rng.choice(len(masses), size=self._size // 2, p=masses / masses.sum())]
        chances = self.rng.random((len(parents), MOVES, 3))
        _vary(parents, self._first, self._of_home, np.ascontiguousarray(self._a.T), chances)
        best = np.argsort(-masses, kind="stable")[: 2 * self._size // 3]
        merged = np.vstack([self._slots[best], parents])
        _, first = np.unique(merged, axis=0, return_index=True)
        self._slots = merged[np.sort(first)]

    def _ascend(self, steps: int, is_over: Callable[[], bool]) -> float:
        """Move a, and the masses with it, to the nearest point of an ascent; how much of a row is off there."""
        present = self._slots >= 0
        items = self._slots[present]
        offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
        p = np.ascontiguousarray(self.p.T)  # by source: the sums over a set run over all rows at once
        begin = np.log(np.maximum(self._a.T, 1e-30))
        unit = np.sqrt(np.maximum(p, FLAT))
        gradient, masses = np.empty_like(p), np.empty(len(self._slots))
        nearest = np.inf

        def dual(moved: Floats) -> tuple[float, Floats]:
            nonlocal nearest
            f = begin + moved.reshape(p.shape) / unit
            a = np.exp(np.minimum(f, 300.0))
            total = _dual(a, p, offsets, items, self.home, gradient, masses)
            off = float(np.abs(gradient).sum()) / len(self.p)
            if off < nearest:
                nearest, self._a, self._masses = off, np.ascontiguousarray(a.T), masses.copy()
            return float(total) - float((p * f).sum()), (gradient / unit).ravel()

        descend(dual, np.zeros(p.size), steps, is_over)
        return nearest

    def _by_home(self, sets: Sets) -> Integers:
        """For each set the source of each home in it, or -1."""
        slots = np.full((len(sets), len(self.p)), -1, dtype=np.int64)
        at, source = np.nonzero(sets)
        slots[at, self.home[source]] = source
        return slots

    def _sets(self) -> Sets:
        sets = np.zeros((len(self._slots), self.p.shape[1]), dtype=bool)
        at, row = np.nonzero(self._slots >= 0)
        sets[at, self._slots[at, row]] = True
        return sets


@kernel
def _dual(a, p, offsets, items, home, gradient, masses):  # type: ignore[no-untyped-def]
    """Fills in masses and the gradient of (rows times the sum of masses) - sum of p f; the first of the two.

    a, p, gradient: by source and row.
    """
    rows = p.shape[1]
    v = np.empty(rows)
    gradient[:] = -p
    total = 0.0
    for s in range(len(offsets) - 1):
        v[:] = 1e-300
        for e in range(offsets[s], offsets[s + 1]):
            x = items[e]
            for u in range(rows):
                v[u] += a[x, u]
        for e in range(offsets[s], offsets[s + 1]):
            v[home[items[e]]] = a[items[e], home[items[e]]] + 1e-300
        masses[s] = np.exp(min(_log_product(v) / rows, 300.0))
        total += rows * masses[s]
        for u in range(rows):
            v[u] = masses[s] / v[u]
        for e in range(offsets[s], offsets[s + 1]):  # a home takes its own source, and no other
            x = items[e]
            gradient[x, home[x]] += v[home[x]] * a[x, home[x]]
            v[home[x]] = 0.0
        for e in range(offsets[s], offsets[s + 1]):
            x = items[e]
            for u in range(rows):
                gradient[x, u] += v[u] * a[x, u]
    return total


@kernel
def _vary(slots, first, of_home, a, chances):  # type: ignore[no-untyped-def]
    """Change sources of each set, in place: three chances for each try (which home, which source, whether it stays)."""
    rows = slots.shape[1]
    v = np.empty(rows)
    for s in range(len(slots)):
        present = _log_mass(slots[s], a, v)
        for i in range(chances.shape[1]):
            home = int(chances[s, i, 0] * rows)
            choices = first[home + 1] - first[home]
            place = chances[s, i, 1] * (choices + 1)
            choice = int(place)
            before = slots[s, home]
            after = -1 if choice == choices else of_home[first[home] + choice]
            if before >= 0 and place - choice < 0.3:
                after = -1
            slots[s, home] = after
            changed = _log_mass(slots[s], a, v)
            if np.exp(min(changed - present, 0.0)) > chances[s, i, 2]:
                present = changed
            else:
                slots[s, home] = before


@kernel
def _log_mass(slots, a, v):  # type: ignore[no-untyped-def]
    """The logarithm of the mass that a set would have; v is for use inside."""
    rows = len(slots)
    v[:] = 0.0
    for h in range(rows):
        if slots[h] >= 0:
            for u in range(rows):
                v[u] += a[slots[h], u]
    for h in range(rows):
        if slots[h] >= 0:
            v[h] = a[slots[h], h]
        if v[h] <= 0.0:
            return -1e300
    return _log_product(v) / rows


@kernel
def _log_product(v):  # type: ignore[no-untyped-def]
    """The logarithm of the product of positive numbers up to about 1e140: as few logarithms as can be."""
    logs = 0.0
    product = 1.0
    for u in range(len(v)):
        product *= v[u]
        if product < 1e-150 or product > 1e150:
            logs += np.log(max(product, 1e-300))
            product = 1.0
    return logs + np.log(product)
