"""The gateway with its mirror: refreshed by schedule, read without asking, and cheap for programs that poll."""

import asyncio
import contextlib
import gzip
import json
import random
import threading
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

import feedparser
import pytest
from tests.support.gateway import gateway
from tests.support.relay import Relay
from tests.support.waiting import PATIENCE, until
from tests.support.world import NAMES, P4, Failing, World

from onoff import wire
from onoff.client import Mirror
from onoff.errors import MirrorError, OnOffError, ServerUnreachable
from onoff.gateway import refresh as module
from onoff.model.chain import MarkovChain
from onoff.server import running
from onoff.server.admin import edit_catalogue, opened

SELDOM = 3600.0


def paths(world):
    return [path.partition("?")[0] for _, path, _, _ in world.requests]


def refreshes(world):
    return paths(world).count(wire.CHANGES_PATH)


@pytest.fixture
def local(tmp_path):
    with gateway(tmp_path, refresh=SELDOM) as running_gateway:
        running_gateway.engine.refresher.first.result(PATIENCE)
        yield running_gateway


def read_all(local):
    """Open every source, more than once and in another order; what was asked of the server meanwhile."""
    before = list(local.world.requests)
    for name in (*NAMES, *reversed(NAMES)):
        answer = local.get(f"/v1/entries/{name}")
        assert (answer.status, answer.json["entries"][0]["text"]) == (200, f"first of {name}")
        assert (answer.headers["x-mirror"], answer.headers["x-cost-messages"]) == ("yes", "0")
    return local.world.requests[len(before) :]


def test_while_on_everything_can_be_read_and_nothing_is_asked(local):
    assert refreshes(local.world) == 1
    assert read_all(local) == []
    assert local.world.queries == []
    assert local.get("/v1/state").json["totals"]["requests"] == 0
    assert local.get("/v1/log").body == b""


def test_the_first_open_request_after_reading_is_drawn(tmp_path):
    chain = MarkovChain(P4, names=NAMES)
    sources = {name: f"first of {name}".encode() for name in NAMES}
    with (
        running(sources, frame_size=512) as server,
        gateway(tmp_path, url=server.url, chain=chain, refresh=SELDOM) as local,
    ):
        assert local.get("/v1/sources/beta").headers["x-mirror"] == "yes"
        local.turn(private=False)
        answer = local.get("/v1/sources/gamma")
        assert (answer.body, answer.headers["x-mirror"]) == (b"first of gamma", "no")
        assert "x-note" not in answer.headers


class Mended:
    """A refresher whose problem goes away while it is looked at."""

    supported, interval = True, SELDOM
    mirror = SimpleNamespace(number=None, refreshed=None, size=0, used_today=0)

    def __init__(self):
        self._reads = iter([ServerUnreachable("gone"), None])

    @property
    def problem(self):
        return next(self._reads)


def test_it_can_be_looked_at_while_its_thread_goes_on():
    assert module.Refresher.as_dict(Mended())["problem"] == "gone"


def test_a_gateway_that_refreshes_when_a_source_is_opened_would_be_caught(local, monkeypatch):
    read = local.engine.read

    def refresh_and_read(job, copies):
        copies.refresh()
        return read(job, copies)

    monkeypatch.setattr(local.engine, "read", refresh_and_read)
    assert read_all(local) != []


def test_it_is_refreshed_when_switched_on_and_on_the_button(local):
    local.turn(private=False)
    assert local.get("/v1/sources/beta").body == b"first of beta"
    assert len(local.world.queries) == 1
    assert refreshes(local.world) == 1
    local.world.publish("beta", b"second of beta")
    local.turn(private=True)
    until(lambda: refreshes(local.world) == 2)
    until(lambda: local.get("/v1/sources/beta").body == b"second of beta")
    local.turn(private=True)  # it was ON already
    local.world.publish("beta", b"third of beta")
    headers = {"Authorization": f"Bearer {local.token}", "Content-Type": "application/json"}
    answer = local.send("PUT", "/v1/refresh", headers, b"{}")
    assert (answer.status, answer.json["problem"]) == (200, None)
    assert refreshes(local.world) == 3
    assert local.get("/v1/sources/beta").body == b"third of beta"


