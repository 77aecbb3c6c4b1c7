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

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from onoff import wire
from onoff.errors import InvalidInput, InvalidWire, PrivacyBreach
from onoff.information import fit_g, p_value
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT
from onoff.session.memories import LastQuery
from onoff.session.session import TableCache
from onoff.system.files import open_ordinary
from onoff.tables.table import QueryTable
from onoff.upstream.transport import Failure, Reply, Request

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


# --------------------------------------------------------------------------------------------------------------------
# A message server in place of the socket that records every byte it is sent.
#
# It answers as a server does (catalogue, last step seen, frames, 409 for a step that went back or changed), and
# checks
# these rules, independently of the client:
#
#     one byte string per step   a step never comes again with other bytes, and never after a later one
#     stored before sent         the bytes of a query are in the journal's files when they arrive
#     one form                   queries are canonical
#     told                       changes are asked for since an edition that the server has told, and the tags of a
#                                query are of messages that it has sent
#
# What it saw of a request is a tuple of `SeenExchange`s: address, headers, body, and how much of the answer was
# read.


RECORDER_FRAME_SIZE = 256
URL = "http://audit.invalid"
LIFE = b"one life of many"
_Decoded = TypeVar("_Decoded")


class SeenExchange(NamedTuple):
    """One exchange, as the server sees it."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    limit: int

    def __repr__(self) -> str:
        return f"{self.method} {self.path} {self.body.hex()}".rstrip()


class Recorder:
    """The server of an audit.

    journal: where queries must be stored before they come. judging: whether a broken rule raises PrivacyBreach.
    fault(request, seen): may raise, or lose the answer by returning True; it is called twice for each query, before
    the server sees it (`seen` False) and after. lie: a source; the server then adds the difference of two valid frames
    of that source to the answers to sums.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        journal: Path | None = None,
        *,
        judging: bool = True,
        frame_size: int | None = RECORDER_FRAME_SIZE,
    ) -> None:
        self.catalogue = wire.Catalogue(names, frame_size)
        self.told: set[bytes] = {wire.NO_TAG}
        """The tags of what was sent, whether it arrived or not."""
        self.journal = journal
        self.judging = judging
        self.lie: int | None = None
        self.events: list[SeenExchange] = []
        self.asked = 0
        """Messages asked for since the last `take`."""
        self.sums = 0
        """Sums asked for, ever."""
        self.last: dict[bytes, tuple[int, str]] = {}
        self.versions = [0] * len(names)
        self.changed = [0] * len(names)
        self.editions = [wire.Edition(self.catalogue.epoch, LIFE, 0, wire.first_digest(self.catalogue.epoch, LIFE))]
        for source in range(len(names)):
            self.publish(source)
        self.fault: Callable[[Request, bool], bool] = lambda request, seen: False

    @staticmethod
    def message(source: int) -> bytes:
        """What the server holds for a source."""
        return b"message of source %d" % source

    def publish(self, source: int) -> None:
        """Another version of a source's message; what it says stays the same."""
        self.versions[source] += 1
        last = self.editions[-1]
        self.changed[source] = last.number + 1
        digest = wire.next_digest(last.digest, source, self._latest(source))
        self.editions.append(wire.Edition(last.epoch, last.life, last.number + 1, digest))

    def take(self) -> tuple[tuple[SeenExchange, ...], int]:
        """What was seen since the last time, and how many messages that asked for."""
        taken, asked = tuple(self.events), self.asked
        self.events, self.asked = [], 0
        return taken, asked

    def exchange(self, request: Request) -> Reply | Failure:
        query = request.path in {wire.QUERY_PATH, wire.SUM_PATH} or request.path.startswith(wire.CHANGES_PATH)
        if query and self.fault(request, False):
            return Failure("lost on the way")
        self.events.append(SeenExchange(request.method, request.path, request.headers, request.body, request.limit))
        if request.path == wire.CATALOGUE_PATH:
            return _json(200, wire.encode_catalogue(self.catalogue))
        if request.path == wire.SEEN_PATH:
            seen = self.last.get(request.body)
            return _json(200, wire.encode_seen(None if seen is None else wire.Seen(*seen)))
        if request.path == wire.EDITION_PATH:
            return _json(200, wire.encode_edition(wire.EditionReport(self.editions[-1], 0)))
        if request.path.startswith(wire.DIGESTS_PATH):
            return self._digests(request.path.partition("?")[2])
        if request.path == wire.SUM_PATH:
            reply = self._sum(request.body)
        elif request.path.startswith(wire.CHANGES_PATH):
            reply = self._changes(request.path.partition("?")[2])
        else:
            reply = self._answer(request.body)
        return Failure("lost on the way back") if query and self.fault(request, True) else reply

    def _canonical(self, decode: Callable[[bytes, int], _Decoded], body: bytes) -> _Decoded:
        """A query, which must be the one form of what it says."""
        try:
            return decode(body, self.catalogue.n)
        except InvalidWire as error:
            raise PrivacyBreach(f"a query that is not canonical: {error.message}") from None

    def _answer(self, body: bytes) -> Reply:
        query = self._canonical(wire.decode_query, body)
        self.asked += len(query.sources)
        tags = {query.known[at : at + wire.TAG_BYTES] for at in range(0, len(query.known), wire.TAG_BYTES)}
        if not tags <= self.told:
            raise PrivacyBreach("a query that knows a message which was never sent")
        refused = self._judge(body, query.session, query.step, hashlib.sha256(body).hexdigest())
        frames = [self._frame(source) for source in query.sources]
        if refused is None and self.catalogue.frame_size is None:
            self.told |= set(map(wire.frame_tag, frames))
        answer = wire.encode_answer(frames)
        if query.known:
            answer = wire.encode_changed(frames, query.known, epoch=self.catalogue.epoch)
        return refused or Reply(200, wire.ANSWER_HEADERS, answer)

    def _sum(self, body: bytes) -> Reply:
        query = self._canonical(wire.decode_sum_query, body)
        self.asked += any(query.vector)
        self.sums += 1
        refused = self._judge(body, query.session, query.step, wire.sum_step_digest(body).hex())
        answer = wire.sum_answer(self._frames(), query.vector, query.servers)
        return refused or Reply(200, wire.SUM_HEADERS, answer if self.lie is None else self._with_lie(answer))

    def _with_lie(self, answer: bytes) -> bytes:
        """An answer with the difference between the frame of a source and another valid frame of that source."""
        assert self.lie is not None
        other = replace(self._latest(self.lie), published=2)
        frames = self._encode(self.lie, self._latest(self.lie), None), self._encode(self.lie, other, None)
        first, second = (int.from_bytes(frame[: len(answer)].ljust(len(answer), b"\0")) for frame in frames)
        return (int.from_bytes(answer) ^ first ^ second).to_bytes(len(answer))

    def _digests(self, query: str) -> Reply:
        since = wire.decode_wanted_digests(query).since.number
        self._require_told(wire.decode_wanted_digests(query).since)
        frames = self._frames()
        digests = b"".join(map(wire.frame_digest, frames))
        held = wire.FrameDigests(self.editions[-1], max(map(len, frames)), digests)
        body = wire.encode_digests(held, since, [source for source, at in enumerate(self.changed) if at > since])
        return Reply(200, (("content-type", wire.DIGESTS_TYPE),), body)

    def _judge(self, body: bytes, session: bytes, at: int, mine: str) -> Reply | None:
        """Whether this step may come with these bytes: None, or the refusal; a broken rule is a breach."""
        if self.judging and self.journal is not None and not stored(self.journal, body):
            raise PrivacyBreach(f"step {at} of a session was sent before it was stored")
        step, digest = self.last.get(session, (-1, ""))
        if at < step or (at == step and mine != digest):
            if self.judging:
                raise PrivacyBreach(f"step {at} of a session was sent again with another set")
            problem = wire.Problem(409, "conflict", type=wire.STEP_CONFLICT, step=step, sha256=digest)
            return Reply(409, (("content-type", wire.PROBLEM_TYPE),), wire.encode_problem(problem))
        self.last[session] = (at, mine)
        return None

    def _changes(self, query: str) -> Reply:
        since = wire.decode_since(query)
        edition = self.editions[-1]
        self._require_told(since)
        changed = [source for source, at in enumerate(self.changed) if at > since.number]
        self.asked += len(changed)
        frames = [self._encode(source, self._latest(source), None) for source in changed]
        self.told |= {wire.frame_tag(frame) for frame in self._frames()}  # with what was sent before
        head = wire.encode_changes_head(edition, since.number)
        body = b"".join([head, *frames, wire.encode_changes_trailer(edition, since.number, frames)])
        return Reply(200, (("content-type", wire.CHANGES_TYPE),), body)

    def _require_told(self, since: wire.Since) -> None:
        known = since.number < len(self.editions) and self.editions[since.number]
        if since.number and (not known or (since.life, since.digest) != (known.life, known.digest)):
            raise PrivacyBreach(f"changes since an edition {since.number} that was never told")

    def _frames(self) -> list[bytes]:
        """All frames at their own length."""
        return [self._encode(source, self._latest(source), None) for source in range(self.catalogue.n)]

    def _frame(self, source: int) -> bytes:
        return self._encode(source, self._latest(source), self.catalogue.frame_size)

    def _encode(self, source: int, message: wire.WireMessage, frame_size: int | None) -> bytes:
        return wire.encode_frame(source, message, epoch=self.catalogue.epoch, frame_size=frame_size)

    def _latest(self, source: int) -> wire.WireMessage:
        return wire.WireMessage(self.versions[source], 1, "text/plain", self.message(source))


def stored(journal: Path, body: bytes) -> bool:
    """Whether these bytes are in the journal's files."""
    files = (journal, journal.with_name(journal.name + "-wal"))
    return any(body in path.read_bytes() for path in files if path.exists())


def _json(status: int, body: bytes) -> Reply:
    return Reply(status, (("content-type", "application/json"),), body)
