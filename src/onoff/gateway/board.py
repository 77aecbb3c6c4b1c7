"""Board: the revision number of what the page shows, and those who are notified when it changes."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable

from onoff.errors import OnOffError

log = logging.getLogger("onoff.gateway")


class Board:
    """Counts changes and notifies watchers. A change may come from any thread."""

    def __init__(self) -> None:
        self.revision = 0
        self.fault: str | None = None
        """The last bug that a thread of the gateway ran into and survived."""
        self._lock = threading.Lock()
        self._watchers: set[Callable[[], None]] = set()

    def changed(self) -> None:
        """Count a change and notify all watchers."""
        with self._lock:
            self.revision += 1
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    def bug(self, error: Exception) -> OnOffError:
        """Log and show an exception that nobody expected; the thread that met it goes on.

        The log gets the place and not the text, which may hold what was wanted. Returns an error for the caller.
        """
        place = traceback.extract_tb(error.__traceback__)[-1:]
        at = f" at {place[0].filename}:{place[0].lineno}" if place else ""
        log.error("%s in the gateway%s", type(error).__name__, at)
        self.fault = f"{type(error).__name__} in the gateway"
        self.changed()
        return OnOffError(self.fault, hint="this is a bug; its place is in the gateway's log")

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
