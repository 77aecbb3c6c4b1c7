"""The HTTP side of the message server.

    POST /v1/query                    a query; answered with frames            anyone
    GET  /v1/catalogue                names, framing, epoch; whole             anyone
    GET  /v1/edition                  the newest edition of the store          anyone
    GET  /v1/changes?since=E          every message that changed since         anyone
    GET  /v1/digests?since=E          digests of frames that changed since     anyone
    POST /v1/sum                      a vector, for readers of several servers anyone
    POST /v1/seen                     the last step of a session               anyone who knows its id
    PUT  /v1/sources/{name}/message   the next message of a source             publishers, by bearer token
    GET  /healthz /readyz /metrics    alive; store answers and what it promises; counts
    GET  /openapi.json /docs          the description, and a page that loads nothing from elsewhere

Plain ASGI functions, and no framework. Every refusal is problem+json with a hint; every answer is
`Cache-Control: no-store`; nothing sets a cookie, a validator or a range, and nothing but changes an encoding.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, TypeVar

import onoff
from onoff import wire
from onoff.errors import InvalidWire, StoreFull, StoreUnavailable, UnknownSource
from onoff.server.answers import Answerer, edition_gone, invalid, now, unavailable
from onoff.server.changes import ChangesBuilder
from onoff.server.connections import Peers, Unread
from onoff.server.http import (
    JSON,
    MAX_CONNECTIONS,
    MAX_PER_ADDRESS,
    Count,
    Metrics,
    Receive,
    Refused,
    Scope,
    Send,
    check_body_headers,
    check_method,
    check_query_headers,
    check_sum_headers,
    is_loopback,
    overloaded,
    read_body,
    refuse_if,
    request_headers,
    send_parts,
    send_problem,
    takes_gzip,
)
from onoff.server.store import Publisher, Store, token_digest
from onoff.server.sums import SumOutcome, SumReply, Sums
from onoff.system.logs import Condition
from onoff.wire import CHANGES_PATH, QUERY_PATH, SUM_PATH, Problem

# The OpenAPI document of `/openapi.json`. Tests compare the server with it by generated requests.

DESCRIPTION = (
    "Keeps the latest message of each of N sources and answers queries for sets of them. "
    "An answer is one frame for each asked source and depends on nothing else."
)
PUBLISH_PATH = "/v1/sources/{name}/message"

_MEANINGS = {
    400: "Not in the one form that is allowed",
    401: "Nobody has this token",
    403: "Not for whoever asks",
    404: "No source of that name",
    408: "The body came too slowly",
    409: "The catalogue has changed, the edition is gone, or the session has sent another query for this step",
    411: "The length is not stated",
    413: "Too long",
    415: "Not the right media type, or encoded",
    503: "Overload, or the store does not answer; try again after Retry-After",
    507: "The store is full",
}

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_INTEGER = {"type": "integer"}
_STRING = {"type": "string"}

_SCHEMAS: dict[str, dict[str, Any]] = {
    "Health": {"status": {"enum": ["ok"]}},
    "Readiness": {
        "status": {"enum": ["ready"]},
        "store": _STRING,
        "durable": {"type": "boolean"},
        "promise": {"type": "string", "description": "what an acknowledged message survives"},
    },
    "Catalogue": {
        "epoch": _INTEGER,
        "frame_size": {"type": "integer", "description": "bytes of every frame, where answers are padded"},
        "limit": {"type": "integer", "description": "bytes of the longest message, where they are not"},
        "sources": {"type": "array", "items": _STRING},
    },
    "Edition": {
        "epoch": _INTEGER,
        "life": _STRING,
        "edition": _INTEGER,
        "digest": _STRING,
        "changed_per_hour": {"type": "integer", "description": "bytes of frames, as a mean over the last day"},
        "longest": {"type": "integer", "description": "bytes of the longest frame, without padding"},
    },
    "Seen": {"step": {"type": ["integer", "null"]}, "sha256": {"type": ["string", "null"]}},
    "Receipt": {
        "source": _STRING,
        "version": {"type": "integer", "minimum": 1},
        "published": {"type": "integer", "description": "milliseconds since 1970"},
    },
    "Problem": {
        "type": _STRING,
        "title": _STRING,
        "status": _INTEGER,
        "hint": {"type": "string", "description": "how to mend it"},
        "epoch": {"type": "integer", "description": f"with {wire.EPOCH_CHANGED}: the epoch that now holds"},
        "step": {"type": "integer", "description": f"with {wire.STEP_CONFLICT}: the last step of the session"},
        "sha256": {"type": "string", "description": f"with {wire.STEP_CONFLICT}: the digest of its bytes"},
        "edition": {"type": "integer", "description": f"with {wire.EDITION_GONE}: the newest that is held"},
    },
}
_EDITION = {"type": "integer", "minimum": 0, "maximum": wire.VERSION_LIMIT - 1}
_OPTIONAL = {"Catalogue": {"frame_size", "limit"}, "Problem": {"epoch", "step", "sha256", "edition"}}


def describe() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {path: {method: operation} for path, method, operation in _operations()}
    token = {"type": "http", "scheme": "bearer"}
    schemas = {name: _schema(name, properties) for name, properties in _SCHEMAS.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "onoff message server", "version": onoff.__version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"publisher": token, "operator": token}},
    }


def _schema(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    required = [key for key in properties if key not in _OPTIONAL.get(name, ())]
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and description of everything that is served."""
    post = (400, 408, 411, 413, 415, 503)
    since = [
        {"name": "since", "in": "query", "required": True, "schema": _EDITION},
        _hexadecimal("life", wire.LIFE_BYTES),
        _hexadecimal("digest", wire.DIGEST_BYTES),
    ]
    yield "/healthz", "get", _does("Alive", "This process serves. It asks nothing of the store.", _json("Health"), 503)
    text = "A query would be answered and a publish kept; else 503 says which not."
    yield "/readyz", "get", _does("Ready", text, _json("Readiness"), 503)
    text = "Counts in Prometheus' text form, none by source, session or client; for the operator alone."
    found = {"text/plain": {"schema": _STRING}}
    yield "/metrics", "get", _does("Counts", text, found, 401, 403, 503, security=[{}, {"operator": []}])
    text = "The sources in the order of their indices, the framing, the epoch."
    yield wire.CATALOGUE_PATH, "get", _does("Catalogue", text, _json("Catalogue"), 503)
    yield wire.EDITION_PATH, "get", _does("Edition", "The newest edition of the store.", _json("Edition"), 503)
    text = (
        "Every message whose last change is after an edition, each once, and the edition they lead to. "
        "Everything, if the edition is 0 or not of this life and digest."
    )
    yield CHANGES_PATH, "get", _does("Changes", text, {wire.CHANGES_TYPE: _BINARY}, 400, 503, parameters=since)
    text = (
        "The SHA-256 of every frame that changed after an edition, and the root over all: what readers of several "
        "servers hold before they ask. All, if the edition is 0 or not of this life and digest."
    )
    wanted = [*since, {"name": "edition", "in": "query", "schema": _EDITION}]
    found = {wire.DIGESTS_TYPE: _BINARY}
    yield wire.DIGESTS_PATH, "get", _does("Digests", text, found, 400, 409, 503, parameters=wanted)
    text = "The latest messages of a set of sources, one frame for each that is not known, ascending."
    form = "version 2 | epoch 6 | session 16 | step 8 | bitmap ceil(N/8) | known 8 each; see the wire format"
    asked = _body({wire.QUERY_TYPE: _BINARY}, form)
    yield QUERY_PATH, "post", _does("Query", text, {wire.ANSWER_TYPE: _BINARY}, *post, 409, requestBody=asked)
    text = "The sum of chunks of messages that a vector asks for, for readers of several servers."
    form = "version 2 | epoch 6 | session 16 | step 8 | edition 8 | digest 32 | K 1 | j 1 | vector"
    asked = _body({wire.SUM_QUERY_TYPE: _BINARY}, form)
    yield SUM_PATH, "post", _does("Sum", text, {wire.SUM_TYPE: _BINARY}, *post, 409, requestBody=asked)
    text = "The last step under a session id, so that a client put back to an earlier state can know."
    asked = _body({wire.ANY_TYPE: _BINARY}, f"a session id of {wire.SESSION_BYTES} bytes")
    yield wire.SEEN_PATH, "post", _does("Seen", text, _json("Seen"), *post, requestBody=asked)
    text = "Make the body the latest message of a source; durable, as /readyz says, once this returns."
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    asked = _body({wire.ANY_TYPE: _BINARY, "text/plain": _BINARY}, "the message")
    publisher = {"security": [{"publisher": []}], "parameters": [name], "requestBody": asked}
    yield PUBLISH_PATH, "put", _does("Publish", text, _json("Receipt"), *post, 401, 403, 404, 507, **publisher)


