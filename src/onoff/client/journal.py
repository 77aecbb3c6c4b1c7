"""The journal: one durable record, written before the first byte of a request leaves.

An SQLite file with one table of one row. The row is replaced in one transaction that is on disk when `store`
returns (WAL, synchronous=FULL); a `store` that fails has changed nothing that was ever sent. After an answer,
`complete` says so and checkpoints the log, so that nothing of earlier requests is left in either
(secure_delete, log truncated). The row carries a checksum over itself and over the place where it was written
(machine and inode): a damaged row is never used, a copied one is recognised.

Beside it NAME.session holds the id of the live session, durable before the session's first row. A journal that
was lost, replaced by another one and then restored is valid, may have its old inode again, and the server saw nothing
later in its session; but its session is not the live one.

    open     a sound row of this place     `found` is the record, `doubt` is None
             a copy, an earlier journal    `found` is what there is, `doubt` says why it must not be relied on
             that was put back, a new one
             damaged                       put aside as NAME.damaged, and a new journal
             a file without our mark       JournalUnusable: it is not changed
    lock     held until it is closed: a second opener gets JournalBusy

An older row of the live session looks valid here; only the server can tell, and is asked (see `core`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import sqlite3
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Protocol

from onoff.client.database import Damaged, FileErrors, Migration, PrivateDatabase, put_aside
from onoff.client.doubt import Doubt
from onoff.client.record import Record
from onoff.errors import JournalBusy, JournalUnusable, JournalWriteFailed

JOURNAL_ID: Final = 0x6F6E6F66  # "onof"

_COLUMNS: Final = tuple(column.name for column in fields(Record))
_FIRST_COLUMNS: Final = 11
"""Columns of schema 1, which stand first."""
_FLAGS: Final = ("private", "pending", "mirror")
_STORE: Final = (
    f"INSERT INTO request (id, {', '.join(_COLUMNS)}, checksum) VALUES (1{', ?' * (len(_COLUMNS) + 1)}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in (*_COLUMNS, 'checksum'))}"
)
JOURNAL_ERRORS: Final = FileErrors("journal", JournalBusy, JournalUnusable, JournalWriteFailed, "nothing was sent")


class JournalStore(Protocol):
    """Where a client keeps its record."""

    found: Record | None
    doubt: Doubt | None

    def store(self, record: Record) -> None:
        """Durable when it returns; raises JournalWriteFailed, and then nothing may be sent."""
        ...

    def complete(self) -> None:
        """The request was answered: remember that, and leave no trace of those before it."""
        ...

    def checkpoint(self) -> None:
        """Leave no trace of requests before the last."""
        ...

    def close(self) -> None: ...


class MemoryJournal:
    """A journal in memory, lost with the process. For tests, audits, and clients that are used once."""

    def __init__(self) -> None:
        self.found: Record | None = None
        self.doubt: Doubt | None = Doubt.NEW

    def store(self, record: Record) -> None:
        self.found, self.doubt = record, None

    def complete(self) -> None:
        if self.found is not None:
            self.found = replace(self.found, pending=False)

    def checkpoint(self) -> None:
        pass

    def close(self) -> None:
        pass


class Journal:
    """The journal in the file `path`, locked until it is closed.

    Raises JournalBusy, JournalUnusable or JournalWriteFailed. With `repair=False` damage is an error as well, and the
    file stays as it is.
    """

    def __init__(self, path: str | Path, *, repair: bool = True) -> None:
        self.path = Path(path)
        self.found: Record | None = None
        self.doubt: Doubt | None = None
        self._live: bytes | None = None
        try:
            self._open()
        except Damaged as damage:
            if not damage.ours:
                raise JOURNAL_ERRORS.foreign(self.path) from None
            if not repair:
                raise JournalUnusable(
                    f"{self.path}: the journal is damaged ({damage})", hint="`onoff state reset` starts a new one"
                ) from None
            put_aside(self.path, JOURNAL_ERRORS)
            self._open()
            self.doubt = Doubt.DAMAGED

    def store(self, record: Record) -> None:
        values = _values(record)
        try:
            if record.session != self._live:
                self._live = _announce(self.path, record.session)
            self._database.connection.execute(_STORE, (*values, _checksum(values, self._place)))
        except (sqlite3.Error, OSError) as error:
            raise self._database.write_failed(error) from None
        self.found, self.doubt = record, None

    def complete(self) -> None:
        self.checkpoint()
        if self.found is not None and self.found.pending:
            # After the checkpoint: the log then begins with this record, and the next `store` need not sync its head.
            self.store(replace(self.found, pending=False))

    def checkpoint(self) -> None:
        self._database.checkpoint()

    def close(self) -> None:
        self._database.close()

    def _open(self) -> None:
        self._database = _open_database(self.path)
        with self._database.closing_on_error():
            self._place = _place(self.path)
            self.found, self.doubt = _read(self._database.connection, self._place)
            self._live = _live_session(self.path)
            if self.found is not None and self.doubt is None and self.found.session != self._live:
                self.doubt = Doubt.PUT_BACK
            self.checkpoint()


def remove(path: Path) -> list[Path]:
    """Delete a journal that is not open, and its damaged copies. Returns the files that were there.

    Raises JournalUnusable where the file may be no journal; nothing is deleted then.
    """
    if path.exists():
        try:
            _open_database(path).close()
        except Damaged as damage:
            if not damage.ours:
                raise JOURNAL_ERRORS.foreign(path) from None
        except JournalWriteFailed:
            pass  # a damaged file can look like one that may not be written
    names = (path.name + end for end in ("", "-wal", ".session", ".damaged", ".damaged-wal"))
    found = [file for file in map(path.with_name, names) if file.exists()]
    for file in found:
        file.unlink()
    return found


def _open_database(path: Path) -> PrivateDatabase:
    return PrivateDatabase(path, application_id=JOURNAL_ID, migrations=JOURNAL_MIGRATIONS, errors=JOURNAL_ERRORS)


def _place(path: Path) -> bytes:
    """Tells this file on this machine from a copy of it."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = platform.node()
    return hashlib.sha256(f"{machine} {path.stat().st_ino}".encode()).digest()


