"""The connection: the short way and the ordinary way give the same bytes, and no sender can hold the server."""

import contextlib
import gzip
import mmap
import os
import queue
import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.raw import Line, catalogue, metrics, query, query_request
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until

from onoff import wire
from onoff.server import running
from onoff.server.connections import QueryProtocol
from onoff.server.http import PIECE_BYTES

NAMES = {f"s{i}": b"message %d" % i for i in range(10)}
FRAME = 512


@pytest.fixture(scope="module")
def server():
    with running(NAMES, frame_size=FRAME) as server:
        yield server


@pytest.fixture(scope="module")
def known(server):
    return catalogue(server.url)


def variants(rng, known):
    """Queries good and bad in every way that has its own verdict."""
    good = query(known, *sorted(rng.sample(range(10), rng.randint(1, 10))))
    return rng.choice(
        [
            good,
            good,
            good[:-1],
            good + b"\0",
            good[:-2] + b"\0\0",
            good[:-1] + b"\x80",
            b"\0\2" + good[2:],
            good[:2] + bytes(6) + good[8:],
            b"",
        ]
    )


def test_both_ways_give_the_same_bytes(server, known):
    """Each query in one segment (short way), with an unusual header (ordinary way), and in two segments."""
    rng = random.Random(3)
    statuses = set()
    with Line(server.url) as short, Line(server.url) as ordinary, Line(server.url) as split:
        for _ in range(200):
            body = variants(rng, known)
            first = short.query(body)
            second = ordinary.query(body, extra="x-unusual: 1\r\n")
            request = query_request(split.host, body)
            cut = rng.randrange(1, len(request))
            split.send(request[:cut])
            time.sleep(0.0005)
            split.send(request[cut:])
            assert first == second == split.reply()
            statuses.add(first.status)
    assert statuses == {200, 400, 409}


def test_pipelined_queries_are_answered_in_order(server, known):
    bodies = [query(known, k) for k in range(10)]
    with Line(server.url) as line:
        line.send(b"".join(query_request(line.host, body) for body in bodies))
        replies = [line.reply() for _ in bodies]
    for k, reply in enumerate(replies):
        (message,) = wire.decode_answer(reply.body, (k,), epoch=known.epoch, frame_size=FRAME)
        assert message.body == b"message %d" % k


def test_answers_depend_on_the_query_alone(server, known):
    """Same set, any session, step or connection: the same bytes, headers and their order."""
    replies = []
    with Line(server.url) as kept:
        for step in range(20):
            replies.append(kept.query(query(known, 1, 4, 7, step=step)))
            with Line(server.url) as fresh:
                replies.append(fresh.query(query(known, 1, 4, 7, session=os.urandom(16))))
    assert all(reply == replies[0] for reply in replies)
    assert replies[0].headers == [*wire.ANSWER_HEADERS, ("content-length", str(3 * FRAME))]


def test_lengths_are_a_function_of_the_number_of_sources(server, known):
    rng = random.Random(4)
    with Line(server.url) as line:
        for size in range(1, 11):
            lengths = {len(line.query(query(known, *sorted(rng.sample(range(10), size)))).body) for _ in range(5)}
            assert lengths == {size * FRAME}


def test_garbage_is_refused_and_ends_the_connection(server):
    for garbage in [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"POST /v1/query HTTP/9.9\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
    ]:
        with Line(server.url) as line:
            line.send(garbage)
            assert line.reply().problem.status == 400
            assert line.ended()


def test_both_lengths_at_once_are_refused(server, known):
    with Line(server.url) as line:
        line.send(query_request(line.host, query(known, 1), extra="transfer-encoding: chunked\r\n"))
        assert line.reply().problem.status == 400
        assert line.ended()


