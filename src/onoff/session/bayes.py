"""The paper's own memory: the last private request, and a Bayes filter, for first-order chains.

U is X_tau, the last private request, and the rows are p(x_t | x_tau, q_[t-1]). The posterior after a query is a
quotient of integers; multiplied by P it is rounded to units again, so this memory carries rounding errors, and
counts what they can be at most. For models of higher order and several types see `filter`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from onoff.errors import UnknownScheme
from onoff.model.chain import MarkovChain
from onoff.model.rows import Integers, Rows, to_units
from onoff.schemes.race import Drawn
from onoff.tables.table import QueryTable


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

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | None) -> BayesFilter:
        if private:
            return BayesFilter(self.chain, self.chain.rows(query), query.index(wanted))
        if len(query) == 1:  # the present request is plain to see, whatever u is
            return BayesFilter(self.chain, _repeat(self.chain.rows(query), self.rows.m), self.secret_row)
        if not isinstance(table, QueryTable):
            raise UnknownScheme("the paper's filter needs a table", hint="use memory 'last-query' with this scheme")
        weights, rounding = self._predict(query, table)
        rows = Rows.from_integers(weights[self.rows.group], self.chain.n)
        return BayesFilter(self.chain, rows, self.secret_row, self.rounding + rounding)

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
            predicted[r] = to_units(law)
        return predicted, self.chain.n


def _repeat(rows: Rows, m: int) -> Rows:
    """The same single row for each of m hidden values."""
    return Rows(rows.n, rows.columns, rows.weights, np.zeros(m, dtype=np.int64))
