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

which is what herding looks for (see `herding`): prices start at the duals and follow what is taken, so that the sets of
its steps are many, and nearly the best. Their couplings, by the duals and by the prices, are added until none makes the
program cheaper. With one orbit of flags f is constant and what is looked for is the smallest set that meets all
supports. Duals jump at first, so they are kept near those of the outer bound: equations may be missed at a price. When
nothing gains, the duals at hand are the new middle and the price is doubled.

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
from typing import Any

import numpy as np
import numpy.typing as npt

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.exact import Sets, each_once
from onoff.schemes.search.herding import Market
from onoff.schemes.search.master import NOTICED
from onoff.schemes.search.portfolio import Board, IsOver, Problem
from onoff.schemes.search.proofs import WORTHWHILE

SAME = 1e-9
"""Probabilities that differ by less are taken for the same."""
MOST_REFINEMENTS = 5000
"""Refinements that the search for generators may take."""

Colours = npt.NDArray[np.uint64]


class Orbits:
    """A table from the program over orbits.

    fold: orbits for each flag, and most_orbits: in all, up to which the program is worth while.
    most_entries: for each second of the budget, up to which symmetries are looked for: a look at all takes long.
    pace, steps: of the herding between two solutions. fails: rounds without a gain after which the duals are let go
    further; leash: how far they may be from those of the outer bound at first.
    most_images: sets of the table, at most.
    """

    def __init__(
        self,
        share: float = 0.5,
        *,
        fold: float = 0.3,
        most_orbits: int = 400,
        most_entries: float = 20_000,
        pace: float = 0.02,
        steps: int = 50,
        fails: int = 80,
        leash: float = 0.1,
        most_images: int = 20_000,
    ) -> None:
        self.share, self.fold, self.most_orbits, self.most_entries = share, fold, most_orbits, most_entries
        self.pace, self.steps, self.fails, self.leash, self.most_images = pace, steps, fails, leash, most_images

    def applies(self, problem: Problem) -> bool:
        """Where a look for symmetries is quick, and no further use is made of the pool."""
        return problem.entries <= self.most_entries * problem.clock.budget and not problem.looks_ahead

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """The program, round by round; one table in the end."""
        found = symmetries(problem.p, is_over)
        if found is None or found.orbits > min(self.fold * len(found.orbit), self.most_orbits):
            return
        program = OrbitProgram(problem.p, found, self.leash)
        try:
            fails = 0
            while fails < self.fails:
                value = program.value
                program.herd(self.pace, self.steps, afresh=fails == 0)
                if program.missed <= NOTICED and program.value <= board.lower * (1 + board.gap):
                    break
                fails = fails + 1 if program.value > value - WORTHWHILE else 0
                if fails == self.fails and program.let_go():
                    fails = 0
                yield
        finally:
            board.propose(*program.spread(self.most_images))


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
    rows, maps = len(p), np.array(list(graph.generators(is_over)))
    if not len(maps):
        return None
    return Symmetries(
        maps[:, :rows].copy(), maps[:, rows:] - rows, graph.row, graph.column - rows, graph.orbits_of_flags(maps)
    )


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


class OrbitProgram:
    """The program for rows p with symmetries, on one live model.

    value: what its masses cost, and what they miss at its price; missed: how much of the equations. duals: of these.
    """

    def __init__(self, p: Floats, found: Symmetries, leash: float) -> None:
        import highspy

        self.found, self.market = found, Market(p)
        self._by_column = np.lexsort((found.row, found.column))  # entries of the market are in this order
        needed = np.bincount(found.orbit, p[found.row, found.column], found.orbits)
        self.duals: Floats = np.zeros(found.orbits)
        np.add.at(self.duals, found.orbit[self._by_column], self.market.phi)  # of the outer bound, as the market has
        self.duals /= np.bincount(found.orbit)
        self.value, self.missed, self.leash = np.inf, np.inf, leash
        self._sets: list[npt.NDArray[np.bool_]] = []
        self._masses: Floats = np.zeros(0)
        self._known: set[bytes] = set()
        self._infinity = highspy.kHighsInf
        self._model: Any = highspy.Highs()
        self._model.silent()
        self._model.setOptionValue("threads", 1)
        for wanted in needed.tolist():
            self._model.addRow(wanted, wanted, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        for f in range(found.orbits):
            for sign in (1.0, -1.0):  # less than wanted, and more
                self._model.addCol(0.0, 0.0, self._infinity, 1, np.array([f], dtype=np.int32), np.array([sign]))
        self._stay_near(self.duals)

    def _stay_near(self, duals: Floats) -> None:
        """From now on the duals are within the leash of the given ones: an equation may be missed at that price."""
        self._centre = duals
        prices = np.column_stack([duals + self.leash, self.leash - duals]).ravel()
        self._model.changeColsCost(len(prices), np.arange(len(prices), dtype=np.int32), prices)

    def let_go(self) -> bool:
        """Let the duals go further, from where they are; whether they were held."""
        held = bool((np.abs(self.duals - self._centre) > self.leash * (1 - SAME)).any())
        self.leash *= 2
        self._stay_near(self.duals)
        return held

    def herd(self, pace: float, steps: int, *, afresh: bool = True) -> None:
        """Add couplings of sets that herding finds, `afresh` from the duals or from where it was, and solve."""
        worth, prices = self.duals[self.found.orbit], np.empty(len(self.found.orbit))
        if afresh:
            self.market.phi[:] = worth[self._by_column]
        sets = each_once(self.market.take(pace, steps))
        prices[self._by_column] = self.market.phi
        for chosen in sets:
            self._add(chosen, worth)
            self._add(chosen, prices)
        self._model.run()
        solution, slacks = self._model.getSolution(), 2 * self.found.orbits
        values = np.array(solution.col_value)
        self.duals, self._masses = np.array(solution.row_dual), values[slacks:]
        self.value, self.missed = float(self._model.getInfo().objective_function_value), float(values[:slacks].sum())

    def _add(self, chosen: npt.NDArray[np.bool_], prices: Floats) -> None:
        """Add the coupling in which each row takes what it offers most for, unless one like it is known."""
        found = self.found
        offered = np.where(chosen[found.column], prices, -np.inf)
        starts = np.flatnonzero(np.diff(found.row, prepend=-1))
        best = np.maximum.reduceat(offered, starts)
        if not np.isfinite(best).all():
            return
        taken = np.flatnonzero(offered >= best[found.row])
        taken = taken[np.diff(found.row[taken], prepend=-1) > 0]
        used = np.zeros_like(chosen)
        used[found.column[taken]] = True
        counts = np.bincount(found.orbit[taken], minlength=found.orbits).astype(np.float64)
        key = np.append(counts, used.sum()).tobytes()
        if key not in self._known:
            self._known.add(key)
            at = np.flatnonzero(counts)
            self._model.addCol(float(used.sum()), 0.0, self._infinity, len(at), at.astype(np.int32), counts[at])
            self._sets.append(used)

    def spread(self, most: int) -> tuple[Sets, Floats]:
        """All images of the sets, with the masses dealt out among them; `most` of them where there are more."""
        with_mass = np.flatnonzero(self._masses > SAME).tolist()
        share = most // max(len(with_mass), 1) + 1
        images = [self.found.images(self._sets[at], share) for at in with_mass]
        dealt = [np.full(len(some), self._masses[at] / len(some)) for at, some in zip(with_mass, images, strict=True)]
        return np.vstack(images), np.concatenate(dealt)
