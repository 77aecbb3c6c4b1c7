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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from onoff import wire
from onoff.client import ServerView
from onoff.client.core import HARMLESS
from onoff.client.forecast import cost_of_set
from onoff.errors import InvalidInput
from onoff.information import (
    EVERYTHING,
    Belief,
    NaiveObserver,
    mutual_information,
    plain_chances,
    query_chances,
    table_leak,
)
from onoff.model.bounds import bounds
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel
from onoff.model.people import OpenHistory
from onoff.model.rows import UNIT, Floats
from onoff.session import Session
from onoff.session.filter import ModelFilter
from onoff.session.memories import LastQuery
from onoff.session.session import IMPOSSIBLE, TableCache
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

    def add(self, sent: ServerView, wanted: int) -> Assessment:
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

    def _drawn_from(self, sent: ServerView) -> QuerySource | None:
        """The table of the query; None for what does not depend on the past: everything possible, or nothing hidden."""
        if self._last is None or sent.private or sent.note is not None:
            return None
        session, step, asked = self._last
        if (sent.session, sent.step) != (session, step + 1):
            return None
        memory = LastQuery(self.chain, asked, asked[0])
        return None if memory.rows.distinct == 1 else self._tables.of(memory)

    # -- the posterior -------------------------------------------------------------------------------------

    def _follow(self, sent: ServerView, wanted: int, source: QuerySource | None) -> None:
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

    def _after(self, belief: Belief, sent: ServerView, source: QuerySource | None) -> Belief | None:
        """The belief once `sent` was seen; None where there are no masses to compute it from, as with a race."""
        if isinstance(source, QueryTable) and self._last is not None:
            chances = query_chances(source, sent.sources, self._last[2])
        elif source is not None:
            return None
        else:  # everything, or the plain request where nothing is hidden
            chances = EVERYTHING if sent.cost > 1 else plain_chances(sent.sources[0], self.chain.n)
        seen, after = belief.after(self.chain.transition, chances)
        return after if seen > 0 else None


class ModelEvidence:
    """The same for a model with types and longer contexts, by the public part of the session's filter.

    Hidden values u, their weights and beliefs follow from the queries alone. `ours` is p(u | all queries), which moves
    only where a table's masses differ between rows; `naive` is what the plain request right after the private one would
    have left. The beliefs are not known when a gateway opens an existing journal, or after a doubt that leaves the
    memory as it was: queries are then weighed from the next session on that begins with a private request.
    """

    def __init__(self, model: RequestModel, tables: TableCache, hide: int = 1) -> None:
        self._model, self._tables, self._hide = model, tables, hide
        self._memory: ModelFilter | None = None
        self._last: tuple[str, int] | None = None
        self._blind = False
        self._private_step: int | None = None
        self._plain: Floats | None = None
        self._belief: Floats | None = None
        self.posterior: dict[str, Any] | None = None

    def begin(self, memory: ModelFilter, first: ServerView) -> None:
        """Begin with what is known before the first step."""
        self._memory, self._last = memory, (first.session, first.step)

    def add(self, sent: ServerView, wanted: int) -> Assessment:
        """Weigh the next step."""
        if self._model.n > MOST_WEIGHED_SOURCES or wanted >= self._model.n:
            return Assessment()  # what is read outside the model leaves its filter as it was
        known = self._memory if self._last in ((sent.session, sent.step - 1), (sent.session, sent.step)) else None
        self._last = (sent.session, sent.step)
        if known is None and sent.note is None and not sent.private:
            self._memory = self._belief = self.posterior = None
            return Assessment()
        if sent.note is not None or sent.private or known is None:
            return self._afresh_or_private(sent, wanted, known)
        rows, cost = known.rows, float(sent.cost)
        naive = self._naive(known)
        if rows.distinct == 1:
            self._memory = known.after(sent.sources, wanted, private=False, table=None)
            found, chances = Assessment(cost, 1.0, 0.0, naive), np.ones(rows.m)
        else:
            table = self._tables.of(known)
            if not isinstance(table, QueryTable):  # raced: what the filter took as known was not sent
                self._memory = self.posterior = None
                return Assessment(naive=naive)
            self._memory = known.after(sent.sources, wanted, private=False, table=table)
            k = table.index_of(sent.sources)
            seen = np.array([table.mass_seen_by(r)[k] for r in range(rows.distinct)], dtype=np.float64)
            chances = (seen / seen.max())[rows.group]
            found = Assessment(table.cost, table.lower_bound, table_leak(table), naive)
        self._follow(known, chances, wanted)
        return found

    def _afresh_or_private(self, sent: ServerView, wanted: int, known: ModelFilter | None) -> Assessment:
        """Everything possible was asked: it tells nothing of what is hidden."""
        lost = self._blind if sent.note is None else not sent.note.startswith(tuple(HARMLESS))
        if sent.note is None and known is not None:
            self._memory = known.after(sent.sources, wanted, private=True, table=None)
        elif sent.note == IMPOSSIBLE or (lost and sent.private):
            self._memory = ModelFilter.start(self._model, self._hide).afresh(wanted)
        else:
            self._memory = self.posterior = None
        self._blind = lost and not sent.private
        self._private_step, self._plain = sent.step, None
        self._belief = None if self._memory is None else self._memory.weights
        return Assessment(float(sent.cost), float(sent.cost), 0.0, 0.0)

    def _naive(self, known: ModelFilter) -> float:
        """The bits about what is hidden that the plain request would have told."""
        if self._plain is not None:
            return 0.0
        law = known.rows.weights[known.rows.group] / UNIT
        return float(mutual_information(known.weights[:, None] * law))

    def _follow(self, known: ModelFilter, chances: Floats, wanted: int) -> None:
        if self._belief is None or not known.us.shape[1]:
            return
        self._belief = self._belief * chances
        self._belief = self._belief / self._belief.sum()
        latest = known.us[:, -1]
        sources = np.unique(latest)
        if self._plain is None:
            at = known.rows.position(wanted)
            column = np.zeros(len(latest)) if at is None else known.rows.weights[known.rows.group, at] / UNIT
            plain = known.weights * column
            self._plain = plain / plain.sum() if plain.sum() > 0 else known.weights
        self.posterior = {
            "step": self._private_step,
            "sources": sources.tolist(),
            "ours": [float(self._belief[latest == x].sum()) for x in sources],
            "naive": [float(self._plain[latest == x].sum()) for x in sources],
        }


