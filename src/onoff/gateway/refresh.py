"""What leaves by the clock and the switch alone: refreshes of the mirror, and heartbeats, in one thread.

Nothing here is given what is wanted, or whether something was opened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from onoff import wire
from onoff.client import KeptCopies, MirrorClient, Refresh
from onoff.errors import BadAnswer, OnOffError, ServerUnreachable
from onoff.gateway.state import Board
from onoff.system.logs import Condition
from onoff.upstream import MemberOutcome
from onoff.upstream.budget import OverBudget
from onoff.upstream.message_server import NoChanges, fetch_catalogue, require_sources
from onoff.upstream.sources import Source
from onoff.upstream.transport import NOT_A_SERVER, Http, Origin, Reply, Request, Transport

_logger = logging.getLogger("onoff.gateway")

HEARTBEAT: Final = 20.0
HEARTBEAT_WHILE_GONE: Final = 2.0
PROBE_TIMEOUT: Final = 5.0
INTERVAL: Final = 300.0
REFRESH_RETRY_SECONDS: Final = 5.0
SWITCH_LOOK_SECONDS: Final = 1.0
"""How often the switch is looked at, which a timer or its schedule may turn."""
FILLING_SECONDS: Final = 5.0
FILLING_FOR: Final = 120.0
"""Seconds from the start for which a server may be taken to be filling its store."""
PATIENCE: Final = 60.0
"""Seconds that a reader waits for the first refresh, or a feed reader for one that is due."""
EDITION_REQUEST: Final = Request("GET", wire.EDITION_PATH, wire.CATALOGUE_HEADERS, b"", 64 * 1024)


class Deadlines:
    """Does work at its time, one piece after the other, in a thread of its own. A bug in one does not end it."""

    def __init__(self, bug: Callable[[Exception], object]) -> None:
        self._bug = bug
        self._due: dict[Callable[[], None], float] = {}
        self._news = threading.Condition()
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="onoff-schedule", daemon=True)

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        """Do `work` once, so many seconds from now, or earlier where an earlier time was set for it."""
        with self._news:
            due = time.monotonic() + seconds
            self._due[work] = min(due, self._due.get(work, due))
            self._news.notify()

    def close(self) -> None:
        """Begin nothing more; what is under way goes on."""
        with self._news:
            self._closed = True
            self._news.notify()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception as error:
                self._bug(error)

    def _next(self) -> Callable[[], None] | None:
        with self._news:
            while not self._closed:
                work = min(self._due, key=self._due.__getitem__, default=None)
                patience = None if work is None else self._due[work] - time.monotonic()
                if work is not None and patience is not None and patience <= 0:
                    del self._due[work]
                    return work
                self._news.wait(patience)
            return None


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the last heartbeat found. connected: None before the first one; report: None of an older server."""

    connected: bool | None = None
    problem: str | None = None
    catalogue: wire.Catalogue | None = None
    report: wire.EditionReport | None = None


class Heartbeat:
    """Checks the servers at `urls` every so many seconds; `names` are the sources that they must have, None: any."""

    def __init__(
        self, urls: Sequence[str], names: tuple[str, ...] | None, seconds: float, deadlines: Deadlines, board: Board
    ) -> None:
        self.urls, self._names, self._seconds = tuple(urls), names, seconds
        self._deadlines, self._board = deadlines, board
        self.servers = [ServerState() for _ in self.urls]
        self.looked = threading.Event()  # set after the first one
        self._probes = [Http(url, timeout=PROBE_TIMEOUT) for url in self.urls]
        self._answering = [Condition(_logger) for _ in self.urls]
        deadlines.after(0, self.beat)

    @property
    def connected(self) -> bool | None:
        """Whether all servers answer; None: not known yet."""
        found = {server.connected for server in self.servers}
        return False if False in found else None if None in found else True

    @property
    def catalogue(self) -> wire.Catalogue | None:
        """The last catalogue of the first server that has answered."""
        return next((server.catalogue for server in self.servers if server.catalogue is not None), None)

    def beat(self) -> None:
        """Check every server, and again after so many seconds, or sooner while one does not answer."""
        for place in range(len(self.urls)):
            self.check(place)
        self.looked.set()
        pause = self._seconds if self.connected else min(self._seconds, HEARTBEAT_WHILE_GONE)
        self._deadlines.after(pause, self.beat)

    def check(self, place: int) -> None:
        """Ask a server for its newest edition, and for its catalogue where that is another one; never raises."""
        url, known = self.urls[place], self.servers[place]
        problem, catalogue, report = None, known.catalogue, known.report
        try:
            report = _edition(url, self._probes[place])
            if catalogue is None or report is None or report.edition.epoch != catalogue.epoch:
                catalogue = fetch_catalogue(url, self._probes[place])
            if self._names is not None:
                require_sources(self._names, catalogue)
        except OnOffError as error:
            problem = error.message
        except Exception as error:
            problem = self._board.bug(error).message
        if problem is None:
            self._answering[place].works("%s answers again", url)
        else:
            self._answering[place].fails("%s; the gateway is running and keeps trying", problem)
        self.servers[place] = ServerState(problem is None, problem, catalogue, report)
        if self.servers[place] != known:
            self._board.changed()


