"""Following: the same editions under the same numbers and digests, through kills, restarts, restores and lies."""

import asyncio
import contextlib
import gzip
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from tests.support.logs import LOG_LINE
from tests.support.ports import reserved_port
from tests.support.raw import Line, catalogue, get_json, metrics, query
from tests.support.site import Site, serving
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until

from onoff import wire
from onoff.errors import InvalidInput, InvalidWire, ServerUnreachable
from onoff.server import following, running
from onoff.server.admin import edit_catalogue, opened, prepare_to_follow
from onoff.server.following import MAX_ORDERS, BrokenHistory, Follower, check_goes_on
from onoff.server.http import Metrics
from onoff.server.store import Adoption, Stamp
from onoff.wire import Catalogue, Edition, WireMessage, next_digest

from .test_store import contract
from .test_sums import digests, post, queries_for

pytestmark = pytest.mark.slow(reason="whole servers are driven, and killed")

ONOFF = str(Path(sys.executable).parent / "onoff")
KNOWN = Catalogue(("a", "b", "c"), None, 1000)
LIFE = b"l" * 16


def edition_of(url):
    found = get_json(url, wire.EDITION_PATH)
    found.pop("changed_per_hour", None)  # absent where it is a refusal, which is like no edition
    return found


def content_of(url):
    known = catalogue(url)
    with Line(url) as line:
        reply = line.query(query(known, *range(known.n)))
    frame = {"epoch": known.epoch, "frame_size": known.frame_size, "limit": known.limit}
    return known, wire.decode_answer(reply.body, range(known.n), **frame)


def follows(leader, follower):
    """Whether both show the same edition now; the leader must stand still meanwhile."""
    with contextlib.suppress(OSError, EOFError):
        return edition_of(leader) == edition_of(follower)
    return False


# The stores.


@contract
async def test_a_store_becomes_a_copy_and_goes_on(store, where):
    own = (await store.latest(Stamp())).edition
    assert await store.leader() is None
    first = Edition(KNOWN.epoch, LIFE, 70, b"d" * 32)
    messages = {"a": WireMessage(5, 1, "a/b", b"A"), "c": WireMessage(1, 2, "a/b", b"C")}
    whole = Adoption("http://leader", first, KNOWN, messages, whole=True)
    assert await store.adopt(whole, expected=own)
    latest = await store.latest(Stamp())
    assert (latest.edition, latest.catalogue, latest.messages) == (first, KNOWN, messages)
    assert latest.changed == {"a": 70, "c": 70}
    assert await store.leader() == "http://leader"
    assert await store.digest_of(70) == b"d" * 32
    second = Edition(KNOWN.epoch, LIFE, 73, b"e" * 32)
    new = {"b": WireMessage(3, 4, "a/b", b"B")}
    step = Adoption("http://leader", second, KNOWN, new, whole=False)
    assert not await store.adopt(step, expected=own)  # not what it was made from
    assert (await store.latest(Stamp())).edition == first
    assert await store.adopt(step, expected=first)
    after = await store.latest(latest.stamp)
    assert (after.edition, after.messages, after.whole) == (second, new, False)
    assert after.changed == {"b": 73}
    assert (await store.latest(Stamp())).messages == messages | new
    assert [await store.digest_of(n) for n in (70, 71, 73)] == [b"d" * 32, None, b"e" * 32]
    async with opened(where) as again:
        assert (await again.latest(Stamp())).edition == second
        assert await again.leader() == "http://leader"


# What a leader may not do.


def history(orders, start=Edition(KNOWN.epoch, LIFE, 10, b"s" * 32)):  # noqa: B008
    """The step after publishes in this order, as (source, version)."""
    digest, messages = start.digest, {}
    for name, version in orders:
        messages[name] = WireMessage(version, 1, "a/b", name.encode() * version)
        digest = next_digest(digest, KNOWN.index[name], messages[name])
    end = Edition(start.epoch, start.life, start.number + len(orders), digest)
    return start, Adoption("x", end, KNOWN, messages, whole=False)


@pytest.mark.parametrize(
    "orders",
    [[], [("a", 1)], [("b", 1), ("a", 1)], [("a", 1), ("b", 1), ("c", 1)], [("a", 1), ("a", 2)], [("c", 1), ("a", 1)]],
)
def test_what_goes_on_is_taken(orders):
    have, step = history(orders)
    check_goes_on(KNOWN, have, step, {})


def forged(step, **changes):
    edition = step.edition
    fields = {"epoch": edition.epoch, "life": edition.life, "number": edition.number, "digest": edition.digest}
    return Adoption("x", Edition(**(fields | changes)), KNOWN, step.messages, step.whole)


