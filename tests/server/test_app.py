"""The HTTP side: what is served, what is refused and how, and that nothing tells who wants what."""

import asyncio
import gzip
import hashlib
import json
import logging
import os
import re
import resource
import secrets

import httpx2
import pytest
from tests.support.raw import Line, catalogue, get_json, metrics, query, query_request
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.server import running
from onoff.server.admin import edit_catalogue, new_publisher, opened

FRAME = 1024
SOURCES = {"news": b"first", "weather": b"rain", "Zürich": b"", "100%": b"x"}


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.redis)], scope="module")
def server(request, tmp_path_factory):
    if request.param == "sqlite":
        where = tmp_path_factory.mktemp("store") / "messages.db"
    else:
        redis = request.getfixturevalue("shared_redis")
        redis.flush()
        where = redis.url
    with running(SOURCES, frame_size=FRAME, store=where) as server:
        yield server


@pytest.fixture
def http(server):
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as client:
        yield client


def put(http, server, name, body=b"x", *, token=None, **headers):
    given = {"authorization": f"Bearer {server.token if token is None else token}", **headers}
    return http.put(f"/v1/sources/{name}/message", content=body, headers=given)


def problem(response, status):
    assert response.status_code == status
    assert response.headers["content-type"] == wire.PROBLEM_TYPE
    assert response.headers["cache-control"] == "no-store"
    found = wire.decode_problem(response.content)
    assert found.status == status
    assert found.hint
    return found


def ask(server, *sources):
    known = catalogue(server.url)
    with Line(server.url) as line:
        reply = line.query(query(known, *sources))
    return wire.decode_answer(reply.body, sources, epoch=known.epoch, frame_size=known.frame_size)


# Publishing.


def test_what_is_published_is_answered(server, http):
    receipt = put(http, server, "news", b"<p>hi</p>", **{"content-type": "text/html"})
    assert receipt.status_code == 200
    (message,) = ask(server, 0)
    assert receipt.json() == {"source": "news", "version": message.version, "published": message.published}
    assert (message.body, message.media_type) == (b"<p>hi</p>", "text/html")
    again = put(http, server, "news", b"\0\xff" * 400).json()
    assert again["version"] == message.version + 1
    assert ask(server, 0)[0].body == b"\0\xff" * 400


def test_a_message_without_a_kind_is_bytes(server, http):
    with Line(server.url) as line:
        head = f"PUT /v1/sources/news/message HTTP/1.1\r\nhost: h\r\nauthorization: bearer {server.token}\r\n"
        line.send(f"{head}content-length: 2\r\n\r\nhi".encode())
        assert line.reply().status == 200
    assert ask(server, 0)[0].media_type == "application/octet-stream"


def test_names_with_signs_are_addressed_by_percent_encoding(server, http):
    assert put(http, server, "Z%C3%BCrich", b"y").status_code == 200
    assert put(http, server, "100%25", b"z").status_code == 200
    assert [m.body for m in ask(server, 2, 3)] == [b"y", b"z"]


@pytest.mark.parametrize("length", [0, 1, wire.capacity(FRAME)])
def test_every_length_up_to_the_capacity_is_taken(server, http, length):
    assert put(http, server, "news", b"n" * length).status_code == 200
    assert ask(server, 0)[0].body == b"n" * length


def test_wrong_or_missing_tokens_get_the_same_401(server, http):
    before = ask(server, 0, 1, 2, 3)
    wrong = [
        put(http, server, "news", token="onoff_wrong"),
        put(http, server, "news", token=server.token[:-1]),
        http.put("/v1/sources/news/message", content=b"x", headers={"authorization": "Bearer"}),
        put(http, server, "nonexistent", token="x"),
        http.put("/v1/sources/news/message", content=b"x"),
        http.put("/v1/sources/news/message", content=b"x", headers={"authorization": f"Basic {server.token}"}),
        http.put("/v1/sources/news/message", content=b"x", headers={"authorization": server.token}),
        http.put("/v1/sources/news/message", content=b"x", headers={"authorization": "Bearer \xff".encode("latin1")}),
    ]
    assert len({(problem(r, 401), tuple(r.headers.items())) for r in wrong}) == 1
    assert wrong[0].headers["www-authenticate"] == "Bearer"
    assert ask(server, 0, 1, 2, 3) == before


