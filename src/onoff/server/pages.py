"""The pages of the server: everything but queries, changes and messages. Plain functions, one for each path."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.access import MetricsAccess
from onoff.server.changes import ChangesBuilder
from onoff.server.docs_page import docs_page
from onoff.server.exchange import (
    Receive,
    Refused,
    Scope,
    Send,
    check_method,
    json_headers,
    read_body,
    refuse_if,
    request_headers,
    send_problem,
)
from onoff.server.head import check_body_headers
from onoff.server.judge import edition_gone, invalid, unavailable
from onoff.server.metrics import Count, Metrics
from onoff.server.openapi import describe
from onoff.server.store import Store
from onoff.system.logs import Condition
from onoff.wire import Problem

log = logging.getLogger("onoff.server")

JSON = "application/json"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Page(NamedTuple):
    """What a path answers with."""

    body: bytes
    media_type: str = JSON


Handler = Callable[[Scope, Receive], Awaitable[Page]]


class Pages:
    """An ASGI application."""

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
            headers = json_headers(len(page.body), page.media_type)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": page.body})

    async def health(self, scope: Scope, receive: Receive) -> Page:
        """Alive: this process serves. It asks nothing of the store."""
        return Page(b'{"status":"ok"}')

    async def readiness(self, scope: Scope, receive: Receive) -> Page:
        """Ready: a query would be answered and a publish kept, and what an acknowledged message survives."""
        now = await self._store.readiness()
        if not (now.answers and now.keeps):
            self._ready.fails("not ready: %s", now.reason)
            title = "publishes are not kept" if now.answers else "queries are not answered and publishes not kept"
            raise Refused(Problem(503, title, "the log of the server says why"))
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
