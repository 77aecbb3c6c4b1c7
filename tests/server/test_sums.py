"""Sums over HTTP: right answers for every edition that is held, clear refusals, several queries in one pass."""

import asyncio
import contextlib
import itertools
import os
import random
import secrets
import socket
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.support.fuzz import mutate
from tests.support.raw import Line, Reply, catalogue, get_json, metrics, query, query_request
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until

from onoff import wire
from onoff.server import running, sums
from onoff.server.admin import edit_catalogue, opened
from onoff.server.answers import Shelf
from onoff.server.app import MessageServer
from onoff.server.connections import QueryProtocol
from onoff.server.sums import Matrix, SumOutcome, Sums

NAMES = {f"s{i}": b"message %d" % i * (i + 1) for i in range(12)}


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.redis)])
def server(request, tmp_path):
    where = tmp_path / "m.db"
    if request.param == "valkey":
        redis = request.getfixturevalue("shared_redis")
        redis.flush()
        where = redis.url
    with running(NAMES, store=where) as server:
        yield server


def sum_request(body, kind=wire.SUM_QUERY_TYPE, path=wire.SUM_PATH, extra="") -> bytes:
    headers = dict(wire.SUM_QUERY_HEADERS) | {"content-type": kind, "content-length": str(len(body))}
    text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nhost: h\r\n{text}{extra}\r\n".encode() + body


def post(line, body, kind=wire.SUM_QUERY_TYPE, path=wire.SUM_PATH) -> Reply:
    line.send(sum_request(body, kind, path))
    return line.reply()


def newest(url):
    found = get_json(url, wire.EDITION_PATH)
    return found["edition"], bytes.fromhex(found["digest"])


def queries_for(known, edition, wanted, servers, *, session=None, step=0, sources=None):
    vectors = wire.draw_vectors(
        sources or range(known.n), wanted, n=known.n, servers=servers, randbelow=secrets.randbelow
    )
    session = session or os.urandom(16)
    bodies = [
        wire.encode_sum_query(wire.SumQuery(known.epoch, session, step, edition[0], edition[1], servers, place, vector))
        for place, vector in enumerate(vectors)
    ]
    return vectors, bodies


