"""One line in a program: its HTTP library asks through a client of onoff instead of asking the site.

    httpx.Client(mounts={"https://api.example": onoff.httpx.Transport(client)})       # onoff.httpx2 alike, async too
    session.mount("https://api.example", onoff.requests.Adapter(client))

A GET of an address in the list of sources goes out as a set that contains it. An address that is not in the list, or
another method, raises `NotListed`, and nothing leaves: whatever the library would send by itself would tell what the
set hides. What was sent is in `response.extensions["onoff"]` (httpx) or `response.onoff` (requests).

A request is private unless told otherwise: for all (`private=False`), for a block (`with adapters.openly():`), or for
one request (`extensions={"onoff": {"private": False}}` in httpx).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from onoff.errors import InvalidInput, OnOffError
from onoff.upstream.transport import PORTS

if TYPE_CHECKING:
    from onoff.upstream.web import Web

_private: ContextVar[bool | None] = ContextVar("onoff_private", default=None)


class NotListed(InvalidInput):
    """A program asked for an address that is not in the list of sources, or by another method. Nothing left."""


class WebClient(Protocol):
    """What an adapter needs of `onoff.Client`."""

    @property
    def upstream(self) -> Any: ...

    def get(self, source: str, *, private: bool) -> Any: ...


@contextmanager
def openly() -> Iterator[None]:
    """Requests inside the block are made while OFF: the site sees a set, which hides what was private before."""
    with _switched(False):
        yield


@contextmanager
def privately() -> Iterator[None]:
    """Requests inside the block are private: the site is asked for everything."""
    with _switched(True):
        yield


@contextmanager
def _switched(private: bool) -> Iterator[None]:
    token = _private.set(private)
    try:
        yield
    finally:
        _private.reset(token)


class Listed:
    """The sources of a client by their addresses."""

    def __init__(self, client: WebClient, *, private: bool) -> None:
        self.client, self.private = client, private
        web: Web = client.upstream
        self._names = {normal(source.url): source.name for source in web.sources.sources}

    def get(self, method: str, url: str, private: bool | None) -> Any:
        """The message of an address. Raises NotListed before anything leaves."""
        name = self._names.get(normal(url))
        if method != "GET" or name is None:
            what = "this address is not in the list of sources" if method == "GET" else f"{method} cannot be hidden"
            raise NotListed(what, hint="add it to the list, or ask for it by a client without onoff")
        chosen = next(one for one in (private, _private.get(), self.private) if one is not None)
        return self.client.get(name, private=chosen)


def normal(url: str) -> str:
    """An address in the one form that equal ones share: lower case, no default port, never an empty path."""
    parts = urlsplit(url)
    host, scheme = (parts.hostname or "").lower(), parts.scheme.lower()
    port = parts.port if parts.port not in {None, PORTS.get(scheme)} else None
    where = f"[{host}]" if ":" in host else host
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{where}{'' if port is None else f':{port}'}{parts.path or '/'}{query}"


def headers_of(message: Any) -> list[tuple[str, str]]:
    return [("content-type", message.media_type or "application/octet-stream"), ("content-length", str(len(message)))]


def _asked_for(extensions: Mapping[str, Any]) -> bool | None:
    told = extensions.get("onoff", {})
    return told.get("private") if isinstance(told, Mapping) else None


def transport_class(library: Any) -> Any:
    """The transport for httpx or httpx2, which have the same interface, and for both of their clients."""

    class Transport(library.BaseTransport, library.AsyncBaseTransport):  # type: ignore[misc]
        """Asks through a client of onoff: `Transport(client, private=True)`."""

        def __init__(self, client: WebClient, *, private: bool = True) -> None:
            self._listed = Listed(client, private=private)

        def handle_request(self, request: Any) -> Any:
            try:
                message = self._listed.get(request.method, str(request.url), _asked_for(request.extensions))
            except NotListed:
                raise
            except OnOffError as error:
                raise library.TransportError(str(error), request=request) from error
            content, told = bytes(message), {"onoff": message}
            return library.Response(200, headers=headers_of(message), content=content, extensions=told, request=request)

        async def handle_async_request(self, request: Any) -> Any:
            return await asyncio.to_thread(self.handle_request, request)

        def close(self) -> None:
            """The client is its owner's to close."""

        async def aclose(self) -> None:
            """The client is its owner's to close."""

    return Transport