def test_it_is_refreshed_at_every_interval_while_on_and_not_while_off(tmp_path):
    with gateway(tmp_path, refresh=0.05) as local:
        until(lambda: refreshes(local.world) >= 3)
        local.turn(private=False)
        until(lambda: not local.engine.refresher.wanted())
        before = refreshes(local.world)
        local.get("/v1/sources/alpha")
        local.get("/v1/sources/beta")
        assert refreshes(local.world) <= before + 1  # one may have been under way


def test_a_button_pressed_while_a_refresh_ends_brings_what_was_published_since(local, monkeypatch):
    fetched, go_on = threading.Event(), threading.Event()
    keeper = local.engine.refresher
    refresh = keeper._refresh

    def slowly():
        refresh()
        fetched.set()
        assert go_on.wait(PATIENCE)

    monkeypatch.setattr(keeper, "_refresh", slowly)
    keeper.soon()
    assert fetched.wait(PATIENCE)
    local.world.publish("beta", b"second of beta")
    attempt = keeper.soon()  # as the button does
    go_on.set()
    keeper.wait(attempt)
    assert refreshes(local.world) == 3
    assert local.get("/v1/sources/beta").body == b"second of beta"


def test_a_server_that_is_still_fetching_its_feeds_is_looked_at_more_often_until_it_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FILLING_SECONDS", 0.02)
    world = World()
    world.forget("beta")
    with gateway(tmp_path, refresh=3600.0, world=world) as local:
        until(lambda: refreshes(world) >= 3)
        world.publish("beta", b"here now")
        until(lambda: local.get("/v1/sources/beta").body == b"here now")
        until(lambda: local.engine.refresher.pause == 3600.0)
        world.forget("beta")
        local.engine.refresher._filled_by = 0.0  # two minutes later nobody is waited for
        local.engine.refresher.wait(local.engine.refresher.soon())
        assert local.engine.refresher.pause == 3600.0


def test_a_refresh_that_ends_when_the_gateway_has_stopped_leaves_the_mirror_closed(tmp_path):
    """Else the file would be opened and locked again, and the next gateway could not start."""
    fetched, stopped = threading.Event(), threading.Event()
    with gateway(tmp_path, refresh=SELDOM) as local:
        keeper, worker = local.engine.refresher, local.engine.session
        keeper.first.result(PATIENCE)
        refresh = keeper._refresh

        def slowly():
            outcome = refresh()
            fetched.set()
            assert stopped.wait(PATIENCE)
            return outcome

        keeper._refresh = slowly
        keeper.soon()
        assert fetched.wait(PATIENCE)
    worker.join(PATIENCE)
    stopped.set()
    local.engine.deadlines.thread.join(PATIENCE)
    Mirror(local.engine.mirror_path).close()
    assert keeper.problem.message == "these copies are closed"


def test_an_open_request_after_a_private_reading_hides_it(local):
    local.get("/v1/sources/gamma")
    local.turn(private=False)
    local.get("/v1/sources/gamma")
    until(lambda: local.get("/v1/state").json["steps"][-1]["weighed"])
    state = local.get("/v1/state").json
    assert state["totals"]["requests"] == 1
    assert state["steps"][0]["bits"] == 0.0
    assert state["posterior"]["ours"] == pytest.approx([0.25] * 4)
    assert len(local.world.queries) == 1


