"""Upstream: the servers as the gateway sees them. A client, its mirror, and the state of the connections.

One server: while ON a message is read from the mirror, which causes no traffic; while OFF it is one step of the
session. Without a model there is no client, and the mirror serves both positions. From a server without `/v1/changes`
everything is asked for while ON.

Several servers: a request is a sum from each of them, ON and OFF, and the mirror, which is refreshed from the first
server, is for programs that poll feeds. Without a model every request is private.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from onoff import wire
from onoff.client import BuildProgress, Client, Copy, Message, MirrorClient, Refresh, Sent, SourceState, default_journal
from onoff.client.client import transports
from onoff.client.message_server import NoChanges, fetch_catalogue, require_sources
from onoff.errors import InvalidInput, MirrorError, OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway.jobs import Board, Job, Step
from onoff.gateway.render import EntryStore
from onoff.model.contexts import Model
from onoff.system.logs import Condition
from onoff.upstream.transport import Failure, Http, Reply, Request, Transport, check_url
from onoff.wire import WireMessage

# --------------------------------------------------------------------------------------------------------------------
# Refresher: keeps the mirror up to date by schedule, never because of what is read.
#
#     ON        when it is switched on, then every `interval` seconds; every `FILLING_SECONDS` in the first two
#     minutes
#               while there are sources without a message, as before a server that is fetching its feeds
#     OFF       only when a program polls feed addresses and the mirror is older than that
#     always    when the button is pressed
#
# Nothing here depends on what is opened, in what order or how often, so the server learns when the mirror is
# refreshed
# and nothing else. While the server does not answer, it is asked again every `REFRESH_RETRY_SECONDS`.


INTERVAL: Final = 300.0
REFRESH_RETRY_SECONDS: Final = 5.0
REFRESHER_LOOK_SECONDS: Final = 1.0
FILLING_SECONDS: Final = 5.0
FILLING_FOR: Final = 120.0
"""Seconds from the start for which a server may be taken to be filling its store."""
PATIENCE: Final = 60.0
"""Seconds that a reader waits for the first refresh, or a feed reader for one that is due."""


class Refresher:
    """Refreshes a mirror in its own thread.

    Parameters
    ----------
    refresh
        Brings the mirror up to date. After it the server is asked how many bytes change in an hour (`per_hour`).
    mirror
        What is refreshed.
    interval
        Seconds between two refreshes while ON.
    private
        Whether the switch is ON now.
    refreshed
        Called with each refresh, or with the error that prevented it.
    board
        Notified of every refresh.
    """

    def __init__(
        self,
        refresh: Callable[[], Refresh],
        mirror: MirrorClient,
        interval: float,
        private: Callable[[], bool],
        refreshed: Callable[[Refresh | OnOffError], None],
        board: Board,
    ) -> None:
        self.mirror, self.interval = mirror, interval
        self.supported = True
        self.problem: OnOffError | None = None
        self.per_hour: int | None = None
        self._refresh, self._private, self._refreshed, self._board = refresh, private, refreshed, board
        self._news = threading.Condition()
        self._begun = 0  # attempts
        self._done = 0  # those that ended, whether or not they succeeded
        self._asked = 0  # the attempt that is waited for, counted as in `_done`
        self._retry_at = 0.0
        self._closed = False
        self._prepared = threading.Event()
        self._incomplete = False  # sources without a message
        self._filled_by = time.monotonic() + FILLING_FOR
        self._thread = threading.Thread(target=self._work, name="onoff-refresh", daemon=True)
        self._thread.start()

    # -- for other threads ----------------------------------------------------------------------------------

    def refresh_soon(self) -> int:
        """Refresh as soon as possible, also if a refresh is under way: it may miss what was published meanwhile.

        Returns the number of the attempt, for `wait`.
        """
        with self._news:
            return self._ask_for(self._begun + 1)

    def _ask_for(self, attempt: int) -> int:
        self._asked = max(self._asked, attempt)
        self._news.notify_all()
        return attempt

    def wait(self, attempt: int) -> None:
        """Wait until that attempt was made. Raises its error, or ServerUnreachable after `PATIENCE` seconds."""
        with self._news:
            self._news.wait_for(lambda: self._done >= attempt or self._closed, PATIENCE)
            if self._done < attempt:
                raise ServerUnreachable("the mirror was not refreshed in time", hint="try again later")
            if self.problem is not None:
                raise self.problem

    def wait_for_first(self) -> None:
        """Wait until there is something to read. Causes no refresh: the schedule does. Raises as `wait` does."""
        self._prepared.wait(PATIENCE)
        if self.mirror.mirror.edition is None:
            self.wait(1)

    def wait_until_fresh(self) -> None:
        """For programs that poll whatever the person wants: refresh if the mirror is older than the interval.

        If that fails, an older copy is better than none; raises where there is none.
        """
        with self._news:  # else a refresh that ends between look and question would be followed by another
            if not self._due():
                return
            attempt = self._ask_for(self._done + 1)  # one that is under way will do
        try:
            self.wait(attempt)
        except OnOffError:
            if self.mirror.mirror.edition is None:
                raise

    def as_dict(self) -> dict[str, Any]:
        """What the page shows of it."""
        mirror = self.mirror.mirror
        edition, problem = mirror.edition, self.problem  # once: the thread that refreshes sets them
        return {
            "supported": self.supported,
            "edition": None if edition is None else edition.number,
            "refreshed": mirror.refreshed,
            "interval": self.interval,
            "bytes": mirror.size,
            "used_today": self.mirror.used_today,
            "problem": None if problem is None else problem.message,
        }

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()

    # -- the thread ----------------------------------------------------------------------------------------

    def _due(self) -> bool:
        age = self.mirror.age
        return age is None or age >= self._pause

    @property
    def _pause(self) -> float:
        """Seconds between two refreshes now."""
        filling = self._incomplete and time.monotonic() < self._filled_by
        return min(self.interval, FILLING_SECONDS) if filling else self.interval

    def _work(self) -> None:
        self._prepare()
        while self._wait_until_wanted():
            self._attempt()

    def _prepare(self) -> None:
        """Hand over the copies of the last run, as if they had arrived now."""
        try:
            if self.mirror.arrived is not None:
                self.mirror.arrived(list(self._copies()))
        except Exception as error:
            self.problem = self._shown(error)
        self._prepared.set()

    def _copies(self) -> Iterator[tuple[str, WireMessage]]:
        mirror = self.mirror.mirror
        for name in tuple(mirror.entries):
            with suppress(MirrorError):  # one that is damaged does not touch the others
                yield name, mirror.message(name)[0]

    def _shown(self, error: Exception) -> OnOffError:
        """The error as the page shows it."""
        return error if isinstance(error, OnOffError) else self._board.bug(error)

    def _wait_until_wanted(self) -> bool:
        """Sleep until it is time to refresh; False when it is closed."""
        with self._news:
            while not self._closed:
                try:
                    if self._wanted():
                        self._begun += 1
                        return True
                    patience = self._patience()
                except Exception as error:  # such as a mirror that cannot be opened again, on a full disk
                    self.problem, patience = self._shown(error), REFRESH_RETRY_SECONDS
                self._news.wait(patience)
            return False

    def _wanted(self) -> bool:
        """Whether to refresh now: it was asked for, or the switch is ON and the interval is over."""
        if self._asked > self._done:
            return True
        if not (self.supported and self._private()):
            return False
        return self._due() if self.problem is None else time.monotonic() >= self._retry_at

    def _patience(self) -> float:
        """Seconds to sleep at most; `refresh_soon` wakes the thread at once."""
        age = self.mirror.age
        return REFRESHER_LOOK_SECONDS if age is None else max(0.01, min(REFRESHER_LOOK_SECONDS, self._pause - age))

    def _attempt(self) -> None:
        outcome: Refresh | OnOffError
        problem: OnOffError | None = None
        try:
            outcome = self._refresh()
            self._incomplete = not all(state.version for state in self.mirror.sources())
            self.per_hour = self.mirror.changed_per_hour()  # at every refresh: independent of what is read
        except NoChanges as error:
            outcome = problem = error
            self.supported = False
        except Exception as error:  # else the mirror would stay as it is for good, and nobody would know
            outcome = problem = self._shown(error)
        with self._news:
            self._done += 1
            self.problem = problem
            self._retry_at = time.monotonic() + REFRESH_RETRY_SECONDS
            self._news.notify_all()
        self._refreshed(outcome)
        self._board.changed()


# --------------------------------------------------------------------------------------------------------------------
# Presence: whether the servers answer, and have the sources of the model.
#
# A thread asks each server for its catalogue every `heartbeat` seconds, and more often while one does not answer. A
# lone
# server that failed to answer a request is checked at once; several are checked independently of requests.


log = logging.getLogger("onoff.gateway")

HEARTBEAT: Final = 20.0
HEARTBEAT_WHILE_GONE: Final = 2.0
PROBE_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServerLook:
    """The result of the last check of a server. connected: None before the first one."""

    connected: bool | None = None
    problem: str | None = None
    catalogue: wire.Catalogue | None = None


class Presence:
    """Checks the servers at `urls` every `heartbeat` seconds; `names` are the sources that they must have."""

    def __init__(self, urls: Sequence[str], names: tuple[str, ...] | None, heartbeat: float, board: Board) -> None:
        self.urls, self.names = tuple(urls), names
        self._looks = [ServerLook() for _ in self.urls]
        self._transports = [Http(url, timeout=PROBE_TIMEOUT) for url in self.urls]
        self._answering = [Condition(log) for _ in self.urls]
        self._heartbeat = heartbeat
        self._board = board
        self.looked = threading.Event()  # set after the first check
        self._wake = threading.Event()
        self._closed = False
        threading.Thread(target=self._beat, name="onoff-heartbeat", daemon=True).start()

    @property
    def connected(self) -> bool | None:
        """Whether all servers answer; None: not known yet."""
        found = {look.connected for look in self._looks}
        return False if False in found else None if None in found else True

    @property
    def problem(self) -> str | None:
        """What is wrong, for all servers with a problem; None where there is none."""
        return "; ".join(look.problem for look in self._looks if look.problem is not None) or None

    @property
    def catalogue(self) -> wire.Catalogue | None:
        """The last catalogue of the first server that has answered."""
        return next((look.catalogue for look in self._looks if look.catalogue is not None), None)

    def as_list(self) -> list[dict[str, Any]]:
        """The state of each server, for the page."""
        return [
            {"url": url, "connected": look.connected, "problem": look.problem}
            for url, look in zip(self.urls, self._looks, strict=True)
        ]

    def report(self, outcome: Message | Refresh | OnOffError) -> None:
        """Update the state from the outcome of a request or a refresh; a message from the mirror changes nothing.

        With several servers nothing changes at all: whether the answers fitted together, or all came, must not show in
        what leaves next, or one server could tell another by it.
        """
        if len(self.urls) > 1 or (isinstance(outcome, Message) and outcome.sent.mirror):
            return
        problem = outcome.message if isinstance(outcome, OnOffError) else None
        connected = problem is None or (self.connected is True and not isinstance(outcome, ServerUnreachable))
        self._looks = [ServerLook(connected, problem, look.catalogue) for look in self._looks]
        if not connected:
            self._wake.set()
        self._board.changed()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _beat(self) -> None:
        while not self._closed:
            for place in range(len(self.urls)):
                self._look(place)
            self.looked.set()
            gone = self.connected is not True
            self._wake.wait(min(self._heartbeat, HEARTBEAT_WHILE_GONE) if gone else self._heartbeat)
            self._wake.clear()

    def _look(self, place: int) -> None:
        problem, catalogue = None, self._looks[place].catalogue
        try:
            catalogue = fetch_catalogue(self.urls[place], self._transports[place])
            if self.names is not None:
                require_sources(self.names, catalogue)
        except OnOffError as error:
            problem = error.message
        except Exception as error:
            problem = self._board.bug(error).message
        if problem is None:
            self._answering[place].works("%s answers again", self.urls[place])
        else:
            self._answering[place].fails("%s; the gateway runs and goes on looking", problem)
        found = ServerLook(problem is None, problem, catalogue)
        if found != self._looks[place]:
            self._looks[place] = found
            self._board.changed()


# --------------------------------------------------------------------------------------------------------------------
# Meter: bytes sent to and received from one server, and how many queries were sent.


QUERY_PATHS: Final = (wire.QUERY_PATH, wire.SUM_PATH)


class Meter:
    """A transport that counts the bytes of bodies that another one sends and receives."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.sent = 0
        self.received = 0
        self.queries_that_left = 0

    def exchange(self, request: Request) -> Reply | Failure:
        reply = self._inner.exchange(request)
        left = isinstance(reply, Reply) or reply.left
        with self._lock:
            self.sent += len(request.body) if left else 0
            self.received += len(reply.body) if isinstance(reply, Reply) else 0
            self.queries_that_left += left and request.path in QUERY_PATHS
        return reply

    def as_dict(self) -> dict[str, Any]:
        return {"sent": self.sent, "received": self.received, "queries": self.queries_that_left}


