"""Topics: hide what is sensitive, not everything.

A topic is a set of sources; topics partition them. What stays hidden is the topic of each private request. Of several
lists of topics ("health" and "money") the topics are the cells of their common refinement.

    U = x_{t-1} in S   as without topics: the last request, hidden among the last query

ON    for each topic v that can come next a table for the rows p(x | u, v), u over S. The query is the union of a part
      of each: of the wanted topic drawn from (u, x), of the others by their tables' own masses. Every query is then as
      likely under each (u, v). While one row is hidden a part is one source: the query has one for each topic.
OFF   as without topics; S holds few sources, so it is cheap.

So a query is independent of the topics of all private requests, given the earlier queries. The server does learn that
a private request was one of the sources that it was shown, and sees where a request is impossible under the model: then
everything is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidInput
from onoff.model.chain import Sources
from onoff.model.rows import UNIT, Integers, Rows
from onoff.tables.table import QueryTable

if TYPE_CHECKING:
    from onoff.session.session import Entropy

SPARED = 2**30
"""The whole topic is asked for once in so many times, which makes up for the rounding of rows."""
REST = "the rest"
"""The topic of sources that no list names."""

TopicLists = Mapping[str, Iterable[int | str]] | Sequence[Mapping[str, Iterable[int | str]]]
"""One list of topics, or several."""


@dataclass(frozen=True)
class Topics:
    """names: of the topics. of: the topic of each source, by number."""

    names: tuple[str, ...]
    of: tuple[int, ...]

    @classmethod
    def from_lists(cls, given: TopicLists, model: Sources) -> Topics:
        """The cells of the lists. Raises InvalidInput or UnknownSource where they are not topics."""
        lists = [given] if isinstance(given, Mapping) else list(given)
        labels: list[list[str]] = [[] for _ in range(model.n)]
        for one in lists:
            seen: dict[int, str] = {}
            for name, sources in one.items():
                members = [model.index(source) for source in ([sources] if isinstance(sources, str) else sources)]
                if not members:
                    raise InvalidInput(f"the topic {name!r} has no source", hint="name the sources that it is about")
                for x in members:
                    if seen.setdefault(x, name) != name:
                        raise InvalidInput(
                            f"{model.names[x]} is in the topics {seen[x]!r} and {name!r}",
                            hint="give two lists of topics, or a source to one topic",
                        )
            for x, label in enumerate(labels):
                label.append(seen.get(x, REST))
        cells = list(dict.fromkeys(tuple(label) for label in labels))
        if len(cells) < 2:
            raise InvalidInput("all sources are of one topic: there is nothing to hide", hint="leave some sources out")
        names = tuple(" and ".join(dict.fromkeys(part for part in cell if part != REST)) or REST for cell in cells)
        return cls(names, tuple(cells.index(tuple(label)) for label in labels))

    def parts(self, rows: Rows) -> list[TopicRows]:
        """For each topic that some row can want, the rows p(x | u, v) of those u that can."""
        topic = np.array(self.of)[rows.columns]
        return [TopicRows.of(rows, topic == v) for v in np.unique(topic).tolist()]


@dataclass(frozen=True)
class TopicRows:
    """The rows within a topic, one for each of the distinct rows `wanting` that can want it.

    sources: all of the topic that can be wanted. totals: how many units of the topic each row has.

    p(x | u, v) is a quotient, so its row is rounded (down, and the rest to the largest). What is drawn is exact all the
    same: with probability 1 - 1/SPARED from the table, and else the whole topic. Given x the whole topic gets what the
    table would give too little, or gets less where it would give too much; over all x that is 1/SPARED for every u.
    """

    sources: tuple[int, ...]
    wanting: Integers
    totals: tuple[int, ...]
    rows: Rows

    @classmethod
    def of(cls, rows: Rows, inside: npt.NDArray[np.bool_]) -> TopicRows:
        """The part of the flagged columns."""
        wanting = np.flatnonzero(rows.weights[:, inside].any(axis=1))
        units, totals = [], []
        for line in rows.weights[np.ix_(wanting, inside)].tolist():
            total = sum(line)
            row = [weight * UNIT // total for weight in line]
            row[row.index(max(row))] += UNIT - sum(row)
            units.append(row)
            totals.append(total)
        sources = rows.columns[inside]
        return cls(tuple(sources.tolist()), wanting, tuple(totals), Rows.from_integers(units, rows.n, sources))

    def joint(self, table: QueryTable, hidden: int, wanted: int, weight: int, part: tuple[int, ...]) -> int:
        """p(wanted, part | hidden), times UNIT^2 SPARED; 0 where that row wants nothing of this topic."""
        row = int(np.searchsorted(self.wanting, hidden))
        if row == len(self.wanting) or self.wanting[row] != hidden or not weight:
            return 0
        queries, weights = table.options(row, wanted)
        scaled = [each * (SPARED - 1) * self.totals[row] for each in weights]
        drawn = sum(each for each, k in zip(scaled, queries, strict=True) if table.query(k) == part)
        return drawn + (weight * UNIT * SPARED - sum(scaled) if part == self.sources else 0)

    def mass(self, table: QueryTable, part: tuple[int, ...]) -> int:
        """The probability of that part where another topic is wanted, times UNIT SPARED."""
        drawn = sum(int(table.mass[k]) for k in range(len(table)) if table.query(k) == part)
        return drawn * (SPARED - 1) + (UNIT if part == self.sources else 0)

    def draw_any(self, table: QueryTable, entropy: Entropy) -> tuple[int, ...]:
        """The part of a query where another topic is wanted."""
        at = entropy.choose([*(mass * (SPARED - 1) for mass in table.mass.tolist()), UNIT])
        return self.sources if at == len(table) else table.query(at)

    def draw(self, table: QueryTable, hidden: int, wanted: int, weight: int, entropy: Entropy) -> tuple[int, ...]:
        """The part of a query where `wanted`, of this topic, has that weight in the distinct row `hidden`."""
        row = int(np.searchsorted(self.wanting, hidden))
        queries, weights = table.options(row, wanted)
        scaled = [each * (SPARED - 1) * self.totals[row] for each in weights]
        at = entropy.choose([*scaled, weight * UNIT * SPARED - sum(scaled)])
        return self.sources if at == len(queries) else table.query(queries[at])


@dataclass(frozen=True)
class TopicsDrawn:
    """What a query was drawn from while ON: for each topic that can be wanted its rows and its table.

    rows: of what was hidden before. of: the topic of each source.
    """

    rows: Rows
    of: tuple[int, ...]
    parts: Sequence[tuple[TopicRows, QueryTable]]

    def joint(self, hidden: int, wanted: int, query: tuple[int, ...]) -> int:
        """p(wanted, query | hidden) for a distinct row, up to a factor that is the same for all of the topic."""
        here = [(part, table) for part, table in self.parts if wanted in part.sources]
        if not here:
            return 0
        part, table = here[0]
        shown = tuple(x for x in query if self.of[x] == self.of[wanted])
        weight = int(self.rows.weights[hidden, np.searchsorted(self.rows.columns, wanted)])
        return part.joint(table, hidden, wanted, weight, shown) * self._by_mass(query, self.of[wanted])

    def chance(self, hidden: int, wanted: int, query: tuple[int, ...]) -> float:
        """p(query | hidden, wanted)."""
        weight = int(self.rows.weights[hidden, np.searchsorted(self.rows.columns, wanted)])
        whole = weight * (UNIT * SPARED) ** len(self.parts)
        return self.joint(hidden, wanted, query) / whole if weight else 0.0

    def _by_mass(self, query: tuple[int, ...], but: int) -> int:
        """How often the other topics show what they show."""
        product = 1
        for part, table in self.parts:
            if self.of[part.sources[0]] != but:
                shown = tuple(x for x in query if self.of[x] == self.of[part.sources[0]])
                product *= part.mass(table, shown)
        return product
