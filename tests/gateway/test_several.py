"""A gateway before several servers: each sees a set of its own, all are needed, and the page is told all of it."""

import contextlib
import json
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.gateway import QUIET, gateway
from tests.support.waiting import PATIENCE, until
from tests.support.world import NAMES, World, listening

from onoff import wire
from onoff.audit.logs import audit_log, parse_line
from onoff.client import ServerView
from onoff.client.forecast import cost_of_set
from onoff.errors import OnOffError
from onoff.gateway.engine import Engine
from onoff.gateway.evidence import assess, views_of
from onoff.gateway.query_log import told_together
from onoff.gateway.state import snapshot
from onoff.model.chain import MarkovChain

SELDOM = 3600.0


class Two:
    """Two servers, or more, that hold the same messages, of which one may be turned away from."""

    def __init__(self, stack, count=2, names=NAMES, make=World):
        self.worlds, self.down = [make(names) for _ in range(count)], set()
        self.sums: list[Any] = [[] for _ in range(count)]
        self.urls = []
        for place, world in enumerate(self.worlds):
            self.urls.append(stack.enter_context(listening(world, self._deliver(place))).url)

    def refreshes(self):
        """How often each server was asked what changed."""
        return [sum(path.startswith(wire.CHANGES_PATH) for _, path, _, _ in world.requests) for world in self.worlds]

    def _deliver(self, place):
        def deliver(connection, path, raw):
            if place in self.down:
                return  # closed without an answer
            if path == wire.SUM_PATH:
                self.sums[place].append(raw)
            connection.sendall(raw)

        return deliver


@pytest.fixture
def two():
    with contextlib.ExitStack() as stack:
        yield Two(stack)


OPTIONS = {"tick": 0.0, "attempts": 1}


def test_every_request_asks_both_and_the_state_shows_what_each_saw(tmp_path, two):
    with gateway(tmp_path, url=two.urls, refresh=SELDOM) as local:
        for name, private in [("beta", True), ("gamma", False), ("alpha", True), ("alpha", False)]:
            local.turn(private=private)
            answer = local.get(f"/v1/sources/{name}")
            assert answer.body == f"first of {name}".encode()
            assert answer.headers["x-privacy-mode"] == ("on" if private else "off")
            assert answer.headers["x-mirror"] == "no"
        until(lambda: snapshot(local.engine)["steps"][-1]["weighed"])
        longest = len(b"first of alpha") + wire.FRAME_OVERHEAD
        until(lambda: (snapshot(local.engine)["forecast"]["request"] or {}).get("off") is not None)
        state = local.get("/v1/state").json
        assert state["forecast"]["request"]["on"] == cost_of_set(4, 2) * longest
        assert [len(sums) for sums in two.sums] == [4, 4]
        assert [server["url"] for server in state["servers"]] == two.urls
        assert [server["queries"] for server in state["servers"]] == [4, 4]
        assert state["bytes"]["received"] == sum(server["received"] for server in state["servers"])
        assert state["privacy"]["always"] is False
        for step in state["steps"]:
            first, second = (view["entries"] for view in step["views"])
            assert sum(first) % 2 == 0
            assert [a != b for a, b in zip(first, second, strict=True)] == [x == step["wanted"] for x in range(4)]
            assert step["together"] == step["wanted"]
            assert step["cost"] == any(first) + any(second)
            assert step["expected"] == cost_of_set(len(step["sources"]), 2)
            assert step["bits"] == 0
        assert state["totals"]["messages"] == sum(step["cost"] for step in state["steps"])
        lines = [json.loads(line) for line in local.get("/v1/log").body.splitlines()]
        assert all(line["servers"] == 2 and "views" not in line and "wanted" not in line for line in lines)
        assert "vectors" not in local.get("/v1/log").body.decode()
        assert two.refreshes() == [0, 0]  # nothing polls feeds, so nothing is mirrored
        audited = audit_log((parse_line(line, 1) for line in local.engine.log.lines()), local.engine.model, "single")
        assert (audited.queries, audited.faults) == (4, [])


def test_three_servers_and_many_sources_are_shown_in_bands(tmp_path):
    names = tuple(f"source {k}" for k in range(100))
    with contextlib.ExitStack() as stack:
        three = Two(stack, 3, names)
        local = stack.enter_context(gateway(tmp_path, url=three.urls, chain=False, refresh=SELDOM, **OPTIONS))
        until(lambda: local.engine.names == names)
        for name in ("source 7", "source 99"):
            assert local.get(f"/v1/sources/{name.replace(' ', '%20')}").body == f"first of {name}".encode()
        steps = local.get("/v1/state").json["steps"]
        assert [step["together"] for step in steps] == [7, 99]
        assert all(len(step["views"]) == 3 and step["cost"] in {0.5, 1.0, 1.5} for step in steps)
        assert all(len(view["bands"]) == len(step["bands"]) for step in steps for view in step["views"])


