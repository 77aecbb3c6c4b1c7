"""The HTTP side of the gateway. Every request passes the guard. `/api` on the page has a curl line for each call.

    GET /v1/sources            the names of the sources                                      app or page token
    GET /v1/sources/NAME       the latest message of a source: one request of the person     app or page token
    GET /v1/entries/NAME       the same as entries to read, in JSON, their HTML cleaned      app or page token
    GET /v1/feeds/NAME         a source as an Atom feed, from the mirror: not a request      app or page token
    GET /v1/feeds              all sources as one Atom feed, newest first                    app or page token
    GET /v1/feeds.opml         the addresses of all feeds, for a feed reader to import       app or page token
    GET /web/PATH?QUERY        what a web site has at its own address: one request           app or page token
    GET, PUT /v1/privacy       the switch: {"private": true, "seconds": 600} or "until"      page token
    GET, PUT /v1/schedule      when it turns automatically: {"rules": [...]}                 page token
    PUT /v1/refresh            refresh the mirror now: {}                                    page token
    GET, PUT /v1/learning      whether what is opened while OFF is remembered: {"remember"}  page token
    GET, PUT /v1/reading       the sources with what is new; {"all": true} marks all read    page token
    GET /v1/log                what the server saw, as JSON lines                            page token
    GET /v1/state              all that the page shows                                       page token
    GET /v1/events             the same whenever it changes (server-sent events)             page token
    GET /metrics               latencies, sources, files; nothing of what is wanted          app or page token
    GET /healthz /readyz       well; a private request would be answered                     no token
    GET / /limits /api /static/...  the page, which holds nothing by itself                  no token

Downloads take two optional headers: `Idempotency-Key`, which gives the same step back, and `X-Privacy-Expected: on`
or `off`, without which the switch decides alone. They answer with `X-Privacy-Mode`, `X-Cost-Messages`,
`X-Message-Time`, `X-Message-Version`, `X-Age` and `X-Step`. Feeds have an ETag, and 304 is answered here. Refusals are
problem+json with a hint.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import onoff
from onoff.client import Copy, Message
from onoff.errors import (
    BadAnswer,
    CatalogueMismatch,
    InvalidInput,
    OnOffError,
    ServerUnreachable,
    SourceFailed,
    UnknownSource,
)
from onoff.gateway import render
from onoff.gateway.engine import Busy, Changed, Engine, Superseded
from onoff.gateway.guard import PREFIX_KEY, RAW_KEY, SITE_PATH, Guard, guarded
from onoff.gateway.metrics import ailments, obstacles
from onoff.gateway.render import EntryStore
from onoff.gateway.state import reading, snapshot
from onoff.gateway.switch import Position
from onoff.upstream.budget import OverBudget
from onoff.upstream.web import PASSING

LONGEST_BODY: Final = 4096
"""Bytes."""


class Turn(BaseModel):
    """What PUT /v1/privacy takes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    private: bool
    seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None
    until: str | None = None
    accept_leak: bool = False


class Rules(BaseModel):
    """What PUT /v1/schedule takes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    rules: list[str]


class Learning(BaseModel):
    """What PUT /v1/learning takes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    remember: bool


Body = TypeVar("Body", bound=BaseModel)


def parsed(kind: type[Body], body: bytes, *, hint: str) -> Body:
    """`body` as an object of `kind`. Raises InvalidInput, which names the wrong field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise InvalidInput(f"{where}: {first['msg']}", hint=hint) from None


async def read_json(request: Request) -> bytes:
    """The body of a request with the content type of JSON. Raises HTTPException 415 for another type."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body is not JSON")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_BODY:
            raise InvalidInput("the body is too long", hint='such as {"private": true}')
    return body