# --------------------------------------------------------------------------------------------------------------------
# StepObserver: which steps of the session a job stored, and which of them were sent.


class StepObserver:
    """Notes the steps of one job at a time.

    A step is stored before it is sent. It was sent if the meters counted a query before the next step was stored.
    """

    def __init__(self, meters: Sequence[Meter], now: Callable[[], float]) -> None:
        self._meters, self._now = meters, now
        self._stored: list[tuple[float, Sent, int]] = []

    def observed(self, sent: Sent) -> None:
        """The client has stored a step and is about to send it."""
        self._stored.append((self._now(), sent, self._count()))

    @contextmanager
    def steps_of(self, job: Job) -> Iterator[None]:
        """Add what is stored inside the block to the steps of `job`. A repeated request is the step that it was."""
        self._stored, left_before = [], self._count()
        try:
            yield
        finally:
            left_now = self._count()
            if job.again and job.steps and left_now > left_before:
                job.steps[-1] = Step(job.steps[-1].time, job.steps[-1].sent, left=True)
            ends = [begin for _, _, begin in self._stored[1:]]
            for (moment, sent, begin), end in zip(self._stored, [*ends, left_now], strict=False):
                job.steps.append(Step(moment, sent, left=end > begin))

    def _count(self) -> int:
        return sum(meter.queries_that_left for meter in self._meters)


