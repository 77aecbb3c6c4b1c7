"""Group commit to one SQLite file: each write is durable when it returns, and waiting writes are committed together.

Waiting for the disk, the one slow part of a commit, is left to a thread. What comes meanwhile goes into the next
commit, and while many queries are asked a commit waits some milliseconds for more.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from onoff.errors import OnOffError
from onoff.server.settling import settle

_T = TypeVar("_T")

BUSY_SECONDS = 5
MAX_BATCH = 256
MANY_QUERIES = 10  # since the last commit: from here on they come first ...
COMMIT_SECONDS = 0.02  # ... and publishes are committed together, once in this time

WriteWork = Callable[[sqlite3.Connection], _T]


class GroupCommit:
    """The writes of one process.

    Parameters
    ----------
    connection
        In autocommit mode, usable from any thread; ours until `close`.
    before_commit
        Called before every commit; what it raises is raised by the writes, and nothing is written.
    on_commit
        Called after every commit, before it is acknowledged.
    """

    def __init__(
        self, connection: sqlite3.Connection, before_commit: Callable[[], None], on_commit: Callable[[], None]
    ) -> None:
        self.connection = connection
        self.queries = 0  # asked since the last commit; the code that answers them adds to it
        self._before_commit, self._on_commit = before_commit, on_commit
        self._commits: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._commit_loop, name="onoff-writer", daemon=True)
        self._thread.start()
        self._queue: deque[tuple[WriteWork[Any], asyncio.Future[Any]]] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._last_commit = 0.0

    async def write(self, work: WriteWork[_T]) -> _T:
        """The outcome of `work`, durable. Raises what it raises, or `sqlite3.Error` if it could not be committed."""
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._queue.append((work, done))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_queue())
        return await done

    async def close(self) -> None:
        """Commit what waits, and close the connection."""
        if self._committing is not None:
            await self._committing
        self._commits.put(None)
        self._thread.join()
        self.connection.close()

    async def _commit_queue(self) -> None:
        while self._queue:
            await self._delay_commit()
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
            try:
                outcomes = await self._commit([work for work, _ in batch])
            except Exception as error:
                outcomes = [error] * len(batch)
            for (_, done), outcome in zip(batch, outcomes, strict=True):
                settle(done, outcome)

    async def _delay_commit(self) -> None:
        """A commit costs as much as dozens of queries, whatever is in it: while many are asked, commit less often."""
        loop = asyncio.get_running_loop()
        early = self._last_commit + COMMIT_SECONDS - loop.time()
        if early > 0 and self.queries >= MANY_QUERIES:
            await asyncio.sleep(early)
        self._last_commit, self.queries = loop.time(), 0

    async def _commit(self, batch: Sequence[WriteWork[Any]]) -> list[Any]:
        """What each returned, or the refusal it raised, in one transaction."""
        db = self.connection
        await self._begin()
        try:
            outcomes = []
            for work in batch:
                try:
                    outcomes.append(work(db))
                except OnOffError as refusal:  # raised before anything was written
                    outcomes.append(refusal)
            self._before_commit()
            committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._commits.put(committed)
            await committed
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._on_commit()
        return outcomes

    def _commit_loop(self) -> None:
        """The thread that waits for the disk. It holds the GIL as little as possible: queries need it."""
        while (committed := self._commits.get()) is not None:
            outcome: Exception | None = None
            try:
                self.connection.execute("COMMIT")
            except Exception as error:
                outcome = error
            committed.get_loop().call_soon_threadsafe(settle, committed, outcome)

    async def _begin(self) -> None:
        """BEGIN IMMEDIATE; while another process writes, wait without holding up the readers of this one."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.002)
