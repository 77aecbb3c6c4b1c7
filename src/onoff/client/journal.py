"""The journal: one durable record, written before the first byte of a request leaves.

An SQLite file with one table of one row. The row is replaced in one transaction that is on disk when `store`
returns (WAL, synchronous=FULL); a `store` that fails has changed nothing that was ever sent. After an answer,
`settle` says so and folds the log into the file, so that nothing of earlier requests is left in either
(secure_delete, log truncated). The row carries a checksum over itself and over the place where it was written
(machine and inode): a damaged row is never believed, a copied one is recognised.

Beside it NAME.session holds the id of the live session, durable before the session's first row. A journal that was
lost, followed by another and then put back is whole, may have its old inode again, and the server saw nothing later
in its session; but its session is not the live one.

    open     a sound row of this place     `found` is the record, `doubt` is None
             a copy, an earlier journal    `found` is what there is, `doubt` says why it must not be relied on
             that was put back, a new one
             damaged                       put aside as NAME.damaged, and a new journal
             another program's file        JournalUnusable: it is left alone
    lock     held for life: a second opener gets JournalBusy

An older row of the live session looks sound from here; only the server can tell, and is asked (see `core`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Protocol

from onoff.client.record import Record
from onoff.errors import JournalBusy, JournalUnusable, JournalWriteFailed

APPLICATION_ID: Final = 0x6F6E6F66  # "onof"
NEW: Final = "there was no journal"
COPIED: Final = "the journal was copied or moved from elsewhere"
DAMAGED: Final = "the journal was damaged and put aside"
PUT_BACK: Final = "the journal is not the one that was used last"

_COLUMNS: Final = tuple(column.name for column in fields(Record))
_STORE: Final = (
    f"INSERT INTO request (id, {', '.join(_COLUMNS)}, checksum) VALUES (1{', ?' * (len(_COLUMNS) + 1)}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in (*_COLUMNS, 'checksum'))}"
)
_SETTINGS: Final = (
    ("locking_mode", "EXCLUSIVE", "exclusive"),  # before the first access: the lock is then kept, and no -shm is made
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", None),
    ("secure_delete", "ON", 1),
    ("temp_store", "MEMORY", None),
    ("cell_size_check", "ON", None),
    ("wal_autocheckpoint", "0", 0),  # `settle` decides when
)


class JournalStore(Protocol):
    """Where a client keeps its record."""

    found: Record | None
    doubt: str | None

    def store(self, record: Record) -> None:
        """Durable when it returns; raises JournalWriteFailed, and then nothing may be sent."""
        ...

    def settle(self) -> None:
        """The request was answered: remember that, and leave no trace of those before it."""
        ...

    def tidy(self) -> None:
        """Leave no trace of requests before the last."""
        ...

    def close(self) -> None: ...


class MemoryJournal:
    """A journal that a crash of the process takes along. For tests, audits, and clients that live once."""

    def __init__(self) -> None:
        self.found: Record | None = None
        self.doubt: str | None = NEW

    def store(self, record: Record) -> None:
        self.found, self.doubt = record, None

    def settle(self) -> None:
        if self.found is not None:
            self.found = replace(self.found, pending=False)

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        pass


class Journal:
    """The journal in the file `path`, opened for life.

    Raises JournalBusy, JournalUnusable or JournalWriteFailed. With `repair=False` damage is an error as well, and the
    file stays as it is.
    """

    def __init__(self, path: str | Path, *, repair: bool = True) -> None:
        self.path = Path(path)
        self.found: Record | None = None
        self.doubt: str | None = None
        self._live: bytes | None = None
        try:
            self._open()
        except _Damaged as damage:
            if not repair:
                raise JournalUnusable(
                    f"{self.path}: the journal is damaged ({damage})", hint="`onoff state reset` starts a new one"
                ) from None
            self._put_aside()
            self._open()
            self.doubt = DAMAGED

    def store(self, record: Record) -> None:
        values = _values(record)
        try:
            if record.session != self._live:
                self._live = _announce(self.path, record.session)
            self._database.execute(_STORE, (*values, _checksum(values, self._place)))
        except (sqlite3.Error, OSError) as error:
            raise self._write_failed(error) from None
        self.found, self.doubt = record, None

    def settle(self) -> None:
        self.tidy()
        if self.found is not None and self.found.pending:
            # After folding the log: it then begins with this record, and the next `store` need not sync its head.
            self.store(replace(self.found, pending=False))

    def tidy(self) -> None:
        try:
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise self._write_failed(error) from None

    def close(self) -> None:
        self._database.close()

    # -- opening -------------------------------------------------------------------------------------------

    def _open(self) -> None:
        _create(self.path)
        try:
            self._database = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._write_failed(error) from None
        try:
            self._configure()
            self._place = _place(self.path)
            self.found, self.doubt = _read(self._database, self._place)
            self._live = _live_session(self.path)
            if self.found is not None and self.doubt is None and self.found.session != self._live:
                self.doubt = PUT_BACK
            self.tidy()
        except sqlite3.Error as error:
            self._database.close()
            raise self._translated(error) from None
        except UnicodeError:  # sqlite3 cannot even say what is wrong with the schema
            self._database.close()
            raise _Damaged("its schema is not text") from None
        except BaseException:
            self._database.close()
            raise

    def _configure(self) -> None:
        for setting, value, told in _SETTINGS:
            got = self._database.execute(f"PRAGMA {setting} = {value}").fetchone()
            if told is not None and got != (told,):
                raise JournalUnusable(
                    f"{self.path}: SQLite refuses {setting} = {value}", hint="keep the journal on a local disk"
                )
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        (owner,) = self._database.execute("PRAGMA application_id").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if owner != APPLICATION_ID and (tables or version):
            raise JournalUnusable(f"{self.path}: a database of another program", hint="give another path")
        if version > len(MIGRATIONS):
            raise JournalUnusable(
                f"{self.path}: written by a newer version of onoff (schema {version})", hint="upgrade onoff"
            )
        for step in range(version, len(MIGRATIONS)):
            self._migrate(step)
        (verdict,) = self._database.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise _Damaged("its pages do not fit together")

    def _migrate(self, step: int) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        MIGRATIONS[step](self._database)
        self._database.execute(f"PRAGMA user_version = {step + 1}")
        self._database.execute("COMMIT")

    def _translated(self, error: sqlite3.Error) -> Exception:
        match _code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return JournalBusy(
                    f"{self.path}: in use by another client", hint="a journal has one writer; end the other, or wait"
                )
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_ERROR | sqlite3.SQLITE_MISMATCH:
                return _Damaged(str(error))
            case _:
                return self._write_failed(error)

    def _write_failed(self, error: sqlite3.Error | OSError) -> JournalWriteFailed:
        reason = error.strerror if isinstance(error, OSError) else error
        return JournalWriteFailed(
            f"{self.path}: {reason}; nothing was sent",
            hint="make room on the disk, or see to it that it can be written",
        )

    def _put_aside(self) -> None:
        try:
            os.replace(self.path, f"{self.path}.damaged")
            with suppress(FileNotFoundError):
                os.replace(f"{self.path}-wal", f"{self.path}.damaged-wal")
        except OSError as error:
            raise JournalWriteFailed(
                f"{self.path}: damaged, and cannot be put aside: {error.strerror}", hint="make its directory writable"
            ) from None


def remove(path: Path) -> list[Path]:
    """Delete a journal that nobody holds, and what was put aside of it; the files that were there."""
    if path.exists():
        with suppress(JournalWriteFailed):  # damage can look like a disk that may not be written
            Journal(path).close()
    names = (path.name + end for end in ("", "-wal", ".session", ".damaged", ".damaged-wal"))
    found = [file for file in map(path.with_name, names) if file.exists()]
    for file in found:
        file.unlink()
    return found


class _Damaged(Exception):
    """What is in the file cannot be believed."""


def _create(path: Path) -> None:
    """An empty file for its owner only, unless there is one; symbolic links and the like are refused."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise JournalUnusable(f"{path}: not an ordinary file", hint="give the path of a file")
        if stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise JournalWriteFailed(f"{path}: {error.strerror}", hint="choose a directory that can be written") from None


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
    """Make `session` the live one, durably. Cut short, it leaves none that any journal is in."""
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(f"{path}.session", flags, 0o600), "wb", buffering=0) as file:
        file.write(session)
        os.fsync(file.fileno())
    return session


