"""The search for the optimum as a portfolio: strategies that share a problem and a board, and nothing else.

    Problem    the rows, and facts about them
    Board      the pool of sets and Hall cuts, the incumbent (the cheapest table so far), the best accepted proof
    Strategy   part of the budget, whether it applies, and a run that offers sets, tables and proofs to the board
    Clock      the budget of processor time, and whoever may call the search off
    search     the loop

A strategy reads the problem and the board, and may be left out, moved, or added from outside (`design(portfolio=...)`).
Whatever it offers, the board keeps the cheapest table and the largest bound that the checker accepts, so that no
strategy can make the answer worse or wrong. Thresholds are arguments of its constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from time import monotonic, thread_time
from typing import Protocol, TypeAlias

import numpy as np

from onoff.model.bounds import simplest
from onoff.model.certificate import Certificate, SimpleBound
from onoff.model.checker import check_certificate
from onoff.model.rows import Floats, Rows
from onoff.schemes import greedy, single
from onoff.schemes.search.exact import CELLS_A_SECOND, Sets, sets_of, table_of
from onoff.schemes.search.proofs import Duals, best
from onoff.system.kernels import preparing_seconds
from onoff.tables.table import OPTIMAL_GAP, QueryTable

MET = OPTIMAL_GAP / 10
"""Relative distance to the lower bound at which the search ends, unless another gap is asked for."""
LEAST_REPAIR = 0.05
"""Seconds that the repair of a table may take, however little time is left."""
PAIRS_A_SECOND = 5 * 10**7
"""Pairs of columns times rows, for each second of the budget, up to which bounds by pairs are worked out."""
TELL_EVERY = 2.0
"""Seconds between two lines of progress."""
MANY, SMALL_QUERIES = 25, 7.0
"""Rows and columns that are many, and the lower bound up to which queries are small."""
SOLVED_A_SECOND, CENTRAL_A_SECOND = 25_000, 12_000
"""Rows times columns for each second of the budget with which the program of a pool ends in time, and columns squared
with which it does from the middle: so much is the work of a few dozen rounds."""

IsOver: TypeAlias = Callable[[], bool]
"""Whether the time of a strategy is up; never raises, for use inside solvers and kernels."""
Where: TypeAlias = "Callable[[Problem], bool]"
"""Whether rows are of a kind."""
Report: TypeAlias = Callable[[str], None]
"""Takes a line about the progress of the search."""
Stop: TypeAlias = Callable[[], bool]
"""Called now and then: whether to end with what there is."""


def never() -> bool:
    """The search is never called off."""
    return False


class Clock:
    """A budget of seconds that begins now.

    It counts the processor time of the searching thread, so that a busy machine changes how long a search takes and not
    what it finds. Making kernels ready is left out: it happens once in a process, and takes seconds the first time.
    """

    def __init__(self, budget: float, stop: Stop = never, enough: Stop = never) -> None:
        self.budget = budget
        self.stop, self.enough = stop, enough
        self._began, self._began_on_the_wall = _working_seconds(), monotonic()

    @property
    def spent(self) -> float:
        """Seconds of processor time so far."""
        return _working_seconds() - self._began

    @property
    def elapsed(self) -> float:
        """Seconds of wall time so far."""
        return monotonic() - self._began_on_the_wall

    def left(self, share: float = 1.0) -> float:
        """Seconds of processor time that are left of that part of the budget."""
        return 0.0 if self.enough() or self.stop() else self.budget * share - self.spent

    def is_over(self, share: float = 1.0) -> bool:
        """Whether that part of the budget is spent, or the search called off; what has no end is never over."""
        return share < np.inf and (self.spent >= self.budget * share or self.stop() or self.enough())


def _working_seconds() -> float:
    """Processor time of this thread, without what went into making kernels ready."""
    return thread_time() - preparing_seconds()


class Problem:
    """Rows to be coupled, and facts about them.

    clock: what the search may take, for strategies that begin only what they can end.
    looks_ahead: whether another use will be made of the pool, which then needs all its cuts.
    inside: rows inside the hull of these, for which the table is made in the end too.
    """

    def __init__(
        self, rows: Rows, clock: Clock | None = None, *, seed: int = 0, looks_ahead: bool = False, inside: int = 0
    ) -> None:
        self.rows, self.seed, self.looks_ahead = rows, seed, looks_ahead
        self.clock = Clock(np.inf) if clock is None else clock
        self.distinct, self.size = rows.weights.shape
        self.table_rows, self.mixed = self.distinct + inside, inside > 0
        """Rows that a table is made for in the end, and whether some are mixtures of others."""
        self.p: Floats = rows.probabilities()
        self.entries = int(np.count_nonzero(rows.weights))
        self.full = 2 * self.entries > rows.weights.size
        """Whether most entries are positive."""
        self.many = self.size >= MANY
        """Whether columns are many."""
        self.few = self.full and self.many and (self.distinct < MANY or 2 * self.distinct < self.size)
        """Whether full rows are few: they give few cuts a round, and take thousands."""

    @cached_property
    def simple(self) -> Certificate:
        """The best of the simple bounds; of those without pairs of columns, where these would take long."""
        if self.size**2 * self.distinct > PAIRS_A_SECOND * self.clock.budget:
            return best(self.rows, [SimpleBound("doeblin")])
        return simplest(self.rows)

    @cached_property
    def lower(self) -> float:
        """What the best simple bound proves."""
        return float(check_certificate(self.rows, self.simple))

    @property
    def outer(self) -> bool:
        """Whether the outer bound, the sum of max_u p_u(x), is the best of the simple ones."""
        return self.simple == SimpleBound("outer")

    @property
    def small_queries(self) -> bool:
        """Full rows so much alike that queries are small, or few: corners of the master program are far from them."""
        return self.full and self.many and (self.distinct < MANY or self.lower <= SMALL_QUERIES)

    @property
    def central(self) -> bool:
        """Whether the master program is solved from the middle: queries are small, and it comes to an end in time."""
        shape = self.distinct < MANY or not self.few  # between, there are too many cuts to find
        return shape and self.small_queries and self.size**2 <= CENTRAL_A_SECOND * self.clock.budget

    @property
    def sampled(self) -> bool:
        """Whether samples make the table, where columns are too many; of few rows or mixtures they place little."""
        return self.small_queries and not self.central and 4 * self.distinct >= self.size and not self.mixed

    @property
    def solvable(self) -> bool:
        """Whether the master program comes to an end in time, in a corner."""
        return not self.few and self.distinct * self.size <= SOLVED_A_SECOND * self.clock.budget

    def rng(self) -> np.random.Generator:
        """Random numbers for one strategy: they do not depend on what ran before it."""
        return np.random.default_rng(self.seed)


class Board:
    """What strategies share: the pool, the incumbent, and the best proof.

    gap: how far from the lower bound, relatively, a table may be for the search to end.
    """

    def __init__(self, problem: Problem, gap: float = MET) -> None:
        self.rows, self.gap = problem.rows, gap
        self.incumbent: QueryTable | None = None
        self.certificate = problem.simple
        self.lower = problem.lower
        none = np.zeros((0, problem.size), dtype=bool)
        self.sets: Sets = none
        """The pool: sets that may be worth their mass, newest last."""
        self.cuts: Sets = none
        """Hall cuts that some masses violated: any masses have to meet them."""
        self.duals: Duals | None = None
        self.promised = -np.inf
        """The most promising duals of the master program, for a proof, and the bound that they promise."""
        self.figures: dict[str, float] = {"rounds": 0, "iterations": 0, "sets": 0, "cuts": 0}
        self._problem = problem

    @property
    def cost(self) -> float:
        """Expected messages of a query by the incumbent; infinite before the first table."""
        return np.inf if self.incumbent is None else self.incumbent.cost

    @property
    def met(self) -> bool:
        """Whether the incumbent is as near to the lower bound as was asked for."""
        return bool(self.cost <= self.lower * (1 + self.gap))

    def add(self, sets: Sets) -> None:
        """Put sets into the pool."""
        self.sets = np.vstack([self.sets, sets])

    def offer(self, table: QueryTable) -> None:
        """Keep the table if it is cheaper than the incumbent."""
        if self.incumbent is None or table.exact_cost < self.incumbent.exact_cost:
            self.incumbent = table

    def propose(self, sets: Sets, masses: Floats) -> None:
        """Offer the exact table nearest to these masses, unless the time is up before it is made."""
        is_over = never if self.incumbent is None else self._problem.clock.is_over
        table = table_of(self.rows, sets, masses, is_over, self.seconds())
        if table is not None:
            self.offer(table)

    def seconds(self, share: float = 1.0) -> float:
        """What the repair of a table may take, of the time that is left of a part of the budget."""
        left = max(self._problem.clock.left(share), LEAST_REPAIR)
        return float(left * self._problem.distinct / self._problem.table_rows)

    def prove(self, certificate: Certificate) -> None:
        """Keep the certificate if its bound is larger and the checker accepts it."""
        self.certificate = best(self.rows, [certificate, self.certificate])
        self.lower = float(check_certificate(self.rows, self.certificate))

    def table(self) -> QueryTable:
        """The incumbent; before the first one, the wanted source or everything."""
        if self.incumbent is None:
            self.offer(single.build(self.rows))
        assert self.incumbent is not None
        return self.incumbent

    def table_sets(self) -> Sets:
        """The queries of the incumbent as sets of columns."""
        return sets_of(self.table())


class Strategy(Protocol):
    """One way to find tables, sets or proofs.

    share: the part of the budget after which it ends, counted from the start of the search.
    """

    share: float

    def applies(self, problem: Problem) -> bool:
        """Whether the rows are of the kind that it is for."""
        ...

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """Offer what it finds to the board; yields wherever the loop may end it."""
        ...


class Greedy:
    """Algorithm 1: at first where it is proved to be optimal; in the end wherever nothing else met the bound.

    share: without end, so that it is compared in any case and no table is dearer, however short the time was. Its cost
    is counted first; the table is made where it is the cheaper one.
    beyond: the part of the budget, and seconds, that making it may take in the end: of hundreds of full rows it takes
    several budgets.
    """

    share = np.inf

    def __init__(self, *, proved: bool = False, beyond: tuple[float, float] = (0.25, 0.2)) -> None:
        self.proved, self.beyond = proved, beyond

    def applies(self, problem: Problem) -> bool:
        """Where its atoms fit in memory."""
        return greedy.is_optimal(problem.rows) if self.proved else greedy.fits_in_memory(problem.rows)

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """One table."""
        part, seconds = self.beyond
        takes = greedy.most_cells(problem.rows) / CELLS_A_SECOND
        in_time = takes <= max(problem.clock.left(), 0.0) + part * problem.clock.budget + seconds
        if self.proved or (in_time and greedy.costs_less(problem.rows, board.cost)):
            board.offer(greedy.build(problem.rows))
        yield


def search(problem: Problem, board: Board, portfolio: Sequence[Strategy], progress: Report | None = None) -> None:
    """Run the strategies of the portfolio one after the other, until the bound is met or the time is up."""
    clock, told = problem.clock, 0.0
    for strategy in portfolio:
        if board.met or clock.is_over(strategy.share) or not strategy.applies(problem):
            continue
        for _ in strategy.run(problem, board, partial(clock.is_over, strategy.share)):
            if progress is not None and clock.elapsed > told + TELL_EVERY:
                told = clock.elapsed
                progress(_line(strategy, board, clock))
            if board.met or clock.is_over(strategy.share):
                break


def _line(strategy: Strategy, board: Board, clock: Clock) -> str:
    """A line of progress."""
    cost = "" if board.incumbent is None else f"cost {board.cost:.6g}, "
    figures = ", ".join(f"{int(value)} {name}" for name, value in board.figures.items() if name != "iterations")
    time = f"{clock.spent:.0f} of {clock.budget:.0f} s"
    return f"{time}, {type(strategy).__name__}: {figures}, {cost}lower bound {board.lower:.6g}"
