"""One request and its reply: checks before a body is read, and how answers and refusals are sent.

Every refusal is problem+json with a hint, every reply is `Cache-Control: no-store`. A body has a stated length, no
encoding, and a limited time to come; an answer goes out in pieces, no faster than it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

from onoff.server.answer import RETRY_SECONDS, answer_headers
from onoff.server.changes import ChangesReply
from onoff.server.judge import Answer
from onoff.wire import CHANGES_TYPE, PROBLEM_TYPE, SUM_HEADERS, Problem, encode_problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_SECONDS = 10.0  # within which a request's body must arrive
PIECE_BYTES = 256 * 1024


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


async def send_answer(send: Send, answer: Answer) -> None:
    """Send frames in pieces, no faster than they are read."""
    await send({"type": "http.response.start", "status": 200, "headers": answer_headers(sum(map(len, answer)))})
    for piece, more in pieces(answer):
        await send({"type": "http.response.body", "body": piece, "more_body": more})


async def send_sum(send: Send, answer: bytes) -> None:
    """Send the answer to a sum query; it may be empty."""
    await send({"type": "http.response.start", "status": 200, "headers": answer_headers(len(answer), SUM_HEADERS)})
    await send({"type": "http.response.body", "body": answer})


async def send_changes(send: Send, reply: ChangesReply) -> None:
    """Send changes in pieces, no faster than they are read."""
    headers = changes_headers(reply.length, reply.encoding)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for piece, more in pieces(reply.parts):
        await send({"type": "http.response.body", "body": piece, "more_body": more})


def changes_headers(length: int, encoding: str) -> list[tuple[bytes, bytes]]:
    """The headers of every reply to a request for changes."""
    encoded = [(b"content-encoding", encoding.encode())] if encoding else []
    return [*json_headers(length, CHANGES_TYPE), *encoded]


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


def json_headers(length: int, kind: str = "application/json") -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", kind.encode()),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % length),
    ]


def problem_headers(
    problem: Problem, length: int, *, close: bool = False, allow: str = ""
) -> list[tuple[bytes, bytes]]:
    """The headers of a refusal."""
    headers = json_headers(length, PROBLEM_TYPE)
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
