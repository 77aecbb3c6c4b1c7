"""Board: the revision number of what the page shows, and those who are notified when it changes."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Board:
    """Counts changes and notifies watchers. A change may come from any thread."""

    def __init__(self) -> None:
        self.revision = 0
        self._lock = threading.Lock()
        self._watchers: set[Callable[[], None]] = set()

    def changed(self) -> None:
        """Count a change and notify all watchers."""
        with self._lock:
            self.revision += 1
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher`, from any thread, after every change. Returns a function that ends that."""
        with self._lock:
            self._watchers.add(watcher)

        def stop() -> None:
            with self._lock:
                self._watchers.discard(watcher)

        return stop

    @property
    def watched(self) -> bool:
        """Whether there are watchers."""
        with self._lock:
            return bool(self._watchers)