def test_a_restricted_publisher_writes_only_its_own(server, http):
    async def make():
        async with opened(server.settings.store) as store:
            return await new_publisher(store, "restricted", ["weather"])

    token = asyncio.run(make())
    assert put(http, server, "weather", token=token).status_code == 200
    problem(put(http, server, "news", token=token), 403)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("nothing", 404),
        ("a%00b", 400),
        ("a%0Ab", 400),
        ("%1b%5b31m", 400),
        ("a%E2%80%AEb", 400),
        ("e%CC%81", 400),
        ("x" * 257, 400),
        ("%2e%2e", 400),
        ("%2e%2e%2fnews", 404),
        ("..%5cnews", 400),
        ("%ff", 404),
        ("%20news", 400),
        ("", 404),
        ("news/", 404),
    ],
)
def test_bad_names_are_refused_and_stored_nowhere(server, http, name, status):
    before = ask(server, 0, 1, 2, 3)
    with Line(server.url) as line:  # by hand: a client library would tidy the path
        head = f"PUT /v1/sources/{name}/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {server.token}\r\n"
        line.send(f"{head}content-length: 1\r\n\r\nx".encode())
        assert line.reply().problem.status == status
    assert ask(server, 0, 1, 2, 3) == before


def test_bodies_that_are_too_long_lie_or_are_packed_are_refused(server, http):
    before = ask(server, 0)
    problem(put(http, server, "news", bytes(wire.capacity(FRAME) + 1)), 413)
    problem(put(http, server, "news", gzip.compress(b"x" * 1000), **{"content-encoding": "gzip"}), 415)
    problem(put(http, server, "news", b"x", **{"content-type": "text/html" + "; a=b" * 30}), 415)
    problem(put(http, server, "news", b"x", **{"content-type": "nonsense"}), 415)
    problem(put(http, server, "news", iter([b"a", b"b"])), 411)
    with Line(server.url) as line:
        head = f"PUT /v1/sources/news/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {server.token}\r\n"
        line.send(f"{head}content-length: 999999999999\r\n\r\nx".encode())
        assert line.reply().problem.status == 413
        assert line.ended()
    with Line(server.url) as line:  # says more than it sends, then goes
        line.send(f"{head}content-length: 100\r\n\r\nx".encode())
    assert ask(server, 0) == before


