"""What the next query must hide, and what it may depend on.

A memory is an immutable value with a public and a secret part:

    rows        public   p(x_t | u): the law of the next request for every value u of what must stay hidden
    secret_row  secret   which u is the truth

and one way forward, `after(...)`, once a query has been sent. Everything a server could know about the state
is in `rows`, which is why the table for the next request can be built before that request exists.

    name            chain                      model
    last-query      LastQuery (the default)    LastQueries: as many as the order, one type only
    bayes-filter    BayesFilter, the paper's   ModelFilter (the default): the last `hide` private requests

Before the first request there is one row, the law of first requests: nothing is hidden yet and the plain request is
sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from onoff.errors import InvalidInput, UnknownScheme, nearest
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel
from onoff.model.rows import Rows, SparseRows
from onoff.schemes.race import Drawn
from onoff.session.bayes import BayesFilter
from onoff.session.filter import ModelFilter
from onoff.session.last_query import LastQueries, LastQuery


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

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | None) -> Memory:
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


def start(name: str | None, model: Model, hide: int = 1) -> Memory:
    """The memory of that name (default: the one that suits the model), before the first request.

    hide: how many of the last private requests a filter hides. Raises UnknownScheme or InvalidInput.
    """
    name = default_memory(model) if name is None else name
    if name not in MEMORIES:
        raise UnknownScheme(f"no memory called {name!r}", hint=nearest(name, MEMORIES))
    if hide < 1:
        raise InvalidInput(f"hide = {hide}", hint="hide the last 1 or more private requests")
    if name == "last-query":
        return LastQuery(model) if isinstance(model, MarkovChain) else LastQueries(model)
    if isinstance(model, MarkovChain) and hide == 1:
        return BayesFilter(model, model.initial_rows())
    return ModelFilter.start(RequestModel.of(model) if isinstance(model, MarkovChain) else model, hide)
