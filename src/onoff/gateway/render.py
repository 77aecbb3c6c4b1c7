"""A message as it may be shown: as entries for the page and for feeds, and as the answer to an address that was typed.

Nothing that a publisher wrote reaches a browser as it came, unless the browser only shows it as text or pixels:

    text/html                  cleaned (`wire.html`), in a document whose policy loads and runs nothing
    plain text, JSON           as it is: a browser shows the text
    PNG, JPEG, GIF, WebP       as it is
    anything else              as a file to save: SVG, XML and PDF can name addresses that a browser would connect to

Every message has a form, whatever its bytes are: one that is not what its type says is shown as text.

Programs get the bytes and the media type of the publisher; they are told apart by Sec-Fetch-Dest, which every browser
sends and no page can forge. To a browser that does not send it, HTML too is a file to save.

As Atom feeds, so that a feed reader subscribes to a source unchanged, messages have ids that depend on the source and
on what an entry says: a reader shows an entry once, whichever gateway it comes from.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import json
import re
import threading
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET

from onoff.client import Copy, Message
from onoff.gateway.guard import MESSAGE_POLICY
from onoff.server.feed_reader import BadFeed, FeedReader
from onoff.wire import ANY_TYPE, DEFAULT_LIMIT, ENTRY_TYPE, TIME_LIMIT, WireMessage
from onoff.wire import html as wire_html

LONGEST_TITLE: Final = 120
MOST_READABLE_ENTRIES: Final = 500
SHOWN_AS_TEXT: Final = frozenset({"text/plain", "application/json", ENTRY_TYPE})
FEED_TYPES: Final = frozenset(
    {"application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/xml", "text/xml"}
)
SHOWN_AS_IMAGE: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True)
class ReadableEntry:
    """One thing to read. `html` is clean; either it or `text` is there. `time` is in milliseconds since 1970."""

    title: str
    link: str
    time: int | None
    html: str | None = None
    text: str | None = None

    def as_dict(self) -> dict[str, Any]:
        body = {"text": self.text or ""} if self.html is None else {"html": self.html}
        return {"title": self.title, "link": self.link, "time": self.time, **body}


def kind_of(message: Copy) -> str:
    """The media type of a message without its parameters."""
    return message.media_type.partition(";")[0].strip().lower()


def entries_of(message: Copy) -> tuple[ReadableEntry, ...]:
    """The entries of a message of any kind, as it orders them; none where nothing was published. Never raises."""
    if not message.version:
        return ()
    text = message.payload.decode(errors="replace")
    try:
        return _entries(message, kind_of(message), text)
    except Exception:  # what a publisher wrote must not stop anyone's gateway
        return (ReadableEntry("", "", None, text=text),)


def _entries(message: Copy, kind: str, text: str) -> tuple[ReadableEntry, ...]:
    if kind == ENTRY_TYPE:
        return _feed_entries(json.loads(text))
    if kind == "text/html":
        return (ReadableEntry("", "", milliseconds(message), html=wire_html.clean_html(text)),)
    if kind.startswith("text/"):
        first = text.strip().partition("\n")[0].strip()
        title = first if len(first) <= LONGEST_TITLE else first[: LONGEST_TITLE - 1] + "…"
        return (ReadableEntry(title, "", milliseconds(message), text=text),)
    if kind.endswith(("json", "xml")):
        return (ReadableEntry("", "", milliseconds(message), text=text),)
    return (ReadableEntry("", "", milliseconds(message), text=f"{len(message)} bytes of {kind}"),)


def _feed_entries(document: dict[str, Any]) -> tuple[ReadableEntry, ...]:
    cleaner = wire_html.Cleaner()  # one for all entries
    listed = document.get("entries")
    if listed is None:
        return (_feed_entry(document, cleaner),)
    if not isinstance(listed, list):
        raise TypeError("entries that are no list")
    return tuple(_feed_entry(fields, cleaner) for fields in listed[:MOST_READABLE_ENTRIES])


def _feed_entry(fields: dict[str, Any], cleaner: wire_html.Cleaner) -> ReadableEntry:
    time, link = fields.get("time"), _string(fields, "link")
    return ReadableEntry(
        _string(fields, "title"),
        link if leads_to_a_page(link) else "",
        time if type(time) is int and 0 <= time < TIME_LIMIT else None,
        cleaner.clean(_string(fields, "html")) if "html" in fields else None,
        _string(fields, "text") if "text" in fields else None,
    )


def _string(fields: dict[str, Any], name: str) -> str:
    """A field as text that UTF-8 can hold: JSON allows half of a surrogate pair."""
    return str(fields.get(name) or "").encode(errors="replace").decode()


def leads_to_a_page(link: str) -> bool:
    """Whether a browser can follow this link: an absolute address of http or https."""
    try:
        return urlsplit(link).scheme in {"http", "https"}
    except ValueError:  # such as http://[
        return False


def milliseconds(message: Copy) -> int:
    """When a message was published, as times of entries are given."""
    return round(1000 * message.published)


def moment_of(milliseconds: int) -> datetime:
    """A time in milliseconds since 1970; one beyond the calendar, which a frame can hold, counts as 1970."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def message_headers(message: Copy) -> dict[str, str]:
    """Headers with mode, cost and time of a message, and a policy under which it loads nothing."""
    headers = {
        "content-security-policy": MESSAGE_POLICY,
        "x-message-version": str(message.version),
        "x-age": f"{message.age:.0f}",
    }
    if isinstance(message, Message):
        sent = message.sent
        headers |= {
            "x-privacy-mode": "on" if sent.private else "off",
            "x-cost-messages": f"{message.messages:g}",
            "x-cost-bytes": str(message.received),
            "x-sources": str(sent.n),
            "x-step": str(sent.step),
            "x-mirror": "yes" if sent.mirror else "no",
        }
        if sent.note is not None:
            headers["x-note"] = str(sent.note)
    if message.version:
        published = moment_of(milliseconds(message))
        headers["x-message-time"] = published.isoformat(timespec="milliseconds")
        headers["last-modified"] = format_datetime(published, usegmt=True)
    return headers