def test_a_digest_that_does_not_chain_is_seen():
    for orders in itertools.permutations([("a", 1), ("b", 1), ("c", 1)]):
        have, step = history(orders)
        with pytest.raises(BrokenHistory, match="digest"):
            check_goes_on(KNOWN, have, forged(step, digest=b"x" * 32), {})
    have, step = history([("a", 1)])
    other = Adoption("x", step.edition, KNOWN, {"a": WireMessage(1, 1, "a/b", b"other")}, whole=False)
    with pytest.raises(BrokenHistory, match="digest"):
        check_goes_on(KNOWN, have, other, {})


def test_numbers_that_do_not_match_the_versions_are_seen():
    have, step = history([("a", 1), ("b", 1)])
    for number in [11, 13, 10]:
        with pytest.raises(BrokenHistory, match="versions"):
            check_goes_on(KNOWN, have, forged(step, number=number), {})
    for versions in [{"a": 1}, {"a": 5}, {"b": 2}]:
        with pytest.raises(BrokenHistory, match="versions"):
            check_goes_on(KNOWN, have, step, versions)


def test_a_leader_that_denies_what_it_gave_is_seen():
    have, step = history([("a", 1)])
    denied = Adoption("x", step.edition, KNOWN, step.messages, whole=True)
    with pytest.raises(BrokenHistory, match="denies"):
        check_goes_on(KNOWN, have, denied, {})
    check_goes_on(KNOWN, have, forged(denied, life=b"m" * 16), {})  # restored: another history
    check_goes_on(KNOWN, have, forged(denied, number=10 + (1 << 16)), {})  # older than what servers remember


def test_many_changes_at_once_are_checked_by_their_numbers():
    names = tuple(f"s{k}" for k in range(MAX_ORDERS + 2))
    known = Catalogue(names, None, 1000)
    have = Edition(known.epoch, LIFE, 1, bytes(32))
    messages = {name: WireMessage(1, 1, "a/b", b"") for name in names}
    end = Edition(known.epoch, LIFE, 1 + len(names), b"x" * 32)
    check_goes_on(known, have, Adoption("x", end, known, messages, whole=False), {})


@pytest.mark.parametrize("leader", ["http://[", "ftp://x", "leader", "", "http://", "http://h/?q", "http://h:99999"])
def test_what_is_no_address_is_refused(leader):
    with pytest.raises(InvalidInput, match="address"):
        asyncio.run(prepare_to_follow("unused", leader))


# What a leader may not send.


def changes_of(known, message):
    """Everything of a leader whose first source has this message, before it is packed."""
    end = Edition(known.epoch, LIFE, 1, b"e" * 32)
    frames = [wire.encode_frame(0, message, epoch=known.epoch, frame_size=None)]
    return b"".join([wire.encode_changes_head(end, 0), *frames, wire.encode_changes_trailer(end, 0, frames)])


class Leader(Site):
    """A leader that sends this packed reply to every request for changes, and this catalogue."""

    def __init__(self, known, packed):
        super().__init__()
        self.known, self.packed = known, packed

    def page(self, path):
        if path == wire.CATALOGUE_PATH:
            return 200, {}, wire.encode_catalogue(self.known)
        return 200, {"content-encoding": "gzip"}, self.packed


def caught_up(where, known, packed):
    """What a follower has taken over from such a leader."""

    async def body(url):
        async with opened(where) as store:
            follower = Follower(store, url, Metrics())
            try:
                await follower.catch_up()
            finally:
                follower.close()
            return (await store.latest(Stamp())).messages

    with serving(Leader(known, packed)) as leader:
        return asyncio.run(body(leader.url))


def test_a_follower_takes_nothing_after_the_end_of_the_packed_reply(tmp_path):
    packed = gzip.compress(changes_of(KNOWN, WireMessage(1, 1, "a/b", b"A")))
    with pytest.raises(InvalidWire, match="after their end"):
        caught_up(str(tmp_path / "f.db"), KNOWN, packed + bytes(1000))
    assert caught_up(str(tmp_path / "f.db"), KNOWN, packed)["a"].body == b"A"


def test_a_follower_reads_no_more_than_changes_may_have(tmp_path, monkeypatch):
    packed = gzip.compress(changes_of(KNOWN, WireMessage(1, 1, "a/b", b"A")))
    monkeypatch.setattr(following, "MAX_CHANGES", len(packed) - 1)
    with pytest.raises(ServerUnreachable, match="too long"):
        caught_up(str(tmp_path / "f.db"), KNOWN, packed)


