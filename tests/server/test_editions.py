"""Editions in every store: atomic with the publish, one history per life, alive after kills, upgrades and restores."""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from tests.support.raw import Line, query
from tests.support.redis import redis_server
from tests.support.typed import as_a, present
from tests.support.waiting import PATIENCE

from onoff.errors import InvalidWire
from onoff.server import running
from onoff.server.admin import edit_catalogue, opened
from onoff.server.store import Stamp
from onoff.server.valkey import ValkeyStore
from onoff.wire import Catalogue, WireMessage, decode_answer, encode_catalogue, first_digest, next_digest

from .test_store import contract

OLD_STORE = Path(__file__).parents[1] / "fixtures" / "v0.1" / "messages.db"


async def edition(store):
    return (await store.latest(Stamp())).edition


@contract
async def test_every_publish_is_the_next_edition_and_its_digest_follows(store, where):
    latest = await store.latest(Stamp())
    at = latest.edition
    assert at.digest == first_digest(latest.catalogue.epoch, at.life)
    for k, name in enumerate(["a", "ç", "a", "b"]):
        message = await store.publish(name, "text/plain", b"%d" % k, k)
        after = await store.latest(Stamp())
        assert (after.edition.life, after.edition.number) == (at.life, at.number + 1)
        assert after.edition.digest == next_digest(at.digest, latest.catalogue.index[name], message)
        assert after.changed[name] == after.edition.number
        assert await store.digest_of(at.number) == at.digest
        at = after.edition
    assert await store.digest_of(at.number) == at.digest
    assert await store.digest_of(at.number + 1) is None


@contract
async def test_what_is_refused_makes_no_edition(store, where):
    before = await edition(store)
    with pytest.raises(InvalidWire):
        await store.publish("a", "a/b", bytes(10_000), 0)
    assert await edition(store) == before


@contract
async def test_of_many_who_publish_at_once_each_makes_one_edition(store, where):
    """Two openers of one store, forty publishes of one source: the digest is that of the versions in their order."""
    start = await edition(store)
    async with opened(where) as other:
        both = [store, other]
        sent = [both[k % 2].publish("b", "a/b", b"%d" % k, k) for k in range(40)]
        messages = sorted(await asyncio.gather(*sent), key=lambda message: message.version)
        digest = start.digest
        for message in messages:
            digest = next_digest(digest, 1, message)
        for end in (await edition(store), await edition(other)):
            assert (end.life, end.number, end.digest) == (start.life, start.number + 40, digest)
    assert [message.version for message in messages] == list(range(1, 41))


@contract
async def test_a_change_of_the_catalogue_begins_a_new_life_with_what_stays(store, where):
    await store.publish("a", "a/b", b"stays", 0)
    before = await store.latest(Stamp())
    new = await edit_catalogue(store, add=["d"])
    after = await store.latest(before.stamp)
    assert after.whole
    assert after.messages["a"].body == b"stays"
    assert after.edition.life != before.edition.life
    assert after.edition.number == before.edition.number + 1
    assert after.edition.digest == first_digest(new.epoch, after.edition.life)
    assert await store.digest_of(before.edition.number) is None


@contract
async def test_a_restore_puts_all_back_and_is_another_life(store, where):
    await store.publish("a", "a/b", b"gone", 0)
    before = await store.latest(Stamp())
    known = Catalogue(("x", "a"), None, 1000)
    messages = {"x": WireMessage(7, 1, "a/b", b"X"), "a": WireMessage(3, 2, "a/b", b"A")}
    await store.restore(known, messages)
    after = await store.latest(before.stamp)
    assert after.whole
    assert (after.catalogue, after.messages) == (known, messages)
    assert after.edition.life != before.edition.life
    assert (await store.publish("x", "a/b", b"next", 0)).version == 8
    async with opened(where) as other:
        assert await edition(other) == await edition(store)


@contract
async def test_an_edition_outlives_the_process(store, where):
    await store.publish("a", "a/b", b"1", 0)
    before = await edition(store)
    async with opened(where) as other:
        assert await edition(other) == before


