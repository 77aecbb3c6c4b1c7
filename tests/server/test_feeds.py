"""Feeds: polled with conditions; what fails is told and tried again."""

import asyncio
import base64
import contextlib
import gzip
import json
import logging
import socket
from typing import Any

import pytest
from tests.support.feeds import RSS
from tests.support.ports import reserved_port
from tests.support.raw import Line, catalogue, metrics, query
from tests.support.site import Site, serving
from tests.support.typed import present
from tests.support.waiting import until

from onoff import wire
from onoff.errors import StoreUnavailable
from onoff.server import feeds, running
from onoff.server.admin import edit_catalogue, opened
from onoff.server.feed_reader import BadFeed
from onoff.server.feeds import Feed, is_open
from onoff.server.store import Stamp

NEWEST = 1_704_153_600_000  # 2024-01-02


@pytest.fixture
def site():
    with serving(Site()) as site:
        yield site


@pytest.fixture
def closed():
    """An address at which nobody listens."""
    with reserved_port() as port:
        yield f"http://127.0.0.1:{port}/"


def said(server, source):
    known = catalogue(server.url)
    with Line(server.url) as line:
        reply = line.query(query(known, source))
    return wire.decode_answer(reply.body, (source,), epoch=known.epoch, frame_size=known.frame_size)[0]


def test_feeds_are_polled_with_conditions_and_published_once(site):
    site.pages["/f"] = (
        200,
        {"etag": '"1"', "last-modified": "Tue, 02 Jan 2024 00:00:00 GMT"},
        RSS.format(n=1).encode(),
    )
    with running(["F"], frame_size=1024, feeds=[Feed("F", site.url + "/f")], feed_seconds=0.02) as server:
        until(lambda: said(server, 0).version == 1)
        message = said(server, 0)
        assert message.media_type == wire.ENTRY_TYPE
        assert message.published == NEWEST + 1000
        assert json.loads(message.body)["entries"][0]["link"] == "http://x.example/1"
        until(lambda: len(site.seen) >= 4)
        assert site.seen[-1][1]["if-none-match"] == '"1"'
        assert site.seen[-1][1]["if-modified-since"] == "Tue, 02 Jan 2024 00:00:00 GMT"
        assert said(server, 0).version == 1
        site.pages["/f"] = (200, {"etag": '"2"'}, RSS.format(n=2).encode())
        until(lambda: said(server, 0).version == 2)
        assert json.loads(said(server, 0).body)["entries"][0]["link"] == "http://x.example/2"


@pytest.mark.slow(reason="programs are started and waited for")
def test_an_entry_is_not_published_again_after_a_restart(site, tmp_path):
    site.pages["/f"] = (200, {}, RSS.format(n=1).encode())
    how = {"frame_size": 1024, "feeds": [Feed("F", site.url + "/f")], "feed_seconds": 0.02, "store": tmp_path / "m.db"}
    for _ in range(2):
        count = len(site.seen)
        with running(["F"], **how) as server:
            until(lambda: said(server, 0).version == 1)
            until(lambda: len(site.seen) >= count + 3)  # noqa: B023
            assert said(server, 0).version == 1


def test_bad_feeds_are_told_retried_and_never_fatal(site, closed, caplog, monkeypatch):
    monkeypatch.setattr(feeds, "MAX_FEED_BYTES", 100_000)
    rss = RSS.format(n=1).encode()
    site.pages = {
        "/good": (200, {}, rss),
        "/404": (404, {}, b""),
        "/html": (200, {}, b"<html>hello</html>"),
        "/bomb": (200, {"content-encoding": "gzip"}, gzip.compress(bytes(10_000_000))),
        "/long": (200, {}, b"<rss>" + b" " * 200_000),
        "/loop": (302, {"location": "/loop"}, b""),
        "/moved": (301, {"location": "/good"}, b""),
        "/out": (302, {"location": "gopher://x/"}, b""),
    }
    listed = [Feed(path[1:], site.url + path) for path in site.pages] + [Feed("closed", closed)]
    caplog.set_level(logging.INFO, logger="onoff.server.feeds")
    with running([feed.name for feed in listed], frame_size=1024, feeds=listed, feed_seconds=0.02) as server:
        bad = ["404", "html", "bomb", "long", "loop", "out", "closed"]
        until(lambda: all(f"feed '{name}'" in caplog.text for name in bad))
        until(lambda: metrics(server.url)["onoff_feed_failures_total"] >= 3 * len(bad))
        until(lambda: said(server, 0).version == said(server, 6).version == 1)
        versions = [said(server, k).version for k in range(len(listed))]
        assert versions == [1, 0, 0, 0, 0, 0, 1, 0, 0]
        site.pages["/404"] = (200, {}, rss)  # it comes back
        until(lambda: said(server, 1).version == 1)
        until(lambda: "feed '404' can be read again" in caplog.text)
    for name in bad:  # each was asked more than once
        assert sum(message.startswith(f"feed '{name}': ") for message in caplog.messages) == 1


