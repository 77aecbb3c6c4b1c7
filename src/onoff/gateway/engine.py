"""The engine: what the gateway does, without HTTP, in two threads beside the event loop.

    session     requests, one after the other, each exactly once: steps of the session while OFF, reads of the mirror
                while ON. A message is delivered as soon as it arrives; what its request told the server, and what the
                next one will cost, is computed after that.
    schedule    what leaves by the clock and the switch alone: refreshes of the mirror, and heartbeats

They cannot be one: a refresh may wait for a server for half a minute, and a click while ON must not. The client has a
thread of its own for tables: to build one may take as long as its budget, and how long must not show in when a
heartbeat leaves, since of several servers none is to learn the set that a table is for.

One server: while ON a message is read from the mirror, which causes no traffic; while OFF it is one step of the
session. Without a model there is no client, and the mirror serves both positions. From a server without `/v1/changes`
everything is asked for while ON.

Web sites: as with one server, and while OFF a set is asked for by ordinary GETs. There are no heartbeats: whether a
site answers is known from the sets that were asked for, and nothing is asked again because of what became of the wanted
one.

Several servers: a request is a sum from each of them, ON and OFF, and the mirror, which is refreshed from the first
server, is for programs that poll feeds. Without a model every request is private.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Literal
from urllib.parse import unquote

from onoff import wire
from onoff.client import (
    BuildProgress,
    Client,
    Copy,
    Hooks,
    KeptCopies,
    Message,
    MirrorClient,
    Refresh,
    ServerView,
    SourceState,
    WebSources,
    default_journal,
    upstream_of,
)
from onoff.client.consent import GivenBy, OpenRecord
from onoff.errors import InvalidInput, MirrorEmpty, OnOffError, SourceFailed, UnknownSource
from onoff.gateway.evidence import Assessment, Evidence, ModelEvidence, assess, evidence_for, evidence_of_a_person
from onoff.gateway.metrics import GatewayMetrics
from onoff.gateway.query_log import LoggedQuery, QueryLog
from onoff.gateway.refresh import HEARTBEAT, INTERVAL, Deadlines, Heartbeat, Refresher, SiteStates
from onoff.gateway.render import EntryStore
from onoff.gateway.state import Board, Marks
from onoff.gateway.switch import Position, Switch
from onoff.model.contexts import Model
from onoff.model.origin import Advice
from onoff.upstream import MemberOutcome
from onoff.upstream.message_server import NoChanges
from onoff.upstream.transport import TIMEOUT, Failure, Http, Origin, Reply, Request, Transport, check_url
from onoff.upstream.web import Web

_logger = logging.getLogger("onoff.gateway")

SERVER_OPTIONS: Final = ("attempts", "backoff", "on_missing")
HOOK_OPTIONS: Final = ("tick", "background", "waiting", "entropy", "new_session", "clock", "sleep")
"""Options of an engine that are those of its servers, and of its client's hooks."""
KEPT_KEYS: Final = 128
LONGEST_KEY: Final = 128
LONGEST_QUEUE: Final = 64
QUERY_PATHS: Final = (wire.QUERY_PATH, wire.SUM_PATH)


class Changed(OnOffError):
    """The position of the switch is not the one that the caller saw; nothing was sent."""


class Busy(OnOffError):
    """Too many requests are waiting; nothing was sent."""


class Superseded(OnOffError):
    """The key belongs to a request that was not answered, and others were made since."""


@dataclass(eq=False)
class Job:
    """One request. `stored`: the client has stored it, so that it counts as made whatever became of it."""

    wanted: int
    private: bool
    key: str | None
    again: bool = False
    stored: bool = False
    done: Future[Message] = field(default_factory=Future)

    @property
    def void(self) -> bool:
        """Whether it failed before anything was stored: repeating its key makes a new request."""
        return not self.stored and self.done.done() and self.done.exception() is not None


@dataclass
class Traffic:
    """Requests to web sites, and the bytes of bodies that came back."""

    requests: int = 0
    received: int = 0

    def count(self, received: int) -> None:
        self.requests += 1
        self.received += received


