"""Rows with symmetries: one unknown for an orbit of couplings, one equation for an orbit of flags.

Setting
    g         a pair of permutations, of rows and of columns, with  p_g(u)(g(x)) = p_u(x)
    flag      a row u and a column x with p_u(x) > 0;   F an orbit of flags: all that one is taken to by such g
    coupling  a source x_u for every row u, all in one set S = {x_u}

A table is a random coupling with Pr(x_u = x) = p_u(x). Masses may be averaged over all g without a change in cost,
which leaves one equation for each F:

    minimise    sum of z_c |S_c|      over masses z_c of couplings c
    subject to  sum of z_c (number of u with (u, x_u) in F)  =  sum of p_u(x) over the flags in F      for every F

The 15 x 15 torus without staying has one equation, the 15 x 15 grid 135, where the program without symmetries has
thousands. Given the duals f_F of the equations, the best coupling takes for each row the best source of its set:

    gain(S) = sum over u of  max over x in S of f(u, x)  -  |S|

which is the location of facilities; `_settle` looks for sets by simulated annealing. Sets whose couplings make the
program cheaper are added until none is found. With one orbit of flags f is constant and what is looked for is the
smallest set that meets all supports. Duals jump at first, so they are kept near those of the outer bound: equations may
be missed at a price. When nothing gains, the duals at hand are the new middle and the price is doubled.

`symmetries` finds generators by refinement of colours and trial: nodes (rows and columns) that see differently coloured
neighbours get different colours until nothing changes; then one column of a colour that is left with several is set
apart, and so on until every node has a colour of its own. Another choice that leads to the same colours gives a map,
and every map is checked entry by entry. Colours are hashes, the same for what looks the same, whatever its number.

What comes out is a table (all images of the sets that have mass) and no proof; proofs come from elsewhere. Rows are
rounded to units, which breaks ties by a unit: values that agree to SAME count as equal. Nothing rests on it; a table is
exact for the rows as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.exact import Sets
from onoff.schemes.search.master import NOTICED
from onoff.schemes.search.portfolio import Board, IsOver, Problem
from onoff.schemes.search.proofs import WORTHWHILE
from onoff.system.kernels import kernel

SAME = 1e-9
"""Probabilities that differ by less are taken for the same."""
MOST_REFINEMENTS = 5000
"""Refinements that the search for generators may take."""

Colours = npt.NDArray[np.uint64]


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


class Orbits:
    """A table from the program over orbits.

    fold: orbits for each flag, and most_orbits: in all, up to which the program is worth while.
    most_entries: for each second of the budget, up to which symmetries are looked for: a look at all takes long.
    """

    def __init__(
        self, share: float = 0.5, *, fold: float = 0.3, most_orbits: int = 400, most_entries: float = 20_000
    ) -> None:
        self.share, self.fold, self.most_orbits, self.most_entries = share, fold, most_orbits, most_entries

    def applies(self, problem: Problem) -> bool:
        """Where a look for symmetries is quick, and no further use is made of the pool."""
        return problem.entries <= self.most_entries * problem.clock.budget and not problem.looks_ahead

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """The program, round by round; one table in the end."""
        found = symmetries(problem.p, is_over)
        if found is None or found.orbits > min(self.fold * len(found.orbit), self.most_orbits):
            return
        program, last = OrbitProgram(problem.p, found, problem.rng()), None
        try:
            for last in program.solutions(is_over):
                if last.missed <= NOTICED and last.value <= board.lower * (1 + board.gap):
                    break
                yield
        finally:
            if last is not None:
                board.propose(*program.spread(last))


@dataclass(frozen=True)
class Symmetries:
    """Generators as permutations of rows and of columns, one per line, and the flags with the orbit of each."""

    of_rows: Integers
    of_columns: Integers
    row: Integers
    column: Integers
    orbit: Integers

    @property
    def orbits(self) -> int:
        """How many orbits of flags there are."""
        return int(self.orbit.max()) + 1

    @cached_property
    def orbit_of(self) -> Integers:
        """The orbit of each flag as a matrix of rows and columns; -1 where a row cannot want a column."""
        matrix = np.full((int(self.row.max()) + 1, int(self.column.max()) + 1), -1, dtype=np.int64)
        matrix[self.row, self.column] = self.orbit
        return matrix

    def images(self, chosen: npt.NDArray[np.bool_], most: int) -> Sets:
        """The orbit of a set, or `most` sets of it."""
        known = {np.packbits(chosen).tobytes()}
        found = [chosen]
        for present in found:
            for g in self.of_columns:
                image = np.empty_like(present)
                image[g] = present
                key = np.packbits(image).tobytes()
                if key not in known:
                    if len(found) >= most:
                        return np.array(found)
                    known.add(key)
                    found.append(image)
        return np.array(found)


def symmetries(p: Floats, is_over: Callable[[], bool]) -> Symmetries | None:
    """Symmetries of rows p; None where there are none, or none were found in the time."""
    graph = _Graph(p)
    generators = list(graph.generators(is_over))
    if not generators:
        return None
    rows = len(p)
    maps = _enough(graph, np.array(generators))
    return Symmetries(
        maps[:, :rows].copy(), maps[:, rows:] - rows, graph.row, graph.column - rows, graph.orbits_of_flags(maps)
    )


def _enough(graph: _Graph, maps: Integers) -> Integers:
    """Generators without those that are not needed for the same orbits of flags: a smaller group does as well."""
    wanted = graph.orbits_of_flags(maps).max()
    at = 0
    while at < len(maps):
        without = np.delete(maps, at, axis=0)
        if len(without) and graph.orbits_of_flags(without).max() == wanted:
            maps = without
        else:
            at += 1
    return maps


class _Graph:
    """Rows and columns as nodes 0 ... M - 1 and M ..., joined where p > 0, each edge with the class of its value."""

    def __init__(self, p: Floats) -> None:
        self.rows, self.columns = p.shape
        self.row, column = np.nonzero(p > 0)
        self.column = column + self.rows
        values = p[self.row, column]
        order = np.argsort(values, kind="stable")
        steps = np.concatenate([[0], np.cumsum(np.diff(values[order]) > SAME)])
        self.kind = np.empty(len(values), dtype=np.int64)
        self.kind[order] = steps
        self.classes = np.full((self.rows, self.columns), -1, dtype=np.int64)
        self.classes[self.row, column] = self.kind
        rng = np.random.default_rng(0)
        self._edge: Colours = rng.integers(2**63, size=int(self.kind.max()) + 1, dtype=np.uint64)[
            self.kind
        ] | np.uint64(1)
        self._trials = 0

    # -- colours -------------------------------------------------------------------------------------------

    def refined(self, colours: Colours) -> Colours:
        """Colours after as many rounds as tell more nodes apart, hashed so that order and numbers play no part."""
        count = len(np.unique(colours))
        while True:
            seen = np.zeros_like(colours)
            with np.errstate(over="ignore"):
                np.add.at(seen, self.row, _mixed(colours[self.column] * self._edge))
                np.add.at(seen, self.column, _mixed(colours[self.row] * self._edge))
                finer = _mixed(colours * np.uint64(3) + seen)
            more = len(np.unique(finer))
            if more <= count:
                return finer
            colours, count = finer, more

    def start(self) -> Colours:
        """Rows of one colour, columns of another, refined."""
        side = np.arange(self.rows + self.columns) < self.rows
        return self.refined(np.where(side, np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)))

    def apart(self, colours: Colours, node: int) -> Colours:
        """Refined after one node was set apart."""
        self._trials += 1
        changed = colours.copy()
        with np.errstate(over="ignore"):
            changed[node] = changed[node] * np.uint64(0xD6E8FEB86659FD93) + np.uint64(1)
        return self.refined(changed)

    def _cell(self, colours: Colours) -> Integers:
        """The columns of a colour that several have: of the smallest such, the first by hash; empty where none."""
        _, where, counts = np.unique(colours[self.rows :], return_inverse=True, return_counts=True)
        several = np.flatnonzero(counts > 1)
        if not len(several):
            return np.zeros(0, dtype=np.int64)
        smallest = several[np.argmin(counts[several])]
        return np.asarray(np.flatnonzero(where == smallest) + self.rows, dtype=np.int64)

    # -- generators ----------------------------------------------------------------------------------------

    def generators(self, is_over: Callable[[], bool]) -> Iterator[Integers]:
        """Permutations of all nodes that generate the symmetries, as far as they are found in the time."""
        path = [self.start()]
        base: list[int] = []
        while len(cell := self._cell(path[-1])):
            base.append(int(cell[0]))
            path.append(self.apart(path[-1], base[-1]))
            if is_over():
                return
        if len(np.unique(path[-1])) < self.rows + self.columns:
            return  # equal rows would do that; they have been merged
        for level in reversed(range(len(base))):
            orbit = np.arange(self.rows + self.columns)
            found: list[Integers] = []
            for other in self._cell(path[level]):
                if orbit[other] == orbit[base[level]]:
                    continue
                if is_over() or self._trials > MOST_REFINEMENTS:
                    return
                g = self._onto(path, base, level, self.apart(path[level], int(other)), is_over)
                if g is not None:
                    found.append(g)
                    orbit = _orbits(len(orbit), found)
                    yield g

    def _onto(
        self, path: list[Colours], base: list[int], level: int, image: Colours, is_over: Callable[[], bool]
    ) -> Integers | None:
        """A symmetry that takes the choices of `base` to others that begin with those that led to `image`."""
        wanted = path[level + 1]
        if not np.array_equal(np.sort(wanted), np.sort(image)):
            return None
        if level + 1 == len(base):
            onto = np.empty(len(wanted), dtype=np.int64)
            onto[np.argsort(wanted)] = np.argsort(image)
            same = self.classes[np.ix_(np.argsort(onto[: self.rows]), np.argsort(onto[self.rows :] - self.rows))]
            return onto if np.array_equal(same, self.classes) else None
        for other in np.flatnonzero(image == wanted[base[level + 1]]):
            if is_over() or self._trials > MOST_REFINEMENTS:
                return None
            g = self._onto(path, base, level + 1, self.apart(image, int(other)), is_over)
            if g is not None:
                return g
        return None

    def orbits_of_flags(self, maps: Integers) -> Integers:
        """The number of the orbit of each flag."""
        place = np.full((self.rows, self.columns), -1, dtype=np.int64)
        place[self.row, self.column - self.rows] = np.arange(len(self.row))
        moved = [place[g[self.row], g[self.column] - self.rows] for g in maps]
        return _orbits(len(self.row), moved)


def _orbits(count: int, maps: list[Integers]) -> Integers:
    """The orbit of each of `count` things under some permutations of them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    here = np.tile(np.arange(count), len(maps))
    there = np.concatenate([np.zeros(0, dtype=np.int64), *maps])
    joined = coo_array((np.ones(len(here), dtype=np.int8), (here, there)), shape=(count, count))
    return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)


def _mixed(values: Colours) -> Colours:
    """A hash of each value (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


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