def test_others_have_their_turn_while_a_leader_is_asked(tmp_path):
    """Nothing of an exchange is done by the event loop: it goes on though the leader says nothing."""
    asked, turn = threading.Event(), threading.Event()

    class Slow(Leader):
        def page(self, path):
            asked.set()
            assert turn.wait(PATIENCE)
            return super().page(path)

    async def body(url):
        async with opened(str(tmp_path / "f.db")) as store:
            follower = Follower(store, url, Metrics())
            catching_up = asyncio.create_task(follower.catch_up())
            while not asked.is_set():
                await asyncio.sleep(0)
            turn.set()
            await catching_up
            follower.close()
            return (await store.latest(Stamp())).messages["a"].body

    with serving(Slow(KNOWN, gzip.compress(changes_of(KNOWN, WireMessage(1, 1, "a/b", b"A"))))) as leader:
        assert asyncio.run(body(leader.url)) == b"A"


# Servers.


@pytest.fixture(params=["sqlite", pytest.param("valkey", marks=pytest.mark.redis)])
def own_store(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "follower.db")
    redis = request.getfixturevalue("shared_redis")
    redis.flush()
    return redis.url


def test_a_follower_has_the_same_editions_and_serves_them(tmp_path, own_store):
    with running({"a": b"A", "b": b"B"}, store=tmp_path / "leader.db") as leader:
        with running([], store=own_store, follow=leader.url) as follower:
            until(lambda: follows(leader.url, follower.url))
            rng = random.Random(2)
            for k in range(40):
                leader.publish(rng.choice("ab"), b"%d" % k * rng.randint(1, 400))
                if k % 8 == 0:
                    until(lambda: follows(leader.url, follower.url))
                    assert content_of(leader.url) == content_of(follower.url)
            until(lambda: follows(leader.url, follower.url))
            assert content_of(leader.url) == content_of(follower.url)
            assert metrics(follower.url)["onoff_follow_failures_total"] == 0
        leader.publish("a", b"while it was down")
        with running([], store=own_store, follow=leader.url) as follower:
            until(lambda: follows(leader.url, follower.url))
            assert content_of(leader.url) == content_of(follower.url)


def test_sums_of_both_make_a_message_while_messages_are_published(tmp_path):
    names = {f"s{k}": b"message %d" % k for k in range(8)}
    with (
        running(names, store=tmp_path / "leader.db") as leader,
        running([], store=tmp_path / "f.db", follow=leader.url) as follower,
        Line(leader.url) as one,
        Line(follower.url) as other,
    ):
        until(lambda: follows(leader.url, follower.url))
        known = catalogue(leader.url)
        stop = threading.Event()

        def publish():
            for k in itertools.count():
                if stop.is_set():
                    return
                leader.publish(f"s{k % 8}", b"message %d, %d" % (k % 8, k))

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            right = gone = 0
            while right < 30:
                wanted = (right + gone) % 8
                report = get_json(follower.url, wire.EDITION_PATH)
                edition = (report["edition"], bytes.fromhex(report["digest"]))
                vectors, bodies = queries_for(known, edition, wanted, 2)
                replies = [post(line, body) for line, body in zip((one, other), bodies, strict=True)]
                if any(reply.status == 409 for reply in replies):  # gone on one of them: asked of another edition
                    assert {r.problem.type for r in replies if r.status == 409} == {wire.EDITION_GONE}
                    gone += 1
                    continue
                found, same = (digests(line, known, edition[0]) for line in (one, other))
                assert found == same
                message = wire.decode_sums([r.body for r in replies], vectors, wanted, found, limit=known.limit)
                assert message.body.startswith(b"message %d" % wanted)
                right += 1
        finally:
            stop.set()
            publisher.join()
        assert gone <= 30  # most editions that the follower has are held by both


def test_publishers_are_sent_to_the_leader(tmp_path):
    with running(["a"], store=tmp_path / "l.db") as leader, running([], follow=leader.url) as follower:
        until(lambda: follows(leader.url, follower.url))
        with Line(follower.url) as line:
            head = "PUT /v1/sources/a/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer x\r\n"
            line.send(f"{head}content-length: 1\r\n\r\nx".encode())
            refused = line.reply().problem
        assert refused.status == 403
        assert leader.url in refused.hint


def test_another_catalogue_and_a_restore_are_taken_over(tmp_path):
    where = str(tmp_path / "l.db")

    async def change(work):
        async with opened(where) as store:
            await work(store)

    with running({"a": b"A"}, store=where) as leader, running([], follow=leader.url) as follower:
        until(lambda: follows(leader.url, follower.url))
        asyncio.run(change(lambda store: edit_catalogue(store, add=["more"])))
        until(lambda: follows(leader.url, follower.url))
        assert catalogue(follower.url).names == ("a", "more")
        leader.publish("more", b"M")
        until(lambda: follows(leader.url, follower.url))
        known = Catalogue(("z",), None, 500)
        asyncio.run(change(lambda store: store.restore(known, {"z": WireMessage(9, 1, "a/b", b"Z")})))
        until(lambda: follows(leader.url, follower.url))
        assert content_of(follower.url) == (known, (WireMessage(9, 1, "a/b", b"Z"),))


