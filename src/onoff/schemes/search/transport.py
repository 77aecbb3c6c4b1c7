"""Masses for given sets without a linear program: the rows are transported to the sets, all with the same masses.

Setting
    p_u(x)     rows;   S  a pool of sets;   m_S  their masses, wanted
    T_u(x, S)  what row u, wanting x, asks by S:   sum over S = p_u(x),   sum over x in S = m_S for every u

Of all such T and m the ones of largest entropy have T_u(x, S) = a_u(x) b_u(S) with the product of b_u(S) over u equal
to 1, so that m_S is the geometric mean over u of  v_u(S) = sum of a_u(x) over x in S. Two ways to them, in floats:

scaling    fit the first sums, then the second, and again (Sinkhorn; Bregman projections). Slow, and never astray.
ascent     maximise the dual, sum of p_u(x) f_u(x) - M sum of m_S with a = exp f, which is smooth and concave, by
           a quasi-Newton method (L-BFGS): quick once scaling has come near, and where the pool has a solution.

Few rows over many sources. Where the optimum is the outer bound, each source x is asked for just as often as its *home*
wants it, the row with the largest p_u(x), so in every query that holds x its home takes x. The pool holds such sets
only: at most one source of each home, and a home whose source is there takes nothing else. Whatever meets the sums then
costs the outer bound. The pool begins with systematic samples and the sets of Algorithm 1, and is bred: sets are drawn
by their masses and changed in a few sources, each change kept with the chance (Metropolis) that makes sets as frequent
as their masses would be if all sets were in the pool.

What comes out meets the sums nearly; the rebuild in integers makes it exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.hall import Sets
from onoff.schemes.search.proposals import affordable, races, systematic
from onoff.system.kernels import kernel

MOST_BRED_ROWS = 24
"""Rows up to which sets are bred."""
SMALLEST_POOL, LARGEST_POOL, SETS_PER_SOURCE = 3000, 8000, 20
"""How many sets a pool that is bred has."""
MOVES = 16
"""Changes tried on each set that is bred."""
SCALINGS = 25
"""Scalings in a generation."""
STAGES = ((3, 30), (5, 60), (6, 100), (8, 160), (8, 240))
"""Generations in each stage, and steps of the ascent that ends it."""
RACED, MOST_RACED, RACED_SCALINGS = 25, 4000, 60
"""Races for each source, races at most, and scalings, for masses from races."""
TILTS = (1.0, 3.0)
"""How much masses from races lean to small sets: the first for large queries, the second for small ones."""
MOST_WORK = 3 * 10**8
"""Additions that masses from races may take."""


@dataclass(frozen=True)
class Transported:
    """Sets with their masses, and how much of a row's mass is off on average."""

    sets: Sets
    masses: Floats
    off: float


