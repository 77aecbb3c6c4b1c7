"""The shipped client over web sites under the exact audit: every GET, header, connection and wait that a site can see.

The site is scripted, and what happens to it at a request does not depend on what is wanted: nothing, or one of the
conditions asked for, each with the same probability. Requests run the real `Client` with a real journal and a real file
of copies, the real `Web`, and a clock that only waiting moves; where a process ends within a set, the next one asks for
all of it again. What the site sees of a request is every connection and every request with its headers, in order, and
how long was waited between them.

A site counts no steps, so a journal that was restored from a backup cannot be recognised by it: that is not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from onoff.audit.client import AuditedClient, ClientRun, Crash, Fault, RequestSeen
from onoff.audit.exact import ExactAudit, audit_exact
from onoff.audit.logs import Recorder
from onoff.client import CopiesFile
from onoff.errors import SourceFailed
from onoff.model.contexts import Model
from onoff.session.session import Entropy, TableCache
from onoff.upstream import WebCopy
from onoff.upstream.message_server import MessageServer
from onoff.upstream.sources import Source, SourceList
from onoff.upstream.sum_servers import SumServers
from onoff.upstream.transport import Deadline, Failure, Origin, Reply, Request, origin_of
from onoff.upstream.web import Web

SITE: Final = "http://site.invalid"
SITE_ORIGIN: Final = origin_of(SITE)
EPOCH: Final = 1_000_000_000.0


class Happening(StrEnum):
    """What can happen at a request; those above the line to one member of the set."""

    CHANGED = "its message has changed since"
    FAILED = "it fails whenever it is asked for"
    LOST = "its first answer is lost"
    GONE = "it is not there"
    MOVED = "it has moved for good"
    REDIRECTED = "it is somewhere else, this time"
    LIMITED = "its first answer is that too much was asked"
    # ---
    FRESH = "the site calls its answers fresh for a while"
    CRASH_BEFORE = "the process ends before the first request leaves"
    CRASH_WITHIN = "the process ends after the first request"
    CRASH_AFTER = "the process ends when all was answered, and nothing kept"
    RESTART = "the client was closed and opened again"


OF_A_MEMBER: Final = (
    Happening.CHANGED,
    Happening.FAILED,
    Happening.LOST,
    Happening.GONE,
    Happening.MOVED,
    Happening.REDIRECTED,
    Happening.LIMITED,
)
SiteCondition = tuple[Happening, int]
NOTHING_HAPPENS: Final = None


def every_condition(n: int) -> tuple[SiteCondition, ...]:
    """Every happening, at every member where it is about one."""
    places = {happening: range(n) if happening in OF_A_MEMBER else range(1) for happening in Happening}
    return tuple((happening, place) for happening in Happening for place in places[happening])


class ScriptedSite:
    """A site of an audit, and the lines to it; it keeps what it saw."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.versions = [1] * len(names)
        self.moved: set[int] = set()
        self.condition: SiteCondition | None = None
        self.answered = [0] * len(names)
        self.time = EPOCH
        self.events: list[str] = []
        self.dies: Happening | None = None
        """When the process that asks it ends."""

    def begin(self, condition: SiteCondition | None) -> None:
        """Another request begins, a minute later."""
        self.condition, self.answered = condition, [0] * len(self.names)
        self.time += 60
        if condition is not None and condition[0] is Happening.CHANGED:
            self.versions[condition[1]] += 1
        if condition is not None and condition[0] is Happening.MOVED:
            self.moved.add(condition[1])

    def take(self) -> tuple[str, ...]:
        taken, self.events = tuple(self.events), []
        return taken

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.events.append(f"nothing for {seconds:g} s")
        self.time += seconds

    def connect(self, origin: Origin) -> ScriptedLine:
        self.events.append(f"connected to {origin.host}")
        return ScriptedLine(self)

    def message(self, place: int) -> bytes:
        return b"version %d of %s" % (self.versions[place], self.names[place].encode())

    def answer(self, request: Request) -> Reply | Failure:
        """What the site answers, by what is asked for and by what happens."""
        self.may_die(Happening.CRASH_BEFORE)
        headers = " ".join(f"{key}={value}" for key, value in request.headers)
        self.events.append(f"{request.method} {request.path} {headers}")
        self.may_die(Happening.CRASH_WITHIN)
        *elsewhere, name = request.path.strip("/").split("/")
        place = self.names.index(name)
        self.answered[place] += 1
        happening = self.condition[0] if self.condition is not None and self.condition[1] == place else None
        fresh = self.condition is not None and self.condition[0] is Happening.FRESH
        if happening is Happening.LOST and self.answered[place] == 1:
            return Failure("lost on the way back")
        if happening is Happening.LIMITED and self.answered[place] == 1:
            return Reply(429, (("retry-after", "2"),), b"")
        if happening is Happening.FAILED:
            return Reply(503, (), b"")
        if happening is Happening.GONE:
            return Reply(404, (), b"")
        if happening is Happening.REDIRECTED and not elsewhere:
            return Reply(302, (("location", f"/elsewhere/{name}"),), b"")
        if place in self.moved and not elsewhere:
            return Reply(301, (("location", f"/moved/{name}"),), b"")
        tag = f'"{self.versions[place]}"'
        kept = (("etag", tag), *((("cache-control", "max-age=90"),) if fresh else ()))
        if dict(request.headers).get("if-none-match") == tag:
            return Reply(304, kept, b"")
        return Reply(200, kept, self.message(place))

    def may_die(self, here: Happening) -> None:
        """End the process that asks, if this is where it ends."""
        if self.dies is here:
            raise Crash

    @property
    def state(self) -> Hashable:
        return tuple(self.versions), frozenset(self.moved), self.time


