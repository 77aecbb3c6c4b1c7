"""Session: the user. One request in, one query out.

    memory (public rows, secret u)  +  request (x, ON or OFF)  ->  query (a set that contains x)  +  memory

ON      ask for every source that can be wanted now: the query depends on nothing but earlier queries.
OFF     draw from the table of the memory's rows, given the hidden u and the wanted x.
        One row only: there is nothing to hide, and the plain request is sent.

BLIND   where private requests were lost, under a model with types or longer contexts: everything, until ON.

A request that the model calls impossible cannot be asked privately. It is sent as "everything", which hides x
among all sources and starts afresh; the caller is told by `query.note`, and should use a smoother model.

Randomness comes from the operating system. A session never draws twice for one request: `request` first
computes query and next memory, then adopts both.
"""

from __future__ import annotations

import copy
import os
import secrets
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol, cast

import numpy as np

from onoff.errors import InvalidInput, UnknownScheme, nearest
from onoff.model.certificate import LeakLimit
from onoff.model.chain import MarkovChain, Names, Sources
from onoff.model.contexts import Model, RequestModel, check_model
from onoff.model.notebook import html_table
from onoff.model.people import OpenHistory
from onoff.model.rows import Floats, Rows, SparseRows
from onoff.schemes import LEAK, design, find_scheme
from onoff.schemes.race import Drawn, Race
from onoff.session.budget import Budgeted, odometer_bits, without_budget
from onoff.session.filter import ModelFilter, TypeFilter
from onoff.session.memories import Announced, BayesFilter, LastQueries, LastQuery, NothingKnown
from onoff.session.topics import TopicLists, TopicRows, Topics, TopicsDrawn
from onoff.system.interrupts import is_shutting_down
from onoff.tables.files import load_table, save_table, table_path
from onoff.tables.table import QuerySource, QueryTable

# --------------------------------------------------------------------------------------------------------------------
# What the next query must hide, and what it may depend on.
#
# A memory is an immutable value with a public and a secret part:
#
#     rows        public   p(x_t | u): the law of the next request for every value u of what must stay hidden
#     secret_row  secret   which u is the truth
#
# and one way forward, `after(...)`, once a query has been sent. Everything a server could know about the state
# is in `rows`, which is why the table for the next request can be built before that request exists.
#
#     name            chain                      model
#     last-query      LastQuery (the default)    LastQueries: as many as the order, one type only
#     bayes-filter    BayesFilter, the paper's   ModelFilter (the default): the last `hide` private requests
#
# hide="person" is the last query with the type of the person, hide="type" the filter of the type alone. Where topics
# are hidden, the last query hides those of all private requests, and the filter those of the last `hide`.
#
# Before the first request there is one row, the law of first requests: nothing is hidden yet and the plain request
# is
# sent.


class Memory(Protocol):
    """The state of a session between two requests."""

    @property
    def rows(self) -> Rows | SparseRows:
        """Public: the law of the next request for every hidden value."""
        ...

    @property
    def secret_row(self) -> int:
        """Secret: the row that is true."""
        ...

    @property
    def key(self) -> Hashable | None:
        """Public: two memories with the same key have the same rows; None before the first request."""
        ...

    @property
    def lasting(self) -> bool:
        """Public: every session comes to these rows, so that their table is worth keeping on disk."""
        ...

    @property
    def rounding(self) -> int:
        """Public: how far rounding can move the joint law of hidden value and queries, in total variation, times UNIT.

        It bounds what all queries together tell. The rows of one state are that law divided by the probability of the
        queries that led there: after queries of probability 1e-17 they may be off by more, however seldom that is.
        """
        ...

    @property
    def blind(self) -> bool:
        """Public: what must stay hidden is not known, so that everything is asked until privacy is ON."""
        ...

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None) -> Memory:
        """The state once `query` was sent for `wanted`.

        private: `wanted` is itself to be hidden from now on. table: where the query was drawn from, None where it
        was the plain request, or everything, which was asked whatever was wanted.
        """
        ...

    def afresh(self, wanted: int) -> Memory:
        """The state once everything was asked for `wanted`, where nothing older can be relied on."""
        ...

    def again(self, wanted: int) -> Memory:
        """The state once everything was asked for `wanted`, the last request, which this state counts already."""
        ...

    def forgotten(self, wanted: int, *, private: bool) -> Memory:
        """The state once everything was asked for `wanted`, where requests before it were lost, private ones maybe."""
        ...

    def stored(self) -> bytes:
        """Secret: what a journal must keep of the state beyond the last query and the last request."""
        ...

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> Memory | None:
        """The state that was `stored` after `asked` for `wanted`, in a session like this one; None where it is not."""
        ...


