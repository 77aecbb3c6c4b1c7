"""Changes since an edition, as served: the right messages for every span, the same bytes for everyone."""

import asyncio
import contextlib
import gzip
import itertools
import os
import random
import threading
import time
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from tests.support.raw import Line, catalogue
from tests.support.waiting import PATIENCE, until

from onoff import wire
from onoff.server import running
from onoff.server.admin import edit_catalogue, opened
from onoff.server.answers import INLINE_BYTES, Shelf
from onoff.server.changes import ChangesBuilder
from onoff.server.store import Stamp
from onoff.wire import ChangesDecoder, Edition, Since

from .test_run import make_token, served

NAMES = [f"s{i}" for i in range(7)]


def changes_of(where, *, frame_size=None):
    """A fresh store with the seven sources, and what replies from it."""

    def decorate(test):
        async def body():
            async with opened(where, frame_size=frame_size) as store:
                await edit_catalogue(store, add=NAMES)
                await test(store, ChangesBuilder(store, Shelf()))

        asyncio.run(body())

    return decorate


def plain(reply) -> bytes:
    body = b"".join(reply.parts)
    assert len(body) == reply.length
    if not reply.encoding:
        return body
    unpacking = zlib.decompressobj(31)
    whole = unpacking.decompress(body)
    assert unpacking.eof
    assert not unpacking.unused_data
    assert gzip.decompress(body) == whole
    return whole


def read(known, data, have=None):
    decoder = ChangesDecoder(known, have)
    found = dict(decoder.feed(data))
    return found, decoder.finish(), decoder.whole


@pytest.mark.parametrize("frame_size", [None, 1024])
def test_every_span_has_what_changed_after_it_each_once(where, frame_size):
    @changes_of(where, frame_size=frame_size)
    async def _(store, changes):
        rng = random.Random(3)
        start = await store.latest(Stamp())
        editions, history = [start.edition], []
        for k in range(25):
            source = rng.randrange(7)
            body = rng.choice([b"", b"hello " * 40, rng.randbytes(500)])
            history.append((source, await store.publish(NAMES[source], "text/plain", body, k)))
            editions.append((await store.latest(Stamp())).edition)
        known = start.catalogue
        for since, compressed in itertools.product(range(len(editions)), (False, True)):
            have = editions[since]
            reply = await changes.reply(Since(have.number, have.life, have.digest), gzip=compressed)
            found, reached, whole = read(known, plain(reply), have)
            assert (reached, whole) == (editions[-1], False)
            assert found == dict(history[since:])
            assert list(found) == sorted(found)
        found, reached, whole = read(known, plain(await changes.reply(Since(0), gzip=True)))
        assert (found, reached, whole) == (dict(history), editions[-1], True)


def test_everything_comes_to_who_has_another_life_digest_or_future(where):
    @changes_of(where)
    async def _(store, changes):
        await store.publish("s1", "a/b", b"one", 0)
        await store.publish("s2", "a/b", b"two", 0)
        at = (await store.latest(Stamp())).edition
        before = await store.digest_of(at.number - 1)
        for since in [
            Since(0),
            Since(at.number - 1, bytes(16), before),
            Since(at.number - 1, at.life, bytes(32)),
            Since(at.number, at.life, bytes(32)),
            Since(at.number + 1, at.life),
            Since(at.number + 1),
        ]:
            reply = plain(await changes.reply(since, gzip=False))
            assert reply[24:32] == bytes(8)
            assert set(read(await store.catalogue(), reply)[0]) == {1, 2}
        for since in [Since(at.number - 1, at.life, before), Since(at.number - 1, at.life), Since(at.number - 1)]:
            reply = plain(await changes.reply(since, gzip=False))
            assert int.from_bytes(reply[24:32]) == at.number - 1


