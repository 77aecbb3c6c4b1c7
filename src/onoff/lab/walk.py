"""The one walk: the public states of a session, what leads from one to the next, and sums along a pattern.

What a server knows of a session is the public part of its memory: for `LastQuery` the last query, for the paper's
filter the rows p(x_t | x_tau, q_[t-1]). From a public state the next query is drawn with the masses of its table,
for every user, so public states form a Markov chain of their own:

    OFF   query k of the table with probability mass[k]; where nothing is at stake, {x} with the one row's probability
    ON    every source that is possible now

It is walked exactly (`expected_costs`: the law of the state is pushed forward), by descents that share their states
(`sampled_runs`), by paths of their own (`sampled_paths`), by every history of queries (`querytree`), or by a crowd of
users with their secrets (`simulate`). The secret of a user is one source, hidden in the state's `anchor`: the last
query, or for the paper's filter the query of the last private request.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidInput, InvalidPattern
from onoff.information import entropy_bits
from onoff.model import patterns
from onoff.model.bounds import step_bounds
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model
from onoff.model.rows import UNIT, Floats, Integers, Rows, SparseRows
from onoff.schemes import find_scheme
from onoff.schemes.race import Drawn, Race
from onoff.session.filter import ModelFilter
from onoff.session.memories import LastQuery
from onoff.session.seeded import SeededEntropy
from onoff.session.session import Hide, Memory, TableCache, start
from onoff.tables.table import QuerySource, QueryTable

Set = tuple[int, ...]
NOWHERE = -1
"""In place of a row or column: this source is not there."""


class State:
    """One public state: a memory with an arbitrary secret, and the sources among which the secret is."""

    def __init__(self, states: States, anchor: Set, memory: Memory) -> None:
        self._states = states
        self.anchor = anchor
        self.memory = memory

    @cached_property
    def rows(self) -> Rows | SparseRows:
        """The law of the next request for every hidden value."""
        return self.memory.rows

    @property
    def plain(self) -> bool:
        """Whether there is nothing to hide: an OFF request is sent as it is."""
        return self.rows.distinct == 1

    @property
    def possible(self) -> Set:
        """What an ON request asks for."""
        return self._states.everything if self._states.force else tuple(self.rows.columns.tolist())

    @property
    def source(self) -> QuerySource:
        """Where an OFF request is drawn from. Kept by `TableCache`, within its limit; a state keeps what is small."""
        return (self._states.lasting if self.memory.lasting else self._states.tables).of(self.memory)

    @property
    def table(self) -> QueryTable:
        """The same where its law is known. Raises NoTable where it is not."""
        source = self.source
        if not isinstance(source, QueryTable):
            raise NoTable(f"scheme {self._states.scheme!r} makes no table to walk", hint="use e.g. greedy")
        return source

    @cached_property
    def cost(self) -> float:
        """The expected number of messages of an OFF request."""
        return 1.0 if self.plain else self.source.cost

    @cached_property
    def row_of(self) -> Integers:
        """The distinct row of each secret source; NOWHERE for sources that cannot be the secret."""
        found = np.full(self._states.model.n, NOWHERE if self.anchor else 0, dtype=np.int64)
        if self.anchor:
            found[list(self.anchor)] = self.rows.group
        return found

    @cached_property
    def column_of(self) -> Integers:
        """The column of each source among the rows; NOWHERE for sources that cannot be wanted now."""
        found = np.full(self._states.model.n, NOWHERE, dtype=np.int64)
        found[self.rows.columns] = np.arange(len(self.rows.columns))
        return found

    @cached_property
    def has_table(self) -> bool:
        """Whether the law of the next query is known."""
        return self.plain or isinstance(self.source, QueryTable)

    def then(self, query: Set, *, private: bool, drawn: Drawn | None = None) -> State:
        """The state once `query` was sent, where it was drawn from `drawn`."""
        # Which of its sources was wanted is secret and changes nothing that is public.
        memory = self.memory.after(query, query[0], private=private, table=drawn)
        return State(self._states, query if private or self._states.keeps_query else self.anchor, memory)

    @cached_property
    def after_private(self) -> int:
        """The number of the state after an ON request."""
        return self._states.number(self.then(self.possible, private=True))

    @cached_property
    def after_everything(self) -> int:
        """The same after all sources were asked because the request was impossible."""
        return self._states.number(self.then(self._states.everything, private=True))

    @cached_property
    def following(self) -> tuple[Floats, Integers, Integers]:
        """Of every query of an OFF request: its probability, its size, the number of the state after it."""
        if self.plain:
            chances, sizes = cast("Rows", self.rows).weights[0] / UNIT, np.ones(len(self.rows.columns), dtype=np.int64)
        else:
            chances, sizes = self.table.mass / UNIT, self.table.sizes
        after = [self._states.number(self.then(q, private=False, drawn=drawn)) for q, drawn in self.queries]
        return chances, sizes, np.array(after, dtype=np.int64)

    @property
    def queries(self) -> list[tuple[Set, QueryTable | None]]:
        """Every query of an OFF request, and the table that it is drawn from; None where it is the plain request."""
        if self.plain:
            return [((x,), None) for x in self.rows.columns.tolist()]
        table = self.table
        return [(query, table) for query in table.queries]

    def draws(self, count: int, rng: np.random.Generator) -> Iterator[tuple[Set, Drawn | None]]:
        """The queries of `count` OFF requests, each with what it was drawn from.

        A query has the same law whatever the secret is, so a scheme without a table is asked with the first value.
        """
        rows, entropy = self.rows, SeededEntropy(rng)
        if self.plain or not self.has_table:
            if isinstance(rows, Rows):
                wanted = rng.choice(rows.columns, size=count, p=rows.weights[rows.group[0]] / UNIT)
            else:
                first = slice(int(rows.starts[0]), int(rows.starts[1]))
                wanted = rows.columns[rng.choice(rows.at[first], size=count, p=rows.p[first] / rows.p[first].sum())]
        if self.plain:
            yield from (((x,), None) for x in wanted.tolist())
            return
        source = self.source
        if isinstance(source, QueryTable):
            places = np.searchsorted(np.cumsum(source.mass), rng.integers(UNIT, size=count), side="right")
            yield from ((source.query(k), source) for k in places.tolist())
        elif isinstance(source, Race) and isinstance(self.memory, ModelFilter):
            for x in wanted.tolist():
                winners = source.draw_winners(0, x, entropy)
                yield winners.sources, winners
        else:
            yield from ((source.draw(0, x, entropy), source) for x in wanted.tolist())


class NoTable(InvalidInput):
    """A scheme that draws without a table: its law of queries cannot be walked, only sampled."""


class States:
    """The public states reached so far, by number; number 0 is the start, before the first request.

    Tables do not look ahead here unless asked to (`look_ahead=True`): it takes several times as long.

    budgets: Seconds that the search for a table may take, and for the table after everything was asked, which all
    share; by default those of the scheme.
    """

    def __init__(
        self,
        model: Model,
        scheme: str,
        memory: str | None = None,
        *,
        hide: Hide = 1,
        everything: bool = False,
        budgets: tuple[float, float] | None = None,
        **options: Any,
    ) -> None:
        self.model = model
        self.scheme = scheme
        options = {"look_ahead": False, **options}
        self.tables = self.lasting = TableCache(model, scheme, **options)
        if budgets is not None and find_scheme(scheme).budget is not None and "budget" not in options:
            self.tables, self.lasting = (TableCache(model, scheme, budget=budget, **options) for budget in budgets)
        self.force = everything
        self.everything: Set = tuple(range(model.n))
        self.listed: list[State] = []
        self._numbers: dict[Hashable, int] = {}
        person = 0 if isinstance(hide, str) and not isinstance(model, MarkovChain) else None  # nothing public is
        first = start(memory, model, hide, person=person)
        self.keeps_query = isinstance(first, LastQuery)
        self.number(State(self, (), first))

    def __getitem__(self, number: int) -> State:
        return self.listed[number]

    def __len__(self) -> int:
        return len(self.listed)

    def number(self, state: State) -> int:
        """The number of a state; equal ones have the same."""
        key = state.anchor, state.memory.key
        if key not in self._numbers:
            self._numbers[key] = len(self.listed)
            self.listed.append(state)
        return self._numbers[key]


Booleans = npt.NDArray[np.bool_]


class Switching(Protocol):
    """When privacy is ON: the law of the status, given the one before.

    It never depends on the requests: a switch that is flipped *because of* a request tells about that request.
    """

    @property
    def steps(self) -> int:
        """How many requests there are."""
        ...

    def chance(self, t: int, before: bool | None) -> float:
        """Pr(F_t = ON), given the status of the request before (None at t = 0)."""
        ...


@dataclass(frozen=True)
class Pattern:
    """A fixed pattern; True is ON."""

    statuses: tuple[bool, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern written `ON OFF*10 ON`."""
        return cls(patterns.parse(text))

    @property
    def steps(self) -> int:
        return len(self.statuses)

    def chance(self, t: int, before: bool | None) -> float:
        return float(self.statuses[t])

    def __str__(self) -> str:
        return patterns.pattern_text(self.statuses)