MEMORIES = ("last-query", "bayes-filter")


def default_memory(model: Model) -> str:
    """The memory for a model unless told otherwise."""
    return "last-query" if isinstance(model, MarkovChain) else "bayes-filter"


Hide = int | Literal["person", "type"]
"""How many of the last private requests a filter hides; or who the person is too, or that alone."""


def start(
    name: str | None,
    model: Model | Names,
    hide: Hide = 1,
    topics: Topics | None = None,
    person: int | None = None,
) -> Memory:
    """The memory of that name (default: the one that suits model and `hide`), before the first request.

    Raises UnknownScheme or InvalidInput.
    """
    if isinstance(model, Names):
        return NothingKnown()
    if name is not None and name not in MEMORIES:
        raise UnknownScheme(f"no memory called {name!r}", hint=nearest(name, MEMORIES))
    if person is not None and not 0 <= person < getattr(model, "types", 1):
        raise InvalidInput(f"person = {person}", hint=f"types are numbered 0 to {getattr(model, 'types', 1) - 1}")
    if isinstance(hide, str):
        return _start_hiding_types(name, model, hide, topics, person)
    if person is not None:
        raise InvalidInput("a person's type that is not to be hidden", hint='hide="person", or hide="type"')
    if hide < 1:
        raise InvalidInput(f"hide = {hide}", hint="hide the last 1 or more private requests")
    name = default_memory(model) if name is None else name
    if name == "last-query":
        return LastQuery(model) if isinstance(model, MarkovChain) else LastQueries.start(model)
    if isinstance(model, MarkovChain) and hide == 1 and topics is None:
        return BayesFilter(model, model.initial_rows())
    label = None if topics is None else np.array(topics.of, dtype=np.int64)
    return ModelFilter.start(RequestModel.of(model) if isinstance(model, MarkovChain) else model, hide, label=label)


def _start_hiding_types(name: str | None, model: Model, hide: str, topics: Topics | None, person: int | None) -> Memory:
    if hide not in ("person", "type"):
        raise InvalidInput(f"hide = {hide!r}", hint='a number of private requests, "person" or "type"')
    if name == ("bayes-filter" if hide == "person" else "last-query"):
        raise InvalidInput(f'memory {name!r} cannot serve hide="{hide}"', hint="leave out the memory")
    if person is None and not isinstance(model, MarkovChain) and model.types > 1:
        raise InvalidInput(
            f'hide="{hide}" of a person whose type is not known',
            hint="person=NUMBER says it, to this session only; `model.likeliest_type(requests)` finds it",
        )
    if hide == "person":  # under a chain all people are alike
        if isinstance(model, MarkovChain):
            return LastQuery(model)
        return LastQueries.start(model, person)
    if isinstance(model, MarkovChain) or model.types == 1:
        raise InvalidInput('hide="type" with a model of one type', hint="learn types: `onoff learn --types 4`")
    if topics is not None:
        raise InvalidInput('topics with hide="type", which hides no requests', hint='hide="person" hides both')
    return TypeFilter.of_types(model, person or 0)


# --------------------------------------------------------------------------------------------------------------------
# TableCache: the query tables of one chain or model, built once and kept by the public state they belong to.
#
# A table depends on the model and on the queries so far, all public, so it can be built before the request that
# needs
# it and used again whenever the same state comes back. The least recently used ones are evicted beyond a limit.
#
# The table after "everything", which every private request leads to and which takes longest, is kept on disk as
# well
# where a directory is given. Schemes that can choose among optimal tables are told the chain, so that they prefer
# queries
# with cheap successors; `look_ahead=False` turns that off.


LIMIT_BYTES = 256 * 2**20
"""How much memory the kept tables of one chain may take."""
MOST_TO_LOOK_AT = 300
"""Sources of a chain up to which they are told its rows."""


def _limit_of(memory: Memory) -> LeakLimit | None:
    return memory.limit if isinstance(memory, Budgeted) else None


def _key_of(memory: Memory) -> Hashable | None:
    """What tables are kept by: the rows, and what may be told."""
    limit = _limit_of(memory)
    return memory.key if limit is None or memory.key is None else (memory.key, limit)


