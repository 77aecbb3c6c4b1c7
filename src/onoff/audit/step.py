"""What one step tells the server: a query drawn from a table, and the plain request of naive switching.

A query drawn from a table tells I(U ; Q) about the hidden value U. It is zero exactly when the masses p(q|u) are equal
integers for every u, which is what the table is built for.

Naive switching asks for everything while ON and for the plain source while OFF. The first plain request after a
private run gives away what it carries about the request before it: given the last request x_0 that was seen openly
(or the initial law), the private request X just before has a law p, and

    leak = I(X ; X') = sum over x, y of p(x) P(x, y) log2( P(x, y) / sum over z of p(z) P(z, y) ),

the mutual information of X and the open request X' that follows it. By the Markov property this is also what X' tells
about the whole private run, and later open requests add nothing.
"""

from __future__ import annotations

import numpy as np

from onoff.information import EVERYTHING, Belief, mutual_information, plain_chances
from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats
from onoff.tables.table import QueryTable


def table_leak(table: QueryTable) -> float:
    """I(U ; Q) in bits for a query drawn from `table`, U uniform over its rows; exactly 0.0 when it is private."""
    seen = np.stack([table.mass_seen_by(r) for r in range(table.rows.distinct)])
    if (seen == seen[0]).all():
        return 0.0
    return mutual_information(seen)


def plain_request_leak(chain: MarkovChain, before: Floats) -> float:
    """I(X ; X') in bits, where X ~ `before` is private and X' is the plain request right after it."""
    return mutual_information(before[:, None] * chain.dense())


class NaiveObserver:
    """Follows a run of requests as a server would that is asked naively, and adds up what it learns."""

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        self.belief = Belief(chain.initial[None])
        """The law of the present request, from what was seen openly."""
        self._private = False
        self._started = False
        self.total = 0.0

    def request(self, source: int, *, private: bool) -> float:
        """The bits that this request would have given away about private ones before it."""
        leak = 0.0
        if not private and self._private:
            leak = plain_request_leak(self.chain, self.belief.present)
        chances = EVERYTHING if private else plain_chances(source, self.chain.n)
        seen, self.belief = self.belief.after(self.chain.transition if self._started else None, chances)
        if seen == 0:  # impossible under the chain, but it was made
            self.belief = Belief(chances)
        self._started, self._private = True, private
        self.total += leak
        return leak