@pytest.mark.redis
@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        ("publish", {"a": b"second of a", "b": b"first of b", "c": b"first of c"}),
        ("drop", {"a": b"first of a", "b": b"first of b"}),
    ],
)
def test_messages_read_in_many_pieces_are_of_one_moment(monkeypatch, happens, expected):
    """While a redis is read piece by piece, another publishes what was read, or drops what was not read yet."""
    monkeypatch.setattr("onoff.server.valkey.BATCH_BYTES", 10)

    async def body(url):
        async with opened(url) as store, opened(url) as other:
            await edit_catalogue(store, add=["a", "b", "c"])
            for name in "abc":
                await store.publish(name, "a/b", b"first of " + name.encode(), 0)
            ask, asked = as_a(ValkeyStore, store).run_script, []

            async def interrupted(text, *args, **how):
                asked.append(text)
                if len(asked) == 3 and happens == "publish":
                    await other.publish("a", "a/b", b"second of a", 0)
                if len(asked) == 3 and happens == "drop":
                    await edit_catalogue(other, drop=["c"])
                return await ask(text, *args, **how)

            monkeypatch.setattr(store, "run_script", interrupted)
            latest = await store.latest(Stamp())
            assert {name: message.body for name, message in latest.messages.items()} == expected
            assert latest.edition == await edition(other)
            assert latest.whole
            assert len(asked) > 3

    with redis_server() as redis:
        asyncio.run(body(redis.url))


def test_digests_beyond_those_kept_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.server.sqlite.KEPT_DIGESTS", 3)

    async def body():
        async with opened(str(tmp_path / "m.db")) as store:
            await edit_catalogue(store, add=["a"])
            for k in range(5):
                await store.publish("a", "a/b", b"%d" % k, 0)
            number = (await edition(store)).number
            assert [await store.digest_of(number - k) is None for k in range(5)] == [False, False, False, True, True]

    asyncio.run(body())