def test_the_first_round_is_told_while_it_lasts_and_at_its_end(site, closed, caplog, monkeypatch):
    site.pages = {f"/{k}": (200, {}, RSS.format(n=1).encode()) for k in range(4)}
    listed = [*(Feed(path[1:], site.url + path) for path in site.pages), Feed("closed", closed)]
    caplog.set_level(logging.INFO, logger="onoff.server.feeds")
    monkeypatch.setattr(feeds, "PROGRESS_SECONDS", 0.0)
    with running([feed.name for feed in listed], feeds=listed, feed_seconds=3600.0):
        until(lambda: "all 5 feeds were asked in" in caplog.text)
    told = [message for message in caplog.messages if "feeds were asked" in message]
    assert [message.partition(" feeds")[0] for message in told] == ["1 of 5", "2 of 5", "3 of 5", "4 of 5", "all 5"]
    assert told[-1].endswith("s, 1 failed")


def test_a_store_that_is_away_at_the_start_is_waited_for(site, tmp_path, monkeypatch, caplog):
    """Else the task of the feeds would end, and take the whole server with it."""
    monkeypatch.setattr(feeds, "STORE_SECONDS", 0.01)
    site.pages["/f"] = (200, {}, RSS.format(n=1).encode())

    async def go():
        async with opened(str(tmp_path / "m.db"), frame_size=1024) as store:
            await edit_catalogue(store, add=["F"])
            latest, asked = store.latest, []

            async def away_once(after):
                asked.append(after)
                if len(asked) == 1:
                    raise StoreUnavailable("away")
                return await latest(after)

            store.latest = away_once  # type: ignore[method-assign]
            polling = asyncio.create_task(feeds.poll_feeds(store, [Feed("F", site.url + "/f")], server_metrics(), 0.02))
            while not (await latest(Stamp())).messages:
                assert not polling.done()
                await asyncio.sleep(0.01)
            polling.cancel()
            await asyncio.wait([polling])

    asyncio.run(go())
    assert "feeds wait: away" in caplog.text


def fetched(url):
    """The body that a fetch brings, or why there is none."""
    try:
        return present(asyncio.run(feeds.fetch(url, {})))[0]
    except BadFeed as error:
        return str(error)


def test_an_address_is_asked_for_as_browsers_do(site):
    """Letters beyond ASCII are encoded, what is encoded stays; a user and a password go into a header."""
    site.pages = {"/n%C3%A9ws%20/%41?q=%C3%A9&r=a+b": (200, {}, b"feed"), "/": (200, {}, b"root")}
    assert fetched(site.url + "/n\u00e9ws%20/%41?q=\u00e9&r=a+b#part") == b"feed"
    assert fetched(site.url.replace("//", "//me:a%40b@")) == b"root"
    assert site.seen[-1][1]["authorization"] == f"Basic {base64.b64encode(b'me:a@b').decode()}"
    assert "authorization" not in site.seen[-2][1]
    assert fetched("http://[") == "it redirects to something that is not an address"


def test_a_feed_that_never_ends_its_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(feeds, "FETCH_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "0.2 s" in fetched(f"http://127.0.0.1:{silent.getsockname()[1]}/")


def test_a_redirect_from_the_open_internet_does_not_lead_inside(site, monkeypatch):
    """Here 127.0.0.2 stands for the open internet and 127.0.0.1 for what only this machine may reach."""
    monkeypatch.setattr(feeds, "is_open", lambda address: address == "127.0.0.2")
    inside = site
    inside.pages["/secret"] = (200, {}, b"secret")
    port = inside.url.rpartition(":")[2]
    with serving(Site("127.0.0.2")) as outside:
        outside.pages = {
            "/in": (302, {"location": f"{inside.url}/secret"}, b""),
            "/by-name": (302, {"location": f"http://localhost:{port}/secret"}, b""),
            "/in-two-steps": (302, {"location": "/in"}, b""),
            "/here": (302, {"location": f"{outside.url}/feed?a=b"}, b""),
            "/feed?a=b": (200, {}, b"feed"),
        }
        for path in ["/in", "/by-name", "/in-two-steps"]:
            assert "from the internet" in fetched(outside.url + path)
        assert inside.seen == []
        assert fetched(outside.url + "/here") == b"feed"
        assert outside.seen[-1][1]["host"] == outside.url.removeprefix("http://")
        # What the operator wrote is fetched, and may lead where it likes as long as it stays inside.
        inside.pages["/moved"] = (302, {"location": "/secret"}, b"")
        inside.pages["/out"] = (302, {"location": f"{outside.url}/in"}, b"")
        assert fetched(inside.url + "/moved") == b"secret"
        assert "from the internet" in fetched(inside.url + "/out")


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_open_addresses_are_open(address):
    assert is_open(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "ff02::1"),
    ],
)
def test_inner_addresses_are_not_open(address):
    assert not is_open(address)


def test_the_pause_doubles_with_every_failure():
    pauses: list[Any] = []

    class Poller:
        feed = Feed("f", "")
        failures = 0

        async def poll(self):
            if len(pauses) == 4:
                return
            raise BadFeed("no")

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 6:
            raise asyncio.CancelledError

    async def go():
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(asyncio.CancelledError):
            patch.setattr("onoff.server.feeds.asyncio.sleep", sleep)
            await feeds._poll_for_ever(Poller(), server_metrics(), 60.0, asyncio.Semaphore(), None)

    asyncio.run(go())
    assert pauses == [120, 240, 480, 960, 60, 120]


def server_metrics():
    from onoff.server.http import Metrics

    return Metrics()