class CountedTransport:
    """A transport that counts the bytes of bodies, and says of each query whether it left."""

    def __init__(self, inner: Transport, answered: Callable[[bool], None]) -> None:
        self._inner, self._answered = inner, answered
        self._lock = threading.Lock()
        self.counted = {"sent": 0, "received": 0, "queries": 0}

    def exchange(self, request: Request) -> Reply | Failure:
        reply = self._inner.exchange(request)
        left, query = isinstance(reply, Reply) or reply.left, request.path in QUERY_PATHS
        with self._lock:
            self.counted["sent"] += len(request.body) if left else 0
            self.counted["received"] += len(reply.body) if isinstance(reply, Reply) else 0
            self.counted["queries"] += left and query
        if query:
            self._answered(left)
        return reply


class Engine:
    """What the gateway does, without HTTP, for one message server, several with the same messages, or web sites.

    model      its names are the sources; without one all is read from the mirror, or of several servers, private
    journal    where the session is kept; the switch and the copies are beside it
    heartbeat  seconds between two checks that a server answers
    refresh    seconds between two refreshes; None: no mirror, or of web sites, as their list says
    about      where the model comes from, for the page; by default what the model itself says
    clock      the time by which timers run, in seconds since 1970
    """

    def __init__(
        self,
        url: str | Sequence[str] | Web,
        model: Model | None,
        journal: Path | None = None,
        *,
        log: QueryLog | None = None,
        heartbeat: float = HEARTBEAT,
        refresh: float | None = INTERVAL,
        about: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
        transport: Transport | Sequence[Transport] | None = None,
        timeout: float = TIMEOUT,
        **client_options: Any,
    ) -> None:
        self.web = url if isinstance(url, Web) else None
        self.board = Board()
        self.sites = None if self.web is None else SiteStates(self.web.sources.sources, self.board)
        self.urls = _addresses(url) if self.sites is None else self.sites.urls
        self.several = self.web is None and len(self.urls) > 1
        self.model, self.always_private = model, model is None
        address = " ".join(self.urls) if self.web is None else self.web.address
        self.journal = default_journal(address) if journal is None else Path(journal)
        servers = "".join(f" --server {shlex.quote(each)}" for each in self.urls) if self.web is None else ""
        place = "" if journal is None and servers else f" --journal {shlex.quote(str(self.journal))}"
        self.learn_command = f"onoff learn --from-gateway{servers}{place} --around others.npz -o model.npz"
        self.about: Mapping[str, Any] = getattr(model, "about", {}) if about is None else about
        self.on_missing: str = client_options.get("on_missing", "error")
        self.start = secrets.token_hex(4)
        """A random id of this start of the gateway; revisions begin again with each."""
        self.now = clock
        self.started = clock()
        self.switch = Switch(self._beside(".switch.json"), clock, self.board.changed)
        self.log = QueryLog() if log is None else log
        self.marks = Marks(self._beside(".read.json") if self.log.level == "full" else None)
        self.record = OpenRecord(self.journal, clock)
        self.entries = EntryStore()
        self.building: tuple[int, float] | None = None
        """Rows of the table that is being built, and since when."""
        self.opened: tuple[str, bool] | None = None
        """What was opened last and whether that was private, for the page; None where the log keeps less."""
        self.expected: dict[str, float | None] = {"on": None, "off": None}
        """Messages that the next request will download, under the model."""
        self._unmodelled: list[str] = []  # in the order in which they were found, for their numbers

        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._keys: OrderedDict[str, Job] = OrderedDict()
        self._last: Job | None = None
        self._job: Job | None = None
        self._fresh: list[tuple[ServerView, LoggedQuery | None]] = []  # stored for the job under way
        self._closed = False
        self.waiting = 0

        self.traffic = {mode: Traffic() for mode in ("on", "off")}
        """Of web sites: what refreshes took, and what open requests did."""
        self.lines = tuple(
            CountedTransport(line, lambda left: self.log.answered(left=left))
            for line in (_lines(self.urls, transport, timeout) if self.web is None else ())
        )
        by_mirror_alone = model is None and not self.several
        self.client = None if by_mirror_alone else self._new_client(refresh, client_options)
        self._hide: int = client_options.get("hide", 1)
        self._evident: Any = None
        """The model that the evidence is of."""
        if self.client is not None:
            self.client.about = self.about
        self.evidence = self._new_evidence(self._hide)
        self.advice: Advice | None = None
        """Whether to switch OFF, as it was after the last request: nobody who looks waits for the one under way."""
        self.foreseen: float | None = None
        """How likely the server's best guess of the next request is right, by what was openly asked."""
        self._look_ahead()

        self.metrics = GatewayMetrics(self)
        self.deadlines = Deadlines(self.board.bug)
        names = None if model is None else model.names
        self.heartbeat: Heartbeat | SiteStates = (
            Heartbeat(self.urls, names, heartbeat, self.deadlines, self.board) if self.sites is None else self.sites
        )
        self.refresher = self._new_refresher(refresh)
        self.deadlines.thread.start()
        self.session = threading.Thread(target=self._run, name="onoff-session", daemon=True)
        self.session.start()

    def _beside(self, suffix: str) -> Path:
        return self.journal.with_name(self.journal.name + suffix)

    @property
    def mirror_path(self) -> Path:
        return self._beside(".mirror")

    @property
    def copies_path(self) -> Path:
        return self._beside(".copies")

    def _new_client(self, refresh: float | None, options: dict[str, Any]) -> Client:
        own = {key: value for key, value in options.items() if key not in {*SERVER_OPTIONS, *HOOK_OPTIONS}}
        of_servers = {key: value for key, value in options.items() if key in SERVER_OPTIONS}
        of_hooks = {key: value for key, value in options.items() if key in HOOK_OPTIONS}
        place: Path | Literal[False] = self.mirror_path if refresh is not None else False
        client = Client(
            upstream_of(self.urls, transports=self.lines, **of_servers) if self.web is None else self.web,
            self.model,
            journal=self.journal,
            mirror=place if self.web is None else self.copies_path,
            hooks=Hooks(observe=self._stored, progress=self._progressed, **of_hooks),
            **own,
        )
        if self.model is not None:  # without a model that takes names from a server, which may be down now
            client.status()  # opens the journal, so that a second gateway fails here
        return client

    def _new_evidence(self, hide: int) -> Evidence | ModelEvidence | None:
        """What follows the session, from the last query of its journal on."""
        if self.client is None or self.model is None:
            return None
        last = self.client.status()["last"]
        self.log.reading = last is not None and bool(last["mirror"])
        before = None if last is None else (last["session"], last["step"], tuple(last["sources"]))
        self._evident = self.client.core.session.model
        return evidence_for(self._evident, self.client.tables, before, hide)

    def _new_refresher(self, interval: float | None) -> Refresher | None:
        copies = self._own_copies() if self.client is None else self.client.copies
        asks = self.web is None and self.client is not None and interval is None  # while ON too, by queries
        if copies is None or asks:
            return None
        interval = interval or (None if self.web is None else self.web.sources.every) or INTERVAL
        refresh: Callable[[], Refresh] = copies.refresh if self.client is None else self.client.refresh
        before: Callable[[], None] | None = None  # before a refresh of web sites nothing is looked at
        copies.arrived = self.entries.arrived
        if isinstance(copies, WebSources):
            assert self.sites is not None
            if self.model is not None:
                copies.require(self.model.names)
            copies.noticed, copies.answered = self._noticed, partial(self._answered, copies)
            # Everything by the clock, spread over the interval where the budget of the site asks for it.
            refresh = partial(copies.refresh, max(interval, copies.web.sources.patience))
        else:
            assert isinstance(self.heartbeat, Heartbeat)
            before = partial(self.heartbeat.check, 0)
        copies.sources()  # opens the file, so that a second gateway fails here
        timed = self.metrics.timed("refresh")(refresh)
        return Refresher(timed, copies, interval, self._mirror_serves, before, self.deadlines, self.board)

    def _own_copies(self) -> KeptCopies:
        """The copies where there is no client."""
        if self.web is not None:
            return WebSources(self.web, self.copies_path)
        return MirrorClient(self.urls[0], self.mirror_path, transport=self.lines[0])

    def _mirror_serves(self) -> bool:
        """Whether clicks are served from the mirror."""
        return not self.several and (self.always_private or self.switch.position.private)

    def _answered(self, copies: WebSources, outcomes: Mapping[str, MemberOutcome]) -> None:
        """A set is done: what became of its members, and the entries of all of them alike."""
        assert self.sites is not None
        self.sites.answered(outcomes)
        self.entries.arrived([(name, message) for name, message in copies.messages() if name in outcomes])

    def _noticed(self, whole: bool, host: Origin, received: int) -> None:
        """A request went out to a web site, for everything or for an open request, and bytes came back."""
        with self._lock:
            self.traffic["on" if whole else "off"].count(received)
        if not whole:
            self.log.answered(left=True)

    # -- sources -------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The sources: the model's, or the catalogue's where there is no model; none before that is known."""
        if self.model is not None:
            return self.model.names
        known = None if self.refresher is None else self.refresher.mirror.names
        if known is None and self.heartbeat.catalogue is not None:
            known = self.heartbeat.catalogue.names
        return known or ()

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Sources that the server has by now and the model does not: read from the mirror, which needs one server."""
        if self.model is None or self.several or self.refresher is None:
            return ()
        found = self.refresher.mirror.names or ()
        modelled = set(self.model.names)
        self._unmodelled += [name for name in found if name not in modelled and name not in self._unmodelled]
        return tuple(name for name in self._unmodelled if name in found)

    @property
    def all_names(self) -> tuple[str, ...]:
        """All that can be read."""
        return (*self.names, *self.unmodelled)

    def index(self, source: str) -> int:
        """The number of a source, the same for as long as the gateway runs. Raises UnknownSource."""
        if source in self.names:
            return self.names.index(source)
        if source in self.unmodelled:
            return len(self.names) + self._unmodelled.index(source)
        raise UnknownSource("no such source", hint="GET /v1/sources lists them")

    def source_at(self, target: str) -> str:
        """The source that a web site has at this path and query. Raises UnknownSource: nothing leaves."""
        if self.web is None:
            raise UnknownSource("this gateway has a message server, and no web site", hint="GET /v1/sources/NAME")
        exact, loose = self._targets
        found = exact.get(target) or loose.get(unquote(target))
        if not found:
            raise UnknownSource(
                "this address is not in the list of sources; nothing was sent",
                hint="add it to the list, or ask the site itself for it",
            )
        if len(found) > 1:
            raise UnknownSource("several sites have this path; nothing was sent", hint="GET /v1/sources/NAME")
        return found[0]

    @cached_property
    def _targets(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The sources by path and query: as they stand in addresses, and without escapes, which programs may change."""
        exact: dict[str, list[str]] = {}
        loose: dict[str, list[str]] = {}
        for source in () if self.web is None else self.web.sources.sources:
            exact.setdefault(source.target, []).append(source.name)
            loose.setdefault(unquote(source.target), []).append(source.name)
        return exact, loose

    def validators(self, message: Message) -> dict[str, str]:
        """The validators of a message from a web site: the site's own where these are its bytes, else a digest."""
        mirror = None if self.refresher is None else self.refresher.mirror
        known = mirror.copies.get(message.source) if isinstance(mirror, WebSources) else None
        if known is None or known.body != message.payload or not (known.etag or known.modified):
            return {"etag": f'"{hashlib.sha256(message.payload).hexdigest()[:32]}"'}
        own = {"etag": known.etag, "last-modified": known.modified}
        return {name: value for name, value in own.items() if value}

    def copy(self, source: str) -> Copy | None:
        """The message of `source` as the mirror has it, which may be refreshed first; None where there is no mirror.

        Not a request: for programs that poll every source whatever the person wants.
        """
        self.index(source)
        if self.refresher is None or not self.refresher.supported:
            return None
        try:
            self.refresher.wait_until_fresh()
        except NoChanges:
            return None
        return self.refresher.mirror.copy_as(Copy, source)  # of version 0 where a site has not given it yet

    def states(self) -> dict[str, SourceState]:
        """What the mirror knows of each source."""
        return {} if self.refresher is None else {state.name: state for state in self.refresher.mirror.sources()}

    # -- requests ------------------------------------------------------------------------------------------

    def request(self, source: str, *, key: str | None = None, expected: bool | None = None) -> Future[Message]:
        """The latest message of `source`, when its turn comes. Where it raises, nothing will be sent.

        It is asked as the switch says now. A **key** that a caller repeats gives the same request back: its answer, if
        there was one; otherwise its stored bytes are sent again, unless another request was made since. A request for
        which nothing was stored is a new one when it is repeated.

        expected: The position of the switch that the caller saw; Changed is raised if it is another now.

        Raises
        ------
        UnknownSource, InvalidInput
            There is no such source, it cannot be asked for openly, or the key is malformed or another source's.
        Changed, Superseded, Busy
            See there.
        """
        wanted = self.index(source)
        if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
            raise InvalidInput("not an idempotency key", hint=f"use 1 to {LONGEST_KEY} printable ASCII characters")
        with self._lock:
            known = self._keys.get(key) if key is not None else None
            if known is not None and known.wanted != wanted:
                raise InvalidInput("this idempotency key was used for another source", hint="use a new key")
            if known is not None and not known.void:
                job = self._repeated(known)
            else:
                job = self._accept(Job(wanted, self._decided(wanted, expected), key))
        self.board.changed()
        return job.done

    def turn(
        self,
        *,
        private: bool,
        seconds: float | None = None,
        until: float | None = None,
        accept_leak: bool = False,
    ) -> Position:
        """Turn the switch, and refresh the mirror where it was turned ON and clicks are served from it.

        accept_leak: Turn it OFF, and make open requests, although the advice is to stay ON; else InvalidInput.
        """
        if not private and self.client is not None and self.model is not None:
            self.client.accept_leak = self.client.accept_leak or accept_leak
            self.client.check_advice()
        was_private = self.switch.position.private
        position = self.switch.turn(private=private, seconds=seconds, until=until)
        if private and not was_private and not self.several and self.refresher is not None and self.refresher.supported:
            self.refresher.soon()
        return position

    def close(self, seconds: float = 1.0) -> None:
        """Stop. A request under way may take `seconds` more; after that it counts as sent, as after a crash."""
        self.deadlines.close()
        if self.refresher is not None:
            self.refresher.close()
        with self._lock:
            self._closed = True
        self._work.put(None)
        self.session.join(seconds)

    def _decided(self, wanted: int, expected: bool | None) -> bool:
        """Whether a new request is private."""
        found = self.switch.position.private
        if expected is not None and expected != found:
            word = "ON" if found else "OFF"
            raise Changed(f"the switch is {word}", hint="look at it and ask again; nothing was sent")
        if not found and self.model is not None and wanted >= self.model.n:
            raise InvalidInput(
                "the model does not know this source, so OFF cannot ask for it; nothing was sent",
                hint="turn privacy ON to read it, or learn a model that knows it",
            )
        return found

    def _repeated(self, known: Job) -> Job:
        if not known.done.done() or known.done.exception() is None:
            return known
        if isinstance(known.done.exception(), SourceFailed):
            return known  # it was answered: the site does not give it. To ask again only then would tell it which
        if known is not self._last:
            raise Superseded("this request was not answered, and others were made since", hint="make a new request")
        return self._accept(Job(known.wanted, known.private, known.key, again=True, stored=True))

    def _accept(self, job: Job) -> Job:
        if self._closed:
            raise Busy("the gateway is stopping", hint="ask again when it runs; nothing was sent")
        if self.waiting >= LONGEST_QUEUE:
            raise Busy("too many requests are waiting", hint="ask again later; nothing was sent")
        if job.key is not None:  # only now: a refused request must not occupy its key
            self._keys[job.key] = job
            self._keys.move_to_end(job.key)
            while len(self._keys) > KEPT_KEYS:
                self._keys.popitem(last=False)
        self.waiting += 1
        self._work.put(partial(self._do, job))
        return job

    # -- the session's thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        self._survive(self._estimate)
        while (work := self._work.get()) is not None:
            self._survive(work)
        with suppress(OnOffError):
            if self.client is not None:
                self.client.close()
            elif self.refresher is not None:
                self.refresher.mirror.close()
        self.log.close()

    def _survive(self, work: Callable[..., None], *about: object) -> None:
        """Nothing that is noted about a request may cost its answer, or those of the requests after it."""
        try:
            work(*about)
        except Exception as error:
            self.board.bug(error)

    def _do(self, job: Job) -> None:
        """Everything that one job takes."""
        job.done.set_running_or_notify_cancel()
        self._job, self._fresh = job, []
        outcome: Message | OnOffError
        try:
            outcome = self.fetch(job)
        except OnOffError as error:
            outcome = error
        except Exception as error:  # a bug in one request must not stop the gateway
            outcome = self.board.bug(error)
        self.log.settle()
        with self._lock:
            if job.stored:
                self._last = job
            self.waiting -= 1
        self._survive(self.remember, job, outcome)
        beat = self.heartbeat.beat if isinstance(self.heartbeat, Heartbeat) and not self.several else None
        if beat is not None and (isinstance(outcome, OnOffError) or self.heartbeat.connected is False):
            # Of several servers none may learn from a heartbeat that the answers did not fit, or did not all come; a
            # web site not that it was the wanted one that failed.
            self.deadlines.after(0, beat)
        self.board.changed()
        if isinstance(outcome, OnOffError):
            job.done.set_exception(outcome)
        else:
            job.done.set_result(outcome)
        for sent, query in self._fresh:
            assessment = self._assess(sent, job.wanted)
            if query is not None:
                query.assessment = assessment
        self._estimate()
        self.board.changed()

    def fetch(self, job: Job) -> Message:
        """The message that a job asks for: from the mirror, or by a request of the client."""
        by_mirror = not self.several and (job.private or self.client is None)
        if by_mirror and self.refresher is not None and self.refresher.supported:
            try:
                self.refresher.wait_for_first()
                return self.read(job, self.refresher.mirror)
            except NoChanges:
                if self.client is None:
                    raise
        assert self.client is not None
        with self.metrics.timed("query"):
            if job.again:
                return self.client.retry()
            return self.client.get(self.names[job.wanted], private=job.private or self.always_private)

    def read(self, job: Job, copies: KeptCopies) -> Message:
        """The message as it is known: no traffic. Raises SourceFailed where a site has never given it."""
        try:
            if self.client is not None and job.wanted >= len(self.names):
                return self.client.read_unmodelled(self._unmodelled[job.wanted - len(self.names)])
            if self.client is not None:
                return self.client.read(job.wanted)
            message = copies.copy(self.names[job.wanted], Message)
            return message.after(
                ServerView("", -1, (), len(self.names), job.private, mirror=True), messages=0, received=0
            )
        except MirrorEmpty:
            if not isinstance(copies, WebSources):
                raise
            last = copies.outcomes.get(self.all_names[job.wanted], MemberOutcome("failed"))
        why = last.reason or "the site has not given it yet"
        raise SourceFailed(why, hint="everything is asked for again by the schedule", status=last.status)

    def remember(self, job: Job, outcome: Message | OnOffError) -> None:
        """Record what was opened while OFF, with consent; of private requests only that there was one."""
        if not isinstance(outcome, OnOffError) and self.log.level == "full":
            self.opened = outcome.source, job.private
        if job.private or isinstance(outcome, OnOffError):
            self.record.interrupted()
        else:
            self.record.opened(outcome.source)

    def consent(self, by: GivenBy | None) -> None:
        """Remember what is opened while OFF, or (None) nothing any more; both for a model and for the session."""
        if by is None:
            self.record.forget()
            if self.client is not None:
                self.client.forget()
            return
        self.record.remember(by)
        with suppress(InvalidInput):  # requests were made before, or the model cannot take them in: as it was, then
            if self.client is not None and self.model is not None:
                self.client.remember()

    def _stored(self, sent: ServerView) -> None:
        """The client has stored a query, or that the mirror is read, for the job under way."""
        assert self._job is not None
        self._job.stored = True
        try:  # nothing that is noted about a request may cost its answer
            self._fresh.append((sent, self.log.append(self.now(), sent, self._job.wanted)))
        except Exception as error:
            self.board.bug(error)

    def _assess(self, sent: ServerView, wanted: int) -> Assessment:
        """What a query told the server; what is read from the mirror moves what it can believe as well."""
        try:
            core = None if self.client is None or self.model is None else self.client.core
            history = None if core is None else core.history
            if history is not None and not history.hidden:
                return Assessment(float(sent.cost), 1.0, 0.0, 0.0)  # nothing was private yet
            if history is not None and core is not None and core.session.model is not self._evident:
                self.evidence = evidence_of_a_person(core.session, history, sent, self._hide)
                self._evident = core.session.model
            return assess(sent, wanted, self.evidence)
        except Exception as error:  # an error in what is only displayed must not stop requests
            _logger.warning("a step could not be weighed: %s", type(error).__name__)
            return Assessment()

    @property
    def posterior(self) -> dict[str, Any] | None:
        """What the server can believe now, for the page; None where the log keeps less than everything."""
        return self.evidence.posterior if self.evidence is not None and self.log.level == "full" else None

    def _estimate(self) -> None:
        """What the next request will cost under the model; not known while that takes building a table."""
        if self.client is None or self.model is None:
            return
        found: dict[str, float | None] = {"on": None, "off": None}
        for mode in found:
            with suppress(OnOffError):
                found[mode] = self.client.expected_cost(private=mode == "on", wait=False)
        if found != self.expected:
            self.expected = found
            self.board.changed()
        self._look_ahead()

    def _look_ahead(self) -> None:
        if self.client is None or self.model is None:
            return
        found = self.client.advice, self.client.foreseen
        if found != (self.advice, self.foreseen):
            self.advice, self.foreseen = found
            self.board.changed()

    def _progressed(self, progress: BuildProgress) -> None:
        """A table is being built, or is ready, which the session's thread takes into account when it comes to it."""
        self.building = (progress.sources, self.now()) if progress.state == "building" else None
        self._work.put(self._estimate)
        self.board.changed()

    # -- the schedule's thread -----------------------------------------------------------------------------

    def servers_as_list(self) -> list[dict[str, Any]]:
        """Each server: whether it answers, and the bytes sent to it and received from it."""
        if self.sites is not None:
            return [
                {"url": url, "connected": site.connected, "problem": site.problem}
                for url, site in zip(self.urls, self.sites.servers, strict=True)
            ]
        return [
            {"url": url, "connected": server.connected, "problem": server.problem, **line.counted}
            for url, server, line in zip(self.urls, self.heartbeat.servers, self.lines, strict=True)
        ]


def _addresses(url: str | Sequence[str] | Web) -> tuple[str, ...]:
    """The addresses of message servers."""
    assert not isinstance(url, Web)
    return tuple(check_url(each).rstrip("/") for each in ([url] if isinstance(url, str) else url))


def _lines(
    urls: Sequence[str], transport: Transport | Sequence[Transport] | None, timeout: float
) -> Sequence[Transport]:
    """How each server is reached: by a transport for each, or one for a lone server; HTTP unless given."""
    if transport is None:
        return [Http(url, timeout=timeout) for url in urls]
    return transport if isinstance(transport, Sequence) else [transport] * len(urls)