def _does(summary: str, text: str, found: dict[str, Any], *refusals: int, **more: Any) -> dict[str, Any]:
    problem = {wire.PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    refused = {str(status): {"description": _MEANINGS[status], "content": problem} for status in sorted(refusals)}
    responses = {"200": {"description": "Done", "content": found}, **refused}
    return {"summary": summary, "description": text, "responses": responses, **more}


def _body(content: dict[str, Any], form: str) -> dict[str, Any]:
    return {"required": True, "description": form, "content": content}


def _json(name: str) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _hexadecimal(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string", "pattern": f"^[0-9a-f]{{{2 * size}}}$"}}


# The page at `/docs`: the same for people, in one document that loads nothing.

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}"
    "h2{font:600 1.1rem ui-monospace,monospace;margin-top:2rem}td{padding:.1rem .8rem .1rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)


def docs_page(description: dict[str, Any]) -> str:
    """The page for an OpenAPI document."""
    info = description["info"]
    title = escape(info["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title} {escape(info['version'])}</h1>"
        f'<p>{escape(info["description"])} For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"{''.join(_docs_page_operations(description))}</html>"
    )


def _docs_page_operations(description: dict[str, Any]) -> Iterator[str]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['description'])}</p><table>"
            for parameter in operation.get("parameters", ()):
                yield _row(parameter["name"], f"in the {parameter['in']}")
            if body := operation.get("requestBody"):
                yield _row("body", f"{', '.join(body['content'])}. {body.get('description', '')}")
            for status, response in operation["responses"].items():
                yield _row(status, f"{response['description']} ({', '.join(response['content'])})")
            yield "</table>"