class TableCache:
    """The tables of `model` under `scheme`, least recently used first."""

    def __init__(
        self,
        model: Model | Names,
        scheme: str,
        *,
        limit_bytes: int = LIMIT_BYTES,
        store: Path | None = None,
        look_ahead: bool = True,
        **options: Any,
    ) -> None:
        self.model = model
        self.store = store
        self.scheme = find_scheme(scheme).name
        self.look_ahead = look_ahead and find_scheme(scheme).looks_ahead and self._looks_ahead
        self.options = options
        self.limit_bytes = limit_bytes
        self._kept: OrderedDict[Hashable, QuerySource] = OrderedDict()
        self._held = 0
        self._lock = Lock()

    def for_model(self, model: Model) -> TableCache:
        """An empty cache of tables that are made in the same way, for another model; none of them is worth a file."""
        return TableCache(model, self.scheme, limit_bytes=self.limit_bytes, **self.options)

    def of(self, memory: Memory) -> QuerySource:
        """The table for the rows of `memory`."""
        key, limit = _key_of(memory), _limit_of(memory)
        with self._lock:
            if key is not None and key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        lasting = memory.lasting
        table = self._stored(memory.rows, limit) if lasting else self._build(memory.rows, limit, lasting=False)
        if key is not None:
            self._keep(key, table)
        return table

    def of_topic(self, memory: Memory, part: TopicRows) -> QueryTable:
        """The table for the rows within a topic, where `memory` is what is hidden."""
        key = None if memory.key is None else (memory.key, part.sources)
        with self._lock:
            kept = self._kept.get(key) if key is not None else None
        table = self._build(part.rows, lasting=False) if kept is None else kept
        if not isinstance(table, QueryTable):
            raise InvalidInput(f"topics need tables, and scheme {self.scheme!r} gives none", hint="use scheme 'auto'")
        if key is not None:
            self._keep(key, table)
        return table

    def budget(self, *, lasting: bool) -> float | None:
        """Seconds of processor time for a table; None where the scheme does not search.

        lasting: the table after everything, which is kept on disk; for any other one a request is waiting.
        """
        scheme = find_scheme(self.scheme)
        usual = scheme.budget if lasting or scheme.session_budget is None else scheme.session_budget
        return self.options.get("budget", usual)

    def _build(self, rows: Rows | SparseRows, limit: LeakLimit | None = None, *, lasting: bool = True) -> QuerySource:
        options = dict(self.options)
        budget = self.budget(lasting=lasting)
        if limit is not None:
            from onoff.schemes.leak import within

            return within(Rows.of(rows), limit, budget=budget or LEAK.budget or 0.0, stop=is_shutting_down)
        if budget is not None:
            options["budget"] = budget
        if self.look_ahead:
            options["future"] = self._future
        return design(rows, self.scheme, **options)

    def _stored(self, rows: Rows | SparseRows, limit: LeakLimit | None) -> QuerySource:
        """The table after everything: from disk where it is there, else built, and kept there."""
        if self.store is None or not isinstance(rows, Rows):
            return self._build(rows, limit)
        made = {**self.options, "look_ahead": self.look_ahead, **({} if limit is None else {"limit": limit})}
        path = table_path(self.store, self.model.digest(), self.scheme, made)
        found = load_table(path, rows)
        if found is not None and found.limit == limit:
            return found
        table = self._build(rows, limit)
        if isinstance(table, QueryTable):
            save_table(path, table)
        return table

    @property
    def _looks_ahead(self) -> bool:
        """Whether the rows that can come next are known: those of a chain of moderate size."""
        model = self.model
        return isinstance(model, MarkovChain) and not model.is_sparse and model.n <= MOST_TO_LOOK_AT

    @cached_property
    def _future(self) -> Rows:
        if not isinstance(self.model, MarkovChain):
            raise RuntimeError("only a chain is looked ahead in")
        return self.model.rows()

    def has(self, memory: Memory) -> bool:
        """Whether that table is in the cache."""
        with self._lock:
            return _key_of(memory) in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def _keep(self, key: Hashable, table: QuerySource) -> None:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = table
                self._held += table.nbytes
            while self._held > self.limit_bytes and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._held -= dropped.nbytes


# --------------------------------------------------------------------------------------------------------------------
# Where randomness comes from.
#
# Real queries draw from the operating system and from nothing else: there is no seed to leak, to guess or to
# restore from a backup. Everything random in a session goes through one small interface, so that a test can
# replace it by a script or by an enumeration of every branch (`audit.branches`). Seeded sources are for experiments
# only
# (`seeded`).


