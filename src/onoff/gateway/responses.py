"""What the gateway answers: messages, feeds, the switch, and refusals as problem+json."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from onoff.client import Copy, Message
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidInput, OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway import present
from onoff.gateway.engine import Changed
from onoff.gateway.guard import MESSAGE_POLICY, PREFIX_KEY
from onoff.gateway.history import EntryStore
from onoff.gateway.jobs import Busy, Superseded
from onoff.gateway.switch import Position

STATUS: Final[tuple[tuple[type[OnOffError], int], ...]] = (
    (UnknownSource, 404),
    (Changed, 409),
    (Superseded, 409),
    (Busy, 503),
    (CatalogueMismatch, 502),
    (BadAnswer, 502),
    (ServerUnreachable, 504),
    (InvalidInput, 422),
    (OnOffError, 500),
)
"""The HTTP status of each error; the first that fits."""


def feeds_address(request: Request) -> str:
    """The address of this gateway's feeds for the caller, with the token of the request's path."""
    return f"http://{request.headers['host']}{quote(request.scope[PREFIX_KEY])}/v1/feeds"


def feed_response(request: Request, body: bytes, kind: str, headers: dict[str, str]) -> Response:
    """A feed, or 304 where the reader has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**headers, "content-type": kind, "etag": tag, "cache-control": "no-cache"}
    held = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
    if tag in held or "*" in held:
        return Response(status_code=304, headers={name: headers[name] for name in ("etag", "cache-control")})
    return Response(body, headers=headers)


def message_headers(message: Copy) -> dict[str, str]:
    """Headers with mode, cost and time of a message, and a policy under which it loads nothing."""
    headers = {
        "content-security-policy": MESSAGE_POLICY,
        "x-message-version": str(message.version),
        "x-age": f"{message.age:.0f}",
    }
    if isinstance(message, Message):
        sent = message.sent
        headers |= {
            "x-privacy-mode": "on" if sent.private else "off",
            "x-cost-messages": f"{message.messages:g}",
            "x-cost-bytes": str(message.received),
            "x-sources": str(sent.n),
            "x-step": str(sent.step),
            "x-mirror": "yes" if sent.mirror else "no",
        }
        if sent.note is not None:
            headers["x-note"] = str(sent.note)
    if message.version:
        published = present.moment_of(present.milliseconds(message))
        headers["x-message-time"] = published.isoformat(timespec="milliseconds")
        headers["last-modified"] = format_datetime(published, usegmt=True)
    return headers


def message_response(message: Message, entries: EntryStore | None) -> Response:
    """A message as a download, or in a form that a browser may show, which its entries hold."""
    if not message.version:
        return Response(status_code=204, headers=message_headers(message))  # nothing was published yet
    if entries is None:
        body, headers = present.for_program(message)
    else:
        body, headers = present.for_browser(message, entries.latest(message))
    return Response(body, headers={**headers, **message_headers(message)})


def privacy_dict(position: Position, now: float) -> dict[str, Any]:
    """The switch for callers: until when, and how many seconds are left."""
    until = None if position.until is None else datetime.fromtimestamp(position.until, UTC).isoformat()
    left = None if position.until is None else max(0.0, round(position.until - now, 3))
    return {"private": position.private, "until": until, "remaining": left, "ran_out": position.ran_out is not None}


def problem(status: int, title: str, hint: str | None) -> Response:
    """A refusal as problem+json."""
    body = json.dumps({"status": status, "title": title, "hint": hint}, ensure_ascii=False)
    return Response(body, status, media_type="application/problem+json")


async def our_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, OnOffError)
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    return problem(status, error.message, error.hint)


async def http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, None)
