"""What commands need to know of a server: each thing that is missing is named, with how to give it."""

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from tests.support.chains import request_model
from tests.support.typed import present
from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, P4, World, listening

import onoff
from onoff import wire
from onoff.cli import run
from onoff.cli.output import Work

pytestmark = pytest.mark.slow(reason="commands are started and waited for")


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
        (["get", "beta", "--open", "--server", "http://127.0.0.1:9"], "no chain was given", "ONOFF_CHAIN"),
        (["state", "show"], "no journal was given", "--journal PATH or --server URL"),
    ],
)
def test_what_is_missing_is_named(capsys, arguments, says, how):
    assert run(arguments) == 3
    told = capsys.readouterr().err
    assert says in told
    assert how in told


@pytest.mark.parametrize("command", [["get", "beta"], ["doctor"], ["catalogue"], ["mirror", "refresh"]])
def test_all_find_the_server_by_the_same_rules(capsys, monkeypatch, tmp_path, command):
    """Options, else the variable, else a server on this machine; several of them in each way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # Nothing listens at port 1 and 9; a server may run at the default port of whoever runs the tests.
    monkeypatch.setattr("onoff.cli.options.DEFAULT_SERVER", "http://127.0.0.1:1")
    assert run(command) == 4
    assert "http://127.0.0.1:1: " in "".join(capsys.readouterr())
    monkeypatch.setenv("ONOFF_SERVER", "http://127.0.0.1:9/ http://127.0.0.2:9")
    assert run(command) == 4
    assert "http://127.0.0.1:9: " in "".join(capsys.readouterr())
    assert run([*command, "--server", "ftp://127.0.0.1:21"]) == 3
    assert "begins with ftp:" in capsys.readouterr().err


def test_catalogues_of_several_servers_are_compared(capsys):
    with listening(World()) as one, listening(World()) as same, listening(World(NAMES[:2])) as other:
        assert run(["catalogue", "--server", one.url, "--server", same.url]) == 0
        assert capsys.readouterr().out.split() == list(NAMES)
        assert run(["catalogue", "--server", one.url, "--server", other.url]) == 3
    assert "different catalogues" in capsys.readouterr().err


def test_doctor_beside_a_running_gateway_finds_everything_in_order(capsys, chain, tmp_path):
    journal = tmp_path / "journal"
    with listening(World()) as server:
        there = ["--server", server.url, "--chain", chain, "--journal", str(journal), "--scheme", "greedy"]
        with onoff.Client(server.url, chain, journal, "greedy") as client:  # as a gateway holds one
            client.get("beta", private=True)
            told = checks(capsys, 0, *there)
    assert [told[file]["detail"].partition(":")[0] for file in ("journal", "mirror")] == [
        str(journal),
        f"{journal}.mirror",
    ]
    assert "in use" in told["journal"]["detail"]
    assert "in use" in told["mirror"]["detail"]
    assert told["expected bytes"]["detail"].startswith("an hour of ON: ")


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


def test_doctor_takes_a_model(capsys, tmp_path):
    request_model(P4, NAMES).save(tmp_path / "model.npz")
    more = ("--chain", str(tmp_path / "model.npz"), "--journal", str(tmp_path / "journal"), "--scheme", "greedy")
    with listening(World()) as server:
        found = checks(capsys, 0, "--server", server.url, *more)
    assert found["chain"]["detail"] == "4 sources, 2 types, 21 contexts of order 2"
    assert "messages for an open request after a private one" in found["expected cost"]["detail"]
    assert found["smallest probability"]["ok"]


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


# -- nothing silent ----------------------------------------------------------------------------------------


@contextmanager
def hung_server():
    """Accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