def evidence_of_a_person(session: Session, history: OpenHistory, first: ServerView, hide: int) -> ModelEvidence:
    """Evidence for the model of a person, from the first private request on, before which all was open."""
    if not isinstance(session.model, RequestModel):
        raise InvalidInput("the model of a person has particles", hint="see `onoff.own_law`")
    found = ModelEvidence(session.model, session.tables, hide)
    found.begin(ModelFilter.start(session.model, hide, session.model.context_of(history.last)), first)
    return found


def evidence_for(
    model: Model, tables: TableCache, last: tuple[str, int, tuple[int, ...]] | None, hide: int
) -> Evidence | ModelEvidence:
    """Evidence for a model, which goes on from the last query of a journal."""
    return Evidence(model, tables, last) if isinstance(model, MarkovChain) else ModelEvidence(model, tables, hide)


def views_of(sent: ServerView, names: Sequence[str], catalogue: wire.Catalogue) -> list[list[int]]:
    """What each server saw: its vector's entry for each of `names`; nothing if the catalogue is another one by now."""
    if any(len(vector) != catalogue.n for vector in sent.vectors) or any(name not in catalogue.index for name in names):
        return []
    order = [catalogue.index[name] for name in names]
    return [[vector[at] for at in order] for vector in sent.vectors]


def assess(sent: ServerView, wanted: int, evidence: Evidence | ModelEvidence | None) -> Assessment:
    """Weigh the next query; without evidence there is no model, and every set is everything.

    Of several servers each sees a vector (`wire.sums`), uniform on its class whatever is wanted, and none the set that
    the vectors were drawn in. What is computed for the set is an upper bound: what a server would learn if it saw it.
    """
    if not sent.vectors:
        return Assessment() if evidence is None else evidence.add(sent, wanted)
    expected = cost_of_set(len(sent.sources), len(sent.vectors))
    lower = expected if sent.private else 1.0
    if evidence is None:
        return Assessment(expected, lower, 0.0, None)
    by_set = evidence.add(replace(sent, vectors=()), wanted)
    return Assessment(expected, lower, by_set.bits, by_set.naive)