def for_browser(message: Copy, entries: Sequence[ReadableEntry]) -> tuple[bytes, dict[str, str]]:
    """Body and headers for a browser that opens a message by its address; `entries` are those of the message."""
    kind = kind_of(message)
    if kind == "text/html":
        clean = "".join(entry.html or html.escape(entry.text or "") for entry in entries)
        return f"<!doctype html><title>message</title>{clean}".encode(), {"content-type": "text/html; charset=utf-8"}
    if kind in SHOWN_AS_TEXT:
        return message.payload, {"content-type": "text/plain; charset=utf-8"}
    if kind in SHOWN_AS_IMAGE:
        return message.payload, {"content-type": kind}
    return message.payload, {"content-type": ANY_TYPE, "content-disposition": "attachment"}


def for_program(message: Copy) -> tuple[bytes, dict[str, str]]:
    """Body and headers for a program: the publisher's own. A browser taken for one saves what it might render."""
    headers = {"content-type": message.media_type}
    if kind_of(message) not in SHOWN_AS_TEXT | SHOWN_AS_IMAGE:
        headers["content-disposition"] = "attachment"
    return message.payload, headers


ATOM_TYPE: Final = "application/atom+xml; charset=utf-8"
OPML_TYPE: Final = "text/x-opml; charset=utf-8"
MOST_COMBINED: Final = 200
ATOM: Final = "http://www.w3.org/2005/Atom"
NAMESPACE: Final = uuid.UUID("6f6e6f66-6600-5000-8000-666565647300")

_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def atom(message: Copy, entries: Sequence[ReadableEntry], address: str) -> bytes:
    """The feed of `message` and its entries; `address` is the URL of the feed itself."""
    root = _feed(_urn(message.source), message.source, milliseconds(message), address)
    for item in entries:
        _add_entry(root, message, item)
    return _document(root)


def combined(messages: Sequence[tuple[Copy, Sequence[ReadableEntry]]], address: str) -> bytes:
    """One feed of all entries of all messages, newest first, at most `MOST_COMBINED`."""
    listed = [(item.time or milliseconds(message), message, item) for message, entries in messages for item in entries]
    listed.sort(key=lambda one: (-one[0], one[1].source))
    newest = listed[0][0] if listed else 0
    root = _feed(_urn("onoff", "all"), "onoff: all sources", newest, address)
    for _, message, item in listed[:MOST_COMBINED]:
        _add_entry(root, message, item, named=True)
    return _document(root)


