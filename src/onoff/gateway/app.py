"""The HTTP side of the gateway. Every request passes the guard. `/api` on the page has a curl line for each call.

    GET /v1/sources            the names of the sources                                      app or page token
    GET /v1/sources/NAME       the latest message of a source: one request of the person     app or page token
    GET /v1/entries/NAME       the same as entries to read, in JSON, their HTML cleaned      app or page token
    GET /v1/feeds/NAME         a source as an Atom feed, from the mirror: not a request      app or page token
    GET /v1/feeds              all sources as one Atom feed, newest first                    app or page token
    GET /v1/feeds.opml         the addresses of all feeds, for a feed reader to import       app or page token
    GET, PUT /v1/privacy       the switch: {"private": true, "seconds": 600} or "until"      page token
    GET, PUT /v1/schedule      when it turns by itself: {"rules": [...]}; see `schedule`     page token
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
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
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
from onoff.errors import BadAnswer, CatalogueMismatch, InvalidInput, OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway import feed, present
from onoff.gateway.engine import Changed, Engine
from onoff.gateway.guard import MESSAGE_POLICY, PREFIX_KEY, Guard, guarded
from onoff.gateway.jobs import Busy, Superseded

HERE: Final = Path(__file__).parent
STREAM_BEAT_SECONDS: Final = 15.0
LONGEST_BODY: Final = 4096

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


class Turn(BaseModel):
    """What PUT /v1/privacy takes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    private: bool
    seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None
    until: str | None = None


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
    """A body of JSON as what it should be. Raises InvalidInput that names the field.

    Parameters
    ----------
    kind
        What it should be.
    body
        What came.
    hint
        How to mend it.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise InvalidInput(f"{where}: {first['msg']}", hint=hint) from None


class Streams:
    """The open event streams, which all end when the gateway does. Used on one event loop."""

    def __init__(self) -> None:
        self.closing = False
        self._waiting: set[asyncio.Event] = set()

    @contextlib.contextmanager
    def open(self) -> Iterator[asyncio.Event]:
        """An event for a new stream, which is also set when everything closes."""
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            yield news
        finally:
            self._waiting.discard(news)

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        for news in self._waiting:
            news.set()


def build_app(engine: Engine, guard: Guard, streams: Streams) -> ASGIApp:
    """The application behind its guard.

    Parameters
    ----------
    engine
        What the page and apps ask.
    guard
        Who may ask.
    streams
        The event streams that are open.
    """
    pages = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined)

    def page(name: str) -> HTMLResponse:
        return HTMLResponse(pages.get_template(name).render(version=onoff.__version__))

    async def home(_: Request) -> Response:
        return page("page.html")

    async def limits(_: Request) -> Response:
        return page("limits.html")

    async def api(_: Request) -> Response:
        return page("api.html")

    async def sources(_: Request) -> Response:
        return JSONResponse({"sources": list(engine.names)})

    async def message(request: Request) -> Response:
        return message_response(await fetch(request), browser=request.headers.get("sec-fetch-dest") is not None)

    async def entries(request: Request) -> Response:
        found = await fetch(request)
        engine.marks.opened(found.source, found.version, engine.now())
        engine.board.changed()
        listed = await asyncio.to_thread(engine.entries, found)  # cleaning takes time, and others are served
        body = {"source": found.source, "entries": [entry.as_dict() for entry in listed]}
        return JSONResponse(body, headers=message_headers(found))

    async def message_feed(request: Request) -> Response:
        name = request.path_params["name"]
        found: Copy | None = await asyncio.to_thread(engine.copy, name)
        if found is None:
            found = await fetch(request)  # without a mirror each look is a request
        address = f"{feeds_address(request)}/{quote(name)}"
        body = await asyncio.to_thread(feed.atom, found, address)
        return feed_response(request, body, feed.ATOM_TYPE, message_headers(found))

    async def all_feeds(request: Request) -> Response:
        def build_feed() -> bytes:
            copies = [copy for name in engine.names if (copy := engine.copy(name)) is not None]
            return feed.combined(copies, feeds_address(request))

        return feed_response(request, await asyncio.to_thread(build_feed), feed.ATOM_TYPE, {})

    async def opml(request: Request) -> Response:
        return feed_response(request, feed.opml(engine.names, feeds_address(request)), feed.OPML_TYPE, {})

    async def refresh(request: Request) -> Response:
        await read_json(request)
        if engine.refresher is None or not engine.refresher.supported:
            raise InvalidInput("there is no mirror", hint="this server does not tell what changed")
        attempt = engine.refresher.refresh_soon()
        await asyncio.to_thread(engine.refresher.wait, attempt)
        return JSONResponse(engine.refresher.as_dict())

    async def reading(_: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(engine.reading))

    async def mark_all(request: Request) -> Response:
        await read_json(request)
        if engine.refresher is not None:
            engine.marks.opened_all(engine.refresher.mirror.sources(), engine.now())
            engine.board.changed()
        return JSONResponse(engine.reading())

    async def fetch(request: Request) -> Message:
        expected = request.headers.get("x-privacy-expected")
        if expected not in {None, "on", "off"}:
            raise InvalidInput("X-Privacy-Expected is neither on nor off", hint="send one of them, or leave it out")
        key = request.headers.get("idempotency-key")
        asked = engine.request(
            request.path_params["name"], key=key, expected=None if expected is None else expected == "on"
        )
        # Shielded: who goes away does not take a request back that may be on its way.
        return await asyncio.shield(asyncio.wrap_future(asked))

    async def read_privacy(_: Request) -> Response:
        return JSONResponse(privacy_dict(engine))

    async def turn(request: Request) -> Response:
        asked = parsed(Turn, await read_json(request), hint='such as {"private": true, "seconds": 600}')
        until = None if asked.until is None else moment(asked.until)
        # On disk before it is reported, and off the loop.
        await asyncio.to_thread(engine.turn, private=asked.private, seconds=asked.seconds, until=until)
        return JSONResponse(privacy_dict(engine))

    async def read_schedule(_: Request) -> Response:
        return JSONResponse(engine.schedule())

    async def follow(request: Request) -> Response:
        asked = parsed(Rules, await read_json(request), hint='such as {"rules": ["ON mon-fri 09:00-17:00"]}')
        await asyncio.to_thread(engine.switch.follow, asked.rules)
        engine.board.changed()
        return JSONResponse(engine.schedule())

    async def read_learning(_: Request) -> Response:
        return JSONResponse(engine.record.as_dict())

    async def learning(request: Request) -> Response:
        asked = parsed(Learning, await read_json(request), hint='such as {"remember": true}')
        if asked.remember:
            await asyncio.to_thread(engine.record.remember, "page")
        else:
            await asyncio.to_thread(engine.record.forget)
        engine.board.changed()
        return JSONResponse(engine.record.as_dict())

    async def log(_: Request) -> Response:
        return Response("".join(engine.log.lines()), media_type="application/jsonl")

    async def state(_: Request) -> Response:
        return JSONResponse(engine.snapshot())

    async def events(_: Request) -> Response:
        return StreamingResponse(stream(engine, streams), media_type="text/event-stream")

    routes = [
        Route("/", home),
        Route("/limits", limits),
        Route("/api", api),
        Route("/v1/sources", sources),
        Route("/v1/sources/{name}", message),
        Route("/v1/entries/{name}", entries),
        Route("/v1/feeds", all_feeds),
        Route("/v1/feeds.opml", opml),
        Route("/v1/feeds/{name}", message_feed),
        Route("/v1/refresh", refresh, methods=["PUT"]),
        Route("/v1/reading", reading, methods=["GET"]),
        Route("/v1/reading", mark_all, methods=["PUT"]),
        Route("/v1/privacy", read_privacy, methods=["GET"]),
        Route("/v1/privacy", turn, methods=["PUT"]),
        Route("/v1/schedule", read_schedule, methods=["GET"]),
        Route("/v1/schedule", follow, methods=["PUT"]),
        Route("/v1/learning", read_learning, methods=["GET"]),
        Route("/v1/learning", learning, methods=["PUT"]),
        Route("/v1/log", log),
        Route("/v1/state", state),
        Route("/v1/events", events),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    handlers: dict[Any, Any] = {OnOffError: our_error, HTTPException: http_error}
    inner = Starlette(routes=routes, exception_handlers=handlers)
    inner.router.redirect_slashes = False  # every path has one form
    return guarded(inner, guard)


async def stream(engine: Engine, streams: Streams) -> AsyncIterator[str]:
    """The state now and after every change; a comment now and then, so that a lost reader is noticed."""
    loop = asyncio.get_running_loop()
    with streams.open() as news:

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over, and with it this reader
                loop.call_soon_threadsafe(news.set)

        stop = engine.board.watch(tell)
        shown = -1
        try:
            while not streams.closing:
                news.clear()
                position = engine.position  # a timer that ran out counts as a change
                if engine.board.revision == shown:
                    yield ":\n\n"
                else:
                    state = engine.snapshot()
                    shown = state["revision"]
                    yield f"id: {state['start']}-{shown}\nevent: state\ndata: {json.dumps(state)}\n\n"
                patience = STREAM_BEAT_SECONDS
                if position.until is not None:
                    patience = min(patience, max(0.0, position.until - engine.now()) + 0.01)
                # No task is made here: closing the page cancels this coroutine, and nothing is left behind.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await news.wait()
        finally:
            stop()


# -- forms -------------------------------------------------------------------------------------------------


def feeds_address(request: Request) -> str:
    """The address of this gateway's feeds for the caller, with the token of the request's path."""
    return f"http://{request.headers['host']}{quote(request.scope[PREFIX_KEY])}/v1/feeds"


def feed_response(request: Request, body: bytes, kind: str, headers: dict[str, str]) -> Response:
    """A feed, or 304 where the reader has it already.

    Parameters
    ----------
    request
        Whose `If-None-Match` is looked at.
    body
        The feed.
    kind
        Its media type.
    headers
        Further ones.
    """
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**headers, "content-type": kind, "etag": tag, "cache-control": "no-cache"}
    held = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
    if tag in held or "*" in held:
        return Response(status_code=304, headers={name: headers[name] for name in ("etag", "cache-control")})
    return Response(body, headers=headers)


def message_headers(message: Copy) -> dict[str, str]:
    """Mode, cost and time of a message; and that, wherever it is shown, it loads nothing."""
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
        published = present.moment_of(message.published)
        headers["x-message-time"] = published.isoformat(timespec="milliseconds")
        headers["last-modified"] = format_datetime(published, usegmt=True)
    return headers


def message_response(message: Message, *, browser: bool) -> Response:
    """A message as a download, or in a form that a browser may show."""
    if not message.version:
        return Response(status_code=204, headers=message_headers(message))  # nothing was published yet
    body, headers = present.for_browser(message) if browser else present.for_program(message)
    return Response(body, headers={**headers, **message_headers(message)})


def privacy_dict(engine: Engine) -> dict[str, Any]:
    position = engine.position
    until = None if position.until is None else datetime.fromtimestamp(position.until, UTC).isoformat()
    left = None if position.until is None else max(0.0, round(position.until - engine.now(), 3))
    return {"private": position.private, "until": until, "remaining": left, "ran_out": position.ran_out is not None}


def moment(text: str) -> float:
    """A time of day and date with its zone, as seconds since 1970."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput("until: not a time with a zone", hint="such as 2030-01-31T18:00:00+01:00")
    return found.timestamp()


async def read_json(request: Request) -> bytes:
    """The body of a request that says that it is JSON. Raises HTTPException with 415 otherwise."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body is not JSON")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_BODY:
            raise InvalidInput("the body is too long", hint='such as {"private": true}')
    return body


def problem(status: int, title: str, hint: str | None) -> Response:
    """A refusal as problem+json.

    Parameters
    ----------
    status
        Of HTTP.
    title
        What is wrong.
    hint
        How to mend it.
    """
    body = json.dumps({"status": status, "title": title, "hint": hint}, ensure_ascii=False)
    return Response(body, status, media_type="application/problem+json")


async def our_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, OnOffError)
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    return problem(status, error.message, error.hint)


async def http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, None)
