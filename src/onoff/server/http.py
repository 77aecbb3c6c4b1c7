"""One request and its reply: checks before a body is read, and how answers and refusals are sent.

Every refusal is problem+json with a hint, every reply is `Cache-Control: no-store`. A body has a stated length, no
encoding, and a limited time to come; an answer goes out in pieces, no faster than it is read.
"""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from enum import Enum, IntEnum
from functools import lru_cache, partial
from http import HTTPStatus
from multiprocessing.context import SpawnContext
from typing import Any, NamedTuple

from onoff.errors import InvalidWire
from onoff.wire import (
    CHANGES_PATH,
    MAX_FRAME_SIZE,
    MAX_QUERY,
    MAX_SUM_QUERY,
    PROBLEM_TYPE,
    QUERY_PATH,
    QUERY_TYPE,
    SUM_PATH,
    SUM_QUERY_TYPE,
    Problem,
    Since,
    decode_since,
    encode_problem,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_SECONDS = 10.0  # within which a request's body must arrive
PIECE_BYTES = 256 * 1024
RETRY_SECONDS = 1
MAX_CONNECTIONS = 4096  # open at once, in one process
MAX_PER_ADDRESS = 256  # of them from one address; half of what may be in work at once
JSON = "application/json"


class Refused(Exception):
    """A request that ends with a problem. `close`: its body was not read, so the connection cannot go on."""

    def __init__(self, problem: Problem, *, close: bool = False, allow: str = "") -> None:
        super().__init__(problem.title)
        self.problem = problem
        self.close = close
        self.allow = allow


# Reading.


def check_method(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise Refused(Problem(405, "not a method that is served here", f"use {method}"), close=True, allow=method)


def request_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request by name, without the space around them; of those that come twice, the last."""
    return {name: value.strip(b" \t") for name, value in scope["headers"]}


def refuse_if(problem: Problem | None) -> None:
    """Raise `Refused` for a request whose body is not read."""
    if problem is not None:
        raise Refused(problem, close=True)


async def read_body(receive: Receive) -> bytes:
    """The whole body; its length was checked, and the parser enforces it."""
    parts = []
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise Refused(Problem(400, "the connection ended within the body", "send it again"), close=True)
                parts.append(event.get("body", b""))
                if not event.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        problem = Problem(408, f"the body took longer than {BODY_SECONDS:g} s", "send it in one go")
        raise Refused(problem, close=True) from None


# Sending.


async def send_parts(send: Send, parts: Sequence[bytes], media_type: str, encoding: str = "") -> None:
    """Send a reply in pieces, no faster than they are read."""
    headers = reply_headers(sum(map(len, parts)), media_type, encoding)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for piece, more in pieces(parts):
        await send({"type": "http.response.body", "body": piece, "more_body": more})


def pieces(parts: Sequence[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The parts joined to pieces of about `PIECE_BYTES`, each with whether more follow."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        if held and size + len(part) > PIECE_BYTES:
            yield b"".join(held), True
            held, size = [], 0
        held.append(part)
        size += len(part)
    yield b"".join(held), False


def reply_headers(length: int, media_type: str = JSON, encoding: str = "") -> list[tuple[bytes, bytes]]:
    """All headers of a reply, in their fixed order."""
    headers = [
        (b"content-type", media_type.encode()),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % length),
    ]
    return [*headers, (b"content-encoding", encoding.encode())] if encoding else headers


def problem_headers(
    problem: Problem, length: int, *, close: bool = False, allow: str = ""
) -> list[tuple[bytes, bytes]]:
    """The headers of a refusal."""
    headers = reply_headers(length, PROBLEM_TYPE)
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", b"%d" % RETRY_SECONDS))
    if allow:
        headers.append((b"allow", allow.encode()))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if close:
        headers.append((b"connection", b"close"))
    return headers


async def send_problem(send: Send, problem: Problem, *, close: bool = False, allow: str = "") -> None:
    """Refuse a request."""
    body = encode_problem(problem)
    headers = problem_headers(problem, len(body), close=close, allow=allow)
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# The head of a request has exactly one form, so that a proxy in front and this server cannot disagree about where one
# ends and the next begins; the HTTP parser behind sees only heads that passed. Everything else ends the connection.
#
# - `METHOD target HTTP/1.1` (or 1.0); lines end in CRLF, a header is `name: value` on one line, at most 512 of them;
# - exactly one valid `Host`;
# - a body has a `Content-Length`: one, in decimal, without sign, list or leading zeros, up to `MAX_BODY`;
# - no `Transfer-Encoding` and no `Upgrade`.

MAX_HEAD = 32 * 1024
MAX_HEADERS = 512
MAX_BODY = MAX_FRAME_SIZE  # of any request; every path has its own limit below
MAX_CACHED_HEAD = 1024

_REQUEST_LINE = re.compile(
    rb"([A-Z]{1,16}) ((?:https?://[^/\x00-\x20#\x7f-\xff]+)?/[^\x00-\x20#\x7f-\xff]*) HTTP/1\.[01]"
)
_BEGINNING = re.compile(rb"[A-Z]{1,16}(?: |$)")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_HOST = re.compile(rb"(?:[0-9A-Za-z._~%!$&'()*+,;=-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_LENGTH = re.compile(rb"0|[1-9][0-9]*")

_QUERY_LINE = b"POST %b HTTP/1.1\r\n" % QUERY_PATH.encode()
_SUM_LINE = b"POST %b HTTP/1.1\r\n" % SUM_PATH.encode()
CHANGES_BEGINNING = re.compile(rb"GET %b\?[!-~]+ HTTP/1\.1\r\n" % re.escape(CHANGES_PATH.encode()))
_CHANGES_HEADERS = {b"host", b"accept", b"accept-encoding", b"user-agent", b"connection"}
_ZERO = re.compile(rb"0(\.0*)?")
_QUERY_HEADERS = {b"host", b"accept", b"accept-encoding", b"content-type", b"user-agent", b"content-length"}


class Plain(Enum):
    """A plain request: it has only the headers that our client sends, and needs no parser."""

    QUERY = "query"
    GZIP_QUERY = "query whose answer may be compressed"
    SUM = "sum query"


class Head(NamedTuple):
    """What the connection needs to know of a head."""

    length: int  # of the body, in bytes
    plain: Plain | None  # None: any other request


def read_head(head: bytes) -> Head | Problem:
    """What a whole head says, its empty line included; or why it is refused."""
    if len(head) <= MAX_CACHED_HEAD and head.startswith((_QUERY_LINE, _SUM_LINE)):
        return _read_cached(head)
    return _read(head)


class ChangesRequest(NamedTuple):
    """A request for changes with only the headers that our client sends: it needs no parser."""

    since: Since
    gzip: bool


@lru_cache(maxsize=256)
def read_changes_request(data: bytes) -> ChangesRequest | None:
    """The request for changes in `data`; None if it is anything else, which takes the ordinary path."""
    if not CHANGES_BEGINNING.match(data) or data.find(b"\r\n\r\n") != len(data) - 4:
        return None
    head = _read(data)
    if isinstance(head, Problem) or head.length:
        return None
    request_line, *lines = data[:-4].split(b"\r\n")
    headers = {name.lower(): value.strip(b" \t") for name, _, value in (line.partition(b":") for line in lines)}
    if len(headers) != len(lines) or not headers.keys() <= _CHANGES_HEADERS:
        return None
    if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    target = request_line.split(b" ")[1].partition(b"?")[2]
    try:
        return ChangesRequest(decode_since(target.decode("latin-1")), takes_gzip(headers))
    except InvalidWire:
        return None


def takes_gzip(headers: dict[bytes, bytes]) -> bool:
    """Whether a reader takes a reply that is compressed by gzip."""
    for choice in headers.get(b"accept-encoding", b"").lower().split(b","):
        coding, _, weight = choice.replace(b" ", b"").partition(b";q=")
        if coding == b"gzip":
            return not weight or not _ZERO.fullmatch(weight)
    return False


def not_a_head(beginning: bytes | bytearray, seen: int) -> Problem | None:
    """Why these bytes cannot begin a valid head, or None. The first `seen` bytes were checked before."""
    if not _BEGINNING.match(beginning[:17]) or _BARE_LF.search(beginning, max(0, seen - 1)):
        return malformed()
    return head_too_long() if len(beginning) > MAX_HEAD else None


def _read(head: bytes) -> Head | Problem:
    if len(head) > MAX_HEAD:
        return head_too_long()
    request_line, *lines = head[:-4].split(b"\r\n")
    if len(lines) > MAX_HEADERS:
        return head_too_long()
    if not _REQUEST_LINE.fullmatch(request_line):
        return malformed()
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if not colon or not _NAME.fullmatch(name) or _NOT_IN_VALUE.search(value):
            return malformed()
        if name in headers and name in {b"host", b"content-length", b"transfer-encoding"}:
            return Problem(400, f"two {name.decode().title()} headers", "send it once")
        headers[name] = value
    problem = _check_framing(headers)
    if problem is not None:
        return problem
    length = int(headers.get(b"content-length", b"0"))
    each_once = len(headers) == len(lines)
    return Head(length, _plain(head, headers) if each_once and length > 0 else None)


_read_cached = lru_cache(maxsize=256)(_read)  # nearly all queries come under a few heads


def _check_framing(headers: dict[bytes, bytes]) -> Problem | None:
    if not _HOST.fullmatch(headers.get(b"host", b"")):
        return Problem(400, "no valid Host header", "name the host once, as HTTP/1.1 asks")
    if b"upgrade" in headers:
        return Problem(400, "a request to upgrade the connection", "send it without Upgrade")
    length = headers.get(b"content-length")
    if b"transfer-encoding" in headers:
        if length is not None:
            return Problem(400, "both Content-Length and Transfer-Encoding", "send Content-Length alone")
        return length_missing()
    if length is not None:
        if not _LENGTH.fullmatch(length):
            return Problem(400, "a Content-Length that is not a plain number", "decimal, without leading zeros")
        if int(length[:18]) > MAX_BODY:  # as many digits as are quick to read; more are too many anyway
            return body_too_long(int(length[:18]), MAX_BODY)
    return None


def _plain(head: bytes, headers: dict[bytes, bytes]) -> Plain | None:
    """Which plain request it is. No header comes twice."""
    others = headers.keys() - _QUERY_HEADERS
    if others and (others != {b"connection"} or headers[b"connection"].lower() != b"keep-alive"):
        return None
    if head.startswith(_QUERY_LINE) and check_query_headers(headers) is None:
        return Plain.GZIP_QUERY if takes_gzip(headers) else Plain.QUERY
    if head.startswith(_SUM_LINE) and check_sum_headers(headers) is None:
        return Plain.SUM
    return None


# The rules for the headers of one kind of request; the framing was checked before.


def check_body_headers(headers: dict[bytes, bytes], *, limit: int) -> Problem | None:
    """Why a body under these headers is refused unread: no length, longer than `limit`, or encoded."""
    length = headers.get(b"content-length")
    if length is None:
        return length_missing()
    if int(length) > limit:
        return body_too_long(int(length), limit)
    if headers.get(b"content-encoding", b"identity") != b"identity":
        return Problem(415, "an encoded body", "send it as it is, without Content-Encoding")
    return None


def check_query_headers(
    headers: dict[bytes, bytes], *, media_type: str = QUERY_TYPE, limit: int = MAX_QUERY
) -> Problem | None:
    """Why a query under these headers is refused unread."""
    problem = check_body_headers(headers, limit=limit)
    if problem is None and headers.get(b"content-type") != media_type.encode():
        return Problem(415, "not the media type of what is asked here", f"send Content-Type: {media_type}")
    return problem


check_sum_headers = partial(check_query_headers, media_type=SUM_QUERY_TYPE, limit=MAX_SUM_QUERY)


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def malformed() -> Problem:
    return Problem(400, "not an HTTP/1.1 request", "see /docs for what is served")


def head_too_long() -> Problem:
    return Problem(431, "the head of the request is too long", f"at most {MAX_HEAD} bytes and {MAX_HEADERS} headers")


def overloaded() -> Problem:
    return Problem(503, "the server has more requests than it can serve", "send the same request again in a moment")


def length_missing() -> Problem:
    return Problem(411, "the length of the body is not stated", "send Content-Length")


def body_too_long(length: int, limit: int) -> Problem:
    return Problem(413, f"a body of {length} bytes", f"at most {limit} bytes")


class Count(IntEnum):
    """What is counted: how much was asked, never what; nothing by source, session or client."""

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
    """Counts in Prometheus' text form: each worker adds to its row of a shared table, and any reports the sums."""

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