def opml(names: Sequence[str], address: str) -> bytes:
    """The list of the feeds below `address`, which feed readers import."""
    root = ET.Element("opml", version="2.0")
    _add(ET.SubElement(root, "head"), "title", "onoff")
    body = ET.SubElement(root, "body")
    for name in names:
        ET.SubElement(
            body, "outline", type="rss", text=_clean(name), title=_clean(name), xmlUrl=f"{address}/{quote(name)}"
        )
    return _document(root)


def _feed(identity: str, title: str, updated: int, address: str) -> ET.Element:
    root = ET.Element("feed", xmlns=ATOM)
    _add(root, "id", identity)
    _add(root, "title", title)
    _add(root, "updated", _moment(updated))
    ET.SubElement(root, "link", rel="self", type="application/atom+xml", href=_clean(address))
    _add(ET.SubElement(root, "author"), "name", title)
    return root


def _add_entry(root: ET.Element, message: Copy, item: ReadableEntry, *, named: bool = False) -> None:
    entry = ET.SubElement(root, "entry")
    said = json.dumps([item.title, item.link, item.html, item.text])
    _add(entry, "id", _urn(message.source, hashlib.sha256(said.encode()).hexdigest()))
    _add(entry, "title", item.title or message.source)
    _add(entry, "updated", _moment(milliseconds(message) if item.time is None else item.time))
    if named:
        _add(ET.SubElement(entry, "author"), "name", message.source)
    if item.link:
        ET.SubElement(entry, "link", rel="alternate", href=_clean(item.link))
    kind = "text" if item.html is None else "html"
    _add(entry, "content", (item.text or "") if item.html is None else item.html, type=kind)


def _document(root: ET.Element) -> bytes:
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _moment(milliseconds: int) -> str:
    return moment_of(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _add(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = _clean(text)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("", text)


def _urn(*parts: str) -> str:
    return uuid.uuid5(NAMESPACE, "\n".join(parts)).urn


Entries = tuple[ReadableEntry, ...]


class EntryStore:
    """The entries of the latest message of each source.

    They are made when a copy arrives, for every source alike, so that opening one takes no longer than opening another,
    and nothing here depends on what is read. Threads may share it; those who read wait until all that arrived together
    is ready.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, tuple[bytes, Entries]] = {}

    def arrived(self, messages: Iterable[tuple[str, WireMessage]]) -> None:
        """Make the entries of new copies."""
        with self._lock:
            copies = [Copy.of(source, message) for source, message in messages]
            new = [copy for copy in copies if self._latest.get(copy.source, (b"", ()))[0] != _digest(copy)]
            for copy, entries in zip(new, _made(new), strict=True):
                self._latest[copy.source] = _digest(copy), entries

    def latest(self, message: Copy) -> Entries:
        """The entries of a message; made now if it is none of the copies that arrived, as while OFF."""
        with self._lock:
            digest, entries = self._latest.get(message.source, (b"", ()))
        return entries if digest == _digest(message) else _made([message])[0]

    def titles(self) -> dict[str, str]:
        """The title of what is newest of each source."""
        with self._lock:
            latest = dict(self._latest)
        newest = {source: max(entries, key=_time, default=None) for source, (_, entries) in latest.items()}
        return {source: entry.title for source, entry in newest.items() if entry is not None}


def _time(entry: ReadableEntry) -> int:
    return entry.time or 0


def _made(messages: Sequence[Copy]) -> list[Entries]:
    """The entries of messages; feeds are read in a limited process, as what strangers wrote."""
    if any(kind_of(message) in FEED_TYPES for message in messages):
        messages = asyncio.run(_with_feeds_read(messages))
    return [entries_of(message) for message in messages]


async def _with_feeds_read(messages: Sequence[Copy]) -> list[Copy]:
    """The same, with what a feed says in place of it; one that cannot be read stays as it is."""

    async def read(message: Copy) -> Copy:
        if kind_of(message) not in FEED_TYPES:
            return message
        with suppress(BadFeed):
            body, _ = await reader.read(
                message.payload, {"content-type": message.media_type}, len(message) + DEFAULT_LIMIT
            )
            return Copy.of(message.source, WireMessage(message.version, milliseconds(message), ENTRY_TYPE, body))
        return message

    async with FeedReader() as reader:
        return list(await asyncio.gather(*map(read, messages)))


def _digest(message: Copy) -> bytes:
    """Of all that its entries depend on."""
    about = f"{message.version > 0} {message.published} {message.media_type}\n"
    return hashlib.sha256(about.encode() + message.payload).digest()
