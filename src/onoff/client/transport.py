"""One exchange with the server: connect, send, read the whole answer, close.

There is nothing implicit: no redirect, retry, cookie, proxy, cache, decompression or keep-alive;
no header but those given, `host` and `content-length`; one deadline for all of it. Every exchange has a
connection of its own, so a late answer cannot be taken for another one, and ON and OFF look alike.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from contextlib import closing, suppress
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

import h11

from onoff.client.exchange import Failure, Reply, Request
from onoff.errors import InvalidInput

CHUNK: Final = 64 * 1024
TIMEOUT: Final = 30.0
"""Seconds that one exchange may take."""
PORTS: Final = {"http": 80, "https": 443}


class Http:
    """HTTP/1.1 to one address, over TLS where it begins with https."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self.scheme, self.host, self.port, self.prefix = _parts(url)
        self.timeout = timeout

    def exchange(self, request: Request) -> Reply | Failure:
        deadline = _Deadline(self.timeout)
        connected = False
        try:
            with closing(self._connect(deadline)) as connection:
                connected = True
                return self._converse(connection, request, deadline)
        except TimeoutError:
            return Failure(f"no whole answer within {self.timeout:g} s", left=connected)
        except (h11.ProtocolError, OSError) as error:
            return Failure(_reason(error), left=connected)

    def _connect(self, deadline: _Deadline) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), deadline.left())
        if self.scheme == "http":
            return plain
        try:
            plain.settimeout(deadline.left())
            return self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def _converse(self, connection: socket.socket, request: Request, deadline: _Deadline) -> Reply | Failure:
        protocol = h11.Connection(h11.CLIENT)
        connection.settimeout(deadline.left())
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have refused before it read all
            connection.sendall(self._encode(protocol, request))
        head: h11.InformationalResponse | h11.Response | None = None
        body = bytearray()
        while True:
            match protocol.next_event():
                case h11.NEED_DATA:
                    connection.settimeout(deadline.left())
                    protocol.receive_data(connection.recv(CHUNK))
                case h11.InformationalResponse() | h11.Response() as head:
                    pass
                case h11.Data() as data:
                    body += data.data
                    if len(body) > request.limit:
                        return Failure("the answer is too long")
                case h11.EndOfMessage() if head is not None:
                    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
                    return Reply(head.status_code, headers, bytes(body))
                case _:
                    return Failure("the answer broke off")

    def _encode(self, protocol: h11.Connection, request: Request) -> bytes:
        """The request as one piece: how it is cut into segments then depends on its length alone."""
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        name = f"[{self.host}]" if ":" in self.host else self.host
        length = [("content-length", str(len(request.body)))] if request.method in {"POST", "PUT"} else []
        headers = [("host", name + port), *request.headers, *length]
        head = protocol.send(h11.Request(method=request.method, target=self.prefix + request.path, headers=headers))
        body = protocol.send(h11.Data(data=request.body)) if request.body else b""
        return (head or b"") + (body or b"") + (protocol.send(h11.EndOfMessage()) or b"")

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class _Deadline:
    """The time at which an exchange is given up."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def check_url(url: str) -> str:
    """`url` itself, if it is the plain address of a server."""
    _parts(url)
    return url


def _parts(url: str) -> tuple[str, str, int, str]:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")  # as it will be to look it up
        port = PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError:
        host, port = "", 0
    if host and parts.scheme and parts.scheme not in PORTS:
        raise InvalidInput(
            f"an address that begins with {parts.scheme}:", hint="servers are reached by http:// or https://"
        )
    if not host or not port or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput("not the address of a server", hint="such as http://127.0.0.1:8470 or https://example.org")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidInput("an address with more than host, port and path", hint="leave out user, query and fragment")
    return parts.scheme, host, port, parts.path.rstrip("/")


def _reason(error: Exception) -> str:
    """What went wrong with the connection; independent of what was sent."""
    match error:
        case h11.ProtocolError():
            return "the answer broke off, or is not HTTP"
        case ssl.SSLError():
            return f"TLS failed: {getattr(error, 'reason', None) or 'no reason given'}"
        case socket.gaierror():
            return "the host name is unknown"
        case OSError(errno=int(code)) if code in errno.errorcode:
            return os.strerror(code).lower()
        case _:
            return "the connection failed"
