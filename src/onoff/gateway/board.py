"""Board: a number that grows with every change of what the page shows, and its subscribers."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Board:
    """Counts changes and tells watchers, from whatever thread a change comes."""

    def __init__(self) -> None:
        self.revision = 0
        self._lock = threading.Lock()
        self._watchers: set[Callable[[], None]] = set()

    def changed(self) -> None:
        """Count a change and tell everybody who watches."""
        with self._lock:
            self.revision += 1
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Have `watcher` called, from any thread, after every change; call what is returned to end that."""
        with self._lock:
            self._watchers.add(watcher)

        def stop() -> None:
            with self._lock:
                self._watchers.discard(watcher)

        return stop

    @property
    def watched(self) -> bool:
        """Whether anybody watches."""
        with self._lock:
            return bool(self._watchers)
