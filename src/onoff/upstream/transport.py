"""One exchange over HTTP/1.1: what is sent, what came back, and how it travels.

There is nothing implicit: no redirect, retry, cookie, cache, decompression or environment variable; no header but
those given, `host` and `content-length`; one deadline for all of an exchange, however slowly the other side drips. The
state machine is h11's, which does no I/O, so everything that leaves is written here.

    Http(url)         every exchange has a connection of its own: a late answer cannot be taken for another one
    Connection(...)   requests to one host, one after the other, on a connection that nothing else uses
    Retries           in which order the same bytes are sent again

What is asked of a server is a generator of steps, without any I/O: it yields a `Request` and is sent the Reply or
Failure that this led to, or `Wait`, and returns its result; a client adds commands of its own. Whoever runs the steps
has the sockets and the clock, so everything that decides what leaves can be driven by a test, event by event.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

import h11

from onoff.errors import BadAnswer, InvalidInput, InvalidWire, ServerUnreachable

log = logging.getLogger("onoff.client")

CHUNK: Final = 64 * 1024
TIMEOUT: Final = 30.0
"""Seconds that one exchange may take."""
PORTS: Final = {"http": 80, "https": 443}
LONGEST_HEAD: Final = 64 * 1024
"""Bytes of the head of an answer at most."""
ATTEMPTS: Final = 4
BACKOFF: Final = 0.2
TRY_LATER: Final = frozenset({408, 425, 429})
SMALL_ANSWER: Final = 64 * 1024
"""Refusals are at most this long."""
NOT_A_SERVER: Final = "is this a message server?"


@dataclass(frozen=True, slots=True)
class Request:
    """What to send, all of it, to which server of an upstream. At most `limit` bytes of body are read in return."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    limit: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer, of any status."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)

    def header(self, name: str) -> str | None:
        """The value of a header that came exactly once."""
        values = [value for key, value in self.headers if key == name]
        return values[0] if len(values) == 1 else None

    def has_type(self, media_type: str, *, encoded: bool = False) -> bool:
        """Whether the body is of this media type, and not encoded unless it may be."""
        plain = encoded or all(key != "content-encoding" for key, _ in self.headers)
        return plain and self.header("content-type") == media_type


@dataclass(frozen=True, slots=True)
class Failure:
    """No complete answer: no connection, a timeout, or cut off. `left`: whether the server may have got the request."""

    reason: str
    left: bool = True


