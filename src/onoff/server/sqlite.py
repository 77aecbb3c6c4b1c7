"""The default store: one SQLite file, any number of worker processes on one machine.

WAL and synchronous=FULL, both checked at opening: a publish is on disk before it is acknowledged (`GroupCommit`).
Reading has a connection of its own. Beside the file lies a `StepTable` with the steps of the sessions and a
generation, changed after a commit, before it is acknowledged, and at every opening: while it stays the same nothing
acknowledged is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from onoff.errors import OnOffError, StoreFull, StoreUnavailable, UnknownSource
from onoff.server.store import (
    HOURS,
    KEPT_DIGESTS,
    Adoption,
    LastStep,
    Latest,
    Probing,
    Promise,
    Publisher,
    Readiness,
    Stamp,
    StepTable,
    changed_per_hour,
    check_fits,
    check_message,
    check_total,
    current_hour,
    may_overflow,
    new_life,
    readable,
    settle,
)
from onoff.system.files import open_private
from onoff.wire import (
    FRAME_OVERHEAD,
    Catalogue,
    Edition,
    WireMessage,
    decode_catalogue,
    encode_catalogue,
    first_digest,
    next_digest,
)

# The tables. Schema 1 (version 0.1) had no editions: opening makes its content the first edition of a new life.
#
#     meta        catalogue (JSON as on the wire), schema, and of the edition: count (its number), life, digest,
#                 born (the hour since 1970 in which counting of change began), bytes (of all bodies together, kept by
#                 triggers, so that no publish has to sum over all messages)
#     messages    name, version, published, media_type, body, count (the edition of its publish)
#     digests     number, digest: of the last `KEPT_DIGESTS` editions of this life
#     hours       hour since 1970, bytes of frames published in it
#     publishers  name, digest, sources (JSON)
#     feeds       url, name: what the source of each feed is called; made where it is missing

SCHEMA_VERSION = 2

_BASE = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE messages (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, published INTEGER NOT NULL,
    media_type TEXT NOT NULL, body BLOB NOT NULL, count INTEGER NOT NULL
);
CREATE INDEX messages_by_count ON messages (count);
CREATE TABLE publishers (name TEXT PRIMARY KEY, digest BLOB NOT NULL, sources TEXT NOT NULL);
"""
_EDITIONS = """
CREATE TABLE digests (number INTEGER PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE hours (hour INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
"""

_BYTES = (  # a row that REPLACE takes the place of fires no trigger of its own: the first one counts it
    """CREATE TRIGGER bytes_of_new BEFORE INSERT ON messages BEGIN
        UPDATE meta SET value = value + length(NEW.body)
            - coalesce((SELECT length(body) FROM messages WHERE name = NEW.name), 0) WHERE key = 'bytes'; END""",
    """CREATE TRIGGER bytes_of_old AFTER DELETE ON messages BEGIN
        UPDATE meta SET value = value - length(OLD.body) WHERE key = 'bytes'; END""",
)

_FEEDS = "CREATE TABLE IF NOT EXISTS feeds (url TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID"


_KINDS = {"catalogue": bytes, "schema": int, "count": int, "life": bytes, "digest": bytes, "born": int, "bytes": int}


