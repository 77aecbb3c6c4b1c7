"""The master program with symmetries: one unknown for an orbit of couplings, one equation for an orbit of flags.

Setting
    flag      a row u and a column x with p_u(x) > 0;   F an orbit of flags (see `symmetry`)
    coupling  a source x_u for every row u, all in one set S = {x_u}

A table is a random coupling with Pr(x_u = x) = p_u(x). Averaged over the symmetries, that is one equation for each F:

    minimise    sum of z_c |S_c|      over masses z_c of couplings c
    subject to  sum of z_c (number of u with (u, x_u) in F)  =  sum of p_u(x) over the flags in F      for every F

The 15 x 15 torus without staying has one equation, the 15 x 15 grid 135, where the program without symmetries has
thousands. Given the duals f_F of the equations, the best coupling takes for each row the best source of its set:

    gain(S) = sum over u of  max over x in S of f(u, x)  -  |S|

which is the location of facilities; `_settle` looks for sets by annealing. Sets whose couplings make the program
cheaper are added until none is found. With one orbit of flags f is constant and what is looked for is the smallest set
that meets all supports. Duals jump at first, so they are kept near those of the outer bound: equations may be missed at
a price. When nothing gains, the duals at hand are the new middle and the price is doubled.

What comes out is a table (all images of the sets that have mass) and no proof; proofs come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.hall import Sets
from onoff.schemes.search.pricing import WORTHWHILE
from onoff.schemes.search.symmetry import Symmetries
from onoff.system.kernels import kernel

MOST_IMAGES = 20_000
"""Sets of a table at most."""
MOST_COPIES = 3000
"""Copies of couplings that are made to complete a solution, about."""
DEAR = 100.0
"""What missing an equation costs more where none is to be missed."""
LEASH = 0.1
"""How far the duals may be from those of the outer bound at first."""
LITTLE = 1e-9
"""What the equations may miss together."""
CHANGES = 60
"""Changes for each source that one annealing tries."""
RANDOM = 2**31 - 1
"""The modulus of the generator of an annealing (Lehmer): the same numbers compiled and not."""
ANNEALINGS = 24
"""Annealings in a round."""
EASY = 30.0
"""Entries that a change may look at; where it is more, fewer changes are tried."""
HOT, COLD = 0.25, 0.04
"""Temperatures, in sources, at the start and at the end of an annealing."""
FAILURES = 6
"""Rounds without a gain, each with twice the steps of the one before, before the search is given up."""
FAILURES_WHILE_MISSING = 2
"""The same while equations are missed."""


@dataclass(frozen=True)
class Masses:
    """Sets with masses, for every image the same, and the value of the program: what a table of them costs."""

    sets: Sets
    masses: Floats
    value: float
    missed: float


class OrbitProgram:
    """The program for rows p with symmetries."""

    def __init__(self, p: Floats, found: Symmetries, rng: np.random.Generator) -> None:
        import highspy

        self.p, self.found, self.rng = p, found, rng
        self.rows, self.columns = p.shape
        self.first = np.searchsorted(found.row, np.arange(self.rows + 1)).astype(np.int64)
        by_column = np.lexsort((found.row, found.column))
        self.start = np.searchsorted(found.column[by_column], np.arange(self.columns + 1)).astype(np.int64)
        self.edge = by_column.astype(np.int64)  # the flags of each column, as places in those of the rows
        self.needed: Floats = np.bincount(found.orbit, p[found.row, found.column], found.orbits).astype(np.float64)
        self.anchor = self._outer()
        work = np.diff(self.first)[found.row].sum() / self.columns  # entries that a change of one column looks at
        self.ease = float(np.clip(EASY / work, 0.05, 1.0))
        self.sets: list[npt.NDArray[np.bool_]] = []
        self.taken: list[Integers] = []
        self.duals = self.anchor
        self._support: Integers = np.zeros(0, dtype=np.int64)
        self._known: set[bytes] = set()
        self._infinity = highspy.kHighsInf
        self._model: Any = highspy.Highs()
        self._model.silent()
        self._model.setOptionValue("threads", 1)
        for needed in self.needed:
            self._model.addRow(needed, needed, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        for f in range(found.orbits):
            for sign in (1.0, -1.0):
                entry = np.array([f], dtype=np.int32), np.array([sign])
                self._model.addCol(0.0, 0.0, self._infinity, 1, *entry)
        self._stay_near(self.anchor, LEASH)

    def _stay_near(self, duals: Floats, leash: float, extra: float = 0.0) -> None:
        """From now on the duals are within `leash` of the given ones: an equation may be missed at that price."""
        self.centre, self.leash = duals, leash
        prices = np.column_stack([duals + leash, leash - duals]).ravel() + extra
        self._model.changeColsCost(len(prices), np.arange(len(prices), dtype=np.int32), prices)

    def _outer(self) -> Floats:
        """The duals that prove the outer bound: each column gives 1 to the rows that want it most."""
        found = self.found
        values = self.p[found.row, found.column]
        largest = self.p.max(axis=0)[found.column]
        homes = np.where(values > largest * (1 - 1e-9), 1.0, 0.0)
        homes /= np.bincount(found.column, homes, self.columns)[found.column]
        sizes = np.bincount(found.orbit)
        return np.asarray(np.bincount(found.orbit, homes, found.orbits) / sizes, dtype=np.float64)

    # -- solving -------------------------------------------------------------------------------------------

    def solutions(self, is_over: Callable[[], bool]) -> Iterator[Masses]:
        """Masses, each cheaper than those before, until nothing improves or it `is_over`.

        Which they are does not depend on when that is. Where equations are missed, the couplings are completed now
        and then so that none is.
        """
        self._price(self.anchor, 1)
        fails, best, rounds, milestone = 0, np.inf, 0, 8
        while not is_over():
            rounds += 1
            values = self._solve()
            present = self._present(values)
            missing = present.missed > LITTLE
            settled = fails >= (FAILURES_WHILE_MISSING if missing else FAILURES)
            if missing and (rounds >= milestone or settled):
                milestone = rounds + rounds // 3 + 1
                present = self._completed(values)
            if present.value + DEAR * present.missed < best - LITTLE:
                best = present.value + DEAR * present.missed
                yield present
            if settled:
                if not missing:
                    return
                self._stay_near(self.duals, 2 * self.leash)
                fails = 0
                continue
            gained = self._price(self.duals, 2**fails)
            fails = 0 if gained > WORTHWHILE else fails + 1

    def _solve(self) -> Floats:
        self._model.run()
        solution = self._model.getSolution()
        values = np.array(solution.col_value)
        self.duals = np.array(solution.row_dual)
        self._support = np.flatnonzero(values[2 * len(self.needed) :] > LITTLE)
        return values

    def _present(self, values: Floats) -> Masses:
        slack, masses = values[: 2 * len(self.needed)], values[2 * len(self.needed) :][self._support]
        sets = np.array([self.sets[at] for at in self._support], dtype=bool).reshape(-1, self.columns)
        return Masses(sets, masses, float(masses @ sets.sum(axis=1)), float(slack.sum()))

    def _completed(self, values: Floats) -> Masses:
        """Masses that miss nothing, from those that do.

        Where an orbit of flags lacks mass, another of the same rows has too much. In copies of every coupling at hand
        rows that take the one are made to take the other: all of them, for one orbit that lacks, where orbits are few;
        and for all that lack at once, each row with the chance that makes it right on average. The sets grow.
        """
        small = OrbitProgram(self.p, self.found, self.rng)
        small._stay_near(self.centre, self.leash, DEAR)
        slack = values[: 2 * len(self.needed)].reshape(-1, 2)
        orbit, row = self.found.orbit, self.found.row
        given = self.needed + slack[:, 1] - slack[:, 0]
        chance = np.where(slack[:, 1] > LITTLE, slack[:, 1] / np.maximum(given, LITTLE), 0.0)
        lacks = np.where(slack[:, 0] > LITTLE, slack[:, 0], 0.0)
        lacking = np.flatnonzero(lacks)
        one_by_one = len(lacking) * len(self._support) <= MOST_COPIES
        copies = int(np.clip(MOST_COPIES // max(len(self._support), 1), 4, 30))
        for at in self._support:
            now = self.taken[at]
            small._add(now)
            for one in lacking if one_by_one else ():
                small._add(_switched(now, np.flatnonzero((orbit == one) & (chance[orbit[now]] > 0)[row]), row))
            for _ in range(copies):
                changing = self.rng.random(self.rows) < chance[orbit[now]]
                flags = np.flatnonzero((lacks[orbit] > 0) & changing[row])
                order = np.lexsort((self.rng.exponential(size=len(flags)) / lacks[orbit[flags]], row[flags]))
                small._add(_switched(now, flags[order], row))
        return small._present(small._solve())

    def _price(self, duals: Floats, effort: int) -> float:
        """Add couplings that gain by the duals; the largest gain of one that is new."""
        found = self.found
        worth = np.ascontiguousarray(duals[found.orbit])
        begin = np.zeros((ANNEALINGS, self.columns), dtype=bool)
        heat = np.full(ANNEALINGS, HOT)
        if len(self._support):
            warmed = ANNEALINGS // 2
            begin[:warmed] = np.array([self.sets[at] for at in self.rng.choice(self._support, warmed)])
            heat[:warmed] = np.geomspace(HOT, 1.5 * COLD, warmed)
        steps = int(CHANGES * effort * self.columns * self.ease)
        fine = float(np.abs(worth).max()) + 2.0
        seed = int(self.rng.integers(2**31))
        given = self.first, found.column, self.start, self.edge, found.row, worth, begin, heat, COLD, steps, fine, seed
        _settle(*given)
        gained = 0.0
        for chosen in begin:
            offered = np.where(chosen[found.column], worth, -np.inf)
            best = np.maximum.reduceat(offered, self.first[:-1])
            if np.isfinite(best).all():
                taken = np.flatnonzero(offered >= best[found.row])
                taken = taken[np.concatenate([[True], np.diff(found.row[taken]) > 0])]
                if self._add(taken):
                    gained = max(gained, float(best.sum() - self.sets[-1].sum()))
        return gained

    def _add(self, taken: Integers) -> bool:
        """Add a coupling, the flag of each row in it; whether it was new."""
        found = self.found
        used = np.zeros(self.columns, dtype=bool)
        used[found.column[taken]] = True
        counts = np.bincount(found.orbit[taken], minlength=found.orbits).astype(np.float64)
        size = float(used.sum())
        key = np.append(counts, size).tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        at = np.flatnonzero(counts)
        self._model.addCol(size, 0.0, self._infinity, len(at), at.astype(np.int32), counts[at])
        self.sets.append(used)
        self.taken.append(taken)
        return True

    # -- tables --------------------------------------------------------------------------------------------

    def spread(self, masses: Masses, most: int = MOST_IMAGES) -> tuple[Sets, Floats]:
        """All images of the sets, with the masses dealt out among them; `most` of them where there are more."""
        share = most // max(len(masses.sets), 1) + 1
        images = [self.found.images(chosen, share) for chosen in masses.sets]
        dealt = [np.full(len(some), mass / len(some)) for some, mass in zip(images, masses.masses, strict=True)]
        return np.vstack(images), np.concatenate(dealt)


def _switched(taken: Integers, flags: Integers, row: Integers) -> Integers:
    """A coupling in which the row of each of `flags` takes that flag, the first of its flags where it has several."""
    changed = taken.copy()
    changed[row[flags[::-1]]] = flags[::-1]
    return changed


@kernel
def _settle(first, of_row, start, edge, row_of, worth, chosen, heat, cold, steps, fine, seed):  # type: ignore[no-untyped-def]
    """Anneal each line of `chosen`, in place: the best set met, by |S| + fine for rows not met - sum of best worths.

    first, of_row: the columns of each row, as CSR, with `worth` for each entry; start, edge: for each column the
    entries that are its, and row_of the row of an entry. A change takes a column in or out, or moves it to another
    column of one of its rows.
    """
    columns = len(start) - 1
    state = seed % (RANDOM - 1) + 1
    for line in range(len(chosen)):
        inside = chosen[line].copy()
        energy = 0.0
        for x in range(columns):
            energy += 1.0 if inside[x] else 0.0
        for u in range(len(first) - 1):
            energy -= _best_of_row(first, of_row, worth, inside, u, fine)
        best = energy
        best_set = inside.copy()
        for step in range(steps):
            warmth = heat[line] * (cold / heat[line]) ** (step / steps)
            state = state * 48271 % RANDOM
            x = state % columns
            state = state * 48271 % RANDOM
            other = -1
            before = 0.0
            if inside[x] and state < RANDOM // 2 and start[x + 1] > start[x]:
                u = row_of[edge[start[x] + state % (start[x + 1] - start[x])]]
                state = state * 48271 % RANDOM
                other = of_row[first[u] + state % (first[u + 1] - first[u])]
                if inside[other]:
                    other = -1
            change = -1.0 if inside[x] else 1.0
            for e in range(start[x], start[x + 1]):
                before += _best_of_row(first, of_row, worth, inside, row_of[edge[e]], fine)
            inside[x] = not inside[x]
            for e in range(start[x], start[x + 1]):
                change -= _best_of_row(first, of_row, worth, inside, row_of[edge[e]], fine)
            change += before
            if other >= 0:
                before = 0.0
                for e in range(start[other], start[other + 1]):
                    before += _best_of_row(first, of_row, worth, inside, row_of[edge[e]], fine)
                inside[other] = True
                change += 1.0 + before
                for e in range(start[other], start[other + 1]):
                    change -= _best_of_row(first, of_row, worth, inside, row_of[edge[e]], fine)
            state = state * 48271 % RANDOM
            if change <= 0 or state < RANDOM * np.exp(-change / warmth):
                energy += change
                if energy < best - 1e-12:
                    best = energy
                    best_set[:] = inside
            else:
                inside[x] = not inside[x]
                if other >= 0:
                    inside[other] = False
        chosen[line] = best_set


@kernel
def _best_of_row(first, of_row, worth, inside, u, fine):  # type: ignore[no-untyped-def]
    """The largest worth that row u finds inside, or -fine."""
    best = -fine
    for e in range(first[u], first[u + 1]):
        if inside[of_row[e]] and worth[e] > best:
            best = worth[e]
    return best
