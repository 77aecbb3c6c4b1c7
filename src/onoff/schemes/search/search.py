"""The search for the optimum: the program, the cheapest table (`cheapest`) and the best proof (`proven`) so far.

1. Rows with zeros: how many sources meet every support is a bound (see `hitting`). Rows with symmetries: the program
   over orbits (see `orbits`), which gives a table.
   Sparse rows: couplings made cheaper by exchanges (see `swapping`), for a moment where sources are few. Where there is
   time, sets that pay at prices that follow what was taken (see `prices`), and a table of both kinds of sets. Where
   there are more than LARGE entries, that is all.
   Rows too many for Algorithm 1 too: races, and races of what they leave (see `racing`).
2. Few rows over many sources: sets are bred first, stage by stage (see `breeding`). Each stage gives a table.
3. The master program (see `hall`): start with sets from a few systematic samples and races, solve, add the cuts that
   rows violate, and while the value is above the lower bound, add the sets that the duals call cheap.
4. It ends when the value meets the bound, or when nothing improves and exact pricing proves it. Groups of sparse rows
   (see `groups`), before exact pricing, and exact pricing of the most promising duals say how far the best table may be
   off where time runs out.

Never worse. The cheapest of all tables made on the way is the answer (see `cheapest`): masses that all rows
can follow; masses that they cannot, repaired, and masses of the same sets that they nearly can, after some rounds; and
where none of them is at the bound, Algorithm 1 and a table from races, always the same one. The steps do not depend on
the budget but for where they end, so more time never gives a more expensive table; except that sets that pay are looked
for, in the place of the longest exchanges, where there is time, and that of rows with more than LARGE entries a few
races are all where the time is up and there is no table: cheaper in all that was measured, which is no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from onoff.model.certificate import MOST_BRANCHES, SimpleBound
from onoff.model.checker import FEW_SOURCES
from onoff.model.rows import UNIT, Floats, Rows
from onoff.schemes import greedy
from onoff.schemes.search import breeding, groups, prices, swapping, transport
from onoff.schemes.search.cheapest import LARGE, CheapestTable, sets_of
from onoff.schemes.search.clock import SearchClock
from onoff.schemes.search.hall import NOTICED, SMALL_PROGRAM, HallProgram, Sets
from onoff.schemes.search.orbits import OrbitProgram
from onoff.schemes.search.pricing import ALL_SETS_PRICED, WORTHWHILE, Duals, by_climbing
from onoff.schemes.search.proposals import affordable, races, systematic
from onoff.schemes.search.proven import BestProof
from onoff.schemes.search.racing import FIRST_RACES, LATER_RACES, raced_in_passes
from onoff.schemes.search.symmetry import symmetries
from onoff.tables.table import OPTIMAL_GAP, QueryTable

MET = OPTIMAL_GAP / 10
"""Relative distance to the lower bound at which the program counts as solved."""
FOR_THE_PROOF = 0.25
"""The part of the time that is kept for a better bound where the search does not come to an end."""
FOR_OTHER_TABLES = 0.2
"""The part of the time that breeding leaves for tables that need no search."""
SOFTNESS = 2.0
"""How far the duals may be from those of the simple bound at first; see `hall`."""
MANY_SOURCES, SMALL_QUERIES = 25, 7.0
"""Full rows over at least so many sources with a lower bound of at most this are solved from the middle; see `hall`."""
CENTRAL_STAGES = 5
"""Stages of breeding before the program, where that is solved from the middle and closes the rest quickly."""
ASTRAY = 0.1
"""What may be off, of a row, in the masses of a stage of breeding for another to follow where homes are tied."""
MOST_SYSTEMATIC = 6000
"""Sets from systematic samples to start with, about, at most."""
SHAKING = (0.05, 0.2, 0.5, 1.0)
"""By how much the duals are shaken where climbing finds nothing."""
NEARLY = 0.1
"""What a table of masses that rows cannot follow may lose, of the value of the program, to be made at once."""
SCALINGS, ENOUGH_SCALINGS, SMALL_SETS_FIRST = 300, 60, 3.0
"""For masses of the program's sets on the way: scalings, those that must be affordable, and the tilt to small sets."""
FOR_SCALING = 0.125
"""The part of the time spent so far that such scalings may take, if MOST_WORK of them take a second."""
STEPS_AT_FIRST, STEPS_AT_LAST = 10**6, MOST_BRANCHES
"""Sets looked at for a bound by the supports, at first and where there is a table that may be optimal."""
STEPS_A_SECOND = 5 * 10**8
"""Sets looked at in a second times rows, compiled, on a slow machine."""
FOR_SYMMETRIES = 0.5
"""The part of the time for the program over orbits."""
FOR_EXCHANGES = 0.6
"""The part of the time after which no exchanges are made where the master program is to have some."""
MANY_SPARSE, QUICK_EXCHANGES = 150, 150_000
"""Sources from which all stages of exchanges are made; and the rows times sweeps of a stage, where they are fewer."""
QUICK_SWEEPS = 3000
"""Sweeps of the stages of exchanges that come before sets that pay."""
MANY_PAYING, FOR_PRICES, PRICE_STEPS_A_SECOND = 60, 0.55, 1.5e6
"""Sources from which sets that pay are looked for; the part of the time that it may take, and what is looked at in a
second, on a slow machine."""
ENOUGH_FOR_GROUPS = 1.0
"""Seconds that must be left for a bound by groups: without it a session's tables are made sooner."""
WORTH_FOLDING, MOST_ORBITS = 0.3, 400
"""Orbits for each flag, and in all, up to which the program over orbits is worth while."""
TELL_EVERY = 2.0
"""Seconds between two lines of progress."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Proposal:
    """Masses of sets that every row can follow, as far as floats can tell."""

    value: float
    sets: Sets
    masses: Floats


class Search:
    """One run of the search."""

    def __init__(self, rows: Rows, clock: SearchClock, gap: float, rng: np.random.Generator, progress: Report | None):
        self.rows = rows
        self.clock = clock
        self.gap = gap
        self.rng = rng
        self.progress = progress
        self.best: Proposal | None = None
        self.cheapest = CheapestTable(rows)
        self.proven = BestProof(rows)
        self.softness = SOFTNESS
        size = len(rows.columns)
        at_the_outer_bound = self.proven.certificate == SimpleBound("outer")
        self.program = HallProgram(rows, self.softness, 1 if at_the_outer_bound else size - 1)
        self.full_rows = bool(np.count_nonzero(rows.weights) > rows.weights.size / 2)
        self.central = self.full_rows and size >= MANY_SOURCES and self.lower <= SMALL_QUERIES
        self.sparse = bool(np.count_nonzero(rows.weights) <= swapping.SPARSE * rows.distinct) and size >= MANY_SOURCES
        self.breeds = at_the_outer_bound and rows.distinct <= breeding.MOST_BRED_ROWS and size >= MANY_SOURCES
        self.program.aim(central=self.central)
        self.promising: tuple[float, Duals] | None = None
        self.paying = False
        """Whether the program has sets that pay."""
        self.exchanged = False
        """Whether there is a table from exchanges of rows too many for the program and for Algorithm 1."""
        self.rounds = 0
        self._told = 0.0
        self._sweep_takes = 0.0
        self._exchanging = np.random.default_rng(0)
        self._table_takes = 0.0
        self._loss = np.inf
        self._breeding_was_cut = False
        self._shared = False
        self._raced = False

    @property
    def lower(self) -> float:
        """The best bound proved so far: no table costs less."""
        return self.proven.lower

    # -- running -------------------------------------------------------------------------------------------

    def run(self, *, only_table: bool = False) -> None:
        """Search until the bound is met, the optimum proved, or the time up.

        only_table: no other use will be made of the program, so that it need not find many cuts.
        """
        if self.rows.weights.size > LARGE:
            self._tell("starting: ")
        self._look_at_supports(STEPS_AT_FIRST)
        if only_table:
            self._use_symmetries()
        quick = [sweeps for sweeps in swapping.STAGES_OF_COOLING if sweeps <= QUICK_SWEEPS]
        self._exchange(quick)
        self._look_for_what_pays()
        self._exchange(swapping.STAGES_OF_COOLING[len(quick) :])
        if self.paying:
            self._cut_until_rows_follow()
        too_many = not greedy.fits_in_memory(self.rows)
        if too_many and not self._met() and not self.exchanged:
            self._race()
        if self.breeds and not self._met():
            self._breed()
        if not self._met() and not self._searched() and not (self.exchanged or too_many or self._breeding_was_cut):
            self.start()
            self.program.walk(primal=only_table and self.rows.weights.size <= SMALL_PROGRAM)
            while self.clock.left(1 - FOR_THE_PROOF) > 0 and not self._round():
                self._tell_now_and_then()
            self.program.walk(primal=False)
        self.clock.left()
        self._settle()
        self._share()
        if not self._met() and self.promising is not None:
            self._tell("looking for a better bound: ")
            self.proven.offer_duals(self.promising[1], self.clock.is_over)
            self.clock.left()

    def adopt(self, table: QueryTable) -> None:
        """Begin from a table that is optimal already, and its proof."""
        self.start()
        sets = sets_of(table)
        self.program.add_sets(sets)
        self.best = Proposal(table.cost, sets, table.mass / UNIT)
        self.cheapest.offer(table)
        if table.certificate is not None:
            self.proven.offer(table.certificate)

    def start(self) -> None:
        """The sets and cuts to begin with."""
        p, size = self.program.p, self.program.size
        one = np.eye(size, dtype=bool)
        self.program.add_sets(np.ones((1, size), dtype=bool))
        self.program.add_sets(one)
        self.program.add_sets(systematic(p, self._orders(), self.rng))
        self.program.add_sets(races(p, affordable(p, 2 * size), self.rng))
        self.program.add_cuts(np.vstack([one, ~one, p > 0]))

    def _orders(self) -> int:
        """How many systematic samples to start with: more where queries are large or rows few, few for sparse rows."""
        rows, columns = self.program.p.shape
        wanted = 1.3 * self.program.p.max(axis=0).sum() + (2 * columns / rows if self.central else 0)
        wanted = np.clip(wanted, 4, 24) if self.full_rows else 4
        return int(np.clip(wanted, 1, max(MOST_SYSTEMATIC // columns, 1)))

    def _use_symmetries(self) -> None:
        """A table from the program over orbits, where the rows have symmetries."""
        is_over = partial(self.clock.is_over, FOR_SYMMETRIES)
        found = symmetries(self.program.p, is_over)
        if found is None or found.orbits > min(WORTH_FOLDING * len(found.orbit), MOST_ORBITS):
            return
        program, best = OrbitProgram(self.program.p, found, np.random.default_rng(0)), None
        for best in program.solutions(is_over):
            self._tell_now_and_then()
            if best.missed <= NOTICED and best.value <= self.lower * (1 + self.gap):
                break
        self.clock.left()
        if best is not None:
            self.cheapest.offer_masses(*program.spread(best))
            if not self._met():
                self._look_at_supports(STEPS_AT_LAST)

    def _look_at_supports(self, most_steps: int) -> None:
        """Adopt the bound by the supports if it is a better one; about half of the time that is left at most."""
        if not self.full_rows:
            affordable_steps = int(STEPS_A_SECOND / self.rows.distinct / 2 * max(self.clock.left(), 0.0))
            self.proven.offer_supports(min(most_steps, affordable_steps))

    def _exchange(self, stages: Iterable[int]) -> None:
        """Tables from exchanges, for sparse rows over many sources. No stage is begun that would not end in time."""
        large = self.rows.weights.size > LARGE
        part = 1 - FOR_THE_PROOF if large else FOR_EXCHANGES
        most = np.inf if self.program.size >= MANY_SPARSE else QUICK_EXCHANGES / self.rows.distinct
        for sweeps in stages:
            if self._met() or not self.sparse or sweeps > most or sweeps * self._sweep_takes > self.clock.left(part):
                return
            began = self.clock.spent
            found = swapping.swapped(self.program.p, sweeps, self._exchanging, partial(self.clock.is_over, part))
            self._sweep_takes = (self.clock.spent - began) / sweeps
            self.clock.left()
            if found is None:
                return
            self.cheapest.offer_masses(*found)
            self.exchanged = large
            if self.paying:
                self.program.add_sets(found[0])
            self._tell_now_and_then()

    def _look_for_what_pays(self) -> None:
        """A table of sets that pay and those of the cheapest one, for sparse rows, unless they take long to find."""
        takes = prices.steps_for(self.program.p) / PRICE_STEPS_A_SECOND
        too_long = takes > min(FOR_PRICES * self.clock.budget, self.clock.left(1 - FOR_THE_PROOF))
        if self._met() or not self.sparse or self.program.size < MANY_PAYING or too_long:
            return
        sets = prices.priced_sets(self.program.p, self._searched)
        self.clock.left()
        if sets is None:
            return
        self.paying = True
        known = [] if self.cheapest.table is None else [sets_of(self.cheapest.table)]
        self.program.add_sets(np.vstack([np.ones((1, self.program.size), dtype=bool), sets, *known]))
        self.program.add_cuts(np.vstack([np.eye(self.program.size, dtype=bool), self.program.p > 0]))
        self._cut_until_rows_follow()

    def _cut_until_rows_follow(self) -> None:
        """The table of the sets that are in the program, no further ones being priced."""
        while not self._met() and self._cut():
            self._tell_now_and_then()
        if self.best is not None and self.best.value < self.cheapest.cost:
            self.cheapest.offer_masses(self.best.sets, self.best.masses)

    def _race(self) -> None:
        """A table from races, for rows too many for anything else; the first pass is always made."""
        self._raced = True
        self.cheapest.offer(raced_in_passes(self.rows, self._searched, FIRST_RACES))

    def _breed(self) -> None:
        """A table from each stage of breeding; what has the most mass goes into the program."""
        before = self.clock.spent
        first = self.cheapest.begin_with_algorithm_1()
        heaviest = np.sort(np.argsort(-first.mass, kind="stable")[: breeding.MOST_KNOWN])
        bred = breeding.Breeding(self.program.p, sets_of(first)[heaviest], self.rng)
        self._table_takes = 2 * (self.clock.spent - before)  # about, until the first one tells
        stages = CENTRAL_STAGES if self.central else len(breeding.STAGES)
        for found in islice(bred.stages(self._is_time_for_a_table), stages):
            before = self.clock.spent
            self.cheapest.offer_masses(found.sets, found.masses)
            self._table_takes = self.clock.spent - before
            heaviest = np.argsort(-found.masses, kind="stable")[: 2 * self.program.size]
            self.program.add_sets(found.sets[heaviest])
            self._tell_now_and_then()
            if self._met():
                return
            if bred.homes_are_tied and found.off > ASTRAY:
                break
        self._breeding_was_cut = self._is_time_for_a_table()

    def _is_time_for_a_table(self) -> bool:
        """Whether no more is left of the budget than the last table took, and tables without a search will take."""
        return self.clock.is_over() or self.clock.left(1 - FOR_OTHER_TABLES) < self._table_takes

    def _cut(self) -> int | None:
        """Solve the program, and add the cuts that rows violate: how many; None where there was no time to solve it."""
        program = self.program
        if not program.solve(self._searched):
            return None
        self.rounds += 1
        missing, violated = program.short_rows()
        short = np.flatnonzero(missing > NOTICED)
        cuts = program.add_cuts(violated[short[np.argsort(-missing[short], kind="stable")]])
        feasible = not cuts and program.missed <= NOTICED
        if feasible and (self.best is None or program.value < self.best.value):
            used = program.masses > 0
            self.best = Proposal(program.value, program.sets[used], program.masses[used])
        elif not feasible and self.best is None:
            self._offer_on_the_way(float(missing.sum()))
        return cuts

    def _round(self) -> bool:
        """Solve, separate, price; whether the search is over."""
        program, cuts = self.program, self._cut()
        if cuts is None:
            return True
        if self._met():
            return True
        if program.missed <= NOTICED and program.value <= self.lower * (1 + MET):
            return False  # cheap enough already: only cuts are missing
        if self._price() or cuts:
            return False
        if program.missed > NOTICED:
            self.softness *= 2
            program.soften(self.softness)
            return False
        return self._price_exactly() == 0

    def _offer_on_the_way(self, missing: float) -> None:
        """Tables while rows cannot follow the masses yet, in rounds that do not depend on the budget.

        The masses repaired, after the rounds 1, 4, 16, ... and whenever rows miss half of what they missed; and the
        sets of the program with masses that rows can follow nearly, after 2, 3, 4, 6, 8, 12, ...: costlier than the
        program in the end, and early; but not where that takes long beside the rounds themselves.
        """
        program, rounds = self.program, self.rounds
        loss = program.size * missing  # of a table of these masses, at most; see `rebuild`
        nearly = loss < min(NEARLY * program.value, self._loss / 2)
        if nearly or (rounds.bit_count() == 1 and rounds.bit_length() % 2):
            self._loss = min(self._loss, loss)
            self.cheapest.postpone(program.sets[: len(program.masses)], program.masses)
        if rounds > 1 and rounds == rounds >> rounds.bit_length() - 2 << rounds.bit_length() - 2:
            sets = np.asarray(program.sets)
            affordable_now = transport.affordable_scalings(program.p, sets)
            quick = affordable_now * FOR_SCALING * self.clock.spent >= SCALINGS
            if affordable_now >= ENOUGH_SCALINGS and quick:
                found = transport.leaning(program.p, sets, SMALL_SETS_FIRST, SCALINGS)
                self.cheapest.postpone(found.sets, found.masses)

    def _cost(self) -> float:
        """What the best table costs that there is, or that there are masses for."""
        return self.cheapest.cost if self.best is None else min(self.best.value, self.cheapest.cost)

    def _met(self) -> bool:
        return bool(self._cost() <= self.lower * (1 + self.gap))

    def _searched(self) -> bool:
        return self.clock.is_over(1 - FOR_THE_PROOF)

    # -- pricing and proving -------------------------------------------------------------------------------

    def _price(self) -> int:
        """Add sets that the present duals call cheap, as far as climbing finds any; how many."""
        program = self.program
        if program.size <= ALL_SETS_PRICED:
            return 0
        duals = Duals.of(program.t, program.y, program.cuts)
        starts = self.starts()
        sets, gains = by_climbing(duals, starts, 0.0, self.rng)
        estimate = program.value - max(float(gains[0]), 0.0)
        if self.promising is None or estimate > self.promising[0]:
            self.promising = estimate, duals
        added = program.add_sets(sets[gains > WORTHWHILE][: 2 * program.size])
        for noise in SHAKING:
            if added:
                break
            sets, gains = by_climbing(duals, np.tile(starts[: program.size], (5, 1)), noise, self.rng)
            added = program.add_sets(sets[gains > WORTHWHILE][: 2 * program.size])
        return added

    def starts(self) -> Sets:
        """Sets to climb from: single columns, and all that have mass."""
        program = self.program
        return np.vstack([np.eye(program.size, dtype=bool), program.sets[: len(program.masses)][program.masses > 0]])

    def _price_exactly(self) -> int:
        """Add sets until it is proved that none is cheap; how many."""
        program = self.program
        if self.program.size > FEW_SOURCES:  # a tree is needed, which may take all the time that is left
            self._share()
            self._tell("exact pricing: ")
        duals = Duals.of(program.t, program.y, program.cuts)
        sets = self.proven.offer_duals(duals, self.clock.is_over)
        self.clock.left()
        return program.add_sets(sets[duals.gains(sets) > WORTHWHILE][: 2 * program.size])

    def _share(self) -> None:
        """Adopt the bound by groups of rows if it is better, once; half of the time is kept for another, if any."""
        if self._shared or self._met() or not self.sparse or self.clock.left() < ENOUGH_FOR_GROUPS:
            return
        if not groups.has_few_blocks(self.rows):
            return
        self._shared = True
        self._tell("looking for a better bound by groups of rows: ")
        until = 1 - FOR_THE_PROOF / 2 if self.promising else 1.0
        self.proven.offer_groups(self._cost(), partial(self.clock.is_over, until))
        self.clock.left()

    # -- tables --------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """A table from the best masses and, where that is not near the bound, the tables that need no search."""
        if self.best is not None and self.best.value < self.cheapest.cost:
            self.cheapest.offer_masses(self.best.sets, self.best.masses)
        if self.cheapest.cost <= self.lower * (1 + OPTIMAL_GAP):
            return
        self.cheapest.offer_postponed()
        late = self.rows.weights.size > LARGE and self._searched()
        if late and self.cheapest.table is None:  # Algorithm 1 takes seconds, a few races part of one
            self.cheapest.offer(raced_in_passes(self.rows, self.clock.is_over, LATER_RACES))
            return
        self.cheapest.offer_algorithm_1()
        if not self._raced and not late:
            if self.rows.weights.size > LARGE:
                self._tell("a table from races, as the last resort: ")
            self.cheapest.offer_races(self.proven.simple)

    def details(self) -> dict[str, float]:
        """Figures of the search for reports; seconds of processor time."""
        return {
            "rounds": self.rounds,
            "iterations": self.program.iterations,
            "sets": len(self.program.sets),
            "cuts": len(self.program.cuts),
            "seconds": self.clock.spent,
        }

    def _tell_now_and_then(self) -> None:
        if self.clock.elapsed > self._told + TELL_EVERY:
            self._told = self.clock.elapsed
            self._tell()

    def _tell(self, what: str = "") -> None:
        if self.progress is None:
            return
        program = self.program
        cost = "" if self.cheapest.table is None else f"cost {self.cheapest.cost:.6g}, "
        self.progress(
            f"{what}{self.clock.spent:.0f} of {self.clock.budget:.0f} s, round {self.rounds}, "
            f"{len(program.sets)} sets, {len(program.cuts)} cuts, {cost}value {program.value:.6g}, "
            f"lower bound {self.lower:.6g}"
        )
