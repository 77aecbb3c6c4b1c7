"""`onoff get`, `onoff doctor` and `onoff state` against a server on loopback: output, exit codes, nothing private."""

import io
import json
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from tests.support import others
from tests.support.world import NAMES, P4, World, listening

import onoff
from onoff import wire
from onoff.cli import run
from onoff.client.journal import JOURNAL_ID


@contextmanager
def setting(tmp_path, monkeypatch, world):
    with listening(world) as server:
        onoff.MarkovChain(P4, names=NAMES).save(tmp_path / "chain.json")
        monkeypatch.setenv("ONOFF_SERVER", server.url)
        monkeypatch.setenv("ONOFF_CHAIN", str(tmp_path / "chain.json"))
        monkeypatch.setenv("ONOFF_JOURNAL", str(tmp_path / "journal"))
        monkeypatch.setenv("ONOFF_SCHEME", "greedy")
        yield server


@pytest.fixture
def world():
    return World()


@pytest.fixture(autouse=True)
def connected(tmp_path, monkeypatch, world):
    with setting(tmp_path, monkeypatch, world) as server:
        yield server


def out_of(capfd, *arguments, code=0):
    assert run(list(arguments)) == code
    return capfd.readouterr()


def test_get_prints_the_message_as_it_is(capfd, world):
    world.publish("beta", b"\x00\xff raw \x1b[31m")
    captured = capfd
    assert run(["get", "beta"]) == 0
    assert "raw" in captured.readouterr().out
    assert run(["get", "beta", "--open"]) == 0
    assert "everything was asked" not in captured.readouterr().err
    assert world.sets()[0] == NAMES[:1]


@pytest.mark.parametrize("mode", ["--private", "--open"])
def test_entries_of_a_feed_are_printed_as_text_and_raw_if_asked(capfd, world, mode):
    entry = {"title": "New", "link": "https://a.example/", "time": 0, "html": "<p>One\x1b[2J <b>two</b></p>"}
    body = json.dumps({"entries": [entry]}).encode()
    world.publish("beta", b"")
    world.messages["beta"] = wire.WireMessage(3, 1000, wire.ENTRY_TYPE, body)
    text = "New\nhttps://a.example/\n1970-01-01 00:00 UTC\n\nOne[2J two\n"
    assert out_of(capfd, "get", "beta", mode).out == text
    assert out_of(capfd, "get", "beta", mode, "--raw").out == body.decode()
    assert json.loads(out_of(capfd, "get", "beta", mode, "--json").out)["body"] == body.decode()


def test_get_as_json_tells_the_message_and_what_was_seen(capfd):
    out_of(capfd, "get", "alpha", "--open")
    told = json.loads(out_of(capfd, "get", "beta", "--open", "--json").out)
    assert (told["source"], told["text"], told["version"]) == ("beta", "first of beta", 1)
    assert told["sent"]["step"] == 1
    assert told["sent"]["private"] is False
    assert 1 in told["sent"]["sources"]
    assert told["sent"]["names"] == [NAMES[x] for x in told["sent"]["sources"]]
    assert (told["body"], told["messages"], told["edition"]) == ("first of beta", len(told["sent"]["sources"]), None)
    assert told["bytes_received"] == told["messages"] * 256


def test_get_in_private_as_json_tells_the_edition(capfd, world):
    told = json.loads(out_of(capfd, "get", "beta", "--json").out)
    assert (told["source"], told["body"], told["edition"], told["messages"]) == ("beta", "first of beta", 4, 5)
    assert told["bytes_received"] > 0
    assert told["sent"]["mirror"] is True
    world.publish("alpha", b"second of alpha")
    again = json.loads(out_of(capfd, "get", "beta", "--json").out)
    assert (again["edition"], again["messages"]) == (5, 1)
    fresh = json.loads(out_of(capfd, "get", "beta", "--json", "--max-age", "3600").out)
    assert (fresh["messages"], fresh["bytes_received"]) == (0, 0)


def test_a_dry_run_says_what_it_would_cost_and_asks_for_no_message(capfd, world):
    out_of(capfd, "get", "beta")
    world.requests.clear()
    told = json.loads(out_of(capfd, "get", "beta", "--dry-run", "--json").out)
    assert told.keys() == {"hour_on", "refresh_now", "private_now", "open_now", "everything", "used_today"}
    assert told["hour_on"] == 3600
    assert told["everything"] == 4 * 256
    assert [path for _, path, _, _ in world.requests] == ["/v1/edition"]
    assert "an hour of ON: 3.5 KiB" in out_of(capfd, "get", "beta", "--dry-run").out


