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
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from onoff import wire
from onoff.errors import InvalidWire, StoreFull, StoreUnavailable, UnknownSource
from onoff.server.access import MetricsAccess, bearer_digest
from onoff.server.answer import Answerer
from onoff.server.changes import ChangesBuilder
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
    send_answer,
    send_changes,
    send_problem,
    send_sum,
)
from onoff.server.head import check_body_headers, check_query_headers, check_sum_headers, takes_gzip
from onoff.server.judge import unavailable
from onoff.server.metrics import Count, Metrics
from onoff.server.pages import Pages
from onoff.server.peers import MAX_CONNECTIONS, MAX_PER_ADDRESS, Peers, Unread
from onoff.server.store import Publisher, Store
from onoff.server.sums import SumOutcome, SumReply, Sums
from onoff.system.logs import Condition
from onoff.wire import CHANGES_PATH, QUERY_PATH, SUM_PATH, Problem

log = logging.getLogger("onoff.server")

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
        outcome = await self.answerer.answer(body)
        if isinstance(outcome, Problem):
            await self._refuse(send, outcome)
        else:
            self.metrics.add_answer(len(outcome))
            await send_answer(send, outcome)

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
            await send_sum(send, outcome)

    def sum_now(self, body: bytes, reply: SumReply) -> bool:
        """Queue a sum query for the next pass; False where it needs the ordinary path."""
        if self._in_flight >= self._max_in_flight:
            return False

        def finish(outcome: SumOutcome) -> None:
            self._in_flight -= 1
            if isinstance(outcome, bytes):
                self.metrics.add(Count.SUMS)
            reply(outcome)

        if self.sums.ask_now(body, finish) is not True:
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
            receipt = await _publish(self.store, name, scope, receive)
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
            await send({"type": "http.response.start", "status": 200, "headers": json_headers(len(body))})
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
            await send_changes(send, reply)

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


def overloaded() -> Problem:
    return Problem(503, "the server has more requests than it can serve", "send the same request again in a moment")


async def _publish(store: Store, name: str, scope: Scope, receive: Receive) -> dict[str, Any]:
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
