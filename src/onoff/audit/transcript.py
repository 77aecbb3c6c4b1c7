"""Checks a log of queries: nothing in it may depend on more than the chain, the switch and the queries before.

A log is JSON lines, one object per query as the server saw it, in order:

    {"step": 4, "private": false, "sources": [0, 2], "cost": 2, "time": "2026-01-01T12:00:00Z", "session": "a1..."}

    step      number of the request within its session: counts up by one; the same step again is a retry
    sources   numbers of the asked sources
    private   the switch, where the writer knows it: true ON, false OFF, absent or null in a server's log
    cost      messages fetched; where given it must be the number of sources, unless `servers` says that it was asked in
              sums from several servers (`sources` is then the set that they were drawn in)
    session   where given: the name of the session that the step belongs to
    note      where given and not null: why everything was asked
    time, and anything else, is ignored

`mirror: true` says that since the step before something was read from the mirror, which causes no traffic and leaves
the session as after a query for everything. The gateway writes such lines, for one user. A server's log has no
`private`, and the sessions of its users may take turns in it. From the chain and the scheme every line is recomputed:

    canonical   sources ascend, none twice, all of them exist, at least one
    same        a step sent again shows the same set
    in order    no step is missing or goes back within a session
    ON          everything that can be wanted after the query before; all sources are accepted too
    OFF         a query of the table of the query before, which is rebuilt here; while nothing is hidden, one source
    everything  all sources at any time: the safe answer to doubt, counted
    new session after the first one: all sources, since what was asked before may be lost
    a read      a server's log cannot say where a mirror was read: a query of it that does not follow from the one
                before, but from everything, is taken to follow from such a read, and counted (`after_reads`)
    one user    a log with the switch has one user, who does not return to a session that was left for another one
    beginning   the first line of a log that starts within a session is not checked against a query before; in a
                server's log, the first line of every session

Some tables cannot be rebuilt: a race keeps none, and a search that was ended by the clock, or nearly so, may have
ended elsewhere where the log was made. A query drawn there is held to what every private query must satisfy: each
source of the query before can lead into it. How many of these there are is counted (`without_table`);
they are no fault. Which source was wanted is nowhere in a log, and is not needed here.

How often each query of a table was drawn is compared with the table's masses (a G-test over all sets, `fit`). A
small value means that the user's requests do not follow the chain or that queries were drawn wrongly; it is
reported, not judged, because a log alone cannot tell these two apart. Only lines known to be OFF count.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from onoff.errors import InvalidInput, PrivacyBreach
from onoff.information import fit_g, p_value
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT
from onoff.session.cache import TableCache
from onoff.session.last_query import LastQuery
from onoff.system.reading import open_ordinary
from onoff.tables.table import QueryTable

LONGEST_LOG_LINE = 4 * 2**20
SLOWER = 4
"""A search that took less than this part of its time would have found the same table on a machine so much slower."""


@dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    number: int
    step: int
    sources: tuple[int, ...]
    private: bool | None = None
    cost: int | None = None
    session: str | None = None
    noted: bool = False
    mirror: bool = False


@dataclass(frozen=True)
class LogFault:
    """A line that no honest session would have written."""

    line: int
    step: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}, step {self.step}: {self.reason}"


@dataclass
class LogAudit:
    """What a log shows."""

    queries: int = 0
    retries: int = 0
    sessions: int = 0
    everything: int = 0
    """Queries for all sources where less would have done."""
    messages: int = 0
    after_reads: int = 0
    """Queries that do not follow from the one before, but from a read of the mirror."""
    without_table: int = 0
    """Queries drawn from what cannot be rebuilt here, so that only the least was checked."""
    faults: list[LogFault] = field(default_factory=list)
    fit: float | None = None
    """How likely draws at least as far from the tables' masses are; None where there were too few."""

    @property
    def sound(self) -> bool:
        return not self.faults

    def require_sound(self) -> None:
        """Raise PrivacyBreach naming the first faulty line, if there is one."""
        if self.faults:
            raise PrivacyBreach(str(self.faults[0]), hint=f"{len(self.faults)} faulty lines in all")

    def as_dict(self) -> dict[str, Any]:
        return {
            "queries": self.queries,
            "retries": self.retries,
            "sessions": self.sessions,
            "everything": self.everything,
            "messages": self.messages,
            "after_reads": self.after_reads,
            "without_table": self.without_table,
            "fit": self.fit,
            "faults": [{"line": f.line, "step": f.step, "reason": f.reason} for f in self.faults],
            "sound": self.sound,
        }


