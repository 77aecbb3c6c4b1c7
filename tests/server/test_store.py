"""The contract of every store, and what each promises."""

import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import others
from tests.support.redis import redis_server
from tests.support.typed import as_a
from tests.support.waiting import PATIENCE

from onoff.errors import InvalidInput, InvalidWire, StoreUnavailable, UnknownSource
from onoff.server.admin import edit_catalogue, new_publisher, open_store, opened
from onoff.server.answers import Shelf
from onoff.server.sqlite import SQLiteStore
from onoff.server.store import LastStep, Publisher, Readiness, Stamp, token_digest
from onoff.wire import Catalogue, WireMessage, capacity

FRAME = 512
SESSION = bytes(16)


def admissible(last, step, digest):
    """The rule, as plainly as it can be said: a later step, or the very same bytes again."""
    return last is None or step > last.step or (step == last.step and digest == last.digest)


def contract(test):
    """Run an async test with a fresh store of three sources."""

    def run(where):
        async def body():
            async with opened(where, frame_size=FRAME) as store:
                await edit_catalogue(store, add=["a", "b", "ç"])
                await test(store, where)

        asyncio.run(body())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@contract
async def test_versions_ascend_and_the_latest_is_what_was_published(store, where):
    rng = random.Random(1)
    expected: dict[Any, Any] = {}
    for time in range(30):
        name = rng.choice(["a", "b", "ç"])
        body = rng.randbytes(rng.randrange(capacity(FRAME) + 1))
        before = expected.get(name, WireMessage())
        expected[name] = await store.publish(name, "text/plain; charset=utf-8", body, time)
        assert expected[name] == WireMessage(before.version + 1, time, "text/plain; charset=utf-8", body)
    latest = await store.latest(Stamp())
    assert latest.whole
    assert latest.messages == expected


@contract
async def test_latest_gives_just_what_changed_since_a_stamp(store, where):
    await store.publish("a", "a/b", b"1", 0)
    first = await store.latest(Stamp())
    assert await store.latest(first.stamp) == type(first)(first.stamp, first.catalogue, {}, False, first.edition, {})
    await store.publish("b", "a/b", b"2", 0)
    second = await store.latest(first.stamp)
    assert set(second.messages) == {"b"}
    assert second.stamp != first.stamp


@contract
async def test_another_process_sees_what_was_published_at_once(store, where):
    async with opened(where) as other:
        for k in range(20):
            await store.publish("a", "a/b", b"%d" % k, 0)
            stamp, _ = await other.admit(os.urandom(16), 0, bytes(32))
            assert (await other.latest(Stamp())).messages["a"].body == b"%d" % k
            assert stamp == (await other.latest(Stamp())).stamp


@contract
async def test_publishing_refuses_what_the_catalogue_does_not_allow(store, where):
    before = await store.latest(Stamp())
    with pytest.raises(UnknownSource):
        await store.publish("none", "a/b", b"", 0)
    with pytest.raises(InvalidWire):
        await store.publish("a", "a/b", bytes(capacity(FRAME) + 1), 0)
    assert await store.latest(Stamp()) == before


@contract
async def test_the_catalogue_grows_shrinks_and_never_by_two_hands_at_once(store, where):
    old = await store.catalogue()
    assert old == Catalogue(("a", "b", "ç"), FRAME)
    await store.publish("a", "a/b", b"kept", 0)
    await store.publish("b", "a/b", b"gone", 0)
    before = (await store.latest(Stamp())).stamp
    new = await edit_catalogue(store, add=["d", "a"], drop=["b"])
    assert new == Catalogue(("a", "ç", "d"), FRAME) == await store.catalogue()
    assert not await store.replace_catalogue(Catalogue(("x",), FRAME), expected=old)
    latest = await store.latest(Stamp())
    assert latest.stamp != before
    assert {name: message.body for name, message in latest.messages.items()} == {"a": b"kept"}
    again = await edit_catalogue(store, add=["b"])
    assert (await store.publish("b", "a/b", b"back", 0)).version == 1
    assert again.names == ("a", "ç", "d", "b")
    with pytest.raises(UnknownSource):
        await edit_catalogue(store, drop=["nobody"])


@contract
async def test_frames_are_not_made_too_small_for_messages_that_stay(store, where):
    await store.publish("a", "a/b", bytes(capacity(FRAME)), 0)
    with pytest.raises(InvalidInput, match="the limit is"):
        await edit_catalogue(store, frame_size=FRAME - 1)
    assert (await edit_catalogue(store, frame_size=FRAME + 1)).frame_size == FRAME + 1
    assert (await edit_catalogue(store, drop=["a"], frame_size=256)).frame_size == 256


