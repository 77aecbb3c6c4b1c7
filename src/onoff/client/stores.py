"""Where copies are kept: the latest message of every source on this machine, of a message server or of web sites.

They hold what came for everything and for sets, all of it, and no trace of what was read: reading causes no traffic.

    Mirror       of a message server, as of one edition of it
    CopiesFile   of web sites, with the validators of each, and when each host was asked
    Memory...    the same in memory, for clients that are used once, tests and audits

    file     SQLite, for its owner only, one writer (see `journal`)
    frame    of a mirror, as it travels: source, version, time, media type, body, checksum over these and the
             catalogue's epoch, so that a damaged row is found and can never be taken for a message of another source
    open     every frame of a mirror is checked, and that they are those of the edition; what is damaged is thrown away
             as a whole and fetched again, so that what is fetched never depends on what is read
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from onoff import wire
from onoff.client.journal import Damaged, FileErrors, Migration, PrivateDatabase
from onoff.errors import InvalidWire, MirrorBusy, MirrorEmpty, MirrorError, UnknownSource
from onoff.upstream import WebCopy
from onoff.upstream.message_server import Fetched
from onoff.upstream.transport import Origin
from onoff.wire import NOTHING, Catalogue, Edition, WireMessage

MIRROR_ID: Final = 0x6F6E6F6D  # "onom"
MIRROR_ERRORS: Final = FileErrors("mirror", MirrorBusy, MirrorError, MirrorError, "the mirror is as it was")
DAY: Final = 86400
DAYS_KEPT: Final = 31


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """What is known of a source without its body. `size`: bytes of the body; version 0: nothing published yet."""

    version: int = 0
    published: int = 0
    media_type: str = ""
    size: int = 0

    @classmethod
    def of(cls, message: WireMessage) -> MirrorEntry:
        return cls(message.version, message.published, message.media_type, len(message.body))


class MemoryMirror:
    """A mirror in memory. For clients that are used once, tests and audits.

    edition    what it holds; None before the first refresh
    refreshed  when it was brought up to date, in seconds since 1970
    """

    def __init__(self) -> None:
        self.catalogue: Catalogue | None = None
        self.edition: Edition | None = None
        self.refreshed: float | None = None
        self.entries: dict[str, MirrorEntry] = {}
        self._bodies: dict[str, WireMessage] = {}
        self._kept: dict[int, WireMessage] = {}
        self._kept_epoch: int | None = None
        self._traffic: dict[int, int] = {}
        self._uncounted: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(entry.size for entry in tuple(self.entries.values()))

    def apply(self, fetched: Fetched, when: float) -> None:
        """Take over the state of the server at `when`: completely, or not at all where it raises MirrorError."""
        with self._lock:
            self._traffic = _counted(self._traffic, fetched.received, when)
            self._write(fetched, when)
            if fetched.whole:
                self.entries = dict.fromkeys(fetched.catalogue.names, MirrorEntry())
            names = fetched.catalogue.names
            self.entries |= {names[source]: MirrorEntry.of(message) for source, message in fetched.messages}
            self.catalogue, self.edition, self.refreshed = fetched.catalogue, fetched.edition, when
            self._kept = {}

    def known(self, catalogue: Catalogue, sources: Sequence[int]) -> dict[int, WireMessage]:
        """The newest copies of sources of a catalogue; those without one are left out. Raises MirrorError."""
        with self._lock:
            kept = self._kept if self._kept_epoch == catalogue.epoch else {}
            found = {source: kept[source] for source in sources if source in kept}
            if self.edition is not None and self.edition.epoch == catalogue.epoch:
                found |= {source: self._read(catalogue.names[source]) for source in sources if source not in found}
            return found

    def keep(self, catalogue: Catalogue, messages: Mapping[int, WireMessage]) -> None:
        """Keep what came for a set until the next refresh: completely, or not at all where it raises MirrorError.

        The edition stays what it is: what is read from the mirror is all of one edition.
        """
        with self._lock:
            self._write_kept(catalogue, messages)
            if self._kept_epoch != catalogue.epoch:
                self._kept = {}
            self._kept_epoch = catalogue.epoch
            self._kept |= messages

    def message(self, name: str) -> tuple[WireMessage, int]:
        """The message of a source, and the number of the edition.

        Raises MirrorEmpty before the first refresh, UnknownSource, or MirrorError where it is damaged.
        """
        with self._lock:
            if self.edition is None:
                raise MirrorEmpty("nothing was fetched yet", hint="refresh first; `onoff mirror refresh` does")
            if name not in self.entries:
                raise UnknownSource("no such source", hint="`onoff catalogue` lists the names that the server has")
            return self._read(name), self.edition.number

    def count_traffic(self, received: int, when: float) -> None:
        """Add bytes of other answers to those received today."""
        with self._lock:
            self._traffic = _counted(self._traffic, received, when)
            self._uncounted = list(self._traffic.items())

    def used_today(self, when: float) -> int:
        """Bytes received since midnight UTC."""
        return self._traffic.get(int(when // DAY), 0)

    def close(self) -> None:
        """Close the file; a second call does nothing."""

    def _write(self, fetched: Fetched, when: float) -> None:
        if fetched.whole:
            self._bodies.clear()
        names = fetched.catalogue.names
        self._bodies |= {names[source]: message for source, message in fetched.messages}

    def _read(self, name: str) -> WireMessage:
        return self._bodies.get(name, NOTHING)

    def _write_kept(self, catalogue: Catalogue, messages: Mapping[int, WireMessage]) -> None:
        """Nothing to write in memory."""


class Mirror(MemoryMirror):
    """The mirror in the file `path`, locked until it is closed. Raises MirrorError where that fails.

    A damaged mirror is deleted, as all of it can be fetched again; with `repair=False` it is an error and stays as it
    is. A file without our mark may be a document whose path was given by mistake: always an error.
    """

    def __init__(self, path: str | Path, *, repair: bool = True) -> None:
        super().__init__()
        self.path = Path(path)
        _open_or_replace(self.path, MIRROR_ERRORS, self._open, repair=repair)

    def close(self) -> None:
        with self._lock:
            with suppress(sqlite3.Error):  # only a statistic: not worth an error
                self._database.connection.executemany("INSERT OR REPLACE INTO traffic VALUES (?, ?)", self._uncounted)
            self._uncounted = []
            self._database.close()

    def _open(self) -> None:
        self.catalogue = self.edition = self.refreshed = self._kept_epoch = None
        self.entries, self._kept = {}, {}
        self._database = PrivateDatabase(
            self.path, application_id=MIRROR_ID, migrations=MIRROR_MIGRATIONS, errors=MIRROR_ERRORS
        )
        with self._database.closing_on_error():
            connection = self._database.connection
            self._traffic = dict(connection.execute("SELECT day, bytes FROM traffic").fetchall())
            found = _read_state(connection)
            if found is not None:
                catalogue, edition, refreshed, content = found
                self.entries = dict(_checked_entries(connection, catalogue, content))
                self.catalogue, self.edition, self.refreshed = catalogue, edition, refreshed
            for epoch, source, frame in connection.execute("SELECT epoch, source, frame FROM kept"):
                self._kept[source], self._kept_epoch = _decode(source, frame, epoch), epoch
            self._database.checkpoint()

    def _write(self, fetched: Fetched, when: float) -> None:
        catalogue, edition = fetched.catalogue, fetched.edition
        with self._database.writing() as connection:
            if fetched.whole:
                connection.execute("DELETE FROM message")
            connection.executemany(
                "INSERT OR REPLACE INTO message (source, frame, checksum) VALUES (?, ?, ?)",
                (_row(source, message, catalogue) for source, message in fetched.messages),
            )
            content = _content(connection)
            values = (wire.encode_catalogue(catalogue), edition.life, edition.number, edition.digest, when, content)
            connection.execute(
                "INSERT OR REPLACE INTO state (id, catalogue, life, number, digest, refreshed, content, checksum) "
                "VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
                (*values, _checksum(values)),
            )
            connection.execute("DELETE FROM kept")
            connection.execute("DELETE FROM traffic")
            connection.executemany("INSERT INTO traffic VALUES (?, ?)", self._traffic.items())

    def _write_kept(self, catalogue: Catalogue, messages: Mapping[int, WireMessage]) -> None:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM kept WHERE epoch != ?", (catalogue.epoch,))
            connection.executemany(
                "INSERT OR REPLACE INTO kept (source, epoch, frame) VALUES (?, ?, ?)",
                ((s, catalogue.epoch, _row(s, message, catalogue)[1]) for s, message in messages.items()),
            )

    def _read(self, name: str) -> WireMessage:
        assert self.catalogue is not None
        source = self.catalogue.index[name]
        if not self.entries[name].version:
            return NOTHING
        try:
            row = self._database.connection.execute("SELECT frame FROM message WHERE source = ?", (source,)).fetchone()
            message = _decode(source, row[0] if row else b"", self.catalogue.epoch)
        except (sqlite3.Error, Damaged):
            message = None
        if message is None or MirrorEntry.of(message) != self.entries[name]:
            raise MirrorError(
                f"{self.path}: the mirror was damaged after it was opened", hint="open it again: all of it is fetched"
            )
        return message


def _open_or_replace(path: Path, errors: FileErrors, open_file: Callable[[], None], *, repair: bool) -> None:
    """Open a file, all of which can be fetched again: one that is damaged is deleted, or without `repair` an error."""
    try:
        open_file()
    except Damaged as damage:
        if not damage.ours:
            raise errors.foreign(path) from None
        if not repair:
            raise errors.unusable(
                f"{path}: the {errors.name} is damaged ({damage})", hint="the next refresh fetches all of it"
            ) from None
        delete_mirror(path)
        open_file()


def delete_mirror(path: Path) -> list[Path]:
    """Delete a mirror and its log; the files that were there. Raises MirrorError where that fails."""
    found = [file for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
    try:
        for file in found:
            file.unlink()
    except OSError as error:
        raise MirrorError(f"{path}: cannot be deleted: {error.strerror}", hint="make its directory writable") from None
    return found


def _counted(traffic: dict[int, int], received: int, when: float) -> dict[int, int]:
    day = int(when // DAY)
    kept = {d: total for d, total in traffic.items() if day - DAYS_KEPT < d <= day}
    return {**kept, day: kept.get(day, 0) + received}


# -- rows --------------------------------------------------------------------------------------------------


def _create_tables(database: sqlite3.Connection) -> None:
    """0 to 1."""
    database.execute(
        "CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), catalogue BLOB NOT NULL, life BLOB NOT NULL, "
        "number INTEGER NOT NULL, digest BLOB NOT NULL, refreshed REAL NOT NULL, content BLOB NOT NULL, "
        "checksum BLOB NOT NULL) STRICT"
    )
    database.execute(
        "CREATE TABLE message (source INTEGER PRIMARY KEY, frame BLOB NOT NULL, checksum BLOB NOT NULL) STRICT"
    )
    database.execute("CREATE TABLE traffic (day INTEGER PRIMARY KEY, bytes INTEGER NOT NULL) STRICT")


def _create_kept(database: sqlite3.Connection) -> None:
    """1 to 2: what came for sets since the last refresh."""
    database.execute(
        "CREATE TABLE kept (source INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, frame BLOB NOT NULL) STRICT"
    )


MIRROR_MIGRATIONS: tuple[Migration, ...] = (_create_tables, _create_kept)


def _row(source: int, message: WireMessage, catalogue: Catalogue) -> tuple[int, bytes, bytes]:
    frame = wire.encode_frame(source, message, epoch=catalogue.epoch, frame_size=None, limit=catalogue.limit)
    return source, frame, frame[-16:]


def _decode(source: int, frame: bytes, epoch: int) -> WireMessage:
    try:
        return wire.decode_frame(frame, source, epoch=epoch, frame_size=None)
    except InvalidWire as error:
        raise Damaged(error.message) from None


def _checksum(values: tuple[Any, ...]) -> bytes:
    return hashlib.sha256(ascii(values).encode()).digest()


def _content(connection: sqlite3.Connection) -> bytes:
    """A digest of which frames there are."""
    digest = hashlib.sha256()
    for source, checksum in connection.execute("SELECT source, checksum FROM message ORDER BY source"):
        digest.update(source.to_bytes(4) + checksum)
    return digest.digest()


def _read_state(connection: sqlite3.Connection) -> tuple[Catalogue, Edition, float, bytes] | None:
    rows = connection.execute(
        "SELECT catalogue, life, number, digest, refreshed, content, checksum FROM state"
    ).fetchall()
    if not rows:
        return None
    *values, checksum = rows[0]
    if _checksum(tuple(values)) != checksum:
        raise Damaged("its checksum is wrong")
    encoded, life, number, digest, refreshed, content = values
    try:
        catalogue = wire.decode_catalogue(encoded)
        return catalogue, Edition(catalogue.epoch, life, number, digest), refreshed, content
    except InvalidWire as error:
        raise Damaged(error.message) from None


def _checked_entries(
    connection: sqlite3.Connection, catalogue: Catalogue, content: bytes
) -> Iterator[tuple[str, MirrorEntry]]:
    """Every source and what is known of it; raises Damaged unless every frame is sound and none is missing."""
    if _content(connection) != content:
        raise Damaged("messages are missing, or are not those of its edition")
    yield from ((name, MirrorEntry()) for name in catalogue.names)
    for source, frame, checksum in connection.execute("SELECT source, frame, checksum FROM message"):
        if source >= catalogue.n or frame[-16:] != checksum:
            raise Damaged("a message is not the one of its edition")
        yield catalogue.names[source], MirrorEntry.of(_decode(source, frame, catalogue.epoch))


# --------------------------------------------------------------------------------------------------------------------
# Copies of what web sites gave: the latest message of every source with its validators, and when each host was asked.
#
# A read leaves no trace in them: what is kept is a function of the sets that were asked for and of the answers.


COPIES_ID: Final = 0x6F6E6F63  # "onoc"
COPIES_ERRORS: Final = FileErrors("file of copies", MirrorBusy, MirrorError, MirrorError, "the copies are as they were")


def as_message(copy: WebCopy) -> WireMessage:
    """A copy as a message; a site counts no versions, so there is only the one."""
    return WireMessage(1, round(copy.fetched * 1000), copy.media_type, copy.body)


class MemoryCopies:
    """Copies in memory. For clients that are used once, tests and audits.

    refreshed: when everything was asked for last, in seconds since 1970; None where it never was.
    entries: what is known of each source that has a copy, without its body.
    """

    def __init__(self) -> None:
        self.refreshed: float | None = None
        self.entries: dict[str, MirrorEntry] = {}
        self._copies: dict[str, WebCopy] = {}
        self._sent: list[tuple[Origin, float]] = []

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(entry.size for entry in tuple(self.entries.values()))

    def get(self, name: str) -> WebCopy | None:
        return self._copies.get(name)

    def keep(self, copies: Mapping[str, WebCopy]) -> None:
        self._copies.update(copies)
        self._note(copies)

    def _note(self, copies: Mapping[str, WebCopy]) -> None:
        self.entries |= {name: MirrorEntry.of(as_message(copy)) for name, copy in copies.items()}

    def sent(self, host: Origin, since: float) -> Sequence[float]:
        return sorted(at for where, at in self._sent if where == host and at >= since)

    def note_sent(self, requests: Sequence[tuple[Origin, float]]) -> None:
        self._sent += requests

    def note_refreshed(self, when: float) -> None:
        """Everything was asked for at this time."""
        self.refreshed = when

    def close(self) -> None:
        """Close the file; a second call does nothing."""


class CopiesFile(MemoryCopies):
    """Copies in the file `path`, for its owner only, locked until it is closed. Raises MirrorError where that fails.

    A damaged file is deleted, as all of it can be fetched again; with `repair=False` it is an error and stays as it is,
    and so is one damaged copy.
    """

    def __init__(self, path: str | PathLike[str], *, repair: bool = True) -> None:
        super().__init__()
        self.path = Path(path)
        self._lock = threading.Lock()
        _open_or_replace(self.path, COPIES_ERRORS, partial(self._open, check=not repair), repair=repair)

    def _open(self, *, check: bool) -> None:
        self._database = PrivateDatabase(
            self.path, application_id=COPIES_ID, migrations=COPIES_MIGRATIONS, errors=COPIES_ERRORS
        )
        with self._database.closing_on_error():
            row = self._database.connection.execute("SELECT at FROM refreshed").fetchone()
            self.refreshed = None if row is None else row[0]
            found = self._database.connection.execute("SELECT name, fetched, media_type, length(body) FROM copy")
            self.entries = {name: MirrorEntry(1, round(at * 1000), kind, size) for name, at, kind, size in found}
            every = f"SELECT name, {COPY_COLUMNS}, checksum FROM copy"
            for *values, checksum in self._database.connection.execute(every) if check else ():
                if _checksum(tuple(values)) != checksum:
                    raise Damaged("a copy does not match its checksum")
            self._database.checkpoint()

    def get(self, name: str) -> WebCopy | None:
        with self._lock:
            try:
                row = self._database.connection.execute(
                    f"SELECT {COPY_COLUMNS}, checksum FROM copy WHERE name = ?", (name,)
                ).fetchone()
            except sqlite3.Error as error:
                raise MirrorError(f"{self.path}: {error}", hint="delete the file: all of it is fetched again") from None
        if row is None or _checksum((name, *row[:-1])) != row[-1]:
            return None  # a damaged copy is none
        return WebCopy(*row[:-1])

    def keep(self, copies: Mapping[str, WebCopy]) -> None:
        rows = []
        for name, copy in copies.items():
            values = name, *(getattr(copy, column) for column in COPY_COLUMNS.split(", "))
            rows.append((*values, _checksum(values)))
        marks = ", ".join("?" * len(rows[0])) if rows else ""
        statement = f"INSERT OR REPLACE INTO copy (name, {COPY_COLUMNS}, checksum) VALUES ({marks})"
        self._write([(statement, rows)] if rows else [])
        self._note(copies)

    def sent(self, host: Origin, since: float) -> Sequence[float]:
        with self._lock:
            found = self._database.connection.execute(
                "SELECT at FROM sent WHERE host = ? AND at >= ? ORDER BY at", (_host(host), since)
            ).fetchall()
        return [at for (at,) in found]

    def note_sent(self, requests: Sequence[tuple[Origin, float]]) -> None:
        self._write([("INSERT INTO sent VALUES (?, ?)", [(_host(host), at) for host, at in requests])])

    def note_refreshed(self, when: float) -> None:
        forgotten = "DELETE FROM sent WHERE at < ?", [(when - LONGEST_BUDGET,)]
        self._write([("INSERT OR REPLACE INTO refreshed VALUES (1, ?)", [(when,)]), forgotten])
        super().note_refreshed(when)

    def close(self) -> None:
        self._database.close()

    def _write(self, work: Sequence[tuple[str, Sequence[tuple[Any, ...]]]]) -> None:
        with self._lock, self._database.writing(LARGEST_LOG) as connection:
            for statement, rows in work:
                connection.executemany(statement, rows)


LARGEST_LOG: Final = 2**22
"""Bytes of the log of copies from which on it is folded into the file: to fold it waits for the disk, twice."""
COPY_COLUMNS: Final = "body, media_type, etag, modified, fetched, fresh_until, place"
LONGEST_BUDGET: Final = 366 * 86400.0
"""Seconds after which no budget asks for the time of a request any more."""


def _host(host: Origin) -> str:
    return f"{host.scheme}://{host.host}:{host.port}"


def _create_copies(database: sqlite3.Connection) -> None:
    """0 to 1."""
    database.execute(
        "CREATE TABLE copy (name TEXT PRIMARY KEY, body BLOB NOT NULL, media_type TEXT NOT NULL, etag TEXT, "
        "modified TEXT, fetched REAL NOT NULL, fresh_until REAL NOT NULL, place TEXT, checksum BLOB NOT NULL) STRICT"
    )
    database.execute("CREATE TABLE sent (host TEXT NOT NULL, at REAL NOT NULL) STRICT")
    database.execute("CREATE INDEX sent_at ON sent (host, at)")
    database.execute("CREATE TABLE refreshed (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL) STRICT")


COPIES_MIGRATIONS: tuple[Migration, ...] = (_create_copies,)
