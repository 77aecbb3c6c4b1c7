"""The HTTP side of the gateway. Every request passes the guard. `/api` on the page has a curl line for each call.

    GET /v1/sources            the names of the sources                                      app or page token
    GET /v1/sources/NAME       the latest message of a source: one request of the person     app or page token
    GET /v1/entries/NAME       the same as entries to read, in JSON, their HTML cleaned      app or page token
    GET /v1/feeds/NAME         a source as an Atom feed, from the mirror: not a request      app or page token
    GET /v1/feeds              all sources as one Atom feed, newest first                    app or page token
    GET /v1/feeds.opml         the addresses of all feeds, for a feed reader to import       app or page token
    GET, PUT /v1/privacy       the switch: {"private": true, "seconds": 600} or "until"      page token
    GET, PUT /v1/schedule      when it turns automatically: {"rules": [...]}                 page token
    PUT /v1/refresh            refresh the mirror now: {}                                    page token
    GET, PUT /v1/learning      whether what is opened while OFF is remembered: {"remember"}  page token
    GET, PUT /v1/reading       the sources with what is new; {"all": true} marks all read    page token
    GET /v1/log                what the server saw, as JSON lines                            page token
    GET /v1/state              all that the page shows                                       page token
    GET /v1/events             the same whenever it changes (server-sent events)             page token
    GET / /limits /api /static/...  the page, which holds nothing by itself                  no token

Downloads take two optional headers: `Idempotency-Key`, which gives the same step back, and `X-Privacy-Expected: on`
or `off`, without which the switch decides alone. They answer with `X-Privacy-Mode`, `X-Cost-Messages`,
`X-Message-Time`, `X-Message-Version`, `X-Age` and `X-Step`. Feeds have an ETag, and 304 is answered here. Refusals are
problem+json with a hint.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import onoff
from onoff.client import Copy, Message
from onoff.errors import InvalidInput, OnOffError
from onoff.gateway import feed
from onoff.gateway.bodies import Learning, Rules, Turn, moment, parsed, read_json
from onoff.gateway.engine import Engine
from onoff.gateway.events import Streams, stream
from onoff.gateway.guard import Guard, guarded
from onoff.gateway.responses import (
    feed_response,
    feeds_address,
    http_error,
    message_headers,
    message_response,
    our_error,
    privacy_dict,
)
from onoff.gateway.snapshot import reading, snapshot

HERE: Final = Path(__file__).parent


def build_app(engine: Engine, guard: Guard, streams: Streams) -> ASGIApp:
    """The application behind its guard."""
    messages, controls, pages = ForApps(engine), Controls(engine), ForThePage(engine, streams)
    routes = [
        Route("/", pages.home),
        Route("/limits", pages.limits),
        Route("/api", pages.api),
        Route("/v1/sources", messages.sources),
        Route("/v1/sources/{name}", messages.message),
        Route("/v1/entries/{name}", messages.entries),
        Route("/v1/feeds", messages.all_feeds),
        Route("/v1/feeds.opml", messages.opml),
        Route("/v1/feeds/{name}", messages.message_feed),
        Route("/v1/refresh", controls.refresh, methods=["PUT"]),
        Route("/v1/reading", pages.reading, methods=["GET"]),
        Route("/v1/reading", controls.mark_all, methods=["PUT"]),
        Route("/v1/privacy", pages.privacy, methods=["GET"]),
        Route("/v1/privacy", controls.turn, methods=["PUT"]),
        Route("/v1/schedule", pages.schedule, methods=["GET"]),
        Route("/v1/schedule", controls.follow, methods=["PUT"]),
        Route("/v1/learning", pages.learning, methods=["GET"]),
        Route("/v1/learning", controls.learn, methods=["PUT"]),
        Route("/v1/log", pages.log),
        Route("/v1/state", pages.state),
        Route("/v1/events", pages.events),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    handlers: dict[Any, Any] = {OnOffError: our_error, HTTPException: http_error}
    inner = Starlette(routes=routes, exception_handlers=handlers)
    inner.router.redirect_slashes = False  # every path has one form
    return guarded(inner, guard)


class ForApps:
    """Downloads and feeds, for apps and the page."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.upstream = engine, engine.upstream

    async def sources(self, _: Request) -> Response:
        return JSONResponse({"sources": list(self.upstream.all_names)})

    async def message(self, request: Request) -> Response:
        browser = request.headers.get("sec-fetch-dest") is not None
        found = await self.fetch(request)
        return await asyncio.to_thread(message_response, found, self.upstream.entries if browser else None)

    async def entries(self, request: Request) -> Response:
        found = await self.fetch(request)
        self.engine.marks.opened(found.source, found.version, self.engine.now())
        self.engine.board.changed()
        listed = await asyncio.to_thread(self.upstream.entries.with_earlier, found)
        body = {"source": found.source, "entries": [entry.as_dict() for entry in listed]}
        return JSONResponse(body, headers=message_headers(found))

    async def fetch(self, request: Request) -> Message:
        """The message of the path, as one request of the person."""
        expected = request.headers.get("x-privacy-expected")
        if expected not in {None, "on", "off"}:
            raise InvalidInput("X-Privacy-Expected is neither on nor off", hint="send one of them, or leave it out")
        key = request.headers.get("idempotency-key")
        asked = self.engine.request(
            request.path_params["name"], key=key, expected=None if expected is None else expected == "on"
        )
        # Shielded: a caller who disconnects does not take a request back that may be on its way.
        return await asyncio.shield(asyncio.wrap_future(asked))

    async def message_feed(self, request: Request) -> Response:
        name = request.path_params["name"]
        found: Copy | None = await asyncio.to_thread(self.upstream.copy, name)
        if found is None:
            found = await self.fetch(request)  # without a mirror each look is a request
        address = f"{feeds_address(request)}/{quote(name)}"
        entries = await asyncio.to_thread(self.upstream.entries.latest, found)
        body = await asyncio.to_thread(feed.atom, found, entries, address)
        return feed_response(request, body, feed.ATOM_TYPE, message_headers(found))

    async def all_feeds(self, request: Request) -> Response:
        def build_feed() -> bytes:
            copies = [copy for name in self.upstream.all_names if (copy := self.upstream.copy(name)) is not None]
            return feed.combined(
                [(copy, self.upstream.entries.latest(copy)) for copy in copies], feeds_address(request)
            )

        return feed_response(request, await asyncio.to_thread(build_feed), feed.ATOM_TYPE, {})

    async def opml(self, request: Request) -> Response:
        return feed_response(request, feed.opml(self.upstream.all_names, feeds_address(request)), feed.OPML_TYPE, {})


