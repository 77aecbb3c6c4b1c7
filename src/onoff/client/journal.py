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
import logging
import os
import platform
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from onoff.client.core import Record
from onoff.errors import JournalBusy, JournalUnusable, JournalWriteFailed, OnOffError
from onoff.system.files import make_durable, open_private
from onoff.upstream import Doubt

# --------------------------------------------------------------------------------------------------------------------
# An SQLite file with one writer: readable by its owner only, locked while it is open, checked when it is opened.
#
# open     made by another program       `errors.unusable`: nothing of it is changed, not even who may read it
#          without our mark              `Damaged`, and not `ours`: nothing of it is changed either, whatever it is
#          of a newer version            `errors.unusable`
#          of an older version           migrated, one transaction per step
#          pages that do not fit         `Damaged`; the owner of the file decides what becomes of it
# lock     held until it is closed: a second opener gets `errors.busy`
# write    WAL, synchronous=FULL: what is committed is on disk; secure_delete: what is replaced is gone


log = logging.getLogger("onoff.client")

Migration = Callable[[sqlite3.Connection], None]

_LOCKING: Final = ("locking_mode", "EXCLUSIVE", "exclusive")
"""Before the first access: the lock is then kept, and no -shm is made."""
_SETTINGS: Final = (
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", None),
    ("secure_delete", "ON", 1),
    ("temp_store", "MEMORY", None),
    ("cell_size_check", "ON", None),
    ("wal_autocheckpoint", "0", 0),  # the owner of the file decides when
)
_MARK_AT: Final = 68
"""Where the header of an SQLite file has its application id."""


class FileErrors(NamedTuple):
    """What to raise, and what to call the file in messages."""

    name: str
    busy: type[OnOffError]
    unusable: type[OnOffError]
    write_failed: type[OnOffError]
    failed: str
    """What a failed write means, such as "nothing was sent"."""

    def foreign(self, path: Path) -> OnOffError:
        """The error to raise where a file may be a document of the user's, whose path was given by mistake."""
        return self.unusable(
            f"{path}: not a {self.name}, or its beginning is damaged; it was left as it is",
            hint="give another path, or look at the file and delete it yourself",
        )


class Damaged(Exception):
    """The content of the file is damaged; or, where it is not `ours`, it may be no file of onoff at all."""

    def __init__(self, reason: str, *, ours: bool = True) -> None:
        super().__init__(reason)
        self.ours = ours


