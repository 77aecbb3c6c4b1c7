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

from collections import Counter
from collections.abc import Hashable
from functools import cached_property
from typing import Any, cast

import numpy as np

from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Floats, Integers, Rows, SparseRows
from onoff.session.cache import TableCache
from onoff.session.last_query import LastQuery
from onoff.session.memory import Memory, start
from onoff.session.seeded import SeededEntropy
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
