"""The gateway as a process: killed, started again, stopped with open streams; and `onoff gateway` itself."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import feedparser
import pytest
from tests.support.ports import reserved_port
from tests.support.typed import present
from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, P4, World, listening

from onoff import wire
from onoff.cli import run
from onoff.model.chain import MarkovChain

OPENER = build_opener(ProxyHandler({}))


def old_world():
    """A server that does not tell what changed, so that every private request is a step of the session."""
    world = World()
    world.tells_changes = False
    return world


class Process:
    """`onoff gateway` in a process of its own, before a server or several."""

    def __init__(self, folder, *servers, port=0):
        chain = folder / "chain.json"
        MarkovChain(P4, names=NAMES).save(chain)
        named = [word for server in servers for word in ("--server", server)]
        arguments = ["gateway", *named, "--chain", chain, "--journal", folder / "journal", "--json"]
        command = [sys.executable, "-c", "from onoff.cli import main; main()", *map(str, arguments)]
        self.process = subprocess.Popen(
            [*command, "--port", str(port), "--scheme", "single"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(folder)},
        )
        self.said = json.loads(present(self.process.stdout).readline())
        self.base = self.said["page"].partition("/#")[0]
        self.port = urlsplit(self.base).port

    def get(self, path):
        return self.call("GET", path)

    def call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.said['token']}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with OPENER.open(Request(self.base + path, data, headers, method=method), timeout=PATIENCE) as answer:
            return answer.headers, answer.read()

    def end(self, signum):
        """End it; its exit code and what it said on stderr."""
        self.process.send_signal(signum)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


@pytest.fixture
def start(tmp_path):
    """Starts gateways on one journal, and ends whatever is left."""
    started = []

    def starting(*servers, port=0):
        started.append(Process(tmp_path, *servers, port=port))
        return started[-1]

    yield starting
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)
        present(one.process.stdout).close()
        present(one.process.stderr).close()


@pytest.mark.slow(reason="programs are started and waited for")
def test_after_a_kill_switch_timer_session_and_feed_go_on(start):
    world = old_world()
    with listening(world) as server, reserved_port() as port:  # which the second must get too
        first = start(server.url, port=port)
        first.call("PUT", "/v1/privacy", {"private": True})
        first.get("/v1/sources/beta")
        _, before = first.call("PUT", "/v1/privacy", {"private": False, "seconds": 300})
        headers, _ = first.get("/v1/sources/gamma")
        assert headers["x-step"] == "1"
        feed = f"{first.said['apps']}/feeds/gamma"
        assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL

        second = start(server.url, port=port)
        _, after = second.get("/v1/privacy")
        until = json.loads(before)["until"]
        assert (json.loads(after)["private"], json.loads(after)["until"]) == (False, until)
        headers, body = second.get("/v1/sources/gamma")
        assert (headers["x-step"], headers["x-privacy-mode"], body) == ("2", "off", b"first of gamma")
        with OPENER.open(feed, timeout=PATIENCE) as answer:  # the reader's subscription is unchanged
            assert feedparser.parse(answer.read()).entries[0].content[0].value == "first of gamma"
        assert second.said == first.said  # the page's address too
        assert len({wire.decode_query_head(query).session for query in world.queries}) == 1
        world.check()


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_kill_while_a_request_is_under_way_loses_no_step(start):
    world, asked, release = old_world(), threading.Event(), threading.Event()

    def deliver(connection, path, raw):
        if path == wire.QUERY_PATH and len(world.queries) == 2:
            asked.set()
            release.wait(PATIENCE)
        connection.sendall(raw)

    with listening(world, deliver) as server:
        first = start(server.url)
        first.get("/v1/sources/beta")
        waiting = threading.Thread(target=_quietly, args=(first,))
        waiting.start()
        assert asked.wait(PATIENCE)
        first.end(signal.SIGKILL)
        release.set()
        waiting.join()
        second = start(server.url)
        headers, _ = second.get("/v1/sources/delta")
        assert headers["x-step"] == "2"
        assert len(world.sets()) == 3
        world.check()


def _quietly(process):
    with contextlib.suppress(OSError, http.client.HTTPException):
        process.get("/v1/sources/gamma")


def test_it_stops_at_once_with_open_streams(start):
    with listening(old_world()) as server, contextlib.ExitStack() as stack:
        for _ in range(5):  # on a machine so busy that a stream does not end within two seconds, once more
            one = start(server.url)
            for _ in range(3):
                line = stack.enter_context(
                    contextlib.closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=PATIENCE))
                )
                line.request("GET", "/v1/events", headers={"Authorization": f"Bearer {one.said['token']}"})
                assert line.getresponse().readline().startswith(b"id: ")
            code, errors = one.end(signal.SIGTERM)
            # uvicorn hands the signal on once it is done; that it had to cut nothing off is what "at once" means
            assert code in {0, -signal.SIGTERM}
            if "graceful" not in errors:
                break
        assert "graceful" not in errors
        assert "Traceback" not in errors


@pytest.mark.slow(reason="programs are started and waited for")
def test_several_servers_are_given_by_giving_the_option_several_times(start):
    with listening(World()) as first, listening(World()) as second:
        gateway = start(first.url, second.url)
        headers, body = gateway.get("/v1/sources/beta")
        assert (body, headers["x-mirror"]) == (b"first of beta", "no")
        state = json.loads(gateway.get("/v1/state")[1])
        assert [server["url"] for server in state["servers"]] == [first.url, second.url]
        assert [len(server.world.queries) for server in (first, second)] == [1, 1]
        code, errors = gateway.end(signal.SIGTERM)
        assert (code in {0, -signal.SIGTERM}, errors) == (True, "")


def test_the_same_server_twice_is_refused(tmp_path, capsys):
    twice = ["--server", "http://127.0.0.1:1"] * 2
    assert run(["gateway", *twice, "--journal", str(tmp_path / "journal"), "--port", "0"]) == 3
    assert "the same one twice" in capsys.readouterr().err


def test_a_second_gateway_on_one_journal_is_told(start, tmp_path, capsys):
    with listening(old_world()) as server:
        start(server.url)
        arguments = ["gateway", "--server", server.url, "--chain", str(tmp_path / "chain.json"), "--port", "0"]
        assert run([*arguments, "--journal", str(tmp_path / "journal")]) == 1
        assert "in use by another client" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "code", "said"),
    [
        (["--host", "0.0.0.0"], 3, "not a loopback address"),
        (["--host", "example.org"], 3, "not a loopback address"),
        (["--port", "70000"], 3, "not a port"),
        (["--heartbeat", "0"], 3, "a heartbeat every 0"),
        (["--refresh", "-1"], 3, "a refresh every -1"),
        (["--keep", "some"], 3, "no log level"),
        (["--chain", "/nonexistent"], 3, "/nonexistent"),
        (["--server", "ftp://x"], 3, "begins with ftp:"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, capsys, extra, code, said):
    chain = tmp_path / "chain.json"
    MarkovChain(P4, names=NAMES).save(chain)
    given = {
        "--server": "http://127.0.0.1:1",
        "--chain": str(chain),
        "--journal": str(tmp_path / "journal"),
        "--port": "0",
    }
    given.update(dict([extra]))
    assert run(["gateway", *(word for pair in given.items() for word in pair)]) == code
    assert said in capsys.readouterr().err


def test_without_a_model_and_without_the_server_it_starts_and_warns_once(tmp_path):
    with reserved_port() as port:
        command = [
            "gateway",
            "--server",
            f"http://127.0.0.1:{port}",
            "--journal",
            str(tmp_path / "journal"),
            "--port",
            "0",
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", "from onoff.cli import main; main()", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        with process:
            warned = present(process.stderr).readline()
            assert "connection refused; the gateway is running and keeps trying" in warned
            said = present(process.stdout).readline()
            assert "/#" in said
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=PATIENCE)
            assert rest == ""
