"""Background: a worker thread that can tell whether newer work is waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Background(Generic[_Item]):
    """Calls `work(item, latest)` for every item in order; `latest()` tells whether no newer item is waiting.

    The thread starts with the first item, ends with `close`, and never keeps the process alive.
    """

    def __init__(self, name: str, work: Callable[[_Item, Callable[[], bool]], None]) -> None:
        self._name = name
        self._work = work
        self._items: SimpleQueue[_Item | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, item: _Item) -> None:
        """Add an item to the queue."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._items.put(item)

    def close(self) -> None:
        """End the thread after the items that are waiting."""
        self._items.put(None)

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            self._work(item, self._items.empty)