class Transport(Protocol):
    """How requests reach a server. Gives a Failure, and never raises, where no whole answer came back."""

    def exchange(self, request: Request) -> Reply | Failure: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep."""

    seconds: float


Event = Reply | Failure | None
Result = TypeVar("Result")
Steps = Generator[object, Event, Result]
"""A request, or part of one: yields commands, is sent the event of each, returns its result."""


@dataclass(frozen=True)
class Retries:
    """How often a request is sent to one server.

    server    its address, for messages
    attempts  how often the same bytes are sent before the server is given up
    backoff   seconds before the second attempt; doubled before every further one
    place     which of the servers of its upstream it is
    """

    server: str
    attempts: int = ATTEMPTS
    backoff: float = BACKOFF
    place: int = 0

    def exchange(self, request: Request, check: Callable[[Reply], Result]) -> Steps[Result]:
        """The checked reply to a request, which is repeated as it is.

        `check` makes a result of a reply; it raises InvalidWire for a damaged one, which is asked for again, or
        anything else for one that is final. Raises ServerUnreachable where no attempt had an answer, BadAnswer where
        the last one was damaged.
        """
        request = replace(request, server=self.place)
        problem: ServerUnreachable | BadAnswer | None = None
        for attempt in range(self.attempts):
            if attempt:
                log.info("attempt %d failed", attempt)
                yield Wait(self.backoff * 2 ** (attempt - 1))
            event = yield request
            if not isinstance(event, Reply):
                reason = "nothing came back" if event is None else event.reason
                problem = ServerUnreachable(f"{self.server}: {reason}", hint="is the server running?")
            elif event.status >= 500 or event.status in TRY_LATER:
                problem = ServerUnreachable(f"{self.server}: HTTP {event.status}", hint="try again later")
            else:
                try:
                    return check(event)
                except InvalidWire as error:
                    problem = BadAnswer(f"{self.server}: {error.message}", hint="nothing of the answer was used")
        raise problem or ServerUnreachable(f"{self.server}: no attempt was allowed", hint="allow at least one")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a connection leads to: scheme, host and port."""

    scheme: str
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """As the `host` header says it: the port only where it is not the scheme's own."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == PORTS[self.scheme] else f"{name}:{self.port}"


class Deadline:
    """The time at which an exchange, or a whole set of them, is given up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left. Raises TimeoutError where none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Connection:
    """Requests to one origin, one after the other, on a connection of their own that is opened when it is needed.

    The connection is used again as long as the server keeps it open. Where the server closed it between two requests,
    which it may at any time, the request goes out once more on a new one: what is sent depends on the server alone.
    """

    def __init__(self, origin: Origin, *, proxy: str | None = None, address: str | None = None) -> None:
        self.origin, self.proxy = origin, None if proxy is None else check_proxy(proxy)
        self.address = address  # where it leads to, if not to what the name of the host is looked up to
        self.peer: str | None = None  # the address that it last led to; None before, and by a proxy
        self._socket: socket.socket | None = None
        self._protocol = _protocol()
        self.opened = 0

    def exchange(self, request: Request, deadline: Deadline) -> Reply | Failure:
        """The answer to a request; a Failure where none came whole before the deadline."""
        used = self._socket is not None
        answer = self._once(request, deadline)
        if used and isinstance(answer, _Closed):
            answer = self._once(request, deadline)
        return Failure(answer.reason, answer.left) if isinstance(answer, _Closed) else answer

    def close(self) -> None:
        """Close the connection. Another exchange opens a new one."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = None

    def _once(self, request: Request, deadline: Deadline) -> Reply | Failure | _Closed:
        connected = self._socket is not None
        try:
            if self._socket is None:
                self._socket, self._protocol = self._connect(deadline), _protocol()
                self.opened += 1
            connected = True
            answer = self._converse(self._socket, request, deadline)
        except TimeoutError:
            answer = Failure(f"no whole answer within {deadline.seconds:g} s", left=connected)
        except (h11.ProtocolError, OSError) as error:
            answer = Failure(reason_of(error), left=connected)
        if isinstance(answer, Reply) and self._protocol.our_state is h11.DONE is self._protocol.their_state:
            self._protocol.start_next_cycle()
        else:
            self.close()
        return answer

    def _connect(self, deadline: Deadline) -> socket.socket:
        origin = self.origin
        if self.proxy is None:
            plain = socket.create_connection((self.address or origin.host, origin.port), deadline.left())
            with suppress(OSError):  # it may have closed already
                self.peer = plain.getpeername()[0]
        else:
            plain = _through(self.proxy, origin, deadline)
        if origin.scheme == "http":
            return plain
        try:
            plain.settimeout(deadline.left())
            trusted = _tls(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
            return trusted.wrap_socket(plain, server_hostname=origin.host)
        except BaseException:
            plain.close()
            raise

    def _converse(self, connection: socket.socket, request: Request, deadline: Deadline) -> Reply | Failure | _Closed:
        protocol = self._protocol
        connection.settimeout(deadline.left())
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have refused before it read all
            connection.sendall(self._encode(request))
        head: h11.InformationalResponse | h11.Response | None = None
        body, anything = bytearray(), False
        while True:
            match protocol.next_event():
                case h11.NEED_DATA:
                    connection.settimeout(deadline.left())
                    try:
                        piece = connection.recv(CHUNK)
                    except ConnectionResetError:
                        if anything:
                            raise
                        piece = b""
                    if not piece and not anything:
                        return _Closed("the answer broke off, or is not HTTP")
                    anything = True
                    protocol.receive_data(piece)
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

    def _encode(self, request: Request) -> bytes:
        """The request as one piece: how it is cut into segments then depends on its length alone."""
        protocol = self._protocol
        length = [("content-length", str(len(request.body)))] if request.method in {"POST", "PUT"} else []
        headers = [("host", self.origin.host_header), *request.headers, *length]
        head = protocol.send(h11.Request(method=request.method, target=request.path, headers=headers))
        body = protocol.send(h11.Data(data=request.body)) if request.body else b""
        return (head or b"") + (body or b"") + (protocol.send(h11.EndOfMessage()) or b"")


class Http:
    """HTTP/1.1 to one address, over TLS where it begins with https; a connection for every exchange."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, proxy: str | None = None) -> None:
        self.origin, self.prefix = _parts(url)
        self.timeout, self.proxy = timeout, None if proxy is None else check_proxy(proxy)

    def exchange(self, request: Request) -> Reply | Failure:
        """The answer to a request, on a connection of its own."""
        whole = replace(request, path=self.prefix + request.path)
        with closing(Connection(self.origin, proxy=self.proxy)) as connection:
            return connection.exchange(whole, Deadline(self.timeout))