# -- rows --------------------------------------------------------------------------------------------------


def _create_table(database: sqlite3.Connection) -> None:
    """0 to 1: the row of the last request. Only `wanted` is secret."""
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(
        "CREATE TABLE request (id INTEGER PRIMARY KEY CHECK (id = 1), server TEXT NOT NULL, chain TEXT NOT NULL, "
        "origin TEXT NOT NULL, session BLOB NOT NULL, step INTEGER NOT NULL, query BLOB NOT NULL, asked BLOB NOT NULL, "
        "wanted INTEGER NOT NULL, private INTEGER NOT NULL, note TEXT, pending INTEGER NOT NULL, "
        "checksum BLOB NOT NULL) STRICT"
    )


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create_table,)
"""Step i takes a journal of schema i to schema i + 1, in one transaction."""


def _values(record: Record) -> tuple[Any, ...]:
    values = (getattr(record, column) for column in _COLUMNS)
    return tuple(int(value) if isinstance(value, bool) else value for value in values)


def _checksum(values: tuple[Any, ...], place: bytes) -> bytes:
    """Over every column, as Python writes it in ASCII, and over the place: 16 bytes of each of two digests.

    The first does not depend on the place, so that a copy is told from damage.
    """
    content = ascii(values).encode()
    return hashlib.sha256(content).digest()[:16] + hashlib.sha256(place + content).digest()[:16]


def _read(database: sqlite3.Connection, place: bytes) -> tuple[Record | None, str | None]:
    """The record and None; or what there is, and why it must not be relied on."""
    rows = database.execute(f"SELECT {', '.join(_COLUMNS)}, checksum FROM request").fetchall()
    if not rows:
        return None, NEW
    *values, checksum = rows[0]
    expected = _checksum(tuple(values), place)
    if len(rows) > 1 or not isinstance(checksum, bytes) or checksum[:16] != expected[:16]:
        raise _Damaged("its checksum is wrong")
    named = dict(zip(_COLUMNS, values, strict=True))
    record = Record(**{**named, "private": bool(named["private"]), "pending": bool(named["pending"])})
    return record, None if checksum == expected else COPIED


def _code(error: sqlite3.Error) -> int:
    """The primary result code."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
