"""The master program of the optimum, on one live HiGHS model, and column generation.

The problem, and its dual, as they are solved
    S, m_S   the pool of sets of columns, and the mass of each
    C        the pool of cuts, each a set of columns;  P(C) = the largest p_u(C) over the rows u
    A, y_A   the complement of a cut, and its dual;    low(A) = the least p_u(A) = 1 - P(C)

    minimise    sum of m_S |S|                               maximise    t - sum of y_A low(A)
    subject to  sum of m_S over S that meet C  >=  P(C)      subject to  t - sum of y_A over A that contain S <= |S|
                sum of m_S = 1,  m >= 0                                  y >= 0

    with one inequality on the left for every C, and on the right for every S.

With every C as a cut the inequalities on the left, those of Hall, say exactly that every row can follow the masses, and
with every S in the pool the value is the optimum. Both are far too many to write down, so both pools grow. *Cuts* are
separated by maximum flows (see `flow`). *Columns*, that is sets, are priced by the duals: a set that is not in the pool
is worth adding where

    gain(S) = t - |S| - sum of y_A over A that contain S   >  0

This is facility location: adding x to S leaves every A that does not hold x. `by_climbing` adds, drops and swaps as a
step of herding does (see `herding`), from many starts; quick, and no proof. `proofs` has the exact ways.

A cut that most sets of the pool meet is handed to the solver in the form "sum of m_S over S that miss C <= low(A)"; it
is the same cut with fewer coefficients.

Softness. Early duals jump about and price useless sets. So cuts may be missed at a price, which bounds their duals:
y_A <= 1 + softness for the cuts that carry the simple lower bound (single columns for the outer bound, all but one for
2 - lam_1), where the dual of an optimum at that bound is just 1; y_A <= softness for all others, where it is 0. Where
nothing is missed in the end the prices did not matter; else they are raised.

Corners and the middle. The simplex method starts from the last basis and ends in a corner: few sets, quickly where few
cuts matter. Corners of a program that lacks most of its cuts are far from what rows can follow, though, and where
queries are small (nearly equal rows) thousands of cuts are needed to force one. The middle of all optimal masses, where
an interior point method stops, has room on every side: a few dozen cuts do. It uses every set of the pool.

Preference. Optima are many. `prefer` keeps the value and minimises another cost of sets among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.model.rows import UNIT, Floats, Integers, Rows
from onoff.schemes.search import flow
from onoff.schemes.search.exact import Sets, csr, each_once, meets
from onoff.schemes.search.herding import Market
from onoff.schemes.search.portfolio import Board, IsOver, Problem, Where
from onoff.schemes.search.proofs import WORTHWHILE, Duals, prove_duals

Cost: TypeAlias = Callable[[Sets], Floats]
"""What each of some sets costs."""

FIRST_CUT = 2
"""The row of the model that holds the first cut; before it the sums of m_S and of m_S |S|."""
NEGLIGIBLE = 1e-12
"""Probabilities below this are left to the rebuild; so small numbers make the solver inaccurate."""
SOLVER_TOLERANCE = 1e-10
"""How exactly the solver meets its constraints: the smallest it offers."""
EPSILON = 1e-6
"""The weight of a preference beside the cost itself: what it can add to the cost is negligible."""
STOPPED_WITHIN = 50 * 50
"""Rows times columns from which solving can take seconds, so that it must be able to stop within."""
DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4
"""As the solver numbers them."""
STARTS_AT_A_TIME = 20
"""Starts of a climb between two looks at the clock."""
NOTICED = 1e-11
"""Missing mass from which a row counts as short."""
ALL_SETS_PRICED = 14
"""Columns up to which all subsets are priced, and none is climbed to."""
SMALL_PROGRAM = 20 * 20
"""Rows times columns up to which the primal simplex method needs fewer cuts."""


class MasterProgram:
    """The master program for `rows`, on the columns 0 ... C - 1 that some row can reach.

    softness: see above; None for cuts that must be met. bound_size: the size of the cuts whose dual is 1 in the proof
    of the simple bound.
    """

    def __init__(self, rows: Rows, softness: float | None = None, bound_size: int = 1) -> None:
        import highspy

        self.weights = rows.weights
        self.p: Floats = rows.probabilities()
        self.size = self.p.shape[1]
        self.sets: Sets = np.zeros((0, self.size), dtype=bool)
        self.cuts: Sets = np.zeros((0, self.size), dtype=bool)
        self.masses: Floats = np.zeros(0)
        self.y: Floats = np.zeros(0)
        self.t = 0.0
        self.value = float("inf")
        self.iterations = 0
        self.missed = 0.0
        self.softness = softness
        self._bound_size = bound_size
        self._hard = False
        self.cost_dual = 0.0
        self._central = False
        self._set_columns: Integers = np.zeros(0, dtype=np.int64)  # where sets and slacks stand in the model
        self._slack_columns: Integers = np.zeros(0, dtype=np.int64)
        self._by_missing = np.zeros(0, dtype=bool)  # which cuts stand in the model by the sets that miss them
        self._known_sets: set[bytes] = set()
        self._known_cuts: set[bytes] = set()
        self._infinity = highspy.kHighsInf
        self._model: Any = highspy.Highs()
        self._model.silent()
        self._set_options(
            threads=1, primal_feasibility_tolerance=SOLVER_TOLERANCE, dual_feasibility_tolerance=SOLVER_TOLERANCE
        )
        # Most sets are equally cheap here: made-up differences in cost only send the simplex from corner to corner.
        self._set_options(dual_simplex_cost_perturbation_multiplier=0.0)
        self._cost: Cost = _sizes
        self._is_over: Callable[[], bool] = lambda: False
        events = (self._model.cbSimplexInterrupt, self._model.cbIpmInterrupt)
        for event in (
            events if self.p.size > STOPPED_WITHIN else ()
        ):  # asking at every step takes a tenth of a small one
            event.subscribe(lambda event: event.interrupt() if self._is_over() else None)
        for low, high in ((1.0, 1.0), (-self._infinity, self._infinity)):  # sum of m_S = 1; sum of m_S |S| for later
            self._model.addRow(low, high, 0, np.zeros(0, dtype=np.int32), np.zeros(0))

    def add_sets(self, sets: Sets) -> int:
        """Add the sets that are new; how many were."""
        fresh = _fresh(sets, self._known_sets)
        if not len(fresh):
            return 0
        added = sets[fresh]
        sizes = _sizes(added)
        entries = np.hstack([np.ones((len(added), 2)), (meets(self.cuts, added) != self._by_missing[:, None]).T])
        entries[:, 1] = sizes
        row, index = np.nonzero(entries)
        starts = np.searchsorted(row, np.arange(len(added))).astype(np.int32)
        free = np.full(len(added), self._infinity)
        self._set_columns = np.append(self._set_columns, self._model.getNumCol() + np.arange(len(added)))
        self._model.addCols(
            len(added),
            self._cost(added),
            0 * sizes,
            free,
            len(index),
            starts,
            index.astype(np.int32),
            entries[row, index],
        )
        self.sets = np.vstack([self.sets, added])
        return len(added)

    def add_cuts(self, cuts: Sets) -> int:
        """Add the cuts that are new and say something; how many there were."""
        cuts = cuts[cuts.any(axis=1) & ~cuts.all(axis=1)]
        fresh = _fresh(cuts, self._known_cuts)
        if not len(fresh):
            return 0
        added = cuts[fresh]
        met = meets(added, self.sets)
        by_missing = met.mean(axis=1) > 0.5
        needed = np.minimum((self.p @ added.T).max(axis=0), 1.0)
        low = np.where(by_missing, -self._infinity, needed)
        high = np.where(by_missing, 1 - needed, self._infinity)
        starts, indices, ones = _csr(met != by_missing[:, None])
        columns = self._set_columns[indices].astype(np.int32)
        self._model.addRows(len(added), low, high, len(indices), starts, columns, ones)
        self.cuts = np.vstack([self.cuts, added])
        self._by_missing = np.append(self._by_missing, by_missing)
        if self.softness is not None:
            self._add_slacks(added)
        return len(added)

    def soften(self, softness: float) -> None:
        """Let cuts be missed at a price: `softness`, and 1 more for the cuts that the simple bound rests on."""
        self.softness = softness
        prices = self._prices(self.cuts)
        self._model.changeColsCost(len(prices), self._slack_columns.astype(np.int32), prices)

    def prefer(self, cost: Cost, most: float) -> None:
        """From now on minimise the sum of m_S cost(S) among all masses with sum of m_S |S| <= most.

        In the middle that would leave no room: there EPSILON cost(S) is added to |S| instead.
        """
        if self._central:
            self._cost = lambda sets: _sizes(sets) + EPSILON * cost(sets)
        else:
            self._cost = cost
            self._model.changeRowBounds(1, -self._infinity, most)
            slacks = len(self._slack_columns)
            none = np.zeros(slacks)
            self._model.changeColsBounds(slacks, self._slack_columns.astype(np.int32), none, none)
            self._hard = True
        self._model.changeColsCost(len(self.sets), self._set_columns.astype(np.int32), self._cost(self.sets))

    def _prices(self, cuts: Sets) -> Floats:
        carry_the_bound = cuts.sum(axis=1) == self._bound_size
        return np.where(carry_the_bound, 1.0, 0.0) + (self.softness or 0.0)

    def _add_slacks(self, cuts: Sets) -> None:
        count = len(cuts)
        row = FIRST_CUT + len(self.cuts) - count + np.arange(count)
        sign = np.where(self._by_missing[-count:], -1.0, 1.0)
        place = np.arange(count)
        free = np.full(count, 0.0 if self._hard else self._infinity)
        self._slack_columns = np.append(self._slack_columns, self._model.getNumCol() + place)
        self._model.addCols(
            count, self._prices(cuts), np.zeros(count), free, count, place.astype(np.int32), row.astype(np.int32), sign
        )

    def aim(self, *, central: bool) -> None:
        """From now on stop in the middle of the optimal masses, by an interior point method, or in a corner."""
        self._central = central
        self._set_options(
            solver="ipm" if central else "choose",
            run_crossover="off" if central else "on",
            ipm_optimality_tolerance=SOLVER_TOLERANCE,
        )

    def walk(self, *, primal: bool) -> None:
        """Which simplex method goes on from the last basis: in a small program the primal one needs fewer cuts."""
        self._set_options(simplex_strategy=PRIMAL_SIMPLEX if primal else DUAL_SIMPLEX)

    def _set_options(self, **options: Any) -> None:
        for option, setting in options.items():
            self._model.setOptionValue(option, setting)

    def solve(self, is_over: Callable[[], bool]) -> bool:
        """Masses and duals of the present pools; False where it `is_over` before they were found."""
        from highspy import HighsModelStatus as Status

        self._is_over = is_over

        if self._central:
            self._model.clearSolver()  # with an old solution it would not presolve
        self._model.run()
        if self._model.getModelStatus() == Status.kUnknown:  # it could not meet its own tolerance: start afresh
            self.aim(central=False)
            self._model.clearSolver()
            self._model.run()
        if self._model.getModelStatus() not in (Status.kOptimal, Status.kUnknown):
            return False
        solution, info = self._model.getSolution(), self._model.getInfo()
        values = np.array(solution.col_value)
        self.masses = np.maximum(values[self._set_columns], 0.0)
        slack = values[self._slack_columns]
        self.missed = float(slack[slack > SOLVER_TOLERANCE].sum())
        dual = np.array(solution.row_dual)
        # For a cut in the first form y = dual and t gains y; in the second the dual is -y already about A.
        by_cut = dual[FIRST_CUT:]
        self.y = np.maximum(np.where(self._by_missing, -by_cut, by_cut), 0.0)
        self.cost_dual = max(-float(dual[1]), 0.0)
        self.t = float(dual[0] + self.y[~self._by_missing].sum())
        self.value = float(info.objective_function_value)
        self.iterations += int(info.simplex_iteration_count)
        return True

    def short_rows(self, is_over: Callable[[], bool] = lambda: False) -> tuple[Floats, Sets] | None:
        """The mass that each row cannot place, and the set of columns that proves it; None where it `is_over`."""
        used = np.flatnonzero(self.masses > 0)
        used = used[np.argsort(self.sets[used].sum(axis=1), kind="stable")]
        offsets, items = csr(self.sets[used])
        units: Integers = np.floor(self.masses[used] * UNIT).astype(np.int64)
        found = flow.short_rows(self.weights, offsets, items, units, is_over)
        return None if found is None else (found[0] / UNIT, found[1])

    def used(self) -> tuple[Sets, Floats]:
        """The sets with mass, and their masses."""
        used = np.flatnonzero(self.masses > 0)
        return self.sets[used], self.masses[used]

    def duals(self) -> Duals:
        """The duals of the last solution."""
        return Duals.of(self.t, self.y, self.cuts)


class ColumnGeneration:
    """The program over the sets of the pool: solve, add the cuts that rows violate, price, until nothing is new.

    where: the kind of rows that it is for. central: whether to solve from the middle.
    most_pool: sets of the pool that are used, the newest ones: a solve takes long with more.
    eager: columns up to which sets are priced in every round; with more, only once rows can follow, as that takes
    longer than a round.
    softness: see above. shaking: by how much duals are shaken where climbing finds nothing.
    """

    def __init__(
        self,
        share: float = 0.8,
        where: Where = lambda problem: problem.solvable,
        *,
        central: bool = False,
        most_pool: int = 2500,
        eager: int = 60,
        softness: float = 2.0,
        shaking: tuple[float, ...] = (0.05, 0.2, 0.5, 1.0),
    ) -> None:
        self.share, self.where, self.central, self.most_pool = share, where, central, most_pool
        self.eager, self.softness, self.shaking, self.rng = eager, softness, shaking, np.random.default_rng(0)

    def applies(self, problem: Problem) -> bool:
        """Where it ends in time."""
        return self.where(problem)

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """Masses of the pool that rows can follow, then better ones from round to round; and duals for a proof."""
        if not len(board.sets) and problem.many:
            return  # sets are what others find; from single columns it would take long
        self.rng = problem.rng()
        program = MasterProgram(problem.rows, self.softness, 1 if problem.outer else problem.size - 1)
        one = np.eye(program.size, dtype=bool)
        program.aim(central=self.central)
        program.walk(primal=not problem.looks_ahead and problem.p.size <= SMALL_PROGRAM)
        program.add_sets(np.vstack([np.ones((1, program.size), dtype=bool), one, board.sets[-self.most_pool :]]))
        program.add_cuts(np.vstack([one, ~one, problem.p > 0, board.cuts]))
        found: tuple[float, Sets, Floats] | None = None
        try:
            while program.solve(is_over):
                board.figures["rounds"] += 1
                short = program.short_rows(is_over)
                if short is None:
                    break
                cuts = program.add_cuts(short[1][short[0] > NOTICED])
                if not cuts and program.missed <= NOTICED and (found is None or program.value < found[0]):
                    found = program.value, *program.used()
                if found is not None and found[0] <= board.lower * (1 + board.gap):
                    return
                yield
                if self._goes_on(problem, board, program, cuts, is_over):
                    continue
                if found is not None:
                    board.propose(*found[1:])
                    found = None
                sets = prove_duals(problem.rows, board, program.duals(), is_over)
                if board.met or not program.add_sets(sets[: 2 * program.size]):
                    return
        finally:
            if found is None and board.incumbent is None and len(program.masses):
                found = program.value, *program.used()  # rows cannot follow yet: repaired, it is a table
            if found is not None and found[0] < board.cost:
                board.propose(*found[1:])
            board.cuts, board.sets = program.cuts, program.sets
            board.figures |= {"sets": len(program.sets), "cuts": len(program.cuts)}
            board.figures["iterations"] += program.iterations

    def _goes_on(self, problem: Problem, board: Board, program: MasterProgram, cuts: int, is_over: IsOver) -> bool:
        """Whether there is another round, with the sets that climbing finds; else only exact pricing can tell more."""
        if program.missed <= NOTICED and program.value <= board.lower * (1 + board.gap):
            return True  # cheap enough already: only cuts are missing
        if problem.size > ALL_SETS_PRICED and (not cuts or problem.size <= self.eager):
            cuts += self._price(problem, board, program, is_over)
        if not cuts and program.missed > NOTICED:
            program.soften(2 * (program.softness or 1.0))
            return True
        return cuts > 0

    def _price(self, problem: Problem, board: Board, program: MasterProgram, is_over: IsOver) -> int:
        """Add sets that the present duals call cheap, as far as climbing finds any; how many."""
        duals = program.duals()
        starts = np.vstack([np.eye(program.size, dtype=bool), program.used()[0]])
        for noise in (0.0, *self.shaking):
            lines = np.tile(starts[: program.size], (5, 1)) if noise else starts
            sets, gains = by_climbing(duals, lines, noise, self.rng, is_over)
            if not noise and len(gains):
                estimate = program.value - max(float(gains[0]), 0.0)
                if board.duals is None or estimate > board.promised:
                    board.duals, board.promised = duals, estimate
            added = program.add_sets(sets[gains > WORTHWHILE][: 2 * program.size])
            if added or is_over():
                return added
        return 0


def _sizes(sets: Sets) -> Floats:
    return np.asarray(sets.sum(axis=1), dtype=np.float64)


def _fresh(sets: Sets, known: set[bytes]) -> Integers:
    """Which lines are not known yet, each once; they are known from now on."""
    fresh = []
    for at, packed in enumerate(np.packbits(sets, axis=1)):
        key = packed.tobytes()
        if key not in known:
            known.add(key)
            fresh.append(at)
    return np.array(fresh, dtype=np.int64)


def _csr(entries: Sets) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Floats]:
    row, column = np.nonzero(entries)
    starts = np.searchsorted(row, np.arange(len(entries))).astype(np.int32)
    return starts, column.astype(np.int32), np.ones(len(column))


def by_climbing(
    duals: Duals, starts: Sets, noise: float, rng: np.random.Generator, is_over: Callable[[], bool] = lambda: False
) -> tuple[Sets, Floats]:
    """Sets found from each of `starts`, best first, with gains. With noise, each start sees the duals shaken.

    A set gains y_A for each A that it leaves: what a market gains whose rows are the complements of the A, each with
    one price.
    """
    market, chosen = Market(~duals.inside, outer=False, unmet=0.0), starts.copy()
    for at, start in enumerate(starts):
        if at and at % STARTS_AT_A_TIME == 0 and is_over():
            chosen = chosen[:at]
            break
        shaken = np.maximum(1 + noise * rng.standard_normal(len(duals.y)), 0) * duals.y if noise else duals.y
        market.phi[:], market.inside[:] = shaken[market.row], start
        chosen[at] = market.take(0.0, 1)[0]
    sets = each_once(chosen[chosen.any(axis=1)])
    gains = duals.gains(sets)
    order = np.argsort(-gains, kind="stable")
    return sets[order], gains[order]
