"""Faults: the server killed at any moment of publishing, the store gone and back, one of two servers lost.

The servers here are real processes, killed with SIGKILL. A fork server that has already imported everything
starts them, so that hundreds of kills take seconds, not hours.
"""

import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import socket
import threading
import time

import pytest
from tests.support.ports import reserved_port
from tests.support.raw import Line, query
from tests.support.redis import redis_server
from tests.support.waiting import PATIENCE, until

from onoff import wire
from onoff.server import run, store, valkey
from onoff.server.admin import edit_catalogue, new_publisher, opened
from onoff.server.http import Metrics

FRAME = 512
PUBLISHERS = 4
NAMES = tuple(f"source-{k}" for k in range(PUBLISHERS))
KNOWN = wire.Catalogue(NAMES, FRAME)

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["__main__", "pytest", __name__, "onoff.server.run", "onoff.server.sqlite", "onoff.server.valkey", "uvloop"]
)


def _serve(where: str, sock: socket.socket, ready) -> None:
    valkey._SECONDS = store.SHARE_SECONDS = PATIENCE  # type: ignore[assignment]  # as in `patient_stores`
    run._run(lambda: run.serve(run.Settings(where), sock, Metrics(), ready=lambda _: ready.set()))


class Served:
    """A server process."""

    def __init__(self, where: str, port: int = 0) -> None:
        self.sock = run.listen_for_workers("127.0.0.1", port)
        self.url = run.address(self.sock)
        ready = context.Event()
        self.process = context.Process(target=_serve, args=(where, self.sock, ready), daemon=True)
        self.process.start()
        assert ready.wait(PATIENCE)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.sock.close()


async def _prepare(where: str) -> str:
    async with opened(where, frame_size=FRAME) as store:
        await edit_catalogue(store, add=NAMES)
        return await new_publisher(store, "test")


class Publishing(threading.Thread):
    """Publishes 1, 2, 3, ... to one source until the line breaks; knows what was acknowledged."""

    def __init__(self, url: str, token: str, source: int, start: int) -> None:
        super().__init__()
        self.url, self.token, self.source = url, token, source
        self.tried = self.acknowledged = start
        self.refusals: list[int] = []
        self.first = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError, EOFError), Line(self.url) as line:
            while True:
                self.tried += 1
                body = b"%d" % self.tried
                head = (
                    f"PUT /v1/sources/{NAMES[self.source]}/message HTTP/1.1\r\nhost: h\r\n"
                    f"authorization: Bearer {self.token}\r\ncontent-length: {len(body)}\r\n\r\n"
                )
                line.send(head.encode() + body)
                reply = line.reply()
                self.first.set()
                if reply.status != 200:
                    self.refusals.append(reply.status)
                    return
                self.acknowledged = self.tried


def latest(url: str) -> list[int]:
    """What each source says now."""
    with Line(url) as line:
        reply = line.query(query(KNOWN, *range(PUBLISHERS)))
    assert reply.status == 200
    messages = wire.decode_answer(reply.body, range(PUBLISHERS), epoch=KNOWN.epoch, frame_size=FRAME)
    return [int(message.body or b"0") for message in messages]


def kill_while_publishing(where: str, rounds: int, seed: int) -> int:
    """Kill the server `rounds` times at random moments; return how many messages were acknowledged in all."""
    rng = random.Random(seed)
    token = asyncio.run(_prepare(where))
    said = [0] * PUBLISHERS
    acknowledged = 0
    for _ in range(rounds):
        server = Served(where)
        try:
            now = latest(server.url)
            threads = [Publishing(server.url, token, k, now[k]) for k in range(PUBLISHERS)]
            for thread in threads:
                thread.start()
            assert threads[0].first.wait(PATIENCE)
            time.sleep(rng.random() * 0.03)  # any moment will do
        finally:
            server.kill()
        for thread in threads:
            thread.join()
        assert [thread.refusals for thread in threads] == [[]] * PUBLISHERS
        # What the next server finds is checked at once, on the store that the kill left behind.
        server = Served(where) if rng.randrange(5) == 0 else None  # type: ignore[assignment]
        if server:
            said = latest(server.url)
            server.kill()
        else:
            said = asyncio.run(_stored(where))
        for thread, value in zip(threads, said, strict=True):
            assert thread.acknowledged <= value <= thread.tried
        acknowledged += sum(thread.acknowledged - value for thread, value in zip(threads, now, strict=True))
    return acknowledged


async def _stored(where: str) -> list[int]:
    async with opened(where) as store:
        found = (await store.latest(run_stamp())).messages
        assert all(message.version >= 1 for message in found.values())
        return [int(found[name].body) if name in found else 0 for name in NAMES]


def run_stamp():
    from onoff.server.store import Stamp

    return Stamp()


@pytest.mark.slow(reason="a server is started and killed fifty times")
def test_fifty_kills_lose_no_acknowledged_message(tmp_path):
    assert kill_while_publishing(str(tmp_path / "m.db"), 50, seed=1) >= 50


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_five_hundred_kills_lose_no_acknowledged_message(tmp_path):
    assert kill_while_publishing(str(tmp_path / "m.db"), 500, seed=2) >= 500


