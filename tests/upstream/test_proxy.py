"""Sites by a SOCKS proxy: names are looked up there, nothing goes beside it, and what fails is named."""

import contextlib
import socket

import pytest
from tests.support.chains import P3
from tests.support.relay import Socks
from tests.support.website import Answer, website

import onoff
from onoff.client import MemoryJournal
from onoff.errors import InvalidInput, SourceFailed
from onoff.upstream.message_server import MessageServer

NAMES = ("a", "b", "c")
PLACE = "stops.example"


@pytest.fixture
def left(monkeypatch):
    """Every lookup, and every address that was connected to, in this process."""
    found: list[object] = []
    lookup, connect = socket.getaddrinfo, socket.socket.connect

    def looked_up(host, *rest, **options):
        found.append(host)
        return lookup(host, *rest, **options)

    def connected(line, address):
        found.append(address)
        return connect(line, address)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(socket.socket, "connect", connected)
    return found


@contextlib.contextmanager
def client_by(folder, proxy, port):
    listed = "".join(f'[sources.{name}]\nid = "{name}"\n' for name in NAMES)
    address = f'url = "http://{PLACE}:{port}/{{id}}"\nproxy = "{proxy}"\n'
    (folder / "list.toml").write_text(f"[upstream]\n{address}{listed}")
    chain = onoff.MarkovChain(P3.transition, names=NAMES)
    web = onoff.Web.load(folder / "list.toml")
    web._sleep = lambda seconds: None
    with onoff.Client(web, chain, MemoryJournal()) as client:
        yield client


@pytest.mark.parametrize("private", [True, False])
def test_names_are_looked_up_by_the_proxy_and_nothing_goes_beside_it(tmp_path, left, private):
    with website(**{name: Answer(name.encode()) for name in NAMES}) as site:
        port = int(site.url.rpartition(":")[2])
        proxy = Socks(port)
        with contextlib.closing(proxy), client_by(tmp_path, proxy.url, port) as client:
            client.get("a", private=True)
            before = len(proxy.asked)
            left.clear()
            site.log.clear()
            message = client.get("b", private=private)
            assert message == b"b"
        assert not any(PLACE in str(entry) for entry in left)
        connected = [entry for entry in left if isinstance(entry, tuple)]
        assert connected == [("127.0.0.1", proxy.port), ("127.0.0.1", port)]  # the second is the proxy's own
        assert proxy.asked[before:] == [(PLACE, port)]  # one circuit for all of the set
        assert {headers["host"] for _, _, headers in site.log} == {f"{PLACE}:{port}"}
        assert site.targets == [f"/{name}" for name in message.asked]


def test_a_proxy_that_is_down_is_named(tmp_path, left):
    proxy = Socks(None)
    proxy.close()
    with client_by(tmp_path, proxy.url, 80) as client, pytest.raises(SourceFailed, match="proxy cannot be reached"):
        client.get("b", private=True)
    assert not any(PLACE in str(entry) for entry in left)


def test_a_proxy_that_cannot_reach_the_site_is_named_and_asked_for_all_alike(tmp_path, left):
    proxy = Socks(None)
    with contextlib.closing(proxy), client_by(tmp_path, proxy.url, 80) as client:
        with pytest.raises(SourceFailed, match="proxy cannot reach the site"):
            client.get("b", private=True)
        assert proxy.asked == [(PLACE, 80)] * 9  # three attempts for each of three
    assert not any(PLACE in str(entry) for entry in left)


@pytest.mark.parametrize(
    "proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1", "127.0.0.1:9050", "socks5://h:99999", ""]
)
def test_what_is_no_proxy_is_refused_before_anything_leaves(proxy):
    with pytest.raises(InvalidInput, match="SOCKS5"):
        MessageServer("https://api.example", proxy=proxy)