def test_a_store_put_back_by_hand_is_noticed_by_the_digest(tmp_path):
    """Same file, same life, same numbers, another history: whoever has the first one gets everything."""
    path = tmp_path / "m.db"

    async def publish(*bodies):
        async with opened(str(path), frame_size=None) as store:
            await edit_catalogue(store, add=NAMES)
            for body in bodies:
                await store.publish("s0", "a/b", body, 0)
            return (await store.latest(Stamp())).edition

    first = asyncio.run(publish(b"1"))
    copy = path.read_bytes()
    lost = asyncio.run(publish(b"2"))
    for name in ("m.db", "m.db-wal", "m.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    path.write_bytes(copy)
    now = asyncio.run(publish(b"3", b"4"))
    assert (now.life, now.number) == (lost.life, lost.number + 1)

    async def ask(have):
        async with opened(str(path)) as store:
            reply = await ChangesBuilder(store, Shelf()).reply(Since(have.number, have.life, have.digest), gzip=False)
            return read(await store.catalogue(), plain(reply), have)

    assert asyncio.run(ask(lost))[2]
    assert not asyncio.run(ask(first))[2]


async def bodies_of(where, make):
    """For each span and encoding, the different replies of two servers of a store, in any order."""
    async with opened(where) as store, opened(where) as other:
        at = (await store.latest(Stamp())).edition
        one, two = make(store, Shelf()), make(other, Shelf())
        asked = list(
            itertools.product((one, two, one, make(store, Shelf())), (0, at.number - 2, at.number), (False, True))
        )
        random.Random(4).shuffle(asked)
        found: dict[Any, Any] = {}
        for server, number, compressed in asked:
            reply = await server.reply(Since(number), gzip=compressed)
            found.setdefault((number, compressed), set()).add(b"".join(reply.parts))
        return found


class RememberingBuilder(ChangesBuilder):
    """A broken twin: its replies tell how many were asked for before."""

    count = 0

    async def reply(self, since, *, gzip):
        RememberingBuilder.count += 1
        reply = await super().reply(since, gzip=gzip)
        return type(reply)([*reply.parts[:-1], reply.parts[-1] + bytes([self.count])], reply.length + 1, reply.encoding)


def test_the_bytes_are_the_same_for_every_reader_at_any_time_from_any_server(where):
    @changes_of(where)
    async def _(store, changes):
        for k in range(10):
            await store.publish(NAMES[k % 3], "a/b", b"%d" % k, 0)
        assert {len(bodies) for bodies in (await bodies_of(where, ChangesBuilder)).values()} == {1}
        assert max(len(bodies) for bodies in (await bodies_of(where, RememberingBuilder)).values()) > 1


def test_padded_and_unpadded_answers_have_the_same_changes(where):
    found = []
    for frame_size in (512, None):

        @changes_of(where, frame_size=512)
        async def _(store, changes, frame_size=frame_size):
            if frame_size is None:
                await store.restore(wire.Catalogue(tuple(NAMES), None, 500), {})
            await store.publish("s3", "a/b", b"hello", 7)
            known = await store.catalogue()
            reply = plain(await changes.reply(Since(0), gzip=False))
            found.append(read(known, reply)[0][3].body)
            assert len(reply) == 32 + wire.FRAME_OVERHEAD + 5 + 64

    assert found == [b"hello", b"hello"]


def test_another_catalogue_is_another_epoch_and_everything(where):
    @changes_of(where)
    async def _(store, changes):
        await store.publish("s1", "a/b", b"one", 0)
        old = await store.latest(Stamp())
        await changes.reply(Since(0), gzip=False)
        new = await edit_catalogue(store, drop=["s0"])
        have = old.edition
        reply = plain(await changes.reply(Since(have.number, have.life, have.digest), gzip=False))
        assert set(read(new, reply, have)[0]) == {0}


def test_what_takes_long_to_compress_is_done_aside_and_is_of_the_newest_edition(where, monkeypatch):
    @changes_of(where)
    async def _(store, changes):
        body = random.Random(1).randbytes(INLINE_BYTES)
        await store.publish("s1", "a/b", body, 0)
        real, threads = asyncio.to_thread, []

        async def to_thread(work, *args):
            threads.append(work)
            if len(threads) == 1:
                await store.publish("s2", "a/b", b"meanwhile", 0)
            return await real(work, *args)

        monkeypatch.setattr(asyncio, "to_thread", to_thread)
        found, reached, _ = read(await store.catalogue(), plain(await changes.reply(Since(0), gzip=True)))
        assert {source: message.body for source, message in found.items()} == {1: body, 2: b"meanwhile"}
        assert reached == (await store.latest(Stamp())).edition
        assert len(threads) == 1


def test_a_frame_is_compressed_once_and_a_reply_made_once(where, monkeypatch):
    @changes_of(where)
    async def _(store, changes):
        from onoff.server import answers as module

        packed, deflate = [], module.deflate
        monkeypatch.setattr(module, "deflate", lambda data: packed.append(data) or deflate(data))  # type: ignore[func-returns-value]
        for name in NAMES:
            await store.publish(name, "a/b", b"x" * 300, 0)
        first = await changes.reply(Since(0), gzip=True)
        assert len(packed) == 7
        assert await changes.reply(Since(0), gzip=True) is first
        await store.publish("s3", "a/b", b"y" * 300, 0)
        await changes.reply(Since(0), gzip=True)
        assert len(packed) == 7 + 1


# Over HTTP.


@pytest.fixture
def one_hour(monkeypatch):
    """The hour by which change is counted does not end."""
    now = time.time()
    monkeypatch.setattr("onoff.server.store.time", SimpleNamespace(time=lambda: now))


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.redis)])
def server(request, tmp_path):
    store = tmp_path / "m.db"
    if request.param == "valkey":
        redis = request.getfixturevalue("shared_redis")
        redis.flush()
        store = redis.url
    with running(dict.fromkeys(NAMES, b"hello " * 100), store=store) as server:
        yield server


