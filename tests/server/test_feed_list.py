"""Lists of feeds: OPML and lines, with and without titles."""

import pytest

from onoff.errors import InvalidInput
from onoff.server.feeds import ListedFeed, read_feeds


def test_lists_of_feeds_are_read(tmp_path):
    (tmp_path / "a.opml").write_text(
        '<opml version="2.0"><head/><body><outline text="Group"><outline type="rss" text="A/B &#x202e;x" '
        'xmlUrl="http://a.example/f"/></outline><outline type="rss" text="A B x" xmlUrl="https://b.example/f"/>'
        '<outline type="rss" title="Title" text="Text" xmlUrl="https://c.example/f"/>'
        '<outline type="rss" xmlUrl="https://d.example/f"/></body></opml>'
    )
    assert read_feeds(tmp_path / "a.opml") == (
        ListedFeed("A B x", "http://a.example/f"),
        ListedFeed("A B x", "https://b.example/f"),
        ListedFeed("Text", "https://c.example/f"),
        ListedFeed("", "https://d.example/f"),
    )
    (tmp_path / "list").write_text("# mine\nhttp://a.example/f\n\nNice name http://b.example/f\nhttp://a.example/g\n")
    assert read_feeds(tmp_path / "list") == (
        ListedFeed("", "http://a.example/f"),
        ListedFeed("Nice name", "http://b.example/f"),
        ListedFeed("", "http://a.example/g"),
    )


def test_an_address_that_stands_twice_is_one_feed_with_whatever_name_it_has(tmp_path):
    (tmp_path / "list").write_text("http://a.example/f\nFirst http://a.example/f\nSecond http://a.example/f\n")
    assert read_feeds(tmp_path / "list") == (ListedFeed("First", "http://a.example/f"),)


@pytest.mark.parametrize("text", ["", "# none", "ftp://a/b", "name only", "http://", "<opml><broken", "<html></html>"])
def test_bad_lists_are_told(tmp_path, text):
    (tmp_path / "bad").write_text(text)
    with pytest.raises(InvalidInput):
        read_feeds(tmp_path / "bad")
    with pytest.raises(InvalidInput):
        read_feeds(tmp_path / "missing")


def test_an_address_that_is_none_is_told(tmp_path):
    (tmp_path / "bad").write_text("http://[")
    with pytest.raises(InvalidInput, match="not an address"):
        read_feeds(tmp_path / "bad")