def test_a_leader_that_lies_is_no_longer_followed_and_what_there_was_is_served(tmp_path, caplog):
    where = str(tmp_path / "l.db")
    with running({"a": b"A"}, store=where) as leader, running([], follow=leader.url) as follower:
        until(lambda: follows(leader.url, follower.url))
        before = content_of(follower.url)

        async def lie():
            """Another message under the same version and number, as if the first had never been."""
            async with opened(where) as store:
                latest = await store.latest(Stamp())
                at = latest.edition
                forged = Edition(at.epoch, at.life, at.number, b"x" * 32)
                message = WireMessage(latest.messages["a"].version, 1, "a/b", b"lie")
                assert await store.adopt(
                    Adoption("", forged, latest.catalogue, {"a": message}, whole=True), expected=at
                )

        asyncio.run(lie())
        until(lambda: "no longer following" in caplog.text)
        assert "denies" in caplog.text
        assert content_of(follower.url) == before
        assert metrics(follower.url)["onoff_follow_failures_total"] == 1
        leader.publish("a", b"after the lie")
        assert content_of(follower.url) == before


def test_a_store_with_messages_of_its_own_is_not_overwritten(tmp_path):
    where = str(tmp_path / "own.db")
    with running({"a": b"own"}, store=where):
        pass
    done = subprocess.run(
        [ONOFF, "serve", "--store", where, "--port", "0", "--follow", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert "messages of its own" in done.stderr


def test_a_follower_says_when_its_leader_goes_and_comes_and_nothing_at_each_look(tmp_path):
    with reserved_port() as port, contextlib.ExitStack() as stack:

        def leader():
            return running({"a": b"A"}, store=tmp_path / "l.db", port=port)

        command = [ONOFF, "serve", "--port", "0", "--json", "--store", str(tmp_path / "f.db")]
        with leader() as first:
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, "--follow", first.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
            stack.callback(process.kill)
            url = json.loads(present(process.stdout).readline())["url"]
            until(lambda: metrics(first.url)["onoff_changes_sent_total"] >= 6)
        until(lambda: metrics(url)["onoff_follow_failures_total"] >= 3)
        with leader() as again:
            until(lambda: metrics(again.url)["onoff_changes_sent_total"] >= 6)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE)
    lines = [line for line in said.splitlines() if not line.startswith("for readers: ")]
    assert all(re.fullmatch(LOG_LINE, line) for line in lines)
    assert [line.split()[1] for line in lines] == ["WARNING", "INFO"]
    assert "cannot follow" in lines[0]
    assert "answers again" in lines[1]


@contextlib.contextmanager
def served(*options, port=0):
    command = [ONOFF, "serve", "--port", str(port), "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process, json.loads(present(process.stdout).readline())["url"]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("rounds", [2, pytest.param(8, marks=pytest.mark.deep)])
def test_kills_of_leader_and_follower_in_turn_lose_nothing(tmp_path, rounds):
    """Each is killed in the middle of publishing and started again on its store; in the end both are equal."""
    leader_store, follower_store = str(tmp_path / "l.db"), str(tmp_path / "f.db")
    add = [ONOFF, "serve", "--store", leader_store, "--source", "a", "--source", "b", "--add-publisher", "p"]
    token = subprocess.run(add, capture_output=True, text=True, check=True).stdout.strip()
    rng = random.Random(4)
    acknowledged = 0
    with reserved_port() as port, contextlib.ExitStack() as stack:  # the leader comes back where it was
        follow = ["--store", follower_store, "--follow", f"http://127.0.0.1:{port}"]
        follower, follower_url = stack.enter_context(served(*follow))
        for round_ in range(rounds):
            with served("--store", leader_store, port=port) as (leader, url):
                until(partial(follows, url, follower_url))
                for _ in range(rng.randint(5, 25)):
                    acknowledged = publish(url, token, rng.choice("ab"), rng.randbytes(rng.randint(1, 3000)))
                if round_ % 2:
                    os.kill(follower.pid, signal.SIGKILL)
                    follower, follower_url = stack.enter_context(served(*follow))
                    until(partial(follows, url, follower_url))
                os.kill(leader.pid, signal.SIGKILL)
    with served("--store", leader_store) as (_, url), served("--store", follower_store, "--follow", url) as (_, other):
        until(lambda: follows(url, other))
        assert content_of(url) == content_of(other)
        assert edition_of(url)["edition"] >= acknowledged


def publish(url, token, name, body):
    """The number of the edition that the leader has after an acknowledged publish."""
    with Line(url) as line:
        head = f"PUT /v1/sources/{name}/message HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {token}\r\n"
        line.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert line.reply().status == 200
    return edition_of(url)["edition"]