@pytest.mark.parametrize("attack", ["many", "long", "url"])
def test_heads_without_end_are_cut_off(server, attack):
    """10^5 headers, one header of 50 MB, an address of 50 MB: refused early, and memory stays flat."""
    chunk = {"many": b"x-a: b\r\n" * 1000, "long": b"y" * 8000, "url": b"z" * 8000}[attack]
    start = {"many": b"GET / HTTP/1.1\r\n", "long": b"GET / HTTP/1.1\r\nx: ", "url": b"GET /"}[attack]
    sent = 0
    with Line(server.url) as line:
        try:
            line.send(start)
            for _ in range(6000):
                line.send(chunk)
                sent += len(chunk)
        except (ConnectionResetError, BrokenPipeError):
            pass
        else:
            pytest.fail("the server read it all")
    assert sent < 40_000_000


def test_forty_senders_of_a_length_with_zeros_cost_no_memory(server):
    """`00000010000000000` was once read as a small number, and 10 GB were waited for."""
    before = resident_bytes()
    head = query_request("h", b"").replace(b"content-length: 0", b"content-length: 00000010000000000")
    with contextlib.ExitStack() as stack:
        for line in [stack.enter_context(Line(server.url)) for _ in range(40)]:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                line.send(head)
                for _ in range(30):
                    line.send(bytes(100_000))
        with Line(server.url) as line:
            line.send(b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n")
            assert line.reply().status == 200
        assert resident_bytes() - before < 30 << 20


@pytest.mark.parametrize("size", [1, 7, 500])
def test_every_byte_is_handed_on_once_however_it_is_cut(server, known, monkeypatch, size):
    """Work for a connection grows with what it sends, not with the segments it comes in."""
    cut: list[int] = []
    searched: list[int] = []
    take, search = QueryProtocol._cut, QueryProtocol._take_head

    def counted_cut(self, length):
        cut.append(len(piece := take(self, length)))
        return piece

    def counted_search(self):
        searched.append(len(self._input) - max(0, self._searched - 3))
        return search(self)

    monkeypatch.setattr(QueryProtocol, "_cut", counted_cut)
    monkeypatch.setattr(QueryProtocol, "_take_head", counted_search)
    body = query(known, 1, session=bytes(16))
    data = query_request("h", body) + query_request("h", body, extra=f"x-unusual: {'y' * 2000}\r\n")
    publish = f"PUT /v1/sources/s0/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {server.token}\r\n"
    data += f"{publish}content-length: 9\r\n\r\n".encode() + NAMES["s0"]
    with Line(server.url) as line:
        for at in range(0, len(data), size):
            line.send(data[at : at + size])
        assert [line.reply().status for _ in range(3)] == [200, 200, 200]
    assert sum(cut) == len(data)
    assert sum(searched) <= 4 * len(data) + 3 * 64 * 1024  # at most three bytes again for each segment


def test_a_long_head_is_told_why(server):
    with Line(server.url) as line:
        line.send(b"GET / HTTP/1.1\r\n" + b"x-a: b\r\n" * 600 + b"\r\n")
        assert line.reply().problem.status == 431
        assert line.ended()


def test_slow_heads_get_408(server, known, monkeypatch):
    monkeypatch.setattr("onoff.server.connections.REQUEST_SECONDS", 0.2)
    whole = query_request("h", query(known, 1))
    for part in [b"", b"POST /v1", whole[:60], whole[:-1]]:
        with Line(server.url) as line:
            line.send(part)
            assert line.reply().problem.status == 408
            assert line.ended()


def test_slow_bodies_get_408(server, known, monkeypatch):
    monkeypatch.setattr("onoff.server.http.BODY_SECONDS", 0.2)
    unusual = query_request("h", query(known, 1), extra="x-unusual: 1\r\n")
    with Line(server.url) as line:
        line.send(unusual[:-1])
        assert line.reply().problem.status == 408
        assert line.ended()
    with Line(server.url) as line:  # a body that trickles is no better than one that stops
        line.send(unusual[:-10])
        for byte in unusual[-10:-1]:
            time.sleep(0.05)
            try:
                line.send(bytes([byte]))
            except OSError:
                break
        assert line.reply().problem.status == 408


def test_a_trickling_body_of_a_get_does_not_hold_the_connection(server, monkeypatch):
    monkeypatch.setattr("onoff.server.connections.REQUEST_SECONDS", 0.3)
    status = 408
    while status == 408:  # on a machine so busy that the head itself came too late, once more
        with Line(server.url) as line:
            line.send(b"GET /healthz HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nx")
            status = line.reply().status
            assert line.ended()
    assert status == 200


def test_too_many_connections_are_turned_away():
    with running(["a"], frame_size=FRAME, max_connections=3) as server:
        lines = [Line(server.url) for _ in range(3)]
        known = catalogue_of(lines[0])
        with Line(server.url) as extra:
            reply = extra.reply()
            assert reply.problem.status == 503
            assert reply["retry-after"] == "1"
            assert extra.ended()
        assert all(line.query(query(known, 0)).status == 200 for line in lines)
        for line in lines:
            line.socket.close()

        def recovered():
            with Line(server.url) as line:
                line.send(query_request(line.host, query(known, 0)))
                return line.reply().status == 200

        until(recovered)


def catalogue_of(line):
    line.send(f"GET /v1/catalogue HTTP/1.1\r\nhost: {line.host}\r\n\r\n".encode())
    return wire.decode_catalogue(line.reply().body)


def test_too_many_requests_at_once_are_shed_and_it_recovers(known, monkeypatch):
    """Bodies that are under way fill the server; what comes then gets 503, and later 200 again."""
    for name in ("connections.REQUEST_SECONDS", "http.BODY_SECONDS"):
        monkeypatch.setattr(f"onoff.server.{name}", LONG)
    with running(NAMES, frame_size=FRAME, max_in_flight=4) as server:
        stuck = [Line(server.url) for _ in range(4)]
        unusual = query_request("h", query(known, 1), extra="x-unusual: 1\r\n")
        for line in stuck:
            line.send(unusual[:-1])
        with Line(server.url) as line:
            while (reply := line.query(query(known, 1), extra="x-unusual: 1\r\n")).status == 200:
                pass  # until all four are in work
            assert reply.problem.status == 503
            assert reply["retry-after"] == "1"
        for line in stuck:
            line.send(unusual[-1:])
            assert line.reply().status == 200
            line.socket.close()
        with Line(server.url) as line:
            assert line.query(query(known, 1), extra="x-unusual: 1\r\n").status == 200
        assert metrics(server.url)["onoff_requests_shed_total"] >= 1


LONG = 3600
"""Seconds that never pass in a test."""
BOTH_WAYS = pytest.mark.parametrize("extra", ["", "x-unusual: 1\r\n"], ids=["short way", "ordinary way"])


@pytest.fixture(scope="module")
def large():
    """A server whose whole answer has 16 MiB, more than the sockets hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onoff.server.run.KEEP_ALIVE_SECONDS", LONG)
        with running([f"s{i}" for i in range(256)], frame_size=64 * 1024) as server:
            yield server


def ask_for_all(line, known, extra):
    line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    line.send(query_request(line.host, query(known, *range(known.n)), extra=extra))


@BOTH_WAYS
def test_a_reader_that_stops_is_cut_off(large, extra, monkeypatch):
    monkeypatch.setattr("onoff.server.connections.PIECE_SECONDS", 0.3)
    known = catalogue(large.url)
    before = metrics(large.url)["onoff_answers_cut_off_total"]
    with Line(large.url) as line:
        ask_for_all(line, known, extra)
        until(lambda: metrics(large.url)["onoff_answers_cut_off_total"] > before)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := line.socket.recv(1 << 20):
                got += len(piece)
        assert got < known.n * present(known.frame_size)
    monkeypatch.undo()
    with Line(large.url) as line:
        assert len(line.query(query(known, *range(known.n))).body) == known.n * present(known.frame_size)


@BOTH_WAYS
def test_a_slow_reader_is_waited_for(large, extra, monkeypatch):
    """The time for a piece ends again and again, each time just after the piece was taken. The test is the clock."""
    watched: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def watch(self, unread):
        self._unread = self.loop.call_later(LONG, pytest.fail)
        watched.put((self, unread - PIECE_BYTES))

    monkeypatch.setattr(QueryProtocol, "_watch_reader", watch)
    known = catalogue(large.url)
    before = metrics(large.url)["onoff_answers_cut_off_total"]
    with Line(large.url) as line:
        ask_for_all(line, known, extra)
        protocol, allowed = watched.get(timeout=PATIENCE)
        pieces, got = 1, 0
        while got < known.n * present(known.frame_size):
            piece = line.socket.recv(1 << 16)
            assert piece
            got += len(piece)
            looked = threading.Event()
            protocol.loop.call_soon_threadsafe(look, protocol, allowed, looked)
            assert looked.wait(PATIENCE)
            while not watched.empty():
                protocol, allowed = watched.get()
                pieces += 1
        until(lambda: protocol._unread is None)
        assert protocol.loop.time() - protocol._last_answer < LONG  # idle only since the end was taken
    assert pieces > 4  # nine where the system buffers four of the sixteen MiB
    assert metrics(large.url)["onoff_answers_cut_off_total"] == before


def look(protocol, allowed, looked):
    """The time for a piece ends once it was taken; that for an idle connection has long passed meanwhile."""
    if protocol._unread is not None:
        protocol._last_answer -= 2 * LONG
        if protocol.transport.get_write_buffer_size() <= allowed:
            protocol._look_at_reader(allowed)
    if protocol.timeout_keep_alive_task is not None:
        protocol.timeout_keep_alive_handler()
    looked.set()


@BOTH_WAYS
def test_an_answer_that_nobody_reads_is_not_copied(large, extra):
    """Fifty of them hold far less than their 800 MiB."""
    known = catalogue(large.url)
    before = resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            ask_for_all(stack.enter_context(Line(large.url)), known, extra)
        with Line(large.url) as line:
            line.query(query(known, 0))  # all the others are in work
        assert resident_bytes() - before < 200 << 20


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_many_threads_at_once(server, known):
    failures = []

    def ask(seed):
        rng = random.Random(seed)
        with Line(server.url) as line:
            for step in range(100):
                sources = tuple(sorted(rng.sample(range(10), rng.randint(1, 10))))
                reply = line.query(query(known, *sources, step=step), extra="x: y\r\n" if rng.randrange(3) == 0 else "")
                read = wire.decode_answer(reply.body, sources, epoch=known.epoch, frame_size=FRAME)
                if [m.body for m in read] != [b"message %d" % s for s in sources]:
                    failures.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("extra", ["", "x-other: 1\r\n"], ids=["fast path", "ordinary path"])
def test_a_query_that_takes_gzip_gets_it_where_that_is_shorter(extra):
    with running({"a": b"a" * 1000, "b": b"", "c": b"c"}) as server, Line(server.url) as line:
        known = catalogue(server.url)
        for sources in ((0, 1), (0,), (0, 1, 2)):
            plain = line.query(query(known, *sources), extra=extra)
            packed = line.query(query(known, *sources), extra=extra, encoding="gzip")
            assert packed.headers == [
                *wire.ANSWER_HEADERS,
                ("content-length", str(len(packed.body))),
                ("content-encoding", "gzip"),
            ]
            assert gzip.decompress(packed.body) == plain.body
            assert len(packed.body) < len(plain.body)
        tags = b"".join(wire.frame_tag(frame) for frame in (plain.body[:1104], plain.body[1104:1208]))
        for encoding in ("gzip", "identity"):
            nothing = line.query(query(known, 0, 1, tags=tags), extra=extra, encoding=encoding)
            assert nothing.headers == [*wire.ANSWER_HEADERS, ("content-length", "16")]
            assert wire.decode_changed(nothing.body, (0, 1), tags, epoch=known.epoch) == {}