def digests(line, known, number=None, have=None):
    """The digests of an edition, as a reader gets them who has others already."""
    line.send(f"GET {wire.digests_target(have, number)} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
    reply = line.reply()
    assert (reply.status, reply["content-type"]) == (200, wire.DIGESTS_TYPE), reply
    return wire.decode_digests(reply.body, known, have)


def get(line, known, edition, wanted, servers, sources=None):
    """The message, from one server that plays all of them under a session for each."""
    vectors, bodies = queries_for(known, edition, wanted, servers, sources=sources)
    answers = []
    for body in bodies:
        fresh = body[:8] + os.urandom(16) + body[24:]
        reply = post(line, fresh)
        assert reply.status == 200, reply
        assert reply.headers == [*wire.SUM_HEADERS, ("content-length", str(len(reply.body)))]
        answers.append(reply.body)
    found = digests(line, known, edition[0])
    assert (found.edition.number, found.edition.digest) == edition
    return wire.decode_sums(answers, vectors, wanted, found, limit=known.limit).body


@pytest.mark.parametrize("servers", [2, 3, 5])
def test_messages_come_out_of_sums(server, servers):
    known, edition = catalogue(server.url), newest(server.url)
    with Line(server.url) as line:
        for wanted, name in enumerate(NAMES):
            assert get(line, known, edition, wanted, servers) == NAMES[name]
        assert get(line, known, edition, 7, servers, sources=(2, 7, 9)) == NAMES["s7"]
        assert get(line, known, edition, 7, servers, sources=(7,)) == NAMES["s7"]


def test_editions_of_before_are_answered_as_they_were(server):
    known = catalogue(server.url)
    with Line(server.url) as line:
        first = newest(server.url)
        assert get(line, known, first, 3, 2) == NAMES["s3"]  # from here on editions are held
        said = {first: NAMES["s3"]}
        for k in range(20):
            body = b"x" * (k * 397)
            server.publish("s3" if k % 3 else "s5", body)
            said[newest(server.url)] = body if k % 3 else list(said.values())[-1]
        for edition, body in said.items():
            assert get(line, known, edition, 3, 2) == body
            assert get(line, known, edition, 3, 3) == body


def test_digests_are_those_of_every_edition_and_only_what_changed_is_sent(server):
    known = catalogue(server.url)
    rng = random.Random(6)
    with Line(server.url) as line:
        have = first = digests(line, known)
        for name, body in NAMES.items():
            frame = wire.encode_frame(
                known.index[name], message_of(line, known, name), epoch=known.epoch, frame_size=None
            )
            assert wire.frame_digest(frame) == first.of(known.index[name])
            assert body in frame
        held = {first.edition.number: first}
        for k in range(30):
            server.publish(f"s{rng.randrange(12)}", rng.randbytes(rng.randrange(400)))
            fresh = digests(line, known)
            assert digests(line, known, have=have) == fresh  # from what changed alone, and the root is the same
            assert (fresh.edition.number, fresh.edition.digest) == newest(server.url)
            held[fresh.edition.number] = fresh
            have = fresh if k % 3 else have
        for number, found in held.items():
            assert digests(line, known, number) == digests(line, known, number, have=first) == found
            assert digests(line, known, number, have=have) == found  # also where the reader has a later one
        line.send(f"GET {wire.digests_target(fresh)} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
        assert len(line.reply().body) == 108 + 2  # a head and an empty set
        server.publish("s3", b"x")
        line.send(f"GET {wire.digests_target(fresh)} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
        assert len(line.reply().body) == 108 + 2 + 32


def message_of(line, known, name):
    """The latest message of a source, by a query for it alone."""
    line.send(query_request("h", query(known, known.index[name])))
    return wire.decode_answer(line.reply().body, [known.index[name]], epoch=known.epoch, frame_size=known.frame_size)[0]


def test_digests_that_cannot_be_had_are_refused(server):
    number, _ = newest(server.url)
    with Line(server.url) as line:
        for target, status in [("?since=0&edition=99", 409), ("", 400), ("?since=x", 400), ("?edition=1&since=0", 400)]:
            line.send(f"GET {wire.DIGESTS_PATH}{target} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
            refused = line.reply().problem
            assert refused.status == status
            assert status != 409 or (refused.type, refused.edition) == (wire.EDITION_GONE, number)


def test_an_empty_vector_gets_an_empty_answer_and_is_a_step(server):
    known, edition = catalogue(server.url), newest(server.url)
    session = os.urandom(16)
    nothing = wire.SumQuery(known.epoch, session, 4, edition[0], edition[1], 2, 0, bytes(known.n))
    other = wire.SumQuery(known.epoch, session, 4, edition[0], edition[1], 2, 0, bytes([1, 1, *bytes(known.n - 2)]))
    with Line(server.url) as line:
        reply = post(line, wire.encode_sum_query(nothing))
        assert (reply.status, reply.body) == (200, b"")
        refused = post(line, wire.encode_sum_query(other)).problem
        assert (refused.status, refused.type, refused.step) == (409, wire.STEP_CONFLICT, 4)
        assert refused.sha256 == wire.sum_step_digest(wire.encode_sum_query(nothing)).hex()


def test_a_step_may_be_asked_of_another_edition_with_the_same_vector(server):
    known, edition = catalogue(server.url), newest(server.url)
    _, (body, _) = queries_for(known, edition, 1, 2)
    with Line(server.url) as line:
        assert post(line, body).status == 200
        server.publish("s0", b"newer")
        assert post(line, wire.with_edition(body, *newest(server.url))).status == 200
        assert post(line, body).status == 200


def test_an_edition_that_is_not_held_is_gone(server):
    known, (number, digest) = catalogue(server.url), newest(server.url)
    with Line(server.url) as line:
        for bad in [(number + 1, digest), (number, bytes(32)), (0, digest), (1 << 50, digest)]:
            _, (body, _) = queries_for(known, bad, 1, 2)
            refused = post(line, body).problem
            assert (refused.status, refused.type, refused.edition) == (409, wire.EDITION_GONE, number)
        _, (body, _) = queries_for(known, (number, digest), 1, 2)
        assert post(line, body).status == 200


def test_another_catalogue_is_another_epoch(tmp_path):
    where = str(tmp_path / "m.db")

    async def add():
        async with opened(where) as store:
            return await edit_catalogue(store, add=["more"])

    with running(NAMES, store=where) as server, Line(server.url) as line:
        old, edition = catalogue(server.url), newest(server.url)
        assert get(line, old, edition, 1, 2) == NAMES["s1"]
        new = asyncio.run(add())
        _, (body, _) = queries_for(old, edition, 1, 2)
        refused = post(line, body).problem
        assert (refused.status, refused.type, refused.epoch) == (409, wire.EPOCH_CHANGED, new.epoch)
        assert get(line, new, newest(server.url), 1, 2) == NAMES["s1"]


def test_wrong_forms_are_refused_and_leave_no_trace(server):
    known, edition = catalogue(server.url), newest(server.url)
    session = os.urandom(16)
    _, (good, _) = queries_for(known, edition, 1, 2, session=session, step=5)
    with Line(server.url) as line:
        for bad in [
            good[:-1], good + b"\0", b"", good[:73] + b"\1" + good[74:], good[:73] + b"\2" + good[74:],
            good[:72] + b"\3" + good[73:], good[:-1] + bytes([good[-1] | 0x80]), b"\0\1" + good[2:],
        ]:  # fmt: skip
            reply = post(line, bad)
            assert reply.problem.status == 400, bad
        _, (first, _) = queries_for(known, edition, 1, 2, session=session, step=0)
        assert post(line, first).status == 200
    with Line(server.url) as line:
        assert post(line, good, kind=wire.QUERY_TYPE).problem.status == 415
    with Line(server.url) as line:
        assert post(line, good, kind=wire.QUERY_TYPE, path=wire.QUERY_PATH).problem.status == 400
    with Line(server.url) as line:
        assert post(line, bytes(wire.MAX_SUM_QUERY + 1)).problem.status == 413


def test_injured_queries_get_described_refusals(server):
    known, edition = catalogue(server.url), newest(server.url)
    rng = random.Random(3)
    statuses = set()
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(Line(server.url))
        for _ in range(500):
            servers = rng.randint(2, 16)
            _, bodies = queries_for(known, edition, rng.randrange(known.n), servers)
            reply = post(line, mutate(rng, rng.choice(bodies)))
            if reply["connection"] == "close":
                line = stack.enter_context(Line(server.url))
            statuses.add(reply.status)
            assert reply.status == 200 or reply.problem.hint
    assert statuses >= {200, 400, 409}
    assert statuses <= {200, 400, 409, 413}


def test_waiting_queries_share_a_pass(tmp_path, monkeypatch):
    """While the thread is busy queries gather; they are then answered together, and right."""
    passes = []
    gate = threading.Event()

    async def body():
        where = str(tmp_path / "m.db")
        async with opened(where) as store:
            known = await edit_catalogue(store, add=list(NAMES))
            for name, text in NAMES.items():
                await store.publish(name, "a/b", text, 1)
            shelf = Shelf()
            await shelf.refresh(store)
            service = Sums(store, shelf)
            whole = service.run_pass

            def counted(update, wanted):
                gate.wait()
                passes.append(len(wanted))
                return whole(update, wanted)

            monkeypatch.setattr(service, "run_pass", counted)
            edition = (present(shelf.edition).number, present(shelf.edition).digest)
            asked = [(k % known.n, *queries_for(known, edition, k % known.n, 2)) for k in range(21)]
            tasks = [
                asyncio.gather(*(service.answer(b[:8] + os.urandom(16) + b[24:]) for b in bodies))
                for _, _, bodies in asked
            ]
            while len(service._waiting) < 30:
                await asyncio.sleep(0)
            gate.set()
            found = service.history.digests(present(service.history.find(edition[0])))
            for (wanted, vectors, _), task in zip(asked, tasks, strict=True):
                message = wire.decode_sums(await task, vectors, wanted, found, limit=known.limit)
                assert message.body == NAMES[known.names[wanted]]
            await service.close()

    asyncio.run(body())
    assert len(passes) <= 2  # those that came while nobody was at work, and all the others
    assert sum(passes) >= 30


def test_closing_waits_for_the_pass_that_is_under_way(tmp_path, gate):
    async def body():
        async with opened(str(tmp_path / "m.db")) as store:
            known = await edit_catalogue(store, add=list(NAMES))
            shelf = Shelf()
            await shelf.refresh(store)
            service = Sums(store, shelf)
            replies: list[SumOutcome] = []
            _, (_, asked) = queries_for(known, (present(shelf.edition).number, present(shelf.edition).digest), 1, 2)
            assert await service.ask(asked, replies.append) is True
            closing = asyncio.create_task(service.close())
            assert await asyncio.to_thread(gate.entered.wait, PATIENCE)
            assert (closing.done(), replies) == (False, [])
            gate.set()
            await closing
            assert [type(reply) for reply in replies] == [bytes]
            assert not present(service._thread).is_alive()

    asyncio.run(body())


def test_many_readers_while_messages_are_published(server):
    """Whatever the order of publishes and passes, a sum is of exactly the edition it was asked of."""
    known = catalogue(server.url)
    stop = threading.Event()
    failures, answered = [], []

    def read(seed):
        rng = random.Random(seed)
        with Line(server.url) as line:
            while not stop.is_set():
                wanted = rng.randrange(known.n)
                vectors, bodies = queries_for(known, newest(server.url), wanted, 2)
                replies = [post(line, b[:8] + os.urandom(16) + b[24:]) for b in bodies]
                if any(r.status == 409 for r in replies):
                    assert all(r.status == 200 or r.problem.type == wire.EDITION_GONE for r in replies)
                    continue
                found = digests(line, known, wire.decode_sum_head(bodies[0]).edition)
                message = wire.decode_sums([r.body for r in replies], vectors, wanted, found, limit=known.limit)
                if not message.body.startswith(b"message %d" % wanted):
                    failures.append(message)
                answered.append(wanted)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for reader in readers:
        reader.start()
    rng = random.Random(9)
    for k in itertools.count():
        if k >= 60 and (len(answered) >= 20 or not any(reader.is_alive() for reader in readers)):
            break  # on any machine the readers have their turns
        source = rng.randrange(known.n)
        server.publish(f"s{source}", b"message %d" % source * rng.randint(1, 300))
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(answered) >= 20


def test_what_is_too_much_is_refused_for_now(server, monkeypatch):
    known, edition = catalogue(server.url), newest(server.url)
    _, bodies = queries_for(known, edition, 1, 2)
    body = bodies[1]  # never empty
    with Line(server.url) as line:
        for limit in ["MAX_WAITING", "MAX_MATRIX_BYTES"]:
            with monkeypatch.context() as patch:
                patch.setattr(sums, limit, 0)
                refused = post(line, body)
                assert (refused.problem.status, refused["retry-after"]) == (503, "1")
        assert post(line, body).status == 200


# Peers who do not read.

LONG = 8 * 1024 * 1024  # more than the system takes in for a connection


@pytest.fixture
def long(tmp_path, monkeypatch):
    """A server of one long message, and its connections."""
    connections = []
    made = QueryProtocol.connection_made

    def noted(self, transport):
        connections.append(self)
        made(self, transport)

    monkeypatch.setattr(QueryProtocol, "connection_made", noted)
    with running({"long": bytes(LONG), "short": b"s"}, store=tmp_path / "m.db", frame_size=LONG + 1024) as server:
        yield server, connections


def asking_for_the_long_one(url):
    known, edition = catalogue(url), newest(url)
    return wire.SumQuery(known.epoch, os.urandom(16), 0, edition[0], edition[1], 2, 1, bytes([1, 0]))


@pytest.mark.parametrize("extra", ["", "x-other: 1\r\n"], ids=["short way", "ordinary way"])
def test_answers_that_nobody_reads_take_a_bounded_memory_and_readers_are_served(long, extra, monkeypatch):
    """Counted in bytes: of twelve answers that are not read, so many are kept as fit; the oldest are let go of."""
    server, connections = long
    monkeypatch.setattr("onoff.server.connections.MAX_UNREAD_BYTES", 3 * LONG)
    with contextlib.ExitStack() as stack:
        for k in range(12):
            line = stack.enter_context(Line(server.url))
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            line.send(sum_request(wire.encode_sum_query(asking_for_the_long_one(server.url)), extra=extra))
            until(partial(lambda k: metrics(server.url)["onoff_sums_sent_total"] == k, k + 1))
        unread = [c.transport.get_write_buffer_size() for c in connections if not c.transport.is_closing()]
        assert sum(unread) <= 3 * LONG
        assert 0 < metrics(server.url)["onoff_answers_cut_off_total"] < 12
        with Line(server.url) as line:
            assert len(post(line, wire.encode_sum_query(asking_for_the_long_one(server.url))).body) > LONG
    until(lambda: all(connection.transport.is_closing() for connection in connections[-2:]))
    server_side = connections[0]._server.unread
    until(lambda: server_side.total == 0)


@pytest.mark.parametrize("extra", ["", "x-other: 1\r\n"], ids=["short way", "ordinary way"])
def test_the_next_answer_is_made_when_the_last_one_was_read(long, extra):
    server, connections = long
    asked = asking_for_the_long_one(server.url)
    sent = [sum_request(wire.encode_sum_query(replace(asked, step=step)), extra=extra) for step in range(5)]
    with Line(server.url) as line:
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        line.send(b"".join(sent))
        until(lambda: metrics(server.url)["onoff_sums_sent_total"])
        protocol = next(c for c in connections if c.flow.write_paused)
        assert protocol.transport.get_write_buffer_size() < LONG + 1000
        assert metrics(server.url)["onoff_sums_sent_total"] == 1
        assert protocol._server._in_flight <= 1  # that of the counts alone, if at all
        assert all(len(line.reply().body) > LONG for _ in sent)


def test_a_pass_makes_no_more_than_so_many_bytes(tmp_path, monkeypatch):
    """The others wait for the next pass; all are answered, and right."""
    made = []

    async def body():
        async with opened(str(tmp_path / "m.db")) as store:
            known = await edit_catalogue(store, add=list(NAMES))
            for name, text in NAMES.items():
                await store.publish(name, "a/b", text, 1)
            shelf = Shelf()
            await shelf.refresh(store)
            service = Sums(store, shelf)
            found = service.history.digests(present(service.history.find(present(shelf.edition).number)))
            service.max_pass_bytes = 5 * found.width
            whole = service.run_pass

            def counted(update, wanted):
                made.append(sum(query.length for query in wanted))
                return whole(update, wanted)

            monkeypatch.setattr(service, "run_pass", counted)
            edition = (found.edition.number, found.edition.digest)
            asked = [(k % known.n, *queries_for(known, edition, k % known.n, 2 + k % 2)) for k in range(24)]
            answers = await asyncio.gather(
                *(
                    asyncio.gather(*(service.answer(b[:8] + os.urandom(16) + b[24:]) for b in bodies))
                    for _, _, bodies in asked
                )
            )
            for (wanted, vectors, _), answer in zip(asked, answers, strict=True):
                message = wire.decode_sums(answer, vectors, wanted, found, limit=known.limit)
                assert message.body == NAMES[known.names[wanted]]
            await service.close()
            return found.width

    width = asyncio.run(body())
    assert len(made) > 5
    assert max(made) <= 5 * width


# The short way: no parser, no task.


@pytest.fixture
def ordinary(monkeypatch):
    """The bodies of sum queries that took the ordinary way."""
    taken = []
    answer = Sums.answer

    async def noted(self, body):
        taken.append(body)
        return await answer(self, body)

    monkeypatch.setattr(Sums, "answer", noted)
    return taken


@pytest.fixture
def gate(monkeypatch):
    """Holds every pass until it is set; `gate.entered` says that one has come so far."""
    gate: Any = threading.Event()
    gate.entered = threading.Event()
    whole = Sums.run_pass

    def held(self, update, wanted):
        gate.entered.set()
        assert gate.wait(PATIENCE)
        return whole(self, update, wanted)

    monkeypatch.setattr(Sums, "run_pass", held)
    yield gate
    gate.set()


@pytest.fixture
def local(tmp_path):
    with running(NAMES, store=tmp_path / "m.db") as server:
        yield server


@pytest.fixture
def narrow(tmp_path):
    with running(NAMES, store=tmp_path / "m.db", max_in_flight=3) as server:
        yield server


def variants(rng, known, edition):
    """Sum queries good and bad in every way that has its own verdict."""
    servers = rng.choice([2, 2, 2, 3, 5])
    _, bodies = queries_for(known, edition, rng.randrange(known.n), servers)
    good = rng.choice(bodies)
    gone = wire.with_edition(good, edition[0] + 1, edition[1])
    other_place = good[:73] + bytes([(good[73] + 1) % servers]) + good[74:]
    spare = good[:-1] + bytes([good[-1] | 0x80])
    bad = [good[:-1], good + b"\0", gone, wire.with_edition(good, edition[0], bytes(32)), other_place, spare, b""]
    bad += [good[:72] + b"\x11" + good[73:], good[:2] + bytes(6) + good[8:], good[:5], b"\0\1" + good[2:]]
    return rng.choice([good] * len(bad) + bad)


def test_both_ways_give_the_same_bytes(local, ordinary):
    """Each query in one segment, in two, among plain queries; and under an unusual header, the ordinary way."""
    known, edition = catalogue(local.url), newest(local.url)
    rng = random.Random(5)
    statuses, kept = set(), 0
    with Line(local.url) as short, Line(local.url) as unusual, Line(local.url) as split, Line(local.url) as mixed:
        for _ in range(150):
            body = variants(rng, known, edition)
            request, plain = sum_request(body), query(known, 1, 4)
            before = len(ordinary)
            first = post(short, body)
            kept += len(ordinary) == before
            unusual.send(sum_request(body, extra="x-unusual: 1\r\n"))
            cut = rng.randrange(1, len(request))
            split.send(request[:cut])
            split.send(request[cut:])
            expected = mixed.query(plain)
            mixed.send(query_request("h", plain) + request + query_request("h", plain) + request)
            replies = [mixed.reply() for _ in range(4)]
            assert replies == [expected, first, expected, first]
            assert first == unusual.reply() == split.reply()
            statuses.add(first.status)
            assert (first.status == 200) == (len(ordinary) == before + 1)  # what is right took the short way thrice
    assert statuses == {200, 400, 409}
    assert kept >= 50


def test_counts_are_the_same_both_ways(local):
    known, edition = catalogue(local.url), newest(local.url)
    _, (_, good) = queries_for(known, edition, 3, 2)
    counted = []
    for extra in ["", "x-unusual: 1\r\n"]:
        before = metrics(local.url)
        with Line(local.url) as line:
            for body in [good, good, good[:-1], wire.with_edition(good, edition[0] + 1, edition[1])]:
                line.send(sum_request(body, extra=extra))
                line.reply()
        after = metrics(local.url)
        counted.append({name: value - before[name] for name, value in after.items() if value != before[name]})
    assert counted[0] == counted[1]
    assert counted[0]["onoff_sums_sent_total"] == 2


def test_what_follows_a_waiting_sum_is_answered_after_it(local, gate):
    """Also what could be answered at once: a query under the head of the last one that came in one segment."""
    known, edition = catalogue(local.url), newest(local.url)
    _, (_, body) = queries_for(known, edition, 3, 2)
    plain, request = query_request("h", query(known, 3)), sum_request(body)
    with Line(local.url) as line, Line(local.url) as other:
        line.send(plain)
        answer = line.reply()
        for piece in [request[:-3], request[-3:], plain, request + plain]:
            line.send(piece)
            for _ in range(2):  # when another one is answered, the server has looked at what came before
                assert other.query(query(known, 3)) == answer
        gate.set()
        replies = [line.reply() for _ in range(4)]
    assert replies == [replies[0], answer, replies[0], answer]
    assert dict(replies[0].headers)["content-type"] == wire.SUM_TYPE


def test_waiting_sums_count_as_requests_in_work_also_if_their_readers_leave(narrow, gate, monkeypatch):
    """Three may be in work. The fourth is shed; when the three are done, whoever asked, there is room again."""
    known, edition = catalogue(narrow.url), newest(narrow.url)
    _, (_, body) = queries_for(known, edition, 3, 2)
    begun = threading.Semaphore(0)
    sum_now = MessageServer.sum_now

    def noted(self, body, reply):
        taken = sum_now(self, body, reply)
        begun.release()
        return taken

    monkeypatch.setattr(MessageServer, "sum_now", noted)

    def status():
        with Line(narrow.url) as line:
            return post(line, body).status

    for _ in range(2):
        lines = [Line(narrow.url) for _ in range(3)]
        for line in lines:
            line.send(sum_request(body))
            assert begun.acquire(timeout=PATIENCE)
        assert status() == 503
        for line in lines:
            line.socket.close()
        gate.set()
        until(lambda: status() == 200)
        gate.clear()
        while begun.acquire(blocking=False):
            pass


def test_a_server_that_stops_answers_the_sums_that_wait(tmp_path, gate, monkeypatch):
    stop = QueryProtocol.shutdown

    def stop_then_open(self):
        waits = bool(self._sum_request)
        stop(self)
        if waits:
            gate.set()

    monkeypatch.setattr(QueryProtocol, "shutdown", stop_then_open)
    monkeypatch.setattr("onoff.server.run.STOP_SECONDS", PATIENCE)
    with running(NAMES, store=tmp_path / "m.db") as server:
        known, edition = catalogue(server.url), newest(server.url)
        _, (_, body) = queries_for(known, edition, 3, 2)
        line = Line(server.url)
        line.send(sum_request(body))
        assert gate.entered.wait(PATIENCE)
    with line:
        reply = line.reply()
        assert line.ended()
    with running([], store=tmp_path / "m.db") as server, Line(server.url) as line:
        assert post(line, wire.with_edition(body, *newest(server.url))) == reply
    assert (reply.status, any(reply.body)) == (200, True)


def test_a_pass_that_fails_is_tried_again_the_ordinary_way(local, monkeypatch, ordinary):
    known, edition = catalogue(local.url), newest(local.url)
    _, (_, body) = queries_for(known, edition, 3, 2)
    failures = [MemoryError(), None, MemoryError(), MemoryError(), None]
    whole = Matrix.sums

    def failing(self, wanted):
        error = failures.pop(0)
        if error is not None:
            raise error
        return whole(self, wanted)

    monkeypatch.setattr(Matrix, "sums", failing)
    statuses = []
    for _ in range(3):
        with Line(local.url) as line:
            statuses.append(post(line, body).status)
    assert (statuses, failures, len(ordinary)) == ([200, 500, 200], [], 2)