def moment(text: str) -> float:
    """An ISO 8601 time with its zone, as seconds since 1970."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput("until: not a time with a zone", hint="such as 2030-01-31T18:00:00+01:00")
    return found.timestamp()


STATUS: Final[tuple[tuple[type[OnOffError], int], ...]] = (
    (UnknownSource, 404),
    (Changed, 409),
    (Superseded, 409),
    (Busy, 503),
    (CatalogueMismatch, 502),
    (BadAnswer, 502),
    (SourceFailed, 502),
    (OverBudget, 503),
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
    return validated(request, Response(body, headers={**headers, "content-type": kind}), {"etag": tag})


def validated(request: Request, response: Response, validators: dict[str, str]) -> Response:
    """A response with its validators, or 304 where whoever asks has it already."""
    tag, kept = validators.get("etag", ""), {**validators, "cache-control": "no-cache"}
    held = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
    same_time = request.headers.get("if-modified-since", "") == validators.get("last-modified")
    by_time = same_time and "if-none-match" not in request.headers  # tags go before times
    if (tag and tag.removeprefix("W/") in held) or "*" in held or by_time:
        return Response(status_code=304, headers=kept)
    response.headers.update(kept)
    return response


def message_response(message: Message, entries: EntryStore | None) -> Response:
    """A message as a download, or in a form that a browser may show, which its entries hold."""
    if not message.version:
        return Response(status_code=204, headers=render.message_headers(message))  # nothing was published yet
    if entries is None:
        body, headers = render.for_program(message)
    else:
        body, headers = render.for_browser(message, entries.latest(message))
    return Response(body, headers={**headers, **render.message_headers(message)})


def privacy_dict(position: Position, now: float) -> dict[str, Any]:
    """The switch for callers: until when, and how many seconds are left."""
    until = None if position.until is None else datetime.fromtimestamp(position.until, UTC).isoformat()
    left = None if position.until is None else max(0.0, round(position.until - now, 3))
    return {"private": position.private, "until": until, "remaining": left, "ran_out": position.ran_out is not None}


def problem(status: int, title: str, hint: str | None) -> Response:
    """A refusal as problem+json."""
    body = json.dumps({"status": status, "title": title, "hint": hint}, ensure_ascii=False)
    return Response(body, status, media_type="application/problem+json")


def health(state: str, problems: list[str]) -> Response:
    if problems:
        return problem(503, f"not {state}: {'; '.join(problems)}", "the log of the gateway says why")
    return JSONResponse({"status": state})


async def our_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, OnOffError)
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    return problem(status, error.message, error.hint)


async def http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, None)


STREAM_BEAT_SECONDS: Final = 15.0


async def stream(engine: Engine) -> AsyncIterator[str]:
    """The state now and after every change; a comment every 15 seconds, so that a closed connection is noticed."""
    board, shown = engine.board, -1
    with board.watched():
        while not board.closed:
            news = board.news  # before the state is read: what changes meanwhile sets it
            position = engine.switch.position  # a timer that ran out counts as a change
            if board.revision == shown:
                yield ":\n\n"
            else:
                state = snapshot(engine)
                shown = state["revision"]
                yield f"id: {state['start']}-{shown}\nevent: state\ndata: {json.dumps(state)}\n\n"
            patience = STREAM_BEAT_SECONDS
            if position.until is not None:
                patience = min(patience, max(0.0, position.until - engine.now()) + 0.01)
            # No task is made here: closing the page cancels this coroutine, and nothing is left behind.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await news.wait()


HERE: Final = Path(__file__).parent


def build_app(engine: Engine, guard: Guard) -> ASGIApp:
    """The application behind its guard."""
    messages, controls, pages = ForApps(engine), Controls(engine), ForThePage(engine)
    routes = [
        Route("/", pages.home),
        Route("/limits", pages.limits),
        Route("/api", pages.api),
        Route("/healthz", pages.health),
        Route("/readyz", pages.readiness),
        Route("/metrics", pages.metrics),
        Route("/v1/sources", messages.sources),
        Route("/v1/sources/{name}", messages.message),
        Route("/v1/entries/{name}", messages.entries),
        Route("/v1/feeds", messages.all_feeds),
        Route("/v1/feeds.opml", messages.opml),
        Route("/v1/feeds/{name}", messages.message_feed),
        Route(SITE_PATH + "/{path:path}", messages.page),
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
        self.engine = engine

    async def sources(self, _: Request) -> Response:
        return JSONResponse({"sources": list(self.engine.all_names)})

    async def message(self, request: Request) -> Response:
        browser = request.headers.get("sec-fetch-dest") is not None
        found = await self.fetch(request, request.path_params["name"])
        return await asyncio.to_thread(message_response, found, self.engine.entries if browser else None)

    async def entries(self, request: Request) -> Response:
        found = await self.fetch(request, request.path_params["name"])
        await asyncio.to_thread(self.engine.marks.opened, found.source, found.version, self.engine.now())
        self.engine.board.changed()
        listed = await asyncio.to_thread(self.engine.entries.latest, found)
        body = {"source": found.source, "entries": [entry.as_dict() for entry in listed]}
        return JSONResponse(body, headers=render.message_headers(found))

    async def page(self, request: Request) -> Response:
        """What the site has at an address of its own; nothing leaves for one that is not in the list."""
        target = request.scope[RAW_KEY].removeprefix(SITE_PATH)
        query = request.scope["query_string"].decode("latin-1")
        name = self.engine.source_at(f"{target}?{query}" if query else target)
        browser = request.headers.get("sec-fetch-dest") is not None
        try:
            found = await self.fetch(request, name)
        except SourceFailed as error:
            passed = 400 <= error.status < 500 and error.status not in PASSING
            return problem(error.status if passed else 502, error.message, error.hint)
        response = await asyncio.to_thread(message_response, found, self.engine.entries if browser else None)
        del response.headers["last-modified"]  # when it was fetched; the site's own is a validator
        response.headers["age"] = f"{found.age:.0f}"
        return validated(request, response, self.engine.validators(found))

    async def fetch(self, request: Request, name: str) -> Message:
        """A message, as one request of the person."""
        expected = request.headers.get("x-privacy-expected")
        if expected not in {None, "on", "off"}:
            raise InvalidInput("X-Privacy-Expected is neither on nor off", hint="send one of them, or leave it out")
        key = request.headers.get("idempotency-key")
        asked = self.engine.request(name, key=key, expected=None if expected is None else expected == "on")
        # Shielded: a caller who disconnects does not take a request back that may be on its way.
        return await asyncio.shield(asyncio.wrap_future(asked))

    async def message_feed(self, request: Request) -> Response:
        name = request.path_params["name"]
        found: Copy | None = await asyncio.to_thread(self.engine.copy, name)
        if found is None:
            found = await self.fetch(request, name)  # without a mirror each look is a request
        address = f"{feeds_address(request)}/{quote(name)}"
        entries = await asyncio.to_thread(self.engine.entries.latest, found)
        body = await asyncio.to_thread(render.atom, found, entries, address)
        return feed_response(request, body, render.ATOM_TYPE, render.message_headers(found))

    async def all_feeds(self, request: Request) -> Response:
        def build_feed() -> bytes:
            copies = [copy for name in self.engine.all_names if (copy := self.engine.copy(name)) is not None]
            return render.combined(
                [(copy, self.engine.entries.latest(copy)) for copy in copies], feeds_address(request)
            )

        return feed_response(request, await asyncio.to_thread(build_feed), render.ATOM_TYPE, {})

    async def opml(self, request: Request) -> Response:
        return feed_response(request, render.opml(self.engine.all_names, feeds_address(request)), render.OPML_TYPE, {})


class Controls:
    """What the page may change."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def turn(self, request: Request) -> Response:
        asked = parsed(Turn, await read_json(request), hint='such as {"private": true, "seconds": 600}')
        until = None if asked.until is None else moment(asked.until)
        # On disk before it is reported, and off the loop.
        await asyncio.to_thread(
            self.engine.turn,
            private=asked.private,
            seconds=asked.seconds,
            until=until,
            accept_leak=asked.accept_leak,
        )
        return JSONResponse(privacy_dict(self.engine.switch.position, self.engine.now()))

    async def follow(self, request: Request) -> Response:
        asked = parsed(Rules, await read_json(request), hint='such as {"rules": ["ON mon-fri 09:00-17:00"]}')
        await asyncio.to_thread(self.engine.switch.follow, asked.rules)
        self.engine.board.changed()
        return JSONResponse(self.engine.switch.schedule_as_dict())

    async def refresh(self, request: Request) -> Response:
        await read_json(request)
        refresher = self.engine.refresher
        if refresher is None or not refresher.supported:
            raise InvalidInput("there is no mirror", hint="this server does not tell what changed")
        await asyncio.to_thread(refresher.wait, refresher.soon())
        return JSONResponse(refresher.as_dict())

    async def learn(self, request: Request) -> Response:
        asked = parsed(Learning, await read_json(request), hint='such as {"remember": true}')
        await asyncio.to_thread(self.engine.consent, "page" if asked.remember else None)
        self.engine.board.changed()
        return JSONResponse(self.engine.record.as_dict())

    async def mark_all(self, request: Request) -> Response:
        await read_json(request)
        refresher = self.engine.refresher
        if refresher is not None:
            await asyncio.to_thread(self.engine.marks.opened_all, refresher.mirror.sources(), self.engine.now())
            self.engine.board.changed()
        return JSONResponse(reading(self.engine))


class ForThePage:
    """What the page shows, and its own files."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
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

    async def health(self, _: Request) -> Response:
        return health("well", await asyncio.to_thread(ailments, self.engine))

    async def readiness(self, _: Request) -> Response:
        return health("ready", await asyncio.to_thread(obstacles, self.engine))

    async def metrics(self, _: Request) -> Response:
        return Response(await asyncio.to_thread(self.engine.metrics.render), media_type=CONTENT_TYPE_LATEST)

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
        return StreamingResponse(stream(self.engine), media_type="text/event-stream")
