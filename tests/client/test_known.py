"""What is known is not asked for again: copies of sets, the tags that queries carry, and the bytes that this saves."""

import contextlib
import gzip
import json
import random
import sqlite3

import numpy as np
import pytest
from tests.support.clients import Client
from tests.support.typed import as_a
from tests.support.world import NAMES, P4, Direct, World

import onoff
from onoff import wire
from onoff.client import Hooks, MemoryMirror, upstream_of
from onoff.client.copies import MirrorClient
from onoff.client.stores import Mirror
from onoff.errors import MirrorError, ServerUnreachable
from onoff.lab.families import browsing
from onoff.server import running
from onoff.upstream import Doubt
from onoff.upstream.transport import Http, Reply

CHAIN = onoff.MarkovChain(P4, names=NAMES)
URL = "http://server.test"


def client_of(world, journal, **how):
    return Client(URL, CHAIN, journal, "greedy", transport=Direct(world), tick=0, background=False, **how)


def known(world, at=-1):
    return wire.decode_query(world.queries[at], len(NAMES)).known


def tags(world, query):
    """What a query would carry that knows the present messages."""
    asked = world.asked(query)
    index, epoch = world.catalogue.index, world.catalogue.epoch
    return b"".join(wire.message_tag(index[name], world.messages[name], epoch=epoch) for name in asked)


def test_an_open_request_knows_what_a_refresh_brought_and_gets_what_changed(tmp_path):
    world = World(frame_size=None)
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        client.read("beta")
        before = {name: world.messages[name] for name in NAMES}
        world.publish("gamma", b"second of gamma")
        message = client.get("gamma", private=False)
        assert message == b"second of gamma"
        asked = world.asked(world.queries[-1])
        epoch, index = world.catalogue.epoch, world.catalogue.index
        assert known(world) == b"".join(wire.message_tag(index[n], before[n], epoch=epoch) for n in asked)
        assert message.messages == 1
        again = client.get("gamma", private=False)
        assert (again, again.messages) == (b"second of gamma", 0)
        assert known(world) == tags(world, world.queries[-1])
        assert again.received == 16
        assert client.read("gamma") == b"first of gamma"  # the mirror is of one edition
        assert client.refresh().changed == ("gamma",)
        assert client.read("gamma") == b"second of gamma"


def test_copies_of_sets_outlive_the_process_and_need_no_refresh(tmp_path):
    world = World(frame_size=None)
    with client_of(world, tmp_path / "journal") as client:
        client.get("beta", private=False)  # the first: everything, as there was no journal
        assert known(world) == b""
    with client_of(world, tmp_path / "journal") as client:
        message = client.get("beta", private=False)
        assert (message, message.messages, message.received) == (b"first of beta", 0, 16)
        assert known(world) == tags(world, world.queries[-1])


def test_another_catalogue_knows_nothing_of_this_one(tmp_path):
    world = World(frame_size=None)
    with client_of(world, tmp_path / "journal") as client:
        client.get("beta", private=False)
        world.rename((*NAMES, "new"))
        assert client.get("beta", private=False) == b"first of beta"
        assert wire.decode_query(world.queries[-1], 5).known == b""
        client.get("beta", private=False)
        assert wire.decode_query(world.queries[-1], 5).known


