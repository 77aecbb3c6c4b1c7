"""An SQLite file with one writer: readable by its owner only, locked while it is open, checked when it is opened.

open     made by another program       `errors.unusable`: nothing of it is changed, not even who may read it
         without our mark              `Damaged`, and not `ours`: nothing of it is changed either, whatever it is
         of a newer version            `errors.unusable`
         of an older version           migrated, one transaction per step
         pages that do not fit         `Damaged`; the owner of the file decides what becomes of it
lock     held until it is closed: a second opener gets `errors.busy`
write    WAL, synchronous=FULL: what is committed is on disk; secure_delete: what is replaced is gone
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from onoff.errors import OnOffError

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

    Parameters
    ----------
    path
        Where it is, or will be.
    application_id
        The number in its header that identifies the program.
    migrations
        Step i takes a file of schema i to schema i + 1, in one transaction.
    errors
        What to raise.
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

    def closing_on_error(self) -> _Closing:
        """While the file is being opened: close it on any error, and say what an error of SQLite means."""
        return _Closing(self)

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
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
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


class _Closing:
    """See `PrivateDatabase.closing_on_error`."""

    def __init__(self, database: PrivateDatabase) -> None:
        self._database = database

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self._database.close()
        if isinstance(error, sqlite3.Error):
            raise self._database.translate(error) from None
        if isinstance(error, UnicodeError):  # sqlite3 cannot decode its own error message
            raise Damaged("its schema is not text") from None


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
