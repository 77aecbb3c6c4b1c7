"""What commands need to know of a server: each thing that is missing is named, with how to give it."""

import json
import socket
import threading
from contextlib import contextmanager

import pytest
from tests.client.world import NAMES, P4, World, listening

import onoff
from onoff.cli import run


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    for name in ("SERVER", "CHAIN", "JOURNAL", "SCHEME"):
        monkeypatch.delenv(f"ONOFF_{name}", raising=False)


@pytest.fixture
def chain(tmp_path):
    onoff.MarkovChain(P4, names=NAMES).save(tmp_path / "chain.json")
    return str(tmp_path / "chain.json")


@pytest.mark.parametrize(
    ("arguments", "says", "how"),
    [
        (["get", "beta"], "no server was given", "ONOFF_SERVER"),
        (["get", "beta", "--server", "http://127.0.0.1:9"], "no chain was given", "ONOFF_CHAIN"),
        (["state", "show"], "no journal was given", "--journal PATH or --server URL"),
    ],
)
def test_what_is_missing_is_named(capsys, arguments, says, how):
    assert run(arguments) == 3
    told = capsys.readouterr().err
    assert says in told
    assert how in told


def test_the_journal_is_that_of_the_server(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run(["state", "show", "--server", "http://127.0.0.1:9", "--json"]) == 0
    assert "there is no journal" in capsys.readouterr().out


def checks(capsys, code, *arguments):
    assert run(["doctor", "--json", *arguments]) == code
    return {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_doctor_looks_into_the_journal_and_leaves_it_as_it_is(capsys, chain, tmp_path):
    journal = tmp_path / "journal"
    with listening(World()) as server:
        there = ["--server", server.url, "--chain", chain, "--journal", str(journal)]
        assert "none yet" in checks(capsys, 0, *there)["journal"]["detail"]
        assert run(["get", "beta", "--scheme", "greedy", *there]) == 0
        capsys.readouterr()
        before = journal.read_bytes()
        assert checks(capsys, 0, *there)["journal"]["detail"].endswith("sound")
        assert journal.read_bytes() == before


def test_doctor_says_that_zeros_cost_everything(capsys, tmp_path):
    onoff.MarkovChain([[0.5, 0.5], [1, 0]], names=NAMES[:2]).save(tmp_path / "zeros.json")
    with listening(World()) as server:
        there = ["--server", server.url, "--chain", str(tmp_path / "zeros.json"), "--journal", str(tmp_path / "j")]
        told = checks(capsys, 0, *there)
    assert "everything is asked" in told["smallest probability"]["detail"]
    assert "2 more, which cannot be asked for" in told["catalogue"]["detail"]


@contextmanager
def answering(answer):
    """Something that speaks HTTP but is no message server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", "catalogue"),
    ],
    ids=["not found", "no catalogue"],
)
def test_doctor_recognises_what_is_no_message_server(capsys, chain, tmp_path, answer, says):
    with answering(answer) as url:
        told = checks(capsys, 4, "--server", url, "--chain", chain, "--journal", str(tmp_path / "j"))
    assert not told["server"]["ok"]
    assert says in told["server"]["detail"]
