"""The engine on its own: a queue with an end, faults that stop nothing, and one state."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from tests.support.gateway import QUIET
from tests.support.waiting import PATIENCE, until
from tests.support.world import NAMES, P4, Direct, World, listening

from onoff import wire
from onoff.client import ServerView
from onoff.errors import InvalidInput, OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway.engine import LONGEST_QUEUE, Busy, Changed, Engine
from onoff.gateway.evidence import Assessment
from onoff.gateway.query_log import LoggedQuery, QueryLog
from onoff.gateway.state import Board, snapshot
from onoff.model.chain import MarkovChain
from onoff.upstream.transport import Failure


@pytest.fixture
def world():
    return World()


@pytest.fixture
def deliver():
    """How answers are delivered; a test may put something else in `[0]`."""
    return [lambda connection, path, raw: connection.sendall(raw)]


@pytest.fixture
def engine(tmp_path, world, deliver):
    with listening(world, lambda *arguments: deliver[0](*arguments)) as server:
        running = Engine(
            server.url,
            MarkovChain(P4, names=NAMES),
            tmp_path / "journal",
            heartbeat=QUIET,
            refresh=None,
            scheme="single",
            tick=0.0,
        )
        yield running
        running.close()


def held(deliver):
    """Answers to queries wait: the event that one was asked, and the one that lets them all go."""
    asked, release = threading.Event(), threading.Event()

    def wait(connection, path, raw):
        if path == wire.QUERY_PATH:
            asked.set()
            assert release.wait(PATIENCE)
        connection.sendall(raw)

    deliver[0] = wait
    return asked, release


def test_a_full_queue_refuses_and_sends_nothing(engine, world, deliver):
    asked, release = held(deliver)
    waiting = [engine.request("alpha") for _ in range(LONGEST_QUEUE)]
    assert asked.wait(PATIENCE)
    with pytest.raises(Busy):
        engine.request("beta")
    assert snapshot(engine)["waiting"] == LONGEST_QUEUE
    assert len(world.queries) == 1
    release.set()
    assert [len(message.result(PATIENCE)) for message in waiting] == [len(b"first of alpha")] * LONGEST_QUEUE
    assert snapshot(engine)["waiting"] == 0
    world.check()


def test_a_key_that_a_full_queue_refused_can_be_used_again(engine, deliver):
    asked, release = held(deliver)
    waiting = [engine.request("alpha") for _ in range(LONGEST_QUEUE)]
    assert asked.wait(PATIENCE)
    with pytest.raises(Busy):
        engine.request("beta", key="mine")
    release.set()
    waiting[-1].result(PATIENCE)
    assert engine.request("beta", key="mine").result(PATIENCE).payload == b"first of beta"


def test_a_key_whose_request_was_never_sent_obeys_the_switch_as_it_stands_now(engine, monkeypatch):
    engine.turn(private=False)
    monkeypatch.setattr(engine.client, "get", lambda *a, **k: 1 / 0)
    with pytest.raises(OnOffError, match="ZeroDivisionError"):
        engine.request("alpha", key="mine").result(PATIENCE)
    monkeypatch.undo()
    engine.turn(private=True)
    with pytest.raises(Changed):
        engine.request("alpha", key="mine", expected=False)
    with pytest.raises(InvalidInput, match="another source"):
        engine.request("beta", key="mine")
    assert engine.request("alpha", key="mine").result(PATIENCE).sent.private


def test_a_log_that_cannot_be_written_stops_nothing_but_itself(tmp_path, world, caplog):
    with listening(world) as server:
        chain, log = MarkovChain(P4, names=NAMES), QueryLog(path=Path("/dev/full"))
        engine = Engine(
            server.url, chain, tmp_path / "journal", log=log, heartbeat=QUIET, refresh=None, scheme="single", tick=0.0
        )
        try:
            got = [engine.request(name).result(PATIENCE).payload for name in ("alpha", "beta")]
        finally:
            engine.close()
    assert got == [b"first of alpha", b"first of beta"]
    assert [record.message for record in caplog.records].count(
        "the log of what the server saw ends here: No space left on device"
    ) == 1
    assert snapshot(engine)["totals"]["requests"] == 2


def test_the_switch_at_the_time_of_asking_decides(engine, world, deliver):
    asked, release = held(deliver)
    first, second = engine.request("alpha"), engine.request("beta")
    assert asked.wait(PATIENCE)
    engine.turn(private=False)
    third = engine.request("beta")
    release.set()
    assert [message.result(PATIENCE).sent.private for message in (first, second, third)] == [True, True, False]


def test_a_fault_of_ours_is_an_error_and_the_next_request_goes_on(engine, monkeypatch):
    monkeypatch.setattr(engine.client, "get", lambda *a, **k: 1 / 0)
    with pytest.raises(OnOffError, match="ZeroDivisionError"):
        engine.request("alpha").result(PATIENCE)
    monkeypatch.undo()
    assert engine.request("alpha").result(PATIENCE).payload == b"first of alpha"


def test_a_message_is_handed_over_before_it_is_weighed(engine, monkeypatch):
    go_on, add = threading.Event(), engine.evidence.add

    def held(*arguments):
        assert go_on.wait(PATIENCE)
        return add(*arguments)

    monkeypatch.setattr(engine.evidence, "add", held)
    assert engine.request("beta").result(PATIENCE).payload == b"first of beta"
    (step,) = snapshot(engine)["steps"]
    assert (step["cost"], step["weighed"], step["bits"]) == (4, False, None)
    assert snapshot(engine)["totals"]["requests"] == 1
    go_on.set()
    until(lambda: snapshot(engine)["steps"][0]["weighed"])
    assert snapshot(engine)["steps"][0]["bits"] == 0.0


class Line:
    """A line to a world that can be cut: then nothing leaves."""

    def __init__(self, world):
        self.world, self.cut = Direct(world), False

    def exchange(self, request):
        return Failure("connection refused", left=False) if self.cut else self.world.exchange(request)


def test_what_never_left_is_shown_as_such_and_counted_nowhere_as_sent(tmp_path, world):
    line, file = Line(world), tmp_path / "seen.jsonl"
    chain, log = MarkovChain(P4, names=NAMES), QueryLog(path=file)
    with listening(world) as server:
        options = {
            "heartbeat": QUIET,
            "refresh": None,
            "scheme": "single",
            "tick": 0.0,
            "backoff": 0.0,
            "transport": line,
        }
        engine = Engine(server.url, chain, tmp_path / "journal", log=log, **options)
        try:
            engine.request("alpha").result(PATIENCE)
            line.cut = True
            with pytest.raises(ServerUnreachable):
                engine.request("beta", key="k").result(PATIENCE)
            until(lambda: snapshot(engine)["steps"][-1]["weighed"])
            state = snapshot(engine)
            assert [step["left"] for step in state["steps"]] == [True, False]
            assert (state["totals"]["requests"], state["totals"]["unsent"], len(world.queries)) == (1, 1, 1)
            assert [json.loads(text).get("sent", True) for text in log.lines()] == [True, False]
            assert len(file.read_text().splitlines()) == 1
            line.cut = False  # the same step leaves after all, and counts once
            assert engine.request("beta", key="k").result(PATIENCE).payload == b"first of beta"
            until(lambda: snapshot(engine)["steps"][-1]["weighed"])
            assert snapshot(engine)["totals"] | {"lower": 0, "naive": 0} == {
                "requests": 2,
                "private": 2,
                "messages": 8,
                "everything": 8,
                "bits": 0.0,
                "unweighed": 0,
                "unsent": 0,
                "lower": 0,
                "naive": 0,
            }
            line.cut = True
            with pytest.raises(ServerUnreachable):
                engine.request("gamma").result(PATIENCE)
            line.cut = False
            engine.request("delta").result(PATIENCE)
            assert snapshot(engine)["totals"]["unsent"] == 1
        finally:
            engine.close()
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    assert [(line["step"], line.get("sent", True)) for line in lines] == [(0, True), (1, True), (2, False), (3, True)]
    assert len(world.sets()) == 3
    world.check()


def test_a_step_that_cannot_be_weighed_is_answered_and_counted(engine, monkeypatch, caplog):
    monkeypatch.setattr(engine.evidence, "add", lambda *a: 1 / 0)
    assert engine.request("beta").result(PATIENCE).payload == b"first of beta"
    assert engine.request("gamma").result(PATIENCE).payload == b"first of gamma"
    until(lambda: snapshot(engine)["totals"]["unweighed"] == 2)
    assert "beta" not in caplog.text


@pytest.mark.parametrize("key", ["", "x" * 129, "é", "a\nb"])
def test_a_key_that_is_none_is_refused(engine, world, key):
    with pytest.raises(InvalidInput):
        engine.request("alpha", key=key)
    assert world.queries == []


def test_what_is_refused_sends_nothing(engine, world):
    with pytest.raises(UnknownSource):
        engine.request("nothing")
    with pytest.raises(Changed):
        engine.request("alpha", expected=False)
    assert world.queries == []


def test_every_change_has_a_new_revision(engine):
    revisions = [engine.board.revision]
    for private in (False, True, False):
        engine.turn(private=private)
        revisions.append(engine.board.revision)
    assert revisions == sorted(set(revisions))
    assert snapshot(engine)["privacy"]["private"] is False


def test_a_change_of_any_thread_wakes_the_streams_that_wait_for_it():
    board = Board()
    told: list[int] = []

    async def stream():
        with board.watched():
            while len(told) < 2:
                news = board.news
                threading.Thread(target=board.changed).start()
                async with asyncio.timeout(PATIENCE):
                    await news.wait()
                told.append(board.revision)
            assert board.watching == 1

    asyncio.run(stream())
    assert (told, board.watching) == ([1, 2], 0)
    board.changed()  # nobody listens any more
    assert board.revision == 3


def test_after_closing_nothing_is_accepted(engine, world):
    engine.close()
    with pytest.raises(Busy, match="stopping"):
        engine.request("alpha")
    assert world.queries == []


def test_a_change_while_the_state_is_put_together_is_told_again(engine, monkeypatch):
    """Whoever has seen this revision is told nothing more of it, so it must hold what came before it."""
    revision = engine.board.revision

    class Late(type(engine.board)):  # type: ignore[misc]
        @property
        def revision(self):
            engine.building = (4, 0.0)  # a table begins to be built just before the count is read
            return revision + 1

        @revision.setter
        def revision(self, value):
            """Other threads may count changes of their own."""

    monkeypatch.setattr(engine.board, "__class__", Late)
    shown = snapshot(engine)
    assert (shown["revision"], shown["building"]) == (revision + 1, {"sources": 4, "since": 0.0})


def test_a_step_that_is_weighed_while_it_is_shown_is_shown_whole(monkeypatch):
    """Weighing is another thread's: here it comes right in the middle."""
    step, line = LoggedQuery(0.0, ServerView("s", 0, (0,), 4, private=False), 0, left=True), LoggedQuery.line

    def weighed_meanwhile(self, level):
        self.assessment = Assessment(1.0, 1.0, 0.0, 0.5)
        return line(self, level)

    monkeypatch.setattr(LoggedQuery, "line", weighed_meanwhile)
    for weighed in (False, True):
        shown = step.shown("full")
        assert (shown["weighed"], shown["naive"] is not None) == (weighed, weighed)
