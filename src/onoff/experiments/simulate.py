"""Many users at once: requests drawn from the chain (or given), queries drawn exactly as `Session` draws them.

Users are grouped by public state (see `states`). A group shares one table, whose cells (row, source, query) are laid
out once as cumulative integer weights; then the query of every user of the group is one uniform integer below
p(x | u) and one binary search. The draws follow the same integers as `Session`, so the two agree in law exactly; a
plain loop over `Session` is the executable specification that the tests compare with.

Only sums are kept (sizes by step, totals by user), and users go through in blocks, so memory does not grow with
their number.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from onoff.errors import InvalidInput
from onoff.experiments.states import NOWHERE, State, States
from onoff.experiments.switching import Booleans, Switching, draw_statuses
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Floats, Integers, exact_sum
from onoff.session.seeded import SeededEntropy
from onoff.tables.table import QueryTable

BLOCK = 100_000
"""Users that go through together."""
ROWS_PER_SEARCH = 15
"""Rows whose cumulative weights fit one array of 64-bit keys: row number times UNIT plus weight."""
MOST_USERS = 10**9
SAMPLER_BYTES = 256 * 2**20
"""Memory for the tables laid out for drawing."""


@dataclass(frozen=True)
class Simulation:
    """What `users` users downloaded.

    sizes: how many queries of each size there were at each step; shape (steps, N + 1).
    private: how many of the requests of each step were made with privacy ON.
    impossible: requests that the chain calls impossible, sent as everything.
    total_stderr: the standard error of the mean total per user.
    """

    users: int
    sizes: Integers
    private: Integers
    impossible: int
    total_stderr: float | None
    states: int = field(compare=False)

    @property
    def cost(self) -> Floats:
        """The mean number of messages of each step."""
        return np.asarray(self.sizes @ np.arange(self.sizes.shape[1]) / self.users, dtype=np.float64)

    @property
    def stderr(self) -> list[float | None]:
        """The standard error of each mean; None for a single user."""
        if self.users < 2:
            return [None] * len(self.sizes)
        apart = (np.arange(self.sizes.shape[1]) - self.cost[:, None]) ** 2
        variance = (self.sizes * apart).sum(axis=1) / (self.users - 1)
        return [math.sqrt(value / self.users) for value in variance.tolist()]

    @property
    def total(self) -> float:
        """The mean number of messages per user."""
        return float(self.cost.sum())


def simulate(
    chain: MarkovChain,
    scheme: str,
    switching: Switching,
    users: int,
    seed: int,
    *,
    memory: str = "last-query",
    everything: bool = False,
    requests: Integers | None = None,
    progress: Callable[[int], None] | None = None,
    states: States | None = None,
    observe: Callable[[int, Integers, Integers, Integers], None] | None = None,
    **options: Any,
) -> Simulation:
    """Simulate `users` users under `switching`; the same seed gives the same numbers.

    requests: the sources wanted, shape (users, steps), instead of draws from the chain. states: public states of an
    earlier run with the same chain, scheme and memory, whose tables are used again. observe: called at every step of a
    block with t and, for every user, the number of the state after it, what was wanted, and how many were asked.
    """
    if not 1 <= users <= MOST_USERS:
        raise InvalidInput(f"{users} users cannot be simulated", hint=f"give 1 to {MOST_USERS}")
    if seed < 0:
        raise InvalidInput(f"{seed} is not a seed", hint="give an integer from 0 up")
    if requests is not None and requests.shape != (users, switching.steps):
        raise InvalidInput(
            f"requests of shape {requests.shape} for {users} users and {switching.steps} steps",
            hint="one row for each user, one column for each step",
        )
    if states is None:
        states = States(chain, scheme, memory, everything=everything, **options)
    crowd = _Crowd(states, np.random.default_rng(seed), observe)
    sizes = np.zeros((switching.steps, chain.n + 1), dtype=np.int64)
    private = np.zeros(switching.steps, dtype=np.int64)
    total = squares = 0
    for first in range(0, users, BLOCK):
        count = min(BLOCK, users - first)
        given = None if requests is None else requests[first : first + count]
        totals = crowd.run(count, switching, given, sizes, private)
        total += int(totals.sum())
        squares += sum(exact_sum(totals**2, axis=0))
        if progress is not None:
            progress(first + count)
    spread = None
    if users > 1:
        # The sums are whole numbers, however large: their difference is exact, and not negative.
        spread = math.sqrt((users * squares - total * total) / (users * users * (users - 1)))
    return Simulation(users, sizes, private, crowd.impossible, spread, len(states))


class _Crowd:
    """A block of users on their way through the steps."""

    def __init__(
        self,
        states: States,
        rng: np.random.Generator,
        observe: Callable[[int, Integers, Integers, Integers], None] | None = None,
    ) -> None:
        self.states = states
        self.chain = states.chain
        self.rng = rng
        self.observe = observe
        self.impossible = 0
        self._samplers: OrderedDict[int, _Sampler] = OrderedDict()
        self._held = 0

    def run(
        self, count: int, switching: Switching, given: Integers | None, sizes: Integers, private: Integers
    ) -> Integers:
        """Take `count` users through every step, adding to the sums; the total of each user is returned."""
        state = np.zeros(count, dtype=np.int64)
        secret = np.zeros(count, dtype=np.int64)
        wanted = secret
        status: Booleans | None = None
        totals = np.zeros(count, dtype=np.int64)
        for t in range(switching.steps):
            status = draw_statuses(switching, t, status, count, self.rng)
            wanted = self._requests(wanted if t else None, count) if given is None else given[:, t]
            state, asked, anew = self._step(state, secret, wanted, status)
            secret = np.where(anew, wanted, secret)
            sizes[t] += np.bincount(asked, minlength=sizes.shape[1])
            private[t] += int(status.sum())
            totals += asked
            if self.observe is not None:
                self.observe(t, state, wanted, asked)
        return totals

    def _requests(self, before: Integers | None, count: int) -> Integers:
        """The next request of every user, by the chain's own integers."""
        if before is None:
            rows = self.chain.initial_rows()
            return _inverse(rows.columns, rows.weights[0], self.rng.integers(UNIT, size=count))
        wanted = np.empty_like(before)
        uniform = self.rng.integers(UNIT, size=count)
        for x, members in _groups(before):
            wanted[members] = _inverse(*self.chain.row_units(x), uniform[members])
        return wanted

    def _step(
        self, state: Integers, secret: Integers, wanted: Integers, status: Booleans
    ) -> tuple[Integers, Integers, Booleans]:
        """The state after this request, the size of its query, and whether the request is the new secret."""
        after = np.empty_like(state)
        asked = np.empty_like(state)
        anew = status | self.states.keeps_query
        for number, members in _groups(state):
            here = self.states[number]
            row = here.row_of[secret[members]]
            column = here.column_of[wanted[members]]
            on = status[members]
            fine = column != NOWHERE
            fine[~on & fine] = here.rows.reaches(row[~on & fine], column[~on & fine])
            if self.states.force:
                fine |= on
            lost, on, off = members[~fine], members[on & fine], (~on & fine)
            if len(lost):
                self.impossible += len(lost)
                after[lost], asked[lost], anew[lost] = here.after_everything, self.chain.n, True
            if len(on):
                after[on], asked[on] = here.after_private, len(here.possible)
            if off.any():
                at = members[off]
                after[at], asked[at] = self._draw(number, here, row[off], column[off], wanted[at])
        return after, asked, anew

    def _draw(
        self, number: int, here: State, row: Integers, column: Integers, wanted: Integers
    ) -> tuple[Integers, Integers | int]:
        if here.plain:
            return here.following[2][column], 1
        if not here.has_table:
            return self._draw_one_by_one(here, row, wanted)
        drawn = self._sampler(number, here).draw(row, column, self.rng)
        _, sizes, following = here.following
        return following[drawn], sizes[drawn]

    def _sampler(self, number: int, here: State) -> _Sampler:
        """The sampler of a state; the least recently used ones are let go."""
        if number in self._samplers:
            self._samplers.move_to_end(number)
            return self._samplers[number]
        sampler = self._samplers[number] = _Sampler(cast("QueryTable", here.source))
        self._held += sampler.nbytes
        while self._held > SAMPLER_BYTES and len(self._samplers) > 1:
            self._held -= self._samplers.popitem(last=False)[1].nbytes
        return sampler

    def _draw_one_by_one(self, here: State, row: Integers, wanted: Integers) -> tuple[Integers, Integers]:
        """For schemes without a table."""
        entropy, source = SeededEntropy(self.rng), here.source
        first = {r: u for u, r in reversed(list(enumerate(here.rows.group.tolist())))}
        queries = [source.draw(first[r], x, entropy) for r, x in zip(row.tolist(), wanted.tolist(), strict=True)]
        after = [self.states.after(here, query, private=False) for query in queries]
        return np.array(after, dtype=np.int64), np.array([len(query) for query in queries], dtype=np.int64)