@contract
async def test_sources_are_not_added_beyond_an_answer_with_all_of_them(store, where):
    await store.publish("a", "a/b", bytes(300), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onoff.server.store.MAX_ANSWER", 4 * 104 + 300)
        assert (await edit_catalogue(store, add=["d"])).n == 4
        with pytest.raises(InvalidInput, match="all messages together"):
            await edit_catalogue(store, add=["e"])
        assert (await edit_catalogue(store, drop=["a"], add=["e"])).n == 4


@contract
async def test_a_step_is_admitted_once_or_again_with_the_same_bytes(store, where):
    digests = [hashlib.sha256(b"%d" % k).digest() for k in range(3)]
    last: dict[bytes, LastStep] = {}
    rng = random.Random(2)
    verdicts = set()
    for _ in range(400):
        session, step = rng.choice([b"s" * 16, bytes(16), b"\xff" * 16]), rng.choice([0, 1, 2, 300, 2**53 - 1])
        digest = rng.choice(digests)
        held = last.get(session)
        admitted = (await store.admit(session, step, digest))[1]
        if admissible(held, step, digest):
            assert admitted is None
            last[session] = LastStep(step, digest)
        else:
            assert admitted == held
        assert await store.last_step(session) == last[session]
        assert await store.last_step(b"unknown session!") is None
        verdicts.add((admitted is None, held is not None and step == held.step))
    assert len(verdicts) == 4


@pytest.mark.slow(reason="programs are started and waited for")
@contract
async def test_of_many_processes_with_different_bytes_one_wins(store, where):
    """Four processes, one session, 200 steps: for each step all winners had the same bytes."""
    program = (
        "import asyncio, sys\n"
        "from onoff.server import store as steps, valkey\n"
        "from onoff.server.admin import opened\n"
        "assert valkey._SECONDS and steps.SHARE_SECONDS\n"
        f"valkey._SECONDS = steps.SHARE_SECONDS = {PATIENCE}\n"  # a busy machine is not what is tested here
        "async def main():\n"
        "    async with opened(sys.argv[1]) as store:\n"
        "        for step in range(200):\n"
        "            verdict = await store.admit(bytes(16), step, sys.argv[2].encode() * 32)\n"
        "            print(step, int(verdict[1] is None))\n"
        "            await asyncio.sleep(0)\n"  # a turn of the event loop ends
        "asyncio.run(main())\n"
    )
    names = "abcd"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, where, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for name in names
    ]
    outs = [child.communicate()[0].splitlines() for child in children]
    for child, out in zip(children, outs, strict=True):
        assert child.returncode == 0, "\n".join(out)
        assert len(out) == 200
    winners: dict[str, set[str]] = {}
    for name, out in zip(names, outs, strict=True):
        for line in out:
            step, won = line.split()
            if won == "1":
                winners.setdefault(step, set()).add(name)
    assert all(len(who) == 1 for who in winners.values())
    assert "199" in winners


@contract
async def test_tokens_are_kept_as_digests_only(store, where):
    token = await new_publisher(store, "alice", ["a"])
    everyone = await new_publisher(store, "bob")
    found = {publisher.name: publisher for publisher in await store.publishers()}
    assert found["alice"] == Publisher("alice", token_digest(token), ("a",))
    assert found["alice"].may_write("a")
    assert not found["alice"].may_write("b")
    assert found["bob"].may_write("b")
    assert token not in repr(found)
    assert everyone != token
    renewed = await new_publisher(store, "alice")
    assert {p.digest for p in await store.publishers()} == {token_digest(renewed), token_digest(everyone)}
    with pytest.raises(UnknownSource):
        await new_publisher(store, "eve", ["nothing"])
    with pytest.raises(InvalidWire):
        await new_publisher(store, "e\nve")


@contract
async def test_names_of_feeds_are_kept_by_their_addresses(store, where):
    assert await store.feed_names() == {}
    await store.replace_feed_names({"http://a": "a", "http://b": "ç"})
    async with opened(where) as another:
        assert await another.feed_names() == {"http://a": "a", "http://b": "ç"}
    await store.replace_feed_names({"http://b": "b"})
    assert await store.feed_names() == {"http://b": "b"}
    await store.replace_feed_names({})
    assert await store.feed_names() == {}