def _live_session(path: Path) -> bytes | None:
    """The session that the last journal at this path was in, or None where that is not known."""
    with suppress(OSError):
        return Path(f"{path}.session").read_bytes()
    return None


def _announce(path: Path, session: bytes) -> bytes:
    """Make `session` the live one, durably. An interrupted write leaves no live session."""
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(f"{path}.session", flags, 0o600), "wb", buffering=0) as file:
        file.write(session)
        os.fsync(file.fileno())
    return session


# -- rows --------------------------------------------------------------------------------------------------


def _create_table(database: sqlite3.Connection) -> None:
    """0 to 1: the row of the last request. Only `wanted` is secret."""
    database.execute(
        "CREATE TABLE request (id INTEGER PRIMARY KEY CHECK (id = 1), server TEXT NOT NULL, chain TEXT NOT NULL, "
        "origin TEXT NOT NULL, session BLOB NOT NULL, step INTEGER NOT NULL, query BLOB NOT NULL, asked BLOB NOT NULL, "
        "wanted INTEGER NOT NULL, private INTEGER NOT NULL, note TEXT, pending INTEGER NOT NULL, "
        "checksum BLOB NOT NULL) STRICT"
    )


def _add_memory(database: sqlite3.Connection) -> None:
    """1 to 2: what a session remembers beyond the last query and request."""
    database.execute("ALTER TABLE request ADD COLUMN memory BLOB NOT NULL DEFAULT x''")


def _add_mirror(database: sqlite3.Connection) -> None:
    """2 to 3: whether the last request was read from the mirror."""
    database.execute("ALTER TABLE request ADD COLUMN mirror INTEGER NOT NULL DEFAULT 0")


def _add_others(database: sqlite3.Connection) -> None:
    """3 to 4: the bytes for further servers."""
    database.execute("ALTER TABLE request ADD COLUMN others BLOB NOT NULL DEFAULT x''")


JOURNAL_MIGRATIONS: tuple[Migration, ...] = (_create_table, _add_memory, _add_mirror, _add_others)
"""Step i takes a journal of schema i to schema i + 1, in one transaction."""


def _values(record: Record) -> tuple[Any, ...]:
    values = (getattr(record, column) for column in _COLUMNS)
    return tuple(int(value) if isinstance(value, bool) else value for value in values)


def _checksum(values: tuple[Any, ...], place: bytes) -> bytes:
    """Over every column, as Python writes it in ASCII, and over the place: 16 bytes of each of two digests.

    The first does not depend on the place, so that a copy is told from damage. A column of a later schema counts with
    its name, and only where it is not empty: a row keeps its checksum when columns are added.
    """
    later = {
        column: value for column, value in zip(_COLUMNS[_FIRST_COLUMNS:], values[_FIRST_COLUMNS:], strict=True) if value
    }
    content = ascii(values[:_FIRST_COLUMNS]).encode() + (ascii(later).encode() if later else b"")
    return hashlib.sha256(content).digest()[:16] + hashlib.sha256(place + content).digest()[:16]


def _read(database: sqlite3.Connection, place: bytes) -> tuple[Record | None, Doubt | None]:
    """The record and None; or what there is, and why it must not be relied on."""
    rows = database.execute(f"SELECT {', '.join(_COLUMNS)}, checksum FROM request").fetchall()
    if not rows:
        return None, Doubt.NEW
    *values, checksum = rows[0]
    expected = _checksum(tuple(values), place)
    if len(rows) > 1 or not isinstance(checksum, bytes) or checksum[:16] != expected[:16]:
        raise Damaged("its checksum is wrong")
    named = dict(zip(_COLUMNS, values, strict=True))
    record = Record(**{**named, **{column: bool(named[column]) for column in _FLAGS}})
    return record, None if checksum == expected else Doubt.COPIED