def test_a_source_without_a_message_is_said_to_be_empty(capfd, world):
    world.forget("beta")
    written = out_of(capfd, "get", "beta")
    assert written.out == ""
    assert "nothing was published there yet" in written.err


def test_get_is_private_unless_told_otherwise(capfd, world):
    for _ in range(3):
        assert json.loads(out_of(capfd, "get", "beta", "--json").out)["sent"]["private"] is True
    assert world.sets() == [NAMES[:1]]  # which opens the session, whatever is wanted
    assert [path.partition("?")[0] for _, path, _, _ in world.requests].count("/v1/changes") == 3


def test_a_name_can_come_from_standard_input(capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("gamma\n"))
    assert json.loads(out_of(capfd, "get", "--json", "--open", "-").out)["text"] == "first of gamma"


def test_a_chain_without_names_is_told_so_and_one_with_names_which(capfd, world, tmp_path):
    unnamed, named = tmp_path / "chain.csv", tmp_path / "chain.json"
    unnamed.write_text("0.5,0.5\n0.5,0.5\n")
    named.write_text(json.dumps({"transition": [[0.5, 0.5], [0.5, 0.5]], "names": ["one", "two"]}))
    told = out_of(capfd, "get", "beta", "--private", "--chain", str(unnamed), code=3)
    assert "the chain does not name its 2 sources" in told.err
    told = out_of(capfd, "get", "beta", "--private", "--chain", str(named), code=3)
    assert "there are 'one', 'two'" in told.err
    assert not world.requests


def test_binary_messages_are_base64_in_json(capfd, world):
    world.publish("beta", b"\xff\x00")
    assert json.loads(out_of(capfd, "get", "beta", "--json").out)["base64"] == "/wA="


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["get", "betta"], 3, "no such source"),
        (["get", "beta", "--server", "nowhere"], 3, "not the address"),
        (["get", "beta", "--chain", "/no/chain"], 3, "No such file"),
        (["get", "beta", "--scheme", "best"], 3, "no scheme"),
        (["get", "beta", "--journal", "/proc/journal"], 1, "/proc/journal"),
        (["get"], 2, ""),
    ],
)
def test_faults_are_named_and_nothing_is_sent(capfd, world, arguments, code, says):
    told = out_of(capfd, *arguments, code=code)
    assert says in told.err
    assert "Traceback" not in told.err
    assert world.queries == []


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_server_that_is_not_there_is_exit_4(capfd, connected):
    connected.close()
    connected.close = lambda: None
    assert "connection refused" in out_of(capfd, "get", "beta", code=4).err


def test_doctor_finds_everything_in_place(capfd, world):
    told = json.loads(out_of(capfd, "doctor", "--json").out)
    assert told["ok"]
    assert [check["check"] for check in told["checks"]] == [
        "chain",
        "smallest probability",
        "advice",
        "server",
        "catalogue",
        "journal",
        "mirror",
        "expected cost",
        "expected bytes",
    ]
    assert "an hour of ON: 3.5 KiB; an open request: not known" in told["checks"][-1]["detail"]
    run(["get", "beta"])
    capfd.readouterr()
    found = {check["check"]: check["detail"] for check in json.loads(out_of(capfd, "doctor", "--json").out)["checks"]}
    assert found["mirror"].endswith("sound, 55 bytes")
    assert "bytes; received today: " in found["expected bytes"]
    cost = onoff.design(P4, "greedy").cost
    assert told["checks"][-2]["detail"].startswith(f"{cost:.4g} messages for an open request")
    assert world.sets() == [NAMES[:1]]  # by `get`; the doctor asks for nothing
    assert "ok  server" in out_of(capfd, "doctor").out