def check_owner(db: sqlite3.Connection, path: Path) -> None:
    """Raise StoreUnavailable where the file has tables, and they are not those of a store."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and not {"meta", "messages", "publishers"} <= tables:
        raise StoreUnavailable(f"{path} is a database of something else", hint="give another path")


def prepare_tables(db: sqlite3.Connection, path: Path, empty: Catalogue) -> None:
    """Make the tables, or bring them up to date, within the transaction that `db` is in.

    Raises StoreUnavailable if the file is a database of something else, of a newer version, or damaged.
    """
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone():
        _run(db, _BASE)
        rows = [("catalogue", encode_catalogue(empty)), ("count", 0), ("schema", 1)]
        db.executemany("INSERT INTO meta VALUES (?, ?)", rows)
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    if row is None:
        raise StoreUnavailable(f"{path} is a database of something else", hint="give another path")
    if row[0] == 1:
        _run(db, _EDITIONS)
        set_meta(db, born=current_hour(), schema=SCHEMA_VERSION)
        text, count = read_meta(db, "catalogue", "count")
        begin_life(db, readable(lambda: decode_catalogue(text)), count)
    elif row[0] != SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{path} has schema {row[0]}, this onoff writes {SCHEMA_VERSION}", hint="use a newer onoff"
        )
    db.execute(_FEEDS)
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'bytes_of_new'").fetchone():
        db.execute("REPLACE INTO meta SELECT 'bytes', coalesce(sum(length(body)), 0) FROM messages")
        for statement in _BYTES:
            db.execute(statement)
    read_meta(db, *_KINDS)  # what is damaged is found now, and not by the first reader


def _run(db: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        db.execute(statement)


def read_meta(db: sqlite3.Connection, *keys: str) -> list[Any]:
    """The values of these keys, in their order. Raises StoreUnavailable where one is damaged."""
    return checked_meta(dict(db.execute("SELECT key, value FROM meta").fetchall()), *keys)


def checked_meta(found: Mapping[str, Any], *keys: str) -> list[Any]:
    """The values of these keys among all that were found. Raises StoreUnavailable where one is damaged."""
    return readable(lambda: [_of_kind(_KINDS[key], found[key]) for key in keys])


def _of_kind(kind: type, value: Any) -> Any:
    if type(value) is not kind or (isinstance(value, int) and value < 0):  # a column holds what was put there
        raise TypeError(f"{value!r:.40} instead of {kind.__name__}")
    return value


def set_meta(db: sqlite3.Connection, **values: object) -> None:
    db.executemany("REPLACE INTO meta VALUES (?, ?)", values.items())


def begin_life(db: sqlite3.Connection, catalogue: Catalogue, number: int) -> None:
    """Let the content as it is be the first edition of a new life."""
    life = new_life()
    set_edition(db, Edition(catalogue.epoch, life, number, first_digest(catalogue.epoch, life)))


def set_edition(db: sqlite3.Connection, edition: Edition) -> None:
    """Begin the history anew at this edition."""
    set_meta(db, count=edition.number, life=edition.life, digest=edition.digest)
    db.execute("DELETE FROM digests")
    db.execute("INSERT INTO digests VALUES (?, ?)", (edition.number, edition.digest))


def advance(db: sqlite3.Connection, number: int, digest: bytes, size: int) -> None:
    """Make the next edition of the same life."""
    hour = current_hour()
    set_meta(db, count=number, digest=digest)
    db.execute("INSERT INTO digests VALUES (?, ?)", (number, digest))
    db.execute("DELETE FROM digests WHERE number <= ?", (number - KEPT_DIGESTS,))
    db.execute(
        "INSERT INTO hours VALUES (?, ?) ON CONFLICT (hour) DO UPDATE SET bytes = bytes + excluded.bytes", (hour, size)
    )
    db.execute("DELETE FROM hours WHERE hour <= ?", (hour - HOURS,))


_T = TypeVar("_T")

BUSY_SECONDS = 5
MAX_BATCH = 256
MANY_QUERIES = 10  # since the last commit: from here on they come first ...
COMMIT_SECONDS = 0.02  # ... and publishes are committed together, once in this time

WriteWork = Callable[[sqlite3.Connection], _T]


class GroupCommit:
    """The writes of one process: each is durable when it returns, and those that wait are committed together.

    Waiting for the disk, the one slow part of a commit, is left to a thread. What comes meanwhile goes into the next
    commit, and while many queries are asked a commit waits some milliseconds for more.

    connection: In autocommit mode, usable from any thread; ours until `close`.
    before_commit: Called before every commit; what it raises is raised by the writes, and nothing is written.
    on_commit: Called after every commit, before it is acknowledged.
    """

    def __init__(
        self, connection: sqlite3.Connection, before_commit: Callable[[], None], on_commit: Callable[[], None]
    ) -> None:
        self.connection = connection
        self.queries = 0  # asked since the last commit; the code that answers them adds to it
        self.commit_seconds, self.busy_seconds = COMMIT_SECONDS, float(BUSY_SECONDS)
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
        early = self._last_commit + self.commit_seconds - loop.time()
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
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.002)


_FILES = ("", "-wal", "-shm", "-steps")  # that a store consists of while it is open
ROOM_MESSAGES = 2  # of the longest length: the disk counts as full without room for these

# One statement: all that it reads is of the same moment.
_CHANGED = """
SELECT NULL, key, value, NULL, NULL, NULL FROM meta
UNION ALL SELECT name, version, published, media_type, body, count FROM messages
WHERE count > CASE WHEN (SELECT value FROM meta WHERE key = 'life') = ? THEN ? ELSE -1 END
"""
_FAULTS = (sqlite3.Error, UnicodeDecodeError)  # the latter where a message of SQLite quotes damaged text
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}


class SQLiteStore:
    """A store in one file."""

    never_waits = True

    def __init__(self, path: str | Path, *, frame_size: int | None = None, limit: int = 0) -> None:
        self._path = Path(path)
        with contextlib.ExitStack() as opened:  # closed again where the rest cannot be opened
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._refuse_what_others_made()
                _make_private(self._path)
                writer = opened.enter_context(contextlib.closing(self._connect()))
                self._prepare(writer, Catalogue((), frame_size, limit))
                self._reader = opened.enter_context(contextlib.closing(self._connect()))
                self.steps = StepTable(f"{self._path}-steps", at_end_of_iteration=_soon)
                self.steps.change_generation()  # for a process that died between the two
                self._reader.execute("SELECT 1 FROM meta").fetchall()
                self._files = self._files_now()
            except (*_FAULTS, OSError) as error:
                raise StoreUnavailable(
                    f"cannot open the store {self._path}: {error}",
                    hint="is it a writable SQLite file of onoff, and its disk not full?",
                ) from error
            opened.pop_all()
        self.writer = GroupCommit(writer, self._check_in_place, self.steps.change_generation)
        self._generation = b""
        self._stamp = Stamp()
        self._known = (b"", Catalogue(()))
        self._unchanged: dict[bytes, Latest] = {}  # what `latest` gave last, without messages, by the generation
        self.probing = Probing(self._probe)

    def _refuse_what_others_made(self) -> None:
        """Raise before anything of the file is changed: its journal mode, its tables, or who may read it."""
        if not self._path.exists() or not self._path.stat().st_size:
            return
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, timeout=BUSY_SECONDS, uri=True)) as db:
            check_owner(db, self._path)

    def _files_now(self) -> list[tuple[int, int]]:
        """Which files are at the paths of the store. Raises OSError where one is missing."""
        found = [os.stat(f"{self._path}{suffix}") for suffix in _FILES]
        return [(status.st_dev, status.st_ino) for status in found]

    def _check_in_place(self) -> None:
        """Raise StoreUnavailable where a file is no longer what was opened: what is written to it would be lost."""
        with contextlib.suppress(OSError):
            if self._files_now() == self._files:
                return
        raise StoreUnavailable(
            f"the store at {self._path} was deleted, moved or replaced", hint="put it back, or start the server again"
        )

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            connection.execute("PRAGMA synchronous=FULL")
            synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
            if (mode, synchronous) != ("wal", 2):
                raise StoreUnavailable(
                    f"SQLite gives journal mode {mode}, synchronous {synchronous} for {self._path}",
                    hint="use a local disk where write-ahead logging works",
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, db: sqlite3.Connection, empty: Catalogue) -> None:
        db.execute("BEGIN IMMEDIATE")
        try:
            prepare_tables(db, self._path, empty)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        db.execute("PRAGMA busy_timeout=0")  # from here on `GroupCommit` does the waiting

    async def _write(self, work: WriteWork[_T]) -> _T:
        """The outcome of `work`, durable."""
        try:
            return await self.writer.write(work)
        except _FAULTS as error:
            raise _unavailable(error) from error

    # Reading, on the event loop's own connection.

    async def catalogue(self) -> Catalogue:
        self._look()
        return self._known[1]

    def _read_catalogue(self, text: bytes) -> tuple[bytes, Catalogue]:
        """The catalogue of `text`; reading a long one takes milliseconds, so the last is remembered."""
        known = self._known
        return known if known[0] == text else (text, readable(lambda: decode_catalogue(text)))

    def _look(self) -> Stamp:
        """The stamp now; what is known of the catalogue is brought up to it."""
        if self.steps.generation != self._generation:
            generation = self.steps.generation
            self._note(dict(self._read("SELECT key, value FROM meta")), generation)
        return self._stamp

    def _read(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._reader.execute(statement, values).fetchall()
        except _FAULTS as error:
            raise _unavailable(error) from error

    def _note(self, meta: dict[str, Any], generation: bytes) -> None:
        """Remember stamp and catalogue, and the generation before they were read."""
        text, life, count = checked_meta(meta, "catalogue", "life", "count")
        self._known = self._read_catalogue(text)
        self._stamp, self._generation = Stamp(life, count), generation

    async def latest(self, after: Stamp) -> Latest:
        generation = self.steps.generation  # before the rows: what is changed in between is read again
        known = self._unchanged.get(generation)
        if known is not None and known.stamp == after:
            return known
        rows = self._read(_CHANGED, after.life, after.changes)
        meta = {row[1]: row[2] for row in rows if row[0] is None}
        self._note(meta, generation)
        changed = [row for row in rows if row[0] is not None]
        catalogue = self._known[1]
        life, count, digest = checked_meta(meta, "life", "count", "digest")
        edition = readable(lambda: Edition(catalogue.epoch, life, count, digest))
        unchanged = Latest(self._stamp, catalogue, {}, whole=False, edition=edition, changed={})
        self._unchanged = {generation: unchanged}
        return replace(
            unchanged,
            messages={row[0]: WireMessage(*row[1:5]) for row in changed},
            whole=after.life != life or after.changes < 0,
            changed={row[0]: row[5] for row in changed},
        )

    async def admit(self, session: bytes, step: int, digest: bytes) -> tuple[Stamp, LastStep | None]:
        self.writer.queries += 1
        return self._look(), self.steps.admit(session, step, digest)

    async def last_step(self, session: bytes) -> LastStep | None:
        return self.steps.last(session)

    async def publishers(self) -> Sequence[Publisher]:
        rows = self._read("SELECT name, digest, sources FROM publishers")
        return readable(
            lambda: [Publisher(name, bytes(digest), tuple(json.loads(sources))) for name, digest, sources in rows]
        )

    async def feed_names(self) -> Mapping[str, str]:
        return dict(self._read("SELECT url, name FROM feeds"))

    async def promise(self) -> Promise:
        self._look()
        return Promise("sqlite", True, "an acknowledged message is on disk: it survives a crash and a power cut")

    async def digest_of(self, number: int) -> bytes | None:
        rows = self._read("SELECT digest FROM digests WHERE number = ?", number)
        return rows[0][0] if rows else None

    async def changed_per_hour(self) -> int:
        meta, hours = dict(self._read("SELECT key, value FROM meta")), dict(self._read("SELECT hour, bytes FROM hours"))
        (born,) = checked_meta(meta, "born")
        return readable(lambda: changed_per_hour(hours, born))

    async def readiness(self) -> Readiness:
        return await self.probing()

    async def _probe(self) -> Readiness:
        try:
            self._read("SELECT 1 FROM meta")
            limit = (await self.catalogue()).limit
        except StoreUnavailable as error:
            return Readiness(answers=False, keeps=False, reason=error.message)
        try:
            self._check_in_place()
            disk = os.statvfs(self._path)
            if disk.f_bavail * disk.f_frsize < ROOM_MESSAGES * limit:
                return Readiness(keeps=False, reason="its disk is full")
            await self._write(lambda db: set_meta(db, probed=time.time_ns()))
        except (StoreUnavailable, OSError) as error:
            return Readiness(keeps=False, reason=getattr(error, "message", str(error)))
        return Readiness()

    # Writing.

    async def publish(self, name: str, media_type: str, body: bytes, published: int) -> WireMessage:
        def work(db: sqlite3.Connection) -> WireMessage:
            text, count, digest, total = read_meta(db, "catalogue", "count", "digest", "bytes")
            _, catalogue = self._read_catalogue(text)
            if name not in catalogue.index:
                raise UnknownSource("no source of that name", hint="`onoff catalogue` lists them")
            check_message(catalogue, body)
            row = db.execute("SELECT version, length(body) FROM messages WHERE name = ?", (name,)).fetchone()
            version, length = readable(lambda: [int(value) for value in row]) if row else (0, 0)
            if may_overflow(catalogue):
                check_total(catalogue, total - length, body)
            message = WireMessage(version + 1, published, media_type, body)
            _insert(db, name, message, count + 1)
            digest = next_digest(digest, catalogue.index[name], message)
            advance(db, count + 1, digest, FRAME_OVERHEAD + len(body))
            return message

        return await self._write(work)

    async def replace_catalogue(self, new: Catalogue, *, expected: Catalogue) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            text, count = read_meta(db, "catalogue", "count")
            if text != encode_catalogue(expected):
                return False
            sizes = dict(db.execute("SELECT name, length(body) FROM messages").fetchall())
            check_fits(new, sizes)
            dropped = [(name,) for name in sizes if name not in new.index]
            db.executemany("DELETE FROM messages WHERE name = ?", dropped)
            set_meta(db, catalogue=encode_catalogue(new))
            begin_life(db, new, count + 1)
            return True

        return await self._write(work)

    async def restore(self, catalogue: Catalogue, messages: Mapping[str, WireMessage]) -> None:
        def work(db: sqlite3.Connection) -> None:
            (count,) = read_meta(db, "count")
            db.execute("DELETE FROM messages")
            for name, message in messages.items():
                _insert(db, name, message, count + 1)
            set_meta(db, catalogue=encode_catalogue(catalogue))
            begin_life(db, catalogue, count + 1)

        await self._write(work)

    async def leader(self) -> str | None:
        rows = self._read("SELECT value FROM meta WHERE key = 'leader'")
        return rows[0][0] if rows else None

    async def adopt(self, step: Adoption, *, expected: Edition) -> bool:
        edition = step.edition

        def work(db: sqlite3.Connection) -> bool:
            if read_meta(db, "life", "count", "digest") != [expected.life, expected.number, expected.digest]:
                return False
            if step.whole:
                db.execute("DELETE FROM messages")
                set_meta(db, catalogue=encode_catalogue(step.catalogue))
                set_edition(db, edition)
            elif edition.number > expected.number:
                size = sum(FRAME_OVERHEAD + len(message.body) for message in step.messages.values())
                advance(db, edition.number, edition.digest, size)
            for name, message in step.messages.items():
                _insert(db, name, message, edition.number)
            set_meta(db, leader=step.leader)
            return True

        return await self._write(work)

    async def add_publisher(self, publisher: Publisher) -> None:
        row = (publisher.name, publisher.digest, json.dumps(publisher.sources))
        await self._write(lambda db: db.execute("REPLACE INTO publishers VALUES (?, ?, ?)", row))

    async def replace_feed_names(self, names: Mapping[str, str]) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM feeds")
            db.executemany("INSERT INTO feeds VALUES (?, ?)", names.items())

        await self._write(work)

    async def close(self) -> None:
        await self.writer.close()
        self._reader.close()
        self.steps.close()


def _soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def _insert(db: sqlite3.Connection, name: str, message: WireMessage, number: int) -> None:
    row = (name, message.version, message.published, message.media_type, message.body, number)
    db.execute("REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?)", row)


def _make_private(path: Path) -> None:
    """Make the file, or what an earlier version made, readable by its owner only; SQLite's other files follow it.

    One that is there is not opened: closing it again would end the locks that SQLite holds on it in this process.
    """
    try:
        os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        status = path.stat()
        if status.st_mode & 0o077 and hasattr(os, "geteuid") and status.st_uid == os.geteuid():
            path.chmod(0o600)


def _unavailable(error: Exception) -> StoreUnavailable:
    if getattr(error, "sqlite_errorcode", None) in _FULL:
        return StoreFull(f"the store cannot be written: {error}", hint="make room on its disk")
    return StoreUnavailable(f"the store does not answer: {error}", hint="is its file gone, or its disk faulty?")
