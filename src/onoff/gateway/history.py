"""The entries of every source as they are shown: those of its latest message, and earlier ones that it no longer has.

A message is made into entries when its copy arrives, for every source alike, so that opening one takes no longer than
opening another, and nothing here depends on what is read. It is kept in memory only: a gateway makes the entries of all
copies when it starts. At most `MOST_OF_SOURCE` earlier entries of a source are kept, and `MOST_EARLIER_BYTES` of all.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from typing import Final

from onoff.client import Copy
from onoff.gateway.present import ReadableEntry, entries_of
from onoff.wire import WireMessage

MOST_OF_SOURCE: Final = 200
MOST_EARLIER_BYTES: Final = 16 * 1024 * 1024

Entries = tuple[ReadableEntry, ...]


class EntryStore:
    """Entries by source. Threads may share it; those who read wait until all that arrived together is ready."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, tuple[bytes, Entries]] = {}
        self._earlier: dict[str, Entries] = {}
        self._bytes: dict[str, int] = {}

    def arrived(self, messages: Iterable[tuple[str, WireMessage]]) -> None:
        """Make the entries of new copies, and keep those that were in the copy before and are not in the new one."""
        with self._lock:
            for source, message in messages:
                copy = Copy.of(source, message)
                before, digest = self._latest.get(source), _digest(copy)
                if before is None or before[0] != digest:
                    self._latest[source] = digest, entries_of(copy)
                    self._keep(source, () if before is None else before[1])

    def latest(self, message: Copy) -> Entries:
        """The entries of a message alone; made now if it is none of the copies that arrived, as while OFF."""
        with self._lock:
            digest, entries = self._latest.get(message.source, (b"", ()))
        return entries if digest == _digest(message) else entries_of(message)

    def with_earlier(self, message: Copy) -> Entries:
        """The entries of a message and earlier ones of its source, newest first."""
        with self._lock:
            older = (*self._latest.get(message.source, (b"", ()))[1], *self._earlier.get(message.source, ()))
        latest = self.latest(message)
        shown = {_key(entry) for entry in latest}
        return _newest_first([*latest, *_once(entry for entry in older if _key(entry) not in shown)])

    def _keep(self, source: str, dropped: Entries) -> None:
        now = {_key(entry) for entry in self._latest[source][1]}
        earlier = (entry for entry in (*dropped, *self._earlier.pop(source, ())) if _key(entry) not in now)
        kept = _newest_first(_once(earlier))[:MOST_OF_SOURCE]
        self._earlier[source] = kept  # those that changed last are at the end
        self._bytes[source] = sum(map(_size, kept))
        while sum(self._bytes.values()) > MOST_EARLIER_BYTES and len(self._earlier) > 1:
            oldest = next(iter(self._earlier))
            del self._earlier[oldest], self._bytes[oldest]


def _digest(message: Copy) -> bytes:
    """Of all that its entries depend on."""
    about = f"{message.version > 0} {message.published} {message.media_type}\n"
    return hashlib.sha256(about.encode() + message.payload).digest()


def _once(entries: Iterable[ReadableEntry]) -> Iterable[ReadableEntry]:
    """Each entry once, in its first version."""
    once: dict[tuple[str, ...], ReadableEntry] = {}
    for entry in entries:
        once.setdefault(_key(entry), entry)
    return once.values()


def _newest_first(entries: Iterable[ReadableEntry]) -> tuple[ReadableEntry, ...]:
    """Those without a time come last."""
    return tuple(sorted(entries, key=lambda entry: -(entry.time or 0)))


def _key(entry: ReadableEntry) -> tuple[str, ...]:
    """The identity of an entry: its link, or else its title and text."""
    return (entry.link,) if entry.link else (entry.title, entry.html or entry.text or "")


def _size(entry: ReadableEntry) -> int:
    return len(entry.title) + len(entry.link) + len(entry.html or entry.text or "")
