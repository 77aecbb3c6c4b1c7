"""A server that knows a model of its readers, perhaps a better one than the session does: the Bayes attacker.

It sees every query, knows the switch and how queries are drawn (the session's public memory and its tables), and
believes that requests follow `model`, which need not be the session's. Its state is a `View`: the contexts that are
possible given the queries, and the joint law of the person's type, the private requests and the context, moved on by
the forward filter of `information`.

For each query it needs p(q | u, x), the chance that q is asked when u is hidden and x is wanted: a `Channel`. What u is
depends on the session's memory: the last requests (the observer's own context), or the last private requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np

from onoff.errors import InvalidInput
from onoff.information import EVERYTHING, Belief, row_chances
from onoff.model.contexts import RequestModel
from onoff.model.rows import Floats, Integers
from onoff.session import Query, Session
from onoff.session.budget import lifelong, without_budget
from onoff.session.filter import ModelFilter
from onoff.session.memories import BayesFilter, LastQueries, LastQuery
from onoff.session.session import Memory
from onoff.tables.table import QueryTable

MOST_PROBABILITIES = 20_000_000
"""Probabilities of a model that an observer holds at most."""

Requests = tuple[int, ...]


class ReaderModel(Protocol):
    """What an observer must know of how requests follow one another; a `RequestModel` does."""

    @property
    def n(self) -> int: ...
    @property
    def types(self) -> int: ...
    @property
    def contexts(self) -> Sequence[Requests]: ...
    @property
    def weights(self) -> Floats: ...
    def law(self, type_: int, context: int, /) -> Floats: ...
    def next(self, context: Any, source: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class Channel:
    """How one query was drawn.

    query: the sources asked for, ascending.
    chances: p(q | u, x) for each u (row) and each x of the query; None where the query was sent for every x in it,
    whatever is hidden.
    rows: the row of each value of u, a tuple of requests. of_private: these are the last private requests; otherwise
    they are the last requests.
    """

    query: Requests
    chances: Floats | None = None
    rows: dict[Requests, int] | None = None
    of_private: bool = False

    @property
    def depth(self) -> int:
        """How many requests u is made of."""
        return len(next(iter(self.rows))) if self.rows else 0


def channel_of(session: Session, before: Memory, query: Query, *, private: bool) -> Channel:
    """How `query` was drawn by `session`, whose memory was `before`. Reads nothing secret.

    Raises InvalidInput where the scheme keeps no table.
    """
    if private or before.rows.distinct == 1:
        return Channel(query.sources)
    table = session.tables.of(before)
    if not isinstance(table, QueryTable):
        raise InvalidInput("this scheme keeps no table to judge by", hint="use auto, greedy or optimal")
    rows, of_private = hidden_values(before)
    return Channel(query.sources, row_chances(table, query.sources), rows, of_private)


def hidden_values(memory: Memory) -> tuple[dict[Requests, int], bool]:
    """The row of each value that a memory hides, and whether these are private requests; see `Channel`."""
    memory = without_budget(memory)
    if lifelong(memory):
        raise InvalidInput("sessions that hide the person cannot be judged by traces", hint="see `onoff audit exact`")
    if isinstance(memory, LastQuery):
        return {(x,): row for row, x in enumerate(memory.last or ())}, False
    if isinstance(memory, BayesFilter):
        if memory.rows.m != memory.chain.n:
            raise InvalidInput("a chain with zeros under the paper's filter", hint="use the memory 'last-query'")
        return {(x,): x for x in range(memory.rows.m)}, True
    if isinstance(memory, ModelFilter):
        return {tuple(u): row for row, u in enumerate(memory.us.tolist())}, True
    if isinstance(memory, LastQueries):
        return {u: row for row, u in enumerate(product(*memory.queries))}, False
    raise InvalidInput(f"the memory {type(memory).__name__} cannot be judged", hint="use last-query or bayes-filter")


def remembered(memory: Memory) -> int:
    """How many requests a memory hides at a time."""
    memory = without_budget(memory)
    if isinstance(memory, ModelFilter):
        return memory.hide
    return memory.model.order if isinstance(memory, LastQueries) else 1


@dataclass(frozen=True, eq=False)
class View:
    """What an observer believes after some queries.

    contexts: those possible; None before the first request. private: the values of the private requests that are kept
    in mind, one to a row of `belief`, whose columns are the contexts and whose first axis is the type.
    """

    contexts: Integers
    private: tuple[Requests, ...]
    belief: Belief

    def about(self, place: int, n: int) -> Floats:
        """The law of the private request number `place` of those kept in mind, over all n sources."""
        values = np.array([v[place] for v in self.private])
        return np.asarray(np.bincount(values, self.belief.value, minlength=n), dtype=np.float64)

    def keeping(self, places: Sequence[int]) -> View:
        """The same, with only these of the private requests kept in mind; the others are averaged over."""
        if len(places) == len(self.private[0]):
            return self
        values, row = np.unique(np.array([[v[p] for p in places] for v in self.private]), axis=0, return_inverse=True)
        law = self.belief.law
        summed = np.zeros((*law.shape[:-2], len(values), law.shape[-1]))
        np.add.at(np.moveaxis(summed, -2, 0), row.reshape(-1), np.moveaxis(law, -2, 0))
        return View(self.contexts, tuple(tuple(v) for v in values.tolist()), Belief(summed))


def _start(weights: Floats, context: int) -> View:
    first = Belief(np.asarray(weights, dtype=np.float64)[:, None, None])
    return View(np.full(1, context, dtype=np.int64), ((),), first)


class _Moves:
    """Transitions from contexts to contexts, of which most are zero: a matrix for each type, to multiply by.

    alike: contexts with the same number lead to the same ones. move: p(x | type, context), shape (types, contexts, x).
    place: where each context and x leads, shape (contexts, x).
    """

    __array_ufunc__ = None  # so that numpy leaves `law @ moves` to us

    def __init__(self, alike: Integers, move: Floats, place: Integers) -> None:
        self._width = int(place.max()) + 1
        members = [np.flatnonzero(alike == number) for number in np.unique(alike)]
        self._parts = [(some, move[:, some], place[some[0]]) for some in members]

    def __rmatmul__(self, law: Floats) -> Floats:
        after = np.zeros((*law.shape[:-1], self._width))
        for members, move, place in self._parts:
            after[..., place] += law[..., members] @ move  # several contexts may lead to the same one
        return after


class Observer:
    """Follows sessions whose readers are believed to follow `model`."""

    def __init__(self, model: ReaderModel, context: int = 0) -> None:
        """context: where the reader stands before the first request."""
        self.n = model.n
        cells = model.types * len(model.contexts) * model.n
        if cells > MOST_PROBABILITIES:
            raise InvalidInput(
                f"{model.types} types, {len(model.contexts)} contexts and {model.n} sources are too many to observe by",
                hint="give an attacker's model with fewer",
            )
        every = range(len(model.contexts))
        self.contexts = [tuple(context) for context in model.contexts]
        if isinstance(model, RequestModel):
            self.laws = model.dense()
        else:
            self.laws = np.array([[model.law(z, c) for c in every] for z in range(model.types)])
        self.following = np.asarray(model.next(np.arange(len(every))[:, None], np.arange(model.n)[None]))
        _, alike = np.unique(self.following, axis=0, return_inverse=True)
        self._alike = alike.reshape(-1)
        """Contexts with the same number lead to the same contexts."""
        self.last = np.array([context[-1] if context else -1 for context in self.contexts])
        if (self.last[self.following] != np.arange(model.n)).any():
            raise InvalidInput("a model that forgets the last request", hint="make every source a context")
        self.start = _start(model.weights, context)

    def knowing(self, weights: Floats, context: int) -> Observer:
        """The same, who knows how likely each type is and where the reader stands."""
        twin = copy(self)
        twin.start = _start(weights, context)
        return twin

    def after(self, view: View, channel: Channel, *, private: bool) -> View:
        """The view once a query was seen. Raises InvalidInput where the model calls it impossible."""
        asked = np.array(channel.query)
        following, place = np.unique(self.following[view.contexts[:, None], asked], return_inverse=True)
        place = place.reshape(len(view.contexts), len(asked))
        move = self.laws[:, view.contexts[:, None], asked]
        chances = EVERYTHING
        if channel.chances is not None and not channel.of_private:
            move = move * channel.chances[self._rows(channel, [self.contexts[c] for c in view.contexts])]
        elif channel.chances is not None:
            drawn = channel.chances[self._rows(channel, view.private)]
            chances = drawn[:, np.searchsorted(asked, self.last[following])]
        seen, belief = view.belief.after(_Moves(self._alike[view.contexts], move, place), chances, hides_value=True)
        if not seen > 0:
            raise InvalidInput("the attacker's model calls a query impossible", hint="smooth it: learn from more data")
        if not private:
            return View(following, view.private, belief)
        present = self.last[following]
        values = tuple((*v, x) for v in view.private for x in channel.query)
        held = belief.law[:, :, None, :] * (present == asked[:, None])
        return View(following, values, Belief(held.reshape(len(self.laws), len(values), len(following))))

    def _rows(self, channel: Channel, values: Sequence[Requests]) -> Integers:
        """The row of the channel for each value: by its last requests, as many as are hidden."""
        assert channel.rows is not None
        depth = channel.depth
        if any(len(value) < depth for value in values):
            raise InvalidInput(
                f"the session hides {depth} requests, the attacker's model remembers fewer", hint="raise its order"
            )
        # a value that cannot be has no row; it has no mass either
        return np.array([channel.rows.get(value[len(value) - depth :], 0) for value in values], dtype=np.int64)