def test_without_a_model_every_request_is_private_and_the_switch_says_so(tmp_path, two):
    with gateway(tmp_path, url=two.urls, chain=False, refresh=SELDOM, **OPTIONS) as local:
        until(lambda: local.engine.names == NAMES)
        local.turn(private=False)
        answer = local.get("/v1/sources/delta", X_Privacy_Expected="off")
        assert (answer.body, answer.headers["x-privacy-mode"]) == (b"first of delta", "on")
        until(lambda: snapshot(local.engine)["steps"][-1]["weighed"])
        state = local.get("/v1/state").json
        assert state["privacy"] == {"private": False, "until": None, "ran_out": None, "always": True}
        assert [step["private"] for step in state["steps"]] == [True]
        assert state["model"] is None
        assert state["posterior"] is None
        until(lambda: snapshot(local.engine)["next"] == {"on": cost_of_set(4, 2), "off": cost_of_set(4, 2)})


@pytest.mark.parametrize("chain", [None, False])
@pytest.mark.parametrize("down", [0, 1])
def test_a_server_that_is_down_is_named_and_the_same_request_works_when_it_is_back(tmp_path, two, chain, down):
    options = {} if chain is None else OPTIONS
    with gateway(tmp_path, url=two.urls, chain=chain, refresh=SELDOM, heartbeat=0.05, **options) as local:
        until(lambda: local.engine.heartbeat.connected)
        assert local.get("/v1/sources/alpha").status == 200
        two.down = {down}
        failed = local.get("/v1/sources/beta", Idempotency_Key="mine")
        assert failed.status == 504
        assert two.urls[down] in failed.json["title"]
        assert "all servers are needed" in failed.json["hint"]
        until(lambda: local.engine.heartbeat.connected is False)
        state = local.get("/v1/state").json
        assert [server["connected"] for server in state["servers"]] == [place != down for place in range(2)]
        assert two.urls[down] in state["problem"]
        two.down = set()
        assert local.get("/v1/sources/beta", Idempotency_Key="mine").body == b"first of beta"
        until(lambda: local.engine.heartbeat.connected)


class Liar(World):
    """A server that adds the difference of two valid frames of a source to its answers."""

    about = None

    def _sum(self, body):
        reply = super()._sum(body)
        if self.about is None or not reply.body:
            return reply
        frames = self.frames(self.editions[-1].number)
        other = wire.encode_frame(
            self.about,
            replace(self.messages[NAMES[self.about]], published=7),
            epoch=self.catalogue.epoch,
            frame_size=None,
        )
        parts = (part.ljust(len(reply.body), b"\0") for part in (reply.body, frames[self.about], other))
        return replace(reply, body=bytes(a ^ b ^ c for a, b, c in zip(*parts, strict=True)))


@contextlib.contextmanager
def beats_set(engine):
    """The times that were set for a heartbeat inside the block."""
    found: list[float] = []
    after = engine.deadlines.after

    def noted(seconds, work):
        if work == engine.heartbeat.beat:
            found.append(seconds)
        after(seconds, work)

    with patch.object(engine.deadlines, "after", noted):
        yield found


@pytest.mark.parametrize("liar", [0, 1])
def test_what_leaves_after_a_lie_does_not_depend_on_what_was_wanted(tmp_path, liar):
    """One server lies about a source. Both see the same whether that was wanted or another."""
    seen = set()
    for wanted in NAMES:
        with contextlib.ExitStack() as stack:
            two = Two(stack, make=Liar)
            two.worlds[liar].about = 2
            folder = tmp_path / wanted
            folder.mkdir()
            local = stack.enter_context(gateway(folder, url=two.urls, refresh=SELDOM, heartbeat=SELDOM))
            until(partial(getattr, local.engine.heartbeat, "connected"))
            woken = stack.enter_context(beats_set(local.engine))
            before = [len(world.requests) for world in two.worlds]
            statuses = []
            while 502 not in statuses:  # nothing is added to an empty answer
                statuses.append(local.get(f"/v1/sources/{wanted}").status)
            assert set(statuses) <= {200, 502}
            vectors = [world.vectors() for world in two.worlds]
            assert [status == 502 for status in statuses] == [any(vector) for vector in vectors[liar]]
            two.worlds[liar].about = None
            assert local.get(f"/v1/sources/{wanted}").body == f"first of {wanted}".encode()
            assert woken == []
            one = ["/v1/digests", wire.SUM_PATH]
            for world, start in zip(two.worlds, before, strict=True):
                paths = [path.partition("?")[0] for _, path, _, _ in world.requests[start:]]
                assert [path for path in paths if path != wire.CATALOGUE_PATH] == one * (len(statuses) + 1)
                seen.add(paths.count(wire.CATALOGUE_PATH))  # once, of the client
    assert seen == {1}


