"""The HTTP side of the message server.

    POST /v1/query                    a query; answered with frames            anyone
    GET  /v1/catalogue                names, frame size, epoch; whole          anyone
    POST /v1/seen                     the last step of a session               anyone who knows its id
    PUT  /v1/sources/{name}/message   the next message of a source             publishers, by bearer token
    GET  /healthz /readyz /metrics    alive; store answers and what it promises; counts
    GET  /openapi.json /docs          the description, and a page that loads nothing from elsewhere

Queries and messages take a short way, plain ASGI functions before the framework, because they are nearly all of
the traffic. The framework serves the rest, and describes it all. Every refusal is problem+json with a hint;
every answer is `Cache-Control: no-store`; nothing sets a cookie, a validator, a range or an encoding.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

import onoff
from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable, UnknownSource
from onoff.server import openapi
from onoff.server.answer import RETRY_SECONDS, Answer, Answerer, answer_headers, unavailable
from onoff.server.metrics import Count, Metrics
from onoff.server.store import Publisher, Store, token_digest
from onoff.wire import MAX_QUERY, PROBLEM_TYPE, QUERY_PATH, QUERY_TYPE, Problem, encode_problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("onoff.server")

BODY_SECONDS = 10.0  # within which a request's body must arrive
WRITE_SECONDS = 30.0  # within which a reader must take each piece of an answer
PIECE_BYTES = 256 * 1024
ABORT = "onoff.abort"  # in the scope: what cuts the connection
SOURCE_PATH = re.compile(r"/v1/sources/([^/]+)/message")
MAX_IN_FLIGHT = 512  # requests in work at once, beyond which new ones are shed
MAX_CONNECTIONS = 4096  # open at once, beyond which new ones are turned away


class Refused(Exception):
    """A request that ends with a problem. `close`: its body was not read, so the connection cannot go on."""

    def __init__(self, problem: Problem, *, close: bool = False, allow: str = "") -> None:
        super().__init__(problem.title)
        self.problem = problem
        self.close = close
        self.allow = allow


class MessageServer:
    """The ASGI application."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.store = store
        self.metrics = metrics
        self.answerer = Answerer(store)
        self.pages = build_pages(store, metrics)
        self._in_flight = 0
        self._max_in_flight = max_in_flight
        self.max_connections = max_connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is served")
        if self._in_flight >= self._max_in_flight:
            self.metrics.add(Count.SHED)
            await send_problem(send, overloaded(), close=True)
            return
        self._in_flight += 1
        try:
            if scope["path"] == QUERY_PATH:
                await self.query(scope, receive, send)
            elif source := SOURCE_PATH.fullmatch(scope["path"]):
                await self.publish(source[1], scope, receive, send)
            else:
                await self.pages(_unconditional(scope), receive, _uncached(send))
        finally:
            self._in_flight -= 1

    async def query(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one query."""
        try:
            check_method(scope, "POST")
            headers = check_body_headers(scope, limit=MAX_QUERY)
            if headers.get(b"content-type") != QUERY_TYPE.encode():
                raise Refused(
                    Problem(415, "not the media type of a query", f"send Content-Type: {QUERY_TYPE}"), close=True
                )
            body = await read_body(receive)
        except Refused as refused:
            self.metrics.add(Count.REFUSED)
            await send_problem(send, refused.problem, close=refused.close, allow=refused.allow)
            return
        outcome = await self.answerer.answer(body)
        self.count(outcome)
        if isinstance(outcome, Problem):
            await send_problem(send, outcome)
        else:
            try:
                await send_answer(send, outcome)
            except TimeoutError:
                self.metrics.add(Count.CUT_OFF)
                scope[ABORT]()
                await asyncio.sleep(0)  # the connection learns that it is lost

    async def publish(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the body the latest message of a source."""
        try:
            check_method(scope, "PUT")
            receipt = await _publish(self.store, name, scope, receive)
        except Refused as refused:
            self.metrics.add(Count.PUBLISH_REFUSED)
            await send_problem(send, refused.problem, close=refused.close, allow=refused.allow)
        except StoreUnavailable as error:
            self.metrics.add(Count.UNAVAILABLE)
            log.warning("store unavailable: %s", error)
            await send_problem(send, unavailable(error), close=True)
        else:
            self.metrics.add(Count.PUBLISHED)
            body = json.dumps(receipt, ensure_ascii=False).encode()
            await send({"type": "http.response.start", "status": 200, "headers": json_headers(len(body))})
            await send({"type": "http.response.body", "body": body})

    def count_answer(self, frames: int) -> None:
        self.metrics.add(Count.ANSWERED)
        self.metrics.add(Count.ANSWERED_FRAMES, frames)

    def count(self, outcome: Answer | Problem) -> None:
        """Add an outcome to the counts."""
        if isinstance(outcome, Answer):
            self.count_answer(len(outcome.frames))
        elif outcome.status == HTTPStatus.CONFLICT:
            self.metrics.add(Count.CONFLICTS)
        elif outcome.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.metrics.add(Count.UNAVAILABLE)
        else:
            self.metrics.add(Count.REFUSED)


def overloaded() -> Problem:
    return Problem(503, "the server has more requests than it can serve", "send the same request again in a moment")


# Reading.


def check_method(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise Refused(Problem(405, "not a method that is served here", f"use {method}"), close=True, allow=method)


def check_body_headers(scope: Scope, *, limit: int) -> dict[bytes, bytes]:
    """The headers of a request whose body has a stated length up to `limit` and no encoding."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length")
    if length is None or not length.isdigit() or b"transfer-encoding" in headers:
        raise Refused(Problem(411, "the length of the body is not stated", "send Content-Length"), close=True)
    if int(length) > limit:
        raise Refused(Problem(413, f"a body of {int(length)} bytes", f"at most {limit} bytes"), close=True)
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Refused(Problem(415, "an encoded body", "send it as it is, without Content-Encoding"), close=True)
    return headers


async def read_body(receive: Receive) -> bytes:
    """The whole body; its length was stated and checked, and the parser holds the sender to it."""
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
    """Send frames in pieces, no faster than they are read. TimeoutError: nobody reads."""
    await send({"type": "http.response.start", "status": 200, "headers": answer_headers(answer.length)})
    frames = answer.frames
    per_piece = max(1, PIECE_BYTES * len(frames) // answer.length)
    for start in range(0, len(frames), per_piece):
        more = start + per_piece < len(frames)
        piece = b"".join(frames[start : start + per_piece])
        async with asyncio.timeout(WRITE_SECONDS):
            await send({"type": "http.response.body", "body": piece, "more_body": more})


def json_headers(length: int, kind: str = "application/json") -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", kind.encode()),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % length),
    ]


def problem_headers(
    problem: Problem, length: int, *, close: bool = False, allow: str = ""
) -> list[tuple[bytes, bytes]]:
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
    body = encode_problem(problem)
    headers = problem_headers(problem, len(body), close=close, allow=allow)
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def problem_response(problem: Problem, *, close: bool = False) -> Response:
    body = encode_problem(problem)
    headers = {k.decode(): v.decode() for k, v in problem_headers(problem, len(body), close=close)}
    return Response(body, problem.status, headers)


def _unconditional(scope: Scope) -> Scope:
    """The request without what would make its answer partial or empty."""
    unwanted = {b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"}
    return {**scope, "headers": [header for header in scope["headers"] if header[0] not in unwanted]}


def _uncached(send: Send) -> Send:
    """A `send` that makes every answer of the framework `no-store` and takes validators and ranges off."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            unwanted = {b"cache-control", b"etag", b"last-modified", b"accept-ranges"}
            kept = [(name, value) for name, value in message["headers"] if name.lower() not in unwanted]
            message["headers"] = [*kept, (b"cache-control", b"no-store")]
        await send(message)

    return sending


# The pages that the framework serves and describes.


class Health(BaseModel):
    status: str = Field(examples=["ok"])


class Readiness(BaseModel):
    status: str = Field(examples=["ready"])
    store: str = Field(examples=["sqlite"])
    durable: bool
    promise: str


class CatalogueBody(BaseModel):
    epoch: int
    frame_size: int
    sources: list[str]


class SeenBody(BaseModel):
    step: int | None
    sha256: str | None


def build_pages(store: Store, metrics: Metrics) -> FastAPI:
    """Everything but queries and messages."""
    app: FastAPI = FastAPIOffline(
        title="onoff message server",
        version=onoff.__version__,
        redoc_url=None,
        description=openapi.DESCRIPTION,
    )
    app.openapi = openapi.describe(app)  # type: ignore[method-assign]

    @app.get("/healthz", responses=openapi.refusals(503))
    async def healthz() -> Health:
        """Alive: this process serves. It asks nothing of the store."""
        return Health(status="ok")

    @app.get("/readyz", responses=openapi.refusals(503))
    async def readyz() -> Readiness:
        """Ready: the store answers. It says what an acknowledged message survives."""
        promise = await store.promise()
        return Readiness(status="ready", store=promise.kind, durable=promise.durable, promise=promise.says)

    @app.get("/metrics", response_class=Response, responses=openapi.metrics())
    async def metrics_page() -> Response:
        """Counts in Prometheus' text form; none by source, session or client."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get(wire.CATALOGUE_PATH, response_model=CatalogueBody, responses=openapi.refusals(503))
    async def catalogue() -> Response:
        """The names of all sources in the order of their indices, the frame size, and the epoch that names both."""
        return Response(wire.encode_catalogue(await store.catalogue()), media_type="application/json")

    @app.post(
        wire.SEEN_PATH,
        response_model=SeenBody,
        responses=openapi.refusals(400, 408, 411, 413, 415, 503),
        openapi_extra=openapi.SEEN,
    )
    async def seen(request: Request) -> Response:
        """The last step that came under a session id, so that a client put back to an earlier state can know."""
        check_body_headers(request.scope, limit=wire.SESSION_BYTES)
        session = await read_body(request.receive)
        if len(session) != wire.SESSION_BYTES:
            raise Refused(Problem(400, "not a session id", f"send its {wire.SESSION_BYTES} bytes"))
        last = await store.last_step(session)
        told = None if last is None else wire.Seen(last.step, last.digest.hex())
        return Response(wire.encode_seen(told), media_type="application/json")

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return problem_response(error.problem, close=error.close)

    @app.exception_handler(StoreUnavailable)
    async def no_store(_: Request, error: StoreUnavailable) -> Response:
        metrics.add(Count.UNAVAILABLE)
        log.warning("store unavailable: %s", error)
        return problem_response(unavailable(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return problem_response(Problem(422, "the request does not follow the description", "see /openapi.json"))

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        title = HTTPStatus(error.status_code).phrase
        response = problem_response(Problem(error.status_code, title, "see /docs for what is served"))
        response.headers.update(error.headers or {})
        return response

    return app


async def _publish(store: Store, name: str, scope: Scope, receive: Receive) -> dict[str, Any]:
    headers = dict(scope["headers"])
    publisher = await authenticate(store, headers.get(b"authorization", b"").decode("latin-1"))
    try:
        wire.check_name(name)
    except InvalidWire as error:
        raise Refused(Problem(400, error.message, error.hint or ""), close=True) from None
    catalogue = await store.catalogue()
    if name not in catalogue.index:
        raise Refused(Problem(404, "no source of that name", "see /v1/catalogue"), close=True)
    if not publisher.may_write(name):
        raise Refused(Problem(403, "this publisher may not write that source", "use its own token"), close=True)
    check_body_headers(scope, limit=wire.capacity(catalogue.frame_size))
    try:
        media_type = wire.check_media_type(headers.get(b"content-type", wire.ANY_TYPE.encode()).decode("latin-1"))
    except InvalidWire as error:
        raise Refused(Problem(415, error.message, error.hint or ""), close=True) from None
    body = await read_body(receive)
    try:
        message = await store.publish(name, media_type, body, time.time_ns() // 1_000_000)
    except (InvalidWire, UnknownSource) as error:  # the catalogue changed in between
        status = 413 if isinstance(error, InvalidWire) else 404
        raise Refused(Problem(status, error.message, error.hint or "")) from None
    return {"source": name, "version": message.version, "published": message.published}


async def authenticate(store: Store, authorization: str) -> Publisher:
    """Whose token it is. Every publisher is compared, in constant time, whichever matches."""
    scheme, _, token = authorization.partition(" ")
    digest = token_digest(token) if scheme.lower() == "bearer" else bytes(32)
    found: Publisher | None = None
    for publisher in await store.publishers():
        if hmac.compare_digest(publisher.digest, digest):
            found = publisher
    if found is None:
        raise Refused(
            Problem(401, "no publisher has this token", "make one with `onoff serve --add-publisher NAME`"), close=True
        )
    return found