def _row(name: str, text: str) -> str:
    return f"<tr><td>{escape(name)}<td>{escape(text)}"


# Headers of a reverse proxy on this machine, whose loopback address is not that of the client.
_FORWARDED = (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """Whom `/metrics` answers: who polls the counts sees when a query came, and how large it was.

    `digest`: SHA-256 of the token that is then needed, from loopback too.
    """

    anyone: bool = False
    digest: bytes | None = None

    def refusal(self, client: tuple[str, int] | None, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Why a request is refused; None if it is not."""
        if self.anyone:
            return None
        if self.digest is not None:
            if hmac.compare_digest(bearer_digest(headers.get(b"authorization", b"")), self.digest):
                return None
            return Problem(401, "the counts need a token", "send the one in the server's --metrics-token-file")
        if client is not None and is_loopback(client[0]) and not any(name in headers for name in _FORWARDED):
            return None
        return Problem(403, "the counts are told to this machine alone", "start with --metrics-token-file FILE")


def bearer_digest(authorization: bytes) -> bytes:
    """The digest of a bearer token; for any other header a digest that matches no token."""
    scheme, _, token = authorization.decode("latin-1").partition(" ")
    return token_digest(token) if scheme.lower() == "bearer" else bytes(32)


log = logging.getLogger("onoff.server")

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Page(NamedTuple):
    """What a path answers with: the parts of a body, sent no faster than they are read."""

    parts: Sequence[bytes]
    media_type: str = JSON
    encoding: str = ""


Handler = Callable[[Scope, Receive], Awaitable[Page]]


class Route(NamedTuple):
    """What serves a path: by which method, what is counted where it is answered or refused, and whether it works."""

    method: str
    handler: Handler
    condition: Condition
    answered: Count | None = None
    refused: Count | None = None


SOURCE_PATH = re.compile(r"/v1/sources/([^/]+)/message")
MAX_IN_FLIGHT = 512  # requests in work at once, beyond which new ones are shed


class MessageServer:
    """The ASGI application: a method for each path, which returns its reply or raises why there is none."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_connections: int = MAX_CONNECTIONS,
        max_per_address: int = MAX_PER_ADDRESS,
        access: MetricsAccess | None = None,
        leader: str | None = None,
    ) -> None:
        self.store = store
        self.metrics = metrics
        self.answerer = Answerer(store)
        self.sums = Sums(store, self.answerer.shelf)
        self.changes = ChangesBuilder(store, self.answerer.shelf, self.sums.history)
        self._access = access or MetricsAccess()
        self._leader = leader  # the leader, which alone accepts messages, if this server follows one
        self._in_flight = 0
        self._max_in_flight = max_in_flight
        self.peers = Peers(max_connections, max_per_address)
        self.unread = Unread()
        description = describe()
        pages: dict[str, Handler] = {
            "/healthz": _always(Page([b'{"status":"ok"}'])),  # alive: it asks nothing of the store
            "/readyz": self.readiness,
            "/metrics": self.counts,
            "/openapi.json": _always(Page([json.dumps(description).encode()])),
            "/docs": _always(Page([docs_page(description).encode()], "text/html; charset=utf-8")),
            wire.CATALOGUE_PATH: self.catalogue,
            wire.EDITION_PATH: self.edition,
            wire.DIGESTS_PATH: self.digests,
        }
        self._routes = {path: Route("GET", handler, Condition(log)) for path, handler in pages.items()} | {
            wire.SEEN_PATH: Route("POST", self.seen, Condition(log)),
            CHANGES_PATH: Route("GET", self.changes_since, Condition(log), Count.CHANGES, Count.REFUSED),
            QUERY_PATH: Route("POST", self.query, Condition(log), None, Count.REFUSED),
            SUM_PATH: Route("POST", self.sum, Condition(log), Count.SUMS, Count.REFUSED),
        }
        self._publishing = Route("PUT", self.publish, Condition(log), Count.PUBLISHED, Count.PUBLISH_REFUSED)
        self._ready = Condition(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is served")
        if self._in_flight >= self._max_in_flight:
            self.metrics.add(Count.SHED)
            await send_problem(send, overloaded(), close=True)
            return
        self._in_flight += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._in_flight -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply of whatever serves the path, or the one refusal; count it, and log what begins to fail."""
        path = scope["path"]
        route = self._publishing if SOURCE_PATH.fullmatch(path) else self._routes.get(path)
        if route is None:
            await send_problem(send, Problem(404, "nothing is served there", "see /docs for what is served"))
            return
        try:
            check_method(scope, route.method)
            reply = await route.handler(scope, receive)
        except StoreUnavailable as error:
            self.metrics.add(Count.UNAVAILABLE)
            if route is self._publishing:
                route.condition.fails("publishes are not kept: %s", error)
                await send_problem(send, not_kept(error), close=True)
            else:
                route.condition.fails("%s: store unavailable: %s", path, error)
                await send_problem(send, unavailable(error))
        except (Refused, InvalidWire) as error:
            refused = error if isinstance(error, Refused) else Refused(invalid(error))
            if route.refused is not None:
                self.metrics.add(_REFUSALS.get(refused.problem.status, route.refused))
            await send_problem(send, refused.problem, close=refused.close, allow=refused.allow)
        else:
            what = "publishes are kept again" if route is self._publishing else f"{path}: the store answers again"
            route.condition.works("%s", what)
            if route.answered is not None:
                self.metrics.add(route.answered)
            await send_parts(send, reply.parts, reply.media_type, reply.encoding)

    async def query(self, scope: Scope, receive: Receive) -> Page:
        """Answer one query."""
        headers = request_headers(scope)
        refuse_if(check_query_headers(headers))
        answer = _unless_refused(await self.answerer.answer(await read_body(receive), gzip=takes_gzip(headers)))
        self.metrics.add_answer(answer.frames)
        return Page(answer.parts, wire.ANSWER_TYPE, answer.encoding)

    async def sum(self, scope: Scope, receive: Receive) -> Page:
        """Answer one sum query."""
        refuse_if(check_sum_headers(request_headers(scope)))
        return Page([_unless_refused(await self.sums.answer(await read_body(receive)))], wire.SUM_TYPE)

    def sum_now(self, body: bytes, reply: SumReply) -> bool:
        """Queue a sum query for the next pass; False where it needs the ordinary path. For stores that never wait."""
        if self._in_flight >= self._max_in_flight:
            return False

        def finish(outcome: SumOutcome) -> None:
            self._in_flight -= 1
            if isinstance(outcome, bytes):
                self.metrics.add(Count.SUMS)
            reply(outcome)

        if now(self.sums.ask(body, finish)) is not True:
            return False
        self._in_flight += 1
        return True

    async def changes_since(self, scope: Scope, receive: Receive) -> Page:
        """All that changed since an edition."""
        headers = request_headers(scope)
        if headers.get(b"content-length", b"0") != b"0":
            raise Refused(Problem(400, "a request for changes with a body", "send none"), close=True)
        since = wire.decode_since(scope["query_string"].decode("latin-1"))
        reply = await self.changes.reply(since, gzip=takes_gzip(headers))
        return Page(reply.parts, wire.CHANGES_TYPE, reply.encoding)

    async def publish(self, scope: Scope, receive: Receive) -> Page:
        """Make the body the latest message of a source."""
        if self._leader is not None:
            raise Refused(Problem(403, "this server follows another one", f"publish to {self._leader}"), close=True)
        headers, name = request_headers(scope), scope["path"].split("/")[3]
        publisher = await authenticate(self.store, headers.get(b"authorization", b""))
        with _refused_as(400, close=True):
            wire.check_name(name)
        catalogue = await self.store.catalogue()
        if name not in catalogue.index:
            raise Refused(Problem(404, "no source of that name", "see /v1/catalogue"), close=True)
        if not publisher.may_write(name):
            raise Refused(Problem(403, "this publisher may not write that source", "use its own token"), close=True)
        refuse_if(check_body_headers(headers, limit=catalogue.limit))
        with _refused_as(415, close=True):
            media_type = wire.check_media_type(headers.get(b"content-type", wire.ANY_TYPE.encode()).decode("latin-1"))
        body = await read_body(receive)
        with _refused_as(413):  # or 404: the catalogue changed in between
            message = await self.store.publish(name, media_type, body, time.time_ns() // 1_000_000)
        receipt = {"source": name, "version": message.version, "published": message.published}
        return Page([json.dumps(receipt, ensure_ascii=False).encode()])

    async def readiness(self, scope: Scope, receive: Receive) -> Page:
        """Ready: a query would be answered and a publish kept, and what an acknowledged message survives."""
        found = await self.store.readiness()
        if not (found.answers and found.keeps):
            self._ready.fails("not ready: %s", found.reason)
            cannot = "store messages" if found.answers else "answer queries or store messages"
            raise Refused(Problem(503, f"not ready: cannot {cannot}", "the log of the server says why"))
        promise = await self.store.promise()
        self._ready.works("ready again")
        fields = {"status": "ready", "store": promise.kind, "durable": promise.durable, "promise": promise.says}
        return Page([json.dumps(fields, separators=(",", ":")).encode()])

    async def counts(self, scope: Scope, receive: Receive) -> Page:
        """Counts in Prometheus' text form, for the operator only: they show times and sizes of queries."""
        problem = self._access.refusal(scope["client"], request_headers(scope))
        if problem is not None:
            raise Refused(problem)
        return Page([self.metrics.render()], METRICS_TYPE)

    async def catalogue(self, scope: Scope, receive: Receive) -> Page:
        """The names of all sources in the order of their indices, the framing, and the epoch that names both."""
        return Page([wire.encode_catalogue(await self.store.catalogue())])

    async def edition(self, scope: Scope, receive: Receive) -> Page:
        """The newest edition: its number, the life of the store it counts in, and the digest of all that led to it."""
        return Page([wire.encode_edition(await self.changes.edition())])

    async def digests(self, scope: Scope, receive: Receive) -> Page:
        """The digests of frames that changed since an edition, for readers of several servers."""
        found = await self.changes.digests(wire.decode_wanted_digests(scope["query_string"].decode("latin-1")))
        if isinstance(found, int):
            raise Refused(edition_gone(found))
        return Page([found], wire.DIGESTS_TYPE)

    async def seen(self, scope: Scope, receive: Receive) -> Page:
        """The last step that came under a session id, so that a client put back to an earlier state can know."""
        refuse_if(check_body_headers(request_headers(scope), limit=wire.SESSION_BYTES))
        session = await read_body(receive)
        if len(session) != wire.SESSION_BYTES:
            raise Refused(Problem(400, "not a session id", f"send its {wire.SESSION_BYTES} bytes"))
        last = await self.store.last_step(session)
        return Page([wire.encode_seen(None if last is None else wire.Seen(last.step, last.digest.hex()))])

    async def close(self) -> None:
        """Stop the background tasks."""
        await self.sums.close()


_REFUSALS = {409: Count.CONFLICTS, 503: Count.UNAVAILABLE}
_T = TypeVar("_T")


def _unless_refused(outcome: _T | Problem) -> _T:
    if isinstance(outcome, Problem):
        raise Refused(outcome)
    return outcome


@contextmanager
def _refused_as(status: int, *, close: bool = False) -> Iterator[None]:
    """What is wrong inside is refused with this status; a source that is unknown with 404."""
    try:
        yield
    except (InvalidWire, UnknownSource) as error:
        status = 404 if isinstance(error, UnknownSource) else status
        raise Refused(Problem(status, error.message, error.hint or ""), close=close) from None


def _always(reply: Page) -> Handler:
    async def handler(scope: Scope, receive: Receive) -> Page:
        return reply

    return handler


def not_kept(error: StoreUnavailable) -> Problem:
    """The refusal of a publish: the store is full, or does not answer."""
    if isinstance(error, StoreFull):
        return Problem(507, "the store of messages is full", "tell the operator; then send it again")
    return unavailable(error)


async def authenticate(store: Store, authorization: bytes) -> Publisher:
    """The publisher of a token. All publishers are compared, each in constant time."""
    digest = bearer_digest(authorization)
    found: Publisher | None = None
    for publisher in await store.publishers():
        if hmac.compare_digest(publisher.digest, digest):
            found = publisher
    if found is None:
        raise Refused(
            Problem(401, "no publisher has this token", "make one with `onoff serve --add-publisher NAME`"), close=True
        )
    return found
