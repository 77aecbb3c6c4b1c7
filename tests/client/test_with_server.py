"""Client and server as they ship, over loopback."""

import asyncio
import itertools
import shutil
import threading
import time
from typing import Any

import pytest
from tests.support.clients import Client
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until
from tests.support.world import NAMES, P4

import onoff
from onoff.client.copies import fetch_edition_of
from onoff.server import running
from onoff.server.admin import edit_catalogue, opened

CHAIN = onoff.MarkovChain(P4, names=NAMES)
SOURCES = {name: f"first of {name}".encode() for name in NAMES}


async def grow(store):
    async with opened(str(store)) as opened_store:
        await edit_catalogue(opened_store, add=["epsilon"])


@pytest.fixture
def server(tmp_path):
    (tmp_path / "store").mkdir()
    with running(SOURCES, frame_size=512, store=tmp_path / "store" / "messages.db") as server:
        yield server


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "user" / "journal"


def test_after_a_private_request_the_open_one_is_drawn_in_another_process_too(server, journal):
    """As in the tutorial: `onoff get X --private`, then `onoff get Y --open`."""
    for name, private in (("beta", True), ("gamma", False), ("delta", True), ("alpha", False)):
        with Client(server.url, CHAIN, journal, "greedy", tick=0) as client:
            message = client.get(name, private=private)
            assert (message, message.sent.note) == (SOURCES[name], None)


def test_messages_arrive_and_a_restart_goes_on(server, journal):
    seen: list[Any] = []
    for start in range(3):
        with Client(server.url, CHAIN, journal, "greedy", tick=0, mirror=False, observe=seen.append) as client:
            for t in range(4):
                name = NAMES[(start + t) % 4]
                assert client.get(name, private=t == 0) == SOURCES[name]
    assert [sent.step for sent in seen] == list(range(12))
    assert len({sent.session for sent in seen}) == 1
    assert [sent.note for sent in seen] == ["there was no journal: everything was asked"] + [None] * 11


def test_a_restored_journal_asks_for_everything_in_a_new_session(server, journal, tmp_path):
    with Client(server.url, CHAIN, journal, "greedy", tick=0, mirror=False) as client:
        client.get("alpha", private=True)
        first = client.get("alpha", private=False).sent
    shutil.copytree(journal.parent, tmp_path / "backup")
    with Client(server.url, CHAIN, journal, "greedy", tick=0, mirror=False) as client:
        client.get("beta", private=False)
    journal.write_bytes((tmp_path / "backup" / "journal").read_bytes())  # in place: the same inode
    with Client(server.url, CHAIN, journal, "greedy", tick=0, mirror=False) as client:
        message = client.get("gamma", private=False)
    assert message == SOURCES["gamma"]
    assert message.sent.note == "the journal is older than what the server saw: everything was asked"
    assert message.sent.cost == 4
    assert message.sent.session != first.session


def test_a_grown_catalogue_asks_for_everything_once(server, journal, tmp_path):
    with Client(server.url, CHAIN, journal, "greedy", tick=0, mirror=False) as client:
        client.get("alpha", private=True)
        asyncio.run(grow(tmp_path / "store" / "messages.db"))
        message = client.get("beta", private=False)
        assert message == SOURCES["beta"]
        assert message.sent.note == "the server's catalogue has changed: everything was asked"
        assert client.get("beta", private=False).sent.step == 1


def test_private_requests_read_what_the_server_publishes(server, journal):
    """Only what changed comes, compressed; the open request after a read goes on in the same session."""
    with Client(server.url, CHAIN, journal, "greedy", tick=0) as client:
        client.get("alpha", private=False)
        first = client.get("beta", private=True)
        assert (first, first.messages, first.sent.mirror) == (SOURCES["beta"], 4, True)
        server.publish("gamma", b"second of gamma")
        second = client.get("gamma", private=True)
        assert (second, second.messages, second.version) == (b"second of gamma", 1, 2)
        assert second.edition == present(first.edition) + 1
        third = client.get("delta", private=True)
        assert (third, third.messages) == (SOURCES["delta"], 0)
        assert third.received < 200
        assert client.get("alpha", private=False).sent.step == 1
        assert client.forecast().everything == 4 * 512
    with Client(server.url, CHAIN, journal, "greedy", tick=0) as client:
        assert client.read("gamma") == b"second of gamma"
        assert client.get("beta", private=False).sent.note is None


def test_a_mirror_survives_a_grown_catalogue_and_a_server_that_starts_again(server, journal, tmp_path):
    with Client(server.url, CHAIN, journal, "greedy", tick=0) as client:
        client.get("alpha", private=True)
        asyncio.run(grow(tmp_path / "store" / "messages.db"))
        message = client.get("beta", private=True)
        assert (message, message.messages) == (SOURCES["beta"], 4)
        assert [state.name for state in present(client.mirror).sources()] == [*NAMES, "epsilon"]


def test_two_servers_that_hold_the_same_give_one_message(tmp_path):
    """A store and its copy: the same edition, one sum of each, one message."""
    bodies = {name: f"first of {name} ".encode() * (number * 50 + 1) for number, name in enumerate(NAMES)}
    for place in "ab":
        (tmp_path / place).mkdir()
    with running(bodies, store=tmp_path / "a" / "messages.db"):
        pass
    for file in (tmp_path / "a").iterdir():
        shutil.copy(file, tmp_path / "b")
    with (
        running(NAMES, store=tmp_path / "a" / "messages.db") as first,
        running(NAMES, store=tmp_path / "b" / "messages.db") as second,
    ):
        urls = [first.url, second.url]
        for _ in range(2):
            with Client(urls, CHAIN, tmp_path / "journal", "greedy", tick=0) as client:
                for number in range(12):
                    name = NAMES[number % 4]
                    message = client.get(name, private=number % 3 == 0)
                    assert message == bodies[name]
                    assert message.messages <= 2
        assert message.sent.step == 23
        with Client(urls, None, tmp_path / "other", tick=0) as client:
            assert client.get("delta", private=True) == bodies["delta"]


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_leader_and_its_follower_give_right_messages_while_messages_are_published(tmp_path):
    """Each message is one that was published, and never older than one that was there before."""
    published = {name: [b""] for name in NAMES}
    stop = threading.Event()
    with (
        running(NAMES, store=tmp_path / "leader.db") as leader,
        running([], store=tmp_path / "follower.db", follow=leader.url) as follower,
    ):
        until(lambda: fetch_edition_of(follower.url) == fetch_edition_of(leader.url))

        def publish():
            for number in itertools.count():
                if stop.is_set():
                    return
                name = NAMES[number % 4]
                body = f"{number} of {name} ".encode() * (number % 30 + 1)
                published[name].append(body)
                leader.publish(name, body)

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            newest = dict.fromkeys(NAMES, 0)
            with Client([leader.url, follower.url], CHAIN, tmp_path / "journal", "greedy", tick=0) as client:
                deadline = time.monotonic() + PATIENCE
                for number in itertools.count():
                    if number >= 60 and (max(newest.values()) > 0 or time.monotonic() > deadline):
                        break  # on a quick machine the follower has looked at its leader by then
                    name = NAMES[number * 3 % 4]
                    message = client.get(name, private=number % 4 == 0)
                    assert message == published[name][message.version]
                    assert message.version >= newest[name]
                    newest[name] = message.version
        finally:
            stop.set()
            publisher.join()
    assert max(newest.values()) > 0