def test_no_file_holds_a_token(tmp_path):
    async def make():
        async with opened(str(tmp_path / "m.db"), frame_size=FRAME) as store:
            return await new_publisher(store, "alice")

    token = asyncio.run(make())
    contents = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token_digest(token) in contents
    assert token.removeprefix("onoff_").encode() not in contents


def test_sqlite_promises_what_its_settings_give(tmp_path):
    async def look():
        async with opened(str(tmp_path / "m.db")) as store:
            return await store.promise()

    promise = asyncio.run(look())
    assert (promise.kind, promise.durable) == ("sqlite", True)
    assert (tmp_path / "m.db-steps").stat().st_mode & 0o777 == 0o600


@pytest.mark.redis
@pytest.mark.parametrize(
    ("options", "durable", "says"),
    [
        (["--appendonly", "yes", "--appendfsync", "always"], True, "survives"),
        (["--appendonly", "yes", "--appendfsync", "everysec"], False, "two seconds"),
        (["--appendonly", "yes", "--appendfsync", "no"], False, "last moments"),
        ([], False, "snapshot"),
        (["--rename-command", "CONFIG", ""], False, "unknown"),
    ],
)
def test_valkey_promises_what_its_append_mode_gives(options, durable, says):
    async def look(url):
        async with opened(url) as store:
            return await store.promise()

    with redis_server(*options) as redis:
        promise = asyncio.run(look(redis.url))
    assert promise.durable == durable
    assert says in promise.says


@pytest.mark.redis
def test_a_valkey_that_lost_its_last_moments_is_read_anew():
    """Without a log a restart loses all; the count starts again, and the stamp must not."""

    async def look(redis):
        async with opened(redis.url, frame_size=FRAME) as store:
            await edit_catalogue(store, add=["a"])
            await store.publish("a", "a/b", b"old", 0)
            before = await store.latest(Stamp())
            redis.kill()
            with pytest.raises(StoreUnavailable):
                await store.admit(SESSION, 0, bytes(32))
            redis.start()
            with pytest.raises(StoreUnavailable):
                await store.latest(before.stamp)  # empty: no catalogue
            async with opened(redis.url, frame_size=FRAME) as other:
                await edit_catalogue(other, add=["a"])
                await other.publish("a", "a/b", b"new", 0)
            after = await store.latest(before.stamp)
            assert before.stamp.changes == after.stamp.changes
            assert after.whole
            assert after.messages["a"].body == b"new"

    with redis_server() as redis:
        asyncio.run(look(redis))


def test_stores_that_cannot_be_opened_say_so(tmp_path):
    (tmp_path / "text").write_text("not a database, but long enough to look at " * 50)
    (tmp_path / "other").write_bytes(b"")
    foreign = sqlite3.connect(tmp_path / "newer.db")
    foreign.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value)")
    foreign.execute("INSERT INTO meta VALUES ('schema', 99)")
    foreign.commit()
    foreign.close()
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value)")
    foreign.close()
    for bad in ["text", "newer.db", "foreign.db", "other/below"]:
        with pytest.raises(StoreUnavailable):
            asyncio.run(open_store(str(tmp_path / bad)))
    with pytest.raises(StoreUnavailable):
        asyncio.run(open_store(f"unix://{tmp_path}/nothing"))
    with pytest.raises(InvalidInput):
        asyncio.run(open_store("ftp://x"))


@pytest.mark.parametrize("made", [others.document, others.database])
def test_a_file_of_others_is_refused_and_left_alone(tmp_path, made):
    path = made(tmp_path / "file")
    before = others.all_of(tmp_path)
    with pytest.raises(StoreUnavailable, match=r"not a database|something else"):
        asyncio.run(open_store(str(path)))
    assert others.all_of(tmp_path) == before


def test_a_store_that_is_opened_again_keeps_its_locks(tmp_path):
    """Without them another process could throw away the log that this one writes to."""
    where = str(tmp_path / "m.db")
    take = f"import sqlite3; sqlite3.connect({where!r}, timeout=0).execute('PRAGMA journal_mode = DELETE')"

    async def body():
        async with opened(where), opened(where):
            other = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True, check=False)
            assert "database is locked" in other.stderr

    asyncio.run(body())