def test_a_gateway_that_looks_for_its_servers_after_a_lie_would_be_caught(tmp_path, monkeypatch):
    """The twin: a heartbeat that comes because an answer did not fit."""
    remember = Engine.remember

    def remember_and_look(engine, job, outcome):
        remember(engine, job, outcome)
        if isinstance(outcome, OnOffError):
            engine.deadlines.after(0, engine.heartbeat.beat)

    monkeypatch.setattr(Engine, "remember", remember_and_look)
    with contextlib.ExitStack() as stack:
        two = Two(stack, make=Liar)
        two.worlds[0].about = 2
        local = stack.enter_context(gateway(tmp_path, url=two.urls, refresh=SELDOM, heartbeat=SELDOM))
        until(partial(getattr, local.engine.heartbeat, "connected"))
        woken = stack.enter_context(beats_set(local.engine))
        while local.get("/v1/sources/gamma").status != 502:  # nothing is added to an empty answer
            pass
        assert woken != []


def test_everything_from_the_other_server_where_that_is_allowed(tmp_path, two):
    with gateway(tmp_path, url=two.urls, refresh=SELDOM, on_missing="everything") as local:
        assert local.get("/v1/sources/alpha").status == 200
        two.down = {0}
        answer = local.get("/v1/sources/gamma")
        assert (answer.body, answer.headers["x-mirror"]) == (b"first of gamma", "yes")
        assert answer.headers["x-cost-messages"] == "4"
        assert local.get("/v1/state").json["on_missing"] == "everything"


def test_feeds_come_from_the_mirror_of_the_first_and_are_no_request(tmp_path, two):
    with gateway(tmp_path, url=two.urls, refresh=SELDOM) as local:
        for name in NAMES:
            assert f"first of {name}" in local.get(f"/v1/feeds/{name}").body.decode()
        assert two.sums == [[], []]
        assert two.refreshes() == [1, 0]


@pytest.mark.slow(reason="programs are started and waited for")
def test_it_starts_without_a_model_while_no_server_is_there(tmp_path, two):
    two.down = {0, 1}
    engine = Engine(two.urls, None, tmp_path / "journal", heartbeat=QUIET, refresh=SELDOM, **OPTIONS)
    try:
        assert engine.names == ()
        until(lambda: engine.heartbeat.connected is False)
        two.down = set()
        until(lambda: engine.names == NAMES)
        assert engine.request("beta").result(PATIENCE) == b"first of beta"
    finally:
        engine.close()


def test_entries_are_shown_in_the_order_of_the_page_and_not_after_the_catalogue_changed():
    known = wire.Catalogue(("x", "b", "a"), None)
    sent = ServerView("", 0, (0, 1), 2, True, vectors=(b"\0\1\1", b"\0\0\1"))
    assert views_of(sent, ("a", "b"), known) == [[1, 1], [1, 0]]
    assert views_of(sent, ("a", "b"), wire.Catalogue(("a", "b"), None)) == []
    assert views_of(sent, ("a", "c"), known) == []


def test_servers_that_tell_each_other_know_where_their_views_differ():
    assert told_together([[1, 1, 0], [1, 0, 0]]) == 1
    assert told_together([[1, 2, 0], [1, 0, 0], [1, 1, 0]]) == 1
    assert told_together([[1, 1], [1, 1]]) is None
    assert told_together([[1, 1], [0, 0]]) is None
    assert told_together([]) is None


def test_a_private_step_costs_what_the_best_code_does_and_an_open_one_claims_no_bound():
    chain = MarkovChain([[0.5, 0.5], [0.5, 0.5]])
    assert chain.n == 2
    on = assess(ServerView("", 0, (0, 1), 2, True, vectors=(b"\1\1", b"\0\1")), 0, None)
    assert (on.expected, on.lower, on.bits) == (1.5, 1.5, 0.0)
    off = assess(ServerView("", 1, (0,), 2, False, vectors=(b"\0\0", b"\1\0")), 0, None)
    assert (off.expected, off.lower) == (1.0, 1.0)
