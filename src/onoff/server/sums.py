"""Answers to sum queries: several servers, none of which learns alone which source is wanted (`wire.sums`).

A `History` holds the last editions from the start, because readers ask for the newest one that all servers hold. The
first sum query makes a thread, which alone has a `Matrix` of the newest edition. Queries that wait while a pass is
under way share the next one. The matrix is changed between passes, with what the event loop hands over: frames that are
new, and for each query the frames in which its edition differs from the newest.

While sum queries come, the store is looked at often, so that few editions are passed over unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.history import Found, History
from onoff.server.judge import epoch_changed, invalid, step_conflict, unavailable
from onoff.server.matrix import Matrix, Wanted, matrix_bytes
from onoff.server.settling import settle
from onoff.server.shelf import Shelf
from onoff.server.store import Store
from onoff.wire import Problem, SumHead

MAX_WAITING = 256
MAX_MATRIX_BYTES = 1024 * 1024 * 1024
LOOK_SECONDS = 0.05  # between two looks at the store ...
ACTIVE_SECONDS = 300.0  # ... for so long after the last query


class _Waiting(NamedTuple):
    """A query that waits for the next pass."""

    edition: int
    servers: int
    vector: bytes
    life: int  # of the history in which the edition was found
    done: asyncio.Future[bytes | Problem]


class Sums:
    """Answers sum queries from a store and the shelf that follows it."""

    def __init__(self, store: Store, shelf: Shelf) -> None:
        self._store = store
        self._shelf = shelf
        self._history = History(shelf)
        self._thread: ThreadPoolExecutor | None = None
        self._matrix: Matrix | None = None  # touched by the thread alone
        self._life = 0  # of the history that is in the matrix
        self._width = 0  # of the longest frame that fits the matrix
        self._waiting: list[_Waiting] = []
        self._passing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._last_query = 0.0

    @property
    def longest(self) -> int:
        """The bytes of the longest frame of the newest edition."""
        return self._history.width

    async def answer(self, body: bytes) -> bytes | Problem:
        """The answer to the query in `body`, or why there is none."""
        history = self._history
        try:
            head = wire.decode_sum_head(body)
            await self._look()
            if head.epoch != self._shelf.epoch:
                return epoch_changed(self._shelf.epoch)
            vector = wire.decode_sum_vector(body, head, self._shelf.catalogue.n)
            found = await self._find(history, head)
            if found is None:
                return edition_gone(history.newest.number)
            life = history.life
            conflict = await self._admit(head, wire.sum_step_digest(body))
        except InvalidWire as error:
            return invalid(error)
        except StoreUnavailable as error:
            return unavailable(error)
        if conflict is not None:
            return conflict
        if not any(vector):
            return b""
        if len(self._waiting) >= MAX_WAITING:
            return Problem(503, "too many sums are asked for", "send the same request again in a moment")
        if matrix_bytes(len(history.frames), history.width) > MAX_MATRIX_BYTES:
            return Problem(503, "the messages are too long for sums", "ask this server for messages, not for sums")
        done: asyncio.Future[bytes | Problem] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(head.edition, head.servers, vector, life, done))
        if self._passing is None or self._passing.done():
            self._passing = asyncio.create_task(self._pass_while_any_wait(history))
        return await done

    async def _look(self) -> None:
        """Bring the editions up to the store's newest, and go on doing so while queries come."""
        loop = asyncio.get_running_loop()
        self._last_query = loop.time()
        await self._refresh()
        if self._looking is None or self._looking.done():
            self._looking = loop.create_task(self._keep_looking())

    async def _refresh(self) -> None:
        if not self._shelf.refresh_sync(self._store.local):
            await self._shelf.refresh(self._store)

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._last_query + ACTIVE_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._refresh()
            except StoreUnavailable:
                continue  # whoever asks next is told

    async def _find(self, history: History, head: SumHead) -> Found | None:
        """The edition of a query, if it is held and has the digest that the query names."""
        found = history.find(head.edition)
        if found is not None and found.digest is None:
            digest = await self._store.digest_of(head.edition)
            if digest is not None:
                history.learn_digest(head.edition, digest)
            found = history.find(head.edition)
        return found if found is not None and found.digest == head.digest else None

    async def _admit(self, head: SumHead, digest: bytes) -> Problem | None:
        local = self._store.local
        if local is not None:
            conflict = local.admit_sync(head.session, head.step, digest)
        else:
            _, conflict = await self._store.admit(head.session, head.step, digest)
        return None if conflict is None else step_conflict(conflict)

    # Passes.

    async def _pass_while_any_wait(self, history: History) -> None:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "onoff-sums")
        while self._waiting:
            batch, self._waiting = self._waiting, []
            update = self._take_update(history)
            asked, wanted = [], []
            for query in batch:
                found = history.find(query.edition) if query.life == history.life else None
                if found is None:
                    settle(query.done, edition_gone(history.newest.number))
                else:
                    asked.append(query)
                    wanted.append(
                        Wanted(query.vector, query.servers, wire.chunk_length(found.width, query.servers), found.past)
                    )
            answers: Sequence[bytes | Exception]
            try:
                answers = await loop.run_in_executor(self._thread, self._pass, update, wanted)
            except Exception as error:
                self._life = 0  # nobody knows what the matrix holds: make it anew
                answers = [error] * len(asked)
            for query, answer in zip(asked, answers, strict=True):
                settle(query.done, answer)

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
        if self._passing is not None:
            await self._passing
        if self._thread is not None:
            self._thread.shutdown()


def edition_gone(newest: int) -> Problem:
    return Problem(
        409,
        "the edition of the query is not held",
        "see /v1/edition of all servers and ask the same of another edition",
        wire.EDITION_GONE,
        edition=newest,
    )
