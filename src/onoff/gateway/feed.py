"""A message as an Atom feed of its entries, so that a feed reader subscribes to a source unchanged.

The ids depend on the source and on what an entry says, so a reader shows an entry once, whichever gateway it
comes from. Text that XML cannot hold is left out. HTML is clean (`present`).
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import Final
from xml.etree import ElementTree as ET

from onoff.client import Copy
from onoff.gateway.present import entries_of, moment_of

ATOM_TYPE: Final = "application/atom+xml; charset=utf-8"
ATOM: Final = "http://www.w3.org/2005/Atom"
NAMESPACE: Final = uuid.UUID("6f6e6f66-6600-5000-8000-666565647300")

_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def atom(message: Copy, address: str) -> bytes:
    """The feed of `message`, which is had from `address`."""
    source, updated = message.source, _moment(message.published)
    root = ET.Element("feed", xmlns=ATOM)
    _add(root, "id", _urn(source))
    _add(root, "title", source)
    _add(root, "updated", updated)
    ET.SubElement(root, "link", rel="self", type="application/atom+xml", href=_clean(address))
    _add(ET.SubElement(root, "author"), "name", source)
    for item in entries_of(message):
        entry = ET.SubElement(root, "entry")
        said = json.dumps([item.title, item.link, item.html, item.text])
        _add(entry, "id", _urn(source, hashlib.sha256(said.encode()).hexdigest()))
        _add(entry, "title", item.title or source)
        _add(entry, "updated", updated if item.time is None else _moment(item.time))
        if item.link:
            ET.SubElement(entry, "link", rel="alternate", href=_clean(item.link))
        kind = "text" if item.html is None else "html"
        _add(entry, "content", (item.text or "") if item.html is None else item.html, type=kind)
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
