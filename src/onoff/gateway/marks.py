"""Marks: which version of each source was opened last, so that the page can say what is new.

Kept in memory only: what was opened in private must not survive the gateway.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from onoff.client import SourceState


class Marks:
    """What was read. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, tuple[int, float]] = {}
        self.revision = 0

    def opened(self, name: str, version: int, when: float) -> None:
        """Note that a version of a source was opened, at a time in seconds since 1970."""
        with self._lock:
            known = self._read.get(name, (0, 0.0))[0]
            self._read[name] = (max(version, known), when)
            self.revision += 1

    def opened_all(self, states: Sequence[SourceState], when: float) -> None:
        """Mark all messages as read."""
        for state in states:
            self.opened(state.name, state.version, when)

    def listed(self, names: Sequence[str], states: Mapping[str, SourceState]) -> list[dict[str, Any]]:
        """Every source with what is known of it: version, time of publishing in milliseconds, whether it is new."""
        with self._lock:
            read = dict(self._read)
        listed = []
        for name in names:
            state, (version, when) = states.get(name), read.get(name, (0, 0.0))
            listed.append(
                {
                    "name": name,
                    "version": None if state is None else state.version,
                    "published": None if state is None or not state.version else round(1000 * state.published),
                    "new": state is not None and state.version > version,
                    "read": when or None,
                }
            )
        return listed
