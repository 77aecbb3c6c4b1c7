"""Listening sockets: opened before a service starts, so that the command reports a port in use at once."""

from __future__ import annotations

import socket

from onoff.errors import InvalidInput, OnOffError

MOST_PORTS = 65536


def check_port(port: int) -> None:
    """Raise InvalidInput for a number that is no port. 0 means a free one."""
    if not 0 <= port < MOST_PORTS:
        raise InvalidInput(f"{port} is not a port", hint="give --port a number up to 65535; 0 takes a free one")


def listen(host: str, port: int, *, backlog: int, shared: bool = False) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    shared: Whether `listen_beside` may open more sockets on the same port; a port in use by another program is an
    error all the same.

    >>> with listen("127.0.0.1", 0, backlog=1) as sock:
    ...     authority(sock).startswith("127.0.0.1:")
    True
    """
    check_port(port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if shared and port:
            _bound(
                family, (host, port), shared=False
            ).close()  # a shared bind alone would join another process that shares it
        sock = _bound(family, (host, port), shared=shared)
    except OSError as error:
        raise OnOffError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another --port, or 0; --host is an address of this machine",
        ) from None
    sock.listen(backlog)
    return sock


def listen_beside(first: socket.socket, *, backlog: int) -> socket.socket:
    """Another listening socket on the address of `first`, which is shared: the kernel spreads connections over both."""
    sock = _bound(first.family, first.getsockname(), shared=True)
    sock.listen(backlog)
    return sock


def _bound(family: int, address: tuple[str, int], *, shared: bool) -> socket.socket:
    sock = socket.socket(family)
    try:
        # Windows would let a second program take the port by SO_REUSEADDR, and has an option against it.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def authority(sock: socket.socket) -> str:
    """Host and port of a listening socket, as in an address after http:// and in the Host header."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
