"""Large sparse rows without symmetries: couplings that always fit the rows, made cheaper by exchanges.

A table as a list of couplings of equal mass 1/K: coupling a gives row u the source x_u(a), each source x in at most
K p_u(x) of the couplings. For one row, exchange what it takes in two couplings: the rows are met as before, and the
cost changes by what becomes new or superfluous in two sets, which takes a few look-ups, however many sources there
are. Exchanges that raise the cost are made with the chance exp(- change / temperature), which falls from sweep to
sweep.

Where no K fits all rows, there are only as many couplings as the row that fits worst can fill. What they leave is again
a matrix of rows with the same mass in each, for which there are couplings of a smaller mass: pass after pass, a
twentieth is left.

Not the optimum, but quick: a thousand sources with 6 random successors each cost 250 after 2 s and 359 by races.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.hall import Sets
from onoff.system.kernels import kernel

COUPLINGS = (60, 120)
"""Couplings at least and at most that the mass of a pass is divided into."""
LEFT = 1e-6
"""Mass that is not worth another pass."""
LATER_SWEEPS = 4
"""How many times fewer exchanges the passes after the first have: their mass is small."""
NEARLY_WHOLE = 1e-9
"""What a number may lack and count as whole: rows are floats here."""
SPARSE = 20
"""Sources that a row can want, on average, up to which rows count as sparse."""
WARM, COOL = 0.15, 0.06
"""Temperatures at the start and at the end, in sources. Warmer starts end with a higher cost in the same time."""
STAGES_OF_COOLING = (50, 400, 3000, 8000, 25000, 75000)
"""Exchanges tried for each row and coupling in each stage; each stage starts afresh and gives a table."""
LEHMER = 2**31 - 1
"""The modulus of the random numbers: the same compiled and not."""


def swapped(
    p: Floats, sweeps: int, rng: np.random.Generator, is_over: Callable[[], bool]
) -> tuple[Sets, Floats] | None:
    """The sets of couplings after so many exchanges for each row and coupling, and their masses.

    None where it `is_over` before.
    """
    left, mass = p, 1.0
    sets: list[Sets] = []
    masses: list[Floats] = []
    while mass > LEFT:
        divided, couplings = couplings_for(left / mass)
        if not couplings:
            break
        taken = _dealt(np.floor(left / mass * divided + NEARLY_WHOLE).astype(np.int64), couplings, rng)
        held = _cooled(taken, p.shape[1], max(sweeps // LATER_SWEEPS, 1) if sets else sweeps, rng, is_over)
        if held is None:
            return None
        sets.append(held)
        masses.append(np.full(couplings, mass / divided))
        left = left - _counted(taken, p.shape[1]) * (mass / divided)
        mass *= 1 - couplings / divided
    return np.concatenate(sets), np.concatenate(masses)


def couplings_for(p: Floats) -> tuple[int, int]:
    """Into how many couplings of equal mass to divide rows p, and how many of them every row can fill."""
    row, source = np.nonzero(p)
    entries = p[row, source]
    first = np.searchsorted(row, np.arange(len(p)))
    divisions = range(COUPLINGS[0], COUPLINGS[1] + 1)
    filled = [int(np.add.reduceat(np.floor(entries * count + NEARLY_WHOLE), first).min()) for count in divisions]
    return max(zip(divisions, filled, strict=True), key=lambda one: (one[1] / one[0], -one[0]))


def _dealt(counts: Integers, couplings: int, rng: np.random.Generator) -> Integers:
    """For each row the sources of its couplings, in any order; counts: how many it can have of each source."""
    taken = np.empty((len(counts), couplings), dtype=np.int64)
    sources = np.arange(counts.shape[1])
    for line, count in zip(taken, counts, strict=True):
        line[:] = rng.permutation(np.repeat(sources, count))[:couplings]
    return taken


def _counted(taken: Integers, sources: int) -> Integers:
    """For each row in how many couplings it takes each source."""
    places = np.arange(len(taken))[:, None] * sources + taken
    return np.bincount(places.ravel(), minlength=len(taken) * sources).reshape(len(taken), sources)


def _cooled(
    taken: Integers, sources: int, sweeps: int, rng: np.random.Generator, is_over: Callable[[], bool]
) -> Sets | None:
    """The sets of the couplings after exchanges at falling temperatures; None where it `is_over` before."""
    couplings = taken.shape[1]
    held = np.zeros((couplings, sources), dtype=np.int32)
    np.add.at(held, (np.tile(np.arange(couplings), len(taken)), taken.ravel()), 1)
    state = int(rng.integers(1, LEHMER))
    for sweep in range(sweeps):
        if is_over():
            return None
        warmth = WARM * (COOL / WARM) ** (sweep / sweeps)
        chances = np.minimum(np.exp(-np.arange(3) / warmth), 1.0)
        state = int(_exchange(taken, held, chances, taken.size, state))
    return held > 0


@kernel
def _exchange(taken, held, chances, tries, state):  # type: ignore[no-untyped-def]
    """Try so many exchanges, in place; the state of the random numbers. held[a, x]: rows that take x in coupling a."""
    rows, count = taken.shape
    for _ in range(tries):
        state = state * 48271 % LEHMER
        u = state % rows
        state = state * 48271 % LEHMER
        a = state % count
        state = state * 48271 % LEHMER
        b = state % count
        x, z = taken[u, a], taken[u, b]
        if x == z:
            continue
        change = 0
        if held[a, x] == 1:
            change -= 1
        if held[a, z] == 0:
            change += 1
        if held[b, z] == 1:
            change -= 1
        if held[b, x] == 0:
            change += 1
        if change > 0:
            state = state * 48271 % LEHMER
        if change <= 0 or state < LEHMER * chances[change]:
            held[a, x] -= 1
            held[a, z] += 1
            held[b, z] -= 1
            held[b, x] += 1
            taken[u, a], taken[u, b] = z, x
    return state
