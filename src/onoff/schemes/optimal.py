"""The certified optimum: the cheapest private table for the rows, and a proof that none is cheaper.

Setting
    p_u(x)  rows;  Y a random set with X in Y always, independent of U;  OPT the least E|Y|
    lower   max(sum of max_u p_u(x), 2 - lam_1), or a better bound from the duals

Where Algorithm 1 is proved optimal it is taken: at most 3 rows, or rows of weak or strong links (see `greedy`). Else
OPT is a linear program over the masses of all sets with one Hall inequality for every set (see `hall`); both are far
too many to write down, and few of either matter.

1. Start with sets from a few systematic samples and races, and the cuts of single sources.
2. Solve. A maximum flow for every row finds the Hall inequality that it violates most, if any: add these cuts.
3. While the value is above the lower bound, price: add the sets that the duals call cheap.
4. Stop when no row is short and the value meets the bound, or when nothing improves and exact pricing proves it.
   Out of time: keep the best masses that all rows can follow, and let exact pricing say how far they may be off.
   Few rows over many sources are solved outright instead, by the program of `blocks`.
5. Rebuild in integers. The bound is the best one whose certificate `onoff.model.certificate.check` accepts.

Dense, sticky, Zipf and ring-like chains meet the bound without a single priced set. A few hundred sources take
seconds to a minute; the program is where the time goes. Deterministic for a given seed unless the time runs out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from onoff.model.bounds import simplest
from onoff.model.certificate import Certificate, SetCertificate, SimpleBound, check
from onoff.model.rows import UNIT, Floats, Rows
from onoff.schemes import SCHEMES, greedy
from onoff.schemes.search import blocks, proofs
from onoff.schemes.search.branching import branch
from onoff.schemes.search.clock import Clock, Stop, never
from onoff.schemes.search.hall import NOTICED, HallProgram, Sets
from onoff.schemes.search.pricing import ALL_SUBSETS, WORTHWHILE, Duals, by_all_subsets, by_climbing
from onoff.schemes.search.proposals import races, systematic
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.repair import repaired
from onoff.schemes.search.successors import SuccessorCost
from onoff.tables.table import OPTIMAL_GAP, QueryTable

NAME = "optimal"
MET = OPTIMAL_GAP / 10
"""Relative distance to the lower bound at which the program counts as solved."""
FOR_THE_PROOF = 0.25
"""The part of the time that is kept for a better bound where the search does not come to an end."""
SOFTNESS = 2.0
"""How far the duals may be from those of the simple bound at first; see `hall`."""
MANY_SOURCES, SMALL_QUERIES = 25, 7.0
"""Full rows over at least so many sources with a lower bound of at most this are solved from the middle; see `hall`."""
SHAKING = (0.05, 0.2, 0.5, 1.0)
"""By how much the duals are shaken where climbing finds nothing."""
SAME_COST = 1e-9
"""Tables whose costs differ by less, relatively, count as equal when the future is looked at."""
MOST_LOOKS = 40
"""Rounds of looking ahead at most: a number, not a time, so that the same rows give the same table."""
TELL_EVERY = 2.0
"""Seconds between two words of progress."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Proposal:
    """Masses of sets that every row can follow, as far as floats can tell."""

    value: float
    sets: Sets
    masses: Floats


def build(
    rows: Rows,
    *,
    budget: float = SCHEMES[NAME].budget or 0.0,
    gap: float = MET,
    seed: int = 0,
    future: Rows | None = None,
    progress: Progress | None = None,
    stop: Stop = never,
) -> QueryTable:
    """The cheapest table for `rows` that the budget can find, with a certificate of a lower bound on every table.

    Parameters
    ----------
    rows
        p(x|u).
    budget
        Seconds of processor time that the search may take.
    gap
        Stop where cost / lower bound - 1 is at most this.
    seed
        Of the search; it decides nothing but speed and ties.
    future
        The row P_x of every source x of the chain, to prefer among optimal tables those whose queries have cheap
        successors.
    progress
        Told now and then how far the search has come.
    stop
        Asked now and then whether to give up.

    Raises
    ------
    Stopped
        where `stop` said so.
    """
    if rows.distinct == 1:
        return _plain(rows)
    clock = Clock(budget, stop)
    few = ALL_SUBSETS if future is None else MANY_SOURCES  # to look ahead, the cuts of a search are a better start
    outright = _outright(rows, few, clock)
    if outright is not None and future is None:
        return outright
    search = _Search(rows, clock, gap, np.random.default_rng(seed), progress)
    if outright is None:
        search.run()
    elif search.central and rows.distinct > 2:  # few rows give few cuts a round: looking ahead would take too long
        return outright
    else:
        search.adopt(outright)
    if future is not None:
        search.look_ahead(SuccessorCost(rows, future))
    return search.table()


