"""What was wanted is in no log, exception, repr, URL, output, temporary file or core dump."""

import io
import logging
import os
import resource
import subprocess
import sys
import traceback

import pytest
from tests.support.clients import Client
from tests.support.ports import reserved_port
from tests.support.world import P4, Direct, World, listening

import onoff
from onoff import wire
from onoff.cli import run
from onoff.client import MemoryJournal
from onoff.errors import JournalBusy, JournalError, OnOffError
from onoff.names import some_of
from onoff.upstream.transport import Reply

MARKER = "xyzzy-plugh-7731"
NAMES = ("alpha", "beta", MARKER, "delta")
CHAIN = onoff.MarkovChain(P4, names=NAMES)


@pytest.fixture
def everything_logged(caplog):
    caplog.set_level(logging.DEBUG)
    return caplog


def test_the_name_of_the_wanted_source_stays_inside(tmp_path, monkeypatch, everything_logged, capfd):
    """Good and bad days of one client, and then a search for the name in everything it left behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    world = World(NAMES)
    fault = None
    said = io.StringIO()

    def attempt(act):
        try:
            message = act()
            print(repr(message), str(message), repr(message.sent), message.sent.as_dict(), file=said)
        except OnOffError as error:
            print(repr(error), str(error), error.hint, traceback.format_exc(), file=said)

    journal = tmp_path / "user" / "journal"
    transport = Direct(world, lambda request: fault if request.path == wire.QUERY_PATH else None)
    settings = {"mirror": False, "tick": 0, "sleep": lambda seconds: None, "transport": transport, "background": False}
    client = Client("http://server.test", CHAIN, journal, "greedy", **settings)
    faults = (None, "before", "after", Reply(503, (), b""), Reply(400, (), b""), Reply(200, (), b""), None)
    for fault in faults:  # noqa: B007  read by the transport
        for private in (True, False):
            attempt(lambda private=private: client.get(MARKER, private=private))
            attempt(client.retry)
            core = client.core
            for thing in (client, core, core.record, core.session, core.session.memory, core.session.tables):
                print(repr(thing), file=said)
            print(client.status(), client.pending, file=said)
    attempt(lambda: client.get(MARKER + "x", private=True))
    monkeypatch.setattr(client._runner.open()[1], "store", _full)
    attempt(lambda: client.get(MARKER, private=False))
    client.close()

    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    heads = repr([(method, path, headers, body) for method, path, headers, body in world.requests])
    captured = capfd.readouterr()
    everywhere = said.getvalue() + everything_logged.text + heads + captured.out + captured.err
    everywhere = everywhere.replace(some_of(NAMES), "")  # all of them, whatever was wanted
    assert "step 0" in everywhere
    assert MARKER not in everywhere
    assert MARKER.encode() not in files
    assert list((tmp_path / "tmp").iterdir()) == []


def _full(record):
    raise JournalError("no room")


@pytest.mark.slow(reason="programs are started and waited for")
def test_commands_say_the_name_only_where_it_was_asked_for(tmp_path, monkeypatch, capfd):
    world = World(NAMES)
    CHAIN.save(tmp_path / "chain.json")
    with listening(world) as server:
        files = ["--chain", str(tmp_path / "chain.json"), "--journal", str(tmp_path / "j")]
        shared = ["--server", server.url, *files]
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{MARKER}\n{MARKER}x\n"))
        assert run(["get", "-", *shared, "--scheme", "greedy"]) == 0
        assert run(["get", "-", *shared]) == 3
        with reserved_port() as port:
            assert run(["get", MARKER, *files, "--server", f"http://127.0.0.1:{port}"]) == 4
        assert run(["doctor", *shared, "--scheme", "greedy"]) == 0
        assert run(["state", "show", "--journal", str(tmp_path / "j")]) == 0
        assert run(["state", "verify", "--journal", str(tmp_path / "j"), "--json"]) == 0
    out, err = capfd.readouterr()
    assert out.count(MARKER) == 1  # "first of ..." is the message itself
    assert MARKER not in err.replace(some_of(NAMES), "")


def test_a_process_with_a_client_leaves_no_core_dump():
    code = (
        "import resource, onoff\n"
        "hard = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))\n"
        "from onoff.client import Client, MemoryJournal\n"
        "Client('http://x.test', onoff.MarkovChain([[1.0]]), MemoryJournal())\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert resource.getrlimit(resource.RLIMIT_CORE)[1] != 0 or done.stdout == "0\n"


def test_a_forked_child_cannot_use_its_parents_client(tmp_path):
    code = (
        "import os, sys, onoff\n"
        "from onoff.client import Client\n"
        "from onoff.errors import JournalBusy\n"
        f"client = Client('http://127.0.0.1:9', onoff.MarkovChain([[1.0]]), {str(tmp_path / 'j')!r})\n"
        "client.status()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        client.get(0, private=True)\n"
        "    except JournalBusy:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7


@pytest.mark.slow(reason="programs are started and waited for")
def test_other_processes_on_one_journal_are_turned_away(tmp_path):
    """While one holds it all others are turned away; afterwards it is free."""
    world = World(NAMES)
    with listening(world) as server:
        CHAIN.save(tmp_path / "chain.json")
        with Client(server.url, CHAIN, tmp_path / "j", "single", tick=0, mirror=False) as client:
            client.get("alpha", private=True)
            command = [f"{sys.prefix}/bin/onoff", "get", "beta", "--scheme", "single", "--server", server.url]
            command += ["--chain", str(tmp_path / "chain.json"), "--journal", str(tmp_path / "j")]
            others = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
            told = [other.communicate()[1] for other in others]
            assert all("in use by another client" in text for text in told)
            assert [other.returncode for other in others] == [1] * 2
            assert len(world.queries) == 1
        assert subprocess.run(command, check=False, capture_output=True).stdout == b"first of beta"
    world.check()


def test_a_client_of_another_process_is_refused_without_a_fork(monkeypatch):
    client = Client("http://server.test", CHAIN, MemoryJournal(), "single", transport=Direct(World(NAMES)))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(JournalBusy, match="belongs to the process that made it"):
        client.get("alpha", private=True)
