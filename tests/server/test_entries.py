"""Entries of a feed: newest first, cleaned, as many as fit; the newest cut where it must be."""

import json
import random
from typing import Any

import pytest
from tests.support.feeds import RSS

from onoff.server.feed_reader import MAX_ENTRIES, OLDER_BYTES, BadFeed, encode_entries, read_entries

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><id>i</id><updated>2024-01-02T03:04:05Z</updated>
<entry><title>Plain</title><id>1</id><updated>2024-01-02T03:04:05Z</updated><link href="ftp://x/"/>
<content type="text">a &lt;b&gt; is text here</content></entry></feed>"""
NEWEST = 1_704_153_600_000  # 2024-01-02


def test_the_newest_entry_is_taken_and_cleaned():
    entry = next(read_entries(RSS.format(n=3).encode()))
    assert entry["title"] == "New & bold"
    assert entry["link"] == "http://x.example/3"
    assert entry["time"] == NEWEST + 3000
    for bad in ["img", "script", "bad()", "onclick", "javascript", "spy"]:
        assert bad not in entry["html"]
    assert 'href="http://ok.example/"' in entry["html"]


def test_text_stays_text_and_odd_links_go():
    entry = next(read_entries(ATOM.encode()))
    assert entry == {"title": "Plain", "link": "", "time": NEWEST + 11_045_000, "text": "a <b> is text here"}


def test_without_times_the_first_entry_counts():
    feed = "<rss version='2.0'><channel><item><title>1</title></item><item><title>2</title></item></channel></rss>"
    assert next(read_entries(feed.encode()))["title"] == "1"
    assert next(read_entries(feed.encode()))["time"] is None


@pytest.mark.parametrize(
    "data", [b"", b"<html><body>no</body></html>", b"\0\xff" * 100, b"<rss><channel/></rss>", b"{}"]
)
def test_what_is_not_a_feed_is_told(data):
    with pytest.raises(BadFeed):
        read_entries(data)


def test_hundreds_of_injured_feeds_are_read_or_refused():
    rng = random.Random(5)
    verdicts = set()
    for _ in range(300):
        data = bytearray(rng.choice([RSS.format(n=1), ATOM]).encode())
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 9)] = rng.randbytes(rng.randint(0, 9))
        try:
            body = encode_entries(read_entries(bytes(data)), 400)
            assert len(body) <= 400
            json.loads(body)
            verdicts.add("read")
        except BadFeed:
            verdicts.add("refused")
    assert verdicts == {"read", "refused"}


@pytest.mark.parametrize("room", [95, 110, 200, 400, 1000, 100_000])
@pytest.mark.parametrize("kind", ["text", "html"])
def test_entries_are_cut_to_the_room_there_is(room, kind):
    body = "é<p>word</p>" * 300
    fields: dict[str, Any] = {"title": "t" * 200, "link": "http://x.example/" + "y" * 100, "time": 1, kind: body}
    encoded = encode_entries([fields], room)
    assert len(encoded) <= room
    (read,) = json.loads(encoded)["entries"]
    if room == 100_000:
        assert read == fields
    else:
        assert fields["title"].startswith(read["title"])
        assert read["text"].endswith("…")


def test_an_entry_that_cannot_fit_is_told():
    with pytest.raises(BadFeed, match="fit"):
        encode_entries([{"title": "", "link": "", "time": 1, "text": "x" * 100}], 20)


# Many.


def item(k, size=10):
    return {"title": f"t{k}", "link": "", "time": k, "text": "x" * size}


def kept(entries, room=1 << 20):
    body = encode_entries(entries, room)
    assert len(body) <= room
    return json.loads(body)["entries"]


def test_entries_come_newest_first_and_those_without_time_last():
    times = {"b": 2, "a": 3, "c": None, "d": 1}
    items = "".join(
        f"<item><title>{title}</title>"
        + (f"<pubDate>Tue, 0{day} Jan 2024 00:00:00 GMT</pubDate>" if day else "")
        + "<link>http://[</link></item>"
        for title, day in times.items()
    )
    found = list(read_entries(f"<rss version='2.0'><channel>{items}</channel></rss>".encode()))
    assert [entry["title"] for entry in found] == ["a", "b", "d", "c"]
    assert {entry["link"] for entry in found} == {""}


def test_older_entries_follow_whole_while_all_are_within_their_bytes():
    entries = [item(k, 1000) for k in range(200)]
    found = kept(entries)
    assert found == entries[: len(found)]
    one_more = json.dumps({"entries": entries[: len(found) + 1]}, separators=(",", ":"))
    assert len(encode_entries(entries, 1 << 20)) <= OLDER_BYTES < len(one_more)


def test_the_newest_is_whole_however_long_and_then_alone():
    entries = [item(0, 10 * OLDER_BYTES), item(1)]
    assert kept(entries) == entries[:1]


def test_a_message_is_never_longer_than_there_is_room_and_has_never_too_many_entries():
    entries = [item(k) for k in range(3 * MAX_ENTRIES)]
    assert len(kept(entries)) == MAX_ENTRIES
    for room in range(95, 600, 7):
        found = kept(entries, room)
        assert found == entries[: len(found)]