@dataclass(frozen=True)
class RandomSwitching:
    """Starts ON, then flips: ON to OFF with probability `turn_off` before each request, back with `turn_on`."""

    steps: int
    turn_off: float
    turn_on: float

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= patterns.LONGEST_PATTERN:
            raise InvalidPattern(f"{self.steps} steps", hint=f"give 1 to {patterns.LONGEST_PATTERN}")
        for name, value in (("turn_off", self.turn_off), ("turn_on", self.turn_on)):
            if not 0 <= value <= 1:
                raise InvalidPattern(f"{name} = {value} is not a probability", hint="give a number from 0 to 1")

    def chance(self, t: int, before: bool | None) -> float:
        return 1.0 if before is None else (1 - self.turn_off if before else self.turn_on)

    def __str__(self) -> str:
        return f"ON, then OFF with probability {self.turn_off:g} and back with {self.turn_on:g}, {self.steps} steps"


def draw_statuses(
    switching: Switching, t: int, before: Booleans | None, users: int, rng: np.random.Generator
) -> Booleans:
    """The status of every user at time t, given the one before."""
    if before is None:
        chances: npt.NDArray[np.float64] | float = switching.chance(t, None)
    else:
        chances = np.where(before, switching.chance(t, True), switching.chance(t, False))
    return np.asarray(rng.random(users) < chances)