class PrivateDatabase:
    """The SQLite file at `path`, locked until it is closed.

    application_id  the number in its header that identifies the program
    migrations      step i takes a file of schema i to schema i + 1, in one transaction
    errors          what to raise
    """

    def __init__(self, path: Path, *, application_id: int, migrations: Sequence[Migration], errors: FileErrors) -> None:
        self.path = path
        self._errors = errors
        self._application_id = application_id
        self._ours = False  # until its header says so
        self._create()
        try:
            self.connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self.write_failed(error) from None
        with self.closing_on_error():
            self._configure(application_id, migrations)

    @contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """While the file is being opened: close it on any error, and say what an error of SQLite means."""
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise self.translate(error) from None
            if isinstance(error, UnicodeError):  # sqlite3 cannot decode its own error message
                raise Damaged("its schema is not text") from None
            raise

    @contextmanager
    def writing(self, largest_log: int = 0) -> Iterator[sqlite3.Connection]:
        """A block that writes, all or nothing; a longer log is then folded in. Raises what a failed write means."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise self.write_failed(error) from None
        with suppress(OnOffError, OSError):  # what is in the log counts
            if self.path.with_name(self.path.name + "-wal").stat().st_size > largest_log:
                self.checkpoint()

    def checkpoint(self) -> None:
        """Fold the log into the file and empty it."""
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise self.write_failed(error) from None

    def close(self) -> None:
        self.connection.close()

    def write_failed(self, error: sqlite3.Error | OSError) -> OnOffError:
        """The error to raise where the disk is full or gives errors."""
        reason = error.strerror if isinstance(error, OSError) else error
        return self._errors.write_failed(
            f"{self.path}: {reason}; {self._errors.failed}",
            hint="make room on the disk, or see to it that it can be written",
        )

    def _create(self) -> None:
        """An empty file for its owner only, unless there is one; symbolic links and the like are refused."""
        path = self.path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(open_private(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))
            if not stat.S_ISREG(path.lstat().st_mode):
                raise self._errors.unusable(f"{path}: not an ordinary file", hint="give the path of a file")
        except OSError as error:
            raise self._errors.write_failed(
                f"{path}: {error.strerror}", hint="choose a directory that can be written"
            ) from None

    def _configure(self, application_id: int, migrations: Sequence[Migration]) -> None:
        self._set(*_LOCKING)
        version = self._value("PRAGMA user_version")
        self._ours = self._value("PRAGMA application_id") == application_id
        if not self._ours and (version or self._value("SELECT count(*) FROM sqlite_schema")):
            raise self._errors.unusable(f"{self.path}: a database of another program", hint="give another path")
        self._ours = True  # or empty
        self._close_to_others()
        for setting in _SETTINGS:
            self._set(*setting)
        if version > len(migrations):
            raise self._errors.unusable(
                f"{self.path}: written by a newer version of onoff (schema {version})", hint="upgrade onoff"
            )
        for step in range(version, len(migrations)):
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute(f"PRAGMA application_id = {application_id}")
            migrations[step](self.connection)
            self.connection.execute(f"PRAGMA user_version = {step + 1}")
            self.connection.execute("COMMIT")
        if self._value("PRAGMA integrity_check(1)") != "ok":
            raise Damaged("its pages do not fit together")

    def _close_to_others(self) -> None:
        try:
            if stat.S_IMODE(self.path.stat().st_mode) & 0o077:
                self.path.chmod(0o600)
        except OSError as error:
            raise self.write_failed(error) from None

    def _set(self, setting: str, value: str, told: str | int | None) -> None:
        got = self._value(f"PRAGMA {setting} = {value}")
        if told is not None and got != told:
            raise self._errors.unusable(
                f"{self.path}: SQLite refuses {setting} = {value}",
                hint=f"keep the {self._errors.name} on a local disk",
            )

    def _value(self, statement: str) -> Any:
        row = self.connection.execute(statement).fetchone()
        return None if row is None else row[0]

    def translate(self, error: sqlite3.Error) -> Exception:
        """What an error of SQLite at opening means."""
        match int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return self._errors.busy(
                    f"{self.path}: in use by another client",
                    hint=f"a {self._errors.name} has one writer; end the other, or wait",
                )
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_ERROR | sqlite3.SQLITE_MISMATCH:
                return Damaged(str(error), ours=self._ours or _has_mark(self.path, self._application_id))
            case _:
                return self.write_failed(error)


def _has_mark(path: Path, application_id: int) -> bool:
    """Whether the header names our program, in a file too damaged for SQLite to tell.

    Never of a file that SQLite may have open in this process: to close it here would end the locks there.
    """
    with suppress(OSError), open(path, "rb") as file:
        return file.read(_MARK_AT + 4)[_MARK_AT:] == application_id.to_bytes(4)
    return False


def put_aside(path: Path, errors: FileErrors) -> None:
    """Rename a damaged file of ours, and its log, to NAME.damaged, and say so."""
    try:
        os.replace(path, f"{path}.damaged")
        with suppress(FileNotFoundError):
            os.replace(f"{path}-wal", f"{path}.damaged-wal")
    except OSError as error:
        raise errors.write_failed(
            f"{path}: damaged, and cannot be put aside: {error.strerror}", hint="make its directory writable"
        ) from None
    log.warning("%s: the %s was damaged; it is now %s.damaged, and a new one was begun", path, errors.name, path)


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
    """Delete a journal that is not open, its damaged copies, and what was remembered beside it.

    Returns the files that were there. Raises JournalUnusable where the file may be no journal; nothing is deleted then.
    """
    if path.exists():
        try:
            _open_database(path).close()
        except Damaged as damage:
            if not damage.ours:
                raise JOURNAL_ERRORS.foreign(path) from None
        except JournalWriteFailed:
            pass  # a damaged file can look like one that may not be written
    names = (
        path.name + end
        for end in ("", "-wal", ".session", ".damaged", ".damaged-wal", ".open.json", ".open.jsonl", ".read.json")
    )
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
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
    with open(open_private(f"{path}.session", flags, follow=False), "wb", buffering=0) as file:
        file.write(session)
        make_durable(file.fileno())
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


def _add_history(database: sqlite3.Connection) -> None:
    """4 to 5: what was openly asked."""
    database.execute("ALTER TABLE request ADD COLUMN history TEXT NOT NULL DEFAULT ''")


JOURNAL_MIGRATIONS: tuple[Migration, ...] = (_create_table, _add_memory, _add_mirror, _add_others, _add_history)
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
