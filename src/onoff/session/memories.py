"""The memory of the last query: no filter, no prior, no error that accumulates.

`LastQuery` (the default for chains). U is the request before, hidden among the query before: S = Q_{t-1}, and the rows
are the chain's own rows P_x, x in S. Given Q_{t-1} the next query has the same law for every x in S, so it is
independent of *all* past requests given the earlier queries. The integers are the chain's at every step.

`LastQueries` (models of order k and one type). U is the last k requests, hidden among the last k queries: the rows are
p(x | c) for the contexts c of every tuple in Q_{t-k} x ... x Q_{t-1}. Again the next query tells nothing about any past
request. The rows are the model's own, rounded once. With types U is (type, the last k requests): the person.
The session has to be told the type (secret): a query that is drawn without knowing it says something of it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidInput, InvalidModel, UnknownScheme
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.rows import FLOAT_ERROR, UNIT, Floats, Integers, Rows, SparseRows, to_units, units_of
from onoff.schemes.race import Drawn
from onoff.session.topics import TopicsDrawn
from onoff.tables.table import QueryTable

MOST_TUPLES = 2**20
"""Tuples of last requests that are told apart at most."""
MOST_CONTEXT_CELLS = 2**24
"""Contexts times sources of the rows at most."""


@dataclass(frozen=True)
class LastQuery:
    """Remembers the last query (public) and the last request (secret)."""

    chain: MarkovChain = field(repr=False)
    last: tuple[int, ...] | None = None
    secret: int | None = field(default=None, repr=False)

    blind = False

    @cached_property
    def rows(self) -> Rows | SparseRows:
        """Worked out when first needed: a query can be sent before the rows of the one after it are known."""
        return self.chain.initial_rows() if self.last is None else self.chain.possible_rows(self.last)

    @property
    def secret_row(self) -> int:
        return 0 if self.last is None or self.secret is None else self.last.index(self.secret)

    @property
    def key(self) -> Hashable | None:
        return self.last

    @property
    def lasting(self) -> bool:
        return self.last is not None and len(self.last) == self.chain.n

    @property
    def rounding(self) -> int:
        return 0

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> LastQuery:
        return LastQuery(self.chain, query, wanted)

    def afresh(self, wanted: int) -> LastQuery:
        return LastQuery(self.chain, tuple(range(self.chain.n)), wanted)

    def again(self, wanted: int) -> LastQuery:
        return self.afresh(wanted)

    def forgotten(self, wanted: int, *, private: bool) -> LastQuery:
        return self.afresh(wanted)  # which separates all that follows from all that was before

    def stored(self) -> bytes:
        return b""

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> LastQuery | Announced | None:
        found = LastQuery(self.chain, asked, wanted)
        return found if not stored else Announced.restored_around(found, stored)


# --------------------------------------------------------------------------------------------------------------------
# The announced future: a private request that is decided some requests ahead stays hidden until it is made.
#
#     U        (the last request, hidden in the last query; v), where v is the request that was announced
#     left     public: after how many more requests it comes. That one was announced is public too
#     rows     p(x | u, v) ~ P(u, x) P^left(x, v): the law of the next request, given where it leads
#
# So the next query is independent of past and announced request together, given earlier queries. The rows are
# quotients, so they are rounded, which `rounding` counts. Where the announced request is made openly, each v wants its
# own source, and everything is asked. A request that the model calls impossible ends it.

ANNOUNCED_MARK = b"OOA1"
MOST_AHEAD = 1000
"""Requests after which an announced one comes at most."""


@dataclass(frozen=True)
class Announced:
    """A memory of the last query that also hides a request to come (secret), `left` requests ahead (public)."""

    inner: LastQuery
    announced: int = field(repr=False)
    left: int
    rounding: int = 0

    lasting = False
    blind = False

    @classmethod
    def of(cls, inner: LastQuery, source: int, after: int) -> Announced:
        """Raises InvalidInput where that cannot be announced."""
        if not 1 <= after <= MOST_AHEAD:
            raise InvalidInput(f"announced after {after} requests", hint=f"after 1 to {MOST_AHEAD} requests")
        cells = inner.chain.n**2 * len(inner.last or (0,))
        if cells > MOST_CONTEXT_CELLS:
            raise InvalidInput(f"announcing among {inner.chain.n} sources", hint="that takes fewer sources")
        found = cls(inner, source, after)
        if found.secret_row < 0:
            raise InvalidInput("the model calls it impossible to come to that by then", hint="announce it for later")
        return found

    @cached_property
    def _masses(self) -> Floats:
        """P(u, x) P^left(x, v), shape (u, v, x); before the first request u is nothing."""
        chain = self.inner.chain
        now = chain.initial[None] if self.inner.last is None else chain.dense()[list(self.inner.last)]
        ahead = np.linalg.matrix_power(chain.dense(), self.left)
        return np.asarray(now[:, None, :] * ahead.T[None])

    @cached_property
    def _possible(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self._masses > 0).any(axis=2))

    @cached_property
    def rows(self) -> Rows:
        masses = self._masses[self._possible]
        reached = np.flatnonzero(masses.any(axis=0))
        units = units_of(masses[:, reached] / masses.sum(axis=1, keepdims=True))
        return Rows.from_integers(units, self.inner.chain.n, reached)

    @property
    def secret_row(self) -> int:
        """-1 where the announced request is impossible."""
        u = self.inner.secret_row
        if not self._possible[u, self.announced]:
            return -1
        return int(np.count_nonzero(self._possible.reshape(-1)[: u * self.inner.chain.n + self.announced]))

    @property
    def key(self) -> Hashable | None:
        return "announced", self.inner.last, self.left

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> Announced | LastQuery:
        inner = self.inner.after(query, wanted, private=private, table=table)
        if self.left == 0:
            return inner
        n = self.inner.chain.n
        counted = n + FLOAT_ERROR * (n * (self.left.bit_length() * 2 + 2) + 8)
        return Announced(inner, self.announced, self.left - 1, self.rounding + counted)

    def afresh(self, wanted: int) -> LastQuery:
        return self.inner.afresh(wanted)

    def again(self, wanted: int) -> Announced:
        return replace(self, inner=self.inner.again(wanted))

    def forgotten(self, wanted: int, *, private: bool) -> LastQuery:
        return self.inner.forgotten(wanted, private=private)

    def stored(self) -> bytes:
        return ANNOUNCED_MARK + json.dumps([self.announced, self.left, self.rounding]).encode()

    @classmethod
    def restored_around(cls, inner: LastQuery, stored: bytes) -> Announced | None:
        """What was stored, around the memory of the last query; None where it is damaged."""
        with suppress(ValueError, TypeError):
            announced, left, rounding = json.loads(stored.removeprefix(ANNOUNCED_MARK))
            sound = 0 <= announced < inner.chain.n and 0 <= left <= MOST_AHEAD and rounding >= 0
            found = cls(inner, announced, left, rounding)
            if stored.startswith(ANNOUNCED_MARK) and sound and found.secret_row >= 0:
                return found
        return None

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> LastQuery | Announced | None:
        return self.inner.restored(asked, wanted, stored)


@dataclass(frozen=True)
class LastQueries:
    """Remembers the last queries (public) and the last requests (secret), as many as the order of the model.

    person: the type, where the model has several: it is hidden too, from the first request on. Secret.
    """

    model: RequestModel = field(repr=False)
    queries: tuple[tuple[int, ...], ...] = ()
    secrets: tuple[int, ...] = field(default=(), repr=False)
    person: int = field(default=0, repr=False)

    blind = False
    rounding = 0

    @classmethod
    def start(cls, model: RequestModel, person: int | None = None) -> LastQueries:
        """Before the first request. Raises UnknownScheme where there are types and this one is not known."""
        if model.types > 1 and person is None:
            raise UnknownScheme(
                f"the last queries alone hide nothing of {model.types} types",
                hint="say which one it is (hide=\"person\", person=NUMBER), or use memory 'bayes-filter'",
            )
        return cls(model, person=person or 0)

    @property
    def lifelong(self) -> bool:
        """Whether a type is hidden, which no private request renews."""
        return self.model.types > 1

    @cached_property
    def _hidden_among(self) -> tuple[tuple[tuple[int, int], ...], dict[tuple[int, int], int]]:
        """Type and context of all that the person and the last requests can be, and the row of each different one."""
        if prod(map(len, self.queries)) * self.model.types > MOST_TUPLES:
            raise InvalidModel(
                f"the last {len(self.queries)} queries leave more than {MOST_TUPLES} possibilities",
                hint="use memory 'bayes-filter'",
            )
        contexts = [self.model.context_of(past) for past in product(*self.queries)]
        hidden = tuple((z, c) for z in range(self.model.types) for c in contexts)
        return hidden, {each: row for row, each in enumerate(dict.fromkeys(hidden))}

    @cached_property
    def rows(self) -> Rows:
        hidden, place = self._hidden_among
        if len(place) * self.model.n > MOST_CONTEXT_CELLS:
            raise InvalidModel(
                f"{len(place)} contexts over {self.model.n} sources are too many rows",
                hint="use memory 'bayes-filter'",
            )
        weights = np.zeros((len(place), self.model.n), dtype=np.int64)
        for (z, c), row in place.items():
            law = self.model.law(z, c)
            reached = np.flatnonzero(law)
            weights[row, reached] = to_units(law[reached].tolist())
        found = Rows.from_integers(weights, self.model.n)
        return Rows(found.n, found.columns, found.weights, found.group[[place[each] for each in hidden]])

    @property
    def secret_row(self) -> int:
        at = self.person
        for query, secret in zip(self.queries, self.secrets, strict=True):
            at = at * len(query) + query.index(secret)
        return at

    @property
    def key(self) -> Hashable | None:
        return self.queries or (("person",) if self.lifelong else None)

    @property
    def lasting(self) -> bool:
        return bool(self.queries) and all(len(query) == self.model.n for query in self.queries)

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> LastQueries:
        keep = self.model.order
        queries, secrets = (*self.queries, query), (*self.secrets, wanted)
        return replace(self, queries=queries[len(queries) - keep :], secrets=secrets[len(secrets) - keep :])

    def afresh(self, wanted: int) -> LastQueries:
        return replace(self, queries=(tuple(range(self.model.n)),), secrets=(wanted,))

    def again(self, wanted: int) -> LastQueries:
        return replace(self, queries=(*self.queries[:-1], tuple(range(self.model.n))))

    def forgotten(self, wanted: int, *, private: bool) -> LastQueries:
        return self.afresh(wanted)

    def stored(self) -> bytes:
        return json.dumps([self.queries, self.secrets]).encode()

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> LastQueries | None:
        with suppress(ValueError, TypeError):
            queries, secrets = json.loads(stored)
            found = replace(self, queries=tuple(map(tuple, queries)), secrets=tuple(secrets))
            sound = all(x in query for x, query in zip(secrets, queries, strict=True))
            known = all(0 <= x < self.model.n for query in found.queries for x in query)
            if sound and known and (found.queries[-1], secrets[-1]) == (asked, wanted):
                return found
        return None


@dataclass(frozen=True)
class NothingKnown:
    """The memory where there is no model: blind for good, so that everything is asked, ON and OFF."""

    rows: Rows = field(default_factory=lambda: Rows.from_integers(np.array([[UNIT]]), 1), repr=False, compare=False)

    secret_row = 0
    key = None
    lasting = False
    rounding = 0
    blind = True

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> NothingKnown:
        return self

    def afresh(self, wanted: int) -> NothingKnown:
        return self

    def again(self, wanted: int) -> NothingKnown:
        return self

    def forgotten(self, wanted: int, *, private: bool) -> NothingKnown:
        return self

    def stored(self) -> bytes:
        return b""

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> NothingKnown:
        return self


# --------------------------------------------------------------------------------------------------------------------
# The paper's own memory: the last private request, and a Bayes filter, for first-order chains.
#
# U is X_tau, the last private request, and the rows are p(x_t | x_tau, q_[t-1]). The posterior after a query is a
# quotient of integers; multiplied by P it is rounded to units again, so this memory carries rounding errors, and
# counts what they can be at most. For models of higher order and several types see `filter`.


@dataclass(frozen=True)
class BayesFilter:
    """Remembers the last private request (secret) and what the queries since tell about the present one (public)."""

    chain: MarkovChain = field(repr=False)
    rows: Rows = field(repr=False, compare=False)
    secret_row: int = field(default=0, repr=False)
    rounding: int = 0
    """N units for each rounding since the last private request: the most that one moves the joint law; see `Memory`."""

    lasting = False
    blind = False

    @property
    def key(self) -> Hashable | None:
        # Rows do recur: after every ON, and in an audit for every world with the same queries.
        return self.rows.columns.tobytes(), self.rows.weights.tobytes(), self.rows.group.tobytes()

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> BayesFilter:
        if private:
            return BayesFilter(self.chain, self.chain.rows(query), query.index(wanted))
        if len(query) == 1:  # the present request is plain to see, whatever u is
            return BayesFilter(self.chain, _repeat(self.chain.rows(query), self.rows.m), self.secret_row)
        if not isinstance(table, QueryTable):
            raise UnknownScheme("the paper's filter needs a table", hint="use memory 'last-query' with this scheme")
        weights, rounding = self._predict(query, table)
        # Where a table may leak, a query can rule values of u out: those are no longer hidden among.
        left = np.flatnonzero((table.block(table.index_of(query)).sum(axis=1) > 0)[self.rows.group])
        rows = Rows.from_integers(weights[self.rows.group[left]], self.chain.n)
        secret_row = int(np.searchsorted(left, self.secret_row))
        return BayesFilter(self.chain, rows, secret_row, self.rounding + rounding)

    def afresh(self, wanted: int) -> BayesFilter:
        return BayesFilter(self.chain, self.chain.rows(), wanted)

    def again(self, wanted: int) -> BayesFilter:
        return self.afresh(wanted)

    def forgotten(self, wanted: int, *, private: bool) -> BayesFilter:
        return self.afresh(wanted)

    def stored(self) -> bytes:
        return b""

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> None:
        """Never: a client keeps the last query of a chain, and this filter is for experiments."""

    def _predict(self, query: tuple[int, ...], table: QueryTable) -> tuple[Integers, int]:
        """p(x_{t+1} | u, q_[t]) = sum over x in q of p(x | u, q) P(x, .), for every distinct row u.

        p(x | u, q) is joint over mass, so numerator and denominator are integers until the one rounding at the end.
        """
        block = table.block(table.index_of(query))
        following = [self.chain.row_units(x) for x in query]
        predicted = np.zeros((len(block), self.chain.n), dtype=np.int64)
        for r, belief in enumerate(block.tolist()):
            law = [0] * self.chain.n
            for mass, (sources, units) in zip(belief, following, strict=True):
                if mass:
                    for y, unit in zip(sources.tolist(), units.tolist(), strict=True):
                        law[y] += mass * unit
            if any(law):
                predicted[r] = to_units(law)
        return predicted, self.chain.n


def _repeat(rows: Rows, m: int) -> Rows:
    """The same single row for each of m hidden values."""
    return Rows(rows.n, rows.columns, rows.weights, np.zeros(m, dtype=np.int64))
