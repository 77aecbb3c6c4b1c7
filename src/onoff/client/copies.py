"""The mirror: the latest message of every source on this machine, as of one edition of the server.

Reading it causes no traffic. It holds what the server shows to everyone and no trace of what was read: only refreshes
and answers to sets write, and of a set all that came.

    file     SQLite, for its owner only, one writer (see `database`); one row of state, one frame per source, and the
             frames that came for sets since the last refresh
    frame    as it travels: source, version, time, media type, body, checksum over these and the catalogue's epoch, so
             that a damaged row is found and can never be taken for a message of another source
    open     every frame is checked, and that they are those of the edition; a mirror with any damage is thrown away
             as a whole and fetched again, so that what is fetched never depends on what is read
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from onoff import wire
from onoff.client.journal import Damaged, FileErrors, Migration, PrivateDatabase
from onoff.client.message import Copy
from onoff.client.runner import Attempt, Driver, TickClock
from onoff.errors import InvalidWire, MirrorBusy, MirrorEmpty, MirrorError, UnknownSource
from onoff.upstream import AnsweredSet, Doubt, MemberOutcome, Outgoing, WebCopy
from onoff.upstream.message_server import Fetched, fetch_changes, fetch_edition, require_sources
from onoff.upstream.steps import ATTEMPTS, BACKOFF, Retries, Steps
from onoff.upstream.transport import TIMEOUT, Http, Origin, Transport, check_url
from onoff.upstream.web import FetchedSet, Web
from onoff.wire import NOTHING, Catalogue, Edition, EditionReport, WireMessage

log = logging.getLogger("onoff.client")

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
    def of(cls, message: wire.WireMessage) -> MirrorEntry:
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
        self._bodies: dict[str, wire.WireMessage] = {}
        self._kept: dict[int, wire.WireMessage] = {}
        self._kept_epoch: int | None = None
        self._traffic: dict[int, int] = {}
        self._uncounted: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(entry.size for entry in self.entries.values())

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

    def known(self, catalogue: Catalogue, sources: Sequence[int]) -> dict[int, wire.WireMessage]:
        """The newest copies of sources of a catalogue; those without one are left out. Raises MirrorError."""
        with self._lock:
            kept = self._kept if self._kept_epoch == catalogue.epoch else {}
            found = {source: kept[source] for source in sources if source in kept}
            if self.edition is not None and self.edition.epoch == catalogue.epoch:
                found |= {source: self._read(catalogue.names[source]) for source in sources if source not in found}
            return found

    def keep(self, catalogue: Catalogue, messages: Mapping[int, wire.WireMessage]) -> None:
        """Keep what came for a set until the next refresh: completely, or not at all where it raises MirrorError.

        The edition stays what it is: what is read from the mirror is all of one edition.
        """
        with self._lock:
            self._write_kept(catalogue, messages)
            if self._kept_epoch != catalogue.epoch:
                self._kept = {}
            self._kept_epoch = catalogue.epoch
            self._kept |= messages

    def message(self, name: str) -> tuple[wire.WireMessage, int]:
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

    def _read(self, name: str) -> wire.WireMessage:
        return self._bodies.get(name, NOTHING)

    def _write_kept(self, catalogue: Catalogue, messages: Mapping[int, wire.WireMessage]) -> None:
        """Nothing to write in memory."""


class Mirror(MemoryMirror):
    """The mirror in the file `path`, locked until it is closed. Raises MirrorError where that fails.

    A damaged mirror is deleted, as all of it can be fetched again; with `repair=False` it is an error and stays as it
    is. A file without our mark may be a document whose path was given by mistake: always an error.
    """

    def __init__(self, path: str | Path, *, repair: bool = True) -> None:
        super().__init__()
        self.path = Path(path)
        try:
            self._open()
        except Damaged as damage:
            if not damage.ours:
                raise MIRROR_ERRORS.foreign(self.path) from None
            if not repair:
                raise MirrorError(
                    f"{self.path}: the mirror is damaged ({damage})", hint="the next refresh fetches all of it"
                ) from None
            delete_mirror(self.path)
            self._open()

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
        with self._writing() as connection:
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

    def _write_kept(self, catalogue: Catalogue, messages: Mapping[int, wire.WireMessage]) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM kept WHERE epoch != ?", (catalogue.epoch,))
            connection.executemany(
                "INSERT OR REPLACE INTO kept (source, epoch, frame) VALUES (?, ?, ?)",
                ((s, catalogue.epoch, _row(s, message, catalogue)[1]) for s, message in messages.items()),
            )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A block that writes, all or nothing. Raises MirrorError."""
        connection = self._database.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise self._database.write_failed(error) from None
        with suppress(MirrorError):  # what is in the log counts
            self._database.checkpoint()

    def _read(self, name: str) -> wire.WireMessage:
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


