"""Masses for given sets without a linear program: the rows are transported to the sets, all with the same masses.

Setting
    p_u(x)     rows;   S  a pool of sets;   m_S  their masses, wanted
    T_u(x, S)  what row u, wanting x, asks by S:   sum over S = p_u(x),   sum over x in S = m_S for every u

Of all such T and m the ones of largest entropy have T_u(x, S) = a_u(x) b_u(S) with the product of b_u(S) over u equal
to 1, so that m_S is the geometric mean over u of  v_u(S) = sum of a_u(x) over x in S. Here they are found by scaling:
fit the first sums, then the second, and again (Sinkhorn; Bregman projections). Slow, and never astray; `breeding`
has a quicker way from there on.

What comes out meets the sums nearly; the rebuild in integers makes it exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.hall import Sets, each_once
from onoff.schemes.search.proposals import affordable, races
from onoff.system.kernels import kernel

RACED, MOST_RACED, RACED_SCALINGS = 25, 2500, 60
"""Races for each source, races at most, and scalings, for masses from races."""
TILTS, SMALL_OUTER_BOUND = (1.0, 3.0), 2.5
"""How much masses from races lean to small sets: in general, and where the outer bound is at most this."""
MOST_WORK, RACED_WORK = 3 * 10**8, 10**8
"""Additions that masses for given sets may take, and those for sets of races."""


@dataclass(frozen=True)
class Transported:
    """Sets with their masses, and how much of a row's mass is off on average."""

    sets: Sets
    masses: Floats
    off: float


def raced_sets(p: Floats, rng: np.random.Generator, most: int = MOST_RACED) -> Sets:
    """The sets of some races, each once."""
    return each_once(races(p, affordable(p, min(RACED * p.shape[1], most)), rng))


def raced(p: Floats, sets: Sets) -> Transported:
    """Masses for the sets of some races, those with fewer sources preferred: mostly cheaper than the race itself.

    sets: see `raced_sets`.
    """
    tilt = TILTS[1] if p.max(axis=0).sum() <= SMALL_OUTER_BOUND else TILTS[0]
    scalings = affordable_scalings(p, sets) * RACED_WORK // MOST_WORK
    return leaning(p, sets, tilt, int(np.clip(scalings, 5, RACED_SCALINGS)))


def leaning(p: Floats, sets: Sets, tilt: float, scalings: int) -> Transported:
    """Masses for the given sets, those with fewer sources preferred.

    tilt: How much small sets are preferred: each source more divides the mass that a set begins with by e to this.
    """
    sizes = sets.sum(axis=1)
    lean = np.exp(-tilt * np.minimum(sizes - sizes.min(), 100))
    pool = Pool(p, sets, np.full((len(p), len(sets)), -1, dtype=np.int64), np.tile(lean, (len(p), 1)))
    off = pool.scale(int(np.clip(affordable_scalings(p, sets), 5, scalings)))
    return Transported(sets, pool.masses, off)


def affordable_scalings(p: Floats, sets: Sets) -> int:
    """Scalings that MOST_WORK allows."""
    return MOST_WORK // max(len(p) * int(sets.sum()), 1)


class Pool:
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
        return float(_scale(*given))


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
