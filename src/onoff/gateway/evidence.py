"""What each request cost and what it told the server, computed from what the server saw.

For every step
    cost       messages downloaded               expected   the same on average, over the draw
    lower      a proven lower bound on `expected`, for schemes that hide the past as well; everything possible while ON
    bits       I(U ; Q) of the table that the query was drawn from; 0.0 only where its integers are equal
    naive      the bits that the plain request would have told about private ones (`audit.step`)

and for the last private request X that plain ones followed, the server's posterior, started from "every source that
was asked for is equally likely":

    ours     p(x | all queries since), by Bayes' rule from the tables' integers; flat if and only if they are private
    naive    p(x | the first plain request after it): proportional to P(x, y)

It is the forward filter of `information`, with the chances that the tables give each query. Nothing secret enters
`ours`: the server could compute it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from onoff.audit.step import NaiveObserver, table_leak
from onoff.client import Sent
from onoff.information import EVERYTHING, Belief, plain_chances, query_chances
from onoff.model.bounds import bounds
from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats
from onoff.session.cache import TableCache
from onoff.session.last_query import LastQuery
from onoff.tables.table import QuerySource, QueryTable

MOST_WEIGHED_SOURCES: Final = 256
"""With more sources nothing is computed: it takes a matrix of that size, and queries are drawn without a table."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What one step cost and told; None where there are too many sources, or no table."""

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
        self._belief: Belief | None = None
        self._support: tuple[int, ...] = ()
        self._private_step: int | None = None
        self._plain_posterior: Floats | None = None
        self.posterior: dict[str, Any] | None = None

    def add(self, sent: Sent, wanted: int) -> Assessment:
        """Weigh the next step."""
        if self.chain.n > MOST_WEIGHED_SOURCES:
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
            asked = [1 / len(sent.sources) if x in sent.sources else 0.0 for x in range(self.chain.n)]
            self._belief = Belief.of_present(np.array(asked))
            return
        if self._belief is None:
            return
        self._belief = self._after(self._belief, sent, source)
        if self._belief is None:
            self.posterior = None
            return
        ours = self._belief.value[list(self._support)]
        if self._plain_posterior is None:
            column = self.chain.dense()[list(self._support), wanted]
            self._plain_posterior = column / column.sum() if column.sum() > 0 else ours
        self.posterior = {
            "step": self._private_step,
            "sources": list(self._support),
            "ours": ours.tolist(),
            "naive": self._plain_posterior.tolist(),
        }

    def _after(self, belief: Belief, sent: Sent, source: QuerySource | None) -> Belief | None:
        """The belief once `sent` was seen; None where there are no masses to compute it from, as with a race."""
        if isinstance(source, QueryTable) and self._last is not None:
            chances = query_chances(source, sent.sources, self._last[2])
        elif source is not None:
            return None
        else:  # everything, or the plain request where nothing is hidden
            chances = EVERYTHING if sent.cost > 1 else plain_chances(sent.sources[0], self.chain.n)
        seen, after = belief.after(self.chain.transition, chances)
        return after if seen > 0 else None
