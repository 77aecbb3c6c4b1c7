"""The number of open connections, in all and from each address.

One peer must not lock the others out, so an address may hold a part of the connections only. An IPv6 address counts by
its /64, which is what one customer of a network has. Behind a reverse proxy all peers have the proxy's address: give
the server a larger limit there (`onoff serve --per-address`) and let the proxy limit its own peers.
"""

from __future__ import annotations

import ipaddress
from collections import Counter

MAX_CONNECTIONS = 4096  # open at once, in one process
MAX_PER_ADDRESS = 256  # of them from one address; half of what may be in work at once


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
