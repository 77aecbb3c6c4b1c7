"""States: the public states of a session, numbered, each with its transitions.

What a server knows of a session is the public part of its memory: for `LastQuery` the last query, for the paper's
filter the rows p(x_t | x_tau, q_[t-1]). From a public state the next query is drawn with the masses of its table,
for every user, so public states form a Markov chain of their own:

    OFF   query k of the table with probability mass[k]; where nothing is at stake, {x} with the one row's probability
    ON    every source that is possible now

Users who are in the same public state share one table, which is what makes simulating many of them cheap. The
secret of each is one source, hidden in the state's `anchor`: the last query, or for the paper's filter the query of
the last private request.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidPattern
from onoff.information import entropy_bits
from onoff.model import patterns
from onoff.model.bounds import step_bounds
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Floats, Integers, Rows, SparseRows
from onoff.session.memories import LastQuery
from onoff.session.session import Memory, SeededEntropy, TableCache, start
from onoff.tables.table import QuerySource, QueryTable

Set = tuple[int, ...]
NOWHERE = -1
"""In place of a row or column: this source is not there."""


class State:
    """One public state: a memory with an arbitrary secret, and the sources among which the secret is."""

    def __init__(self, states: States, anchor: Set, memory: Memory | None = None) -> None:
        self._states = states
        self.anchor = anchor
        if memory is not None:
            self.memory = memory

    @cached_property
    def memory(self) -> Memory:
        """Made when first needed where it follows from the last query: most states are never reached."""
        return LastQuery(self._states.chain, self.anchor, self.anchor[0])

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
        return self._states.tables.of(self.memory)

    @cached_property
    def cost(self) -> float:
        """The expected number of messages of an OFF request."""
        return 1.0 if self.plain else self.source.cost

    @cached_property
    def row_of(self) -> Integers:
        """The distinct row of each secret source; NOWHERE for sources that cannot be the secret."""
        found = np.full(self._states.chain.n, NOWHERE if self.anchor else 0, dtype=np.int64)
        if self.anchor:
            found[list(self.anchor)] = self.rows.group
        return found

    @cached_property
    def column_of(self) -> Integers:
        """The column of each source among the rows; NOWHERE for sources that cannot be wanted now."""
        found = np.full(self._states.chain.n, NOWHERE, dtype=np.int64)
        found[self.rows.columns] = np.arange(len(self.rows.columns))
        return found

    @cached_property
    def after_private(self) -> int:
        """The state after an ON request."""
        return self._states.after(self, self.possible, private=True)

    @cached_property
    def after_everything(self) -> int:
        """The state after all sources were asked because the request was impossible."""
        return self._states.after(self, self._states.everything, private=True)

    @cached_property
    def following(self) -> tuple[Floats, Integers, Integers]:
        """Of every query of an OFF request: its probability, its size, the state after it."""
        if self.plain:
            chances = cast("Rows", self.rows).weights[0] / UNIT  # a single row is always exact
            after = [self._states.after(self, (x,), private=False) for x in self.rows.columns.tolist()]
            return chances, np.ones(len(after), dtype=np.int64), np.array(after, dtype=np.int64)
        table = self.source
        if not isinstance(table, QueryTable):
            raise NoTable(self._states.tables.scheme)
        after = [self._states.after(self, query, private=False, table=table) for query in table.queries]
        return table.mass / UNIT, table.sizes, np.array(after, dtype=np.int64)

    @cached_property
    def has_table(self) -> bool:
        """Whether the law of the next query is known."""
        return self.plain or isinstance(self.source, QueryTable)

    def draws(self, count: int, rng: np.random.Generator) -> Counter[int]:
        """How often each state follows in `count` OFF requests.

        The query has the same law whatever the secret is, so a scheme without a table is asked with the first one.
        """
        if self.has_table:
            chances, _, following = self.following
            drawn = rng.multinomial(count, chances / chances.sum())
            return Counter({int(following[k]): int(drawn[k]) for k in np.flatnonzero(drawn)})
        entropy = SeededEntropy(rng)
        sources, units = self._states.chain.row_units(self.anchor[0])
        wanted = rng.choice(sources, size=count, p=units / UNIT)
        source = self.source
        queries = (source.draw(0, int(x), entropy) for x in wanted)
        return Counter(self._states.after(self, query, private=False) for query in queries)


class NoTable(Exception):
    """A scheme that draws without a table: its law of queries cannot be walked, only sampled."""


class States:
    """The public states reached so far, by number; number 0 is the start, before the first request.

    Tables do not look ahead here unless asked to (`look_ahead=True`): it takes several times as long.
    """

    def __init__(
        self, chain: MarkovChain, scheme: str, memory: str | None = None, *, everything: bool = False, **options: Any
    ) -> None:
        self.chain = chain
        self.tables = TableCache(chain, scheme, **{"look_ahead": False, **options})
        self.force = everything
        self.everything: Set = tuple(range(chain.n))
        self.listed: list[State] = []
        self._numbers: dict[Hashable, int] = {}
        self.keeps_query = memory in (None, "last-query")
        self._add(None, State(self, (), start(memory, chain)))

    def __getitem__(self, number: int) -> State:
        return self.listed[number]

    def __len__(self) -> int:
        return len(self.listed)

    def after(self, state: State, query: Set, *, private: bool, table: QuerySource | None = None) -> int:
        """The number of the state once `query` was sent from `state`, where it was drawn from `table`."""
        if self.keeps_query:
            return self._numbers[query] if query in self._numbers else self._add(query, State(self, query))
        # Which of its sources was wanted is secret and changes nothing that is public.
        memory = state.memory.after(query, query[0], private=private, table=table)
        anchor = query if private else state.anchor
        rows = cast("Rows", memory.rows)  # the paper's filter keeps exact rows
        key = (anchor, rows.columns.tobytes(), rows.weights[rows.group].tobytes())
        return self._numbers[key] if key in self._numbers else self._add(key, State(self, anchor, memory))

    def _add(self, key: Hashable, state: State) -> int:
        self._numbers[key] = len(self.listed)
        self.listed.append(state)
        return self._numbers[key]


# --------------------------------------------------------------------------------------------------------------------
# Switching: when privacy is ON, as a fixed pattern or as a random process.
#
# A process is given by Pr(F_t = ON | F_{t-1}), which is all that the simulator needs.
# F never depends on the requests: a switch that is flipped *because of* a request tells about that request.


Booleans = npt.NDArray[np.bool_]


class Switching(Protocol):
    """The law of the privacy status over time."""

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


# --------------------------------------------------------------------------------------------------------------------
# Expected costs, bounds and leaks along a pattern, without simulating a single request.
#
# The public states of a session are a Markov chain (see `states`), so the expected number of messages at every step
# follows by pushing the law of the state forward: exactly while the states are few, by random descents with a
# standard error where they are many. A descent averages the *expected* cost in each state it meets, which varies
# less than the size of one query, and descents are shared out systematically, which varies less again.
#
# The lower bound for a step is that of the rows P**(t - tau) over the sources that can be X_tau given the earlier
# queries. That support is known where no query before tau was random, or where the chain has no zeros; elsewhere
# the bound is None rather than the paper's, which fails there.


MOST_STATES = 1_000
"""Public states at one time for which the law is pushed forward exactly."""
LARGEST_FOR_BOUNDS = 2_000
"""Sources up to which powers of the chain are formed for bounds and leaks."""


@dataclass(frozen=True)
class ExpectedCost:
    """The expected cost of one step; `stderr` is 0 where it is exact up to rounding of floats."""

    cost: float
    stderr: float


def expected_costs(
    states: States, switching: Switching, *, most_states: int = MOST_STATES
) -> list[ExpectedCost] | None:
    """The expected cost of every step, or None where there are too many states or the scheme has no tables."""
    law: dict[tuple[int, bool | None], float] = {(0, None): 1.0}
    found = []
    for t in range(switching.steps):
        cost = 0.0
        after: dict[tuple[int, bool | None], float] = defaultdict(float)
        for (number, before), weight in law.items():
            state = states[number]
            on = switching.chance(t, before)
            if on > 0:
                cost += weight * on * len(state.possible)
                after[state.after_private, True] += weight * on
            if on < 1:
                if not state.has_table:
                    return None
                cost += weight * (1 - on) * state.cost
                if t + 1 < switching.steps:
                    chances, _, following = state.following
                    for chance, number_after in zip(chances.tolist(), following.tolist(), strict=True):
                        after[number_after, False] += weight * (1 - on) * chance
            if len(after) > most_states:
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

    Each run shares its descents out systematically: what can follow is lined up by size, each with the expected
    number of descents, and every count is that number rounded up or down. This leaves far less to chance than
    drawing each descent by itself.
    """
    count = max(2, min(RUNS, descents // 2))
    runs = np.zeros((count, switching.steps))
    for run in range(count):
        law: dict[tuple[int, bool | None], int] = {(0, None): -(-descents // count)}
        for t in range(switching.steps):
            runs[run, t], following = _one_step(states, switching, t, law, rng)
            law = _shared_out(following, rng)
        if progress is not None:
            progress(f"run {run + 1} of {count}, {len(states)} states")
    return runs


RUNS = 10
"""Independent runs behind a standard error."""


def _one_step(
    states: States, switching: Switching, t: int, law: dict[tuple[int, bool | None], int], rng: np.random.Generator
) -> tuple[float, list[tuple[int, int, bool, float]]]:
    """The mean cost of step t, and what follows: (size of the query, state, status, expected descents)."""
    cost = 0.0
    following: list[tuple[int, int, bool, float]] = []
    for (number, before), count in law.items():
        state = states[number]
        on = switching.chance(t, before)
        if on > 0:
            cost += count * on * len(state.possible)
            following.append((len(state.possible), state.after_private, True, count * on))
        if on < 1 and state.has_table:
            cost += count * (1 - on) * state.cost
            if t + 1 < switching.steps:
                for chance, size, after in zip(*(part.tolist() for part in state.following), strict=True):
                    following.append((size, after, False, count * (1 - on) * chance))
        elif on < 1:  # without a table only the queries themselves tell what they cost
            for after, drawn in state.draws(count, rng).items():
                size = len(states[after].anchor)
                cost += (1 - on) * drawn * size
                following.append((size, after, False, (1 - on) * drawn))
    return cost / sum(law.values()), following


def _shared_out(
    following: list[tuple[int, int, bool, float]], rng: np.random.Generator
) -> dict[tuple[int, bool | None], int]:
    """Whole numbers of descents, each the expected one rounded up or down, by one uniform shift for all."""
    following.sort()
    edges = np.cumsum([expected for *_, expected in following])
    counts = np.diff(np.floor(edges + rng.random()), prepend=0.0).astype(np.int64)
    law: dict[tuple[int, bool | None], int] = defaultdict(int)
    for (_, number, status, _), count in zip(following, counts.tolist(), strict=True):
        if count:
            law[number, status] += count
    return law


def lower_bounds(chain: MarkovChain, switching: Switching) -> list[float | None]:
    """The best proven lower bound on the expected cost of every step, None where none is known."""
    if chain.n > LARGEST_FOR_BOUNDS:
        return [None] * switching.steps
    later = _LaterBounds(chain)
    # (status before, last private time and whether no query before it was random, the same of now) -> probability
    law: dict[tuple[bool | None, int | None, bool, bool], float] = {(None, None, True, True): 1.0}
    found: list[float | None] = []
    for t in range(switching.steps):
        after: dict[tuple[bool | None, int | None, bool, bool], float] = defaultdict(float)
        parts: list[tuple[float, float | None]] = []
        for (before, tau, certain_then, certain), weight in law.items():
            on = switching.chance(t, before)
            if on > 0:
                support = later.support(t, certain)
                parts.append((weight * on, None if support is None else float(len(support))))
                after[True, t, certain, certain] += weight * on
            if on < 1:
                bound = 1.0 if tau is None else later.at(t, tau, later.support(tau, certain_then))
                parts.append((weight * (1 - on), bound))
                after[False, tau, certain_then, False] += weight * (1 - on)
        known = [(weight, bound) for weight, bound in parts if bound is not None]
        found.append(math.fsum(w * b for w, b in known) if len(known) == len(parts) else None)
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
        after: dict[tuple[bool | None, int | None], float] = defaultdict(float)
        bits = 0.0
        for (before, s), weight in law.items():
            on = switching.chance(t, before)
            if on > 0:
                after[True, s] += weight * on
            if on < 1:
                after[False, t] += weight * (1 - on)
                if before:
                    while s is not None and len(powers) <= t - s:
                        powers.append(powers[-1] @ transition)
                    unknown = entropy_bits([laws[t]])[0] if s is None else laws[s] @ entropy_bits(powers[t - s])
                    bits += weight * (1 - on) * float(unknown - laws[t - 1] @ entropy_bits(transition))
        found.append(max(bits, 0.0))
        laws.append(laws[-1] @ transition)
        law = after
    return found
