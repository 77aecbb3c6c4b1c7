"""Large sparse rows without symmetries: couplings that always fit the rows, made cheaper by exchanges.

A table as a list of K couplings of equal mass 1/K: coupling a gives row u the source x_u(a), each source x for just
K p_u(x) of the couplings (to the nearest whole number). For one row, exchange what it takes in two couplings: the rows
are met as before, and the cost changes by what becomes new or superfluous in two sets, which takes a few look-ups,
however many sources there are. Exchanges that raise the cost are made with the chance exp(- change / temperature),
which falls from sweep to sweep.

Not the optimum, but quick: a thousand sources with 6 random successors each cost 250 after 2 s and 359 by races.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.hall import Sets
from onoff.system.kernels import kernel

COUPLINGS = (60, 120)
"""Couplings at least and about at most; the number for which the rows fit best is taken."""
SPARSE = 20
"""Sources that a row can want, on average, up to which rows count as sparse."""
WARM, COOL = 0.15, 0.06
"""Temperatures at the start and at the end, in sources. Warmer starts end with a higher cost in the same time."""
STAGES_OF_COOLING = (50, 400, 3000, 8000, 25000, 75000)
"""Exchanges tried for each row and coupling in each stage; each stage starts afresh and gives a table."""
LEHMER = 2**31 - 1
"""The modulus of the random numbers: the same compiled and not."""


def couplings_for(p: Floats) -> int:
    """How many couplings of equal mass fit rows p best."""
    few, many = COUPLINGS
    counts = np.arange(few, many + 1)
    off = [float(np.abs(p * count - np.rint(p * count)).max()) for count in counts]
    return int(counts[int(np.argmin(np.round(off, 9)))])


def swapped(p: Floats, sweeps: int, rng: np.random.Generator, is_over: Callable[[], bool]) -> Sets | None:
    """The sets of couplings after so many exchanges for each row and coupling; None where it `is_over` before.

    Parameters
    ----------
    p
        The rows.
    sweeps
        Exchanges for each row and coupling.
    rng
        Chooses them.
    is_over
        Asked now and then; the search ends where it is.
    """
    count = couplings_for(p)
    taken = _dealt(p, count, rng)
    held = np.zeros((count, p.shape[1]), dtype=np.int32)
    np.add.at(held, (np.tile(np.arange(count), len(p)), taken.ravel()), 1)
    state = int(rng.integers(1, LEHMER))
    for sweep in range(sweeps):
        if is_over():
            return None
        warmth = WARM * (COOL / WARM) ** (sweep / sweeps)
        chances = np.minimum(np.exp(-np.arange(3) / warmth), 1.0)
        state = int(_exchange(taken, held, chances, taken.size, state, effort=taken.size))
    return held > 0


def _dealt(p: Floats, count: int, rng: np.random.Generator) -> Integers:
    """For each row the sources of its couplings, in any order."""
    ends = np.rint(np.cumsum(p, axis=1) * count).astype(np.int64)
    ends[:, -1] = count
    taken = np.empty((len(p), count), dtype=np.int64)
    for line, end in zip(taken, ends, strict=True):
        line[:] = rng.permutation(np.repeat(np.arange(p.shape[1]), np.diff(end, prepend=0)))
    return taken


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
