"""Entries of earlier messages: kept for every source alike, once each, newest first, and not without end."""

import json

from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE
from tests.support.world import World

from onoff.client import Copy
from onoff.gateway import render as module
from onoff.gateway.render import EntryStore
from onoff.wire import ENTRY_TYPE, WireMessage


def feed(*numbers, version=1, say="entry"):
    entries = [
        {"title": f"{say} {k}", "link": f"https://a.example/{k}", "time": 1000 * k, "text": "x"} for k in numbers
    ]
    return WireMessage(version, 1000, ENTRY_TYPE, json.dumps({"entries": entries}).encode())


def shown(history, message):
    return [entry.title for entry in history.with_earlier(Copy.of("a", message))]


def arrive(history, *messages, name="a"):
    for message in messages:
        history.arrived([(name, message)])


def test_entries_that_fell_out_of_the_message_are_kept_newest_first():
    history = EntryStore()
    arrive(history, feed(2, 1), feed(4, 3, 2), feed(6, 5))
    assert shown(history, feed(6, 5)) == [f"entry {k}" for k in (6, 5, 4, 3, 2, 1)]
    assert shown(history, feed(7)) == [f"entry {k}" for k in (7, 6, 5, 4, 3, 2, 1)]  # newer than the copy, as while OFF


def test_an_entry_that_was_changed_stands_there_once_as_it_is_now():
    history = EntryStore()
    arrive(history, feed(2, 1, say="old"), feed(3, 2, say="new"))
    assert shown(history, feed(3, 2, say="new")) == ["new 3", "new 2", "old 1"]
    arrive(history, feed(1, say="back"))
    assert shown(history, feed(1, say="back")) == ["new 3", "new 2", "back 1"]


def test_entries_of_one_message_that_lead_to_one_place_are_all_shown():
    entries = [{"title": title, "link": "https://a.example/", "time": 1, "text": title} for title in ("one", "two")]
    message = WireMessage(1, 1000, ENTRY_TYPE, json.dumps({"entries": entries}).encode())
    assert shown(EntryStore(), message) == ["one", "two"]


def test_other_messages_have_a_history_too():
    history = EntryStore()
    texts = [WireMessage(k, 1000 * k, "text/plain", f"text {k}".encode()) for k in (1, 2)]
    arrive(history, *texts)
    assert shown(history, texts[1]) == ["text 2", "text 1"]


def test_it_is_bounded_for_a_source():
    history = EntryStore(most=3)
    arrive(history, *(feed(k) for k in range(1, 9)))
    assert shown(history, feed(8)) == ["entry 8", "entry 7", "entry 6", "entry 5"]


def test_it_is_bounded_for_all_and_those_that_changed_last_stay():
    history = EntryStore(most_bytes=100)
    for name in "abcdefgh":
        arrive(history, feed(1), feed(2), name=name)
    kept = [len(history.with_earlier(Copy.of(name, feed(2)))) - 1 for name in "abcdefgh"]
    each = len("entry 1") + len("https://a.example/1") + len("x")
    assert kept == [0] * (8 - 100 // each) + [1] * (100 // each)


def test_a_copy_is_made_into_entries_when_it_arrives_and_not_when_it_is_opened(tmp_path, monkeypatch):
    """Also after a start, for the copies that were there before."""
    world = World(frame_size=2048)
    world.messages["beta"] = WireMessage(1, 1000, "text/html", b"<p>Hi <b>there")
    made: list[Copy] = []
    for turn in range(2):
        with gateway(tmp_path, world=world, refresh=3600.0) as local:
            if turn == 0:
                local.engine.refresher.first.result(PATIENCE)
            local.engine.refresher.wait_for_first()
            with monkeypatch.context() as patched:
                patched.setattr(module, "entries_of", made.append)
                told = local.get("/v1/entries/beta").json["entries"]
                assert [entry["html"] for entry in told] == ["<p>Hi <b>there</b></p>"]
                feeds = local.send("GET", f"/t/{local.app_token}/v1/feeds").body.decode()
                assert "Hi &lt;b&gt;there" in feeds
                assert "first of alpha" in feeds
    assert made == []


def test_the_gateway_keeps_it_from_refreshes_whatever_is_read(tmp_path):
    """And nothing of it is on disk."""
    world = World(frame_size=2048)
    world.messages["beta"] = feed(2, 1)
    with gateway(tmp_path, world=world, refresh=3600.0) as local:
        refresher = local.engine.refresher
        refresher.first.result(PATIENCE)
        for version, numbers in ((2, (3,)), (3, (4,))):
            world.publish("beta", b"")
            world.messages["beta"] = feed(*numbers, version=version + 1)
            refresher.wait(refresher.soon())
        told = local.get("/v1/entries/beta").json["entries"]
        assert [entry["title"] for entry in told] == ["entry 4", "entry 3", "entry 2", "entry 1"]
        assert [entry["title"] for entry in local.get("/v1/entries/alpha").json["entries"]] == ["first of alpha"]
        world.messages["beta"] = feed(5, version=5)
        local.turn(private=False)
        told = local.get("/v1/entries/beta").json["entries"]
        assert [entry["title"] for entry in told] == [f"entry {k}" for k in (5, 4, 3, 2, 1)]
    assert not any(b"entry 2" in path.read_bytes() for path in tmp_path.iterdir())
