"""Lists of feeds: OPML, or one feed a line.

ADDRESS          called by the title that the feed gives itself
NAME ADDRESS     called by that name
# ...            a comment
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from onoff.errors import InvalidInput, InvalidWire
from onoff.system.reading import read_limited
from onoff.wire import check_name

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

    Raises
    ------
    InvalidInput
        If it cannot be read, lists none, or lists what is not an address.
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
