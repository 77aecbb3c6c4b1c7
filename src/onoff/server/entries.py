"""From the bytes of a feed to the bytes of a message.

The message is JSON (`wire.ENTRY_TYPE`): `{"entries": [...]}`, newest first, each with title, link, time (milliseconds,
or null), and html or text. HTML is cleaned (`wire.html`). The newest entry is always there, cut as text where it is
longer than a message may be; older ones follow whole while all are within `OLDER_BYTES`, since every reader fetches
them again whenever one is new.
"""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit
from xml.parsers import expat

from onoff.server.fetch import BadFeed
from onoff.wire import TIME_LIMIT
from onoff.wire.html import clean_html, html_text

MAX_ENTRIES = 100
OLDER_BYTES = 64 * 1024
_WRAPPED = b'{"entries":[%b]}'
MAX_DEPTH = 128  # of elements in elements; feeds have less than ten, and XHTML in them a few dozen


def check_depth(data: bytes) -> None:
    """Raise BadFeed where elements are nested too deeply; what is not XML is left to the feed parser."""
    depth = 0

    def start(name: str, attributes: object) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise BadFeed(f"its elements are nested more than {MAX_DEPTH} deep")

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(data, True)
    except expat.ExpatError:
        return


def read_entries(data: bytes, headers: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
    """The entries of the feed in `data`, newest first, each made when it is asked for.

    Raises
    ------
    BadFeed
        If it is not a feed, or has no entry.
    """
    parsed = _parse(data, headers)
    if not parsed.entries:
        raise BadFeed("it has no entry" if not parsed.bozo else f"it is not a feed ({parsed.bozo_exception})")
    return map(_fields, sorted(parsed.entries, key=lambda entry: -(_time(entry) or 0)))


def read_title(data: bytes, headers: dict[str, str] | None = None) -> str:
    """The title that the feed in `data` gives itself, as text; empty if it has none.

    Raises
    ------
    BadFeed
        If it is not a feed.
    """
    parsed = _parse(data, headers)
    if not parsed.version and not parsed.entries:
        raise BadFeed("it is not a feed")
    return html_text(parsed.feed.get("title") or "")


def _parse(data: bytes, headers: dict[str, str] | None) -> Any:
    import feedparser

    return feedparser.parse(data, response_headers=headers or {}, sanitize_html=False, resolve_relative_uris=False)


def _fields(entry: Any) -> dict[str, Any]:
    """Title, link, time, and html or text of an entry."""
    fields: dict[str, Any] = {
        "title": html_text(entry.get("title") or ""),
        "link": _web_link(entry.get("link") or ""),
        "time": _time(entry),
    }
    contents = entry.get("content") or []
    best = next((c for c in contents if "html" in (c.get("type") or "")), contents[0] if contents else None)
    value = (best.get("value") if best else entry.get("summary")) or ""
    kind = (best or entry.get("summary_detail") or {}).get("type") or "text/html"
    if "html" in kind:
        fields["html"] = clean_html(value)
    else:
        fields["text"] = value
    return fields


def _web_link(link: str) -> str:
    """The link, if it leads to a page."""
    try:
        return link if urlsplit(link).scheme in {"http", "https"} else ""
    except ValueError:  # such as http://[
        return ""


def _time(entry: Any) -> int | None:
    # Not by feedparser's own look-up, which maps one to the other with a warning.
    parsed = dict.get(entry, "published_parsed") or dict.get(entry, "updated_parsed")
    if parsed is None:
        return None
    try:
        milliseconds = calendar.timegm(parsed) * 1000
    except (ValueError, OverflowError):
        return None
    return milliseconds if 0 <= milliseconds < TIME_LIMIT else None


def encode_entries(entries: Iterable[dict[str, Any]], room: int) -> bytes:
    """The message of a feed: its newest entry, and as many older ones as fit.

    Raises
    ------
    BadFeed
        If not even the title of the newest entry fits.
    """
    remaining = iter(entries)
    kept = [_cut_entry(next(remaining), room - len(_WRAPPED % b""))]
    size = len(_WRAPPED % kept[0])
    for fields in remaining:
        entry = _dump(fields)
        size += len(entry) + 1
        if size > min(room, OLDER_BYTES) or len(kept) == MAX_ENTRIES:
            break
        kept.append(entry)
    return _WRAPPED % b",".join(kept)


def _cut_entry(fields: dict[str, Any], room: int) -> bytes:
    """The JSON of an entry in at most `room` bytes; what does not fit is cut off the end of its text."""
    whole = _dump(fields)
    if len(whole) <= room:
        return whole
    title, text = fields["title"], fields.get("text") or html_text(re.sub(r"<br>|</p>", "\n", fields.get("html", "")))
    for title_length, link in ((len(title), fields["link"]), (80, fields["link"]), (10, "")):
        kept = {"title": title[:title_length], "link": link, "time": fields["time"]}
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            fits = len(_dump({**kept, "text": text[:middle] + "…"})) <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        cut = _dump({**kept, "text": text[:low] + "…"})
        if len(cut) <= room:
            return cut
    raise BadFeed(f"its newest entry does not fit into {room} bytes")


def _dump(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