class Entropy(Protocol):
    """One draw at a time."""

    def choose(self, weights: Sequence[int]) -> int:
        """An index i with probability weights[i] / sum(weights), exactly."""
        ...

    def uniforms(self, count: int) -> Floats:
        """`count` floats, uniform on the open interval (0, 1), of 53 random bits each."""
        ...


class SystemEntropy:
    """The operating system's randomness."""

    def choose(self, weights: Sequence[int]) -> int:
        edges = list(accumulate(int(weight) for weight in weights))
        return bisect_right(edges, secrets.randbelow(edges[-1]))

    def uniforms(self, count: int) -> Floats:
        bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(11)
        # The last of the 2**53 midpoints has no float of its own: it would round to 1, whose logarithm is 0.
        return np.asarray(np.minimum((bits + 0.5) * 2.0**-53, 1 - 2.0**-53), dtype=np.float64)


LOST_PAST = "what was private before is not known: everything is asked until privacy has been ON"
LOST_PERSON = "what was asked before is not known, and it may show who asks: from now on everything is asked"
IMPOSSIBLE = "the model gives this request probability zero: everything was asked instead"


@dataclass(frozen=True)
class Query:
    """What the server sees of one request: a set of sources, ascending.

    note: None, or why everything was asked where less would have been expected. Never part of what is sent.

    >>> query = Query((0, 2), n=3)
    >>> len(query), 2 in query, query.everything
    (2, True, False)
    """

    sources: tuple[int, ...]
    n: int
    note: str | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.sources)

    def __contains__(self, source: object) -> bool:
        return source in self.sources

    @property
    def everything(self) -> bool:
        """Whether every source is asked for."""
        return len(self.sources) == self.n


