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
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, check_model
from onoff.schemes.race import Race
from onoff.session.cache import TableCache
from onoff.session.entropy import Entropy, SystemEntropy
from onoff.session.filter import ModelFilter
from onoff.session.memory import Memory, start

LOST_PAST = "what was private before is not known: everything is asked until privacy has been ON"
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
        How requests follow one another.
    scheme
        How queries are built, with its `options`.
    memory
        "last-query" (the default for a chain), "bayes-filter" (the default for a model), or a Memory to go on from.
    hide
        With a filter: how many of the last private requests stay hidden.
    everything
        Ask for all sources while ON, even impossible ones.
    entropy, tables
        Where randomness comes from; tables to share with other sessions of the same model.

    Raises
    ------
    UnknownScheme, InvalidInput
        Where scheme, memory or tables do not fit.

    >>> session = Session(MarkovChain([[0.8, 0.2], [0.2, 0.8]]), scheme="greedy")
    >>> session.request(0, private=True).sources
    (0, 1)
    >>> 1 in session.request(1, private=False)
    True
    """

    def __init__(
        self,
        model: Model,
        scheme: str = "auto",
        memory: Literal["last-query", "bayes-filter"] | Memory | None = None,
        *,
        hide: int = 1,
        everything: bool = False,
        entropy: Entropy | None = None,
        tables: TableCache | None = None,
        **options: Any,
    ) -> None:
        check_model(model)
        self.model = model
        self.memory: Memory = start(memory, model, hide) if memory is None or isinstance(memory, str) else memory
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

    @property
    def chain(self) -> MarkovChain:
        """The model where it is a first-order chain. Raises InvalidInput where it is not."""
        if not isinstance(self.model, MarkovChain):
            raise InvalidInput("a session of a model with types or longer contexts", hint="this needs a chain")
        return self.model

    def request(self, source: int | str, *, private: bool) -> Query:
        """The query to send for `source`; the session's state is then the one after it."""
        query, self.memory = self.propose(source, private=private)
        self._private = private
        return query

    def propose(self, source: int | str, *, private: bool) -> tuple[Query, Memory]:
        """The query and the memory after it, without adopting them. Draws; call it once per request."""
        x = self.model.index(source)
        memory = self.memory
        if memory.blind:
            everything = tuple(range(self.model.n))
            after = memory.after(everything, x, private=private, table=None)
            return Query(everything, self.model.n, None if private else LOST_PAST), after
        if private:
            possible = self._possible()
            if x not in possible:
                return self._fall_back(x)
            return Query(possible, self.model.n), memory.after(possible, x, private=True, table=None)
        if memory.rows.weight(memory.secret_row, x) == 0:
            return self._fall_back(x)
        if memory.rows.distinct == 1:
            return Query((x,), self.model.n), memory.after((x,), x, private=False, table=None)
        table = self.tables.of(memory)
        if isinstance(table, Race) and isinstance(memory, ModelFilter):
            raced = table.draw_winners(memory.secret_row, x, self._entropy)
            return Query(raced.sources, self.model.n), memory.after(raced.sources, x, private=False, table=raced)
        sources = table.draw(memory.secret_row, x, self._entropy)
        return Query(sources, self.model.n), memory.after(sources, x, private=False, table=table)

    def prepare(self) -> None:
        """Build the table that an OFF request would need now. It depends on nothing secret, so do it ahead of time."""
        if self.memory.rows.distinct > 1:
            self.tables.of(self.memory)

    def expected_cost(self, *, private: bool) -> float:
        """The expected number of messages of the next request. It depends on nothing secret."""
        if private or self.memory.blind:
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

    def _possible(self) -> tuple[int, ...]:
        if self.everything or self.memory.blind:
            return tuple(range(self.model.n))
        return tuple(self.memory.rows.columns.tolist())

    def _fall_back(self, x: int) -> tuple[Query, Memory]:
        everything = tuple(range(self.model.n))
        return Query(everything, self.model.n, IMPOSSIBLE), self.memory.afresh(x)
