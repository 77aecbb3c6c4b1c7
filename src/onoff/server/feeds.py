"""Feeds as sources: each RSS or Atom feed is polled, and its newest entries become that source's message.

Feeds are untrusted. They are parsed in separate processes (`feed_reader`), with limits; a feed that exceeds them is an
error of that feed alone.

A fetch is bounded in time and size, and asks for no compression, so that a small answer stays small. The address that
the operator wrote is fetched wherever it is. A **redirect** is untrusted: from a server on the open internet it may
only lead to an address there, else any site in the list could read what only this machine can reach. The connection
goes to the address that was checked, even if its name resolves to another one a moment later.

Requests are conditional; after a failure the pause doubles, up to six hours. A feed that fails, or can be read again,
is logged by its name, and never stops the server.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import itertools
import logging
import socket
import time
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

from onoff.errors import InvalidInput, InvalidWire, OnOffError, StoreUnavailable
from onoff.server.feed_reader import BadFeed, FeedReader
from onoff.server.http import Count, Metrics
from onoff.server.store import Stamp, Store, in_thread
from onoff.system.files import read_limited
from onoff.system.logs import Condition
from onoff.upstream.transport import PORTS, Connection, Deadline, Failure, Origin, Request
from onoff.wire import ENTRY_TYPE, check_name

# Lists of feeds are OPML, or have one feed a line, ADDRESS or NAME ADDRESS; a line that begins with # is a comment.
# Without a name a feed is called by the title that it gives itself.

MAX_TITLE_BYTES = 240  # leaves room in a name for a number


@dataclass(frozen=True, slots=True)
class Feed:
    """A source and the address it is fed from."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class ListedFeed:
    """A feed in a list: its address, and its title as a name of a source, empty where the list has none."""

    title: str
    url: str

    @property
    def host(self) -> str:
        """The name of a feed without a title: its host."""
        return name_of(urlsplit(self.url).hostname or "") or "feed"


def read_feeds(path: str | Path) -> tuple[ListedFeed, ...]:
    """The feeds listed in a file, each address once.

    Raises InvalidInput if it cannot be read, lists none, or lists what is not an address.
    """
    try:
        data = read_limited(Path(path))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", hint="give an OPML file or a list") from None
    pairs = _read_opml(data, path) if data.lstrip()[:1] == b"<" else _read_lines(data, path)
    feeds: dict[str, ListedFeed] = {}
    for title, url in pairs:
        if not _is_web_address(url):
            raise InvalidInput(f"{path}: {url!r} is not an address of a feed", hint="use http:// or https://")
        if url not in feeds or not feeds[url].title:
            feeds[url] = ListedFeed(name_of(title), url)
    if not feeds:
        raise InvalidInput(f"{path} lists no feed", hint="give an OPML file or one address per line")
    return tuple(feeds.values())


def _is_web_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in {"http", "https"} and bool(urlsplit(url).hostname)
    except ValueError:  # such as http://[
        return False


def _read_opml(data: bytes, path: str | Path) -> list[tuple[str, str]]:
    import listparser

    parsed = listparser.parse(data)
    if parsed.get("bozo"):
        raise InvalidInput(f"{path} is not OPML: {parsed.get('bozo_exception')}", hint="export it again")
    return [(feed.title or "", feed.url) for feed in parsed.feeds]


def _read_lines(data: bytes, path: str | Path) -> list[tuple[str, str]]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not text", hint="give an OPML file or one address per line") from None
    pairs = []
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, url = line.strip().rpartition(" ")
            pairs.append((name, url))
    return pairs


def name_of(title: str) -> str:
    """`title` made into a name of a source; empty if nothing is left.

    >>> name_of(" A/B  news ")
    'A B news'
    """
    visible = "".join(c if unicodedata.category(c)[0] not in "CZ" and c not in "/\\" else " " for c in title)
    name = unicodedata.normalize("NFC", " ".join(visible.split()))
    while len(name.encode()) > MAX_TITLE_BYTES:
        name = name[:-1].rstrip()
    try:
        return check_name(name)
    except InvalidWire:
        return ""


log = logging.getLogger("onoff.server.feeds")

MAX_BACK_OFF_SECONDS = 6 * 3600.0
AT_ONCE = 8
PROGRESS_SECONDS = 2.0
STORE_SECONDS = 1.0  # until a store that was away is asked again


MAX_FEED_BYTES = 4 * 1024 * 1024
FETCH_SECONDS = 20.0
MAX_REDIRECTS = 5
_HEADERS = (("accept", "*/*"), ("accept-encoding", "identity"), ("user-agent", "onoff"))
_REDIRECTS = {301, 302, 303, 307, 308}
_KEPT = "/?%:@!$&'()*+,;=~[]"  # of a path and query, as they are