def read_log(path: Path) -> Iterator[LogLine]:
    """The lines of a log file. Raises InvalidInput with the number of the line that cannot be read."""
    try:
        with open_ordinary(path) as file:
            number = 0
            while raw := file.readline(LONGEST_LOG_LINE + 1):
                number += 1
                if len(raw) > LONGEST_LOG_LINE:
                    raise InvalidInput(
                        f"{path}: line {number} is longer than {LONGEST_LOG_LINE} bytes", hint="is it a log?"
                    )
                if raw.strip():
                    yield parse_line(raw, number, str(path))
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}", hint="give a log of JSON lines") from None


def parse_line(raw: bytes | str, number: int, where: str = "log") -> LogLine:
    """One line of a log; `audit_log` decides whether it is sound."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{where}: line {number} is not JSON", hint="one object per line") from None
    match fields:
        case {"step": int(step), "sources": list(sources)} if step >= 0 and all(type(x) is int for x in sources):
            pass
        case _:
            raise InvalidInput(
                f"{where}: line {number} has no step and sources", hint='e.g. {"step": 0, "sources": [0, 1]}'
            )
    private, cost, session = (fields.get(name) for name in ("private", "cost", "session"))
    if type(fields.get("servers")) is int:
        cost = None
    if not (private is None or isinstance(private, bool)) or not (cost is None or type(cost) is int):
        raise InvalidInput(
            f"{where}: line {number} has another kind of private or cost",
            hint="private is true, false or null, and cost a whole number",
        )
    named = None if session is None else str(session)
    noted, mirror = fields.get("note") is not None, fields.get("mirror") is True
    return LogLine(number, step, tuple(sources), private, cost, named, noted, mirror)


def audit_log(lines: Iterable[LogLine], chain: MarkovChain, scheme: str = "auto", **options: Any) -> LogAudit:
    """Recompute every line of a log of sessions with memory `last-query`."""
    judge = _Judge(chain, TableCache(chain, scheme, **options))
    for line in lines:
        judge.see(line)
    judge.audit.fit = judge.fit()
    return judge.audit


@dataclass
class _Standing:
    """The state of a session: its last step, and what was asked then."""

    step: int
    last: tuple[int, ...]


class _Judge:
    def __init__(self, chain: MarkovChain, tables: TableCache) -> None:
        self.chain, self.tables = chain, tables
        self.audit = LogAudit()
        self.sessions: dict[str | None, _Standing] = {}
        self.present: str | None = None
        self.drawn: dict[_State, Counter[tuple[int, ...]]] = defaultdict(Counter)
        self._states: dict[tuple[int, ...] | None, _State] = {}

    def see(self, line: LogLine) -> None:
        stood = self.sessions.get(line.session)
        new = stood is None
        if line.mirror and (stood is None or line.step != stood.step):  # read here meanwhile: as after everything
            stood = _Standing(line.step - 1 if stood is None else stood.step, self._everything)
        reason = self._not_canonical(line)
        if reason is None and stood is not None and line.step == stood.step:
            self.audit.retries += 1
            if line.sources != stood.last:
                self._fault(line, "a step was sent again with another set")
            return
        reason = reason or self._out_of_order(line, None if new else stood) or self._not_followed(line, stood)
        if reason is not None:
            self._fault(line, reason)
        self.audit.queries += 1
        self.audit.messages += len(line.sources)
        self.audit.sessions += new
        # after a faulty line the state is unknown: the next line is checked as after everything
        self.sessions[line.session] = _Standing(line.step, line.sources if reason is None else self._everything)
        self.present = line.session

    @property
    def _everything(self) -> tuple[int, ...]:
        return tuple(range(self.chain.n))

    def _fault(self, line: LogLine, reason: str) -> None:
        self.audit.faults.append(LogFault(line.number, line.step, reason))

    def _not_canonical(self, line: LogLine) -> str | None:
        sources = line.sources
        if not sources:
            return "a query for no source"
        if any(after <= before for before, after in pairwise(sources)):
            return "sources that do not ascend"
        if sources[0] < 0 or sources[-1] >= self.chain.n:
            return f"a source that does not exist; there are {self.chain.n}"
        if line.cost is not None and line.cost != len(sources):
            return f"{len(sources)} sources at a cost of {line.cost}"
        return None

    def _out_of_order(self, line: LogLine, stood: _Standing | None) -> str | None:
        """Why `line` cannot come now, whatever it asks for, or None."""
        if stood is not None and line.step != stood.step + 1:
            return f"step {stood.step} was followed by step {line.step}"
        if stood is not None and line.private is not None and line.session != self.present:
            return "a session that goes on after it was left for another one"
        return None

    def _not_followed(self, line: LogLine, stood: _Standing | None) -> str | None:
        """Why `line` cannot come after the query before in its session, nor after a read of the mirror; or None."""
        reason = self._not_after(line, stood)
        if reason is not None and line.private is None and self._after_a_read(line):
            self.audit.after_reads += 1
            return None
        return reason

    def _after_a_read(self, line: LogLine) -> bool:
        """Whether the query is one of the table that follows a read of the mirror."""
        state = self._state(self._everything)
        return state.table is not None and line.sources in state.queries

    def _not_after(self, line: LogLine, stood: _Standing | None) -> str | None:
        query, first = line.sources, not self.sessions
        if stood is None and line.step > 0 and (first or line.private is None):
            return None
        state = self._state(None if stood is None else stood.last)
        if len(query) == self.chain.n:
            self.audit.everything += query != state.possible or line.private is False
        elif stood is None and not first:
            return "a new session that did not start by asking for everything"
        elif line.private is not False and query == state.possible:
            return None
        elif line.private:
            return f"ON, but only {len(query)} of the {len(state.possible)} sources that could be wanted were asked"
        elif state.memory.rows.distinct == 1:
            return None if query in state.queries else "nothing was hidden, yet not one possible source was asked"
        elif state.table is None:
            self.audit.without_table += 1
            return _unreachable(state.memory, query)
        elif query not in state.queries:
            return "not a query of the table of the query before"
        if query in state.queries and line.private is False and not line.noted:
            self.drawn[state][query] += 1
        return None

    def _state(self, last: tuple[int, ...] | None) -> _State:
        if last not in self._states:
            self._states[last] = _State.after(self.chain, self.tables, last)
        return self._states[last]

    def fit(self) -> float | None:
        """The p-value of a G-test of all draws against the masses of their tables."""
        total, freedom = 0.0, 0
        for state, counts in self.drawn.items():
            if state.table is None:
                continue
            expected = state.table.mass / UNIT * counts.total()
            seen = np.array([counts[query] for query in state.table.queries], dtype=np.float64)
            statistic, degrees = fit_g(seen, expected)
            total, freedom = total + statistic, freedom + degrees
        return p_value(total, freedom) if freedom else None


@dataclass(frozen=True, eq=False)
class _State:
    """What may follow a query: everything possible, and the queries of its table or the plain ones."""

    memory: LastQuery
    possible: tuple[int, ...]
    table: QueryTable | None
    queries: frozenset[tuple[int, ...]]

    @classmethod
    def after(cls, chain: MarkovChain, tables: TableCache, last: tuple[int, ...] | None) -> _State:
        memory = LastQuery(chain, last, None if last is None else last[0])
        possible = tuple(memory.rows.columns.tolist())
        if memory.rows.distinct == 1:
            return cls(memory, possible, None, frozenset((x,) for x in possible))
        table = tables.of(memory)
        if not isinstance(table, QueryTable) or not _comes_out_the_same(table, tables.budget(lasting=memory.lasting)):
            return cls(memory, possible, None, frozenset())
        return cls(memory, possible, table, frozenset(table.queries))


def _comes_out_the_same(table: QueryTable, budget: float | None) -> bool:
    """Whether the same table is found on any machine: the search was not ended by the clock."""
    took = table.details.get("seconds")
    if took is None or budget is None:
        return True
    return table.optimal and bool(took * SLOWER <= budget)


def _unreachable(memory: LastQuery, query: tuple[int, ...]) -> str | None:
    """Why no table, whatever the scheme, could hold `query`: some hidden value cannot lead into it."""
    if not np.isin(query, memory.rows.columns).all():
        return "a source that cannot be wanted now"
    if not all(np.isin(memory.chain.successors((x,)), query).any() for x in memory.last or ()):
        return "a query that rules out a source of the query before"
    return None
