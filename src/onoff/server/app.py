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
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any, NamedTuple

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
    reply_headers,
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
    return {
        "openapi": "3.1.0",
        "info": {"title": "onoff message server", "version": onoff.__version__, "description": DESCRIPTION},
        "paths": {path: {method: operation} for path, method, operation in _operations()},
        "components": {
            "schemas": {name: _schema(name, properties) for name, properties in _SCHEMAS.items()},
            "securitySchemes": {
                "publisher": {"type": "http", "scheme": "bearer"},
                "operator": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _schema(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    required = [key for key in properties if key not in _OPTIONAL.get(name, ())]
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        ("/healthz", "get", _get("Alive", "This process serves. It asks nothing of the store.", _json("Health"))),
        (
            "/readyz",
            "get",
            _get("Ready", "A query would be answered and a publish kept; else 503 says which not.", _json("Readiness")),
        ),
        (
            "/metrics",
            "get",
            _get(
                "Counts",
                "Counts in Prometheus' text form, none by source, session or client; for the operator alone.",
                {"text/plain": {"schema": _STRING}},
                401,
                403,
                security="operator",
            ),
        ),
        (
            wire.CATALOGUE_PATH,
            "get",
            _get("Catalogue", "The sources in the order of their indices, the framing, the epoch.", _json("Catalogue")),
        ),
        (wire.EDITION_PATH, "get", _get("Edition", "The newest edition of the store.", _json("Edition"))),
        (wire.CHANGES_PATH, "get", _changes()),
        (wire.DIGESTS_PATH, "get", _digests()),
        (
            wire.QUERY_PATH,
            "post",
            _post(
                "Query",
                "The latest messages of a set of sources, one frame for each that is not known, ascending.",
                {wire.QUERY_TYPE: _BINARY},
                "version 2 | epoch 6 | session 16 | step 8 | bitmap ceil(N/8) | known 8 each; see the wire format",
                {wire.ANSWER_TYPE: _BINARY},
                409,
            ),
        ),
        (
            wire.SUM_PATH,
            "post",
            _post(
                "Sum",
                "The sum of chunks of messages that a vector asks for, for readers of several servers.",
                {wire.SUM_QUERY_TYPE: _BINARY},
                "version 2 | epoch 6 | session 16 | step 8 | edition 8 | digest 32 | K 1 | j 1 | vector",
                {wire.SUM_TYPE: _BINARY},
                409,
            ),
        ),
        (
            wire.SEEN_PATH,
            "post",
            _post(
                "Seen",
                "The last step under a session id, so that a client put back to an earlier state can know.",
                {wire.ANY_TYPE: _BINARY},
                f"a session id of {wire.SESSION_BYTES} bytes",
                _json("Seen"),
            ),
        ),
        (PUBLISH_PATH, "put", _publish()),
    ]


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _responses(content: dict[str, Any], *statuses: int) -> dict[str, Any]:
    problem = {wire.PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    refusals = {str(status): {"description": _MEANINGS[status], "content": problem} for status in sorted(statuses)}
    return {"200": {"description": "Done", "content": content}, **refusals}


def _get(summary: str, text: str, content: dict[str, Any], *statuses: int, security: str = "") -> dict[str, Any]:
    operation = {"summary": summary, "description": text, "responses": _responses(content, 503, *statuses)}
    return operation | ({"security": [{}, {security: []}]} if security else {})


def _post(
    summary: str, text: str, body: dict[str, Any], form: str, content: dict[str, Any], *statuses: int
) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": text,
        "requestBody": {"required": True, "description": form, "content": body},
        "responses": _responses(content, 400, 408, 411, 413, 415, 503, *statuses),
    }


def _since() -> list[dict[str, Any]]:
    def hexadecimal(name: str, size: int) -> dict[str, Any]:
        return {"name": name, "in": "query", "schema": {"type": "string", "pattern": f"^[0-9a-f]{{{2 * size}}}$"}}

    return [
        {"name": "since", "in": "query", "required": True, "schema": _EDITION},
        hexadecimal("life", wire.LIFE_BYTES),
        hexadecimal("digest", wire.DIGEST_BYTES),
    ]


def _digests() -> dict[str, Any]:
    text = (
        "The SHA-256 of every frame that changed after an edition, and the root over all: what readers of several "
        "servers hold before they ask. All, if the edition is 0 or not of this life and digest."
    )
    wanted = {"name": "edition", "in": "query", "schema": _EDITION}
    return _get("Digests", text, {wire.DIGESTS_TYPE: _BINARY}, 400, 409) | {"parameters": [*_since(), wanted]}


def _changes() -> dict[str, Any]:
    text = (
        "Every message whose last change is after an edition, each once, and the edition they lead to. "
        "Everything, if the edition is 0 or not of this life and digest."
    )
    return _get("Changes", text, {wire.CHANGES_TYPE: _BINARY}, 400) | {"parameters": _since()}


def _publish() -> dict[str, Any]:
    return {
        "summary": "Publish",
        "description": "Make the body the latest message of a source; durable, as /readyz says, once this returns.",
        "security": [{"publisher": []}],
        "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}],
        "requestBody": {"required": True, "content": {wire.ANY_TYPE: _BINARY, "text/plain": _BINARY}},
        "responses": _responses(_json("Receipt"), 400, 401, 403, 404, 408, 411, 413, 415, 503, 507),
    }


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
    """What a path answers with."""

    body: bytes
    media_type: str = JSON


Handler = Callable[[Scope, Receive], Awaitable[Page]]


class Pages:
    """Everything but queries, sums, changes and messages: an ASGI application with a method for each path."""

    def __init__(self, store: Store, metrics: Metrics, changes: ChangesBuilder, access: MetricsAccess) -> None:
        self._store = store
        self._metrics = metrics
        self._changes = changes
        self._access = access
        description = describe()
        self._description = Page(json.dumps(description).encode())
        self._docs = Page(docs_page(description).encode(), "text/html; charset=utf-8")
        self._handlers: dict[str, tuple[str, Handler]] = {
            "/healthz": ("GET", self.health),
            "/readyz": ("GET", self.readiness),
            "/metrics": ("GET", self.counts),
            "/openapi.json": ("GET", self.description),
            "/docs": ("GET", self.docs),
            wire.CATALOGUE_PATH: ("GET", self.catalogue),
            wire.EDITION_PATH: ("GET", self.edition),
            wire.DIGESTS_PATH: ("GET", self.digests),
            wire.SEEN_PATH: ("POST", self.seen),
        }
        self._reading = {path: Condition(log) for path in self._handlers}
        self._ready = Condition(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] not in self._handlers:
                raise Refused(Problem(404, "nothing is served there", "see /docs for what is served"))
            method, handler = self._handlers[scope["path"]]
            check_method(scope, method)
            page = await handler(scope, receive)
        except Refused as refused:
            await send_problem(send, refused.problem, close=refused.close, allow=refused.allow)
        except StoreUnavailable as error:
            self._metrics.add(Count.UNAVAILABLE)
            self._reading[scope["path"]].fails("%s: store unavailable: %s", scope["path"], error)
            await send_problem(send, unavailable(error))
        else:
            self._reading[scope["path"]].works("%s: the store answers again", scope["path"])
            headers = reply_headers(len(page.body), page.media_type)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": page.body})

    async def health(self, scope: Scope, receive: Receive) -> Page:
        """Alive: this process serves. It asks nothing of the store."""
        return Page(b'{"status":"ok"}')

    async def readiness(self, scope: Scope, receive: Receive) -> Page:
        """Ready: a query would be answered and a publish kept, and what an acknowledged message survives."""
        found = await self._store.readiness()
        if not (found.answers and found.keeps):
            self._ready.fails("not ready: %s", found.reason)
            cannot = "store messages" if found.answers else "answer queries or store messages"
            raise Refused(Problem(503, f"not ready: cannot {cannot}", "the log of the server says why"))
        promise = await self._store.promise()
        self._ready.works("ready again")
        fields = {"status": "ready", "store": promise.kind, "durable": promise.durable, "promise": promise.says}
        return Page(json.dumps(fields, separators=(",", ":")).encode())

    async def counts(self, scope: Scope, receive: Receive) -> Page:
        """Counts in Prometheus' text form, for the operator only: they show times and sizes of queries."""
        problem = self._access.refusal(scope["client"], request_headers(scope))
        if problem is not None:
            raise Refused(problem)
        return Page(self._metrics.render(), METRICS_TYPE)

    async def catalogue(self, scope: Scope, receive: Receive) -> Page:
        """The names of all sources in the order of their indices, the framing, and the epoch that names both."""
        return Page(wire.encode_catalogue(await self._store.catalogue()))

    async def edition(self, scope: Scope, receive: Receive) -> Page:
        """The newest edition: its number, the life of the store it counts in, and the digest of all that led to it."""
        return Page(wire.encode_edition(await self._changes.edition()))

    async def digests(self, scope: Scope, receive: Receive) -> Page:
        """The digests of frames that changed since an edition, for readers of several servers."""
        try:
            found = await self._changes.digests(wire.decode_wanted_digests(scope["query_string"].decode("latin-1")))
        except InvalidWire as error:  # also where there are no sources
            raise Refused(invalid(error)) from None
        if isinstance(found, int):
            raise Refused(edition_gone(found))
        return Page(found, wire.DIGESTS_TYPE)

    async def seen(self, scope: Scope, receive: Receive) -> Page:
        """The last step that came under a session id, so that a client put back to an earlier state can know."""
        refuse_if(check_body_headers(request_headers(scope), limit=wire.SESSION_BYTES))
        session = await read_body(receive)
        if len(session) != wire.SESSION_BYTES:
            raise Refused(Problem(400, "not a session id", f"send its {wire.SESSION_BYTES} bytes"))
        last = await self._store.last_step(session)
        return Page(wire.encode_seen(None if last is None else wire.Seen(last.step, last.digest.hex())))

    async def description(self, scope: Scope, receive: Receive) -> Page:
        return self._description

    async def docs(self, scope: Scope, receive: Receive) -> Page:
        return self._docs


SOURCE_PATH = re.compile(r"/v1/sources/([^/]+)/message")
MAX_IN_FLIGHT = 512  # requests in work at once, beyond which new ones are shed


class MessageServer:
    """The ASGI application."""

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
        self.pages = Pages(store, metrics, self.changes, access or MetricsAccess())
        self._leader = leader  # the leader, which alone accepts messages, if this server follows one
        self._keeping, self._changing = Condition(log), Condition(log)
        self._in_flight = 0
        self._max_in_flight = max_in_flight
        self.peers = Peers(max_connections, max_per_address)
        self.unread = Unread()

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
            elif scope["path"] == SUM_PATH:
                await self.sum(scope, receive, send)
            elif scope["path"] == CHANGES_PATH:
                await self.send_changes(scope, send)
            elif source := SOURCE_PATH.fullmatch(scope["path"]):
                await self.publish(source[1], scope, receive, send)
            else:
                await self.pages(scope, receive, send)
        finally:
            self._in_flight -= 1

    async def query(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one query."""
        body = await self._read_query(scope, receive, send, check_query_headers)
        if body is None:
            return
        outcome = await self.answerer.answer(body, gzip=takes_gzip(request_headers(scope)))
        if isinstance(outcome, Problem):
            await self._refuse(send, outcome)
        else:
            self.metrics.add_answer(outcome.frames)
            await send_parts(send, outcome.parts, wire.ANSWER_TYPE, outcome.encoding)

    async def sum(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one sum query."""
        body = await self._read_query(scope, receive, send, check_sum_headers)
        if body is None:
            return
        outcome = await self.sums.answer(body)
        if isinstance(outcome, Problem):
            await self._refuse(send, outcome)
        else:
            self.metrics.add(Count.SUMS)
            await send_parts(send, [outcome], wire.SUM_TYPE)

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

    async def _refuse(self, send: Send, problem: Problem) -> None:
        self.count_problem(problem)
        await send_problem(send, problem)

    async def _read_query(
        self, scope: Scope, receive: Receive, send: Send, check: Callable[[dict[bytes, bytes]], Problem | None]
    ) -> bytes | None:
        """The body of a POST whose headers pass the check; None if it was refused."""
        try:
            check_method(scope, "POST")
            refuse_if(check(request_headers(scope)))
            return await read_body(receive)
        except Refused as refused:
            self.metrics.add(Count.REFUSED)
            await send_problem(send, refused.problem, close=refused.close, allow=refused.allow)
            return None

    async def publish(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the body the latest message of a source."""
        try:
            check_method(scope, "PUT")
            if self._leader is not None:
                raise Refused(Problem(403, "this server follows another one", f"publish to {self._leader}"), close=True)
            receipt = await _app_publish(self.store, name, scope, receive)
        except Refused as refused:
            self.metrics.add(Count.PUBLISH_REFUSED)
            await send_problem(send, refused.problem, close=refused.close, allow=refused.allow)
        except StoreUnavailable as error:
            self.metrics.add(Count.UNAVAILABLE)
            self._keeping.fails("publishes are not kept: %s", error)
            await send_problem(send, not_kept(error), close=True)
        else:
            self._keeping.works("publishes are kept again")
            self.metrics.add(Count.PUBLISHED)
            body = json.dumps(receipt, ensure_ascii=False).encode()
            await send({"type": "http.response.start", "status": 200, "headers": reply_headers(len(body))})
            await send({"type": "http.response.body", "body": body})

    async def send_changes(self, scope: Scope, send: Send) -> None:
        """All that changed since an edition."""
        try:
            check_method(scope, "GET")
            headers = request_headers(scope)
            if headers.get(b"content-length", b"0") != b"0":
                raise Refused(Problem(400, "a request for changes with a body", "send none"), close=True)
            since = wire.decode_since(scope["query_string"].decode("latin-1"))
            reply = await self.changes.reply(since, gzip=takes_gzip(headers))
        except Refused as refused:
            self.metrics.add(Count.REFUSED)
            await send_problem(send, refused.problem, close=refused.close, allow=refused.allow)
        except InvalidWire as error:
            self.metrics.add(Count.REFUSED)
            await send_problem(send, Problem(400, error.message, error.hint or ""))
        except StoreUnavailable as error:
            self.metrics.add(Count.UNAVAILABLE)
            self._changing.fails("%s: store unavailable: %s", CHANGES_PATH, error)
            await send_problem(send, unavailable(error))
        else:
            self._changing.works("%s: the store answers again", CHANGES_PATH)
            self.metrics.add(Count.CHANGES)
            await send_parts(send, reply.parts, wire.CHANGES_TYPE, reply.encoding)

    def count_problem(self, problem: Problem) -> None:
        """Add a refusal of a query to the counts."""
        if problem.status == HTTPStatus.CONFLICT:
            self.metrics.add(Count.CONFLICTS)
        elif problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.metrics.add(Count.UNAVAILABLE)
        else:
            self.metrics.add(Count.REFUSED)

    async def close(self) -> None:
        """Stop the background tasks."""
        await self.sums.close()


def not_kept(error: StoreUnavailable) -> Problem:
    """The refusal of a publish: the store is full, or does not answer."""
    if isinstance(error, StoreFull):
        return Problem(507, "the store of messages is full", "tell the operator; then send it again")
    return unavailable(error)


async def _app_publish(store: Store, name: str, scope: Scope, receive: Receive) -> dict[str, Any]:
    headers = request_headers(scope)
    publisher = await authenticate(store, headers.get(b"authorization", b""))
    try:
        wire.check_name(name)
    except InvalidWire as error:
        raise Refused(Problem(400, error.message, error.hint or ""), close=True) from None
    catalogue = await store.catalogue()
    if name not in catalogue.index:
        raise Refused(Problem(404, "no source of that name", "see /v1/catalogue"), close=True)
    if not publisher.may_write(name):
        raise Refused(Problem(403, "this publisher may not write that source", "use its own token"), close=True)
    refuse_if(check_body_headers(headers, limit=catalogue.limit))
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
