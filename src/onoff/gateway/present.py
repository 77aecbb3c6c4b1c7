"""A message as it may be shown: as entries for the page and for feeds, and as the answer to an address that was typed.

Nothing that a publisher wrote reaches a browser as it came, unless the browser only shows it as text or pixels:

    text/html                  cleaned (`wire.html`), in a document whose policy loads and runs nothing
    plain text, JSON           as it is: a browser shows the text
    PNG, JPEG, GIF, WebP       as it is
    anything else              as a file to save: SVG, XML and PDF can name addresses that a browser would connect to

Every message has a form, whatever its bytes are: one that is not what its type says is shown as text.

Programs get the bytes and the media type of the publisher; they are told apart by Sec-Fetch-Dest, which every browser
sends and no page can forge. To a browser that does not send it, HTML too is a file to save.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from onoff.client import Copy
from onoff.wire import ANY_TYPE, ENTRY_TYPE, TIME_LIMIT
from onoff.wire import html as wire_html

LONGEST_TITLE: Final = 120
MOST_READABLE_ENTRIES: Final = 500
SHOWN_AS_TEXT: Final = frozenset({"text/plain", "application/json", ENTRY_TYPE})
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