Place = TypeVar("Place", bound="tuple[bool | None, Any]")


def _switched(switching: Switching, t: int, law: Mapping[Place, Any]) -> Iterator[tuple[Place, bool, Any]]:
    """Each place of a law (the status before, and where), each status that it may have now, and the weight of both."""
    for place, weight in law.items():
        on = switching.chance(t, place[0])
        if on > 0:
            yield place, True, weight * on
        if on < 1:
            yield place, False, weight * (1 - on)


MOST_STATES = 1_000
"""Public states at one time for which the law is pushed forward exactly."""
LARGEST_FOR_BOUNDS = 2_000
"""Sources up to which powers of the chain are formed for bounds and leaks."""
PATH_BUDGETS = (0.5, 10.0)
"""Seconds for a table of a path, and for the one after everything, which all paths share; see `States`."""
RUNS = 10
"""Independent runs behind a standard error."""


@dataclass(frozen=True)
class ExpectedCost:
    """The expected cost of one step; `stderr` is 0 where it is exact up to rounding of floats."""

    cost: float
    stderr: float


_Law = dict[tuple[bool | None, int], Any]
"""The weight of each status and state."""
_Move = tuple[int, int, bool, float]
"""The size of a query, the state after it, the status, and the weight of all that."""


def _moves(
    states: States, switching: Switching, t: int, law: _Law, rng: np.random.Generator | None = None
) -> Iterator[tuple[float, list[_Move]]]:
    """What step t costs in every place of a law, times its weight, and what follows it (but for OFF at the last step).

    Where there is no table, only queries that are drawn tell what they cost; NoTable is raised without `rng`.
    """
    for (_, number), on, weight in _switched(switching, t, law):
        state = states[number]
        if on:
            yield weight * len(state.possible), [(len(state.possible), state.after_private, True, weight)]
        elif state.has_table:
            parts = [part.tolist() for part in state.following] if t + 1 < switching.steps else [[], [], []]
            moves = [(size, after, False, weight * chance) for chance, size, after in zip(*parts, strict=True)]
            yield weight * state.cost, moves
        elif rng is None:
            raise NoTable(f"scheme {states.scheme!r} makes no table to walk")
        else:
            count = math.ceil(weight)
            for query, drawn in state.draws(count, rng):
                after = states.number(state.then(query, private=False, drawn=drawn))
                yield weight / count * len(query), [(len(query), after, False, weight / count)]


