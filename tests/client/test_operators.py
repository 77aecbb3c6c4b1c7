"""Servers that share an address or a certificate are said to look like one operator; others are not."""

import socket
import ssl
import threading

import pytest

from onoff.upstream import sum_servers as servers
from onoff.upstream.sum_servers import shared_infrastructure


def test_the_same_address_is_found_under_two_names(monkeypatch):
    book = {"a.test": {"192.0.2.1"}, "b.test": {"192.0.2.1", "192.0.2.9"}, "c.test": {"192.0.2.2"}, "gone.test": set()}
    monkeypatch.setattr(servers, "_addresses", lambda host, port: book[host])
    assert shared_infrastructure(["http://a.test", "http://c.test", "http://gone.test"]) == []
    assert shared_infrastructure(["http://a.test", "http://b.test:81", "http://c.test"]) == [
        "http://a.test and http://b.test:81 have the same address 192.0.2.1"
    ]


def test_a_name_that_is_unknown_has_no_address():
    assert servers._addresses("unknown.invalid", 80) == set()


@pytest.fixture
def certificates(monkeypatch):
    shown = {"a.test": "one", "b.test": "one", "c.test": "two", "down.test": None}
    monkeypatch.setattr(servers, "_addresses", lambda host, port: {host})
    monkeypatch.setattr(servers, "_certificate", lambda host, port, seconds: shown[host])


def test_the_same_certificate_is_found(certificates):
    assert shared_infrastructure(["https://a.test", "https://c.test", "https://down.test", "https://down.test:1"]) == [
        "https://down.test and https://down.test:1 have the same address down.test"
    ]
    assert shared_infrastructure(["https://a.test", "https://b.test"]) == [
        "https://a.test and https://b.test have the same certificate"
    ]
    assert shared_infrastructure(["http://a.test", "https://b.test"]) == []


def test_a_server_that_speaks_no_tls_shows_no_certificate():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: listener.accept()[0].close())
        thread.start()
        assert servers._certificate("127.0.0.1", listener.getsockname()[1], 5) is None
        thread.join()
    assert issubclass(ssl.SSLError, OSError)  # what fails in a handshake is passed over
