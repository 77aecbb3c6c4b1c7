"""TableBuilder: builds the table of the next query in advance, one at a time, and reports what it builds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from onoff.session.cache import TableCache
from onoff.session.memory import Memory


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """The table of the next query: "building" or "ready", for how many sources, and after how many seconds."""

    state: str
    sources: int
    seconds: float = 0.0


class TableBuilder:
    """Builds tables into a cache. A table depends on public state only, so how long it takes tells nothing."""

    def __init__(
        self, tables: TableCache | None, report: Callable[[BuildProgress], None] | None, clock: Callable[[], float]
    ) -> None:
        self.tables = tables
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()

    def ready(self, memory: Memory) -> bool:
        """Whether an OFF request in this state would need no building."""
        return memory.rows.distinct == 1 or self.tables is None or self.tables.has(memory)

    def build(self, memory: Memory) -> None:
        """Build the table of `memory` unless it is in the cache."""
        with self._lock:
            if self.tables is None or self.ready(memory):
                return
            started = self._clock()
            self._tell(BuildProgress("building", memory.rows.m))
            self.tables.of(memory)
            self._tell(BuildProgress("ready", memory.rows.m, self._clock() - started))

    def _tell(self, progress: BuildProgress) -> None:
        if self._report is not None:
            self._report(progress)