def test_a_store_that_cannot_be_made_leaves_nothing_half_made(tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.server.sqlite._EDITIONS", "CREATE TABLE digests (a); CREATE nonsense")
    with pytest.raises(StoreUnavailable):
        asyncio.run(open_store(str(tmp_path / "m.db")))
    monkeypatch.undo()
    asyncio.run(asyncio.run(open_store(str(tmp_path / "m.db"))).close())


@contextlib.contextmanager
def held(where):
    """Another process is in the middle of writing."""
    other = sqlite3.connect(where, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_while_another_writes_a_publish_waits_and_queries_do_not(tmp_path):
    async def body():
        where = str(tmp_path / "m.db")
        async with opened(where, frame_size=FRAME) as store:
            as_a(SQLiteStore, store).writer.busy_seconds = 3600.0
            await edit_catalogue(store, add=["a"])
            with held(where) as other:
                publishing = asyncio.create_task(store.publish("a", "a/b", b"x", 0))
                for step in range(20):
                    assert (await store.admit(SESSION, step, bytes(32)))[1] is None
                    await asyncio.sleep(0.005)
                assert not publishing.done()
                other.execute("ROLLBACK")
                assert (await publishing).version == 1

    asyncio.run(body())


def test_a_writer_that_never_ends_is_not_waited_for_without_end(tmp_path):
    async def body():
        where = str(tmp_path / "m.db")
        async with opened(where, frame_size=FRAME) as store:
            await edit_catalogue(store, add=["a"])
            as_a(SQLiteStore, store).writer.busy_seconds = 0.05
            with held(where), pytest.raises(StoreUnavailable):
                await store.publish("a", "a/b", b"x", 0)
            assert (await store.publish("a", "a/b", b"y", 0)).version == 1

    asyncio.run(body())


@pytest.mark.slow(reason="programs are started and waited for")
def test_publishes_share_a_commit_while_many_queries_are_asked_and_only_then(tmp_path, monkeypatch):
    async def body():
        async with opened(str(tmp_path / "m.db"), frame_size=FRAME) as store:
            await edit_catalogue(store, add=["a", "b", "c"])
            commits, commit = [], as_a(SQLiteStore, store).writer._commit

            async def counted(batch):
                commits.append(len(batch))
                return await commit(batch)

            monkeypatch.setattr(as_a(SQLiteStore, store).writer, "_commit", counted)
            as_a(SQLiteStore, store).writer.commit_seconds = 3600.0
            for name in "abc":
                await store.publish(name, "a/b", b"at once", 0)
            assert commits == [1, 1, 1]
            as_a(SQLiteStore, store).writer.commit_seconds = 2.0
            for step in range(20):
                await store.admit(SESSION, step, bytes(32))
            publishing = [asyncio.create_task(store.publish(name, "a/b", b"together", 0)) for name in "abcabc"]
            assert [(await one).version for one in publishing] == [2, 2, 2, 3, 3, 3]
            assert commits == [1, 1, 1, 6]

    asyncio.run(body())


def test_every_file_of_a_store_is_for_its_owner_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:

        async def body():
            async with opened(str(tmp_path / "m.db")) as store:
                await edit_catalogue(store, add=["a"])
                await store.publish("a", "a/b", b"x", 0)
                return {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

        modes = asyncio.run(body())
    finally:
        os.umask(old)
    assert set(modes) == {"m.db", "m.db-wal", "m.db-shm", "m.db-steps"}
    assert set(modes.values()) == {0o600}


def test_a_store_that_an_earlier_version_left_open_to_others_is_closed_to_them(tmp_path):
    path = tmp_path / "m.db"
    asyncio.run(asyncio.run(open_store(str(path))).close())
    path.chmod(0o644)
    asyncio.run(asyncio.run(open_store(str(path))).close())
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_keeps_no_publish_and_says_so(tmp_path):
    """Reads go on; readiness says that publishes are not kept."""

    async def body():
        path = tmp_path / "m.db"
        async with opened(str(path)) as store:
            as_a(SQLiteStore, store).probing.seconds = 0.0
            await edit_catalogue(store, add=["a"])
            assert await store.readiness() == Readiness()
            committing = as_a(SQLiteStore, store).writer
            writer = committing.connection
            committing.connection = sqlite3.connect(
                f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )
            with pytest.raises(StoreUnavailable):
                await store.publish("a", "a/b", b"x", 0)
            readiness = await store.readiness()
            assert (readiness.answers, readiness.keeps) == (True, False)
            assert "readonly" in readiness.reason
            committing.connection.close()
            committing.connection = writer
            assert await store.readiness() == Readiness()
            writer.execute("DROP TABLE meta")
            readiness = await store.readiness()
            assert (readiness.answers, readiness.keeps) == (False, False)

    asyncio.run(body())


@pytest.mark.parametrize("happened", ["deleted", "moved", "replaced by a copy", "without its log"])
def test_a_store_whose_file_is_gone_keeps_no_publish_and_is_not_ready_until_it_is_back(tmp_path, happened):
    """SQLite goes on writing to a file that no path leads to: what it acknowledges there is lost."""
    path, away = tmp_path / "m.db", tmp_path / "away"

    def happen():
        gone = Path(f"{path}-wal") if happened == "without its log" else path
        if happened == "deleted":
            os.link(gone, away)  # so that it can be put back
            gone.unlink()
        else:
            gone.rename(away)
        if happened == "replaced by a copy":
            shutil.copyfile(away, path)
        return gone

    async def body():
        async with opened(str(path)) as store:
            as_a(SQLiteStore, store).probing.seconds = 0.0
            await edit_catalogue(store, add=["a"])
            await store.publish("a", "a/b", b"kept", 0)
            assert await store.readiness() == Readiness()
            gone = happen()
            with pytest.raises(StoreUnavailable, match="deleted, moved or replaced"):
                await store.publish("a", "a/b", b"lost", 0)
            readiness = await store.readiness()
            assert (readiness.answers, readiness.keeps) == (True, False)
            assert "deleted, moved or replaced" in readiness.reason
            assert (await store.latest(Stamp())).messages["a"].body == b"kept"  # readers are served as before
            away.rename(gone)
            assert await store.readiness() == Readiness()
            await store.publish("a", "a/b", b"kept as well", 0)
        async with opened(str(path)) as store:
            assert (await store.latest(Stamp())).messages["a"].body == b"kept as well"

    asyncio.run(body())


async def look_at_everything(where):
    """Whatever a server does with a store."""
    async with opened(where) as store:
        await Shelf().refresh(store)
        for name in ("a", "b"):
            await store.publish(name, "a/b", b"new", 1)
        await store.publishers()
        await store.feed_names()
        await store.changed_per_hour()
        await store.digest_of(1)
        await store.leader()
        await store.readiness()
        await edit_catalogue(store, add=["c"])
        await Shelf().refresh(store)


def made_store(where):
    async def body():
        async with opened(where) as store:
            await edit_catalogue(store, add=["a", "b"])
            await store.publish("a", "a/b", b"A" * 3000, 0)
            await store.add_publisher(Publisher("p", b"d" * 32, ("a",)))
            await store.replace_feed_names({"http://x": "a"})

    asyncio.run(body())
    asyncio.run(look_at_everything(where))


DAMAGES = [
    *(f"DELETE FROM meta WHERE key = '{key}'" for key in ("catalogue", "count", "life", "digest", "born", "bytes")),
    *(
        f"UPDATE meta SET value = {value} WHERE key = '{key}'"
        for key in ("catalogue", "count", "life", "digest", "born", "bytes")
        for value in ("NULL", "'text'", "x'00'", "-1", "1.5")
    ),
    *(
        f"UPDATE messages SET {column} = {value}"
        for column in ("version", "published", "media_type", "body")
        for value in ("'text'", "x'ff'", "-1", "1.5")
    ),
    *(
        f"UPDATE publishers SET {column} = {value}"
        for column in ("digest", "sources")
        for value in ("'text'", "x'ff'", "1.5")
    ),
    "UPDATE hours SET bytes = 'text'",
    *(f"DROP TABLE {table}" for table in ("messages", "publishers", "digests", "hours", "meta")),
]


def test_a_damaged_store_says_so_and_nothing_else_goes_wrong(tmp_path):
    original = tmp_path / "original"
    made_store(str(original))
    refused = 0
    for damage in DAMAGES:
        path = tmp_path / "m.db"
        shutil.copyfile(original, path)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute(damage)
            db.commit()
        try:
            asyncio.run(look_at_everything(str(path)))
        except StoreUnavailable:
            refused += 1
    assert refused > len(DAMAGES) * 0.8  # some other form of the same value does no harm


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.deep)])
def test_a_store_with_injured_bytes_says_so_and_nothing_else_goes_wrong(tmp_path, count):
    original = tmp_path / "original"
    made_store(str(original))
    whole, rng, refused = original.read_bytes(), random.Random(6), 0
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 4, 64))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = tmp_path / "m.db"
        path.write_bytes(data)
        try:
            asyncio.run(look_at_everything(str(path)))
        except StoreUnavailable:
            refused += 1
    assert refused
