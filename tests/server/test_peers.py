"""Connections by address: one peer cannot lock the others out."""

import contextlib
import resource
import socket
from urllib.parse import urlsplit

import pytest
from tests.support.raw import Line, catalogue, query, query_request
from tests.support.waiting import PATIENCE

from onoff.server import running
from onoff.server.connections import Peers, network_of
from onoff.server.http import MAX_PER_ADDRESS, is_loopback


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_what_counts_as_one_peer(host, network):
    assert network_of(host) == network


def test_loopback_is_known_in_every_form():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]))
    assert not any(map(is_loopback, ["192.0.2.7", "2001:db8::1", "::ffff:192.0.2.7", "", "localhost"]))


def test_there_is_room_for_others_and_again_when_one_leaves():
    peers = Peers(max_connections=4, max_per_address=2)
    assert [peers.enter(who) for who in ["a", "a", "a", "b", "b", "c"]] == [True, True, False, True, True, False]
    peers.leave("a")
    assert [peers.enter(who) for who in ["b", "c", "c"]] == [False, True, False]
    for who in ["a", "b", "b", "c"]:
        peers.leave(who)
    assert peers.open == {}


class From(Line):
    """A connection from an address of our own choice."""

    def __init__(self, url: str, source: str) -> None:
        parts = urlsplit(url)
        self.host = parts.netloc
        self.socket = socket.create_connection((parts.hostname, parts.port), PATIENCE, source_address=(source, 0))
        self.buffer = b""


@pytest.fixture
def server(monkeypatch):
    for name in ("connections.REQUEST_SECONDS", "http.BODY_SECONDS"):
        monkeypatch.setattr(f"onoff.server.{name}", 3600)  # who only waits is not sent away before all are there
    with running(["a", "b"], frame_size=512) as server:
        yield server


@pytest.fixture
def many_files():
    """Room for both ends of 4000 connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 10_000:
        pytest.skip(f"this user may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 10_000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_4000_idle_connections_of_one_peer_leave_room_for_others(server):
    known = catalogue(server.url)
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(From(server.url, "127.0.0.2")) for _ in range(4000)]
        with From(server.url, "127.0.0.3") as other:
            assert other.query(query(known, 0)).status == 200
        held = [line for line in lines if not refused_at_once(line)]
        assert len(held) == MAX_PER_ADDRESS


def refused_at_once(line):
    """Whether a refusal is there already; those who are served have nothing to read."""
    line.socket.setblocking(False)
    try:
        line.buffer = line.socket.recv(1 << 16)
    except BlockingIOError:
        return False
    assert line.reply().problem.status == 503
    return True


def test_600_slow_bodies_of_one_peer_leave_room_for_others(server):
    known = catalogue(server.url)
    slow = query_request("h", query(known, 0), extra="x-unusual: 1\r\n")[:-1]
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            line = stack.enter_context(From(server.url, "127.0.0.2"))
            with contextlib.suppress(OSError):
                line.send(slow)
        with From(server.url, "127.0.0.3") as other:
            for extra in ["", "x-unusual: 1\r\n"]:
                assert other.query(query(known, 0), extra=extra).status == 200