@pytest.mark.redis
def test_kills_of_a_durable_redis_lose_no_acknowledged_message():
    rng = random.Random(3)
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as redis:
        token = asyncio.run(_prepare(redis.url))
        server = Served(redis.url)
        try:
            for _ in range(5):
                now = latest(server.url)
                threads = [Publishing(server.url, token, k, now[k]) for k in range(PUBLISHERS)]
                for thread in threads:
                    thread.start()
                time.sleep(rng.random() * 0.05)  # any moment will do
                redis.kill()
                for thread in threads:
                    thread.join()
                assert all(thread.refusals == [503] for thread in threads)
                with Line(server.url) as line:
                    reply = line.query(query(KNOWN, 0))
                    assert (reply.problem.status, reply["retry-after"]) == (503, "1")
                redis.start()
                # The server recovers by itself; within a moment it reads what the store has kept.
                for thread, value in zip(threads, latest(server.url), strict=True):
                    assert thread.acknowledged <= value <= thread.tried
        finally:
            server.kill()


@pytest.mark.redis
def test_without_the_store_it_is_alive_but_not_ready():
    with redis_server("--appendonly", "yes") as redis:
        asyncio.run(_prepare(redis.url))
        server = Served(redis.url)
        try:
            redis.kill()
            statuses = {}
            for path in ["/healthz", "/readyz", "/v1/catalogue", "/metrics"]:
                with Line(server.url) as line:
                    line.send(f"GET {path} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
                    reply = line.reply()
                    statuses[path] = reply.status
                    assert reply.status == 200 or reply["retry-after"] == "1"
            assert statuses == {"/healthz": 200, "/readyz": 503, "/v1/catalogue": 503, "/metrics": 200}
            redis.start()
            with Line(server.url) as line:
                line.send(b"GET /readyz HTTP/1.1\r\nhost: h\r\n\r\n")
                assert line.reply().status == 200
        finally:
            server.kill()


@pytest.mark.redis
def test_of_two_servers_on_one_redis_one_is_killed_and_the_other_goes_on():
    """Clients that know both addresses see at most one failed try per request, and never a wrong or refused answer."""
    with redis_server() as redis, reserved_port() as port:  # nobody else answers there when its server is killed
        token = asyncio.run(_prepare(redis.url))
        servers = [Served(redis.url, port), Served(redis.url)]
        urls = [server.url for server in servers]
        retries, failures = [], []
        started, killed = threading.Barrier(7), threading.Event()

        def ask(who: int) -> None:
            session, step, at = os.urandom(16), 0, who % 2
            left = 5  # requests that begin after the kill
            while left:
                left -= killed.is_set()
                body = query(KNOWN, step % PUBLISHERS, session=session, step=step)
                tries = 0
                while True:
                    try:
                        with Line(urls[at]) as line:
                            reply = line.query(body)
                        break
                    except (OSError, EOFError):
                        tries, at = tries + 1, 1 - at
                if reply.status != 200 or tries > 1:
                    failures.append((reply.status, tries))
                retries.append(tries)
                step += 1
                if step == 5:
                    started.wait(PATIENCE)

        clients = [threading.Thread(target=ask, args=(who,)) for who in range(6)]
        for client in clients:
            client.start()
        publishing = Publishing(urls[1], token, 0, 0)
        publishing.start()
        started.wait(PATIENCE)
        servers[0].kill()
        killed.set()
        before = publishing.acknowledged
        until(lambda: publishing.acknowledged >= before + 20 or not publishing.is_alive())
        for client in clients:
            client.join()
        try:
            assert publishing.is_alive()
            assert failures == []
            assert sum(retries) == 3  # those that were with the killed one, once each
            acknowledged = publishing.acknowledged  # before the look: publishing goes on
            assert latest(urls[1])[0] >= acknowledged > before
        finally:
            servers[1].kill()
            publishing.join()


def test_a_full_disk_refuses_to_publish_and_goes_on_serving(tmp_path):
    """The file may not grow (RLIMIT_FSIZE): publishing gets 507 and stores nothing, queries are answered."""
    where = str(tmp_path / "m.db")
    token = asyncio.run(_prepare(where))
    server = LimitedServed(where)
    try:
        thread = Publishing(server.url, token, 0, 0)
        thread.start()
        thread.join()
        assert thread.refusals == [507]
        assert latest(server.url)[0] == thread.acknowledged > 0
    finally:
        server.kill()
    assert asyncio.run(_stored(where))[0] == thread.acknowledged


def _serve_limited(where: str, sock: socket.socket, ready) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(_) -> None:
        size = os.path.getsize(where + "-wal") + 100_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        ready.set()

    run._run(lambda: run.serve(run.Settings(where), sock, Metrics(), ready=limit))


class LimitedServed(Served):
    def __init__(self, where: str) -> None:
        self.sock = run.listen_for_workers("127.0.0.1", 0)
        self.url = run.address(self.sock)
        ready = context.Event()
        self.process = context.Process(target=_serve_limited, args=(where, self.sock, ready), daemon=True)
        self.process.start()
        assert ready.wait(PATIENCE)