def expected_costs(
    states: States, switching: Switching, *, most_states: int = MOST_STATES
) -> list[ExpectedCost] | None:
    """The expected cost of every step, or None where there are too many states or the scheme has no tables."""
    law: _Law = {(None, 0): 1.0}
    found = []
    for t in range(switching.steps):
        cost, after = 0.0, defaultdict[tuple[bool | None, int], float](float)
        try:
            for part, moves in _moves(states, switching, t, law):
                cost += part
                for _, number, status, weight in moves:
                    after[status, number] += weight
                if len(after) > most_states:
                    return None
        except NoTable:
            return None
        found.append(ExpectedCost(cost, 0.0))
        law = after
    return found


def sampled_costs(states: States, switching: Switching, descents: int, rng: np.random.Generator) -> list[ExpectedCost]:
    """The same by random descents through the public states, with standard errors."""
    runs = sampled_runs(states, switching, descents, rng)
    errors = standard_error(runs)
    return [ExpectedCost(cost, error) for cost, error in zip(runs.mean(axis=0).tolist(), errors.tolist(), strict=True)]


def standard_error(estimates: Floats) -> Floats:
    """Of the mean of independent estimates, one to a row."""
    return np.asarray(estimates.std(axis=0, ddof=1) / math.sqrt(len(estimates)))


