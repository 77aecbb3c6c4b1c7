"""The entries of messages: made when a copy arrives, for every source alike; feeds of sites in a limited process."""

import json

import pytest
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE
from tests.support.world import World

from onoff.client import Copy
from onoff.gateway import render as module
from onoff.gateway.render import EntryStore
from onoff.gateway.state import Marks
from onoff.wire import ENTRY_TYPE, NOTHING, WireMessage


def feed(*numbers, version=1, say="entry"):
    entries = [
        {"title": f"{say} {k}", "link": f"https://a.example/{k}", "time": 1000 * k, "text": "x"} for k in numbers
    ]
    return WireMessage(version, 1000, ENTRY_TYPE, json.dumps({"entries": entries}).encode())


RSS = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>Trams</title>
<item><title>Line 9 is late</title><link>https://a.example/9</link><pubDate>Sat, 03 Jan 1970 00:00:00 GMT</pubDate>
<description>&lt;p&gt;by &lt;b&gt;ten&lt;/b&gt; minutes&lt;script&gt;evil()&lt;/script&gt;</description></item>
<item><title>Line 2 is early</title><pubDate>Fri, 02 Jan 1970 00:00:00 GMT</pubDate></item></channel></rss>"""


def test_entries_of_one_message_that_lead_to_one_place_are_all_shown():
    entries = [{"title": title, "link": "https://a.example/", "time": 1, "text": title} for title in ("one", "two")]
    message = WireMessage(1, 1000, ENTRY_TYPE, json.dumps({"entries": entries}).encode())
    assert [entry.title for entry in EntryStore().latest(Copy.of("a", message))] == ["one", "two"]


def test_the_title_of_a_source_is_that_of_its_newest_entry():
    store = EntryStore()
    store.arrived(
        [("a", feed(2, 7, 3)), ("b", WireMessage(1, 1000, "text/plain", b"first line\nsecond")), ("c", NOTHING)]
    )
    assert store.titles() == {"a": "entry 7", "b": "first line"}


@pytest.mark.slow(reason="starts a process that reads feeds")
def test_the_feed_of_a_site_is_read_and_cleaned_and_what_is_none_stays_text():
    store = EntryStore()
    message = WireMessage(1, 1000, "application/rss+xml; charset=utf-8", RSS)
    store.arrived([("trams", message), ("other", WireMessage(1, 1000, "text/xml", b"<menu/>"))])
    late, early = store.latest(Copy.of("trams", message))
    assert (late.title, late.link, late.html) == (
        "Line 9 is late",
        "https://a.example/9",
        "<p>by <b>ten</b> minutes</p>",
    )
    assert (early.title, store.titles()["trams"]) == ("Line 2 is early", "Line 9 is late")
    (other,) = store.latest(Copy.of("other", WireMessage(1, 1000, "text/xml", b"<menu/>")))
    assert other.text == "<menu/>"


def test_a_copy_is_made_into_entries_when_it_arrives_and_not_when_it_is_opened(tmp_path, monkeypatch):
    """Also after a start, for the copies that were there before."""
    world = World(frame_size=2048)
    world.messages["beta"] = WireMessage(1, 1000, "text/html", b"<p>Hi <b>there")
    made: list[Copy] = []
    for turn in range(2):
        with gateway(tmp_path, world=world, refresh=3600.0) as local:
            if turn == 0:
                local.engine.refresher.first.result(PATIENCE)
            local.engine.refresher.wait_for_first()
            with monkeypatch.context() as patched:
                patched.setattr(module, "entries_of", made.append)
                told = local.get("/v1/entries/beta").json["entries"]
                assert [entry["html"] for entry in told] == ["<p>Hi <b>there</b></p>"]
                feeds = local.send("GET", f"/t/{local.app_token}/v1/feeds").body.decode()
                assert "Hi &lt;b&gt;there" in feeds
                assert "first of alpha" in feeds
    assert made == []


def test_marks_last_over_a_restart_where_everything_is_kept(tmp_path):
    for keep, new in (("full", ["beta"]), ("costs", ["alpha", "beta", "delta", "gamma"])):
        folder = tmp_path / keep
        folder.mkdir()
        with gateway(folder, level=keep, refresh=3600.0) as local:
            local.engine.refresher.first.result(PATIENCE)
            for name in ("alpha", "gamma", "delta"):
                local.get(f"/v1/entries/{name}")
        with gateway(folder, level=keep, refresh=3600.0) as local:
            local.engine.refresher.wait_for_first()
            sources = local.get("/v1/reading").json["sources"]
            assert sorted(source["name"] for source in sources if source["new"]) == new
            assert all(source["read"] is None for source in sources)  # no times are kept
            assert next(source["title"] for source in sources if source["name"] == "beta") == "first of beta"
        kept = [path for path in folder.iterdir() if path.name == "journal.read.json"]
        assert [path.stat().st_mode & 0o777 for path in kept] == ([0o600] if keep == "full" else [])
        assert all(json.loads(path.read_text()) == {"alpha": 1, "gamma": 1, "delta": 1} for path in kept)


def test_a_damaged_file_of_marks_makes_all_new(tmp_path):
    for content in ("", "[1]", '{"alpha": "x"}'):
        (tmp_path / "marks").write_text(content)
        marks = Marks(tmp_path / "marks")
        marks.opened("alpha", 3, 1.0)
        assert json.loads((tmp_path / "marks").read_text()) == {"alpha": 3}
