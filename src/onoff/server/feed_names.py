"""The names of sources that are feeds: their titles, and stable over time.

The store keeps the name of each address. So a feed keeps its name when the list changes: its order, its titles, other
feeds of the same title. A feed that is new gets its title, with a number if another feed
has that name. Where the list has no title the feed is asked for its own, once; one that cannot be asked is called by
its host.

A feed whose name was removed from the catalogue gets a new one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from onoff.server.feed_list import Feed, ListedFeed, name_of
from onoff.server.feed_reader import FeedReader
from onoff.server.feeds import AT_ONCE
from onoff.server.fetch import BadFeed, fetch
from onoff.server.store import Store

log = logging.getLogger("onoff.server.feeds")


async def name_feeds(
    store: Store, listed: Sequence[ListedFeed], progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[Feed, ...]:
    """The feeds with their names, which the store keeps from now on.

    progress: Called with how many feeds were asked for their titles, and how many are to be.
    """
    catalogue = await store.catalogue()
    kept = {url: name for url, name in (await store.feed_names()).items() if name in catalogue.index}
    nameless = [feed.url for feed in listed if feed.url not in kept and not feed.title]
    titles = await _ask_titles(nameless, progress) if nameless else {}
    named = assign_names([ListedFeed(titles.get(feed.url, feed.title), feed.url) for feed in listed], kept)
    await store.replace_feed_names({**kept, **{feed.url: feed.name for feed in named}})
    unfed = sorted(set(kept.values()) - {feed.name for feed in named})
    if unfed:
        log.warning("not in the list any more, and kept as they are: %s", ", ".join(map(repr, unfed)))
    return named


def assign_names(listed: Sequence[ListedFeed], kept: Mapping[str, str]) -> tuple[Feed, ...]:
    """Each feed with the name that is kept for its address, or else one that no other feed has.

    >>> assign_names([ListedFeed("News", "http://b"), ListedFeed("News", "http://a")], {"http://a": "News"})
    (Feed(name='News 2', url='http://b'), Feed(name='News', url='http://a'))
    """
    names = dict(kept)
    for feed in listed:
        if feed.url not in names:
            names[feed.url] = _unused(feed.title or feed.host, set(names.values()))
    return tuple(Feed(names[feed.url], feed.url) for feed in listed)


def _unused(name: str, taken: Collection[str]) -> str:
    candidates = itertools.chain([name], (f"{name} {k}" for k in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


async def _ask_titles(urls: Sequence[str], progress: Callable[[int, int], None]) -> dict[str, str]:
    """The titles that these feeds give themselves, as names; those without are left out, with a warning."""
    import httpx2

    turns = asyncio.Semaphore(AT_ONCE)
    titles: dict[str, str] = {}
    asked = 0

    async def ask(url: str) -> None:
        nonlocal asked
        async with turns:
            try:
                response = await fetch(client, url, {})
                assert response is not None  # nothing was asked conditionally
                titles[url] = name_of(await reader.title(*response))
            except BadFeed as error:
                log.warning("feed %s: %s; it is called by its host", url, error)
        asked += 1
        progress(asked, len(urls))

    async with httpx2.AsyncClient(trust_env=False) as client, FeedReader() as reader, asyncio.TaskGroup() as tasks:
        for url in urls:
            tasks.create_task(ask(url))
    return titles
