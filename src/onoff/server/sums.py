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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from queue import SimpleQueue
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.answers import Shelf, edition_gone, epoch_changed, invalid, step_conflict, unavailable
from onoff.server.changes import History
from onoff.server.store import Store, settle
from onoff.system.kernels import kernel
from onoff.wire import MAX_SERVERS, MIN_SERVERS, Problem, SumHead

KERNEL_BYTES = 256 * 1024  # bytes of all rows from which a compiled kernel is used
BLOCK_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024  # of a total, so that it stays in the cache
_ALIGNED = 64

Bytes = npt.NDArray[np.uint8]


class Wanted(NamedTuple):
    """One sum: over a vector with a byte for each row, cut into chunks of `length` bytes.

    `past` has the rows that were others in the edition it is asked of.
    """

    vector: bytes
    servers: int
    length: int
    past: Mapping[int, bytes]


def matrix_bytes(n: int, width: int) -> int:
    """The memory of a matrix of n rows of `width` bytes."""
    return n * _stride(width)


def _stride(width: int) -> int:
    """Room for a row and for the zeros that make its last chunk whole."""
    return -(-(width + MAX_SERVERS) // _ALIGNED) * _ALIGNED


class Matrix:
    """The frames of an edition in one contiguous array, and sums over it; used by one thread at a time.

    Rows have equal width; shorter ones are followed by zeros. The array is read once for all waiting queries, a block
    of rows at a time, by a compiled kernel: of the speed of a plain XOR reduction it has 0.9 for one sum over 1000 rows
    of 4 KiB and 2.7 a sum for 16 over 64 KiB, where numpy has 0.36 and 0.64, less than a server should. Until it is
    compiled, which a thread does meanwhile, or where all is less than `kernel_bytes` (None: never), numpy does it.
    """

    def __init__(
        self, rows: Sequence[bytes], *, kernel_bytes: int | None = KERNEL_BYTES, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._kernel_bytes = kernel_bytes
        self._stride = _stride(max(map(len, rows), default=0))
        self._rows: Bytes = np.zeros((len(rows), self._stride), np.uint8)
        self._per_block = max(1, block_bytes // self._stride)
        self.replace(dict(enumerate(rows)))

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self._rows.nbytes

    @property
    def width(self) -> int:
        """The longest row that fits."""
        return self._stride - MAX_SERVERS

    def replace(self, rows: Mapping[int, bytes]) -> None:
        """Put other rows in place of these; none longer than `width`."""
        for at, row in rows.items():
            if len(row) > self.width:
                raise ValueError(f"a row of {len(row)} bytes in a matrix of width {self.width}")
            self._rows[at] = np.frombuffer(row.ljust(self._stride, b"\0"), np.uint8)

    def sums(self, wanted: Sequence[Wanted]) -> list[bytes]:
        """All of these sums, in one pass over the rows."""
        if not wanted:
            return []
        pays = self._kernel_bytes is not None and self.nbytes >= self._kernel_bytes
        totals = self._add_compiled(wanted) if pays and kernel_ready().is_set() else self._add_by_numpy(wanted)
        for total, query in zip(totals, wanted, strict=True):
            self._put_back(total, query)
        return [total.tobytes() for total in totals]

    def _add_compiled(self, wanted: Sequence[Wanted]) -> list[Bytes]:
        """The sums over today's rows, in one call, during which other threads run."""
        arrays = _as_arrays(wanted)
        _xor_blocks(self._rows, self._per_block, *arrays)
        return [total[: query.length] for total, query in zip(arrays.totals, wanted, strict=True)]

    def _add_by_numpy(self, wanted: Sequence[Wanted]) -> list[Bytes]:
        """The sums over today's rows."""
        totals = [np.zeros(query.length, np.uint8) for query in wanted]
        for first in range(0, len(self._rows), self._per_block):
            block = self._rows[first : first + self._per_block]
            for total, query in zip(totals, wanted, strict=True):
                vector = np.frombuffer(query.vector, np.uint8)[first : first + self._per_block]
                for entry in range(1, query.servers):
                    column = (entry - 1) * query.length
                    part = total[: max(0, self._stride - column)]  # an old edition may be wider
                    part ^= np.bitwise_xor.reduce(block[vector == entry, column : column + len(part)], axis=0)
        return totals

    def _put_back(self, total: Bytes, query: Wanted) -> None:
        """Take rows of today out of a total, and those of the edition that was asked in their place."""
        for at, row in query.past.items():
            if entry := query.vector[at]:
                start = (entry - 1) * query.length
                for chunk in (self._rows[at], np.frombuffer(row, np.uint8)):
                    part = chunk[start : start + query.length]
                    total[: len(part)] ^= part


class _Arrays(NamedTuple):
    """Queries as the kernel takes them, and room for their totals; a row for each."""

    vectors: Bytes
    servers: npt.NDArray[np.intp]
    lengths: npt.NDArray[np.intp]
    totals: Bytes


def _as_arrays(wanted: Sequence[Wanted]) -> _Arrays:
    vectors = np.frombuffer(b"".join([query.vector for query in wanted]), np.uint8).reshape(len(wanted), -1)
    lengths = [query.length for query in wanted]
    totals = np.zeros((len(wanted), max(lengths)), np.uint8)
    return _Arrays(vectors, np.array([query.servers for query in wanted]), np.array(lengths), totals)


@cache
def kernel_ready() -> threading.Event:
    """Set once the kernel is compiled, which a thread begins at the first call: no reader waits for it."""
    ready = threading.Event()

    def compile_it() -> None:
        with suppress(PermissionError):  # the unit in `deploy` lets no memory be executed: numpy goes on
            _xor_blocks(np.zeros((1, 1), np.uint8), 1, *_as_arrays([Wanted(b"\0", MIN_SERVERS, 1, {})]))
            ready.set()

    threading.Thread(target=compile_it, name="onoff-kernel").start()
    return ready


@kernel
def _xor_blocks(
    rows: Bytes,
    per_block: int,
    vectors: Bytes,
    servers: npt.NDArray[np.intp],
    lengths: npt.NDArray[np.intp],
    totals: Bytes,
) -> None:
    """XOR the asked chunks of the rows to the total of each query, a block of rows at a time."""
    n, stride = rows.shape
    picked = np.empty(per_block, np.intp)
    for first in range(0, n, per_block):
        for number in range(len(vectors)):
            for entry in range(1, servers[number]):
                count = 0
                for at in range(first, min(first + per_block, n)):
                    picked[count] = at
                    count += vectors[number, at] == entry
                column = (entry - 1) * lengths[number]
                length = min(lengths[number], stride - column)  # an old edition may be wider
                if count and length > 0:
                    _xor_rows(rows, picked[:count], column, totals[number, :length])


@kernel
def _xor_rows(rows: Bytes, picked: npt.NDArray[np.intp], column: int, total: Bytes) -> None:
    """XOR the bytes from `column` on of the picked rows to a total, eight rows at a time."""
    count, whole = len(picked), len(picked) // 8 * 8
    for start in range(0, len(total), CHUNK_BYTES):
        part = total[start : start + CHUNK_BYTES]
        left, right = column + start, column + start + len(part)
        for at in range(0, whole, 8):
            a, b = rows[picked[at], left:right], rows[picked[at + 1], left:right]
            c, d = rows[picked[at + 2], left:right], rows[picked[at + 3], left:right]
            e, f = rows[picked[at + 4], left:right], rows[picked[at + 5], left:right]
            g, h = rows[picked[at + 6], left:right], rows[picked[at + 7], left:right]
            for j in range(len(part)):
                part[j] ^= a[j] ^ b[j] ^ c[j] ^ d[j] ^ e[j] ^ f[j] ^ g[j] ^ h[j]
        for at in range(whole, count):
            a = rows[picked[at], left:right]
            for j in range(len(part)):
                part[j] ^= a[j]


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
        self.max_pass_bytes = MAX_PASS_BYTES
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
        outcome = await self.ask(body, partial(settle, done))
        return outcome if isinstance(outcome, Problem) else await done

    async def ask(self, body: bytes, reply: SumReply) -> Literal[True] | Problem:
        """Have the query in `body` answered in the next pass, by `reply`; or why it is refused."""
        store, history = self._store, self.history
        try:
            head = wire.decode_sum_head(body)
            self._keep_looking()
            await self._shelf.refresh(store)
            if head.epoch != self._shelf.epoch:
                return epoch_changed(self._shelf.epoch)
            vector = wire.decode_sum_vector(body, head, self._shelf.catalogue.n)
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

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._last_query + ACTIVE_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._shelf.refresh(self._store)
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
                if wanted and (len(wanted) + 1) * longest > self.max_pass_bytes:
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
                answers = self.run_pass(job.update, job.wanted)
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

    def run_pass(self, update: list[bytes] | dict[int, bytes], wanted: Sequence[Wanted]) -> list[bytes]:
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
