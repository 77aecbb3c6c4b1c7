"""Listening: a free port, a taken one, one that is none, and both families of addresses."""

import socket

import pytest
from tests.support.waiting import PATIENCE

from onoff.errors import InvalidInput, OnOffError
from onoff.system.listening import authority, check_port, listen


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:{}"), ("::1", "[::1]:{}")])
def test_port_0_takes_a_free_one_and_it_can_be_reached(host, shown):
    with listen(host, 0, backlog=1) as sock:
        port = sock.getsockname()[1]
        assert authority(sock) == shown.format(port)
        socket.create_connection((host, port), timeout=PATIENCE).close()


def test_a_port_in_use_is_told():
    with listen("127.0.0.1", 0, backlog=1) as sock, pytest.raises(OnOffError, match="cannot listen") as refused:
        listen("127.0.0.1", sock.getsockname()[1], backlog=1)
    assert "--port" in refused.value.hint


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_told(host):
    with pytest.raises(OnOffError, match=f"cannot listen on {host}") as refused:
        listen(host, 0, backlog=1)
    assert "--host" in refused.value.hint


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(InvalidInput, match="not a port"):
        check_port(port)
    with pytest.raises(InvalidInput, match="not a port"):
        listen("127.0.0.1", port, backlog=1)