def _edition(url: str, transport: Transport) -> wire.EditionReport | None:
    """The newest edition of a server; None where it is of a version that has none."""
    reply = transport.exchange(EDITION_REQUEST)
    if not isinstance(reply, Reply):
        raise ServerUnreachable(f"{url}: {reply.reason}", hint="is the server running?")
    if reply.status in {404, 405}:
        return None
    if reply.status != 200:
        raise BadAnswer(f"{url}: no edition, but HTTP {reply.status}", hint=NOT_A_SERVER)
    return wire.decode_edition(reply.body)


class SiteStates:
    """What the last answers of web sites told, in place of heartbeats: nothing is ever asked just to look.

    urls     the sites, as `scheme://host`
    servers  the state of each, from the last set in which it was asked for something
    """

    catalogue = None

    def __init__(self, sources: Sequence[Source], board: Board) -> None:
        self._site = {source.name: _site(source.origin) for source in sources}
        self.urls = tuple(sorted(set(self._site.values())))
        self.servers = [ServerState() for _ in self.urls]
        self._board = board
        self.looked = threading.Event()
        self.looked.set()

    @property
    def connected(self) -> bool | None:
        """Whether every site that was asked gave something; None: none was asked yet."""
        found = {server.connected for server in self.servers}
        return False if False in found else True if True in found else None

    def answered(self, outcomes: Mapping[str, MemberOutcome]) -> None:
        """A set is done."""
        before = list(self.servers)
        for place, url in enumerate(self.urls):
            asked = [outcome for name, outcome in outcomes.items() if self._site[name] == url]
            if asked:
                failed = [outcome for outcome in asked if outcome.state == "failed"]
                problem = f"{url}: {failed[0].reason}" if len(failed) == len(asked) else None
                self.servers[place] = ServerState(problem is None, problem)
        if self.servers != before:
            self._board.changed()


def _site(origin: Origin) -> str:
    return f"{origin.scheme}://{origin.host_header}"


