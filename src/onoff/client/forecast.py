"""What requests will cost in bytes, before they are made. Everything here is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onoff import wire
from onoff.client.copies import MirrorClient
from onoff.client.stores import MemoryMirror
from onoff.session import Session
from onoff.tables.table import QuerySource, QueryTable
from onoff.wire import FRAME_OVERHEAD


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected bytes, uncompressed; None where nothing is known yet of how long messages are.

    What has not changed is not sent again, so both kinds of requests depend on the age of the mirror.

    hour_on      an hour of ON with a refresh at its end, at the present rate of publishing
    refresh_now  a refresh of the mirror now
    private_now  a private request now: such a refresh, or with several servers their sums
    open_now     an open request now
    everything   all messages once
    used_today   received since midnight UTC
    """

    hour_on: float
    refresh_now: float | None
    private_now: float | None
    open_now: float | None
    everything: float | None
    used_today: int


def forecast(mirror: MirrorClient, session: Session | None, names: Sequence[str], servers: int = 1) -> Forecast:
    """What requests will cost. Asks the server how much changes in an hour.

    session: Its present state; None: in doubt, so that an open request asks for everything.
    servers: How many are asked; with several, a private request is one for everything that they sum up.
    """
    newest = mirror.newest()
    per_hour = newest.changed_per_hour
    sizes = frame_sizes(mirror.mirror, names)
    everything = None if sizes is None else sum(sizes)
    open_now = everything if session is None or sizes is None else expected_bytes(session, sizes)
    age = mirror.age
    refresh = everything if age is None or everything is None else min(per_hour * age / 3600, everything)
    if open_now is not None and refresh is not None and everything and not _padded(mirror.mirror):
        open_now *= refresh / everything  # of a set as much has changed as of everything
    if servers == 1:
        return Forecast(per_hour, refresh, refresh, open_now, everything, mirror.used_today)
    private = sum_bytes(cost_of_set(len(names), servers), newest.longest, servers)
    hidden = None if session is None else expected_messages(session, servers, private=False)
    opened = private if hidden is None else sum_bytes(hidden, newest.longest, servers)
    return Forecast(per_hour, refresh, private, opened, everything, mirror.used_today)


def _padded(mirror: MemoryMirror) -> bool:
    """Whether frames are padded: then all of a set come, known or not."""
    return mirror.catalogue is not None and mirror.catalogue.frame_size is not None


def sum_bytes(messages: float, longest: int, servers: int) -> float:
    """The bytes of answers of several servers that come to so many messages."""
    return messages * (servers - 1) * wire.chunk_length(longest, servers)


def frame_sizes(mirror: MemoryMirror, names: Sequence[str]) -> list[int] | None:
    """Bytes of each source's frame in an answer; None where the mirror does not know them."""
    catalogue = mirror.catalogue
    if catalogue is None:
        return None
    padded = catalogue.frame_size
    if padded is not None:
        return [padded] * len(names)
    return [FRAME_OVERHEAD + mirror.entries[name].size for name in names if name in mirror.entries]


def expected_bytes(session: Session, sizes: Sequence[int]) -> float:
    """The expected bytes of the answer to an open request in this state.

    Exact where queries come from a table: the sum over its queries of their probability times their bytes.
    """
    if session.memory.blind:
        return float(sum(sizes))
    if session.memory.rows.distinct == 1:
        return float(np.mean(sizes))
    return table_bytes(session.tables.of(session.memory), sizes)


def cost_of_set(size: int, servers: int) -> float:
    """The expected messages that are downloaded for one source of a set: all of them, or a few from several servers."""
    return float(size) if servers == 1 else float(wire.expected_cost(size, servers))


def expected_messages(session: Session, servers: int, *, private: bool) -> float:
    """The expected messages that the next request downloads."""
    if servers == 1:
        return session.expected_cost(private=private)
    if private or session.memory.blind:
        return cost_of_set(round(session.expected_cost(private=private)), servers)
    if session.memory.rows.distinct == 1:
        return 1.0
    return table_messages(session.tables.of(session.memory), servers)


def table_messages(table: QuerySource, servers: int) -> float:
    """The expected messages that a query of this table downloads from several servers."""
    if not isinstance(table, QueryTable):
        return cost_of_set(round(table.cost), servers)
    sizes = np.diff(table.offsets)
    costs = {int(size): cost_of_set(int(size), servers) for size in np.unique(sizes)}
    return float(np.array([costs[int(size)] for size in sizes]) @ table.mean_masses)


def table_bytes(table: QuerySource, sizes: Sequence[int]) -> float:
    """The expected bytes of the answer to a query of this table."""
    if not isinstance(table, QueryTable):
        return table.cost * float(np.mean(sizes))
    each = np.asarray(sizes, dtype=float)
    return float(np.add.reduceat(each[table.items], table.offsets[:-1]) @ table.mean_masses)
