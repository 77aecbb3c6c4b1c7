"""What the next query must hide, and what it may depend on.

A memory is an immutable value with a public and a secret part:

    rows    public   p(x_t | u): the law of the next request for every value u of what must stay hidden
    hidden  secret   which u is the truth

and one way forward, `after(...)`, once a query has been sent. Everything a server could know about the state
is in `rows`, which is why the table for the next request can be built before that request exists.

`LastQuery` (default). U is the request before, hidden among the query before: S = Q_{t-1}, and the rows are the
chain's own rows P_x, x in S. Given Q_{t-1} the next query has the same law for every x in S, so it is independent
of *all* past requests given the earlier queries. No filter, no prior, no error that accumulates: the integers
are the chain's at every step.

`BayesFilter` (the paper's). U is X_tau, the last private request, and the rows are p(x_t | x_tau, q_[t-1]). The
posterior after a query is a quotient of integers; multiplied by P it is rounded to units again, so this memory
carries rounding errors, and counts what they can be at most.

Before the first request there is one row, the initial law: nothing is hidden yet and the plain request is sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from onoff.errors import UnknownScheme, nearest
from onoff.model.chain import MarkovChain
from onoff.model.rows import Integers, Rows, SparseRows, to_units
from onoff.tables.table import QuerySource, QueryTable


class Memory(Protocol):
    """The state of a session between two requests."""

    @property
    def rows(self) -> Rows | SparseRows:
        """Public: the law of the next request for every hidden value."""
        ...

    @property
    def hidden(self) -> int:
        """Secret: the row that is true."""
        ...

    @property
    def key(self) -> Hashable | None:
        """Public: two memories with the same key have the same rows; None before the first request."""
        ...

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: QuerySource | None) -> Memory:
        """The state once `query` was sent for `wanted`.

        private: `wanted` is itself to be hidden from now on. table: where the query was drawn from, None where it
        was the plain request or everything possible.
        """
        ...


@dataclass(frozen=True)
class LastQuery:
    """Remembers the last query (public) and the last request (secret)."""

    chain: MarkovChain = field(repr=False)
    last: tuple[int, ...] | None = None
    secret: int | None = field(default=None, repr=False)

    @cached_property
    def rows(self) -> Rows | SparseRows:
        """Worked out when first needed: a query can be sent before the rows of the one after it are known."""
        return self.chain.initial_rows() if self.last is None else self.chain.possible_rows(self.last)

    @property
    def hidden(self) -> int:
        return 0 if self.last is None or self.secret is None else self.last.index(self.secret)

    @property
    def key(self) -> Hashable | None:
        return self.last

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: QuerySource | None) -> LastQuery:
        return LastQuery(self.chain, query, wanted)


@dataclass(frozen=True)
class BayesFilter:
    """Remembers the last private request (secret) and what the queries since tell about the present one (public)."""

    chain: MarkovChain = field(repr=False)
    rows: Rows = field(repr=False, compare=False)
    hidden: int = field(default=0, repr=False)
    rounding: int = 0
    """N units for each rounding since the last private request: the most that one moves a row, in total variation."""

    @property
    def key(self) -> Hashable | None:
        # Rows do recur: after every ON, and in an audit for every world with the same queries.
        return self.rows.columns.tobytes(), self.rows.weights.tobytes(), self.rows.group.tobytes()

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: QuerySource | None) -> BayesFilter:
        if private:
            return BayesFilter(self.chain, self.chain.rows(query), query.index(wanted))
        if len(query) == 1:  # the present request is plain to see, whatever u is
            return BayesFilter(self.chain, _repeat(self.chain.rows(query), self.rows.m), self.hidden)
        if not isinstance(table, QueryTable):
            raise UnknownScheme("the paper's filter needs a table", hint="use memory 'last-query' with this scheme")
        weights, rounding = self._predict(query, table)
        rows = Rows.from_integers(weights[self.rows.group], self.chain.n)
        return BayesFilter(self.chain, rows, self.hidden, self.rounding + rounding)

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
            predicted[r] = to_units(law)
        return predicted, self.chain.n


def _repeat(rows: Rows, m: int) -> Rows:
    """The same single row for each of m hidden values."""
    return Rows(rows.n, rows.columns, rows.weights, np.zeros(m, dtype=np.int64))


MEMORIES = ("last-query", "bayes-filter")


def start(name: str, chain: MarkovChain) -> Memory:
    """The memory of that name, before the first request."""
    if name == "last-query":
        return LastQuery(chain)
    if name == "bayes-filter":
        return BayesFilter(chain, chain.initial_rows())
    raise UnknownScheme(f"no memory called {name!r}", hint=nearest(name, MEMORIES))
