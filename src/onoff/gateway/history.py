"""History: entries that were in an earlier message of a source and are not in its latest one.

It is updated for all sources when the mirror is refreshed, and does not depend on what is read. It is kept in memory
only, so it is empty after a start. At most `MOST_OF_SOURCE` entries are kept of a source, and `MOST_EARLIER_BYTES` of
all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from onoff.client import Copy
from onoff.gateway.present import ReadableEntry, entries_of
from onoff.wire import WireMessage

MOST_OF_SOURCE: Final = 200
MOST_EARLIER_BYTES: Final = 16 * 1024 * 1024


class EarlierEntries:
    """Earlier entries by source. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[ReadableEntry, ...]] = {}
        self._bytes: dict[str, int] = {}

    def replaced(self, source: str, old: WireMessage, new: WireMessage) -> None:
        """Keep the entries of `old` that are not in `new`.

        old, new: The message that was in the mirror, and the one that takes its place.
        """
        if old.body == new.body:
            return
        now = {_key(entry) for entry in entries_of(Copy.of(source, new))}
        dropped = [entry for entry in entries_of(Copy.of(source, old)) if _key(entry) not in now]
        with self._lock:
            earlier = (entry for entry in self._entries.get(source, ()) if _key(entry) not in now)
            kept = _newest_first(_once([*dropped, *earlier]))[:MOST_OF_SOURCE]
            self._entries.pop(source, None)  # those that changed last go to the end
            self._entries[source] = kept
            self._bytes[source] = sum(map(_size, kept))
            while sum(self._bytes.values()) > MOST_EARLIER_BYTES and len(self._entries) > 1:
                oldest = next(iter(self._entries))
                del self._entries[oldest], self._bytes[oldest]

    def with_earlier(self, message: Copy, before: Copy | None = None) -> tuple[ReadableEntry, ...]:
        """The entries of a message and earlier ones, newest first.

        before: One that is older, if there is one that was not replaced in the mirror.
        """
        with self._lock:
            earlier = self._entries.get(message.source, ())
        latest = entries_of(message)
        shown = {_key(entry) for entry in latest}
        older = [*(() if before is None else entries_of(before)), *earlier]
        return _newest_first([*latest, *_once(entry for entry in older if _key(entry) not in shown)])


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
