"""Symmetries of rows: permutations of the sources and of the rows that leave every p_u(x) as it is.

Setting
    g        a pair of permutations, of rows and of columns, with  p_g(u)(g(x)) = p_u(x)
    orbit    all that something is taken to by such g, one after the other
    flag     a row and a column that it can want: p_u(x) > 0

Masses may be averaged over all g without a change in cost, so where there are symmetries it is enough to look for
masses that are the same for a set and for all that it is taken to: the program has one unknown for an orbit of sets and
one equation for an orbit of flags (see `orbits`).

`symmetries` finds generators by refinement of colours and trial: nodes (rows and columns) that see differently coloured
neighbours get different colours until nothing changes; then one column of a colour that is left with several is set
apart, and so on until every node has a colour of its own. Another choice that leads to the same colours gives a map,
and every map is checked entry by entry. Colours are hashes, the same for what looks the same, whatever its number.

Rows are rounded to units, which breaks ties by a unit: values that agree to SAME count as equal. Nothing rests on it; a
table is exact for the rows as they are, and so is a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.hall import Sets

SAME = 1e-9
"""Probabilities that differ by less are taken for the same."""
MOST_REFINEMENTS = 5000
"""Refinements that the search for generators may take."""

Colours = npt.NDArray[np.uint64]


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
