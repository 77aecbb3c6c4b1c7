"""The names of feeds: their titles, one each, and the same whatever becomes of the list."""

import asyncio
import logging

import pytest
from tests.support.site import Site, serving

from onoff.server.admin import edit_catalogue, opened
from onoff.server.feeds import Feed, ListedFeed, assign_names, name_feeds

RSS = "<rss version='2.0'><channel><title>{title}</title>{rest}<item><title>x</title></item></channel></rss>"


@pytest.fixture
def site():
    with serving(Site()) as site:
        yield site


def feed_page(title, rest=""):
    return 200, {"content-type": "application/rss+xml"}, RSS.format(title=title, rest=rest).encode()


def names_at_start(where, listed, progress=lambda done, total: None):
    """What a server that is started with this list calls its sources, by their paths."""

    async def start():
        async with opened(where) as store:
            named = await name_feeds(store, listed, progress)
            await edit_catalogue(store, add=[feed.name for feed in named])
            return {feed.url.rpartition("/")[2]: feed.name for feed in named}

    return asyncio.run(start())


def test_titles_are_names_and_stay_when_the_list_is_reversed_shortened_and_grown(where):
    """With each store. `b` keeps its number when `a`, whose title it shares, is gone."""
    listed = [
        ListedFeed(title, f"http://x.example/{path}") for title, path in [("News", "a"), ("News", "b"), ("Sky", "c")]
    ]
    first = {"a": "News", "b": "News 2", "c": "Sky"}
    assert names_at_start(where, listed) == first
    assert names_at_start(where, listed[::-1]) == first
    assert names_at_start(where, listed[1:]) == {"b": "News 2", "c": "Sky"}
    renamed = [ListedFeed("Heaven", feed.url) if feed.title == "Sky" else feed for feed in listed]
    newcomer = ListedFeed("News", "http://x.example/d")
    assert names_at_start(where, [newcomer, *renamed]) == {"d": "News 3", **first}


def test_a_name_that_was_taken_out_of_the_catalogue_is_free_again(tmp_path):
    where = str(tmp_path / "m.db")
    a, b = ListedFeed("News", "http://x.example/a"), ListedFeed("News", "http://x.example/b")
    names_at_start(where, [a, b])

    async def drop():
        async with opened(where) as store:
            await edit_catalogue(store, drop=["News"])

    asyncio.run(drop())
    assert names_at_start(where, [b]) == {"b": "News 2"}
    assert names_at_start(where, [ListedFeed("News", "http://x.example/c"), b]) == {"c": "News", "b": "News 2"}
    assert names_at_start(where, [a, b]) == {"a": "News 3", "b": "News 2"}


def test_a_store_from_before_names_were_kept_goes_on_with_the_names_that_it_has(tmp_path):
    where = str(tmp_path / "m.db")

    async def make():
        async with opened(where) as store:
            await edit_catalogue(store, add=["News", "News 2"])

    asyncio.run(make())
    listed = [ListedFeed("News", f"http://x.example/{path}") for path in "ab"]
    assert names_at_start(where, listed) == {"a": "News", "b": "News 2"}


def test_feeds_without_a_title_in_the_list_are_asked_for_theirs_once(site, tmp_path, caplog):
    site.pages = {
        "/a": feed_page("First &amp;amp; &lt;b&gt;best&lt;/b&gt;"),
        "/b": feed_page("Same"),
        "/c": feed_page("Same"),
        "/untitled": feed_page(""),
        "/gone": (404, {}, b""),
        "/page": (200, {}, b"<html><title>No feed</title></html>"),
    }
    listed = [ListedFeed("", site.url + path) for path in site.pages] + [ListedFeed("Mine", site.url + "/mine")]
    told = []
    caplog.set_level(logging.WARNING)
    where = str(tmp_path / "m.db")
    names = names_at_start(where, listed, lambda *so_far: told.append(so_far))
    assert names["a"] == "First & best"
    assert {names["b"], names["c"]} == {"Same", "Same 2"}
    assert names["b"] == "Same"  # in the order of the list, whoever answered first
    assert {names[path] for path in ("untitled", "gone", "page")} == {"127.0.0.1", "127.0.0.1 2", "127.0.0.1 3"}
    assert names["mine"] == "Mine"
    assert told == [(done, 6) for done in range(1, 7)]
    assert {path for path, _ in site.seen} == set(site.pages)
    assert f"feed {site.url}/gone: it answers with status 404; it is called by its host" in caplog.text
    assert f"feed {site.url}/page: it is not a feed" in caplog.text
    site.seen.clear()
    site.pages["/b"] = feed_page("Other")
    assert names_at_start(where, listed[::-1]) == names
    assert site.seen == []


def test_what_is_no_longer_listed_is_said(tmp_path, caplog):
    where = str(tmp_path / "m.db")
    listed = [ListedFeed("News", "http://x.example/a"), ListedFeed("Sky", "http://x.example/b")]
    names_at_start(where, listed)
    assert caplog.messages == []
    names_at_start(where, listed[:1])
    assert caplog.messages == ["not in the list any more, and kept as they are: 'Sky'"]


def test_a_long_title_leaves_room_for_a_number():
    from onoff.server.feeds import name_of
    from onoff.wire import check_name

    title = name_of("é" * 300)
    named = assign_names([ListedFeed(title, f"http://x.example/{k}") for k in range(12)], {})
    assert len({check_name(feed.name) for feed in named}) == 12
    assert assign_names([ListedFeed("", "http://x.example/")], {}) == (Feed("x.example", "http://x.example/"),)
