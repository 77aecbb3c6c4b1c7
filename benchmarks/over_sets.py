"""Dynamic programming over last queries: what ten OFF requests cost at best. A baseline with code of its own.

The state is the last query S. V(S, t), the expected cost of the t requests after it, is the least over all masses m
that the rows P_x, x in S, can follow of the sum of m_Q (|Q| + V(Q, t - 1)). The masses are a linear program with a
column for every set Q and a row for every set A: the mass of sets inside A is at most the least P_x(A). Both are
added as they are needed, and all sets are looked at each time.

Sets that no program uses need no value of their own: a lower bound on V (the sum of the simple bounds on the rows P^k)
does. So programs are solved with bounds, the sets that they use are valued, and again, until all that are used have
their value.
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
EXACT = 1e-9
INFINITY = highspy.kHighsInf


class Request:
    """The masses with which some rows can be hidden; the least of any cost of sets over them."""

    def __init__(self, p: Floats) -> None:
        self.columns = np.flatnonzero(p.max(axis=0) > 0)
        self.p = np.unique(p[:, self.columns], axis=0)
        self.count = len(self.columns)
        everything = (1 << self.count) - 1
        self.sizes = np.bitwise_count(np.arange(everything + 1)).astype(float)
        self.sets_of_sources = _subset_sums(1 << self.columns.astype(np.int64))
        low = np.array([_subset_sums(row) for row in self.p]).min(axis=0)
        self.low = np.clip(low, 0.0, 1.0)
        self.optimum: float | None = None
        self._costs = self.sizes
        self._sets: list[int] = []
        self._cuts: list[int] = []
        self._model: Any = highspy.Highs()
        self._model.silent()
        for option, value in (("threads", 1), ("presolve", "off")):
            self._model.setOptionValue(option, value)
        for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._model.setOptionValue(option, EXACT / 10)
        for low_side, high_side in ((1.0, 1.0), (-INFINITY, INFINITY)):  # the masses, and the sizes where they are held
            self._model.addRow(low_side, high_side, 0, np.zeros(0, np.int32), np.zeros(0))
        singles = [1 << x for x in range(self.count)]
        self._add_sets([everything, *singles])
        self._add_cuts([*singles, *(everything ^ one for one in singles)])

    def least(self, costs: Floats, held: float | None = None) -> tuple[float, list[int], Floats]:
        """The least mean cost, with its sets and masses. held: the mean size of the sets is at most this."""
        self._costs = costs
        known = len(self._sets)
        self._model.changeColsCost(known, np.arange(known, dtype=np.int32), costs[self._sets])
        self._model.changeRowBounds(1, -INFINITY, INFINITY if held is None else held)
        while True:
            self._model.run()
            solution = self._model.getSolution()
            masses, duals = np.maximum(solution.col_value, 0.0), np.array(solution.row_dual)
            inside, y = np.zeros_like(self.sizes), np.zeros_like(self.sizes)
            inside[self._sets], y[self._cuts] = masses, duals[2:]
            for x in range(self.count):
                inside.reshape(-1, 2, 1 << x)[:, 1] += inside.reshape(-1, 2, 1 << x)[:, 0]
                y.reshape(-1, 2, 1 << x)[:, 0] += y.reshape(-1, 2, 1 << x)[:, 1]
            over = inside - self.low
            reduced = costs - duals[0] - duals[1] * self.sizes - y
            over[-1] = reduced[0] = 0.0
            cuts = self._add_cuts([a for a in np.argsort(-over)[: 4 * self.count].tolist() if over[a] > EXACT])
            sets = self._add_sets([s for s in np.argsort(reduced)[: 2 * self.count].tolist() if reduced[s] < -EXACT])
            if not cuts and not sets:
                used = np.flatnonzero(masses > EXACT / 100)
                value = float(self._model.getInfo().objective_function_value)
                return value, [self._sets[s] for s in used], masses[used]

    def cheapest(self) -> float:
        """The least cost of the request itself."""
        if self.optimum is None:
            self.optimum = self.least(self.sizes)[0]
        return self.optimum

    def _add_sets(self, sets: list[int]) -> int:
        new = [s for s in sets if s not in self._sets]
        for s in new:
            inside = [2 + at for at, a in enumerate(self._cuts) if s & ~a == 0]
            entries = np.ones(2 + len(inside))
            entries[1] = self.sizes[s]
            at = np.array([0, 1, *inside], dtype=np.int32)
            self._model.addCol(float(self._costs[s]), 0.0, INFINITY, len(at), at, entries)
            self._sets.append(s)
        return len(new)

    def _add_cuts(self, cuts: list[int]) -> int:
        new = [a for a in cuts if a not in self._cuts]
        for a in new:
            inside = np.array([at for at, s in enumerate(self._sets) if s & ~a == 0], dtype=np.int32)
            self._model.addRow(-INFINITY, float(self.low[a]), len(inside), inside, np.ones(len(inside)))
            self._cuts.append(a)
        return len(new)


class OverSets:
    """Values of all sets of the sources of one chain. symmetries: permutations that leave the chain as it is."""

    def __init__(self, matrix: Floats, steps: int, symmetries: list[npt.NDArray[np.int64]] | None = None) -> None:
        self.p, self.n, self.steps = matrix, len(matrix), steps
        self.everything = (1 << self.n) - 1
        maps = [np.arange(self.n)] if symmetries is None else symmetries
        bits = (np.arange(1 << self.n)[:, None] >> np.arange(self.n)) & 1
        self.first: npt.NDArray[np.int64] = np.min([bits @ (1 << g) for g in maps], axis=0)
        """The first of all sets that symmetries take each set to."""
        self.bounds = np.zeros((steps + 1, 1 << self.n))
        power = np.eye(self.n)
        for t in range(steps):
            power = power @ matrix
            self.bounds[t + 1] = self.bounds[t] + _simple_bounds(power)
        self._requests: dict[int, Request] = {}

    def best(self) -> float:
        """What `steps` requests after everything cost at best."""
        return self._value(self.everything, self.steps, {}, held=False)

    def held(self) -> float:
        """The same where each request costs as little as it can, and what follows decides among such tables only."""
        return self._value(self.everything, self.steps, {}, held=True)

    def one_ahead(self) -> float:
        """The same where the cost of the next request alone decides among such tables."""
        law, total, known = {self.everything: 1.0}, 0.0, {}
        for _ in range(self.steps):
            after: dict[int, float] = {}
            for s, chance in law.items():
                request = self._request(s)
                if len(request.p) == 1:
                    total += chance
                    after[1] = after.get(1, 0.0) + chance  # some single source: nothing is at stake from now on
                    continue
                total += chance * request.cheapest()
                _, used, masses = self._solved(request, 2, known, held=True)
                for q, mass in zip(used, masses.tolist(), strict=True):
                    following = int(self.first[request.sets_of_sources[q]])
                    after[following] = after.get(following, 0.0) + chance * mass
            law = after
        return total

    def _request(self, s: int) -> Request:
        s = int(self.first[s])
        if s not in self._requests:
            self._requests[s] = Request(self.p[[x for x in range(self.n) if s >> x & 1]])
        return self._requests[s]

    def _value(self, s: int, t: int, known: dict[tuple[int, int], float], *, held: bool) -> float:
        s = int(self.first[s])
        if (s, t) not in known:
            request = self._request(s)
            if len(request.p) == 1:
                known[s, t] = float(t)
            elif t == 1:
                known[s, t] = request.cheapest()
            else:
                known[s, t] = self._solved(request, t, known, held=held)[0]
        return known[s, t]

    def _solved(
        self, request: Request, t: int, known: dict[tuple[int, int], float], *, held: bool
    ) -> tuple[float, list[int], Floats]:
        """V, sets and masses of a request that t - 1 others follow, whose values it finds as far as they matter."""
        present = request.cheapest() if held else 0.0
        while True:
            after = self.bounds[t - 1].copy()
            valued = [(s, value) for (s, requests), value in known.items() if requests == t - 1]
            if valued:
                after[[s for s, _ in valued]] = [value for _, value in valued]
            costs = after[self.first[request.sets_of_sources]] + (0 if held else request.sizes)
            value, used, masses = request.least(costs, present * (1 + EXACT) if held else None)
            sets = {int(self.first[request.sets_of_sources[q]]) for q in used}
            fresh = [s for s in sorted(sets) if (s, t - 1) not in known]
            if not fresh:
                return value + present, used, masses
            for s in fresh:
                self._value(s, t - 1, known, held=held)


def dihedral(n: int) -> list[npt.NDArray[np.int64]]:
    """The turns of a ring of n sources, and their mirror images."""
    here = np.arange(n)
    return [(here + k) % n for k in range(n)] + [(k - here) % n for k in range(n)]


def _subset_sums(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sum over each subset, by the number whose bits are its members."""
    sums = np.zeros(1 << len(numbers), dtype=numbers.dtype)
    for x, number in enumerate(numbers):
        sums[1 << x : 2 << x] = sums[: 1 << x] + number
    return sums


def _simple_bounds(power: Floats) -> Floats:
    """max(sum of the largest entries, 2 - sum of the smallest) for every set of rows but the empty one."""
    n = len(power)
    high, low = np.zeros((1 << n, n)), np.ones((1 << n, n))
    for x in range(n):
        high[1 << x : 2 << x] = np.maximum(high[: 1 << x], power[x])
        low[1 << x : 2 << x] = np.minimum(low[: 1 << x], power[x])
    return np.asarray(np.maximum(high.sum(axis=1), 2 - low.sum(axis=1)), dtype=np.float64)
