"""The query log: what the server was asked, in the detail that the user chose; in memory, unless a file is named.

    full      every step: when, ON or OFF, which set, its cost. Only the page shows the wanted source.
    costs     the same without sets, and without what was wanted
    counters  totals only

One record, `LoggedQuery`, is appended when the client stores a query. What the page draws, JSON lines and totals are
functions of the list of these.

As JSON lines: {"step", "private", "sources", "cost", "time", "session"}, sources as numbers of the chain; `onoff audit
log` reads them. What was wanted is in no line. A query that could not be sent, because no server answered, has `"sent":
false` and counts in no total; its line is written together with that of the next one, unless it is sent before.

With several servers `"servers"` says how many, and `"sources"` is the set that the request was hidden in, which none of
them sees. What each of them saw is on the page only: all of it together tells what was wanted.

`"mirror": true`: since the query before something was read from the mirror, so it was drawn as after everything.

Each line is appended to the file, if there is one, at once; only its owner may read it. If a write fails, the log ends
there with a warning, and requests go on. Totals count everything that was sent since the gateway was started.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from onoff.client import ServerView
from onoff.errors import InvalidInput
from onoff.gateway.evidence import Assessment
from onoff.system.files import open_private

log = logging.getLogger("onoff.gateway")

Level = Literal["full", "costs", "counters"]
LEVELS: Final[tuple[str, ...]] = get_args(Level)
MOST_KEPT_QUERIES: Final = 10_000
MOST_UNSETTLED: Final = 8
"""Queries that one request may store, with some to spare: so many are kept where only totals are wanted."""
MOST_DRAWN_SOURCES: Final = 64
"""Sources that the page draws one by one; of more, it draws bands."""
BANDS: Final = 24

Views = Callable[[ServerView], list[list[int]]]


@dataclass(slots=True)
class LoggedQuery:
    """One query: what the server saw of it, and what it did not see.

    wanted         secret; None where the log keeps less than everything
    after_reading  something was read from the mirror since the query before
    left           whether any byte of it was sent, by the transport's own answer; None: not known yet
    assessment     what it cost and told; None: not computed yet
    """

    time: float
    sent: ServerView
    wanted: int | None
    after_reading: bool = False
    left: bool | None = None
    assessment: Assessment | None = None

    def line(self, level: str) -> dict[str, Any]:
        """What the server saw."""
        seen: dict[str, Any] = {"step": self.sent.step, "private": self.sent.private}
        if level == "full":
            seen["sources"] = list(self.sent.sources)
        moment = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {**seen, "cost": self.sent.cost, "time": moment, "session": self.sent.session}
        if self.after_reading:
            line["mirror"] = True
        if self.sent.vectors:
            line["servers"] = len(self.sent.vectors)
        return line if self.left else {**line, "sent": False}

    def shown(self, level: str, views: Views | None = None) -> dict[str, Any]:
        """The same with what is known only here, for the page; many sources are summed up in bands.

        `views` gives what each of several servers saw: lists of entries, or bands of what is not 0; `together` is the
        source that all of it together points to.
        """
        assessment = self.assessment  # once: another thread sets it
        line = {
            **self.line(level),
            **asdict(assessment or Assessment()),
            "time": self.time,
            "left": self.left,
            "weighed": assessment is not None,
            "note": self.sent.note,
        }
        if level != "full":
            return line
        if views is not None and self.sent.vectors:
            seen = views(self.sent)
            line["views"] = [_view(entries) for entries in seen]
            line["together"] = told_together(seen)
        if self.sent.n > MOST_DRAWN_SOURCES:
            del line["sources"]
            line["bands"] = bands(self.sent.sources, self.sent.n)
        return {**line, "wanted": self.wanted}


@dataclass(frozen=True)
class Totals:
    """Sums over all queries that were sent. everything: the cost of always asking for everything."""

    requests: int = 0
    private: int = 0
    messages: float = 0
    everything: int = 0
    lower: float = 0.0
    bits: float = 0.0
    naive: float = 0.0
    unweighed: int = 0
    unsent: int = 0

    def after(self, queries: Iterable[LoggedQuery]) -> Totals:
        """These totals with further queries; those of which it is not known yet whether they were sent do not count."""
        listed = [query for query in queries if query.left is not None]
        left = [query for query in listed if query.left]
        assessed = [query.assessment for query in left if query.assessment is not None]
        return Totals(
            self.requests + len(left),
            self.private + sum(query.sent.private for query in left),
            self.messages + sum(query.sent.cost for query in left),
            self.everything + sum(query.sent.n for query in left),
            self.lower + sum(each.lower or 0.0 for each in assessed),
            self.bits + sum(each.bits or 0.0 for each in assessed),
            self.naive + sum(each.naive or 0.0 for each in assessed),
            self.unweighed + sum(each.bits is None for each in assessed),
            self.unsent + len(listed) - len(left),
        )


def told_together(seen: list[list[int]]) -> int | None:
    """The one source at which the vectors of the servers differ: what they learn by comparing them."""
    differing = [source for source, entries in enumerate(zip(*seen, strict=True)) if len(set(entries)) > 1]
    return differing[0] if len(differing) == 1 else None


def _view(entries: list[int]) -> dict[str, list[int] | list[float]]:
    """What one server saw, as the page draws it."""
    asked = tuple(source for source, entry in enumerate(entries) if entry)
    return {"bands": bands(asked, len(entries))} if len(entries) > MOST_DRAWN_SOURCES else {"entries": entries}


def bands(sources: tuple[int, ...], n: int) -> list[float]:
    """The share that was asked for of each of `BANDS` runs of consecutive sources."""
    edges = np.linspace(0, n, BANDS + 1).astype(int)
    counts = np.histogram(sources, bins=edges)[0]
    shares: list[float] = np.round(counts / np.diff(edges), 4).tolist()
    return shares


class QueryLog:
    """The queries of one gateway. One thread writes, any may read."""

    def __init__(self, level: str = "full", path: Path | None = None) -> None:
        if level not in LEVELS:
            raise InvalidInput(f"no log level {level!r}", hint=f"use {', '.join(LEVELS)}")
        self.level = level
        self.reading = False
        """Whether something was read from the mirror since the last query."""
        self._queries: deque[LoggedQuery] = deque()
        self._most = MOST_UNSETTLED if level == "counters" else MOST_KEPT_QUERIES
        self._earlier = Totals()  # of what is no longer kept
        self._written: LoggedQuery | None = None  # the last one whose line is in the file
        self._file = None
        if path is not None:
            try:
                descriptor = open_private(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
                self._file = os.fdopen(descriptor, "a")
            except OSError as error:
                raise InvalidInput(f"{path}: {error.strerror}", hint="give the path of a file") from None

    # -- written once --------------------------------------------------------------------------------------

    def append(self, time: float, sent: ServerView, wanted: int) -> LoggedQuery | None:
        """The client has stored a query, for `wanted`, which is secret; None for what was read from the mirror."""
        if sent.mirror:
            self.reading = True
            return None
        self.settle()
        if self._queries:
            self._write(self._queries[-1])
        while len(self._queries) >= self._most:
            self._earlier = self._earlier.after([self._queries.popleft()])
        query = LoggedQuery(time, sent, wanted if self.level == "full" else None, self.reading)
        self.reading = False
        self._queries.append(query)
        return query

    def answered(self, *, left: bool) -> None:
        """The transport says whether the bytes of a query left: always of the last one, which alone can be sent."""
        if self._queries and not self._queries[-1].left:
            self._queries[-1].left = left
            if left:
                self._write(self._queries[-1])

    def settle(self) -> None:
        """The request is over: what has not left by now did not."""
        if self._queries and self._queries[-1].left is None:
            self._queries[-1].left = False

    def close(self) -> None:
        self.settle()
        if self._queries:
            self._write(self._queries[-1])
        self._end_file()

    def _write(self, query: LoggedQuery) -> None:
        """Write the line of a query, once."""
        if query is self._written or self.level == "counters" or self._file is None:
            return
        self._written = query
        try:
            self._file.write(json.dumps(query.line(self.level)) + "\n")
            self._file.flush()
        except OSError as error:  # such as a full disk; better end the log than leave a gap in it
            log.warning("the log of what the server saw ends here: %s", error.strerror)
            self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    # -- drawn from ----------------------------------------------------------------------------------------

    @property
    def queries(self) -> list[LoggedQuery]:
        """Those that are kept and of which it is known whether they left."""
        return [query for query in list(self._queries) if query.left is not None]

    @property
    def totals(self) -> Totals:
        return self._earlier.after(list(self._queries))

    def lines(self) -> Iterator[str]:
        """The log as JSON lines; at the level of counters, one line of totals."""
        if self.level == "counters":
            yield json.dumps(asdict(self.totals)) + "\n"
            return
        for query in self.queries:
            yield json.dumps(query.line(self.level)) + "\n"

    def latest(self, count: int, views: Views | None = None) -> list[dict[str, Any]]:
        """The last queries, for the page; see `LoggedQuery.shown`."""
        if self.level == "counters":
            return []
        return [query.shown(self.level, views) for query in self.queries[-count:]]
