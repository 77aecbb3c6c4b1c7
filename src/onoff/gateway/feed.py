"""Messages as Atom feeds, so that a feed reader subscribes to a source unchanged; all at once; and as a list in OPML.

The ids depend on the source and on what an entry says, so a reader shows an entry once, whichever gateway it
comes from. Text that XML cannot hold is left out. HTML is clean (`present`).
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

from onoff.client import Copy
from onoff.gateway.present import ReadableEntry, milliseconds, moment_of

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