@contract
async def test_all_messages_together_never_make_an_answer_too_long(store, where):
    await edit_catalogue(store, drop=["ç"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onoff.server.store.MAX_ANSWER", 1000)
        await store.restore(Catalogue(("a", "b"), None, 900), {})
        await store.publish("a", "a/b", bytes(500), 0)
        with pytest.raises(InvalidWire, match="all messages together"):
            await store.publish("b", "a/b", bytes(400), 0)
        await store.publish("a", "a/b", bytes(100), 0)
        await store.publish("b", "a/b", bytes(400), 0)
        with pytest.raises(InvalidWire, match="all messages together"):
            await store.publish("a", "a/b", bytes(500), 0)


# How much changes.


class Clock:
    def __init__(self, now):
        self.now = now

    def time(self):
        return self.now


def test_change_is_counted_by_the_hour_over_the_last_day(where, monkeypatch):
    clock = Clock(time.time())
    monkeypatch.setattr("onoff.server.store.time", clock)  # before the store counts the hour of its birth

    @contract
    async def body(store, where):
        assert await store.changed_per_hour() == 0
        await store.publish("a", "a/b", bytes(96), 0)
        assert await store.changed_per_hour() == 200  # with the overhead of a frame, in a store less than an hour old
        clock.now += 3600
        await store.publish("b", "a/b", bytes(96), 0)
        await store.publish("b", "a/b", bytes(96), 0)
        assert await store.changed_per_hour() == 300
        clock.now += 48 * 3600
        assert await store.changed_per_hour() == 0
        await store.publish("b", "a/b", bytes(296), 0)
        assert await store.changed_per_hour() == 400 // 24

    body(where)


# Upgrades.


def test_a_file_of_version_0_1_becomes_the_first_edition_of_a_life(tmp_path):
    path = tmp_path / "messages.db"
    shutil.copy(OLD_STORE, path)

    async def body():
        async with opened(str(path)) as store:
            first = await store.latest(Stamp())
            assert first.catalogue.frame_size is not None
            assert first.messages
            assert first.edition.digest == first_digest(first.catalogue.epoch, first.edition.life)
            name = next(iter(first.messages))
            message = await store.publish(name, "a/b", b"next", 0)
            assert message.version == first.messages[name].version + 1
            after = await edition(store)
            assert after.number == first.edition.number + 1
        async with opened(str(path)) as store:
            assert await edition(store) == after

    asyncio.run(body())


@pytest.mark.redis
def test_a_redis_of_version_0_1_becomes_the_first_edition_of_a_life():
    from valkey import Valkey

    known = Catalogue(("a", "b"), 512)

    async def body(url):
        async with opened(url) as store:
            first = await store.latest(Stamp())
            assert first.catalogue == known
            assert first.messages == {"a": WireMessage(4, 5, "a/b", b"old")}
            assert (first.edition.number, first.changed) == (9, {"a": 9})
            assert present((await store.admit(b"s" * 16, 6, b"x" * 32))[1]).step == 7
            assert present(await store.last_step(b"s" * 16)).step == 7
            assert (await store.publish("a", "a/b", b"new", 0)).version == 5
            assert (await edition(store)).number == 10
            assert (await store.admit(b"s" * 16, 8, b"x" * 32))[1] is None
            assert present(await store.last_step(b"s" * 16)).step == 8

    with redis_server() as redis:
        old = Valkey(unix_socket_path=str(redis.socket))
        old.set("{onoff}:catalogue", encode_catalogue(known))
        old.sadd("{onoff}:sources", "a", "b")
        old.set("{onoff}:changes", 9)
        old.hset("{onoff}:versions", "a", 4)
        old.hset("{onoff}:messages", "a", (5).to_bytes(8) + b"\3a/b" + b"old")
        old.zadd("{onoff}:changed", {"a": 9})
        old.set(b"{onoff}:step:" + (b"s" * 16).hex().encode(), (7).to_bytes(8) + b"d" * 32)
        old.close()
        asyncio.run(body(redis.url))


# Kills.

PUBLISH = """
import asyncio, sys
from onoff.server.admin import opened
async def main():
    async with opened(sys.argv[1]) as store:
        while True:
            message = await store.publish("a", "a/b", b"%d" % 7, 0)
            print(message.version, flush=True)
asyncio.run(main())
"""


def check_history(where, start, acknowledged):
    async def look():
        async with opened(where) as store:
            return await store.latest(Stamp())

    latest = asyncio.run(look())
    version = latest.messages["a"].version
    assert version >= acknowledged
    digest = start.digest
    for k in range(version):
        digest = next_digest(digest, 0, WireMessage(k + 1, 0, "a/b", b"7"))
    assert latest.edition.number == start.number + version
    assert latest.edition.digest == digest


def killed_publisher(where, publishes):
    child = subprocess.Popen([sys.executable, "-c", PUBLISH, where], stdout=subprocess.PIPE, text=True)
    lines = [int(present(child.stdout).readline()) for _ in range(publishes)]
    child.kill()
    child.wait()
    rest = [int(line) for line in present(child.stdout).read().splitlines()]
    present(child.stdout).close()
    return [*lines, *rest][-1]


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_killed_publisher_leaves_edition_and_messages_of_one_moment(where):
    async def start():
        async with opened(where) as store:
            await edit_catalogue(store, add=["a"])
            return await edition(store)

    first = asyncio.run(start())
    for publishes in (1, 2, 30, 5):
        check_history(where, first, killed_publisher(where, publishes))


@pytest.mark.redis
def test_a_killed_redis_that_logs_every_write_keeps_its_editions():
    async def body(redis):
        async with opened(redis.url) as store:
            await edit_catalogue(store, add=["a"])
            first = await edition(store)
            for _ in range(3):
                for _ in range(10):
                    last = await store.publish("a", "a/b", b"7", 0)
                redis.kill()
                redis.start()
                async with opened(redis.url) as other:
                    assert (await edition(other)).number == first.number + last.version
            return first, last.version

    with redis_server("--appendonly", "yes", "--appendfsync", "always") as redis:
        first, version = asyncio.run(body(redis))
        check_history(redis.url, first, version)


def test_a_file_of_version_0_1_is_served_as_it_was(tmp_path):
    """The same catalogue, byte for byte, and the same padded frames."""
    path = tmp_path / "messages.db"
    shutil.copy(OLD_STORE, path)
    names = ("left", "centre", "right")
    with running([], store=path) as server:
        known = Catalogue(names, 65536)
        assert httpx2.get(f"{server.url}/v1/catalogue", timeout=PATIENCE).content == encode_catalogue(known)
        assert known.epoch == 228851964232704  # as that version wrote it
        with Line(server.url) as line:
            reply = line.query(query(known, 0, 1, 2))
        assert len(reply.body) == 3 * 65536
        messages = decode_answer(reply.body, range(3), epoch=known.epoch, frame_size=65536)
        assert [len(message.body) for message in messages] == [15, 17, 16]
        assert {message.version for message in messages} == {1}
        too_long = httpx2.put(
            f"{server.url}/v1/sources/left/message",
            content=bytes(65536 - 103),
            headers={"authorization": f"Bearer {server.token}"},
            timeout=PATIENCE,
        )
        assert too_long.status_code == 413
