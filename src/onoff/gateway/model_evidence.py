"""What each request cost and told the server, for a model with types and longer contexts.

The same as `evidence`, by following the public part of the session's filter: hidden values u, their weights and beliefs
follow from the queries alone. `ours` is p(u | all queries), which moves only where a table's masses differ between
rows; `naive` is what the plain request right after the private one would have left.

The beliefs are not known when a gateway opens an existing journal, or after a doubt that leaves the memory as it was:
steps are then weighed from the next session on that begins with a private request.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onoff.audit.step import table_leak
from onoff.client import Sent
from onoff.client.doubt import HARMLESS
from onoff.gateway.evidence import MOST_WEIGHED_SOURCES, Assessment
from onoff.information import mutual_information
from onoff.model.contexts import RequestModel
from onoff.model.rows import UNIT, Floats
from onoff.session.cache import TableCache
from onoff.session.filter import ModelFilter
from onoff.session.session import IMPOSSIBLE
from onoff.tables.table import QueryTable


class ModelEvidence:
    """Follows one session of a model."""

    def __init__(self, model: RequestModel, tables: TableCache, hide: int = 1) -> None:
        self._model, self._tables, self._hide = model, tables, hide
        self._memory: ModelFilter | None = None
        self._last: tuple[str, int] | None = None
        self._blind = False
        self._private_step: int | None = None
        self._plain: Floats | None = None
        self._belief: Floats | None = None
        self.posterior: dict[str, Any] | None = None

    def add(self, sent: Sent, wanted: int) -> Assessment:
        """Weigh the next step."""
        if self._model.n > MOST_WEIGHED_SOURCES:
            return Assessment()
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

    def _afresh_or_private(self, sent: Sent, wanted: int, known: ModelFilter | None) -> Assessment:
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
