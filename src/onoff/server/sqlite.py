"""The default store: one SQLite file, any number of worker processes on one machine.

WAL and synchronous=FULL, both checked at opening: a publish is on disk before it is acknowledged. Waiting for the
disk, the one slow part of it, is left to a thread; what comes meanwhile is committed together afterwards, and while
many queries are asked a commit waits some milliseconds for more. Reading has a connection of its own. Beside the
file lies a `StepTable` with the steps of the sessions and a bell, which is rung after a commit, before it is
acknowledged, and at every opening: while it is silent nothing acknowledged is new.

    meta        catalogue (JSON as on the wire), count (bumped by every change), schema
    messages    name, version, published, media_type, body, count (of its publish)
    publishers  name, digest, sources (JSON)
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from onoff.errors import InvalidWire, OnOffError, StoreUnavailable, UnknownSource
from onoff.server.steps import StepTable
from onoff.server.store import Admission, LastStep, Latest, Promise, Publisher, Stamp, check_fits
from onoff.wire import (
    DEFAULT_FRAME_SIZE,
    Catalogue,
    Message,
    decode_catalogue,
    encode_catalogue,
)

T = TypeVar("T")

SCHEMA_VERSION = 1
_ENDLESS = Stamp(0, 2**63 - 1)  # nothing comes after it
BUSY_SECONDS = 5
MAX_BATCH = 256
MANY_QUERIES = 10  # since the last commit: from here on they come first ...
COMMIT_SECONDS = 0.02  # ... and publishes are committed together, once in this time

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE messages (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, published INTEGER NOT NULL,
    media_type TEXT NOT NULL, body BLOB NOT NULL, count INTEGER NOT NULL
);
CREATE INDEX messages_by_count ON messages (count);
CREATE TABLE publishers (name TEXT PRIMARY KEY, digest BLOB NOT NULL, sources TEXT NOT NULL);
"""
# One statement: all that it reads is of the same moment.
_CHANGED = """
SELECT NULL, key, value, NULL, NULL FROM meta
UNION ALL SELECT name, version, published, media_type, body FROM messages WHERE count > ?
"""
_PUBLISH = """
INSERT INTO messages VALUES (?, 1, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET version = version + 1,
    published = excluded.published, media_type = excluded.media_type, body = excluded.body, count = excluded.count
RETURNING version
"""