def test_doctor_names_each_fault(capfd, tmp_path, monkeypatch, world):
    world.rename(("other", *NAMES[1:]))
    told = json.loads(out_of(capfd, "doctor", "--json", code=3).out)
    assert [check["check"] for check in told["checks"] if not check["ok"]] == ["catalogue"]
    (tmp_path / "journal").write_bytes(b"damaged")
    told = json.loads(out_of(capfd, "doctor", "--json", "--server", "http://127.0.0.1:9", code=4).out)
    assert [check["check"] for check in told["checks"] if not check["ok"]] == ["server", "journal"]
    assert (tmp_path / "journal").read_bytes() == b"damaged"
    (tmp_path / "bad.json").write_text("[[1, 1]]")
    told = json.loads(out_of(capfd, "doctor", "--json", "--chain", str(tmp_path / "bad.json"), code=3).out)
    assert [check["check"] for check in told["checks"] if not check["ok"]] == ["chain", "journal"]


def test_doctor_warns_of_tiny_probabilities(capfd, tmp_path):
    onoff.MarkovChain([[1 - 1e-6, 1e-6], [0.5, 0.5]], names=NAMES[:2]).save(tmp_path / "tiny.json")
    told = out_of(capfd, "doctor", "--chain", str(tmp_path / "tiny.json"), code=3)
    assert "no  smallest probability: the smallest transition probability is 1e-06" in told.out


def test_state_shows_verifies_and_resets(capfd, tmp_path):
    assert "there is no journal" in out_of(capfd, "state", "show", "--json").out
    out_of(capfd, "state", "verify", code=1)
    assert not (tmp_path / "journal").exists()
    out_of(capfd, "get", "gamma", "--open")
    shown = json.loads(out_of(capfd, "state", "show", "--json").out)
    assert shown["doubt"] is None
    assert shown["last"]["step"] == 0
    assert shown["last"]["asked"] == 4
    assert shown["last"]["pending"] is False
    assert shown["last"]["origin"] == str(tmp_path / "chain.json")
    text = out_of(capfd, "state", "show").out
    assert "gamma" not in text + str(shown)
    assert "wanted" not in text + str(shown)
    assert json.loads(out_of(capfd, "state", "verify", "--json").out)["sound"]
    removed = json.loads(out_of(capfd, "state", "reset", "--yes", "--json").out)["removed"]
    assert removed == [str(tmp_path / "journal"), str(tmp_path / "journal.session")]
    assert not (tmp_path / "journal").exists()
    assert "There was no journal" in out_of(capfd, "state", "reset", "--yes").out


def test_state_verify_refuses_damage_and_leaves_it_alone(capfd, tmp_path):
    (tmp_path / "journal").write_bytes(b"damaged")
    assert "damaged" in out_of(capfd, "state", "verify", code=1).err
    assert (tmp_path / "journal").read_bytes() == b"damaged"


def test_reset_removes_a_journal_that_damage_makes_look_unwritable(capfd, tmp_path):
    out_of(capfd, "get", "gamma")
    with (tmp_path / "journal").open("r+b") as file:
        file.seek(18)  # the version that is needed to write this file
        file.write(b"\x09")
    out_of(capfd, "get", "gamma", code=1)
    out_of(capfd, "state", "reset", "--yes")
    assert not (tmp_path / "journal").exists()
    out_of(capfd, "get", "gamma")


@pytest.mark.parametrize("made", [others.document, others.database])
def test_reset_refuses_what_may_be_no_journal(capfd, tmp_path, made):
    path = made(tmp_path / "others" / "file")
    before = others.all_of(path.parent)
    assert str(path) in out_of(capfd, "state", "reset", "--yes", "--journal", str(path), code=1).err
    assert others.all_of(path.parent) == before


def test_reset_asks_first(capfd, tmp_path, monkeypatch):
    out_of(capfd, "get", "gamma")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    out_of(capfd, "state", "reset", code=3)
    assert (tmp_path / "journal").exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    out_of(capfd, "state", "reset")
    assert not (tmp_path / "journal").exists()


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_timeout_that_is_none_is_refused_before_anything_is_sent(capfd, tmp_path, seconds):
    assert "--timeout" in out_of(capfd, "get", "gamma", "--timeout", seconds, code=2).err
    assert not (tmp_path / "journal").exists()


@pytest.mark.parametrize("option", ["--journal", "--mirror"])
def test_a_document_in_place_of_a_file_is_refused_in_one_line_before_anything_is_sent(
    capfd, tmp_path, world, option, monkeypatch
):
    monkeypatch.delenv("ONOFF_JOURNAL")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    thesis = others.document(tmp_path / "mine" / "thesis.docx")
    before = others.all_of(thesis.parent)
    said = out_of(capfd, "get", "beta", option, str(thesis), code=1)
    assert said.out == ""
    assert said.err.startswith(f"onoff: {thesis}: not a {option[2:]}")
    assert others.all_of(thesis.parent) == before
    assert world.requests == []


