"""DurableCore: a core and its journal, opened together and dropped together.

Marking a request as answered and truncating the journal's log need not hold up a request: they are deferred, and
flushed before the next request, by a thread in the background, or when the client is closed. After a failed write or
an interrupt the journal is dropped and opened again at the next request, as after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from onoff.client.core import Core
from onoff.client.journal import JournalStore
from onoff.errors import JournalBusy, JournalError, OnOffError


class DurableCore:
    """Not for several threads at once: its owner holds a lock."""

    def __init__(self, open_journal: Callable[[], JournalStore], new_core: Callable[[], Core]) -> None:
        self._open_journal = open_journal
        self._new_core = new_core
        self._opened: tuple[Core, JournalStore] | None = None
        self._deferred: Callable[[], None] | None = None
        self._process = os.getpid()
        self._closed = False

    def open(self) -> tuple[Core, JournalStore]:
        """The core and its journal, with nothing left to flush."""
        if self._closed:
            raise OnOffError("this client is closed", hint="make a new one")
        if os.getpid() != self._process:
            raise JournalBusy("this client belongs to the process that made it", hint="make a client after forking")
        self.flush()
        if self._opened is None:
            journal = self._open_journal()
            core = self._new_core()
            core.opened(journal.found, journal.doubt)
            self._opened = core, journal
        return self._opened

    def defer(self, work: Callable[[], None]) -> None:
        """Leave `work` to the next `flush`."""
        self._deferred = work

    def flush(self) -> None:
        """Do what was deferred. If a write fails, the journal is dropped, and opened again for the next request."""
        if self._deferred is None:
            return
        try:
            self._deferred()
            self._deferred = None
        except JournalError:
            self.drop()

    def drop(self) -> None:
        """Close the journal; the next `open` reads it again."""
        if self._opened is not None:
            self._opened[1].close()
        self._opened = self._deferred = None

    def close(self) -> bool:
        """Flush and close for good; False where it was closed before."""
        if self._closed:
            return False
        self._closed = True
        self.flush()
        self.drop()
        return True
