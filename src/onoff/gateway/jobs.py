"""Jobs: the requests of pages and apps, one after the other, each exactly once.

A **key** that a caller repeats gives the same request back: its answer, if there was one; otherwise its stored bytes
are sent again, unless another request was made since. A request for which nothing was stored is a new one when it is
repeated, and obeys the position of the switch at that time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from onoff.client import Message, Sent
from onoff.errors import InvalidInput, OnOffError
from onoff.gateway.board import Board

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
