"""What each request cost and what it told the server, worked out from what was sent, by the server's own means.

For every step
    cost       messages downloaded               expected   the same on average, over the draw
    lower      a proven lower bound on `expected`, for whoever hides the past as well; everything possible while ON
    bits       I(U ; Q) of the table that the query was drawn from; 0.0 only where its integers are equal
    naive      the bits that the plain request would have told about private ones (`audit.step`)

and for the last private request X that plain ones followed, the server's posterior, started from "every source that
was asked for is equally likely":

    ours     p(x | all queries since), by Bayes' rule from the tables' integers; flat if and only if they are private
    naive    p(x | the first plain request after it): proportional to P(x, y)

The Bayes rule runs forward: B[u, x] is p(queries since, present request = x | X = u) up to a common factor. A query q
drawn for the set S turns it into B[:, S] joint(q) / mass(q), where joint(q)[x', x] is the table's mass of asking q for
x after x'; its row sums are then the likelihoods. Nothing secret enters `ours`: the server could compute it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from onoff.audit.step import NaiveObserver, table_leak
from onoff.client import Sent
from onoff.model.bounds import bounds
from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats
from onoff.session.cache import TableCache
from onoff.session.memory import LastQuery
from onoff.tables.table import QuerySource, QueryTable

MOST_SOURCES: Final = 256
"""Beyond, nothing is weighed: it takes a square of that many numbers, and queries are drawn without a table."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """One step, weighed; None where there are too many sources, or where there was no table to look at."""

    expected: float | None = None
    lower: float | None = None
    bits: float | None = None
    naive: float | None = None


class Evidence:
    """Follows one session. `last` is the last query before the first step to come, if there was one."""

    def __init__(self, chain: MarkovChain, tables: TableCache, last: tuple[str, int, tuple[int, ...]] | None) -> None:
        self.chain = chain
        self._tables = tables
        self._last = last
        self._naive = NaiveObserver(chain)
        self._belief: Floats | None = None
        self._support: tuple[int, ...] = ()
        self._private_step: int | None = None
        self._plain_posterior: Floats | None = None
        self.posterior: dict[str, Any] | None = None

    def add(self, sent: Sent, wanted: int) -> Assessment:
        """Weigh the next step."""
        if self.chain.n > MOST_SOURCES:
            return Assessment()
        source = self._drawn_from(sent)
        self._follow(sent, wanted, source)
        self._last = (sent.session, sent.step, sent.sources)
        naive = self._naive.request(wanted, private=sent.private)
        if source is None:
            lower = float(sent.cost) if sent.private or sent.cost == 1 else 1.0
            return Assessment(float(sent.cost), lower, 0.0, naive)
        if not isinstance(source, QueryTable):
            return Assessment(naive=naive)
        lower = bounds(source.rows).lower if source.lower_bound is None else source.lower_bound
        return Assessment(source.cost, float(lower), table_leak(source), naive)

    def _drawn_from(self, sent: Sent) -> QuerySource | None:
        """The table of the query; None for what does not depend on the past: everything possible, or nothing hidden."""
        if self._last is None or sent.private or sent.note is not None:
            return None
        session, step, asked = self._last
        if (sent.session, sent.step) != (session, step + 1):
            return None
        memory = LastQuery(self.chain, asked, asked[0])
        return None if memory.rows.distinct == 1 else self._tables.of(memory)

    # -- the posterior -------------------------------------------------------------------------------------

    def _follow(self, sent: Sent, wanted: int, source: QuerySource | None) -> None:
        if sent.private:
            self._support, self._private_step, self._plain_posterior = sent.sources, sent.step, None
            self._belief = np.eye(self.chain.n)[list(sent.sources)]
            return
        if self._belief is None:
            return
        self._belief = self._after(self._belief, sent, source)
        if self._belief is None:
            self.posterior = None
            return
        likelihood = self._belief.sum(axis=1)
        if self._plain_posterior is None:
            column = self.chain.dense()[list(self._support), wanted]
            self._plain_posterior = column / column.sum() if column.sum() > 0 else likelihood / likelihood.sum()
        self.posterior = {
            "step": self._private_step,
            "sources": list(self._support),
            "ours": (likelihood / likelihood.sum()).tolist(),
            "naive": self._plain_posterior.tolist(),
        }

    def _after(self, belief: Floats, sent: Sent, source: QuerySource | None) -> Floats | None:
        following = np.zeros_like(belief)
        asked = list(sent.sources)
        if isinstance(source, QueryTable) and self._last is not None:
            k = source.index_of(sent.sources)
            joint = source.block(k)[source.rows.group] / float(source.mass[k])
            following[:, asked] = belief[:, list(self._last[2])] @ joint
        elif source is not None:
            return None  # a race keeps no masses to look at
        else:  # nothing was drawn, so nothing was told: the present request moves on by the chain
            moved = (belief @ self.chain.dense())[:, asked]
            total = moved.sum(axis=1, keepdims=True)
            share = np.divide(moved, total, out=np.full_like(moved, 1 / len(asked)), where=total > 0)
            following[:, asked] = share * belief.sum(axis=1, keepdims=True)
        return following