class Controls:
    """What the page may change."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def turn(self, request: Request) -> Response:
        asked = parsed(Turn, await read_json(request), hint='such as {"private": true, "seconds": 600}')
        until = None if asked.until is None else moment(asked.until)
        # On disk before it is reported, and off the loop.
        await asyncio.to_thread(self.engine.turn, private=asked.private, seconds=asked.seconds, until=until)
        return JSONResponse(privacy_dict(self.engine.switch.position, self.engine.now()))

    async def follow(self, request: Request) -> Response:
        asked = parsed(Rules, await read_json(request), hint='such as {"rules": ["ON mon-fri 09:00-17:00"]}')
        await asyncio.to_thread(self.engine.switch.follow, asked.rules)
        self.engine.board.changed()
        return JSONResponse(self.engine.switch.schedule_as_dict())

    async def refresh(self, request: Request) -> Response:
        await read_json(request)
        refresher = self.engine.upstream.refresher
        if refresher is None or not refresher.supported:
            raise InvalidInput("there is no mirror", hint="this server does not tell what changed")
        await asyncio.to_thread(refresher.wait, refresher.refresh_soon())
        return JSONResponse(refresher.as_dict())

    async def learn(self, request: Request) -> Response:
        asked = parsed(Learning, await read_json(request), hint='such as {"remember": true}')
        record = self.engine.record
        if asked.remember:
            await asyncio.to_thread(record.remember, "page")
        else:
            await asyncio.to_thread(record.forget)
        self.engine.board.changed()
        return JSONResponse(record.as_dict())

    async def mark_all(self, request: Request) -> Response:
        await read_json(request)
        refresher = self.engine.upstream.refresher
        if refresher is not None:
            self.engine.marks.opened_all(refresher.mirror.sources(), self.engine.now())
            self.engine.board.changed()
        return JSONResponse(reading(self.engine))


class ForThePage:
    """What the page shows, and its own files."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self.engine, self.streams = engine, streams
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined
        )

    def _page(self, name: str) -> HTMLResponse:
        return HTMLResponse(self._templates.get_template(name).render(version=onoff.__version__))

    async def home(self, _: Request) -> Response:
        return self._page("page.html")

    async def limits(self, _: Request) -> Response:
        return self._page("limits.html")

    async def api(self, _: Request) -> Response:
        return self._page("api.html")

    async def privacy(self, _: Request) -> Response:
        return JSONResponse(privacy_dict(self.engine.switch.position, self.engine.now()))

    async def schedule(self, _: Request) -> Response:
        return JSONResponse(self.engine.switch.schedule_as_dict())

    async def learning(self, _: Request) -> Response:
        return JSONResponse(self.engine.record.as_dict())

    async def reading(self, _: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(reading, self.engine))

    async def log(self, _: Request) -> Response:
        return Response("".join(self.engine.log.lines()), media_type="application/jsonl")

    async def state(self, _: Request) -> Response:
        return JSONResponse(snapshot(self.engine))

    async def events(self, _: Request) -> Response:
        return StreamingResponse(stream(self.engine, self.streams), media_type="text/event-stream")