@dataclass(frozen=True)
class ScriptedLine:
    """A connection to a scripted site."""

    site: ScriptedSite

    def exchange(self, request: Request, deadline: Deadline) -> Reply | Failure:
        return self.site.answer(request)

    def close(self) -> None:
        self.site.events.append("closed")


@dataclass
class AuditedWeb(AuditedClient):
    """The client over a web site. conditions: what may happen. kind: the upstream, to be replaced by a broken twin."""

    conditions: tuple[SiteCondition, ...] = ()
    kind: type[Web] = Web

    @property
    def _new_run(self) -> Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun]:
        return partial(WebRun, conditions=self.conditions, kind=self.kind)


class AuditedCopies(CopiesFile):
    """A file of copies that a process may not live to write."""

    def __init__(self, path: Path, site: ScriptedSite) -> None:
        super().__init__(path)
        self.site = site

    def keep(self, copies: Mapping[str, WebCopy]) -> None:
        self.site.may_die(Happening.CRASH_AFTER)
        super().keep(copies)


class WebRun(ClientRun):
    """One user of one web site."""

    def __init__(
        self,
        chain: Model,
        tables: TableCache,
        faults: tuple[Fault, ...],
        recorder: Recorder,
        *,
        conditions: tuple[SiteCondition, ...],
        kind: type[Web],
    ) -> None:
        self.site, self.conditions, self.kind = ScriptedSite(chain.names), (NOTHING_HAPPENS, *conditions), kind
        super().__init__(chain, tables, faults, recorder)

    def _open(self) -> None:
        self.mirror = self.copies = AuditedCopies(self.journal.with_name("copies"), self.site)
        super()._open()

    def upstream(self) -> MessageServer | SumServers | Web:
        sources = tuple(Source(name, f"{SITE}/{name}", name) for name in self.chain.names)
        listed = SourceList(sources, hosts=frozenset({SITE_ORIGIN}))
        return self.kind(listed, connect=self.site.connect, now=self.site.now, sleep=self.site.sleep)

    def request(self, x: int, private: bool, entropy: Entropy, fault: Fault | None = None) -> RequestSeen:
        condition = self.conditions[entropy.choose([1] * len(self.conditions))] if len(self.conditions) > 1 else None
        if condition is not None and condition[0] is Happening.RESTART:
            self._reopen(Fault.RESTART)
        self.entropy.source = entropy
        self.site.begin(condition)
        message = self._asked(x, private, condition)
        self.records = self.records[1], self.client.core.record
        events = self.site.take()
        asked = sum(event.startswith("GET") for event in events)
        right = message is None or message in (self.site.message(x), self._before_change(x))
        return RequestSeen(events, asked, right)  # type: ignore[arg-type]

    def _asked(self, x: int, private: bool, condition: SiteCondition | None) -> bytes | None:
        """The message; after the end of a process the next one asks for the same set."""
        self.site.dies = None if condition is None else condition[0]
        try:
            return self.client.get(x, private=private).payload
        except SourceFailed:
            return None
        except Crash:
            self.client.close()
        finally:
            self.site.dies = None
        source = self.entropy.source
        self._open()
        self.entropy.source = source
        self.site.answered = [0] * len(self.site.names)
        try:
            return self.client.retry().payload
        except SourceFailed:
            return None

    def _before_change(self, x: int) -> bytes:
        """What a copy that the site called fresh may still be."""
        return b"version %d of %s" % (self.site.versions[x] - 1, self.site.names[x].encode())

    @property
    def state(self) -> Hashable:
        core = self.client.core
        copies = tuple(self.copies.get(name) for name in self.chain.names)
        own = core.doubt, core.session.state, core.record
        return own, copies, self.copies.refreshed, self.site.state, self.sessions


def audit_web(
    chain: Model,
    scheme: str,
    pattern: tuple[bool, ...],
    conditions: Sequence[SiteCondition] = (),
    kind: type[Web] = Web,
) -> ExactAudit:
    """The exact audit of the shipped client over a web site.

    conditions: What may happen at every request, or nothing, each with the same probability.
    kind: The upstream; a broken twin of it, to show that it would be caught.
    """
    return audit_exact(
        chain,
        scheme,
        pattern,
        session=lambda: AuditedWeb(chain, scheme, conditions=tuple(conditions), kind=kind),
    )