def test_a_journal_that_was_put_aside_is_said_to_be(tmp_path):
    """In a process of its own, where nobody has set up logging."""
    path = tmp_path / "journal"
    path.write_bytes(bytes(68) + JOURNAL_ID.to_bytes(4) + bytes(4000))
    command = [sys.executable, "-c", "from onoff.cli import main; main()", "get", "beta"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert f"it is now {path}.damaged" in done.stderr


def test_private_and_open_together_are_refused(capfd, world):
    said = out_of(capfd, "get", "beta", "--private", "--open", code=2).err
    assert "Mutually exclusive" in said
    assert "multiple times" not in said
    assert world.requests == []


def test_when_it_was_published_and_how_old_it_is_are_both_in_seconds(capfd, world):
    world.publish("beta", b"new")
    world.messages["beta"] = wire.WireMessage(7, 1_700_000_000_250, "text/plain", b"new")
    world.note_change("beta")
    assert json.loads(out_of(capfd, "get", "beta", "--json").out)["published"] == 1_700_000_000.25
    (state,) = [s for s in json.loads(out_of(capfd, "mirror", "show", "--json").out)["sources"] if s["name"] == "beta"]
    assert state["published"] == 1_700_000_000.25
    assert state["published"] + state["age"] == pytest.approx(time.time(), abs=600)


# -- what to hide, and how much ----------------------------------------------------------------------------


def topics_file(tmp_path, text='health = ["beta"]\n'):
    (tmp_path / "topics.toml").write_text(text)
    return str(tmp_path / "topics.toml")


def test_a_private_request_among_topics_asks_for_one_source_of_each(capfd, world, tmp_path):
    topics = topics_file(tmp_path)
    out_of(capfd, "get", "alpha", "--topics", topics)
    before = len(world.sets())
    assert json.loads(out_of(capfd, "get", "beta", "--topics", topics, "--json").out)["body"] == "first of beta"
    (asked,) = world.sets()[before:]
    assert len(asked) < len(NAMES)
    assert "beta" in asked


def test_what_is_spent_is_said(capfd, tmp_path):
    for mode, spent in (("--private", False), ("--open", True), ("--open", True)):
        captured = out_of(capfd, "get", "beta", mode, "--leak", "0.5", "--json")
        told = json.loads(captured.out)["spent"]
        assert told["budget"] == 0.5
        assert 0 <= told["bits"] <= 0.5
        assert (told["bits"] > 0) is spent
        assert ("best guess may become" in captured.err) is spent
    assert json.loads(out_of(capfd, "get", "beta", "--open", "--json").out)["spent"] is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('a = ["alpha"]\nb = ["alpha"]\n', "is in the topics"),
        ('a = ["nowhere"]\n', "no source"),
        ("a = []\n", "has no source"),
        ('a = "alpha"\n', "topic 'a'"),
        ("a = [", "topics.toml"),
        ('a = ["alpha", "beta", "gamma", "delta", "zeta"]\n', "no source"),
    ],
)
def test_what_are_no_topics_is_named_and_nothing_is_sent(capfd, world, tmp_path, text, complaint):
    captured = out_of(capfd, "get", "alpha", "--topics", topics_file(tmp_path, text), code=3)
    assert complaint in captured.err
    assert len(captured.err.strip().splitlines()) <= 2
    assert not world.queries


@pytest.mark.parametrize("leak", ["-1", "inf", "nan", "1e-30"])
def test_a_budget_that_is_none_is_named_and_nothing_is_sent(capfd, world, leak):
    assert "leak" in out_of(capfd, "get", "alpha", f"--leak={leak}", code=3).err
    assert not world.queries


def test_doctor_says_what_the_last_query_foretells(capfd):
    def said():
        checks = json.loads(out_of(capfd, "doctor", "--json").out)["checks"]
        return [check["detail"] for check in checks if check["check"] == "next private request"]

    assert said() == []
    out_of(capfd, "get", "beta", "--private")
    (told,) = said()
    assert "bits of it: a guess is right" in told
    assert "beta" not in told
