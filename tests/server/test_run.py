"""Processes: workers that share one store, are replaced when they die, and leave with their parent."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.ports import reserved_port
from tests.support.raw import Line, catalogue, metrics, query
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until

from onoff import wire
from onoff.errors import OnOffError
from onoff.server import running
from onoff.upstream.message_server import publish

ONOFF = str(Path(sys.executable).parent / "onoff")


@contextlib.contextmanager
def served(store, *options):
    """`onoff serve` as a user starts it; gives the process and what it printed."""
    command = [ONOFF, "serve", "--store", str(store), "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = present(process.stdout).readline()
        assert line, present(process.stderr).read()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        found = [int(child) for child in file.read().split()]
    return [child for child in found if b"spawn_main" in command_line(child)]


def command_line(pid):
    """Empty where the process has ended, whether or not somebody has taken note of it."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def answers(url):
    with contextlib.suppress(OSError, EOFError):
        return catalogue(url).n
    return None


def make_token(store):
    return subprocess.run(
        [ONOFF, "serve", "--store", str(store), "--add-publisher", "p"], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.slow(reason="programs are started and waited for")
def test_workers_share_the_store_and_are_replaced_when_killed(tmp_path):
    store = tmp_path / "m.db"
    with served(store, "--workers", "2", "--source", "a", "--source", "b", "--frame-size", "512") as (process, started):
        url = started["url"]
        assert started == {"url": url, "sources": 2, "frame_size": 512, "limit": wire.capacity(512)}
        until(lambda: answers(url) == 2)
        known = catalogue(url)
        token = make_token(store)
        until(lambda: len(children(process.pid)) == 2)
        first = children(process.pid)
        # Connections land on either worker; each must see every acknowledged message at once.
        lines = [Line(url) for _ in range(8)]
        for k in range(10):
            assert publish(url, token, "a", b"%d" % k, "text/plain")["version"] == k + 1
            for line in lines:
                reply = line.query(query(known, 0))
                (message,) = wire.decode_answer(reply.body, (0,), epoch=known.epoch, frame_size=512)
                assert message.body == b"%d" % k
        # One step, two different queries, over all workers: one is refused.
        session = os.urandom(16)
        statuses = [line.query(query(known, k % 2, session=session)).status for k, line in enumerate(lines)]
        assert statuses == [200, 409] * 4
        assert metrics(url)["onoff_queries_answered_total"] == 84
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(children(process.pid)) == 2 and children(process.pid) != first)
        until(lambda: all(answers(url) == 2 for _ in range(8)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        for line in lines:
            line.socket.close()


def sockets_of(pid):
    """How many sockets a process has open."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(link).startswith("socket:")
    return count


@pytest.mark.slow(reason="programs are started and waited for")
def test_workers_share_connections_that_come_in_a_burst(tmp_path):
    with served(tmp_path / "m.db", "--workers", "2", "--source", "a") as (process, started):
        until(lambda: all(answers(started["url"]) == 1 for _ in range(8)))
        workers = children(process.pid)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        before = {worker: sockets_of(worker) for worker in workers}
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(Line(started["url"]))
            for worker in workers:
                os.kill(worker, signal.SIGCONT)

            def taken():
                return [sockets_of(worker) - before[worker] for worker in workers]

            until(lambda: sum(taken()) >= 190)  # a few of before may have gone
            assert min(taken()) >= 50  # of 200 fair coins; one in 10^13 gives fewer


@pytest.mark.slow(reason="programs are started and waited for")
def test_workers_leave_when_their_parent_is_killed_and_no_file_stays_behind(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with served(tmp_path / "m.db", "--workers", "2", "--source", "a") as (process, started):
        until(lambda: answers(started["url"]) == 1)
        until(lambda: len(children(process.pid)) == 2)
        workers = children(process.pid)
        process.kill()
        process.wait()
        until(lambda: not any(map(command_line, workers)))
    assert list(temporary.iterdir()) == []


def test_one_process_ends_on_a_signal(tmp_path):
    with served(tmp_path / "m.db", "--source", "a") as (process, started):
        until(lambda: answers(started["url"]) == 1)
        with Line(started["url"]) as idle:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) in {0, -signal.SIGTERM}
            assert idle.ended()


def test_it_outlives_readers_that_leave_in_the_middle(tmp_path):
    """A peer that is gone must cost a connection, not the process (SIGPIPE)."""
    names = [option for k in range(200) for option in ("--source", f"s{k}")]
    with served(tmp_path / "m.db", *names) as (process, started):
        until(lambda: answers(started["url"]) == 200)
        known = catalogue(started["url"])
        for _ in range(20):
            with Line(started["url"]) as line:
                line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                line.send(b"POST /v1/query HTTP/1.1\r\nhost: h\r\ncontent-type: application/vnd.onoff.query\r\n")
                line.send(b"content-length: %d\r\n\r\n" % wire.query_length(200) + query(known, *range(200)))
                line.socket.recv(10)
        assert answers(started["url"]) == 200
        assert process.poll() is None


def test_systemd_is_told_when_it_is_ready(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "n"))
        notified.settimeout(PATIENCE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
            with served(tmp_path / "m.db", "--source", "a") as (_, started):
                assert notified.recv(100) == b"READY=1"
                assert answers(started["url"]) == 1


def test_running_hands_out_a_server_that_works_and_ends():
    with reserved_port() as port:  # so that nobody else answers there afterwards
        with running({"a": b"1", "b": b"2"}, port=port) as server:
            assert server.publish("b", b"3") == 2
            known = catalogue(server.url)
            assert (known.frame_size, known.limit) == (None, wire.DEFAULT_LIMIT)
        with pytest.raises(ConnectionRefusedError):
            Line(server.url)


def test_running_tells_why_it_does_not_start(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OnOffError), running(["a"], store=tmp_path / "file" / "below"):
        pass
    with pytest.raises(ValueError, match="path"), running(["a/b"]):
        pass


def test_the_server_loads_nothing_of_chains_schemes_or_clients():
    program = "import sys, onoff.server.run, onoff.server.valkey, onoff.server.feeds\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.split(".")[0] == "onoff"}
    allowed = ("onoff.server", "onoff.wire", "onoff.errors", "onoff.names", "onoff.system", "onoff.upstream.transport")
    assert {name for name in ours if name not in {"onoff", "onoff.upstream"} and not name.startswith(allowed)} == set()
