"""What only a shared store has: bounded sessions, a memory that fills, replicas, values of somebody else."""

import asyncio
import contextlib
import secrets

import httpx2
import pytest
from tests.support.typed import as_a
from tests.support.waiting import PATIENCE
from valkey import Valkey

from onoff import wire
from onoff.cli import run
from onoff.errors import StoreFull, StoreUnavailable
from onoff.server import running
from onoff.server.admin import edit_catalogue, new_publisher, opened
from onoff.server.store import SLOT_BYTES, SLOTS, LastStep, Stamp
from onoff.server.valkey import ValkeyStore

pytestmark = pytest.mark.redis


@contextlib.contextmanager
def direct(redis):
    """The redis itself, past the store."""
    client = Valkey(unix_socket_path=str(redis.socket))
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def redis(shared_redis):
    shared_redis.flush()
    return shared_redis


# Sessions.


def test_strangers_cannot_fill_the_store_with_sessions(redis):
    """Two buckets of eight sessions, flooded: no more is ever kept, and the newest sessions are."""

    async def body():
        async with opened(redis.url) as store:
            await edit_catalogue(store, add=["a"])
            as_a(ValkeyStore, store).buckets = 2
            with direct(redis) as inside:
                keys = inside.dbsize() + 1
                for k in range(300):
                    session = secrets.token_bytes(16)
                    assert (await store.admit(session, k, bytes(32)))[1] is None
                    assert await store.last_step(session) == LastStep(k, bytes(32))
                assert inside.dbsize() == keys
                held = inside.hgetall("{onoff}:steps")
            assert len(held) == 2
            assert all(len(bucket) == SLOTS * SLOT_BYTES for bucket in held.values())

    asyncio.run(body())


def test_the_session_seen_longest_ago_is_forgotten_first_and_starts_afresh(redis, monkeypatch):
    async def body():
        async with opened(redis.url) as store:
            await edit_catalogue(store, add=["a"])
            as_a(ValkeyStore, store).buckets = 1
            clock = iter(range(10**9, 10**12, 10**6))
            monkeypatch.setattr("onoff.server.valkey.time.time_ns", lambda: next(clock))
            sessions = [bytes([k]) * 16 for k in range(SLOTS)]
            for session in sessions:
                await store.admit(session, 5, bytes(32))
            await store.admit(sessions[0], 6, bytes(32))
            await store.admit(b"newcomer" * 2, 0, bytes(32))
            found = [await store.last_step(session) for session in sessions]
            assert found == [LastStep(6, bytes(32)), None, *[LastStep(5, bytes(32))] * 6]
            assert (await store.admit(sessions[1], 0, b"x" * 32))[1] is None
            assert (await store.admit(sessions[0], 0, b"x" * 32))[1] == LastStep(6, bytes(32))

    asyncio.run(body())


# Readiness.


def test_ready_means_that_a_publish_is_kept_and_a_query_answered(redis, monkeypatch):
    monkeypatch.setattr("onoff.server.store.PROBE_SECONDS", 0.0)
    with running({"a": b"1"}, store=redis.url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:

        def publish():
            headers = {"authorization": f"Bearer {server.token}"}
            return http.put("/v1/sources/a/message", content=b"x" * 1000, headers=headers).status_code

        assert http.get("/readyz").json()["status"] == "ready"
        with direct(redis) as inside:
            inside.config_set("maxmemory", 1)  # far below what it uses: that shrinks when buffers are given back
            not_ready = http.get("/readyz")
            assert (not_ready.status_code, publish()) == (503, 507)
            assert "store messages" in not_ready.json()["title"]
            inside.config_set("maxmemory", 0)
            assert (http.get("/readyz").status_code, publish()) == (200, 200)
            inside.replicaof("127.0.0.1", 1)  # a master that is not there: it stays as it is, read-only
            assert (http.get("/readyz").status_code, publish()) == (503, 503)
            inside.replicaof("NO", "ONE")
            assert (http.get("/readyz").status_code, publish()) == (200, 200)


def test_a_full_store_is_told_from_one_that_does_not_answer(redis):
    async def body():
        async with opened(redis.url) as store:
            await edit_catalogue(store, add=["a"])
            with direct(redis) as inside:
                inside.config_set("maxmemory", 1)
                try:
                    with pytest.raises(StoreFull):
                        await store.publish("a", "a/b", b"x", 0)
                finally:
                    inside.config_set("maxmemory", 0)
            assert (await store.publish("a", "a/b", b"x", 0)).version == 1

    asyncio.run(body())


# Values that are not ours.


def spoil(name, value):
    return lambda inside: (inside.delete(name), inside.set(name, value))


DAMAGE = {
    "catalogue is not JSON": spoil("{onoff}:catalogue", b"\xff{"),
    "catalogue is a list": lambda inside: (inside.delete("{onoff}:catalogue"), inside.rpush("{onoff}:catalogue", "x")),
    "count is a word": spoil("{onoff}:changes", b"many"),
    "life is short": lambda inside: inside.hset("{onoff}:edition", "life", b"short"),
    "message is cut": lambda inside: inside.hset("{onoff}:messages", "a", b"\0\1"),
    "version is a word": lambda inside: inside.hset("{onoff}:versions", "a", b"first"),
    "media type is not text": lambda inside: inside.hset("{onoff}:messages", "a", bytes(8) + b"\1\xff"),
    "publisher is not JSON": lambda inside: inside.hset("{onoff}:publishers", "p", b"\xff"),
    "publisher lacks a digest": lambda inside: inside.hset("{onoff}:publishers", "p", b"{}"),
    "steps are a word": spoil("{onoff}:steps", b"x"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_values_that_cannot_be_read_are_a_failure_of_the_store(redis, damage):
    async def body():
        async with opened(redis.url) as store:
            await edit_catalogue(store, add=["a"])
            await new_publisher(store, "p")
            await store.publish("a", "a/b", b"x", 0)
            with direct(redis) as inside:
                DAMAGE[damage](inside)
            failures = []
            for ask in (
                lambda: store.latest(Stamp()),
                lambda: store.publishers(),
                lambda: store.catalogue(),
                lambda: store.admit(secrets.token_bytes(16), 0, bytes(32)),
                lambda: store.last_step(bytes(16)),
                lambda: store.publish("a", "a/b", b"y", 0),
            ):
                try:
                    await ask()
                except StoreUnavailable as error:
                    failures.append(error)
            assert failures
            assert all(error.hint for error in failures)

    asyncio.run(body())


def test_a_damaged_store_is_told_in_one_line_and_served_as_unavailable(redis, capsys):
    with running({"a": b"1"}, store=redis.url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        with direct(redis) as inside:
            inside.set("{onoff}:catalogue", b"{}")
        for path in ("/v1/catalogue", "/v1/changes?since=0", "/v1/edition", "/readyz"):
            refused = http.get(path)
            assert refused.status_code == 503
            assert wire.decode_problem(refused.content).hint
    assert run(["serve", "--store", redis.url, "--source", "b"]) == 1
    said = capsys.readouterr().err
    assert "cannot be read" in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 2  # what, and how to mend it


def test_options_of_the_address_that_are_unknown_or_bad_are_told_at_once(capsys):
    for url in ("redis://localhost/0?bad=1", "redis://localhost/0?max_connections=x", "unix:///x?db=y"):
        assert run(["serve", "--store", url, "--source", "a"]) == 3
        assert "not an address of a store" in capsys.readouterr().err
