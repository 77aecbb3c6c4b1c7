"""The default store: one SQLite file, any number of worker processes on one machine.

WAL and synchronous=FULL, both checked at opening: a publish is on disk before it is acknowledged (`sqlite_writer`).
Reading has a connection of its own. Beside the file lies a `StepTable` with the steps of the sessions and a
generation, changed after a commit, before it is acknowledged, and at every opening: while it stays the same nothing
acknowledged is new.

The tables are described in `sqlite_schema`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from onoff.errors import StoreFull, StoreUnavailable, UnknownSource
from onoff.server import sqlite_schema as schema
from onoff.server.editions import changed_per_hour, check_message, check_total, may_overflow
from onoff.server.sqlite_writer import BUSY_SECONDS, GroupCommit, WriteWork
from onoff.server.steps import StepTable
from onoff.server.store import (
    Admission,
    Adoption,
    LastStep,
    Latest,
    Probing,
    Promise,
    Publisher,
    Readiness,
    Stamp,
    check_fits,
    readable,
)
from onoff.wire import (
    FRAME_OVERHEAD,
    Catalogue,
    Edition,
    WireMessage,
    decode_catalogue,
    encode_catalogue,
    next_digest,
)

_T = TypeVar("_T")

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
                self._steps = StepTable(f"{self._path}-steps", at_end_of_iteration=_soon)
                self._steps.change_generation()  # for a process that died between the two
                self._reader.execute("SELECT 1 FROM meta").fetchall()
                self._files = self._files_now()
            except (*_FAULTS, OSError) as error:
                raise StoreUnavailable(
                    f"cannot open the store {self._path}: {error}",
                    hint="is it a writable SQLite file of onoff, and its disk not full?",
                ) from error
            opened.pop_all()
        self._writer = GroupCommit(writer, self._check_in_place, self._steps.change_generation)
        self._generation = b""
        self._stamp = Stamp()
        self._known = (b"", Catalogue(()))
        self._readiness = Probing(self._probe)

    def _refuse_what_others_made(self) -> None:
        """Raise before anything of the file is changed: its journal mode, its tables, or who may read it."""
        if not self._path.exists() or not self._path.stat().st_size:
            return
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, timeout=BUSY_SECONDS, uri=True)) as db:
            schema.check_owner(db, self._path)

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
            schema.prepare_tables(db, self._path, empty)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        db.execute("PRAGMA busy_timeout=0")  # from here on `GroupCommit` does the waiting

    async def _write(self, work: WriteWork[_T]) -> _T:
        """The outcome of `work`, durable."""
        try:
            return await self._writer.write(work)
        except _FAULTS as error:
            raise _unavailable(error) from error

    # Reading, on the event loop's own connection.

    @property
    def local(self) -> SQLiteStore:
        return self

    async def catalogue(self) -> Catalogue:
        self._look()
        return self._known[1]

    def _read_catalogue(self, text: bytes) -> tuple[bytes, Catalogue]:
        """The catalogue of `text`; reading a long one takes milliseconds, so the last is remembered."""
        known = self._known
        return known if known[0] == text else (text, readable(lambda: decode_catalogue(text)))

    def _look(self) -> Stamp:
        """The stamp now; what is known of the catalogue is brought up to it."""
        if self._steps.generation != self._generation:
            generation = self._steps.generation
            self._note(dict(self._read("SELECT key, value FROM meta")), generation)
        return self._stamp

    def _read(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._reader.execute(statement, values).fetchall()
        except _FAULTS as error:
            raise _unavailable(error) from error

    def _note(self, meta: dict[str, Any], generation: bytes) -> None:
        """Remember stamp and catalogue, and the generation before they were read."""
        text, life, count = schema.checked_meta(meta, "catalogue", "life", "count")
        self._known = self._read_catalogue(text)
        self._stamp, self._generation = Stamp(life, count), generation

    async def latest(self, after: Stamp) -> Latest:
        return self._latest(after)

    def changed_since(self, after: Stamp) -> Latest | None:
        if self._steps.generation == self._generation and self._stamp == after:
            return None
        return self._latest(after)

    def _latest(self, after: Stamp) -> Latest:
        """Read even if the generation is the same: stamp and messages are consistent."""
        generation = self._steps.generation  # before the rows: what is changed in between is read again
        rows = self._read(_CHANGED, after.life, after.changes)
        meta = {row[1]: row[2] for row in rows if row[0] is None}
        self._note(meta, generation)
        changed = [row for row in rows if row[0] is not None]
        catalogue = self._known[1]
        life, count, digest = schema.checked_meta(meta, "life", "count", "digest")
        return Latest(
            self._stamp,
            catalogue,
            {row[0]: WireMessage(*row[1:5]) for row in changed},
            whole=after.life != life or after.changes < 0,
            edition=readable(lambda: Edition(catalogue.epoch, life, count, digest)),
            changed={row[0]: row[5] for row in changed},
        )

    def admit_sync(self, session: bytes, step: int, digest: bytes) -> LastStep | None:
        self._writer.queries += 1
        return self._steps.admit(session, step, digest)

    async def admit(self, session: bytes, step: int, digest: bytes) -> Admission:
        return Admission(self._look(), self.admit_sync(session, step, digest))

    async def last_step(self, session: bytes) -> LastStep | None:
        return self._steps.last(session)

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
        (born,) = schema.checked_meta(meta, "born")
        return readable(lambda: changed_per_hour(hours, born))

    async def readiness(self) -> Readiness:
        return await self._readiness()

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
            await self._write(lambda db: schema.set_meta(db, probed=time.time_ns()))
        except (StoreUnavailable, OSError) as error:
            return Readiness(keeps=False, reason=getattr(error, "message", str(error)))
        return Readiness()

    # Writing.

    async def publish(self, name: str, media_type: str, body: bytes, published: int) -> WireMessage:
        def work(db: sqlite3.Connection) -> WireMessage:
            text, count, digest, total = schema.read_meta(db, "catalogue", "count", "digest", "bytes")
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
            schema.advance(db, count + 1, digest, FRAME_OVERHEAD + len(body))
            return message

        return await self._write(work)

    async def replace_catalogue(self, new: Catalogue, *, expected: Catalogue) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            text, count = schema.read_meta(db, "catalogue", "count")
            if text != encode_catalogue(expected):
                return False
            sizes = dict(db.execute("SELECT name, length(body) FROM messages").fetchall())
            check_fits(new, sizes)
            dropped = [(name,) for name in sizes if name not in new.index]
            db.executemany("DELETE FROM messages WHERE name = ?", dropped)
            schema.set_meta(db, catalogue=encode_catalogue(new))
            schema.begin_life(db, new, count + 1)
            return True

        return await self._write(work)

    async def restore(self, catalogue: Catalogue, messages: Mapping[str, WireMessage]) -> None:
        def work(db: sqlite3.Connection) -> None:
            (count,) = schema.read_meta(db, "count")
            db.execute("DELETE FROM messages")
            for name, message in messages.items():
                _insert(db, name, message, count + 1)
            schema.set_meta(db, catalogue=encode_catalogue(catalogue))
            schema.begin_life(db, catalogue, count + 1)

        await self._write(work)

    async def leader(self) -> str | None:
        rows = self._read("SELECT value FROM meta WHERE key = 'leader'")
        return rows[0][0] if rows else None

    async def adopt(self, step: Adoption, *, expected: Edition) -> bool:
        edition = step.edition

        def work(db: sqlite3.Connection) -> bool:
            if schema.read_meta(db, "life", "count", "digest") != [expected.life, expected.number, expected.digest]:
                return False
            if step.whole:
                db.execute("DELETE FROM messages")
                schema.set_meta(db, catalogue=encode_catalogue(step.catalogue))
                schema.set_edition(db, edition)
            elif edition.number > expected.number:
                size = sum(FRAME_OVERHEAD + len(message.body) for message in step.messages.values())
                schema.advance(db, edition.number, edition.digest, size)
            for name, message in step.messages.items():
                _insert(db, name, message, edition.number)
            schema.set_meta(db, leader=step.leader)
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
        await self._writer.close()
        self._reader.close()
        self._steps.close()


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
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        status = path.stat()
        if status.st_mode & 0o077 and status.st_uid == os.geteuid():
            path.chmod(0o600)


def _unavailable(error: Exception) -> StoreUnavailable:
    if getattr(error, "sqlite_errorcode", None) in _FULL:
        return StoreFull(f"the store cannot be written: {error}", hint="make room on its disk")
    return StoreUnavailable(f"the store does not answer: {error}", hint="is its file gone, or its disk faulty?")
