"""Ports that nobody else can take between the moment they are chosen and the moment they are used."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that is ours while the block runs, for a program that has to be told its port.

    A socket that is bound but does not listen holds it: the system gives it to nobody else, a connection to it is
    refused, and a server that sets SO_REUSEADDR, as ours do, may still listen there.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
