"""Jobs: the requests of pages and apps, one after the other, each exactly once.

A **key** that a caller repeats gives the same request back: its answer, if there was one; otherwise its stored bytes
are sent again, unless another request was made since. A request for which nothing was stored is a new one when it is
repeated, and obeys the position of the switch at that time.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final

from onoff.client import Message, Sent, SourceState
from onoff.errors import InvalidInput, OnOffError

# --------------------------------------------------------------------------------------------------------------------
# Board: the revision number of what the page shows, and those who are notified when it changes.


log = logging.getLogger("onoff.gateway")


class Board:
    """Counts changes and notifies watchers. A change may come from any thread."""

    def __init__(self) -> None:
        self.revision = 0
        self.fault: str | None = None
        """The last bug that a thread of the gateway ran into and survived."""
        self._lock = threading.Lock()
        self._watchers: set[Callable[[], None]] = set()

    def changed(self) -> None:
        """Count a change and notify all watchers."""
        with self._lock:
            self.revision += 1
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    def bug(self, error: Exception) -> OnOffError:
        """Log and show an exception that nobody expected; the thread that met it goes on.

        The log gets the place and not the text, which may hold what was wanted. Returns an error for the caller.
        """
        place = traceback.extract_tb(error.__traceback__)[-1:]
        at = f" at {place[0].filename}:{place[0].lineno}" if place else ""
        log.error("%s in the gateway%s", type(error).__name__, at)
        self.fault = f"{type(error).__name__} in the gateway"
        self.changed()
        return OnOffError(self.fault, hint="this is a bug; its place is in the gateway's log")

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher`, from any thread, after every change. Returns a function that ends that."""
        with self._lock:
            self._watchers.add(watcher)

        def stop() -> None:
            with self._lock:
                self._watchers.discard(watcher)

        return stop

    @property
    def watched(self) -> bool:
        """Whether there are watchers."""
        with self._lock:
            return bool(self._watchers)


KEPT_KEYS: Final = 128
LONGEST_KEY: Final = 128
LONGEST_QUEUE: Final = 64


class Busy(OnOffError):
    """Too many requests are waiting; nothing was sent."""


class Superseded(OnOffError):
    """The key belongs to a request that was not answered, and others were made since."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the session: when it was stored, what the server sees of it, and whether any byte of it was sent."""

    time: float
    sent: Sent
    left: bool


@dataclass(eq=False)
class Job:
    """One request. `steps`: what was stored for it, of which the last may still be without an answer."""

    wanted: int
    private: bool
    key: str | None
    done: Future[Message] = field(default_factory=Future)
    steps: list[Step] = field(default_factory=list)
    again: bool = False

    @property
    def void(self) -> bool:
        """Whether it failed before anything was stored: its key has no step, and repeating it makes a new request."""
        return not self.steps and self.done.done() and self.done.exception() is not None


class JobQueue:
    """Runs one job at a time, in its own thread.

    Parameters
    ----------
    run
        Runs a job and returns its message. Raises OnOffError; any other exception is reported as a bug.
    settled
        Called after each job with its outcome, before the caller gets it.
    after
        Called once the caller has the message: for work that must not delay it.
    ended
        Called when the last job is done and no more will come.
    board
        Notified of every new job.
    """

    def __init__(
        self,
        run: Callable[[Job], Message],
        settled: Callable[[Job, Message | OnOffError], None],
        after: Callable[[Job], None],
        ended: Callable[[], None],
        board: Board,
    ) -> None:
        self._run, self._settled, self._after, self._ended, self._board = run, settled, after, ended, board
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._keys: OrderedDict[str, Job] = OrderedDict()
        self._last: Job | None = None
        self._closed = False
        self.waiting = 0
        self._worker = threading.Thread(target=self._work, name="onoff-gateway", daemon=True)
        self._worker.start()

    def submit(self, wanted: int, key: str | None, private: Callable[[], bool]) -> Future[Message]:
        """The message of `wanted`, when its turn comes.

        private: Whether a new request is private; may raise to refuse it. Not called for a repeated one.

        Raises
        ------
        InvalidInput
            The key is malformed, or was used for another source.
        Superseded, Busy
            Nothing will be sent.
        """
        if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
            raise InvalidInput("not an idempotency key", hint=f"use 1 to {LONGEST_KEY} printable ASCII characters")
        with self._lock:
            known = self._keys.get(key) if key is not None else None
            if known is not None and known.wanted != wanted:
                raise InvalidInput("this idempotency key was used for another source", hint="use a new key")
            if known is not None and not known.void:
                job = self._repeated(known)
            else:
                job = self._accept(Job(wanted, private(), key))
        self._board.changed()
        return job.done

    def _repeated(self, known: Job) -> Job:
        if not known.done.done() or known.done.exception() is None:
            return known
        if known is not self._last:
            raise Superseded("this request was not answered, and others were made since", hint="make a new request")
        return self._accept(Job(known.wanted, known.private, known.key, again=True, steps=list(known.steps)))

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
        self._jobs.put(job)
        return job

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.done.set_running_or_notify_cancel()
            outcome: Message | OnOffError
            try:
                outcome = self._run(job)
            except OnOffError as error:
                outcome = error
            except Exception as error:  # a bug in one request must not stop the gateway
                outcome = self._board.bug(error)
            with self._lock:
                if job.steps:
                    self._last = job
                self.waiting -= 1
            self._survive(self._settled, job, outcome)
            if isinstance(outcome, OnOffError):
                job.done.set_exception(outcome)
            else:
                job.done.set_result(outcome)
            self._survive(self._after, job)
        self._ended()

    def _survive(self, work: Callable[..., None], *about: object) -> None:
        """Nothing that is noted about a request may cost its answer, or those of the requests after it."""
        try:
            work(*about)
        except Exception as error:
            self._board.bug(error)

    def close(self, seconds: float) -> None:
        """Accept no more jobs, and wait up to `seconds` for the one under way."""
        with self._lock:
            self._closed = True
        self._jobs.put(None)
        self._worker.join(seconds)


# --------------------------------------------------------------------------------------------------------------------
# Marks: which version of each source was opened last, so that the page can say what is new.
#
# Kept in memory only: what was opened in private must not survive the gateway.


class Marks:
    """What was read. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, tuple[int, float]] = {}
        self.revision = 0

    def opened(self, name: str, version: int, when: float) -> None:
        """Note that a version of a source was opened, at a time in seconds since 1970."""
        with self._lock:
            known = self._read.get(name, (0, 0.0))[0]
            self._read[name] = (max(version, known), when)
            self.revision += 1

    def opened_all(self, states: Sequence[SourceState], when: float) -> None:
        """Mark all messages as read."""
        for state in states:
            self.opened(state.name, state.version, when)

    def listed(self, names: Sequence[str], states: Mapping[str, SourceState]) -> list[dict[str, Any]]:
        """Every source with what is known of it: version, time of publishing in milliseconds, whether it is new."""
        with self._lock:
            read = dict(self._read)
        listed = []
        for name in names:
            state, (version, when) = states.get(name), read.get(name, (0, 0.0))
            listed.append(
                {
                    "name": name,
                    "version": None if state is None else state.version,
                    "published": None if state is None or not state.version else round(1000 * state.published),
                    "new": state is not None and state.version > version,
                    "read": when or None,
                }
            )
        return listed