class Refresher:
    """Keeps the mirror up to date by the clock and the switch, never because of what is read.

    ON      when it is switched on, then every `interval` seconds; every `FILLING_SECONDS` in the first two minutes
            while there are sources without a message, as before a server that is fetching its feeds
    OFF     only when a program polls feed addresses and the mirror is older than that
    always  when the button is pressed

    Nothing here depends on what is opened, in what order or how often, so the server learns when the mirror is
    refreshed and nothing else. While the server does not answer, it is asked again every `REFRESH_RETRY_SECONDS`.

    A web site is asked by the clock and the switch too, and where it fails not again before the next interval: whoever
    reads one of its sources gets the old copy or an error, without traffic.

    refresh    brings the mirror up to date
    private    whether clicks are served from the mirror now
    before     called before each refresh
    """

    def __init__(
        self,
        refresh: Callable[[], Refresh],
        mirror: KeptCopies,
        interval: float,
        private: Callable[[], bool],
        before: Callable[[], None] | None,
        deadlines: Deadlines,
        board: Board,
    ) -> None:
        self.mirror, self.interval = mirror, interval
        self.supported = True
        self.made = 0
        """How many refreshes were carried out."""
        self.problem: OnOffError | None = None
        self._refresh, self._private, self._before = refresh, private, before
        self._deadlines, self._board = deadlines, board
        self._lock = threading.RLock()
        self.first: Future[None] = Future()
        """The first attempt."""
        self._next = self.first  # of the attempt that begins next
        self._under_way: Future[None] | None = None
        self._retry_at = 0.0
        self._prepared = threading.Event()
        self._incomplete = False  # sources without a message
        self._filled_by = time.monotonic() + FILLING_FOR
        deadlines.after(0, self._prepare)
        deadlines.after(0, self.look)

    # -- for other threads ----------------------------------------------------------------------------------

    def soon(self) -> Future[None]:
        """Refresh as soon as possible, also if a refresh is under way: it may miss what was published meanwhile."""
        with self._lock:
            self._deadlines.after(0, self._attempt)
            return self._next

    def wait(self, attempt: Future[None]) -> None:
        """Wait until that attempt was made. Raises its error, or ServerUnreachable after `PATIENCE` seconds."""
        try:
            attempt.result(PATIENCE)
        except TimeoutError:
            raise ServerUnreachable("the mirror was not refreshed in time", hint="try again later") from None

    def wait_for_first(self) -> None:
        """Wait until there is something to read. Causes no refresh: the schedule does. Raises as `wait` does."""
        self._prepared.wait(PATIENCE)
        if self.mirror.number is not None:
            return
        with self._lock:
            problem, attempt = self.problem, self._under_way or self._next
        if problem is not None:
            raise problem
        self.wait(attempt)

    def wait_until_fresh(self) -> None:
        """For programs that poll whatever the person wants: refresh if the mirror is older than the interval.

        If that fails, an older copy is better than none; raises where there is none.
        """
        with self._lock:  # else a refresh that ends between look and question would be followed by another
            if not self._due():
                return
            attempt = self._under_way or self.soon()
        try:
            self.wait(attempt)
        except OnOffError:
            if self.mirror.number is None:
                raise

    def as_dict(self) -> dict[str, Any]:
        """What the page shows of it."""
        mirror, problem = self.mirror, self.problem  # once: the thread that refreshes sets it
        return {
            "supported": self.supported,
            "edition": mirror.number,
            "refreshed": mirror.refreshed,
            "interval": self.interval,
            "bytes": mirror.size,
            "used_today": mirror.used_today,
            "problem": None if problem is None else problem.message,
        }

    def close(self) -> None:
        """Nobody need wait any longer."""
        with self._lock:
            _settle(self._next, ServerUnreachable("the gateway is stopping", hint="try again when it runs"))

    # -- by the schedule -----------------------------------------------------------------------------------

    @property
    def pause(self) -> float:
        """Seconds between two refreshes now."""
        filling = self._incomplete and time.monotonic() < self._filled_by
        return min(self.interval, FILLING_SECONDS) if filling else self.interval

    def look(self) -> None:
        """Refresh if the switch is ON and the interval is over; look again in time."""
        try:
            if self.wanted():
                self._attempt()
            age = self.mirror.age
            patience = SWITCH_LOOK_SECONDS if age is None else max(0.01, min(SWITCH_LOOK_SECONDS, self.pause - age))
        except Exception as error:  # such as a mirror that cannot be opened again, on a full disk
            self.problem, patience = self._shown(error), REFRESH_RETRY_SECONDS
        self._deadlines.after(patience, self.look)

    def wanted(self) -> bool:
        """Whether it is time."""
        if not (self.supported and self._private()):
            return False
        return self._due() if self.problem is None else time.monotonic() >= self._retry_at

    def _due(self) -> bool:
        age = self.mirror.age
        return age is None or age >= self.pause

    def _attempt(self) -> None:
        with self._lock:
            attempt = self._under_way = self._next
            self._next = Future()
        problem: OnOffError | None = None
        try:
            if self._before is not None:
                self._before()
            self._refresh()
            self.made += 1
            if isinstance(self.mirror, MirrorClient):  # a site is not filling up
                self._incomplete = not all(state.version for state in self.mirror.sources())
        except NoChanges as error:
            problem = error
            self.supported = False
        except Exception as error:  # else the mirror would stay as it is for good, and nobody would know
            problem = self._shown(error)
        with self._lock:
            self.problem, self._under_way = problem, None
            wait = problem.seconds if isinstance(problem, OverBudget) else 0.0
            self._retry_at = time.monotonic() + max(wait, REFRESH_RETRY_SECONDS)
        _settle(attempt, problem)
        self._board.changed()

    def _prepare(self) -> None:
        """Hand over the copies of the last run, as if they had arrived now."""
        try:
            if self.mirror.arrived is not None:
                self.mirror.arrived(list(self.mirror.messages()))
        except Exception as error:
            self.problem = self._shown(error)
        self._prepared.set()

    def _shown(self, error: Exception) -> OnOffError:
        """The error as the page shows it."""
        return error if isinstance(error, OnOffError) else self._board.bug(error)


def _settle(attempt: Future[None], problem: OnOffError | None) -> None:
    with suppress(InvalidStateError):  # the gateway is stopping, and said so
        attempt.set_result(None) if problem is None else attempt.set_exception(problem)