def test_a_flood_of_bodies_leaves_memory_flat(server):
    """200 MB announced and pushed at the server, in one piece and in chunks: it takes none of it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    head = f"PUT /v1/sources/news/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {server.token}\r\n"
    for length in ["content-length: 200000000\r\n", "transfer-encoding: chunked\r\n"]:
        with Line(server.url) as line:
            try:
                line.send(f"{head}{length}\r\n".encode())
                for _ in range(200):
                    line.send(b"f4240\r\n" + bytes(1_000_000) + b"\r\n")
            except OSError:
                pass
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000  # KiB, of this process, which holds sender and server


# Queries.


@pytest.mark.parametrize("extra", ["", "x-unusual: 1\r\n"])
def test_bad_queries_are_refused_and_leave_no_trace(server, extra):
    known = catalogue(server.url)
    session = b"one session only"
    good = query(known, 0, 2, session=session, step=5)
    before = metrics(server.url)["onoff_queries_refused_total"]
    with Line(server.url) as line:
        for bad in [good[:-1], good + b"\0", good[:-1] + b"\0", good[:-1] + b"\x10", b"", b"\1" + good[1:]]:
            assert line.query(bad, extra=extra).problem.status == 400
        assert line.query(query(known, 1, session=session, step=0), extra=extra).status == 200
    assert metrics(server.url)["onoff_queries_refused_total"] == before + 6


@pytest.mark.parametrize("extra", ["", "x-unusual: 1\r\n"])
def test_a_step_is_answered_again_for_the_same_bytes_only(server, extra):
    known = catalogue(server.url)
    session = secrets.token_bytes(16)
    first = query(known, 0, 2, session=session, step=5)
    other = query(known, 1, 2, session=session, step=5)
    earlier = query(known, 0, 2, session=session, step=4)
    with Line(server.url) as line:
        answer = line.query(first, extra=extra)
        assert answer.status == 200
        for bad in [other, earlier]:
            refused = line.query(bad, extra=extra).problem
            assert (refused.status, refused.type, refused.step) == (409, wire.STEP_CONFLICT, 5)
            assert refused.sha256 == hashlib.sha256(first).hexdigest()
        again = line.query(first, extra=extra)
        assert (again.status, again.headers, len(again.body)) == (200, answer.headers, len(answer.body))
        assert line.query(query(known, 1, session=session, step=6), extra=extra).status == 200


def test_a_query_must_say_what_it_is_and_how_long(server, http):
    known = catalogue(server.url)
    body = query(known, 0)
    problem(http.post("/v1/query", content=body, headers={"content-type": "application/json"}), 415)
    problem(http.post("/v1/query", content=iter([body]), headers={"content-type": wire.QUERY_TYPE}), 411)
    problem(http.post("/v1/query", content=bytes(wire.MAX_QUERY + 1), headers={"content-type": wire.QUERY_TYPE}), 413)
    headers = {"content-type": wire.QUERY_TYPE, "content-encoding": "gzip"}
    problem(http.post("/v1/query", content=gzip.compress(body), headers=headers), 415)
    for method in ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]:
        refused = http.request(method, "/v1/query")
        assert refused.status_code == 405
        assert refused.headers["allow"] == "POST"


# The catalogue and its epochs.


def test_a_changed_catalogue_is_a_new_epoch_and_never_remaps(tmp_path):
    where = str(tmp_path / "m.db")

    async def edit(**changes):
        async with opened(where) as store:
            return await edit_catalogue(store, **changes)

    with running({"a": b"A", "b": b"B"}, frame_size=FRAME, store=where) as server, Line(server.url) as line:
        old = catalogue(server.url)
        stale = query(old, 1, session=bytes(16), step=1)
        assert line.query(stale).status == 200
        new = asyncio.run(edit(drop=["a"], add=["c"]))
        for extra in ["", "x-unusual: 1\r\n"]:
            refused = line.query(stale, extra=extra).problem
            assert (refused.status, refused.type, refused.epoch) == (409, wire.EPOCH_CHANGED, new.epoch)
            # Nothing of it is kept: the session may still send its first step, and under the new catalogue.
            unseen = os.urandom(16)
            assert line.query(query(old, 1, session=unseen, step=9), extra=extra).status == 409
            assert line.query(query(new, 0, session=unseen, step=8), extra=extra).status == 200
        assert catalogue(server.url) == new == wire.Catalogue(("b", "c"), FRAME)
        reply = line.query(query(new, 0, 1))
        read = wire.decode_answer(reply.body, (0, 1), epoch=new.epoch, frame_size=FRAME)
        assert [m.body for m in read] == [b"B", b""]
        bigger = asyncio.run(edit(frame_size=2 * FRAME))
        assert line.query(query(new, 0)).problem.epoch == bigger.epoch
        assert len(line.query(query(bigger, 0)).body) == 2 * FRAME
        longer = asyncio.run(edit(add=[f"more {k}" for k in range(20)]))  # bitmaps of another length
        assert line.query(query(bigger, 0)).problem.epoch == longer.epoch


# Pages.


def test_every_answer_is_uncached_plain_and_without_cookies(server, http):
    unwanted = {"etag", "last-modified", "set-cookie", "content-encoding", "accept-ranges", "vary", "server", "date"}
    paths = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/catalogue", "/nothing"]
    for path in paths:
        answer = http.get(path, headers={"accept-encoding": "gzip", "range": "bytes=0-1", "if-none-match": "*"})
        assert answer.status_code in {200, 404}, path
        assert answer.headers["cache-control"] == "no-store"
        assert not unwanted & set(answer.headers), path


def test_the_api_page_loads_nothing_from_elsewhere(http):
    page = http.get("/docs").text
    links = re.findall(r"""(?:src|href|url)\s*[=:]\s*['"]([^'"]+)""", page)
    assert links
    assert all(link.startswith("/") and not link.startswith("//") for link in links)
    for link in links:
        assert http.get(link).status_code == 200
    assert not re.search(r"<(?:script|img|iframe|link|object|embed)\b|@import|url\(", page)
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for method in operations:
            assert f"<h2>{method.upper()} {path}</h2>" in page