def get(server, path, **headers):
    with httpx2.Client(timeout=PATIENCE) as client:
        client.headers.clear()
        with client.stream("GET", server.url + path, headers=headers) as response:
            return response, b"".join(response.iter_raw())


def test_a_reader_follows_a_server(one_hour, server):
    known = catalogue(server.url)
    response, body = get(server, wire.changes_target(None), **dict(wire.CHANGES_HEADERS))
    assert response.headers["content-type"] == wire.CHANGES_TYPE
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-encoding"] == "gzip"
    assert int(response.headers["content-length"]) == len(body) < 7 * 200
    found, have, whole = read(known, gzip.decompress(body))
    assert whole
    assert {known.names[source]: message.body for source, message in found.items()} == dict.fromkeys(
        NAMES, b"hello " * 100
    )
    report = wire.decode_edition(get(server, wire.EDITION_PATH)[1])
    assert report.edition == have
    assert report.changed_per_hour == 7 * (600 + wire.FRAME_OVERHEAD)
    assert report.longest == 600 + wire.FRAME_OVERHEAD
    response, body = get(server, wire.changes_target(have), **dict(wire.CHANGES_HEADERS))
    assert (len(body), read(known, body, have)) == (96, ({}, have, False))
    assert "content-encoding" not in response.headers
    server.publish("s5", b"news")
    _, body = get(server, wire.changes_target(have))
    found, have, whole = read(known, body, have)
    assert ({source: message.body for source, message in found.items()}, whole) == ({5: b"news"}, False)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("deflate, GZIP;q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("gzip; q=0.000", None),
        ("identity", None),
        ("br", None),
        ("*", None),
        (None, None),
    ],
)
def test_compression_is_by_negotiation(server, accepted, encoding):
    headers = {} if accepted is None else {"accept-encoding": accepted}
    response, _ = get(server, "/v1/changes?since=0", **headers)
    assert response.headers.get("content-encoding") == encoding


@pytest.mark.parametrize(
    "query", ["", "?", "?since=-1", "?since=x", "?since=1&life=zz", "?since=1&more=1", "?since=1%30"]
)
def test_a_request_that_is_not_in_its_one_form_is_refused(server, query):
    response, body = get(server, f"/v1/changes{query}")
    assert response.status_code == 400
    assert wire.decode_problem(body).hint


def test_changes_are_asked_for_with_get_and_no_body(server):
    assert httpx2.post(f"{server.url}/v1/changes?since=0", timeout=PATIENCE).status_code == 405
    refused = httpx2.request("GET", f"{server.url}/v1/changes?since=0", content=b"body", timeout=PATIENCE)
    assert refused.status_code == 400


def test_after_a_restart_a_reader_goes_on_where_it_was(tmp_path):
    store = tmp_path / "m.db"
    with running(dict.fromkeys(NAMES, b"1"), store=store) as server:
        have = wire.decode_edition(get(server, wire.EDITION_PATH)[1]).edition
    assert isinstance(have, Edition)
    with running(NAMES, store=store) as server:
        server.publish("s2", b"2")
        found, _, whole = read(catalogue(server.url), get(server, wire.changes_target(have))[1], have)
    assert (set(found), whole) == ({2}, False)


