"""Feeds as sources: each RSS or Atom feed is polled, and its newest entries become that source's message.

Feeds are untrusted. They are parsed in separate processes (`feed_reader`), with limits; a feed that exceeds them is an
error of that feed alone.

Requests are conditional; after a failure the pause doubles, up to six hours. A feed that fails, or can be read again,
is logged by its name, and never stops the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from onoff.errors import OnOffError, StoreUnavailable
from onoff.server.feed_list import Feed
from onoff.server.feed_reader import FeedReader
from onoff.server.fetch import BadFeed, fetch
from onoff.server.metrics import Count, Metrics
from onoff.server.store import Stamp, Store
from onoff.system.logs import Condition
from onoff.wire import ENTRY_TYPE

log = logging.getLogger("onoff.server.feeds")

MAX_BACK_OFF_SECONDS = 6 * 3600.0
AT_ONCE = 8
PROGRESS_SECONDS = 2.0
STORE_SECONDS = 1.0  # until a store that was away is asked again


class Poller:
    """One feed: its last content, and when to poll it again."""

    def __init__(self, feed: Feed, store: Store, client: Any, reader: FeedReader, known: bytes | None) -> None:
        self.feed = feed
        self.failures = 0
        self._store = store
        self._client = client
        self._reader = reader
        self._published = known
        self._conditions: dict[str, str] = {}

    async def poll(self) -> bool:
        """Poll once. Returns whether a new message was published."""
        response = await fetch(self._client, self.feed.url, self._conditions)
        if response is None:
            return False
        data, headers = response
        catalogue = await self._store.catalogue()
        body, written = await self._reader.read(data, headers, catalogue.limit)
        fresh = body != self._published
        if fresh:
            published = written or time.time_ns() // 1_000_000
            await self._store.publish(self.feed.name, ENTRY_TYPE, body, published)
            self._published = body
        # Remembered only now: had publishing failed, the next answer must not be "not modified".
        pairs = (("if-none-match", "etag"), ("if-modified-since", "last-modified"))
        self._conditions = {asked: headers[told] for asked, told in pairs if told in headers}
        return fresh


class FirstRound:
    """Logs the progress of the first poll of all feeds: every two seconds, and at its end."""

    def __init__(self, feeds: int) -> None:
        self._feeds = feeds
        self._read = self._failed = 0
        self._start = self._told = time.monotonic()

    def add(self, *, failed: bool) -> None:
        """One more feed was asked for the first time."""
        self._read += 1
        self._failed += failed
        now = time.monotonic()
        if self._read == self._feeds:
            log.info("all %d feeds were asked in %.0f s, %d failed", self._feeds, now - self._start, self._failed)
        elif now - self._told >= PROGRESS_SECONDS:
            self._told = now
            log.info("%d of %d feeds were asked, %d failed", self._read, self._feeds, self._failed)


async def poll_feeds(store: Store, feeds: Sequence[Feed], metrics: Metrics, seconds: float) -> None:
    """Poll all feeds until cancelled, each with its own interval."""
    import httpx2

    known = await _published(store)
    turns = asyncio.Semaphore(AT_ONCE)
    first_round = FirstRound(len(feeds))
    client = httpx2.AsyncClient(trust_env=False)
    async with client, FeedReader() as reader, asyncio.TaskGroup() as tasks:
        for feed in feeds:
            poller = Poller(feed, store, client, reader, known.get(feed.name))
            tasks.create_task(_poll_for_ever(poller, metrics, seconds, turns, first_round))


async def _published(store: Store) -> dict[str, bytes]:
    """The present message of each source, once the store answers."""
    waiting = Condition(log)
    while True:
        try:
            latest = await store.latest(Stamp())
        except StoreUnavailable as error:
            waiting.fails("feeds wait: %s", error)
            await asyncio.sleep(STORE_SECONDS)
        else:
            return {name: message.body for name, message in latest.messages.items()}


async def _poll_for_ever(
    poller: Poller, metrics: Metrics, seconds: float, turns: asyncio.Semaphore, first_round: FirstRound | None
) -> None:
    reading = Condition(log)
    while True:
        async with turns:
            metrics.add(Count.FEED_POLLS)
            try:
                await poller.poll()
                poller.failures = 0
                reading.works("feed %r can be read again", poller.feed.name)
            except (BadFeed, OnOffError) as error:
                poller.failures += 1
                metrics.add(Count.FEED_FAILURES)
                reading.fails("feed %r: %s", poller.feed.name, error)
            except Exception:
                poller.failures += 1
                metrics.add(Count.FEED_FAILURES)
                reading.fails("feed %r: unexpected", poller.feed.name, traceback=True)
        if first_round is not None:
            first_round.add(failed=poller.failures > 0)
            first_round = None
        await asyncio.sleep(min(seconds * 2 ** min(poller.failures, 20), MAX_BACK_OFF_SECONDS))