class _Sampler:
    """The cells of a table by (row, source), as cumulative weights: a query in one search.

    Within row r the cells of source x fill the interval [base[r, x], base[r, x] + p(x|r)) of 0, ..., UNIT - 1. A
    uniform integer of that interval therefore falls on query q with probability p(q | x, r), exactly.
    """

    def __init__(self, table: QueryTable) -> None:
        self.weights = table.rows.weights
        self.base = np.cumsum(self.weights, axis=1) - self.weights
        owner = np.searchsorted(table.offsets, table.slots, side="right") - 1
        self.edges: list[tuple[np.ndarray[Any, np.dtype[np.uint64]], Integers]] = []
        for first in range(0, table.rows.distinct, ROWS_PER_SEARCH):
            keys, queries = [], []
            for r in range(first, min(first + ROWS_PER_SEARCH, table.rows.distinct)):
                cells = slice(int(table.starts[r]), int(table.starts[r + 1]))
                order = np.argsort(table.items[table.slots[cells]], kind="stable")
                queries.append(owner[cells][order])
                keys.append(np.cumsum(table.weights[cells][order]).astype(np.uint64) + np.uint64((r - first) * UNIT))
            self.edges.append((np.concatenate(keys), np.concatenate(queries).astype(np.int64)))

    @property
    def nbytes(self) -> int:
        """Memory held."""
        cells = sum(keys.nbytes + queries.nbytes for keys, queries in self.edges)
        return self.weights.nbytes + self.base.nbytes + cells

    def draw(self, row: Integers, column: Integers, rng: np.random.Generator) -> Integers:
        """The number of the query for each (row, column)."""
        place = self.base[row, column] + rng.integers(self.weights[row, column])
        drawn = np.empty_like(row)
        for block, (keys, queries) in enumerate(self.edges):
            mine = row // ROWS_PER_SEARCH == block if len(self.edges) > 1 else slice(None)
            key = (row[mine] % ROWS_PER_SEARCH).astype(np.uint64) * np.uint64(UNIT) + place[mine].astype(np.uint64)
            drawn[mine] = queries[np.searchsorted(keys, key, side="right")]
        return drawn


def _inverse(sources: Integers, weights: Integers, uniform: Integers) -> Integers:
    """The source on whose interval of units each uniform integer falls."""
    return sources[np.searchsorted(np.cumsum(weights), uniform, side="right")]


def _groups(values: Integers) -> list[tuple[int, Integers]]:
    """Each value that occurs, with the places where it does."""
    order = np.argsort(values, kind="stable")
    listed = values[order]
    cuts = np.flatnonzero(np.diff(listed)) + 1
    firsts = np.concatenate([[0], cuts])
    return list(zip(listed[firsts].tolist(), np.split(order, cuts), strict=True))
