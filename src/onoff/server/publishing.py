"""The publisher's side: put a message, over HTTP, with a token."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from onoff import wire
from onoff.errors import InvalidInput, InvalidWire, OnOffError, ServerUnreachable


def publish(server: str, token: str, name: str, body: bytes, media_type: str) -> dict[str, Any]:
    """The receipt of the server: source, version, published."""
    import httpx2

    wire.check_name(name)
    url = f"{server.rstrip('/')}/v1/sources/{quote(name, safe='')}/message"
    headers = {"authorization": f"Bearer {token}", "content-type": media_type}
    try:
        response = httpx2.put(url, content=body, headers=headers, timeout=30)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ServerUnreachable(f"{server} does not answer: {error}", hint="is `onoff serve` running?") from None
    if response.status_code == 200:
        try:
            receipt: dict[str, Any] = response.json()
        except ValueError:
            raise ServerUnreachable(f"{server} sends no receipt", hint="is this a message server?") from None
        return receipt
    raise _refusal(server, response.status_code, response.content)


def fetch_catalogue(server: str) -> wire.Catalogue:
    """The catalogue of the server."""
    import httpx2

    try:
        response = httpx2.get(f"{server.rstrip('/')}{wire.CATALOGUE_PATH}", timeout=30)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ServerUnreachable(f"{server} does not answer: {error}", hint="is `onoff serve` running?") from None
    if response.status_code == 200:
        try:
            return wire.decode_catalogue(response.content)
        except InvalidWire as error:
            raise ServerUnreachable(f"{server} sends {error.message}", hint=error.hint) from None
    raise _refusal(server, response.status_code, response.content)


def _refusal(server: str, status: int, content: bytes) -> OnOffError:
    try:
        problem = wire.decode_problem(content)
    except InvalidWire:
        return ServerUnreachable(f"{server} answers with status {status}", hint="is this a message server?")
    if status >= 500:
        return ServerUnreachable(f"{server} refuses: {problem.title}", hint=problem.hint)
    return InvalidInput(f"{server} refuses: {problem.title}", hint=problem.hint)
