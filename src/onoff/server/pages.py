"""The pages that the framework serves and describes: everything but queries and messages."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

import onoff
from onoff import wire
from onoff.errors import StoreUnavailable
from onoff.server import openapi
from onoff.server.answer import unavailable
from onoff.server.changes import Changes
from onoff.server.exchange import (
    Receive,
    Refused,
    Scope,
    Send,
    problem_headers,
    read_body,
    refuse_if,
    request_headers,
)
from onoff.server.head import check_body_headers
from onoff.server.metrics import Count, Metrics
from onoff.server.store import Store
from onoff.wire import Problem, encode_problem

log = logging.getLogger("onoff.server")


class Health(BaseModel):
    status: str = Field(examples=["ok"])


class Readiness(BaseModel):
    status: str = Field(examples=["ready"])
    store: str = Field(examples=["sqlite"])
    durable: bool
    promise: str


class CatalogueBody(BaseModel):
    epoch: int
    frame_size: int | None = Field(default=None, description="bytes of every frame, where answers are padded")
    limit: int | None = Field(default=None, description="bytes of the longest message, where they are not")
    sources: list[str]


class EditionBody(BaseModel):
    epoch: int
    life: str
    edition: int
    digest: str
    changed_per_hour: int = Field(description="bytes of frames, as a mean over the last day")


class SeenBody(BaseModel):
    step: int | None
    sha256: str | None


def build_pages(store: Store, metrics: Metrics, changes: Changes) -> FastAPI:
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

    @app.get(wire.EDITION_PATH, response_model=EditionBody, responses=openapi.refusals(503))
    async def edition() -> Response:
        """The newest edition: its number, the life of the store it counts in, and the digest of all that led to it."""
        return Response(wire.encode_edition(await changes.edition()), media_type="application/json")

    @app.post(
        wire.SEEN_PATH,
        response_model=SeenBody,
        responses=openapi.refusals(400, 408, 411, 413, 415, 503),
        openapi_extra=openapi.SEEN,
    )
    async def seen(request: Request) -> Response:
        """The last step that came under a session id, so that a client put back to an earlier state can know."""
        refuse_if(check_body_headers(request_headers(request.scope), limit=wire.SESSION_BYTES))
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


def problem_response(problem: Problem, *, close: bool = False) -> Response:
    body = encode_problem(problem)
    headers = {k.decode(): v.decode() for k, v in problem_headers(problem, len(body), close=close)}
    return Response(body, problem.status, headers)


# Around the framework.


async def serve_page(pages: FastAPI, scope: Scope, receive: Receive, send: Send) -> None:
    """Let the framework answer, whole and for this moment only."""
    await pages(_unconditional(scope), receive, _uncached(send))


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
