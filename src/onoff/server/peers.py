"""The number of open connections, in all and from each address; and the answers that they have not read.

One peer must not lock the others out, so an address may hold a part of the connections only. An IPv6 address counts by
its /64, which is what one customer of a network has. Behind a reverse proxy all peers have the proxy's address: give
the server a larger limit there (`onoff serve --per-address`) and let the proxy limit its own peers.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Hashable
from typing import Protocol

MAX_CONNECTIONS = 4096  # open at once, in one process
MAX_PER_ADDRESS = 256  # of them from one address; half of what may be in work at once

MAX_UNREAD_BYTES = 256 * 1024 * 1024  # of answers that were made for one peer each


def network_of(host: str) -> str:
    """What counts as one peer: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class Peers:
    """The open connections of one process, counted by address."""

    def __init__(self, max_connections: int = MAX_CONNECTIONS, max_per_address: int = MAX_PER_ADDRESS) -> None:
        self.max_connections = max_connections
        self.max_per_address = max_per_address
        self._total = 0
        self.open: Counter[str] = Counter()  # by network

    def enter(self, network: str) -> bool:
        """Count a connection; False, and nothing counted, if there is no room for it."""
        if self._total >= self.max_connections or self.open[network] >= self.max_per_address:
            if not self.open[network]:
                del self.open[network]
            return False
        self._total += 1
        self.open[network] += 1
        return True

    def leave(self, network: str) -> None:
        """A connection that entered is closed."""
        self._total -= 1
        self.open[network] -= 1
        if not self.open[network]:
            del self.open[network]


class AnsweredPeer(Hashable, Protocol):
    """A connection that has been sent an answer."""

    def cut_off(self) -> None:
        """End it, and let go of what it has not read."""


class Unread:
    """Answers that were made for one peer each and wait to be read: at most `MAX_UNREAD_BYTES` in one process.

    Where there are more, whoever has not read for longest is cut off, so that those who do read are served.
    """

    def __init__(self) -> None:
        self._held: dict[AnsweredPeer, int] = {}  # the one that has waited longest is first
        self.total = 0

    def add(self, reader: AnsweredPeer, size: int) -> None:
        """A reader has so many bytes before it."""
        self.remove(reader)
        self._held[reader] = size
        self.total += size
        while self.total > MAX_UNREAD_BYTES and len(self._held) > 1:
            slowest = next(iter(self._held))
            self.remove(slowest)
            slowest.cut_off()

    def remove(self, reader: AnsweredPeer) -> None:
        """A reader has read on, or is gone."""
        self.total -= self._held.pop(reader, 0)
