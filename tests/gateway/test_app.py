"""The gateway as an app sees it: ordinary downloads, one step each, and a switch."""

import gc
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import feedparser
import pytest
from tests.support.gateway import gateway
from tests.support.ports import reserved_port
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until
from tests.support.world import NAMES, P4, Failing, World

from onoff import wire
from onoff.cli import run
from onoff.model.chain import MarkovChain


@pytest.fixture(autouse=True)
def patient_end(monkeypatch):
    """On a busy machine event streams may take longer to end than users wait for a gateway to stop."""
    monkeypatch.setattr("onoff.gateway.run.STOP_GATEWAY_SECONDS", PATIENCE)


@pytest.fixture
def local(tmp_path):
    with gateway(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One gateway for tests that leave no trace in it."""
    with gateway(tmp_path_factory.mktemp("shared")) as running:
        yield running


def test_a_download_is_the_message_with_its_type_mode_cost_and_time(local):
    local.world.messages["beta"] = wire.WireMessage(7, 86_400_000, "text/plain; charset=utf-8", "grüße".encode())
    answer = local.get("/v1/sources/beta", local.app_token)
    assert (answer.status, answer.body.decode()) == (200, "grüße")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-privacy-mode"] == "on"
    assert answer.headers["x-cost-messages"] == "4"
    assert answer.headers["x-message-time"] == "1970-01-02T00:00:00.000+00:00"
    assert answer.headers["last-modified"] == "Fri, 02 Jan 1970 00:00:00 GMT"
    assert answer.headers["x-message-version"] == "7"
    assert answer.headers["x-step"] == "0"
    assert answer.headers["cache-control"] == "no-store"


def test_the_switch_decides_how_each_download_is_asked(local):
    modes = []
    for private in (True, False, False, True):
        assert local.turn(private=private).json["private"] is private
        answer = local.get("/v1/sources/gamma")
        assert answer.body == b"first of gamma"
        modes.append((answer.headers["x-privacy-mode"], "gamma" in local.world.sets()[-1]))
        assert int(answer.headers["x-cost-messages"]) == len(local.world.sets()[-1])
    assert modes == [("on", True), ("off", True), ("off", True), ("on", True)]
    assert len(local.world.sets()[0]) == len(local.world.sets()[3]) == 4
    local.world.check()


def test_the_sources_are_listed(local):
    assert local.get("/v1/sources", local.app_token).json == {"sources": list(NAMES)}


@pytest.mark.parametrize("name", ["nothing", "0", "ALPHA", "..", "%2e%2e%2f", "%00", "alpha/", "alpha/beta"])
def test_an_unknown_source_is_404_and_sends_nothing(shared, name):
    before = len(shared.world.queries)
    answer = shared.get(f"/v1/sources/{name}", shared.app_token)
    assert answer.status == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(shared.world.queries) == before


def test_a_source_without_a_message_is_204(local):
    local.world.messages["delta"] = wire.NOTHING
    answer = local.get("/v1/sources/delta")
    assert (answer.status, answer.body, answer.headers["x-cost-messages"]) == (204, b"", "4")


def test_a_repeated_key_gives_the_same_step_back(local):
    first = local.get("/v1/sources/alpha", Idempotency_Key="k1")
    local.world.publish("alpha", b"second of alpha")
    again = local.get("/v1/sources/alpha", Idempotency_Key="k1")
    assert (again.body, again.headers) == (first.body, first.headers)
    assert len(local.world.queries) == 1
    other = local.get("/v1/sources/alpha", Idempotency_Key="k2")
    assert (other.body, other.headers["x-step"]) == (b"second of alpha", "1")
    assert local.get("/v1/sources/beta", Idempotency_Key="k1").status == 422
    assert local.get("/v1/sources/beta", Idempotency_Key="x" * 129).status == 422
    assert len(local.world.queries) == 2


def test_many_at_once_are_one_step_after_the_other(local):
    with ThreadPoolExecutor(16) as pool:
        names = [NAMES[i % 4] for i in range(32)]
        answers = list(pool.map(lambda name: local.get(f"/v1/sources/{name}", local.app_token), names))
    assert [answer.body for answer in answers] == [f"first of {name}".encode() for name in names]
    assert sorted(int(answer.headers["x-step"]) for answer in answers) == list(range(32))
    local.world.check()


def test_the_same_key_at_once_is_one_step(local):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: local.get("/v1/sources/alpha", Idempotency_Key="same"), range(8)))
    assert {answer.headers["x-step"] for answer in answers} == {"0"}
    assert len(local.world.queries) == 1


def test_who_saw_the_switch_elsewhere_is_told_and_nothing_is_sent(local):
    refused = local.get("/v1/sources/alpha", X_Privacy_Expected="off")
    assert refused.status == 409
    assert "ON" in refused.json["title"]
    assert local.get("/v1/sources/alpha", X_Privacy_Expected="maybe").status == 422
    assert local.world.queries == []
    assert local.get("/v1/sources/alpha", X_Privacy_Expected="on").status == 200


def test_names_are_any_text(tmp_path):
    names = ("Süd & Nord?", "100 % #1", "日本", "a+b")
    with gateway(tmp_path, world=World(names), chain=MarkovChain(P4, names=names)) as local:
        for name in names:
            answer = local.send("GET", f"/t/{local.app_token}/v1/sources/{quote(name, safe='')}")
            assert (answer.status, answer.body.decode()) == (200, f"first of {name}")
            feed = subscribe(local, quote(name, safe=""))
            assert feed.feed.links[0].href == f"{local.address.apps}/feeds/{quote(name)}"


# -- the switch --------------------------------------------------------------------------------------------


def test_the_switch_turns_for_a_duration_or_until_a_time(local):
    assert local.get("/v1/privacy").json == {"private": True, "until": None, "remaining": None, "ran_out": False}
    timed = local.turn(private=False, seconds=600).json
    assert timed["private"] is False
    assert 590 < timed["remaining"] <= 600
    later = datetime.now(UTC) + timedelta(hours=2)
    until = local.turn(private=True, until=later.isoformat()).json
    assert datetime.fromisoformat(until["until"]) == later
    assert local.turn(private=True).json["until"] is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"{",
        b'{"private": 1}',
        b'{"private": "true"}',
        b'{"private": null}',
        b'{"private": true, "second": 5}',
        b'{"private": true, "seconds": "5"}',
        b'{"private": true, "seconds": -5}',
        b'{"private": true, "seconds": 1e999}',
        b'{"private": true, "seconds": NaN}',
        b'{"private": true, "until": "tomorrow"}',
        b'{"private": true, "until": "2100-01-01T00:00:00"}',
        b'{"private": true, "until": "2001-01-01T00:00:00Z"}',
        b'{"private": false, "x": "' + b"y" * 5000 + b'"}',
    ],
)
def test_a_turn_that_makes_no_sense_is_422_and_changes_nothing(shared, body):
    headers = {"Authorization": f"Bearer {shared.token}", "Content-Type": "application/json"}
    answer = shared.send("PUT", "/v1/privacy", headers, body)
    assert answer.status == 422
    assert answer.json["hint"]
    assert shared.get("/v1/privacy").json["private"] is True


def test_a_method_that_is_not_there(local):
    headers = {"Authorization": f"Bearer {local.token}", "Content-Type": "application/json"}
    assert local.send("PUT", "/v1/log", headers, b"{}").status == 405
    assert local.get("/v2").status == 404


# -- the log -----------------------------------------------------------------------------------------------


def ask(local, *requests):
    for name, private in requests:
        local.turn(private=private)
        assert local.get(f"/v1/sources/{name}").status == 200


def test_the_log_is_what_the_server_saw_and_no_more(local):
    ask(local, ("alpha", True), ("beta", False), ("gamma", False))
    answer = local.get("/v1/log")
    assert answer.headers["content-type"] == "application/jsonl"
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert [line["private"] for line in lines] == [True, False, False]
    assert [tuple(NAMES[s] for s in line["sources"]) for line in lines] == local.world.sets()
    assert all(line["cost"] == len(line["sources"]) for line in lines)
    assert all(set(line) == {"step", "private", "sources", "cost", "time", "session"} for line in lines)
    assert all(abs(datetime.fromisoformat(line["time"]).timestamp() - time.time()) < 600 for line in lines)


def test_the_level_costs_keeps_no_set_and_no_wish(tmp_path):
    with gateway(tmp_path, level="costs") as local:
        ask(local, ("alpha", True), ("beta", False))
        lines = [json.loads(line) for line in local.get("/v1/log").body.splitlines()]
        assert [set(line) for line in lines] == [{"step", "private", "cost", "time", "session"}] * 2
        state = local.get("/v1/state").json
        assert not any({"sources", "wanted"} & set(step) for step in state["steps"])
        assert state["posterior"] is None
        assert state["model"]["zero"].startswith("Not measured on real readers")
        assert state["model"]["advice"]["word"] == "warn"
        assert state["model"]["foreseen"] is None


def test_the_level_counters_keeps_totals_only(tmp_path):
    with gateway(tmp_path, level="counters") as local:
        ask(local, ("alpha", True), ("beta", False))
        (line,) = [json.loads(line) for line in local.get("/v1/log").body.splitlines()]
        assert (line["requests"], line["private"], line["everything"], line["bits"]) == (2, 1, 8, 0.0)
        assert line["messages"] == sum(len(asked) for asked in local.world.sets())
        assert local.get("/v1/state").json["steps"] == []


def test_a_log_file_gets_each_line_as_it_comes(tmp_path):
    path = tmp_path / "seen.jsonl"
    with gateway(tmp_path, log=path) as local:
        ask(local, ("alpha", True), ("beta", False))
        assert path.read_bytes() == local.get("/v1/log").body
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_auditor_reads_the_log_and_finds_it_honest(tmp_path, capsys):
    path, chain = tmp_path / "seen.jsonl", tmp_path / "chain.json"
    with gateway(tmp_path, log=path) as local:
        local.engine.model.save(chain)
        ask(local, *((NAMES[i % 4], i % 3 == 0) for i in range(12)))
    assert run(["audit", "log", str(path), "--chain", str(chain), "--scheme", "single"]) == 0
    assert "All 12 queries" in capsys.readouterr().out
    lines = path.read_text().splitlines(keepends=True)
    del lines[4]
    path.write_text("".join(lines))
    assert run(["audit", "log", str(path), "--chain", str(chain), "--scheme", "single"]) == 5


# -- events ------------------------------------------------------------------------------------------------


class Stream:
    """An open event stream, read in a thread."""

    def __init__(self, local):
        import http.client

        self.connection = http.client.HTTPConnection("127.0.0.1", local.port, timeout=PATIENCE)
        self.connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {local.token}"})
        self.answer = self.connection.getresponse()
        self.states = []
        self.news = threading.Condition()
        self.ended = False
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.answer:
            if line.startswith(b"data: "):
                with self.news:
                    self.states.append(json.loads(line[6:]))
                    self.news.notify_all()
        self.ended = True

    def wait_for(self, wanted):
        with self.news:
            assert self.news.wait_for(lambda: self.states and wanted(self.states[-1]), timeout=PATIENCE)

    def close(self):
        self.thread.join(PATIENCE)
        self.connection.close()


def test_events_tell_every_change_also_that_a_timer_ran_out(tmp_path):
    now = [time.time()]
    with gateway(tmp_path, clock=lambda: now[0]) as local:
        stream = Stream(local)
        assert present(stream.answer.getheader("content-type")).startswith("text/event-stream")
        stream.wait_for(lambda state: state["privacy"]["private"] and state["connected"])
        ask(local, ("beta", True))
        stream.wait_for(lambda state: len(state["steps"]) == 1 and state["waiting"] == 0)
        local.turn(private=False, seconds=0.3)
        stream.wait_for(lambda state: not state["privacy"]["private"])
        now[0] += 1.0  # only now, so that OFF is seen on a busy machine too
        stream.wait_for(lambda state: state["privacy"]["private"] and state["privacy"]["ran_out"])
        revisions = [state["revision"] for state in stream.states]
        assert revisions == sorted(set(revisions))
    stream.close()
    assert stream.ended  # by the gateway, as it stopped


def test_the_state_is_for_the_page_and_has_what_was_wanted(local):
    ask(local, ("beta", True), ("gamma", False))
    until(lambda: all(step["weighed"] for step in local.get("/v1/state").json["steps"]))
    steps = local.get("/v1/state").json["steps"]
    assert [NAMES[step["wanted"]] for step in steps] == ["beta", "gamma"]
    assert [step["bits"] for step in steps] == [0.0, 0.0]
    assert steps[1]["naive"] > 0


# -- when the server is not there --------------------------------------------------------------------------


def test_without_a_server_it_says_so_and_a_key_sends_the_same_bytes_again(tmp_path):
    world = Failing()
    with gateway(tmp_path, world=world) as local:
        ask(local, ("alpha", True))
        world.down = True
        lost = local.get("/v1/sources/beta", Idempotency_Key="k")
        assert lost.status == 504
        assert lost.json["hint"]
        until(lambda: local.get("/v1/state").json["connected"] is False)
        world.down = False
        found = local.get("/v1/sources/beta", Idempotency_Key="k")
        assert (found.status, found.body, found.headers["x-step"]) == (200, b"first of beta", "1")
        assert len(local.world.sets()) == 2
        world.down = True
        assert local.get("/v1/sources/beta", Idempotency_Key="l").status == 504
        world.down = False
        ask(local, ("gamma", True))
        late = local.get("/v1/sources/beta", Idempotency_Key="l")
        assert (late.status, "since" in late.json["title"]) == (409, True)
        assert [step["step"] for step in local.get("/v1/state").json["steps"]] == [0, 1, 2, 3]
        world.check()


def test_nobody_at_the_address(tmp_path):
    with reserved_port() as port, gateway(tmp_path, url=f"http://127.0.0.1:{port}") as local:
        answer = local.get("/v1/sources/alpha")
        assert answer.status == 504
        assert local.get("/v1/log").body == b""
        stream = Stream(local)
        stream.wait_for(lambda state: state["connected"] is False and "refused" in state["problem"])
    stream.close()


def test_a_server_with_other_sources_is_not_connected(tmp_path):
    with gateway(tmp_path, world=World(("alpha", "other"))) as local:
        stream = Stream(local)
        stream.wait_for(lambda state: state["connected"] is False and "3 of the chain's 4" in state["problem"])
        assert local.get("/v1/sources/alpha").status == 502
    stream.close()


# -- feeds -------------------------------------------------------------------------------------------------


def subscribe(local, name):
    answer = local.send("GET", f"/t/{local.app_token}/v1/feeds/{name}")
    assert answer.status == 200
    parsed = feedparser.parse(answer.body, response_headers=answer.headers)
    assert not parsed.bozo, parsed
    return parsed


def test_a_feed_reader_subscribes_to_a_source(local):
    entry = {
        "title": "A <b>title</b> & more",
        "link": "https://x.example/1",
        "time": 5000,
        "html": "<p>Hi &amp; <b>ho</b></p>",
    }
    local.world.messages["beta"] = wire.WireMessage(3, 5000, wire.ENTRY_TYPE, json.dumps(entry).encode())
    feed = subscribe(local, "beta")
    assert feed.version == "atom10"
    assert feed.feed.title == "beta"
    (item,) = feed.entries
    assert item.title == "A <b>title</b> & more"
    assert item.link == "https://x.example/1"
    assert item.content[0].value == "<p>Hi &amp; <b>ho</b></p>"
    assert item.updated == "1970-01-01T00:00:05.000Z"
    assert feed.feed.links[0].href == f"http://{local.host}/t/{local.app_token}/v1/feeds/beta"
    assert subscribe(local, "beta").entries[0].id == item.id
    local.world.messages["beta"] = wire.WireMessage(
        4, 6000, wire.ENTRY_TYPE, json.dumps({**entry, "html": "new"}).encode()
    )
    assert subscribe(local, "beta").entries[0].id != item.id
    assert len(local.world.queries) == 3  # every look is a step


@pytest.mark.parametrize(
    ("media_type", "body", "title", "text"),
    [
        ("text/plain", b"first line\nsecond", "first line", "first line\nsecond"),
        ("text/plain", b"a\x00b\x0bc\xff]]>", "abc\ufffd]]>", "abc\ufffd]]>"),
        ("text/html", b"<p>x</p>", "alpha", "<p>x</p>"),
        (wire.ENTRY_TYPE, b'{"title": "t", "text": "plain", "link": "javascript:alert(1)"}', "t", "plain"),
        (wire.ENTRY_TYPE, b"not json", "alpha", "not json"),
        (wire.ENTRY_TYPE, b"[1]", "alpha", "[1]"),
        ("image/png", b"\x89PNG", "alpha", "4 bytes of image/png"),
    ],
)
def test_a_message_of_any_kind_is_a_valid_feed(shared, media_type, body, title, text):
    shared.world.messages["alpha"] = wire.WireMessage(1, 1000, media_type, body)
    (item,) = subscribe(shared, "alpha").entries
    assert item.title.replace("&gt;", ">") == title
    assert item.content[0].value.replace("&gt;", ">") == text
    assert "link" not in item or "javascript" not in item.link


def test_a_feed_without_a_message_is_empty_and_valid(local):
    local.world.messages["alpha"] = wire.NOTHING
    assert subscribe(local, "alpha").entries == []


# -- closing tabs ------------------------------------------------------------------------------------------


def test_a_closed_page_leaves_no_task_behind(local, caplog):
    """asyncio complains when a task is dropped unfinished; with many streams cut at once it did."""
    gc.collect()  # what other tests left is not meant here
    caplog.clear()
    lines = [socket.create_connection(("127.0.0.1", local.port), timeout=PATIENCE) for _ in range(20)]
    for line in lines:
        line.sendall(
            f"GET /v1/events HTTP/1.1\r\nHost: {local.host}\r\nAuthorization: Bearer {local.token}\r\n\r\n".encode()
        )
        heard = b""
        while b"event: state" not in heard:
            heard += line.recv(1 << 16)
    for line in lines:
        line.close()
    for private in (False, True) * 5:  # news for readers that are gone
        assert local.turn(private=private).status == 200
    while local.engine.board.watching:  # until each stream has noticed
        local.turn(private=True)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_the_switch_stays_on_where_the_advice_says_so(tmp_path):
    model = MarkovChain(P4, names=NAMES, about={"guess": "sticky"})
    with gateway(tmp_path, chain=model) as local:
        assert local.get("/v1/state").json["model"]["advice"]["word"] == "stay-on"
        refused = local.turn(private=False)
        assert refused.status == 422
        assert "stay ON with this model" in str(refused.json)
        assert local.get("/v1/privacy").json["private"]
        assert local.turn(private=False, accept_leak=True).status == 200
        assert local.get("/v1/entries/alpha").status == 200
