"""Counts of what the server did, summed over its workers, in Prometheus' text form.

Each worker adds to its own row of a table in shared memory, and any worker reports the sums. No count is kept by
source, session or client: the numbers say how much was asked, never what.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Any


class Count(IntEnum):
    """The columns of the table."""

    ANSWERED = 0
    ANSWERED_FRAMES = 1
    REFUSED = 2
    CONFLICTS = 3
    UNAVAILABLE = 4
    SHED = 5
    PUBLISHED = 6
    PUBLISH_REFUSED = 7
    FEED_POLLS = 8
    FEED_FAILURES = 9
    CUT_OFF = 10
    CHANGES = 11
    SUMS = 12
    FOLLOW_FAILURES = 13


_HELP = {
    Count.ANSWERED: ("onoff_queries_answered", "Queries answered"),
    Count.ANSWERED_FRAMES: ("onoff_frames_sent", "Frames sent in answers"),
    Count.REFUSED: ("onoff_queries_refused", "Queries refused for their form"),
    Count.CONFLICTS: ("onoff_queries_conflicting", "Queries refused for their epoch or step"),
    Count.UNAVAILABLE: ("onoff_store_failures", "Requests refused because the store did not answer"),
    Count.SHED: ("onoff_requests_shed", "Requests refused because of overload"),
    Count.PUBLISHED: ("onoff_messages_published", "Messages published"),
    Count.PUBLISH_REFUSED: ("onoff_publishes_refused", "Messages refused"),
    Count.FEED_POLLS: ("onoff_feed_polls", "Feeds polled"),
    Count.FEED_FAILURES: ("onoff_feed_failures", "Feeds that failed to answer or to parse"),
    Count.FOLLOW_FAILURES: ("onoff_follow_failures", "Times that the leader could not be followed"),
    Count.SUMS: ("onoff_sums_sent", "Sums sent to readers of several servers"),
    Count.CHANGES: ("onoff_changes_sent", "Replies to readers who asked what changed"),
    Count.CUT_OFF: ("onoff_answers_cut_off", "Answers cut off because nobody read them"),
}


_ANSWERED, _FRAMES = int(Count.ANSWERED), int(Count.ANSWERED_FRAMES)  # looking a member up takes longer than adding


def shared_table(context: SpawnContext, workers: int) -> ctypes.Array[ctypes.c_uint64]:
    """A row of zeros for each worker, in memory that `context` hands to its processes and that has no name to leave."""
    return context.RawArray(ctypes.c_uint64, len(Count) * workers)


class Metrics:
    """The row of one worker in a shared table; a table of its own without one."""

    def __init__(self, table: ctypes.Array[ctypes.c_uint64] | None = None, *, worker: int = 0) -> None:
        self._width = len(Count)
        self._cells = memoryview(table if table is not None else bytearray(8 * self._width)).cast("B").cast("Q")
        self._base = worker * self._width

    def add(self, count: Count, amount: int = 1) -> None:
        self._cells[self._base + count] += amount

    def add_answer(self, frames: int) -> None:
        """Count an answer of `frames` frames; called for every query."""
        self._cells[self._base + _ANSWERED] += 1
        self._cells[self._base + _FRAMES] += frames

    def total(self, count: Count) -> int:
        return sum(self._cells[count :: self._width])

    def collect(self) -> Iterator[Any]:
        """The interface that prometheus_client asks of a collector."""
        from prometheus_client.core import CounterMetricFamily

        for count, (name, text) in _HELP.items():
            yield CounterMetricFamily(name, text, value=self.total(count))

    def render(self) -> bytes:
        """All counts in the text form."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)