async def fetch(url: str, conditions: Mapping[str, str]) -> tuple[bytes, dict[str, str]] | None:
    """The feed at `url` and its headers; None if it has not changed.

    Raises BadFeed if there is no answer in time, or it is too long.
    """
    try:
        async with asyncio.timeout(FETCH_SECONDS):  # looking a name up has no limit of its own
            return await in_thread(lambda: _fetch(url, (*_HEADERS, *conditions.items())))
    except TimeoutError:
        raise BadFeed(f"it took longer than {FETCH_SECONDS:g} s") from None


def _fetch(url: str, headers: tuple[tuple[str, str], ...]) -> tuple[bytes, dict[str, str]] | None:
    deadline, from_outside = Deadline(FETCH_SECONDS), False
    for _ in range(MAX_REDIRECTS + 1):
        origin, target, login = _split_address(url)
        address = _open_address(origin) if from_outside else None
        with contextlib.closing(Connection(origin, address=address)) as connection:
            reply = connection.exchange(Request("GET", target, (*headers, *login), b"", MAX_FEED_BYTES), deadline)
        if isinstance(reply, Failure):
            raise BadFeed(f"it does not answer: {reply.reason}")
        from_outside = connection.peer is None or is_open(connection.peer)
        found = {name.lower(): value for name, value in reply.headers}
        if reply.status in _REDIRECTS and "location" in found:
            url = urljoin(url, found["location"])
        elif reply.status == 304:
            return None
        elif reply.status != 200:
            raise BadFeed(f"it answers with status {reply.status}")
        elif found.get("content-encoding", "identity") != "identity":
            raise BadFeed("it is compressed, although an uncompressed answer was asked for")
        else:
            return reply.body, found
    raise BadFeed("it redirects too many times")


def _split_address(url: str) -> tuple[Origin, str, tuple[tuple[str, str], ...]]:
    """Where a feed is, what to ask for there, and the header of its user and password, if it has them."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
        if parts.scheme not in PORTS or not host:
            raise BadFeed("it redirects to an address that is not http")
        origin = Origin(parts.scheme, host, parts.port or PORTS[parts.scheme])
    except ValueError:
        raise BadFeed("it redirects to something that is not an address") from None
    target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_KEPT)
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    basic = (("authorization", f"Basic {base64.b64encode(login).decode()}"),) if parts.username is not None else ()
    return origin, target, basic


def _open_address(origin: Origin) -> str:
    """An address of a host, if all that it has are on the open internet."""
    try:
        found = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except OSError:
        raise BadFeed("it redirects to an unknown host") from None
    addresses = [str(info[4][0]) for info in found]
    if not all(map(is_open, addresses)):
        raise BadFeed("it redirects from the internet to a private address")
    return addresses[0]


def is_open(address: str) -> bool:
    """Whether an address is on the open internet: not this machine, a private network or a link."""
    ip = ipaddress.ip_address(address)
    return ip.is_global and not ip.is_multicast


class Poller:
    """One feed: its last content, and when to poll it again."""

    def __init__(self, feed: Feed, store: Store, reader: FeedReader, known: bytes | None) -> None:
        self.feed = feed
        self.failures = 0
        self._store = store
        self._reader = reader
        self._published = known
        self._conditions: dict[str, str] = {}

    async def poll(self) -> bool:
        """Poll once. Returns whether a new message was published."""
        response = await fetch(self.feed.url, self._conditions)
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
    known = await _published(store)
    turns = asyncio.Semaphore(AT_ONCE)
    first_round = FirstRound(len(feeds))
    async with FeedReader() as reader, asyncio.TaskGroup() as tasks:
        for feed in feeds:
            poller = Poller(feed, store, reader, known.get(feed.name))
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


async def name_feeds(
    store: Store, listed: Sequence[ListedFeed], progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[Feed, ...]:
    """The feeds with their names, which the store keeps from now on, however the list changes.

    A new feed gets its title, with a number if another feed has that name. Where the list has no title the feed is
    asked for its own, once; one that cannot be asked is called by its host. A feed whose name was removed from the
    catalogue gets a new one.

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
    turns = asyncio.Semaphore(AT_ONCE)
    titles: dict[str, str] = {}
    asked = 0

    async def ask(url: str) -> None:
        nonlocal asked
        async with turns:
            try:
                response = await fetch(url, {})
                assert response is not None  # nothing was asked conditionally
                titles[url] = name_of(await reader.title(*response))
            except BadFeed as error:
                log.warning("feed %s: %s; it is called by its host", url, error)
        asked += 1
        progress(asked, len(urls))

    async with FeedReader() as reader, asyncio.TaskGroup() as tasks:
        for url in urls:
            tasks.create_task(ask(url))
    return titles
