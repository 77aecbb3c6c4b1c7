"""Readiness over HTTP: ready means that a query would be answered and a publish kept, else which is not."""

import asyncio
import json
import logging

import pytest

from onoff import wire
from onoff.errors import StoreUnavailable
from onoff.server.app import MessageServer
from onoff.server.http import Count, Metrics
from onoff.server.store import Promise, Readiness


class Store:
    def __init__(self, found):
        self.found = found

    async def readiness(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def promise(self):
        return Promise("sqlite", True, "it is on disk")


def get(pages, path, method="GET"):
    """Status, headers and body of what the application sends."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "client": ("127.0.0.1", 1)}
    asyncio.run(pages(scope, None, send))
    start, body = sent
    return start["status"], dict(start["headers"]), body["body"]


def pages(readiness=Readiness()):  # noqa: B008
    metrics = Metrics()
    return MessageServer(Store(readiness), metrics), metrics


def test_ready_says_what_a_publish_survives():
    status, _, body = get(pages()[0], "/readyz")
    assert status == 200
    assert json.loads(body) == {"status": "ready", "store": "sqlite", "durable": True, "promise": "it is on disk"}


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (Readiness(keeps=False, reason="/var/lib/x is full"), "not ready: cannot store messages"),
        (Readiness(answers=False, keeps=False, reason="redis at 10.0.0.1"), "cannot answer queries or store messages"),
    ],
)
def test_not_ready_says_which_is_not_and_gives_no_reasons_to_strangers(now, says, caplog):
    status, headers, body = get(pages(now)[0], "/readyz")
    problem = wire.decode_problem(body)
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert says in problem.title
    assert now.reason not in body.decode()
    assert now.reason in caplog.text


def test_not_ready_is_told_when_it_begins_and_when_it_ends(caplog):
    caplog.set_level(logging.INFO)
    store = Store(Readiness())
    served = MessageServer(store, Metrics())
    for now in (Readiness(), *[Readiness(keeps=False, reason="full")] * 5, *[Readiness()] * 2):
        store.found = now
        get(served, "/readyz")
    assert caplog.messages == ["not ready: full", "ready again"]


def test_a_store_that_does_not_answer_is_503_and_counted():
    served, metrics = pages(StoreUnavailable("gone", hint="start it"))
    assert get(served, "/readyz")[0] == 503
    assert metrics.total(Count.UNAVAILABLE) == 1
    assert get(served, "/healthz")[0] == 200


def test_other_paths_and_methods_are_refused():
    assert get(pages()[0], "/nothing")[0] == 404
    status, headers, _ = get(pages()[0], "/healthz", "HEAD")
    assert (status, headers[b"allow"]) == (405, b"GET")