def test_padded_frames_are_never_known(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        for _ in range(3):
            assert client.get("beta", private=False) == b"first of beta"
    assert {len(query) for query in world.queries} == {wire.query_length(4)}


def test_a_retry_sends_the_same_tags_though_a_refresh_came_between(tmp_path):
    world = World(frame_size=None)
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        client.read("beta")
        line = client.upstream.lines[0]
        line.fault = lambda request: "after" if request.path == wire.QUERY_PATH else None
        with pytest.raises(ServerUnreachable):
            client.get("beta", private=False)
        line.fault = lambda request: None
        world.publish("beta", b"second of beta")
        client.refresh()
        assert client.retry() == b"second of beta"
        world.check()
        assert len(set(world.queries)) == 1


def test_copies_that_are_gone_when_a_request_is_repeated_are_a_harmless_doubt(tmp_path):
    world = World(frame_size=None)
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        client.read("beta")
        client.upstream.lines[0].fault = lambda request: "after" if request.path == wire.QUERY_PATH else None
        with pytest.raises(ServerUnreachable):
            client.get("beta", private=False)
    (tmp_path / "journal.mirror").unlink()
    with client_of(world, tmp_path / "journal") as client:
        message = client.retry()
        assert message == b"first of beta"
        assert message.sent.note == f"{Doubt.COPIES_GONE}: everything was asked"
        world.check()


def test_a_mirror_that_cannot_be_used_costs_bytes_and_nothing_else(tmp_path, caplog):
    world = World(frame_size=None)
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        client.read("beta")
    with (
        contextlib.closing(Mirror(tmp_path / "journal.mirror")),  # and locked
        client_of(world, tmp_path / "journal") as client,
    ):
        assert client.get("gamma", private=False) == b"first of gamma"
        assert known(world) == b""
    assert "copies cannot be used" in caplog.text


def test_damaged_copies_of_sets_are_thrown_away_with_the_whole_mirror(tmp_path):
    path, world = tmp_path / "mirror", World(frame_size=None)
    message = wire.WireMessage(1, 1, "a/b", b"kept")
    mirror = Mirror(path)
    mirror.keep(world.catalogue, {2: message})
    mirror.close()
    mirror = Mirror(path)
    assert mirror.known(world.catalogue, range(4)) == {2: message}
    mirror.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE kept SET frame = zeroblob(length(frame))")
    with pytest.raises(MirrorError, match="damaged"):
        Mirror(path, repair=False)
    mirror = Mirror(path)
    assert mirror.known(world.catalogue, range(4)) == {}
    mirror.close()


def test_a_refresh_takes_the_place_of_copies_of_sets():
    world, mirror = World(frame_size=None), MemoryMirror()
    with MirrorClient(URL, mirror, transport=Direct(world)) as client:
        client.keep(world.catalogue, {1: wire.WireMessage(9, 1, "a/b", b"of a set")})
        assert [m.body for m in client.known(world.catalogue, (1, 2)).values()] == [b"of a set"]
        client.refresh()
        assert client.known(world.catalogue, (1,)) == {1: world.messages["beta"]}


# -- bytes -------------------------------------------------------------------------------------------------


class Counting:
    """A transport that counts the bytes of bodies, both ways, and of the heads of replies."""

    def __init__(self, url):
        self.inner, self.bodies, self.received = Http(url, timeout=30), 0, 0

    def exchange(self, request):
        reply = as_a(Reply, self.inner.exchange(request))
        self.bodies += len(request.body) + len(reply.body)
        self.received += len(reply.body) + sum(len(k) + len(v) + 4 for k, v in reply.headers) + 19
        return reply


def feed(rng):
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(300)]
    return json.dumps([{"title": " ".join(rng.choices(words, k=8)), "html": " ".join(rng.choices(words, k=150))}] * 8)


@pytest.mark.parametrize("changing", [0, 3])
def test_open_readings_after_a_refresh_take_what_changed_and_little_more(tmp_path, changing):
    """Thirty feeds, twelve readings: at most what changed since, compressed, and 200 bytes a request."""
    rng, names = random.Random(5), [f"feed-{k}" for k in range(30)]
    chain = onoff.MarkovChain(browsing(30, np.random.default_rng(5)), names=names)
    wanted = chain.sample(12, np.random.default_rng(6)).tolist()
    latest = {name: feed(rng).encode() for name in names}
    with running(latest) as server:
        line = Counting(server.url)
        upstream = upstream_of(server.url, transports=[line])
        with onoff.Client(upstream, chain, tmp_path / "journal", "greedy", hooks=Hooks(tick=0)) as client:
            everything = client.refresh().received
            client.get(names[wanted[0]], private=True)
            line.bodies = line.received = changed = 0
            for place, x in enumerate(wanted):
                for name in rng.sample(names, changing) if place % 4 == 2 else ():
                    latest[name] = feed(rng).encode()
                    server.publish(name, latest[name])
                    changed += len(gzip.compress(latest[name])) + wire.FRAME_OVERHEAD
                assert client.get(x, private=False) == latest[names[x]]
            assert line.bodies <= changed + 12 * 200
            assert line.received <= changed + 12 * 200
            assert changed < everything
