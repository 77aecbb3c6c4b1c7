"""Publishing: put a message, over HTTP, with a token."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from onoff import wire
from onoff.client.catalogue import NOT_A_SERVER
from onoff.client.exchange import Reply, Request
from onoff.client.transport import Http
from onoff.errors import InvalidInput, InvalidWire, OnOffError, ServerUnreachable

LARGEST_RECEIPT: Final = 64 * 1024
PUBLISH_TIMEOUT: Final = 30.0


def publish(server: str, token: str, name: str, body: bytes, media_type: str) -> dict[str, Any]:
    """Make `body` the latest message of a source.

    Returns
    -------
    dict
        The server's receipt: source, version, published.

    Raises
    ------
    InvalidInput
        The server refuses: an unknown source or token, or a message that is too long.
    ServerUnreachable
        Nobody answers, or not as a message server would.
    """
    wire.check_name(name)
    path = f"/v1/sources/{quote(name, safe='')}/message"
    headers = (
        ("authorization", f"Bearer {token}"),
        ("content-type", wire.check_media_type(media_type)),
        ("user-agent", "onoff"),
    )
    reply = Http(server, timeout=PUBLISH_TIMEOUT).exchange(Request("PUT", path, headers, body, LARGEST_RECEIPT))
    if not isinstance(reply, Reply):
        raise ServerUnreachable(f"{server} does not answer: {reply.reason}", hint="is `onoff serve` running?")
    if reply.status != 200:
        raise _refusal(server, reply)
    try:
        receipt = json.loads(reply.body)
    except ValueError:
        receipt = None
    if not isinstance(receipt, dict):
        raise ServerUnreachable(f"{server} sends no receipt", hint=NOT_A_SERVER)
    return receipt


def _refusal(server: str, reply: Reply) -> OnOffError:
    try:
        problem = wire.decode_problem(reply.body)
    except InvalidWire:
        return ServerUnreachable(f"{server} answers with status {reply.status}", hint=NOT_A_SERVER)
    kind = ServerUnreachable if reply.status >= 500 else InvalidInput
    return kind(f"{server} refuses: {problem.title}", hint=problem.hint)