@pytest.mark.parametrize("private", [True, False])
def test_feeds_come_from_the_mirror_in_both_positions_and_are_no_requests(local, private):
    local.turn(private=private)
    before = len(local.world.queries), refreshes(local.world)
    for name in NAMES:
        answer = local.send("GET", f"/t/{local.app_token}/v1/feeds/{name}")
        (entry,) = feedparser.parse(answer.body).entries
        assert entry.content[0].value == f"first of {name}"
        again = local.send("GET", f"/t/{local.app_token}/v1/feeds/{name}", {"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
    assert (len(local.world.queries), refreshes(local.world)) == before
    assert local.get("/v1/state").json["totals"]["requests"] == 0


def test_a_program_that_polls_while_off_causes_one_refresh_per_interval(tmp_path):
    with gateway(tmp_path, refresh=SELDOM) as first:
        first.turn(private=False)
    with gateway(tmp_path / "other", refresh=SELDOM) as local:
        local.turn(private=False)
        for _ in range(3):
            for name in NAMES:
                assert local.send("GET", f"/t/{local.app_token}/v1/feeds/{name}").status == 200
        assert refreshes(local.world) == 1
        assert local.world.queries == []


def test_all_feeds_as_one_and_as_a_list(local):
    address = f"{local.address.apps}/feeds"
    one = feedparser.parse(local.send("GET", f"/t/{local.app_token}/v1/feeds").body)
    assert [entry.author for entry in one.entries] == sorted(NAMES)
    assert one.feed.links[0].href == address
    listed = ET.fromstring(local.send("GET", f"/t/{local.app_token}/v1/feeds.opml").body)
    assert [outline.get("xmlUrl") for outline in listed.iter("outline")] == [f"{address}/{name}" for name in NAMES]


def test_what_is_new_is_marked_until_it_is_read(local):
    def new():
        return [source["name"] for source in local.get("/v1/reading").json["sources"] if source["new"]]

    assert new() == list(NAMES)
    local.get("/v1/entries/beta")
    assert new() == ["alpha", "gamma", "delta"]
    headers = {"Authorization": f"Bearer {local.token}", "Content-Type": "application/json"}
    assert local.send("PUT", "/v1/reading", headers, b'{"all": true}').status == 200
    assert new() == []
    local.world.publish("delta", b"second of delta")
    assert local.send("PUT", "/v1/refresh", headers, b"{}").status == 200
    assert new() == ["delta"]


def test_without_a_model_the_mirror_serves_both_positions(tmp_path):
    with gateway(tmp_path, chain=False, refresh=SELDOM) as local:
        until(lambda: local.get("/v1/sources").json["sources"] == list(NAMES))
        for private in (True, False):
            local.turn(private=private)
            for name in NAMES:
                assert local.get(f"/v1/sources/{name}").body == f"first of {name}".encode()
        assert local.world.queries == []
        assert local.get("/v1/sources/nothing").status == 404
        state = local.get("/v1/state").json
        assert (state["model"], state["totals"]["requests"]) == (None, 0)


def test_without_the_server_what_was_fetched_is_still_read(tmp_path):
    world = Failing()
    with gateway(tmp_path, world=world, refresh=SELDOM) as local:
        local.engine.refresher.first.result(PATIENCE)
        world.down = True
        headers = {"Authorization": f"Bearer {local.token}", "Content-Type": "application/json"}
        assert local.send("PUT", "/v1/refresh", headers, b"{}").status == 504
        assert local.get("/v1/sources/beta").body == b"first of beta"
    with gateway(tmp_path, world=world, refresh=SELDOM) as local:  # and after a restart
        assert local.get("/v1/sources/beta").body == b"first of beta"
    (tmp_path / "new").mkdir()
    with gateway(tmp_path / "new", world=world, refresh=SELDOM) as local:
        assert local.get("/v1/sources/beta").status == 504


def test_a_server_that_does_not_tell_what_changed_is_asked_for_everything(tmp_path):
    world = World()
    world.tells_changes = False
    with gateway(tmp_path, world=world, refresh=SELDOM) as local:
        answer = local.get("/v1/sources/beta")
        assert (answer.body, answer.headers["x-cost-messages"]) == (b"first of beta", "4")
        assert world.sets() == [NAMES]
        assert local.send("GET", f"/t/{local.app_token}/v1/feeds/alpha").status == 200
        assert len(world.queries) == 2  # as before, each look is a step
        assert refreshes(world) >= 1


@pytest.mark.slow(reason="programs are started and waited for")
def test_120_feeds_polled_once_cost_what_changed_and_then_nothing(tmp_path):
    """Bytes from the server, headers and all, counted on the line."""
    rng = random.Random(7)
    words = [f"word{number}" for number in range(500)]
    names = [f"feed {number}" for number in range(120)]
    bodies = {name: " ".join(rng.choices(words, k=400)).encode() for name in names}
    compressed = sum(len(gzip.compress(body)) for body in bodies.values())
    chain = MarkovChain([[1 / 120] * 120] * 120, names=names)
    with (
        running(bodies) as server,
        contextlib.closing(Relay(urlsplit(server.url).port)) as relay,
        gateway(tmp_path, url=relay.url, chain=chain, refresh=SELDOM) as local,
    ):
        addresses = [f"{local.address.apps}/feeds/{quote(name)}" for name in names]
        rounds: list[Any] = []
        for _ in range(2):
            before = relay.received if rounds else 0  # what the start took counts in the first round
            entries = [feedparser.parse(address).entries for address in addresses]
            assert [one[0].content[0].value.encode() for one in entries] == list(bodies.values())
            rounds.append(relay.received - before)
    print(f"first round {rounds[0]} bytes for {compressed} compressed; second {rounds[1]}")
    assert rounds[0] <= 1.1 * compressed + 10_000
    assert rounds[1] < 1000


TOO_MANY_DIGITS = ("<b>" * 10001 + "&#" + "9" * 5000 + ";").encode()
NO_LIST = json.dumps({"entries": {"a": 1}}).encode()
HALF_A_PAIR = json.dumps({"entries": [{"title": "\ud800", "text": "\udfff"}]}).encode()


@pytest.mark.parametrize(
    ("kind", "body"),
    [("text/html", TOO_MANY_DIGITS), (wire.ENTRY_TYPE, NO_LIST), (wire.ENTRY_TYPE, HALF_A_PAIR)],
    ids=["digits", "no list", "half a pair"],
)
def test_no_message_ends_the_refreshing(tmp_path, kind, body):
    """One message of 35 kB did, for every reader, for good, and without a word."""
    world = World(frame_size=64 * 1024)
    with gateway(tmp_path, refresh=SELDOM, world=world) as local:
        keeper = local.engine.refresher
        keeper.first.result(PATIENCE)
        world.publish("beta", b"")
        world.messages["beta"] = wire.WireMessage(2, 1000, kind, body)
        world.publish("alpha", b"second of alpha")
        keeper.wait(keeper.soon())
        world.publish("alpha", b"third of alpha")
        keeper.wait(keeper.soon())
        assert local.get("/v1/entries/alpha").json["entries"][0]["text"] == "third of alpha"
        assert local.get("/v1/entries/beta").status == 200
        assert local.send("GET", f"/t/{local.app_token}/v1/feeds").status == 200
        assert local.get("/v1/state").json["note"] is None


def test_a_thread_survives_what_nobody_expected_and_the_page_says_so(local, monkeypatch, caplog):
    engine = local.engine
    keeper = engine.refresher

    def fail(*about):
        raise KeyError("a private word")

    def fail_otherwise(*about):
        raise TypeError("another private word")

    with monkeypatch.context() as broken:
        broken.setattr(keeper.mirror, "arrived", fail)
        broken.setattr(engine.log, "append", fail)
        broken.setattr(module, "require_sources", fail_otherwise)
        with pytest.raises(OnOffError, match="KeyError in the gateway"):
            keeper.wait(keeper.soon())
        state = local.get("/v1/state").json
        assert state["mirror"]["problem"] == state["note"] == "KeyError in the gateway"
        assert local.get("/v1/sources/beta").body == b"first of beta"  # although it could not be noted
        engine.deadlines.after(0, engine.heartbeat.beat)
        until(lambda: engine.heartbeat.servers[0].problem == "TypeError in the gateway")
    assert "KeyError in the gateway at " in caplog.text
    assert "a private word" not in caplog.text
    engine.deadlines.after(0, engine.heartbeat.beat)
    until(lambda: engine.heartbeat.servers[0].problem is None)
    local.world.publish("beta", b"second of beta")
    keeper.wait(keeper.soon())
    assert local.get("/v1/sources/beta").body == b"second of beta"
    assert local.get("/v1/state").json["mirror"]["problem"] is None
    assert {thread.name for thread in threading.enumerate()} >= {"onoff-session", "onoff-schedule"}


def test_a_mirror_that_cannot_be_opened_again_is_tried_again(local, monkeypatch):
    keeper = local.engine.refresher
    monkeypatch.setattr(module, "REFRESH_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(module, "SWITCH_LOOK_SECONDS", 0.02)
    with monkeypatch.context() as broken:

        def no_room():
            raise MirrorError("no room", hint="make some")

        broken.setattr(keeper, "_due", no_room)
        until(lambda: local.get("/v1/state").json["mirror"]["problem"] == "no room")
    local.world.publish("beta", b"second of beta")
    keeper.wait(keeper.soon())
    assert local.get("/v1/sources/beta").body == b"second of beta"


def test_work_is_done_once_at_the_earliest_time_that_was_set_for_it_and_survives_a_bug():
    done: list[str] = []
    bugs: list[Exception] = []
    go_on = threading.Event()
    deadlines = module.Deadlines(bugs.append)

    def later():
        done.append("later")

    def fail():
        done.append("fail")
        raise KeyError

    def last():
        done.append("last")
        go_on.set()

    for seconds, work in ((SELDOM, later), (0.0, later), (SELDOM, later), (0.0, fail), (0.0, last), (SELDOM, fail)):
        deadlines.after(seconds, work)
    deadlines.thread.start()
    assert go_on.wait(PATIENCE)
    deadlines.close()
    deadlines.thread.join(PATIENCE)
    assert (done, [type(bug) for bug in bugs]) == (["later", "fail", "last"], [KeyError])


def test_once_closed_nothing_more_is_begun():
    done: list[str] = []
    deadlines = module.Deadlines(print)

    def close():
        done.append("close")
        deadlines.close()
        deadlines.after(0.0, close)

    deadlines.after(0.0, close)
    deadlines.thread.start()
    deadlines.thread.join(PATIENCE)
    assert (done, deadlines.thread.is_alive()) == (["close"], False)


@pytest.mark.parametrize("tells_editions", [True, False])
def test_a_heartbeat_asks_for_the_catalogue_only_where_it_is_another_one(tmp_path, tells_editions):
    world = World()
    world.tells_changes = tells_editions  # else it is of an older version, and its catalogue says that it is there
    with gateway(tmp_path, world=world) as local:
        heartbeat = local.engine.heartbeat
        for changed in (False, False, True):
            if changed:
                world.catalogue = wire.Catalogue((*NAMES, "new"), None)
                world.messages["new"] = world.messages["alpha"]
                world.begin_life()
            before = len(world.requests)
            heartbeat.beat()
            asked = [wire.EDITION_PATH] + [wire.CATALOGUE_PATH] * (changed or not tells_editions)
            assert paths(world)[before:] == asked
            assert (heartbeat.connected, heartbeat.catalogue.names) == (True, world.catalogue.names)


async def grow(store):
    async with opened(str(store)) as opened_store:
        await edit_catalogue(opened_store, add=["epsilon"])


def test_a_source_that_the_server_gets_while_the_gateway_runs_is_shown_and_readable_while_on(tmp_path):
    """It was never seen. What is read of it changes nothing that leaves."""
    chain = MarkovChain(P4, names=NAMES)
    sources = {name: f"first of {name}".encode() for name in NAMES}
    (tmp_path / "store").mkdir()
    store = tmp_path / "store" / "messages.db"
    with (
        running(sources, frame_size=512, store=store) as server,
        gateway(tmp_path, url=server.url, chain=chain, refresh=SELDOM) as local,
    ):
        keeper = local.engine.refresher
        assert local.get("/v1/sources/beta").body == b"first of beta"
        assert local.get("/v1/sources/epsilon").status == 404
        asyncio.run(grow(store))
        server.publish("epsilon", b"first of epsilon")
        keeper.wait(keeper.soon())
        assert local.get("/v1/sources").json["sources"] == [*NAMES, "epsilon"]
        assert [one["modelled"] for one in local.get("/v1/reading").json["sources"]] == [True] * 4 + [False]
        state = local.get("/v1/state").json
        assert (state["n"], state["names"], state["unmodelled"]) == (4, list(NAMES), 1)
        before = local.engine.client.core.session.memory
        answer = local.get("/v1/entries/epsilon")
        assert (answer.json["entries"][0]["text"], answer.headers["x-mirror"]) == ("first of epsilon", "yes")
        assert local.engine.client.core.session.memory == before
        assert b"first of epsilon" in local.send("GET", f"/t/{local.app_token}/v1/feeds/epsilon").body
        local.turn(private=False)
        refused = local.get("/v1/sources/epsilon")
        assert (refused.status, "OFF cannot ask for it" in refused.json["title"]) == (422, True)
        assert local.get("/v1/log").body == b""
        assert local.get("/v1/sources/gamma").body == b"first of gamma"
        assert local.get("/v1/state").json["note"] is None