def sampled_runs(
    states: States,
    switching: Switching,
    descents: int,
    rng: np.random.Generator,
    progress: Callable[[str], None] | None = None,
) -> Floats:
    """Independent, unbiased estimates of the costs, shape (runs, steps): their spread tells their error.

    A descent counts the *expected* cost of each state that it meets, which varies less than the size of one query.
    Each run shares its descents out systematically: what can follow is lined up by size, each with the expected
    number of descents, and every count is that number rounded up or down. This leaves far less to chance than
    drawing each descent by itself.
    """
    count = max(2, min(RUNS, descents // 2))
    runs = np.zeros((count, switching.steps))
    for run in range(count):
        law: _Law = {(None, 0): -(-descents // count)}
        for t in range(switching.steps):
            costs, moves = zip(*_moves(states, switching, t, law, rng), strict=True)
            runs[run, t] = sum(costs) / sum(law.values())
            law = _shared_out(sorted(move for some in moves for move in some), rng)
        if progress is not None:
            progress(f"run {run + 1} of {count}, {len(states)} states")
    return runs


def _shared_out(moves: list[_Move], rng: np.random.Generator) -> _Law:
    """Whole numbers of descents, each the expected one rounded up or down, by one uniform shift for all."""
    edges = np.cumsum([expected for *_, expected in moves])
    counts = np.diff(np.floor(edges + rng.random()), prepend=0.0).astype(np.int64)
    law: _Law = defaultdict(int)
    for (_, number, status, _), count in zip(moves, counts.tolist(), strict=True):
        if count:
            law[status, number] += count
    return law


@dataclass(frozen=True)
class Paths:
    """What some paths did.

    sizes: of the query, shape (paths, steps). expected: the expected size in the state it was drawn in. private: the
    status of each request. tables: how many public states needed one and still have it.
    """

    sizes: Integers
    expected: Floats
    private: Integers
    tables: int


def sampled_paths(
    states: States,
    switching: Switching,
    count: int,
    rng: np.random.Generator,
    progress: Callable[[int], None] = lambda steps: None,
) -> Paths:
    """Random paths, each by itself, for models: their filters hardly ever meet a state twice, so none is kept.

    Only a query that was drawn leads to a new state, where descents would look at every query that can be.
    """
    shape = (count, switching.steps)
    sizes, private, expected = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    for path in range(count):
        state, on = states[0], None
        for t in range(switching.steps):
            on = bool(rng.random() < switching.chance(t, on))
            query, drawn = (state.possible, None) if on else next(state.draws(1, rng))
            sizes[path, t], private[path, t] = len(query), on
            expected[path, t] = state.cost if not on and state.has_table else len(query)
            state = state.then(query, private=on, drawn=drawn)
            progress(path * switching.steps + t + 1)
    return Paths(sizes, expected, private, len(states.tables))


def lower_bounds(chain: MarkovChain, switching: Switching) -> list[float | None]:
    """The best proven lower bound on the expected cost of every step, None where none is known.

    That of the rows P**(t - tau) over the sources that can be X_tau given the earlier queries. They are known where no
    query before tau was random, or where the chain has no zeros; elsewhere the paper's bound fails.
    """
    if chain.n > LARGEST_FOR_BOUNDS:
        return [None] * switching.steps
    later = _LaterBounds(chain)
    # (status before, (last private time, whether no query before it was random, the same of now)) -> probability
    law: dict[tuple[bool | None, tuple[int | None, bool, bool]], float] = {(None, (None, True, True)): 1.0}
    found: list[float | None] = []
    for t in range(switching.steps):
        after = defaultdict[tuple[bool | None, tuple[int | None, bool, bool]], float](float)
        parts: list[tuple[float, float | None]] = []
        for (_, (tau, certain_then, certain)), on, weight in _switched(switching, t, law):
            if on:
                support = later.support(t, certain)
                parts.append((weight, None if support is None else float(len(support))))
                after[True, (t, certain, certain)] += weight
            else:
                bound = 1.0 if tau is None else later.at(t, tau, later.support(tau, certain_then))
                parts.append((weight, bound))
                after[False, (tau, certain_then, False)] += weight
        known = [weight * bound for weight, bound in parts if bound is not None]
        found.append(math.fsum(known) if len(known) == len(parts) else None)
        law = after
    return found


class _LaterBounds:
    """Lower bounds for rows P**k over the possible private requests, each worked out once."""

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        transition = chain.transition
        self.smooth = bool((transition > 0).all()) if isinstance(transition, np.ndarray) else False
        self._known: dict[tuple[int, ...], list[float]] = {}

    def support(self, tau: int, certain: bool) -> tuple[int, ...] | None:
        """The sources that can be X_tau given the queries before it."""
        if certain:
            reached: Any = np.flatnonzero(self.chain.initial)
            for _ in range(tau):
                reached = self.chain.successors(reached.tolist())
            return tuple(reached.tolist())
        return tuple(range(self.chain.n)) if self.smooth else None

    def at(self, t: int, tau: int, support: tuple[int, ...] | None) -> float | None:
        if support is None:
            return None
        known = self._known.setdefault(support, [])
        if len(known) < t - tau:
            known[:] = [step.lower for step in step_bounds(self.chain, max(t - tau, 2 * len(known)), support)]
        return known[t - tau - 1]


def naive_leaks(chain: MarkovChain, switching: Switching) -> list[float] | None:
    """What naive switching (everything while ON, the plain request while OFF) tells at every step, in bits.

    I(X_B ; Q_t | Q_[t-1]), B the private times: nothing while ON. While OFF, with s the last OFF time before t,

        H(X_t | X_s) - H(X_t | X_{t-1}),

    because given the plain X_s, X_t depends on the private requests in between through X_{t-1} alone; zero if
    s = t - 1. Before the first OFF, H(X_t) takes the place of H(X_t | X_s). None for chains too large to power.
    """
    if chain.n > LARGEST_FOR_BOUNDS:
        return None
    transition = chain.dense()
    laws = [chain.initial]
    powers: list[Floats] = [np.eye(chain.n), transition]
    law: dict[tuple[bool | None, int | None], float] = {(None, None): 1.0}  # status before, last OFF time
    found = []
    for t in range(switching.steps):
        after = defaultdict[tuple[bool | None, int | None], float](float)
        bits = 0.0
        for (before, s), on, weight in _switched(switching, t, law):
            after[on, s if on else t] += weight
            if before and not on:
                while s is not None and len(powers) <= t - s:
                    powers.append(powers[-1] @ transition)
                unknown = entropy_bits([laws[t]])[0] if s is None else laws[s] @ entropy_bits(powers[t - s])
                bits += weight * float(unknown - laws[t - 1] @ entropy_bits(transition))
        found.append(max(bits, 0.0))
        laws.append(laws[-1] @ transition)
        law = after
    return found