class Session:
    """A user who switches privacy ON and OFF, and whose requests follow `model`: a MarkovChain or a RequestModel.

    Parameters
    ----------
    model
        How requests follow one another; `Names` where that is not known: then everything is asked, always.
    scheme
        How queries are built, with its `options`.
    memory
        "last-query" (the default for a chain), "bayes-filter" (the default for a model), or a Memory to go on from.
    hide
        With a filter: how many of the last private requests stay hidden. "person": all of them, and the type of the
        person; "type": that alone. Ask `expected_cost` for the price.
    person
        With these two: the number of the person's type in the model. Secret: it never leaves the session.
    leak
        Bits that the queries since a private request may tell about it; see `spent`. 0: nothing.
    topics
        Names of topics with their sources, or several such lists: hide the topic of private requests, not the source.
        The rest is one topic. While ON about one source of each topic is asked for. The last query hides the topics of
        all private requests, a filter those of the last `hide`.
    everything
        Ask for all sources while ON, even impossible ones.
    entropy, tables
        Where randomness comes from; tables to share with other sessions of the same model.
    history
        What was openly asked before, which `model` was made of (`own_law`), or a history without requests. After each
        request `session.history` is the one to keep. A longer one than the model was made of needs the memory, too.

    Raises
    ------
    UnknownScheme, InvalidInput
        Where scheme, memory, tables or history do not fit.

    >>> session = Session(MarkovChain([[0.8, 0.2], [0.2, 0.8]]), scheme="greedy")
    >>> session.request(0, private=True).sources
    (0, 1)
    >>> 1 in session.request(1, private=False)
    True
    """

    def __init__(
        self,
        model: Model | Names,
        scheme: str = "auto",
        memory: Literal["last-query", "bayes-filter"] | Memory | None = None,
        *,
        hide: Hide = 1,
        person: int | None = None,
        leak: float = 0.0,
        topics: TopicLists | None = None,
        everything: bool = False,
        entropy: Entropy | None = None,
        tables: TableCache | None = None,
        history: OpenHistory | None = None,
        **options: Any,
    ) -> None:
        check_model(model)
        self.model = model
        named = memory is None or isinstance(memory, str)
        if history is not None:
            _check_history(model, history, starting=named)
        self.history = history
        self.topics = None if topics is None else Topics.from_lists(topics, model)
        if topics is not None and everything:
            raise InvalidInput("topics, and everything=True", hint="give one of the two")
        self.memory: Memory
        if memory is None or isinstance(memory, str):
            self.memory = start(memory, model, hide, self.topics, person)
        else:
            self.memory = memory
        if named and history is not None and isinstance(model, RequestModel) and type(self.memory) is ModelFilter:
            context = model.context_of(history.last)
            self.memory = ModelFilter.start(model, self.memory.hide, context, self.memory.label)
        if leak:
            self.memory = Budgeted.start(self.memory, leak)
        self.everything = everything
        if tables is None:
            tables = TableCache(model, scheme, **options)
        elif tables.model is not model and tables.model.digest() != model.digest():
            raise InvalidInput("tables of another model", hint="a table hides the requests of its own model only")
        elif options or scheme not in ("auto", tables.scheme):
            raise InvalidInput(f"both tables (of {tables.scheme!r}) and how to make them", hint="give one of the two")
        self.tables = tables
        self._entropy: Entropy = SystemEntropy() if entropy is None else entropy
        self._private: bool | None = None

    def __repr__(self) -> str:
        """Nothing that the server does not know: how many requests it may be that must stay hidden, and not which."""
        mode = {None: "not asked yet", True: "ON", False: "OFF"}[self._private]
        hidden = f"{self.memory.rows.m} hidden" if self.memory.rows.distinct > 1 else "nothing hidden"
        hidden = "the past not known" if self.memory.blind else hidden
        return f"<Session: {self.model.n} sources, {mode}, {hidden}>"

    def _repr_html_(self) -> str:
        """What the server knows too: how the last request was made, and among how many it is hidden."""
        hidden = (
            f"one of {self.memory.rows.m} values"
            if self.memory.rows.distinct > 1
            else "nothing that a query could tell"
        )
        mode = {None: "not asked yet", True: "ON", False: "OFF"}[self._private]
        lines = [("sources", self.model.n), ("the last request", mode), ("to be hidden by the next", hidden)]
        return html_table("Session", ["", ""], lines)

    @property
    def chain(self) -> MarkovChain:
        """The model where it is a first-order chain. Raises InvalidInput where it is not."""
        if not isinstance(self.model, MarkovChain):
            raise InvalidInput("a session of a model with types or longer contexts", hint="this needs a chain")
        return self.model

    @property
    def spent(self) -> float:
        """Bits that the queries since the last private request may have told about it: its odometer, never too low."""
        memory = self.memory
        if not isinstance(memory, Budgeted) or not memory.odometers:
            return 0.0
        bits = odometer_bits(memory.spent[0])
        return min(bits, memory.bits) if memory.spent[0] <= memory.whole else bits

    def request(self, source: int | str, *, private: bool) -> Query:
        """The query to send for `source`; the session's state is then the one after it."""
        before = self.memory
        query, self.memory = self.propose(source, private=private)
        if self.history is not None:
            self.history = history_after(self.history, before, query, self.model.index(source), private=private)
        self._private = private
        return query

    def propose(self, source: int | str, *, private: bool) -> tuple[Query, Memory]:
        """The query and the memory after it, without adopting them. Draws; call it once per request."""
        x = self.model.index(source)
        memory = self.memory
        if memory.blind:
            everything = tuple(range(self.model.n))
            after = memory.after(everything, x, private=private, table=None)
            why = LOST_PERSON if isinstance(without_budget(memory), TypeFilter) else None if private else LOST_PAST
            return Query(everything, self.model.n, why), after
        if private and self.topics is not None:
            return self._among_topics(x)
        if private:
            possible = self._possible()
            if x not in possible:
                return self._fall_back(x)
            return Query(possible, self.model.n), memory.after(possible, x, private=True, table=None)
        row = memory.secret_row
        if memory.rows.weight(row, x) == 0:
            return self._fall_back(x)
        if memory.rows.distinct == 1:
            return Query((x,), self.model.n), memory.after((x,), x, private=False, table=None)
        table = self.tables.of(memory)
        if isinstance(table, Race) and isinstance(without_budget(memory), ModelFilter):
            raced = table.draw_winners(row, x, self._entropy)
            return Query(raced.sources, self.model.n), memory.after(raced.sources, x, private=False, table=raced)
        sources = table.draw(row, x, self._entropy)
        return Query(sources, self.model.n), memory.after(sources, x, private=False, table=table)

    def announce(self, source: int | str, *, after: int) -> None:
        """Hide, from now on, that `source` will be asked for privately after so many more requests.

        Raises InvalidInput where the model calls that impossible, where one is announced already, and for models with
        types, filters and budgets.
        """
        self.memory = self.announcing(source, after)

    def announcing(self, source: int | str, after: int) -> Memory:
        """The memory that hides it, without adopting it."""
        x = self.model.index(source)
        if isinstance(self.memory, Announced):
            raise InvalidInput("a request is announced already", hint="announce the next one once it was made")
        if not isinstance(self.memory, LastQuery) or self.topics is not None:
            raise InvalidInput(
                "a session that cannot hide what is announced",
                hint="it takes a chain and its last query: no leak, topics",
            )
        return Announced.of(self.memory, x, after)

    def prepare(self) -> None:
        """Build the table that an OFF request would need now. It depends on nothing secret, so do it ahead of time."""
        if self.memory.rows.distinct > 1:
            self.tables.of(self.memory)

    def expected_cost(self, *, private: bool) -> float:
        """The expected number of messages of the next request. It depends on nothing secret."""
        if private and self.topics is not None and not self.memory.blind:
            return sum(table.cost for _, table in self._topic_tables())
        if self.memory.blind or private:
            return len(self._possible())
        return 1.0 if self.memory.rows.distinct == 1 else self.tables.of(self.memory).cost

    @property
    def state(self) -> Hashable:
        """What the session remembers, as a value: with the queries sent so far it decides all that follows. Secret."""
        return cast("Hashable", self.memory)

    def fork(self, entropy: Entropy) -> Session:
        """A session in the same state that draws from `entropy`; the two share their tables and nothing else."""
        twin = copy.copy(self)
        twin._entropy = entropy
        return twin

    def _among_topics(self, x: int) -> tuple[Query, Memory]:
        """A part of every topic that can be wanted: of that of x given what is hidden, of the others whatever it is."""
        memory, row = self.memory, self.memory.secret_row
        if memory.rows.weight(row, x) == 0:
            return self._fall_back(x)
        if self.topics is None or not isinstance(memory.rows, Rows):
            raise RuntimeError("no topics, or rows that are not tabled")
        hidden, weight = int(memory.rows.group[row]), int(memory.rows.weight(row, x))
        query: set[int] = set()
        drawn = TopicsDrawn(memory.rows, self.topics.of, self._topic_tables())
        for part, table in drawn.parts:
            if x in part.sources:
                query.update(part.draw(table, hidden, x, weight, self._entropy))
            else:
                query.update(part.draw_any(table, self._entropy))
        sources = tuple(sorted(query))
        return Query(sources, self.model.n), memory.after(sources, x, private=True, table=drawn)

    def _topic_tables(self) -> list[tuple[TopicRows, QueryTable]]:
        """The table of each topic that can be wanted now. They depend on nothing secret."""
        rows = self.memory.rows
        if self.topics is None or not isinstance(rows, Rows):
            raise InvalidInput(f"topics among {self.model.n} sources need tables", hint="use fewer sources")
        return [(part, self.tables.of_topic(self.memory, part)) for part in self.topics.parts(rows)]

    def _possible(self) -> tuple[int, ...]:
        if self.everything or self.memory.blind:
            return tuple(range(self.model.n))
        return tuple(self.memory.rows.columns.tolist())

    def _fall_back(self, x: int) -> tuple[Query, Memory]:
        everything = tuple(range(self.model.n))
        return Query(everything, self.model.n, IMPOSSIBLE), self.memory.afresh(x)


