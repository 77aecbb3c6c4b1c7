"""From a publisher's feed to a reader's: server, gateway and feed reader are the real ones."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import feedparser
import pytest
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.client import Message, ServerView
from onoff.gateway import render
from onoff.gateway.render import entries_of, message_headers, milliseconds, moment_of
from onoff.model.chain import MarkovChain
from onoff.server import running
from onoff.server.feeds import Feed

RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>A paper</title><link>http://paper.example/</link>
<description>d</description><item><title>Ships &amp; {title}</title><link>http://paper.example/{title}</link>
<pubDate>Thu, 01 Jan 2026 0{hour}:00:00 GMT</pubDate>
<description>&lt;p&gt;Text of &lt;b&gt;{title}&lt;/b&gt;&lt;img src="http://tracker.example/x"&gt;&lt;/p&gt;</description></item>
</channel></rss>"""


@pytest.fixture
def publisher():
    """A site with a feed, which can be given a new entry."""

    class Handler(BaseHTTPRequestHandler):
        feed = RSS.format(title="sails", hour=1)

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/rss+xml")
            self.end_headers()
            self.wfile.write(self.feed.encode())

        def log_message(self, *arguments):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    yield Handler, f"http://127.0.0.1:{site.server_address[1]}/feed"
    site.shutdown()
    thread.join()
    site.server_close()


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_source_fed_from_rss_is_a_feed_again(tmp_path, publisher):
    site, address = publisher
    chain = MarkovChain([[0.6, 0.4], [0.3, 0.7]], names=["paper", "other"])
    feeds = [Feed("paper", address)]
    with (
        running(["paper", "other"], feeds=feeds, feed_seconds=0.05) as server,
        gateway(tmp_path, url=server.url, chain=chain) as local,
    ):
        subscription = f"/t/{local.app_token}/v1/feeds/paper"
        first = read(local, subscription, until="sails")
        assert first.entries[0].link == "http://paper.example/sails"
        assert first.entries[0].updated_parsed[:4] == (2026, 1, 1, 1)
        value = first.entries[0].content[0].value
        assert "<b>sails</b>" in value
        assert "tracker" not in value
        site.feed = RSS.format(title="oars", hour=2)
        second = read(local, subscription, until="oars")
        assert second.feed.id == first.feed.id
        assert second.entries[0].id != first.entries[0].id


def read(local, subscription, *, until):
    """The feed, read again until the server has polled what the publisher wrote."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = local.send("GET", subscription)
        feed = feedparser.parse(answer.body, response_headers=answer.headers)
        assert (answer.status, feed.bozo) == (200, False)
        if feed.entries and feed.entries[0].title == f"Ships & {until}":
            return feed
    raise AssertionError(f"no entry on {until}")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("5", "5"),
        ("null", "null"),
        ("[" * 100_000, "[" * 100_000),
        ('{"title": "t", "text": "x", "link": "http://["}', "x"),
        ('{"title": "t", "text": "x", "link": "javascript:alert(1)"}', "x"),
    ],
)
def test_whatever_a_publisher_wrote_is_a_feed_without_a_link(entry, text):
    message = Message.of("paper", wire.WireMessage(1, 0, wire.ENTRY_TYPE, entry.encode()))
    (shown,) = feedparser.parse(render.atom(message, entries_of(message), "http://127.0.0.1/v1/feeds/paper")).entries
    assert (shown.content[0].value, shown.get("links", [])) == (text, [])


def test_a_time_beyond_the_calendar_is_left_at_its_beginning():
    late = wire.WireMessage(1, wire.TIME_LIMIT - 1, "text/plain", b"x")
    sent = ServerView("s", 0, (0,), 1, private=False)
    message = Message.of("paper", late).after(sent, messages=1, received=1)
    assert moment_of(milliseconds(message)).year == 1970
    assert message_headers(message)["last-modified"] == "Thu, 01 Jan 1970 00:00:00 GMT"
