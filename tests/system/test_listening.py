"""Listening: a free port, a taken one, one that is none, and both families of addresses."""

import socket

import pytest
from tests.support.waiting import PATIENCE

from onoff.errors import InvalidInput, OnOffError
from onoff.system.sockets import authority, check_port, listen, listen_beside


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:{}"), ("::1", "[::1]:{}")])
def test_port_0_takes_a_free_one_and_it_can_be_reached(host, shown):
    with listen(host, 0, backlog=1) as sock:
        port = sock.getsockname()[1]
        assert authority(sock) == shown.format(port)
        socket.create_connection((host, port), timeout=PATIENCE).close()


def test_a_port_in_use_is_told():
    with listen("127.0.0.1", 0, backlog=1) as sock, pytest.raises(OnOffError, match="cannot listen") as refused:
        listen("127.0.0.1", sock.getsockname()[1], backlog=1)
    assert "--port" in (refused.value.hint or "")


def test_sockets_beside_one_another_share_the_connections():
    with listen("127.0.0.1", 0, backlog=64, shared=True) as first, listen_beside(first, backlog=64) as second:
        assert first.getsockname() == second.getsockname()
        made = [socket.create_connection(first.getsockname(), timeout=PATIENCE) for _ in range(60)]
        first.setblocking(False)
        second.setblocking(False)
        counts = [0, 0]
        while sum(counts) < 60:  # the system may still be at work on the last ones
            counts = [count + accept_all(sock) for count, sock in zip(counts, (first, second), strict=True)]
        for sock in made:
            sock.close()
    assert sum(counts) == 60
    assert min(counts) >= 5  # of 60 fair coins; one in 10^10 gives fewer


def accept_all(sock):
    count = 0
    while True:
        try:
            sock.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_shared_port_in_use_is_told_too(shared):
    with listen("127.0.0.1", 0, backlog=1, shared=shared) as sock, pytest.raises(OnOffError, match="cannot listen"):
        listen("127.0.0.1", sock.getsockname()[1], backlog=1, shared=True)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_told(host):
    with pytest.raises(OnOffError, match=f"cannot listen on {host}") as refused:
        listen(host, 0, backlog=1)
    assert "--host" in (refused.value.hint or "")


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(InvalidInput, match="not a port"):
        check_port(port)
    with pytest.raises(InvalidInput, match="not a port"):
        listen("127.0.0.1", port, backlog=1)