class SQLiteStore:
    """A store in one file."""

    def __init__(self, path: str | Path, *, frame_size: int = DEFAULT_FRAME_SIZE) -> None:
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._connect()
            self._prepare(frame_size)
            self._reader = self._connect()
            self._steps = StepTable(f"{self._path}-steps", at_end_of_turn=_soon)
            self._steps.ring()  # whoever died between commit and bell is made up for
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(
                f"cannot open the store {self._path}: {error}", hint="is it a writable SQLite file of onoff?"
            ) from error
        self._commits: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._commit_for_ever, name="onoff-writer", daemon=True)
        self._thread.start()
        self._queue: deque[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._last_commit = 0.0
        self._queries = 0
        self._heard = b""
        self._stamp = Stamp()
        self._known = (b"", Catalogue(()))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        connection.execute("PRAGMA synchronous=FULL")
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        if (mode, synchronous) != ("wal", 2):
            raise StoreUnavailable(
                f"SQLite gives journal mode {mode}, synchronous {synchronous} for {self._path}",
                hint="use a local disk where write-ahead logging works",
            )
        return connection

    def _prepare(self, frame_size: int) -> None:
        db = self._writer
        db.execute("BEGIN IMMEDIATE")
        try:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                empty = encode_catalogue(Catalogue((), frame_size))
                db.executemany(
                    "INSERT INTO meta VALUES (?, ?)",
                    [("catalogue", empty), ("count", 0), ("schema", SCHEMA_VERSION)],
                )
            row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        db.execute("PRAGMA busy_timeout=0")  # from here on `_begin` does the waiting
        if row is None:
            raise StoreUnavailable(f"{self._path} is a database of something else", hint="give another path")
        if row[0] != SCHEMA_VERSION:
            raise StoreUnavailable(
                f"{self._path} has schema {row[0]}, this onoff writes {SCHEMA_VERSION}", hint="use a newer onoff"
            )

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The outcome of `work`, durable."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((work, done))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_queue())
        try:
            outcome: T = await done
        except sqlite3.Error as error:
            raise _unavailable(error) from error
        return outcome

    async def _commit_queue(self) -> None:
        while self._queue:
            await self._wait_for_company()
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
            try:
                outcomes = await self._commit([work for work, _ in batch])
            except Exception as error:
                outcomes = [error] * len(batch)
            for (_, done), outcome in zip(batch, outcomes, strict=True):
                _settle(done, outcome)

    async def _wait_for_company(self) -> None:
        """A commit costs as much as dozens of queries, whatever is in it: while many are asked, commit less often."""
        loop = asyncio.get_running_loop()
        early = self._last_commit + COMMIT_SECONDS - loop.time()
        if early > 0 and self._queries >= MANY_QUERIES:
            await asyncio.sleep(early)
        self._last_commit, self._queries = loop.time(), 0

    async def _commit(self, batch: Sequence[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        """What each returned, or the refusal it raised, in one transaction."""
        db = self._writer
        await self._begin()
        try:
            outcomes = []
            for work in batch:
                try:
                    outcomes.append(work(db))
                except OnOffError as refusal:  # raised before anything was written
                    outcomes.append(refusal)
            committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._commits.put(committed)
            await committed
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._steps.ring()
        return outcomes

    def _commit_for_ever(self) -> None:
        """The thread that waits for the disk. It takes the interpreter as seldom as it can: queries need it."""
        while (committed := self._commits.get()) is not None:
            outcome: Exception | None = None
            try:
                self._writer.execute("COMMIT")
            except Exception as error:
                outcome = error
            committed.get_loop().call_soon_threadsafe(_settle, committed, outcome)

    async def _begin(self) -> None:
        """BEGIN IMMEDIATE; while another process writes, wait without holding up the readers of this one."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.002)

    # Reading, on the event loop's own connection.

    @property
    def nearby(self) -> SQLiteStore:
        return self

    async def catalogue(self) -> Catalogue:
        self._look()
        return self._known[1]

    def _read_catalogue(self, text: bytes) -> tuple[bytes, Catalogue]:
        """The catalogue of `text`; reading a long one takes milliseconds, so the last is remembered."""
        known = self._known
        return known if known[0] == text else (text, decode_catalogue(text))

    def _look(self) -> Stamp:
        """The stamp now; what is known of the catalogue is brought up to it."""
        if self._steps.bell != self._heard:
            self._latest(_ENDLESS)
        return self._stamp

    async def latest(self, after: Stamp) -> Latest:
        return self._latest(after)

    def news_now(self, after: Stamp) -> Latest | None:
        if self._steps.bell == self._heard and self._stamp == after:
            return None
        return self._latest(after)

    def _latest(self, after: Stamp) -> Latest:
        """Read even if no bell rang: stamp and messages are of the same moment."""
        bell = self._steps.bell  # before the rows: what is rung in between is looked at again
        try:
            rows = self._reader.execute(_CHANGED, (after.changes,)).fetchall()
        except sqlite3.Error as error:
            raise _unavailable(error) from error
        meta = {row[1]: row[2] for row in rows if row[0] is None}
        self._known = self._read_catalogue(meta["catalogue"])
        self._stamp, self._heard = Stamp(0, meta["count"]), bell
        messages = {name: Message(*rest) for name, *rest in rows if name is not None}
        return Latest(self._stamp, self._known[1], messages, whole=after.changes < 0)

    def admit_now(self, session: bytes, step: int, digest: bytes) -> LastStep | None:
        self._queries += 1
        return self._steps.admit(session, step, digest)

    async def admit(self, session: bytes, step: int, digest: bytes) -> Admission:
        return Admission(self._look(), self.admit_now(session, step, digest))

    async def last_step(self, session: bytes) -> LastStep | None:
        return self._steps.last(session)

    async def publishers(self) -> Sequence[Publisher]:
        try:
            rows = self._reader.execute("SELECT name, digest, sources FROM publishers").fetchall()
        except sqlite3.Error as error:
            raise _unavailable(error) from error
        return [Publisher(name, digest, tuple(json.loads(sources))) for name, digest, sources in rows]

    async def promise(self) -> Promise:
        self._look()
        return Promise("sqlite", True, "an acknowledged message is on disk: it survives a crash and a power cut")

    # Writing.

    async def publish(self, name: str, media_type: str, body: bytes, published: int) -> Message:
        def work(db: sqlite3.Connection) -> Message:
            (text,) = db.execute("SELECT value FROM meta WHERE key = 'catalogue'").fetchone()
            _, catalogue = self._read_catalogue(text)
            if name not in catalogue.index:
                raise UnknownSource("no source of that name", hint="`onoff catalogue` lists them")
            if len(body) > catalogue.limit:
                raise InvalidWire(f"a message of {len(body)} bytes", hint=f"at most {catalogue.limit} bytes")
            (version,) = db.execute(_PUBLISH, (name, published, media_type, body, _bump(db))).fetchone()
            return Message(version, published, media_type, body)

        return await self._write(work)

    async def replace_catalogue(self, new: Catalogue, *, expected: Catalogue) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            (text,) = db.execute("SELECT value FROM meta WHERE key = 'catalogue'").fetchone()
            if text != encode_catalogue(expected):
                return False
            sizes = dict(db.execute("SELECT name, length(body) FROM messages").fetchall())
            check_fits(new, sizes)
            dropped = [(name,) for name in sizes if name not in new.index]
            db.executemany("DELETE FROM messages WHERE name = ?", dropped)
            db.execute("UPDATE meta SET value = ? WHERE key = 'catalogue'", (encode_catalogue(new),))
            _bump(db)
            return True

        return await self._write(work)

    async def add_publisher(self, publisher: Publisher) -> None:
        row = (publisher.name, publisher.digest, json.dumps(publisher.sources))
        await self._write(lambda db: db.execute("REPLACE INTO publishers VALUES (?, ?, ?)", row))

    async def close(self) -> None:
        if self._committing is not None:
            await self._committing
        self._commits.put(None)
        self._thread.join()
        self._reader.close()
        self._writer.close()
        self._steps.close()


def _soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def _settle(done: asyncio.Future[Any], outcome: Any) -> None:
    """Tell whoever waits, unless it has gone."""
    if done.done():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


def _bump(db: sqlite3.Connection) -> int:
    (count,) = db.execute("UPDATE meta SET value = value + 1 WHERE key = 'count' RETURNING value").fetchone()
    return int(count)


def _unavailable(error: sqlite3.Error) -> StoreUnavailable:
    return StoreUnavailable(f"the store does not answer: {error}", hint="is its disk full, or its file gone?")