def _row(source: int, message: wire.WireMessage, catalogue: Catalogue) -> tuple[int, bytes, bytes]:
    frame = wire.encode_frame(source, message, epoch=catalogue.epoch, frame_size=None, limit=catalogue.limit)
    return source, frame, frame[-16:]


def _decode(source: int, frame: bytes, epoch: int) -> wire.WireMessage:
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
# MirrorClient: keeps a mirror of one server up to date, and reads it. No model, no session, no journal.
#
# Used alone it is always private: the server learns when it refreshes and nothing else. `Client` has one
# for its private requests.


CopyKind = TypeVar("CopyKind", bound=Copy)


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a refresh did.

    edition   the number of the edition reached; 0 where a site has none
    changed   the names of the sources that changed, in the order of the catalogue
    received  bytes of replies, as they came over the line
    seconds   how long it took
    requests  how many requests it took
    outcomes  of a site: what became of each source
    """

    edition: int
    changed: tuple[str, ...]
    received: int
    seconds: float
    requests: int = 1
    outcomes: Mapping[str, MemberOutcome] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class SourceState:
    """What the mirror knows of a source.

    version     0 where nothing was published yet
    published   seconds since 1970; 0 where nothing was
    size        bytes of the message
    age         seconds since it was published; None where nothing was
    """

    name: str
    version: int
    published: float
    media_type: str
    size: int
    age: float | None


class MirrorClient:
    """A mirror of the server at `url`. Threads may share it; refreshes queue, and reading never waits for them.

    Parameters
    ----------
    url
        The address of the server.
    mirror
        The path of the mirror's file, or a mirror; None: in memory. Opened when first used.
    attempts, backoff, timeout, waiting
        As for `Client`.
    transport, clock, now, sleep
        To be replaced in tests and audits: `clock` measures seconds, `now` gives seconds since 1970.
    """

    def __init__(
        self,
        url: str,
        mirror: str | PathLike[str] | MemoryMirror | None = None,
        *,
        attempts: int = ATTEMPTS,
        backoff: float = BACKOFF,
        timeout: float = TIMEOUT,
        waiting: Callable[[Attempt], None] | None = None,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = check_url(url).rstrip("/")
        self._retries = Retries(self.url, attempts, backoff)
        self._driver = Driver(
            [Http(url, timeout=timeout) if transport is None else transport], TickClock(clock, sleep, 0), waiting
        )
        self._where = MemoryMirror() if mirror is None else mirror
        self._opened: MemoryMirror | None = None
        self._closed = False
        self._clock, self._now = clock, now
        self.arrived: Callable[[list[tuple[str, WireMessage]]], None] | None = None
        """Called after a refresh with the sources that changed and their messages."""
        self._refreshing = threading.Lock()
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        return f"<MirrorClient: {len(self._opened.entries) if self._opened else 0} sources>"

    @property
    def mirror(self) -> MemoryMirror:
        """The mirror, opened if need be. Raises MirrorError, also once it is closed."""
        with self._opening:
            if self._closed:  # a thread that is still at work must not open, and lock, the file again
                raise MirrorError("this mirror is closed", hint="make a new client")
            if self._opened is None:
                where = self._where
                self._opened = where if isinstance(where, MemoryMirror) else Mirror(Path(where))
            return self._opened

    # -- with traffic --------------------------------------------------------------------------------------

    def refresh(self) -> Refresh:
        """Bring the mirror up to date: one request that does not depend on what is read.

        Raises ServerUnreachable, BadAnswer, NoChanges (a server of an older version) or MirrorError; the mirror is
        then as it was.
        """
        with self._refreshing:
            started = self._clock()
            mirror = self.mirror
            fetched = self._driver.run(fetch_changes(self._retries, mirror.catalogue, mirror.edition))
            try:
                mirror.apply(fetched, self._now())
            except MirrorError:
                self._drop()
                raise
            changed = [(fetched.catalogue.names[source], message) for source, message in fetched.messages]
            if self.arrived is not None:
                self.arrived(changed)
            names = tuple(name for name, _ in changed)
            return Refresh(fetched.edition.number, names, fetched.received, self._clock() - started)

    def known(self, catalogue: Catalogue, sources: Sequence[int]) -> Mapping[int, WireMessage]:
        """The newest copies of these; none where the mirror cannot be read: then all are asked for."""
        try:
            return self.mirror.known(catalogue, sources)
        except MirrorError as error:
            log.warning("copies cannot be used: %s", error)
            self._drop()
            return {}

    def keep(self, catalogue: Catalogue, messages: Mapping[int, WireMessage]) -> None:
        """Keep what came for a set, if that can be written: else it is asked for again."""
        try:
            self.mirror.keep(catalogue, messages)
        except MirrorError as error:
            log.warning("copies are not kept: %s", error)
            self._drop()

    def refresh_if_older(self, max_age: float) -> Refresh | None:
        """Refresh unless the mirror was refreshed less than `max_age` seconds ago; None where it was."""
        age = self.age
        return self.refresh() if age is None or age >= max_age else None

    def newest(self) -> EditionReport:
        """What the server tells of its newest edition. Raises what `refresh` raises."""
        return self._driver.run(fetch_edition(self._retries))

    def changed_per_hour(self) -> int:
        """Bytes of messages that change in an hour, as the server tells it. Raises what `refresh` raises."""
        return self.newest().changed_per_hour

    def get(self, source: str, *, max_age: float = 0.0) -> Copy:
        """The message of `source`, from a mirror that is at most `max_age` seconds old."""
        self.refresh_if_older(max_age)
        return self.copy(source)

    # -- without traffic -----------------------------------------------------------------------------------

    def require(self, names: tuple[str, ...]) -> None:
        """Raise CatalogueMismatch where the mirror was refreshed and does not have all of these."""
        if self.mirror.catalogue is not None:
            require_sources(names, self.mirror.catalogue)

    @property
    def age(self) -> float | None:
        """Seconds since the last refresh; None where there was none, or where the clock was set back."""
        refreshed = self.mirror.refreshed
        age = None if refreshed is None else self._now() - refreshed
        return age if age is not None and age >= 0 else None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The sources that it has; None before the first refresh."""
        catalogue = self.mirror.catalogue
        return None if catalogue is None else catalogue.names

    @property
    def number(self) -> int | None:
        """The number of its edition; None before the first refresh."""
        edition = self.mirror.edition
        return None if edition is None else edition.number

    @property
    def refreshed(self) -> float | None:
        """When it was refreshed last, in seconds since 1970."""
        return self.mirror.refreshed

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return self.mirror.size

    @property
    def stamp(self) -> str | None:
        """Another one whenever it holds something else."""
        edition = self.mirror.edition
        return None if edition is None else edition.digest.hex()[:12]

    def messages(self) -> Iterator[tuple[str, WireMessage]]:
        """Every message that can be read. No traffic."""
        mirror = self.mirror
        for name in tuple(mirror.entries):
            with suppress(MirrorError):  # one that is damaged does not touch the others
                yield name, mirror.message(name)[0]

    def copy(self, source: str) -> Copy:
        """The message of `source` as the mirror has it. No traffic.

        Raises MirrorEmpty before the first refresh, UnknownSource, or MirrorError where it cannot be read.
        """
        return self.copy_as(Copy, source)

    def copy_as(self, kind: type[CopyKind], source: str) -> CopyKind:
        """The message of `source` as this kind of copy, such as `Message`. Raises what `copy` raises."""
        message, edition = self.mirror.message(source)
        return kind.of(source, message, edition=edition, age=self.age or 0.0)

    def sources(self) -> tuple[SourceState, ...]:
        """What the mirror knows of every source, in the order of the catalogue. No traffic; empty before a refresh."""
        now = self._now()
        return tuple(_state(name, entry, now) for name, entry in self.mirror.entries.items())

    @property
    def used_today(self) -> int:
        """Bytes received since midnight UTC."""
        return self.mirror.used_today(self._now())

    def count_traffic(self, received: int) -> None:
        """Add bytes that were received by other requests to what was used today, if the mirror is open."""
        if self._opened is not None:
            self._opened.count_traffic(received, self._now())

    def close(self) -> None:
        """Close the mirror for good. A second call does nothing."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        """After a failed write the file is opened, and checked, again."""
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def __enter__(self) -> MirrorClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def fetch_edition_of(url: str, *, timeout: float = TIMEOUT) -> Edition:
    """The newest edition of a server. Raises what `MirrorClient.refresh` raises."""
    return Driver([Http(url, timeout=timeout)], TickClock(tick=0)).run(fetch_edition(Retries(url, 1))).edition


def _state(name: str, entry: MirrorEntry, now: float) -> SourceState:
    published = entry.published / 1000
    age = max(now - published, 0.0) if entry.version else None
    return SourceState(name, entry.version, published, entry.media_type, entry.size, age)


# --------------------------------------------------------------------------------------------------------------------
# Copies of what web sites gave: the latest message of every source with its validators, and when each host was asked.
#
# A read leaves no trace in them: what is kept is a function of the sets that were asked for and of the answers.


COPIES_ID: Final = 0x6F6E6F63  # "onoc"
COPIES_ERRORS: Final = FileErrors("file of copies", MirrorBusy, MirrorError, MirrorError, "the copies are as they were")


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

    def get(self, name: str) -> WebCopy | None:
        return self._copies.get(name)

    def keep(self, copies: Mapping[str, WebCopy]) -> None:
        self._copies.update(copies)
        self._note(copies)

    def _note(self, copies: Mapping[str, WebCopy]) -> None:
        self.entries |= {name: MirrorEntry.of(_as_message(copy)) for name, copy in copies.items()}

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
        try:
            self._open(check=not repair)
        except Damaged as damage:
            if not damage.ours:
                raise COPIES_ERRORS.foreign(self.path) from None
            if not repair:
                raise MirrorError(
                    f"{self.path}: the file of copies is damaged ({damage})", hint="the next refresh fetches all of it"
                ) from None
            delete_mirror(self.path)
            self._open(check=False)

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
        connection = self._database.connection
        with self._lock:
            try:
                connection.execute("BEGIN IMMEDIATE")
                for statement, rows in work:
                    connection.executemany(statement, rows)
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise self._database.write_failed(error) from None
            with suppress(MirrorError):  # what is in the log counts
                self._database.checkpoint()


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


class WebSources:
    """The sources of a `Web`, with their copies: what a client asks for sets, and reads while ON.

    Parameters
    ----------
    web
        The upstream.
    copies
        The path of the file of copies, or copies; None: in memory. Opened when first used.
    now, clock
        Seconds since 1970; seconds.
    """

    lines: Sequence[Transport] = ()

    def __init__(
        self,
        web: Web,
        copies: str | PathLike[str] | MemoryCopies | None = None,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.web, self.address = web, web.address
        self._where = MemoryCopies() if copies is None else copies
        self._opened: MemoryCopies | None = None
        self._closed = False
        self._now, self._clock = now, clock
        self._fetching = threading.Lock()
        self._fetched = 0
        self.outcomes: dict[str, MemberOutcome] = {}
        """What became of each source when it was asked for last, since the start."""
        self.noticed: Callable[[bool, Origin, int], None] | None = None
        """Called after each request: whether everything is asked for, its host, and the bytes that came back."""
        self.answered: Callable[[Mapping[str, MemberOutcome]], None] | None = None
        """Called after each set with what became of its members."""
        self.arrived: Callable[[list[tuple[str, WireMessage]]], None] | None = None
        """Called by the gateway alone, with the copies of an earlier run and after each set."""

    @property
    def copies(self) -> MemoryCopies:
        """The copies, opened if need be. Raises MirrorError, also once they are closed."""
        if self._closed:
            raise MirrorError("these copies are closed", hint="make a new client")
        if self._opened is None:
            where = self._where
            self._opened = where if isinstance(where, MemoryCopies) else CopiesFile(where)
        return self._opened

    # -- as an upstream ------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Nothing is known of a site but its copies."""

    def offers(self) -> Steps[tuple[str, ...]]:
        yield from ()  # there is nothing to ask
        return self.web.names

    def get_ready(self, names: tuple[str, ...]) -> Steps[bool]:
        yield from ()
        self.require(names)
        return False

    def require(self, names: tuple[str, ...]) -> None:
        """Raise CatalogueMismatch, which names them, unless the list has every source of the chain."""
        self.web.require(names)
        _ = self.copies  # opened, and locked, before anything is stored or sent

    def compare_steps(self, last: Outgoing) -> Steps[Doubt | None]:
        """A site counts no steps: it cannot tell an old journal from the last one."""
        yield from ()
        return None

    def encode(self, session: bytes, step: int, asked: tuple[str, ...]) -> bytes:
        return b""

    def first(self) -> tuple[str, ...]:
        return ()

    def check(self, last: Outgoing) -> Doubt | None:
        return None

    def fetch_set(self, outgoing: Outgoing) -> Steps[AnsweredSet]:
        """Every member of the set, conditionally; see `Web.fetch`, which has connections of its own."""
        yield from ()
        fetched = self._fetch(outgoing.asked, whole=False)
        found = {name: self.copies.get(name) for name in outgoing.asked}
        now = self._now()
        return AnsweredSet(
            {name: _as_message(copy) for name, copy in found.items() if copy is not None},
            fetched.received,
            fetched.requests,
            fetched.outcomes,
            {name: max(now - copy.fetched, 0.0) for name, copy in found.items() if copy is not None},
        )

    # -- everything ----------------------------------------------------------------------------------------

    def _fetch(self, asked: tuple[str, ...], *, whole: bool, patience: float | None = None) -> FetchedSet:
        """One set after the other, so that each plan knows all requests that the budget counts."""
        noticed = self.noticed
        with self._fetching:
            if noticed is not None:
                self.web.noticed = partial(noticed, whole)
            fetched = self.web.fetch(asked, self.copies, patience=patience)
            self._fetched += 1
            self.outcomes |= fetched.outcomes
        if self.answered is not None:
            self.answered(fetched.outcomes)
        return fetched

    def refresh(self, patience: float | None = None) -> Refresh:
        """Bring the copy of every source up to date. Raises OverBudget or MirrorError.

        patience: Seconds over which the budget may spread it; None: as the list says.
        """
        started, when, copies = self._clock(), self._now(), self.copies
        fetched = self._fetch(self.web.names, whole=True, patience=patience)
        copies.note_refreshed(when)
        changed = tuple(name for name, outcome in fetched.outcomes.items() if outcome.state == "new")
        seconds = self._clock() - started
        return Refresh(0, changed, fetched.received, seconds, fetched.requests, fetched.outcomes)

    def refresh_if_older(self, max_age: float) -> Refresh | None:
        """Refresh unless everything was asked for less than `max_age` seconds ago; None where it was."""
        age = self.age
        return self.refresh() if age is None or age >= max_age else None

    @property
    def age(self) -> float | None:
        """Seconds since everything was asked for; None where it never was, or where the clock was set back."""
        refreshed = self.copies.refreshed
        age = None if refreshed is None else self._now() - refreshed
        return age if age is not None and age >= 0 else None

    def copy(self, source: str) -> Copy:
        """The message of `source` as it is known. No traffic. Raises UnknownSource, MirrorEmpty or MirrorError."""
        copy = self.copy_as(Copy, source)
        if not copy.version:
            raise MirrorEmpty("nothing was fetched yet", hint="refresh first")
        return copy

    def copy_as(self, kind: type[CopyKind], source: str) -> CopyKind:
        """The message of `source` as this kind of copy; of version 0 where there is none."""
        if source not in self.web.names:
            raise UnknownSource("no such source", hint="the list of sources has their names")
        copy = self.copies.get(source)
        if copy is None:
            return kind.of(source, NOTHING)
        return kind.of(source, _as_message(copy), age=max(self._now() - copy.fetched, 0.0))

    def sources(self) -> tuple[SourceState, ...]:
        """What is known of every source, in the order of the list. No traffic."""
        now, entries = self._now(), self.copies.entries
        return tuple(_state(name, entries.get(name, MirrorEntry()), now) for name in self.web.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The sources of the list."""
        return self.web.names

    @property
    def number(self) -> int | None:
        """0 once everything was asked for: a site has no editions."""
        return None if self.copies.refreshed is None else 0

    @property
    def refreshed(self) -> float | None:
        """When everything was asked for last, in seconds since 1970."""
        return self.copies.refreshed

    @property
    def size(self) -> int:
        """Bytes of all copies."""
        return sum(entry.size for entry in tuple(self.copies.entries.values()))

    @property
    def stamp(self) -> str | None:
        """Another one whenever there are other copies."""
        return f"{self.copies.refreshed}-{self._fetched}"

    @property
    def used_today(self) -> int:
        """Bytes are not counted by the day."""
        return 0

    def messages(self) -> Iterator[tuple[str, WireMessage]]:
        """Every copy."""
        for name in self.web.names:
            if (copy := self.copies.get(name)) is not None:
                yield name, _as_message(copy)

    def budgets(self) -> list[dict[str, Any]]:
        """What the budget of each host leaves now: for each limit, how many requests may go out at once."""
        now, limits = self._now(), self.web.sources.budget.limits
        return [
            {
                "host": f"{host.scheme}://{host.host_header}",
                "limit": str(limit),
                "left": max(0, limit.count - len(self.copies.sent(host, now - limit.seconds))),
            }
            for host in sorted(self.web.sources.hosts, key=str)
            for limit in limits
        ]

    def outcome(self, source: str) -> MemberOutcome:
        """What became of a source when everything was asked for last."""
        copy, refreshed = self.copies.get(source), self.copies.refreshed or 0.0
        if copy is None:
            return MemberOutcome("failed", "the site has not given it yet")
        late = copy.fetched < refreshed and copy.fresh_until <= refreshed
        return MemberOutcome("failed", "the site did not give it when it was asked last") if late else FRESH

    def count_traffic(self, received: int) -> None:
        """Bytes are not counted by the day."""

    def close(self) -> None:
        """Close the copies for good, also those that were given. A second call does nothing."""
        self._closed = True
        given = self._where if isinstance(self._where, MemoryCopies) else self._opened
        if given is not None:
            given.close()
        self._opened = None


FRESH: Final = MemberOutcome("fresh")


def _as_message(copy: WebCopy) -> WireMessage:
    """A copy as a message; a site counts no versions, so there is only the one."""
    return WireMessage(1, round(copy.fetched * 1000), copy.media_type, copy.body)