def request(server, *, query="since=0", extra="", encoding="gzip") -> bytes:
    host = server.url.removeprefix("http://")
    lines = [f"GET /v1/changes?{query} HTTP/1.1", f"host: {host}", f"accept: {wire.CHANGES_TYPE}"]
    return "\r\n".join([*lines, f"accept-encoding: {encoding}", "user-agent: onoff" + extra, "", ""]).encode()


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_the_short_way_gives_the_bytes_of_the_ordinary_way(server, encoding):
    """Whole, one byte at a time, several at once, and under a head that needs the parser."""
    whole = request(server, encoding=encoding)
    with Line(server.url) as line:
        line.send(whole)
        short = line.reply()
        for byte in whole:
            line.send(bytes([byte]))
        slow = line.reply()
        line.send(request(server, encoding=encoding, extra="\r\nx-other: 1"))
        ordinary = line.reply()
        line.send(whole * 3)
        piped = [line.reply() for _ in range(3)]
    for reply in [short, slow, *piped]:
        assert (reply.status, sorted(reply.headers), reply.body) == (200, sorted(ordinary.headers), ordinary.body)


def test_what_the_short_way_does_not_take_is_refused_as_ever(server):
    for query in ("since=x", "since=1&life=zz", "since=01"):
        with Line(server.url) as line:
            line.send(request(server, query=query))
            assert line.reply().status == 400
            line.send(request(server))
            assert line.reply().status == 200
    with Line(server.url) as line:
        line.send(request(server, extra="\r\nconnection: close"))
        assert line.reply().status == 200
        with contextlib.suppress(ConnectionError):
            line.send(request(server))
        with pytest.raises((EOFError, ConnectionError)):
            line.reply()
    with Line(server.url) as line:
        line.send(request(server, extra="\r\nhost: other"))
        assert line.reply().status == 400
        assert line.ended()


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_reader_who_does_not_read_holds_no_copy_of_a_long_reply(tmp_path):
    """Twenty readers ask for 40 MiB and do not read: the server holds the messages once, not for each of them."""
    names = [f"s{k}" for k in range(40)]
    body = random.Random(1).randbytes(1024 * 1024)
    with served_alone(tmp_path / "m.db", names, body) as (process, url):
        before = resident_bytes(process.pid)
        lines = [Line(url) for _ in range(20)]
        for line in lines:
            line.send(f"GET /v1/changes?since=0 HTTP/1.1\r\nhost: {line.host}\r\n\r\n".encode())
            line.read_until(b"\r\n\r\n")
        grown = resident_bytes(process.pid) - before
        for line in lines:
            line.socket.close()
    assert grown < 120 * 1024 * 1024  # once the frames, and a piece for each reader; copies would be 800 MiB


@contextlib.contextmanager
def served_alone(store, names, body):
    async def fill():
        async with opened(str(store)) as opened_store:
            await edit_catalogue(opened_store, add=names)
            for name in names:
                await opened_store.publish(name, "a/b", body, 0)

    asyncio.run(fill())
    with served(store) as (process, started):
        yield process, started["url"]


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_reader_that_follows_two_workers_has_at_every_edition_what_was_published(tmp_path):
    """One publisher, so that edition and history are in step: each refresh must be exactly a moment of that history."""
    store = tmp_path / "m.db"
    with served(store, *(word for name in NAMES for word in ("--source", name)), "--workers", "2") as (_, started):
        url, token = started["url"], make_token(store)
        known = catalogue(url)
        first = wire.decode_edition(httpx2.get(url + wire.EDITION_PATH, timeout=PATIENCE).content).edition
        history: list[tuple[str, bytes]] = []
        rng = random.Random(5)
        moments: set[int] = set()

        def publish_all():
            with httpx2.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE) as client:
                for k in range(150):
                    if k % 30 == 29:  # on any machine the reader has its turns
                        until(partial(moments.__contains__, first.number + k))
                    name, body = rng.choice(NAMES), b"%d" % k
                    history.append((name, body))
                    assert client.put(f"/v1/sources/{name}/message", content=body).status_code == 200

        publisher = threading.Thread(target=publish_all)
        publisher.start()
        mirror: dict[Any, Any] = {}
        have: Any = None
        while publisher.is_alive() or have.number < first.number + 150:
            reply = httpx2.get(url + wire.changes_target(have), headers={"accept-encoding": "gzip"}, timeout=PATIENCE)
            found, have, whole = read(known, reply.content, have)
            mirror = dict(found) if whole else mirror | found
            published = dict(history[: have.number - first.number])
            assert {known.names[source]: message.body for source, message in mirror.items()} == published
            moments.add(have.number)
        publisher.join()
        assert have.number == first.number + 150
        assert len(moments) > 3