# --------------------------------------------------------------------------------------------------------------------
# Estimate: how many messages the next request will download, ON and OFF, and of several servers how many bytes.
#
# Computed in its own thread: a client that is busy with a request answers only afterwards.


class Estimate:
    """Keeps both numbers up to date; None while unknown. `always_private`: OFF costs the same as ON."""

    def __init__(self, client: Client, board: Board, *, always_private: bool = False) -> None:
        self._client, self._board, self._always_private = client, board, always_private
        self._messages: dict[str, float | None] = {"on": None, "off": None}
        self.bytes: dict[str, float | None] | None = None
        """The same in bytes; None with one server, where the length depends on the message."""
        self._wake = threading.Event()
        self._wake.set()
        self._closed = False
        threading.Thread(target=self._follow, name="onoff-estimate", daemon=True).start()

    def wake(self) -> None:
        """Compute the numbers again: something changed on which they may depend."""
        self._wake.set()

    def as_dict(self) -> dict[str, float | None]:
        return dict(self._messages)

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _follow(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            on = self._expected(private=True)
            found = {"on": on, "off": on if self._always_private else self._expected(private=False)}
            in_bytes = None if len(self._client.urls) == 1 else self._bytes()
            if (found, in_bytes) != (self._messages, self.bytes):
                self._messages, self.bytes = found, in_bytes
                self._board.changed()

    def _bytes(self) -> dict[str, float | None]:
        try:
            return {mode: self._client.expected_bytes(private=mode == "on", wait=False) for mode in ("on", "off")}
        except OnOffError:
            return {"on": None, "off": None}
        except Exception as error:
            self._board.bug(error)
            return {"on": None, "off": None}

    def _expected(self, *, private: bool) -> float | None:
        try:
            return self._client.expected_cost(private=private, wait=False)
        except OnOffError:
            return None
        except Exception as error:
            self._board.bug(error)
            return None


# --------------------------------------------------------------------------------------------------------------------
# The settings that a gateway was started with.


@dataclass(frozen=True)
class GatewaySetup:
    """The servers, the model, and where things are kept.

    urls: the addresses of the servers, without a slash at the end.
    chain: how requests follow one another; None: no model.
    journal: the file of the session; the switch, the mirror and the record are kept beside it.
    about: what the file of the model says of it.
    on_missing: what a client does where one of several servers does not answer.
    learn_command: the command that learns a model from what this gateway recorded.
    """

    urls: tuple[str, ...]
    chain: Model | None
    journal: Path
    about: Mapping[str, Any]
    on_missing: str
    learn_command: str

    @classmethod
    def of(
        cls,
        url: str | Sequence[str],
        chain: Model | None,
        journal: Path | None,
        about: Mapping[str, Any] | None,
        on_missing: str,
    ) -> GatewaySetup:
        """The setup of these arguments of an engine, checked."""
        urls = tuple(check_url(each).rstrip("/") for each in ([url] if isinstance(url, str) else url))
        path = default_journal(" ".join(urls)) if journal is None else Path(journal)
        place = "" if journal is None else f" --journal {shlex.quote(str(path))}"
        servers = " ".join(f"--server {shlex.quote(each)}" for each in urls)
        command = f"onoff learn --from-gateway {servers}{place} -o model.json"
        described: Mapping[str, Any] = getattr(chain, "about", {}) if about is None else about
        return cls(urls, chain, path, described, on_missing, command)

    @property
    def url(self) -> str:
        """All addresses, with spaces between them."""
        return " ".join(self.urls)

    @cached_property
    def several(self) -> bool:
        """Whether there is more than one server."""
        return len(self.urls) > 1

    @cached_property
    def always_private(self) -> bool:
        """Whether requests are private while OFF too: without a model it is not known what an open one tells."""
        return self.chain is None

    @property
    def mirror_path(self) -> Path:
        return self.journal.with_name(f"{self.journal.name}.mirror")

    @property
    def switch_path(self) -> Path:
        return self.journal.with_name(f"{self.journal.name}.switch.json")


class Upstream:
    """What fetches messages, one job at a time.

    Parameters
    ----------
    setup
        The servers and the model.
    board
        Notified of every change.
    now
        The time in seconds since 1970.
    private
        Whether the switch is ON now.
    heartbeat
        Seconds between two checks that the servers answer.
    refresh
        Seconds between two refreshes of the mirror; None: no mirror, unless there is nothing else.
    transport, timeout, client_options
        Passed to the client.
    """

    def __init__(
        self,
        setup: GatewaySetup,
        board: Board,
        now: Callable[[], float],
        private: Callable[[], bool],
        *,
        heartbeat: float,
        refresh: float | None,
        transport: Transport | Sequence[Transport] | None,
        timeout: float,
        client_options: dict[str, Any],
    ) -> None:
        self.setup, self._board, self._now = setup, board, now
        self.building: tuple[int, float] | None = None
        """Rows of the table that is being built, and since when."""
        self.estimate: Estimate | None = None
        self.entries = EntryStore()
        self._unmodelled: list[str] = []  # in the order in which they were found, for their numbers
        self._modelled = frozenset(() if setup.chain is None else setup.chain.names)
        self.meters = tuple(Meter(line) for line in transports(setup.urls, transport, timeout))
        self._observer = StepObserver(self.meters, now)
        by_mirror_alone = setup.chain is None and not setup.several
        self.client = None if by_mirror_alone else self._new_client(refresh, client_options)
        self.presence = Presence(setup.urls, None if setup.chain is None else setup.chain.names, heartbeat, board)
        if self.client is not None:
            self.estimate = Estimate(self.client, board, always_private=setup.always_private)
        self.refresher = self._new_refresher(refresh, private)

    def _new_client(self, refresh: float | None, options: dict[str, Any]) -> Client:
        client = Client(
            self.setup.urls,
            self.setup.chain,
            journal=self.setup.journal,
            observe=self._observer.observed,
            progress=self._progressed,
            transport=self.meters,
            mirror=False if refresh is None else self.setup.mirror_path,
            **options,
        )
        if self.setup.chain is not None:  # without a model that takes names from a server, which may be down now
            client.status()  # opens the journal, so that a second gateway fails here
        return client

    def _new_refresher(self, interval: float | None, private: Callable[[], bool]) -> Refresher | None:
        if self.client is None:
            mirror = MirrorClient(self.setup.url, self.setup.mirror_path, transport=self.meters[0])
            refresh = mirror.refresh
        elif self.client.mirror is not None and interval is not None:
            refresh, mirror = self.client.refresh, self.client.mirror
        else:
            return None

        def mirror_serves() -> bool:
            return not self.setup.several and (self.setup.always_private or private())

        mirror.arrived = self.entries.arrived
        mirror.sources()  # opens the file, so that a second gateway fails here
        return Refresher(refresh, mirror, interval or INTERVAL, mirror_serves, self._refreshed, self._board)

    # -- messages ------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The sources: the model's, or the catalogue's where there is no model; none before that is known."""
        if self.setup.chain is not None:
            return self.setup.chain.names
        known = None if self.refresher is None else self.refresher.mirror.mirror.catalogue
        catalogue = known or self.presence.catalogue
        return () if catalogue is None else catalogue.names

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Sources that the server has by now and the model does not: read from the mirror, which needs one server."""
        if self.setup.chain is None or self.setup.several or self.refresher is None:
            return ()
        catalogue = self.refresher.mirror.mirror.catalogue
        found = () if catalogue is None else catalogue.names
        for name in found:
            if name not in self._unmodelled and name not in self._modelled:
                self._unmodelled.append(name)
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

    def require_modelled(self, wanted: int) -> None:
        """Raises InvalidInput for a source that cannot be asked for openly."""
        if self.setup.chain is not None and wanted >= self.setup.chain.n:
            raise InvalidInput(
                "the model does not know this source, so OFF cannot ask for it; nothing was sent",
                hint="turn privacy ON to read it, or learn a model that knows it",
            )

    def run(self, job: Job) -> Message:
        """The message that a job asks for; what was stored for it is added to its steps."""
        with self._observer.steps_of(job):
            by_mirror = not self.setup.several and (job.private or self.client is None)
            if by_mirror and self.refresher is not None and self.refresher.supported:
                try:
                    self.refresher.wait_for_first()
                except NoChanges:
                    if self.client is None:
                        raise
                else:
                    return self._read_mirror(job)
            assert self.client is not None
            if job.again:
                return self.client.retry()
            return self.client.get(self.names[job.wanted], private=job.private or self.setup.always_private)

    def _read_mirror(self, job: Job) -> Message:
        assert self.refresher is not None
        if self.client is not None and job.wanted >= len(self.names):
            return self.client.read_unmodelled(self._unmodelled[job.wanted - len(self.names)])
        if self.client is not None:
            return self.client.read(job.wanted)
        names = self.names
        message = self.refresher.mirror.copy_as(Message, names[job.wanted])
        return message.after(Sent("", -1, (), len(names), job.private, mirror=True), messages=0, received=0)

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
        return self.refresher.mirror.copy(source)

    def states(self) -> dict[str, SourceState]:
        """What the mirror knows of each source."""
        return {} if self.refresher is None else {state.name: state for state in self.refresher.mirror.sources()}

    def refresh_soon(self) -> None:
        """Have the mirror refreshed now, where clicks are served from it."""
        if self.refresher is not None and self.refresher.supported and not self.setup.several:
            self.refresher.refresh_soon()

    # -- the state of the servers ----------------------------------------------------------------------

    def _refreshed(self, outcome: Refresh | OnOffError) -> None:
        if isinstance(outcome, Refresh | ServerUnreachable):  # the refresher itself shows other errors
            self.presence.report(outcome)

    def _progressed(self, progress: BuildProgress) -> None:
        self.building = (progress.sources, self._now()) if progress.state == "building" else None
        self.wake_estimate()
        self._board.changed()

    def wake_estimate(self) -> None:
        """Compute the cost of the next request again."""
        if self.estimate is not None:
            self.estimate.wake()

    # -- life ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the threads; a job under way goes on."""
        self.presence.close()
        if self.estimate is not None:
            self.estimate.close()
        if self.refresher is not None:
            self.refresher.close()

    def close(self) -> None:
        """Close the journal and the mirror, when no job is under way."""
        with suppress(OnOffError):
            if self.client is not None:
                self.client.close()
            elif self.refresher is not None:
                self.refresher.mirror.close()
