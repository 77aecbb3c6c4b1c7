"""Listening sockets: opened before a service starts, so that a port in use is told at once, and not by a process of its
own. Server and gateway stand above it; it knows neither.
"""

from __future__ import annotations

import socket

from onoff.errors import InvalidInput, OnOffError

MOST_PORTS = 65536


def check_port(port: int) -> None:
    """Refuse what cannot be a port, before any work. 0 stands for a free one."""
    if not 0 <= port < MOST_PORTS:
        raise InvalidInput(f"{port} is not a port", hint="give --port a number up to 65535; 0 takes a free one")


def listen(host: str, port: int, *, backlog: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. backlog: connections that may wait to be accepted.

    >>> with listen("127.0.0.1", 0, backlog=1) as sock:
    ...     authority(sock).startswith("127.0.0.1:")
    True
    """
    check_port(port)
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise OnOffError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another --port, or 0; --host is an address of this machine",
        ) from None
    return sock


def authority(sock: socket.socket) -> str:
    """Where a socket listens, as it stands in an address after http:// and in the Host header."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
