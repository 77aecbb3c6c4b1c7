"""A message as an Atom feed of one entry, so that a feed reader subscribes to a source unchanged.

The ids depend on the source and on what the message says, so a reader shows a message once, whichever gateway it
comes from. Text that XML cannot hold is left out. HTML is handed on as it came: a feed reader must treat it as
foreign anyway.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from onoff.client import Message
from onoff.wire import ENTRY_TYPE

ATOM_TYPE: Final = "application/atom+xml; charset=utf-8"
ATOM: Final = "http://www.w3.org/2005/Atom"
NAMESPACE: Final = uuid.UUID("6f6e6f66-6600-5000-8000-666565647300")
LONGEST_TITLE: Final = 120

_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def atom(message: Message, address: str) -> bytes:
    """The feed of `message`, which is had from `address`."""
    source, updated = message.source, time_of(message).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    root = ET.Element("feed", xmlns=ATOM)
    _add(root, "id", _urn(source))
    _add(root, "title", source)
    _add(root, "updated", updated)
    ET.SubElement(root, "link", rel="self", type="application/atom+xml", href=_clean(address))
    _add(ET.SubElement(root, "author"), "name", source)
    if message.version:
        fields = entry_of(message)
        entry = ET.SubElement(root, "entry")
        _add(entry, "id", _urn(source, hashlib.sha256(message.payload).hexdigest()))
        _add(entry, "title", fields["title"] or source)
        _add(entry, "updated", updated)
        if _leads_to_a_page(fields["link"]):
            ET.SubElement(entry, "link", rel="alternate", href=_clean(fields["link"]))
        kind = "html" if "html" in fields else "text"
        _add(entry, "content", fields[kind], type=kind)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def time_of(message: Message) -> datetime:
    """When a message was published; a time beyond the calendar, which a frame can hold, counts as none."""
    try:
        return datetime.fromtimestamp(message.published / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def entry_of(message: Message) -> dict[str, Any]:
    """Title, link, and html or text of a message of any kind."""
    kind = message.media_type.partition(";")[0].strip().lower()
    text = message.payload.decode(errors="replace")
    if kind == ENTRY_TYPE:
        try:
            fields = json.loads(text)
            body = {key: str(fields[key]) for key in ("html", "text") if key in fields}
            return {
                "title": str(fields.get("title", "")),
                "link": str(fields.get("link", "")),
                **(body or {"text": ""}),
            }
        except (ValueError, AttributeError, TypeError, RecursionError):
            return {"title": "", "link": "", "text": text}
    if kind == "text/html":
        return {"title": "", "link": "", "html": text}
    if kind.startswith("text/"):
        first = text.strip().partition("\n")[0].strip()
        title = first if len(first) <= LONGEST_TITLE else first[: LONGEST_TITLE - 1] + "…"
        return {"title": title, "link": "", "text": text}
    return {"title": "", "link": "", "text": f"{len(message)} bytes of {kind}"}


def _add(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = _clean(text)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("", text)


def _urn(*parts: str) -> str:
    return uuid.uuid5(NAMESPACE, "\n".join(parts)).urn


def _leads_to_a_page(link: str) -> bool:
    try:
        return urlsplit(link).scheme in {"http", "https"}
    except ValueError:  # such as http://[
        return False