def test_health_readiness_and_catalogue(server, http):
    assert http.get("/healthz").json() == {"status": "ok"}
    ready = http.get("/readyz").json()
    assert ready["status"] == "ready"
    assert ready["store"] in {"sqlite", "valkey"}
    assert ready["promise"]
    assert get_json(server.url, "/v1/catalogue") == catalogue(server.url).as_dict()
    assert catalogue(server.url).names == tuple(SOURCES)


def test_unknown_pages_and_methods_are_problems(http):
    problem(http.get("/nothing"), 404)
    problem(http.get("/v1/sources/news/message"), 405)
    problem(http.request("POST", "/v1/catalogue"), 405)


def test_the_description_names_every_route_and_refusal(http):
    description = http.get("/openapi.json").json()
    assert {"/healthz", "/v1/query", "/v1/sources/{name}/message"} < set(description["paths"])  # all: test_openapi
    assert set(description["paths"]["/v1/query"]["post"]["responses"]) >= {"200", "400", "409", "413", "503"}
    json.dumps(description)


def test_neither_logs_nor_metrics_tell_which_sources_are_asked_for(server, caplog):
    caplog.set_level(logging.DEBUG)
    known = catalogue(server.url)
    with Line(server.url) as line:
        for step in range(3):
            body = query(known, 1, 2, session=b"marked-session-!", step=step)
            assert line.query(body, extra="x-unusual: 1\r\n" if step else "").status == 200
        line.query(query(known, 0, session=b"marked-session-!", step=0))
    with Line(server.url) as line:
        line.send(b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n")
        text = line.reply().body.decode() + caplog.text
    for marker in [*SOURCES, "marked-session", b"marked-session-!".hex()]:
        assert marker not in text


def test_counts_are_kept(server, http):
    before = metrics(server.url)
    known = catalogue(server.url)
    with Line(server.url) as line:
        line.query(query(known, 0, 1))
        line.query(query(known, 0), extra="x-unusual: 1\r\n")
    put(http, server, "news")
    put(http, server, "news", token="no")
    after = metrics(server.url)
    grown = {name.removeprefix("onoff_").removesuffix("_total"): after[name] - before[name] for name in after}
    assert {name: value for name, value in grown.items() if value} == {
        "queries_answered": 2, "frames_sent": 3, "messages_published": 1, "publishes_refused": 1,
    }  # fmt: skip


def test_large_answers_come_whole(tmp_path):
    """1000 frames: sent in pieces, on the ordinary way, as the same bytes."""
    with running([f"s{i}" for i in range(1000)], frame_size=FRAME) as server:
        published = {0: b"first", 500: b"middle", 999: b"last"}
        for source, body in published.items():
            server.publish(f"s{source}", body)
        known = catalogue(server.url)
        with Line(server.url) as line:
            reply = line.query(query(known, *range(1000)))
            read = wire.decode_answer(reply.body, range(1000), epoch=known.epoch, frame_size=FRAME)
            assert {source: m.body for source, m in enumerate(read) if m != wire.NOTHING} == published
            line.send(query_request(line.host, query(known, *range(0, 1000, 3))))
            assert len(line.reply().body) == 334 * FRAME


# What was seen last.


def seen(http, session):
    return http.post(wire.SEEN_PATH, content=session, headers=dict(wire.SEEN_HEADERS))


def test_the_last_step_of_a_session_is_told_and_asking_changes_nothing(server, http):
    known = catalogue(server.url)
    session = secrets.token_bytes(16)
    assert wire.decode_seen(seen(http, session).content) is None
    asked = wire.encode_query(wire.WireQuery(known.epoch, session, 5, (0, 2), n=known.n))
    with Line(server.url) as line:
        assert line.query(asked).status == 200
        for _ in range(2):
            told = wire.Seen(5, hashlib.sha256(asked).hexdigest())
            assert wire.decode_seen(seen(http, session).content) == told
        assert line.query(asked).status == 200


@pytest.mark.parametrize(("body", "status"), [(b"", 400), (bytes(15), 400), (bytes(17), 413)])
def test_what_is_no_session_id_is_refused(http, body, status):
    problem(seen(http, body), status)
