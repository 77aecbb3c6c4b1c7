"""Answers to sum queries: several servers, none of which learns alone which source is wanted (`wire.sums`).

A `History` holds the last editions from the start, because readers ask for the newest one that all servers hold. The
first sum query makes a thread, which alone has a `Matrix` of the newest edition. Queries that wait while a pass is
under way share the next one. The matrix is changed between passes, with what the event loop hands over: frames that are
new, and for each query the frames in which its edition differs from the newest.

While sum queries come, the store is looked at often, so that few editions are passed over unseen.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Literal, NamedTuple

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.history import History
from onoff.server.judge import edition_gone, epoch_changed, invalid, step_conflict, unavailable
from onoff.server.matrix import Matrix, Wanted, matrix_bytes
from onoff.server.settling import settle
from onoff.server.shelf import Shelf
from onoff.server.store import Store
from onoff.wire import Problem, SumHead

MAX_WAITING = 256
MAX_PASS_BYTES = 64 * 1024 * 1024  # of the answers that one pass makes; a longer one is made alone
MAX_MATRIX_BYTES = 1024 * 1024 * 1024
LOOK_SECONDS = 0.05  # between two looks at the store ...
ACTIVE_SECONDS = 300.0  # ... for so long after the last query


SumOutcome = bytes | Problem | Exception
SumReply = Callable[[SumOutcome], None]  # called once, from the event loop


class _Waiting(NamedTuple):
    """A query that waits for the next pass."""

    edition: int
    servers: int
    vector: bytes
    life: int  # of the history in which the edition was found
    reply: SumReply


class _Job(NamedTuple):
    """One pass: what is new in the matrix, and queries with what each wants of it."""

    update: list[bytes] | dict[int, bytes]
    asked: Sequence[_Waiting]
    wanted: Sequence[Wanted]


class Sums:
    """Answers sum queries from a store and the shelf that follows it."""

    def __init__(self, store: Store, shelf: Shelf) -> None:
        self._store = store
        self._shelf = shelf
        self.history = History(shelf)
        self._thread: threading.Thread | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()  # for the thread; one at a time
        self._matrix: Matrix | None = None  # touched by the thread alone
        self._life = 0  # of the history that is in the matrix
        self._width = 0  # of the longest frame that fits the matrix
        self._waiting: list[_Waiting] = []
        self._passing = False  # a pass is under way, or will be at the end of this iteration
        self._idle: asyncio.Future[None] | None = None  # whoever waits for the last pass
        self._looking: asyncio.Task[None] | None = None
        self._last_query = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def answer(self, body: bytes) -> bytes | Problem:
        """The answer to the query in `body`, or why there is none."""
        done: asyncio.Future[bytes | Problem] = self._running_loop().create_future()
        reply = partial(settle, done)
        outcome = self.ask_now(body, reply)
        if outcome is False:
            outcome = await self._ask(body, reply)
        return outcome if isinstance(outcome, Problem) else await done

    def ask_now(self, body: bytes, reply: SumReply) -> bool | Problem:
        """Have the query in `body` answered in the next pass; or why it is refused.

        Returns True if `reply` will be called; False if the verdict takes waiting for the store: use `answer`.
        """
        local = self._store.local
        try:
            head = wire.decode_sum_head(body)
            self._keep_looking()
            if local is None or not self._shelf.refresh_sync(local):
                return False
            vector = self._read_vector(body, head)
            if isinstance(vector, Problem):
                return vector
            held = self._is_held(head)
            if held is None:
                return False
            if not held:
                return edition_gone(self.history.newest.number)
            conflict = local.admit_sync(head.session, head.step, wire.sum_step_digest(body))
        except InvalidWire as error:
            return invalid(error)
        except StoreUnavailable as error:
            return unavailable(error)
        return self._enqueue(head, vector, self.history.life, reply) if conflict is None else step_conflict(conflict)

    async def _ask(self, body: bytes, reply: SumReply) -> bool | Problem:
        """As `ask_now`, waiting for the store where that is needed."""
        store, history = self._store, self.history
        try:
            head = wire.decode_sum_head(body)
            await self._refresh()
            vector = self._read_vector(body, head)
            if isinstance(vector, Problem):
                return vector
            if self._is_held(head) is None:
                digest = await store.digest_of(head.edition)
                if digest is not None:
                    history.learn_digest(head.edition, digest)
            if not self._is_held(head):
                return edition_gone(history.newest.number)
            life = history.life
            _, conflict = await store.admit(head.session, head.step, wire.sum_step_digest(body))
        except InvalidWire as error:
            return invalid(error)
        except StoreUnavailable as error:
            return unavailable(error)
        return self._enqueue(head, vector, life, reply) if conflict is None else step_conflict(conflict)

    def _read_vector(self, body: bytes, head: SumHead) -> bytes | Problem:
        shelf = self._shelf
        if head.epoch != shelf.epoch:
            return epoch_changed(shelf.epoch)
        return wire.decode_sum_vector(body, head, shelf.catalogue.n)

    def _is_held(self, head: SumHead) -> bool | None:
        """Whether the edition is held and has the digest that the query names; None if only the store knows that."""
        found = self.history.find(head.edition)
        if found is None:
            return False
        return None if found.digest is None else found.digest == head.digest

    def _enqueue(self, head: SumHead, vector: bytes, life: int, reply: SumReply) -> Literal[True] | Problem:
        """Have an admitted query answered."""
        history, loop = self.history, self._running_loop()
        if not any(vector):
            loop.call_soon(reply, b"")
            return True
        if len(self._waiting) >= MAX_WAITING:
            return Problem(503, "too many sums are asked for", "send the same request again in a moment")
        if matrix_bytes(len(history.frames), history.width) > MAX_MATRIX_BYTES:
            return Problem(503, "the messages are too long for sums", "ask this server for messages, not for sums")
        self._waiting.append(_Waiting(head.edition, head.servers, vector, life, reply))
        if not self._passing:
            self._passing = True
            loop.call_soon(self._start_pass, loop)  # with all queries that come in this iteration
        return True

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which is one for life; finding it takes a system call."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    # Looking at the store.

    def _keep_looking(self) -> None:
        """A query came: for some time from now on the store is looked at often."""
        loop = self._running_loop()
        self._last_query = loop.time()
        if self._looking is None or self._looking.done():
            self._looking = loop.create_task(self._look())

    async def _refresh(self) -> None:
        if not self._shelf.refresh_sync(self._store.local):
            await self._shelf.refresh(self._store)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._last_query + ACTIVE_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._refresh()
            except StoreUnavailable:
                continue  # the next request reports it

    # Passes.

    def _start_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand over the queries that wait, as many as may be answered at once.

        The thread is called by hand: a task and an executor cost half a pass.
        """
        history = self.history
        update = self._take_update(history)
        asked: list[_Waiting] = []
        wanted: list[Wanted] = []
        taken = longest = 0
        for query in self._waiting:
            found = history.find(query.edition) if query.life == history.life else None
            if found is None:
                loop.call_soon(query.reply, edition_gone(history.newest.number))
            else:
                length = wire.chunk_length(found.width, query.servers)
                longest = max(longest, length)
                if wanted and (len(wanted) + 1) * longest > MAX_PASS_BYTES:
                    break
                asked.append(query)
                wanted.append(Wanted(query.vector, query.servers, length, history.past(query.edition)))
            taken += 1
        del self._waiting[:taken]
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(loop,), name="onoff-sums", daemon=True)
            self._thread.start()
        self._jobs.put(_Job(update, asked, wanted))

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread."""
        while (job := self._jobs.get()) is not None:
            answers: Sequence[bytes] | Exception
            try:
                answers = self._pass(job.update, job.wanted)
            except Exception as error:
                answers = error
            with suppress(RuntimeError):  # the loop is closed, and so is every connection
                loop.call_soon_threadsafe(self._finish_pass, loop, job.asked, answers)

    def _finish_pass(
        self, loop: asyncio.AbstractEventLoop, asked: Sequence[_Waiting], answers: Sequence[bytes] | Exception
    ) -> None:
        """Answer, and begin the next pass before."""
        if isinstance(answers, Exception):
            self._life = 0  # the content of the matrix is unknown: make a new one
        if self._waiting:
            self._start_pass(loop)
        else:
            self._passing = False
            if self._idle is not None:
                settle(self._idle, None)
        outcomes: Sequence[SumOutcome] = [answers] * len(asked) if isinstance(answers, Exception) else answers
        for query, outcome in zip(asked, outcomes, strict=True):
            loop.call_soon(query.reply, outcome)  # not here: one that fails must not take the others along

    def _take_update(self, history: History) -> list[bytes] | dict[int, bytes]:
        """What the matrix has to take in before a pass: all frames, or those that are new and fit."""
        changed, history.changed = history.changed, {}
        if history.life == self._life and max(map(len, changed.values()), default=0) <= self._width:
            return changed
        self._life, self._width = history.life, history.width
        return history.frames[:]

    def _pass(self, update: list[bytes] | dict[int, bytes], wanted: Sequence[Wanted]) -> list[bytes]:
        """Bring the matrix up to date and sum over it; in the thread."""
        if isinstance(update, list):
            self._matrix = None  # before the next one is made: there may not be room for two
            self._matrix = Matrix(update)
        else:
            assert self._matrix is not None
            self._matrix.replace(update)
        return self._matrix.sums(wanted)

    async def close(self) -> None:
        """End the thread and the looking."""
        if self._looking is not None:
            self._looking.cancel()
        if self._passing:
            self._idle = self._running_loop().create_future()
            await self._idle
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
