r"""The head of a request, read strictly: one set of rules, applied before anything else looks at a request.

A request has exactly one form here, so that a proxy in front and this server cannot disagree about where one ends and
the next begins:

- `METHOD target HTTP/1.1` (or 1.0); lines end in CRLF, a header is `name: value` on one line, at most 512 of them;
- exactly one valid `Host`;
- a body has a `Content-Length`: one, in decimal, without sign, list or leading zeros, up to `MAX_BODY`;
- no `Transfer-Encoding` and no `Upgrade`.

Everything else is refused and the connection closed. The HTTP parser behind sees only heads that passed.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from onoff.errors import InvalidWire
from onoff.wire import (
    CHANGES_PATH,
    MAX_FRAME_SIZE,
    MAX_QUERY,
    MAX_SUM_QUERY,
    QUERY_PATH,
    QUERY_TYPE,
    SUM_PATH,
    SUM_QUERY_TYPE,
    Problem,
    Since,
    decode_since,
)

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
        return Plain.QUERY
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


def check_query_headers(headers: dict[bytes, bytes]) -> Problem | None:
    """Why a query under these headers is refused unread."""
    problem = check_body_headers(headers, limit=MAX_QUERY)
    if problem is None and headers.get(b"content-type") != QUERY_TYPE.encode():
        return Problem(415, "not the media type of a query", f"send Content-Type: {QUERY_TYPE}")
    return problem


def check_sum_headers(headers: dict[bytes, bytes]) -> Problem | None:
    """Why a sum query under these headers is refused unread."""
    problem = check_body_headers(headers, limit=MAX_SUM_QUERY)
    if problem is None and headers.get(b"content-type") != SUM_QUERY_TYPE.encode():
        return Problem(415, "not the media type of a sum query", f"send Content-Type: {SUM_QUERY_TYPE}")
    return problem


def malformed() -> Problem:
    return Problem(400, "not an HTTP/1.1 request", "see /docs for what is served")


def head_too_long() -> Problem:
    return Problem(431, "the head of the request is too long", f"at most {MAX_HEAD} bytes and {MAX_HEADERS} headers")


def length_missing() -> Problem:
    return Problem(411, "the length of the body is not stated", "send Content-Length")


def body_too_long(length: int, limit: int) -> Problem:
    return Problem(413, f"a body of {length} bytes", f"at most {limit} bytes")
