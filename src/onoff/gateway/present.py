"""A message as it may be shown: as entries for the page and for feeds, and as the answer to an address that was typed.

Nothing that a publisher wrote reaches a browser as it came, unless the browser only shows it as text or pixels:

    text/html                  cleaned (`wire.html`), in a document whose policy loads and runs nothing
    plain text, JSON           as it is: a browser shows the text
    PNG, JPEG, GIF, WebP       as it is
    anything else              as a file to save: SVG, XML and PDF can name addresses that a browser would connect to

Programs get the bytes and the media type of the publisher; they are told apart by Sec-Fetch-Dest, which every browser
sends and no page can forge. To a browser that does not send it, HTML too is a file to save.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from onoff.client import Copy
from onoff.wire import ANY_TYPE, ENTRY_TYPE
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
    """The entries of a message of any kind, as it orders them; none where nothing was published."""
    if not message.version:
        return ()
    kind = kind_of(message)
    text = message.payload.decode(errors="replace")
    if kind == ENTRY_TYPE:
        try:
            return _feed_entries(json.loads(text))
        except (ValueError, AttributeError, TypeError, RecursionError):
            return (ReadableEntry("", "", None, text=text),)
    if kind == "text/html":
        return (ReadableEntry("", "", message.published, html=wire_html.clean_html(text)),)
    if kind.startswith("text/"):
        first = text.strip().partition("\n")[0].strip()
        title = first if len(first) <= LONGEST_TITLE else first[: LONGEST_TITLE - 1] + "…"
        return (ReadableEntry(title, "", message.published, text=text),)
    if kind.endswith(("json", "xml")):
        return (ReadableEntry("", "", message.published, text=text),)
    return (ReadableEntry("", "", message.published, text=f"{len(message)} bytes of {kind}"),)


def _feed_entries(document: Any) -> tuple[ReadableEntry, ...]:
    listed = document.get("entries")
    if listed is None:
        return (_feed_entry(document),)
    return tuple(_feed_entry(fields) for fields in listed[:MOST_READABLE_ENTRIES])


def _feed_entry(fields: dict[str, Any]) -> ReadableEntry:
    time, link = fields.get("time"), str(fields.get("link", ""))
    return ReadableEntry(
        str(fields.get("title", "")),
        link if leads_to_a_page(link) else "",
        time if isinstance(time, int) and not isinstance(time, bool) else None,
        wire_html.clean_html(str(fields["html"])) if "html" in fields else None,
        str(fields["text"]) if "text" in fields else None,
    )


def leads_to_a_page(link: str) -> bool:
    """Whether a browser can follow this link: an absolute address of http or https."""
    try:
        return urlsplit(link).scheme in {"http", "https"}
    except ValueError:  # such as http://[
        return False


def moment_of(milliseconds: int) -> datetime:
    """A time in milliseconds since 1970; one beyond the calendar, which a frame can hold, counts as 1970."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def for_browser(message: Copy) -> tuple[bytes, dict[str, str]]:
    """Body and headers for a browser that opens a message by its address."""
    kind = kind_of(message)
    if kind == "text/html":
        document = (
            f"<!doctype html><title>message</title>{wire_html.clean_html(message.payload.decode(errors='replace'))}"
        )
        return document.encode(), {"content-type": "text/html; charset=utf-8"}
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
