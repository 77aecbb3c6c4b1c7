"""Entries of a feed as text for people: title, link, time, and what they say.

Control characters are removed, so that a publisher cannot send commands to the terminal.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any, Final

VISIBLE_CONTROLS: Final = "\n\t"
BLOCKS: Final = frozenset({"p", "div", "br", "li", "ul", "ol", "tr", "table", "pre", "blockquote", "hr", "dt", "dd"})
HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
UNSEEN: Final = frozenset({"script", "style", "template", "title"})


def printable(text: str) -> str:
    """`text` without control characters.

    >>> printable("a\\x1b[2Jb")
    'a[2Jb'
    """
    return "".join(c for c in text if c.isprintable() or c in VISIBLE_CONTROLS)


def entries_text(body: bytes) -> str | None:
    """The entries of a message of the type of feeds, newest first; None if it is not such a message."""
    try:
        document = json.loads(body)
        listed = document.get("entries", [document])
        return printable("\n\n".join(_entry_text(entry) for entry in listed))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def _entry_text(entry: dict[str, Any]) -> str:
    said = str(entry["text"]) if "text" in entry else html_lines(str(entry.get("html", "")))
    head = [str(entry.get("title") or "(no title)"), str(entry.get("link") or ""), _moment(entry.get("time"))]
    return "\n".join([*filter(None, head), *([""] if said.strip() else []), said.strip()]).rstrip()


def _moment(milliseconds: object) -> str:
    if not isinstance(milliseconds, int) or isinstance(milliseconds, bool):
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def html_lines(value: str) -> str:
    """The text of HTML, a line for each block.

    >>> html_lines("<p>One &amp; <b>two</b></p><ul><li>three</ul>")
    'One & two\\n\\n- three'
    """
    reader = _Lines()
    reader.feed(value)
    reader.close()
    return re.sub(r"\n{3,}", "\n\n", "".join(reader.parts)).strip()


class _Lines(HTMLParser):
    """Collects text; whitespace counts as one blank except in `pre`."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen = self._pre = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._unseen += tag in UNSEEN
        self._pre += tag == "pre"
        if tag in BLOCKS | HEADINGS:
            self._break(2 if tag in HEADINGS else 1)
        if tag == "li":
            self.parts.append("- ")

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in UNSEEN and self._unseen > 0
        self._pre -= tag == "pre" and self._pre > 0
        if tag in BLOCKS | HEADINGS and tag != "li":
            self._break(2 if tag == "p" else 1)

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        text = data if self._pre else re.sub(r"\s+", " ", data)
        if not self.parts or self.parts[-1].endswith("\n"):
            text = text if self._pre else text.lstrip()
        if text:
            self.parts.append(text)

    def _break(self, lines: int) -> None:
        """End the text so far with at least `lines` line breaks."""
        if self.parts:
            tail = "".join(self.parts[-2:])
            self.parts.append("\n" * max(0, lines - (len(tail) - len(tail.rstrip("\n")))))