def raced(p: Floats, tilt: float, rng: np.random.Generator) -> Transported:
    """Masses for the sets of some races, those with fewer sources preferred: mostly cheaper than the race itself."""
    sets = np.unique(races(p, affordable(p, min(RACED * p.shape[1], MOST_RACED)), rng), axis=0)
    sizes = sets.sum(axis=1)
    lean = np.exp(-tilt * np.minimum(sizes - sizes.min(), 100))
    pool = _Pool(p, sets, np.full((len(p), len(sets)), -1, dtype=np.int64), np.tile(lean, (len(p), 1)))
    work = max(len(p) * int(sets.sum()), 1)
    off = pool.scale(int(np.clip(MOST_WORK // work, 5, RACED_SCALINGS)))
    return Transported(sets, pool.masses, off)


class Breeding:
    """Masses for sets in the class of the outer bound, better from stage to stage."""

    def __init__(self, p: Floats, known: Sets, rng: np.random.Generator) -> None:
        """known: sets to begin with, besides systematic samples; those outside the class are left out."""
        self.p, self.rng = p, rng
        rows, columns = p.shape
        self.home = np.argmax(p, axis=0)
        self._of_home = np.argsort(self.home, kind="stable")
        self._first = np.searchsorted(self.home[self._of_home], np.arange(rows + 1))
        self._size = int(np.clip(SETS_PER_SOURCE * columns, SMALLEST_POOL, LARGEST_POOL))
        orders = int(np.clip(self._size // columns, 4, 100))
        begun = np.vstack([systematic(p, orders, rng), known])
        homes = np.zeros((len(begun), rows), dtype=np.int64)
        at, source = np.nonzero(begun)
        np.add.at(homes, (at, self.home[source]), 1)
        self._adopt(np.unique(self._slots(begun[homes.max(axis=1) <= 1]), axis=0))

    def stages(self, is_over: Callable[[], bool]) -> Iterator[Transported]:
        """The masses at the end of each stage, until it `is_over`. What they are does not depend on when that is."""
        off = self.pool.scale(SCALINGS)
        for generations, steps in STAGES:
            for _ in range(generations):
                if is_over():
                    return
                self._breed()
                off = self.pool.scale(SCALINGS)
            climbed, left = self.pool.ascend(steps, is_over)
            if is_over():
                return
            yield Transported(self._sets(), climbed, left) if left < off else self._present(off)

    def _present(self, off: float) -> Transported:
        return Transported(self._sets(), self.pool.masses, off)

    def _breed(self) -> None:
        slots, masses = self._kept, self.pool.masses
        parents = slots[self.rng.choice(len(slots), size=self._size // 2, p=masses / masses.sum())]
        chances = self.rng.random((len(parents), MOVES, 3))
        effort = chances.size * len(self.p)
        _vary(parents, self._first, self._of_home, self.pool.a, chances, effort=effort)
        best = np.argsort(-masses, kind="stable")[: 2 * self._size // 3]
        b = np.hstack([self.pool.b[:, best], np.ones((len(self.p), len(parents)))])
        merged = np.vstack([slots[best], parents])
        _, first = np.unique(merged, axis=0, return_index=True)
        first.sort()
        self._adopt(merged[first], np.ascontiguousarray(b[:, first]))

    def _adopt(self, slots: Integers, b: Floats | None = None) -> None:
        self._kept = slots
        self.pool = _Pool(self.p, self._sets(), np.ascontiguousarray(slots.T), b)

    def _slots(self, sets: Sets) -> Integers:
        """For each set the source of each home in it, or -1."""
        slots = np.full((len(sets), len(self.p)), -1, dtype=np.int64)
        at, source = np.nonzero(sets)
        slots[at, self.home[source]] = source
        return slots

    def _sets(self) -> Sets:
        sets = np.zeros((len(self._kept), self.p.shape[1]), dtype=bool)
        at, row = np.nonzero(self._kept >= 0)
        sets[at, self._kept[at, row]] = True
        return sets


class _Pool:
    """Sets as CSR with a, b and masses. forced[u, S]: the one source that row u takes by S, or -1 for any of them."""

    def __init__(self, p: Floats, sets: Sets, forced: Integers, b: Floats | None = None) -> None:
        owner, items = np.nonzero(sets)
        self.p, self.forced = p, forced
        self.items = items.astype(np.int64)
        self.offsets = np.searchsorted(owner, np.arange(len(sets) + 1)).astype(np.int64)
        self.b = np.ones((len(p), len(sets))) if b is None else b
        self.masses: Floats = np.full(len(sets), 1 / len(sets))
        self.a: Floats = np.zeros_like(p)

    def scale(self, times: int) -> float:
        """Scale; the mass that is off, over rows on average."""
        given = self.p, self.offsets, self.items, self.forced, self.masses, self.b, self.a, times
        return float(_scale(*given, effort=times * len(self.p) * len(self.items)))

    def ascend(self, steps: int, is_over: Callable[[], bool]) -> tuple[Floats, float]:
        """Masses after a quasi-Newton ascent from the present a, and the mass that is off."""
        from scipy import optimize

        minimize: Any = optimize.minimize
        start = np.log(np.maximum(self.a, 1e-30))
        unit = np.sqrt(np.maximum(self.p, 1e-7))
        gradient, masses = np.empty_like(self.p), np.empty_like(self.masses)

        def dual(moved: Floats) -> tuple[float, Floats]:
            f = start + moved.reshape(self.p.shape) / unit
            given = np.exp(np.minimum(f, 300.0)), self.p, self.offsets, self.items, self.forced, gradient, masses
            value = float(_dual(*given, effort=len(self.p) * len(self.items))) - float((self.p * f).sum())
            return value, (gradient / unit).ravel()

        def stop_when_over(_: Floats) -> None:
            if is_over():
                raise StopIteration

        options: Any = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 20, "ftol": 0.0, "gtol": 1e-12}
        start_here = np.zeros(self.p.size)
        found = minimize(dual, start_here, jac=True, method="L-BFGS-B", options=options, callback=stop_when_over)
        dual(found.x)
        return masses, float(np.abs(gradient).sum() / len(self.p))


@kernel
def _scale(p, offsets, items, forced, masses, b, a, times):  # type: ignore[no-untyped-def]
    """Scale `a`, `b` and `masses` in place; the mass that was off before the last time."""
    rows, columns = p.shape
    count = len(offsets) - 1
    reach = np.empty(columns)
    v = np.empty((rows, count))
    off = 0.0
    for _ in range(times):
        off = 0.0
        logs = np.zeros(count)
        for u in range(rows):
            reach[:] = 0.0
            for s in range(count):
                if forced[u, s] >= 0:
                    reach[forced[u, s]] += b[u, s]
                else:
                    for e in range(offsets[s], offsets[s + 1]):
                        reach[items[e]] += b[u, s]
            for x in range(columns):
                a[u, x] = p[u, x] / reach[x] if reach[x] > 1e-290 else 0.0
            for s in range(count):
                total = 0.0
                if forced[u, s] >= 0:
                    total = a[u, forced[u, s]]
                else:
                    for e in range(offsets[s], offsets[s + 1]):
                        total += a[u, items[e]]
                v[u, s] = total
                off += abs(b[u, s] * total - masses[s])
                logs[s] += np.log(b[u, s] * total + 1e-300)
        for s in range(count):
            masses[s] = np.exp(logs[s] / rows)
        for u in range(rows):
            for s in range(count):
                b[u, s] = min(masses[s] / (v[u, s] + 1e-300), 1e280)
    return off / rows


@kernel
def _dual(a, p, offsets, items, forced, gradient, masses):  # type: ignore[no-untyped-def]
    """Fills in masses and the gradient of (rows times the sum of masses) - sum of p f; the first of the two."""
    rows = len(p)
    v = np.empty(rows)
    gradient[:] = -p
    total = 0.0
    for s in range(len(offsets) - 1):
        logs = 0.0
        for u in range(rows):
            v[u] = 1e-300
            if forced[u, s] >= 0:
                v[u] += a[u, forced[u, s]]
            else:
                for e in range(offsets[s], offsets[s + 1]):
                    v[u] += a[u, items[e]]
            logs += np.log(v[u])
        masses[s] = np.exp(min(logs / rows, 300.0))
        total += rows * masses[s]
        for u in range(rows):
            share = masses[s] / v[u]
            if forced[u, s] >= 0:
                gradient[u, forced[u, s]] += share * a[u, forced[u, s]]
            else:
                for e in range(offsets[s], offsets[s + 1]):
                    gradient[u, items[e]] += share * a[u, items[e]]
    return total


@kernel
def _vary(slots, first, of_home, a, chances):  # type: ignore[no-untyped-def]
    """Change sources of each set, in place: three chances for each try (which home, which source, whether it stays)."""
    rows = slots.shape[1]
    for s in range(len(slots)):
        present = _log_mass(slots[s], a)
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
            changed = _log_mass(slots[s], a)
            if np.exp(min(changed - present, 0.0)) > chances[s, i, 2]:
                present = changed
            else:
                slots[s, home] = before


@kernel
def _log_mass(slots, a):  # type: ignore[no-untyped-def]
    """The logarithm of the mass that a set would have."""
    rows = len(slots)
    logs = 0.0
    for u in range(rows):
        total = 0.0
        if slots[u] >= 0:
            total = a[u, slots[u]]
        else:
            for h in range(rows):
                if slots[h] >= 0:
                    total += a[u, slots[h]]
        if total <= 0.0:
            return -1e300
        logs += np.log(total)
    return logs / rows
