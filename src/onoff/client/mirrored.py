"""MirrorClient: keeps a mirror of one server up to date, and reads it. No model, no session, no journal.

Used alone it is always private: the server learns when it refreshes and nothing else. `Client` has one
for its private requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from onoff.client.driver import Attempt, Driver, TickClock
from onoff.client.exchange import Transport
from onoff.client.message import Copy
from onoff.client.mirror import MemoryMirror, Mirror, MirrorEntry
from onoff.client.refreshing import fetch_changes, fetch_edition
from onoff.client.retrying import ATTEMPTS, BACKOFF, Retries
from onoff.client.transport import TIMEOUT, Http, check_url
from onoff.errors import MirrorError
from onoff.wire import Edition, EditionReport, WireMessage

CopyKind = TypeVar("CopyKind", bound=Copy)


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a refresh did.

    edition   the number of the edition reached
    changed   the names of the sources that changed, in the order of the catalogue
    received  bytes of replies, as they came over the line
    seconds   how long it took
    """

    edition: int
    changed: tuple[str, ...]
    received: int
    seconds: float


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

    @property
    def age(self) -> float | None:
        """Seconds since the last refresh; None where there was none, or where the clock was set back."""
        refreshed = self.mirror.refreshed
        age = None if refreshed is None else self._now() - refreshed
        return age if age is not None and age >= 0 else None

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
