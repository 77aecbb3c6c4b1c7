"""The engine: one client, one request at a time, and one state for everybody who looks.

    request(source) -> Future[Message]    joins the queue; a thread of its own takes one after the other
    turn(...)                             the switch
    snapshot()                            all that the page shows; `revision` grows with every change

Each request is one step. Whether it is private is what the switch says when it is accepted. A caller may say which
position it saw; if the switch stands otherwise nothing is sent. A repeated **key** gives the same step back: the
answer, if there was one; otherwise its stored bytes are sent again, unless another request was made since. Where
nothing was sent for it, it is a new request, and the switch decides anew.

A thread of its own also asks the server for its catalogue from time to time, always the same way and whatever is
wanted, so that the page can tell whether the server is there.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from onoff.client import Client, Message, Progress, Sent, default_journal
from onoff.client.catalogue import fetch_catalogue, require_sources
from onoff.client.transport import Http
from onoff.errors import InvalidInput, OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway.evidence import Assessment, Evidence
from onoff.gateway.seen import SeenLog
from onoff.gateway.switch import Position, Switch
from onoff.model.chain import MarkovChain

log = logging.getLogger("onoff.gateway")

KEPT_KEYS: Final = 128
LONGEST_KEY: Final = 128
LONGEST_QUEUE: Final = 64
SHOWN_STEPS: Final = 48
HEARTBEAT: Final = 20.0
HEARTBEAT_WHILE_GONE: Final = 2.0
PROBE_TIMEOUT: Final = 5.0


class Changed(OnOffError):
    """The switch does not stand where the caller saw it; nothing was sent."""


class Busy(OnOffError):
    """Too many requests are waiting; nothing was sent."""


class Superseded(OnOffError):
    """The key belongs to a request that was not answered, and others were made since."""


@dataclass(eq=False)
class _Job:
    """One request. `sent`: what left for it, of which the last may still be without an answer."""

    wanted: int
    private: bool
    key: str | None
    done: Future[Message] = field(default_factory=Future)
    sent: list[tuple[float, Sent]] = field(default_factory=list)
    again: bool = False

    @property
    def void(self) -> bool:
        """Whether it failed before anything left: its key stands for no step, and whoever repeats it asks anew."""
        return not self.sent and self.done.done() and self.done.exception() is not None


class Engine:
    """A gateway's working part. `client_options` go to the client."""

    def __init__(
        self,
        url: str,
        chain: MarkovChain,
        journal: Path | None = None,
        *,
        log: SeenLog | None = None,
        heartbeat: float = HEARTBEAT,
        clock: Callable[[], float] = time.time,
        **client_options: Any,
    ) -> None:
        path = default_journal(url) if journal is None else Path(journal)
        self.url, self.chain = url, chain
        self.switch = Switch(path.with_name(f"{path.name}.switch.json"), clock)
        self.log = SeenLog() if log is None else log
        self.start = secrets.token_hex(4)
        self._clock = clock
        self._client = Client(
            url, chain, journal=path, observe=self._observed, progress=self._progressed, mirror=False, **client_options
        )
        last = self._client.status()["last"]  # opens the journal, so that a second gateway fails here
        before = None if last is None else (last["session"], last["step"], tuple(last["sources"]))
        self._evidence = Evidence(chain, self._client.tables, before)
        self._lock = threading.RLock()
        self._watchers: set[Callable[[], None]] = set()
        self._revision = 0
        self._shown: Position = self.switch.position
        self._connected: bool | None = None
        self._problem: str | None = None
        self._frame_size: int | None = None
        self._building: tuple[int, float] | None = None
        self._waiting = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._keys: OrderedDict[str, _Job] = OrderedDict()
        self._last_job: _Job | None = None
        self._current: _Job | None = None
        self._probe = Http(url, timeout=PROBE_TIMEOUT)
        self._heartbeat = heartbeat
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._worker = threading.Thread(target=self._work, name="onoff-gateway", daemon=True)
        self._worker.start()
        threading.Thread(target=self._beat, name="onoff-heartbeat", daemon=True).start()

    # -- requests ------------------------------------------------------------------------------------------

    def request(self, source: str, *, key: str | None = None, expected: bool | None = None) -> Future[Message]:
        """The latest message of `source`, when its turn comes. Raises what says that nothing will be sent."""
        if source not in self.chain.names:
            raise UnknownSource("no such source", hint="GET /v1/sources lists them")
        wanted = self.chain.index(source)
        if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
            raise InvalidInput("not an idempotency key", hint=f"use 1 to {LONGEST_KEY} printable ASCII characters")
        with self._lock:
            known = self._keys.get(key) if key is not None else None
            if known is not None and known.wanted != wanted:
                raise InvalidInput("this idempotency key was used for another source", hint="use a new key")
            if known is not None and not known.void:
                return self._repeated(known)
            private = self.switch.position.private
            if expected is not None and expected != private:
                raise Changed(f"the switch is {_word(private)}", hint="look at it and ask again; nothing was sent")
            return self._queue(_Job(wanted, private, key))

    def _repeated(self, known: _Job) -> Future[Message]:
        if not known.done.done() or known.done.exception() is None:
            return known.done
        if known is not self._last_job:
            raise Superseded("this request was not answered, and others were made since", hint="make a new request")
        return self._queue(_Job(known.wanted, known.private, known.key, again=True, sent=list(known.sent)))

    def _queue(self, job: _Job) -> Future[Message]:
        if self._closed.is_set():
            raise Busy("the gateway is stopping", hint="ask again when it runs; nothing was sent")
        if self._waiting >= LONGEST_QUEUE:
            raise Busy("too many requests are waiting", hint="ask again later; nothing was sent")
        if job.key is not None:  # only now: a key must not stand for a request that nobody will make
            self._keys[job.key] = job
            self._keys.move_to_end(job.key)
            while len(self._keys) > KEPT_KEYS:
                self._keys.popitem(last=False)
        self._waiting += 1
        self._jobs.put(job)
        self.changed()
        return job.done

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            before = len(job.sent)
            self._current = job
            job.done.set_running_or_notify_cancel()
            try:
                message = self._client.retry() if job.again else self._client.get(job.wanted, private=job.private)
            except OnOffError as error:
                outcome: Message | OnOffError = error
            except Exception as error:  # a fault of ours must not stop the gateway
                outcome = OnOffError(f"{type(error).__name__} in the gateway", hint="this is a bug; see its log")
            else:
                outcome = message
            self._settle(job, before, outcome)
        with suppress(OnOffError):
            self._client.close()
        self.log.close()

    def _settle(self, job: _Job, before: int, outcome: Message | OnOffError) -> None:
        weighed = [(moment, sent, self._weigh(sent, job.wanted)) for moment, sent in job.sent[before:]]
        with self._lock:
            for moment, sent, assessment in weighed:
                self.log.add(moment, sent, job.wanted, assessment)
            if job.sent:
                self._last_job = job
            self._current = None
            self._waiting -= 1
            if isinstance(outcome, ServerUnreachable):
                self._connected, self._problem = False, outcome.message
                self._wake.set()
            elif isinstance(outcome, OnOffError):
                self._problem = outcome.message
            else:
                self._connected, self._problem = True, None
        self.changed()
        if isinstance(outcome, OnOffError):
            job.done.set_exception(outcome)
        else:
            job.done.set_result(outcome)

    def _weigh(self, sent: Sent, wanted: int) -> Assessment:
        try:
            return self._evidence.add(sent, wanted)
        except Exception as error:  # what is shown must not stop what is done
            log.warning("a step could not be weighed: %s", type(error).__name__)
            return Assessment()

    def _observed(self, sent: Sent) -> None:
        if self._current is not None:
            self._current.sent.append((self._clock(), sent))

    def _progressed(self, progress: Progress) -> None:
        self._building = (progress.sources, self._clock()) if progress.state == "building" else None
        self.changed()

    # -- the switch ----------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Where the switch stands; whoever watches is told if the timer turned it."""
        position = self.switch.position
        with self._lock:
            if position == self._shown:
                return position
            self._shown = position
        self.changed()
        return position

    def turn(self, *, private: bool, seconds: float | None = None, until: float | None = None) -> Position:
        """Turn the switch; see `Switch.turn`."""
        self.switch.turn(private=private, seconds=seconds, until=until)
        return self.position

    # -- what there is to see ------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self._revision

    def now(self) -> float:
        """The time by which timers run."""
        return self._clock()

    def snapshot(self) -> dict[str, Any]:
        """All that the page shows. It holds what was wanted, at log level "full": for the page alone."""
        position = self.position
        with self._lock:
            building = self._building
            return {
                "start": self.start,
                "revision": self._revision,
                "now": self._clock(),
                "privacy": position.as_dict(),
                "note": self.switch.note,
                "server": self.url,
                "connected": self._connected,
                "problem": self._problem,
                "names": list(self.chain.names),
                "frame_size": self._frame_size,
                "building": building and {"sources": building[0], "since": building[1]},
                "waiting": self._waiting,
                "level": self.log.level,
                "steps": self.log.latest(SHOWN_STEPS),
                "totals": asdict(self.log.totals),
                "posterior": self._evidence.posterior if self.log.level == "full" else None,
            }

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Have `watcher` called, from any thread, after every change; call what is returned to end that."""
        with self._lock:
            self._watchers.add(watcher)
        return lambda: self._watchers.discard(watcher)

    def changed(self) -> None:
        with self._lock:
            self._revision += 1
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    # -- the server ----------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while not self._closed.is_set():
            self._look()
            gone = self._connected is not True
            self._wake.wait(min(self._heartbeat, HEARTBEAT_WHILE_GONE) if gone else self._heartbeat)
            self._wake.clear()

    def _look(self) -> None:
        """Whether a server is there that has our sources."""
        problem, frame_size = None, self._frame_size
        try:
            catalogue = fetch_catalogue(self.url, self._probe)
            frame_size = catalogue.frame_size
            require_sources(self.chain.names, catalogue)
        except OnOffError as error:
            problem = error.message
        with self._lock:
            found = (problem is None, problem, frame_size)
            if found == (self._connected, self._problem, self._frame_size):
                return
            self._connected, self._problem, self._frame_size = found
        self.changed()

    # -- life ----------------------------------------------------------------------------------------------

    def close(self, seconds: float = 1.0) -> None:
        """Stop; a request under way is given so many seconds, and then counts as sent, as after a crash."""
        self._closed.set()
        self._wake.set()
        self._jobs.put(None)
        self._worker.join(seconds)


def _word(private: bool) -> str:
    return "ON" if private else "OFF"