ONOFF = str(Path(sys.executable).parent / "onoff")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["get", "beta"], "attempt 1 of 4"),
        (["doctor"], "waiting for http"),
        (["catalogue"], "waiting for http"),
        (["publish", "beta", "-", "--token", "x"], "publishing to http"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_server_that_hangs_is_named_and_waiting_for_it_can_be_ended(command, says, chain, tmp_path):
    with hung_server() as url:
        arguments = [*command, "--server", url]
        if command[0] in {"get", "doctor"}:
            arguments += ["--chain", chain, "--journal", str(tmp_path / "journal")]
        with subprocess.Popen(
            [ONOFF, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            said = next(
                line for line in present(process.stderr) if says in line
            )  # opening its files may be said before
            process.send_signal(signal.SIGINT)
            out, rest = process.communicate(timeout=PATIENCE)
    assert url in said
    assert (out, rest.splitlines()[-1], process.returncode) == ("", "onoff: interrupted", 130)
    assert "Traceback" not in rest


def test_a_later_attempt_is_said_as_well(chain, tmp_path, capsys, monkeypatch):
    """Every attempt ends with a refusal to wait longer; the last line is the error."""
    phases = []

    class Heard(Work):
        def now(self, label, total=None):
            super().now(label, total)
            phases.append(label)

    monkeypatch.setattr("onoff.cli.get.progress", lambda label: nullcontext(Heard(label, None)))
    with hung_server() as url:
        arguments = ["get", "beta", "--server", url, "--chain", chain, "--journal", str(tmp_path / "journal")]
        assert run([*arguments, "--timeout", "0.2"]) == 4
    assert phases[-4:] == [f"waiting for {url}, attempt {number} of 4" for number in (1, 2, 3, 4)]
    assert "no whole answer within 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["get", "beta"], ["doctor"], ["catalogue"], ["publish", "beta", "-", "--token", "x"]]
)
@pytest.mark.parametrize("address", ["http://[", "http://[::1", "http://host:port", "//host"])
def test_an_address_that_is_none_is_said_in_one_line(capsys, monkeypatch, command, address, chain):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x")))
    more = ["--chain", chain] if command[0] in {"get", "doctor"} else []
    assert run([*command, "--server", address, *more]) == 3
    said = capsys.readouterr()
    assert "not the address of a server" in said.out + said.err
    assert "Traceback" not in said.err


def test_a_journal_is_kept_where_nobody_can_be_asked(tmp_path):
    journal = tmp_path / "journal"
    journal.write_bytes(b"")
    done = subprocess.run(
        [ONOFF, "state", "reset", "--journal", str(journal)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "nothing was deleted" in done.stderr
    assert "Traceback" not in done.stderr
    assert journal.exists()


# -- several servers ---------------------------------------------------------------------------------------


@contextmanager
def two_servers():
    worlds = World(frame_size=None), World(frame_size=None)
    with listening(worlds[0]) as first, listening(worlds[1]) as second:
        yield worlds, ["--server", first.url, "--server", second.url]


def test_get_asks_several_servers(capfd, chain, tmp_path):
    with two_servers() as (worlds, servers):
        arguments = ["get", "gamma", *servers, "--journal", str(tmp_path / "journal"), "--json"]
        told = json.loads(said_by(capfd, *arguments, "--chain", chain, "--scheme", "greedy"))
        assert (told["body"], told["edition"]) == ("first of gamma", 4)
        assert told["messages"] <= 2
        assert len(told["sent"]["vectors"]) == 2
        assert [len(world.queries) for world in worlds] == [1, 1]
        again = json.loads(said_by(capfd, *arguments, "--chain", chain, "--scheme", "greedy", "--open"))
        assert (again["body"], again["sent"]["step"]) == ("first of gamma", 1)


def said_by(capfd, *arguments, code=0):
    assert run(list(arguments)) == code
    return capfd.readouterr().out


def test_get_without_a_chain_is_private(capfd, tmp_path):
    with two_servers() as (worlds, servers):
        journal = ["--journal", str(tmp_path / "journal")]
        assert said_by(capfd, "get", "delta", *servers, *journal) == "first of delta"
        assert said_by(capfd, "get", "delta", *servers[:2], "--journal", str(tmp_path / "one")) == "first of delta"
        assert run(["get", "delta", "--open", *servers, *journal]) == 3
        worlds[0].tells_changes = worlds[1].tells_changes = None


def test_a_dry_run_says_what_several_servers_would_send(capfd, tmp_path):
    with two_servers() as (worlds, servers):
        arguments = ["get", "delta", *servers, "--journal", str(tmp_path / "journal"), "--dry-run"]
        told = json.loads(said_by(capfd, *arguments, "--json"))
        longest = len(b"first of alpha") + wire.FRAME_OVERHEAD
        assert told["private_now"] == told["open_now"] == 1.875 * longest
        assert f"a private request now: {1.875 * longest:.0f} bytes" in said_by(capfd, *arguments)
        assert [world.queries for world in worlds] == [[], []]


def test_everything_from_one_server_where_that_is_allowed(capfd, tmp_path):
    with two_servers() as (_, servers):
        gone = [*servers[:2], "--server", "http://127.0.0.1:9", "--journal", str(tmp_path / "journal")]
        assert run(["get", "delta", *gone]) == 4
        assert "all servers are needed" in capfd.readouterr().err
        assert said_by(capfd, "get", "delta", *gone, "--on-missing", "everything") == "first of delta"


def test_doctor_says_whether_servers_look_like_one_operator(capsys, chain, tmp_path):
    with two_servers() as (worlds, servers):
        arguments = [*servers, "--chain", chain, "--journal", str(tmp_path / "journal"), "--scheme", "greedy"]
        found = checks(capsys, 5, *arguments)
        assert "look like one operator" in found["operators"]["detail"]
        assert "same address 127.0.0.1" in found["operators"]["detail"]
        assert found["editions"]["detail"] == "edition 4"
        assert "1.875 for a private one" in found["expected cost"]["detail"]
        longest = len(b"first of alpha") + wire.FRAME_OVERHEAD
        assert f"a private request: {1.875 * longest:.0f} bytes; an open" in found["expected bytes"]["detail"]
        worlds[0].publish("beta", b"more")
        assert checks(capsys, 5, *arguments)["editions"]["detail"] == "edition 4, and up to 5 at others"
        worlds[1].begin_life()
        assert not checks(capsys, 3, *arguments)["editions"]["ok"]