def _plain(rows: Rows) -> QueryTable:
    """One row: nothing to hide, ask for what is wanted."""
    cells = [(k, 0, int(x), int(rows.weights[0, k])) for k, x in enumerate(rows.columns)]
    queries = rows.columns.reshape(-1, 1).tolist()
    return QueryTable.from_cells(rows, queries, cells, scheme=NAME, certificate=SimpleBound("outer"))


def _outright(rows: Rows, few: int, clock: Clock) -> QueryTable | None:
    """The optimum without a search: Algorithm 1 where it is proved optimal; `blocks` for few rows and many sources."""
    found = [simplest(rows)]
    if greedy.is_optimal(rows):
        table = greedy.build(rows)
    elif len(rows.columns) > few and blocks.fits(rows):
        sets, masses, phi = blocks.solve(rows)
        table = repaired(rebuild(rows, [rows.columns[s].tolist() for s in sets], masses))
        if check(rows, found[0]) * (1 + Fraction(MET)) < table.exact_cost:
            found.append(proofs.from_coupling(phi))
    else:
        return None
    details = {"rounds": 0, "sets": len(table), "seconds": clock.spent}
    return table.labelled(scheme=NAME, certificate=proofs.best(rows, found), details=details)


class _Search:
    """One run of the search: the program, the best proposal and the best proof so far."""

    def __init__(self, rows: Rows, clock: Clock, gap: float, rng: np.random.Generator, progress: Progress | None):
        self.rows = rows
        self.clock = clock
        self.gap = gap
        self.rng = rng
        self.progress = progress
        self.best: Proposal | None = None
        self.proof: Certificate = simplest(rows)
        self.lower = float(check(rows, self.proof))
        self.softness = SOFTNESS
        size = len(rows.columns)
        bound_size = 1 if self.proof == SimpleBound("outer") else size - 1
        self.program = HallProgram(rows, self.softness, bound_size)
        self.full_rows = bool(np.count_nonzero(rows.weights) > rows.weights.size / 2)
        self.central = self.full_rows and size >= MANY_SOURCES and self.lower <= SMALL_QUERIES
        self.program.aim(central=self.central)
        self.promising: tuple[float, Duals] | None = None
        self.rounds = 0

    def run(self) -> None:
        """Search until the bound is met, the optimum proved, or the time up."""
        self._start()
        told = self.clock.elapsed
        while self.clock.left(1 - FOR_THE_PROOF) > 0 and not self._round():
            if self.clock.elapsed > told + TELL_EVERY:
                self._tell()
                told = self.clock.elapsed
        if not self._met() and self.promising is not None:
            self._tell("looking for a better bound: ")
            self._prove_by(self.promising[1])

    def adopt(self, table: QueryTable) -> None:
        """Begin from a table that is optimal already, and its proof."""
        self._start()
        sets = np.zeros((len(table), self.program.size), dtype=bool)
        owner = np.repeat(np.arange(len(table)), np.diff(table.offsets))
        sets[owner, np.searchsorted(self.rows.columns, table.items)] = True
        self.program.add_sets(sets)
        self.best = Proposal(table.cost, sets, table.mass / UNIT)
        if table.certificate is not None:
            self.proof, self.lower = table.certificate, float(table.lower_bound or 0.0)

    def _start(self) -> None:
        p, size = self.program.p, self.program.size
        one = np.eye(size, dtype=bool)
        self.program.add_sets(np.ones((1, size), dtype=bool))
        self.program.add_sets(one)
        self.program.add_sets(systematic(p, self._orders(), self.rng))
        self.program.add_sets(races(p, 2 * size, self.rng))
        self.program.add_cuts(np.vstack([one, ~one, p > 0]))

    def _orders(self) -> int:
        """How many systematic samples to start with: more where queries are large or rows few, few for sparse rows."""
        rows, columns = self.program.p.shape
        wanted = 1.3 * self.program.p.max(axis=0).sum() + (2 * columns / rows if self.central else 0)
        return int(np.clip(wanted, 4, 24)) if self.full_rows else 4

    def _round(self) -> bool:
        """Solve, separate, price; whether the search is over."""
        program = self.program
        if not program.solve(self._searched):
            return True
        self.rounds += 1
        missing, violated = program.short_rows()
        short = np.flatnonzero(missing > NOTICED)
        cuts = program.add_cuts(violated[short[np.argsort(-missing[short], kind="stable")]])
        feasible = not cuts and program.missed <= NOTICED
        if feasible and (self.best is None or program.value < self.best.value):
            used = program.masses > 0
            self.best = Proposal(program.value, program.sets[used], program.masses[used])
        if self._met():
            return True
        if program.missed <= NOTICED and program.value <= self.lower * (1 + MET):
            return False  # cheap enough already: only cuts are wanting
        if self._price() or cuts:
            return False
        if program.missed > NOTICED:
            self.softness *= 2
            program.soften(self.softness)
            return False
        return self._price_exactly() == 0

    def _met(self) -> bool:
        return self.best is not None and self.best.value <= self.lower * (1 + self.gap)

    def _price(self) -> int:
        """Add sets that the present duals call cheap, as far as climbing finds any; how many."""
        program = self.program
        if program.size <= ALL_SUBSETS:
            return 0
        duals = Duals.of(program.t, program.y, program.cuts)
        starts = np.vstack([np.eye(program.size, dtype=bool), program.sets[: len(program.masses)][program.masses > 0]])
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

    def _price_exactly(self) -> int:
        """Add sets until it is proved that none is cheap; how many."""
        program = self.program
        if proofs.needs_tree(self.rows):
            self._tell("exact pricing: ")
        duals = Duals.of(program.t, program.y, program.cuts)
        sets = self._prove_by(duals)
        return program.add_sets(sets[duals.gains(sets) > WORTHWHILE][: 2 * program.size])

    def _prove_by(self, duals: Duals) -> Sets:
        """Adopt the bound that the duals prove, if it is a better one; sets that gain by them."""
        if not proofs.needs_tree(self.rows):
            sets, gains = by_all_subsets(duals)
            self._adopt_proof(proofs.from_duals(self.rows, duals, float(gains[0])))
            return sets
        tree = branch(duals, self.clock.is_over)
        self.clock.left()
        if duals.value(self.program.p) - max(tree.most, 0.0) > self.lower:
            self._adopt_proof(proofs.from_tree(self.rows, duals, tree))
        return tree.sets

    def _adopt_proof(self, proof: SetCertificate) -> None:
        """Adopt a proof if it is a better one and the checker accepts it."""
        if float(proof.bound(self.rows)) > self.lower:
            self.proof = proofs.best(self.rows, [proof, self.proof])
            self.lower = float(check(self.rows, self.proof))

    def _searched(self) -> bool:
        return self.clock.is_over(1 - FOR_THE_PROOF)

    def look_ahead(self, future: SuccessorCost) -> None:
        """Among masses as cheap as the best, those with the cheapest successors, as far as a few rounds find them."""
        if self.best is None:
            return
        program = self.program
        program.add_sets(systematic(program.p, 8, self.rng))
        program.prefer(future, max(self.best.value, self.lower) * (1 + SAME_COST))
        for _ in range(MOST_LOOKS):
            if self.clock.left() < 0 or not program.solve(self.clock.is_over):
                return
            missing, violated = program.short_rows()
            cuts = program.add_cuts(violated[missing > NOTICED])
            if not cuts:
                used = program.masses > 0
                self.best = Proposal(self.best.value, program.sets[used], program.masses[used])
            if not self._price_ahead(future) and not cuts:
                return

    def _price_ahead(self, future: SuccessorCost) -> int:
        """Add sets that are as cheap as any now and have cheap successors; how many."""
        program = self.program
        weight = program.cost_dual
        if weight <= 0:
            return 0
        duals = Duals.of(program.t / weight, program.y / weight, program.cuts)
        starts = np.vstack([np.eye(program.size, dtype=bool), program.sets[: len(program.masses)][program.masses > 0]])
        sets, gains = by_climbing(duals, starts, SHAKING[0], self.rng)
        true_gains = weight * gains - future(sets)
        return program.add_sets(sets[true_gains > WORTHWHILE])

    def table(self) -> QueryTable:
        """The best proposal in integers, with its proof."""
        program = self.program
        if self.best is not None:
            made = self.best
        else:  # no masses yet that all rows can follow: what the rebuild saves of them
            made = Proposal(program.value, program.sets[: len(program.masses)], program.masses)
        table = repaired(rebuild(self.rows, [self.rows.columns[s].tolist() for s in made.sets], made.masses))
        details = {
            "rounds": self.rounds,
            "iterations": program.iterations,
            "sets": len(program.sets),
            "cuts": len(program.cuts),
            "seconds": self.clock.spent,
        }
        return table.labelled(scheme=NAME, certificate=self.proof, details=details)

    def _tell(self, what: str = "") -> None:
        if self.progress is None:
            return
        spent = self.clock.elapsed
        program = self.program
        self.progress(
            f"{what}{spent:.0f} s, round {self.rounds}, {len(program.sets)} sets, {len(program.cuts)} cuts, "
            f"value {program.value:.6g}, lower bound {self.lower:.6g}"
        )