@dataclass(frozen=True, slots=True)
class _Closed:
    """The server closed the connection before it said anything."""

    reason: str
    left: bool = True


def _protocol() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)


@cache
def _tls(file: str | None, folder: str | None) -> ssl.SSLContext:
    """A context for the certificates that the environment names: reading them takes milliseconds, so once for each."""
    return ssl.create_default_context()


def _through(proxy: str, origin: Origin, deadline: Deadline) -> socket.socket:
    """A connection by a SOCKS5 proxy, which looks the name up: nothing is looked up here but the proxy itself."""
    from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError
    from python_socks.sync import Proxy

    try:
        through = Proxy.from_url(proxy, rdns=True)
        found: socket.socket = through.connect(origin.host, origin.port, timeout=deadline.left())
        return found
    except ProxyTimeoutError:
        raise TimeoutError from None
    except ProxyConnectionError:
        raise _ProxyFailed("the proxy cannot be reached") from None
    except ProxyError:
        raise _ProxyFailed("the proxy cannot reach the site") from None


class _ProxyFailed(ConnectionError):
    """No connection, and the proxy is why."""


def check_proxy(url: str) -> str:
    """`url` itself, if it is the address of a SOCKS5 proxy. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        good = parts.scheme == "socks5" and parts.hostname and parts.port and not (parts.path or parts.query)
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable():
        raise InvalidInput("not the address of a SOCKS5 proxy", hint="such as socks5://127.0.0.1:9050")
    return url


def check_url(url: str) -> str:
    """`url` itself, if it is the plain address of a server."""
    _parts(url)
    return url


def origin_of(url: str) -> Origin:
    """Scheme, host and port of an address. Raises InvalidInput where it is none."""
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
    if parts.username or parts.password:
        raise InvalidInput("an address with a user or a password", hint="leave them out")
    return Origin(parts.scheme, host, port)


def _parts(url: str) -> tuple[Origin, str]:
    origin = origin_of(url)
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidInput("an address with more than host, port and path", hint="leave out user, query and fragment")
    return origin, parts.path.rstrip("/")


def reason_of(error: Exception) -> str:
    """What went wrong with the connection; independent of what was sent."""
    match error:
        case h11.ProtocolError():
            return "the answer broke off, or is not HTTP"
        case _ProxyFailed():
            return str(error)
        case ssl.SSLError():
            return f"TLS failed: {getattr(error, 'reason', None) or 'no reason given'}"
        case socket.gaierror():
            return "the host name is unknown"
        case OSError(errno=int(code)) if code in errno.errorcode:
            return os.strerror(code).lower()
        case _:
            return "the connection failed"