def history_after(history: OpenHistory, before: Memory, query: Query, wanted: int, *, private: bool) -> OpenHistory:
    """The open history after a request, whose memory was `before`: its value where it was plain whatever its value.

    A query for one source is not enough: drawn from a table it was likelier for some values of `wanted` than for
    others, given what is hidden. It enters as every set does: through the memory, with its chances.
    """
    plain = not private and not before.blind and query.note is None and before.rows.distinct == 1
    return history.after(wanted if plain else None, private=private or query.note is not None)


def _check_history(model: Sources, history: OpenHistory, *, starting: bool) -> None:
    """Raise InvalidInput unless the model knows what the history tells, of this server."""
    made = getattr(model, "about", {}).get("own_law", {})
    if history.n != model.n or made.get("server", history.server) != history.server:
        raise InvalidInput(
            f"the history of {history.server} ({history.n} sources) for a model of another server",
            hint="what one server saw must not show in what another is asked",
        )
    if starting and history.hidden:
        raise InvalidInput(
            "something private was asked since this history began, and the memory of it is not given",
            hint="go on from the session's memory: Session(model, memory=..., history=...)",
        )
    if starting and history.open and made.get("history") != history.digest():
        raise InvalidInput(
            f"a model that was not made of this history of {history.open} open requests: the server would know more "
            "than the session",
            hint="make it of them: own_law(model, history, ...)",
        )
