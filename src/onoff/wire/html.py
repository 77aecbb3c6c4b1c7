"""HTML that can be shown without network access: one cleaner, for feeds at the server and for the gateway's page.

What is kept is an allow-list: text, structure and links. Nothing is kept that a browser or a reader's program would
fetch, run, frame, submit to, or *connect to ahead of time*: Chromium preconnects to the address of a frame whose load a
content policy forbids, so frames have to be gone before a browser sees them. Links lose their address unless it is
absolute and of http, https or mailto.

A parser of HTML opens formatting that was left open again in every block that follows, so the time and memory for
cleaning grow with the square of the number of tags, in the worst case. A message has one budget for all its fragments
(`Cleaner`); what goes beyond it is reduced to its text without being parsed, so that no message can take long.

Nothing here raises, whatever the text is.
"""

from __future__ import annotations

import html
import re
from typing import Any, Final

CLEANING_BUDGET: Final = 1_000_000
"""Of `work_of` for one message. A long article has about 1,000 tags, 200 of them formatting; the worst message within
the budget that is known takes 0.3 s of processor time and 100 MB."""

TAGS: Final = frozenset(
    {
        *("a", "b", "blockquote", "br", "code", "dd", "del", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5"),
        *("h6", "hr", "i", "ins", "li", "ol", "p", "pre", "q", "s", "span", "strong", "sub", "sup", "table"),
        *("tbody", "td", "th", "thead", "tr", "u", "ul"),
    }
)

_TAG_START = re.compile(r"</?[a-zA-Z]")
_FORMATTING = re.compile(r"<(?:a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])", re.IGNORECASE)
_OPEN_TAG = re.compile(r"<[a-zA-Z][^>]*")
_SEPARATOR = re.compile(r"[\s/\"']")
_TAG = re.compile(r"<[^<>]*>")
_NO_CHARACTER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")  # more digits than any; thousands make int() fail


class Cleaner:
    """Cleans the fragments of one message, within one budget."""

    def __init__(self) -> None:
        self._left = CLEANING_BUDGET

    def clean(self, value: str) -> str:
        """The part of an HTML fragment whose display fetches and runs nothing, and opens no connection."""
        cleaned = self._parsed(
            value,
            tags=set(TAGS),
            attributes={"*": set(), "a": {"href", "title"}},
            url_schemes={"http", "https", "mailto"},
            url_relative="deny",
            link_rel="noopener noreferrer nofollow",
        )
        return html.escape(_without_tags(value), quote=False) if cleaned is None else cleaned

    def text(self, value: str) -> str:
        """The text of an HTML fragment, without markup."""
        cleaned = self._parsed(value, tags=set())
        return (_without_tags(value) if cleaned is None else _unescape(cleaned)).strip()

    def _parsed(self, value: str, **rules: Any) -> str | None:
        """What the library makes of a fragment; None where the budget does not reach, or the library fails."""
        import nh3

        work = work_of(value)
        if work > self._left:
            return None
        self._left -= work
        try:
            return nh3.clean(_encodable(value), **rules)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of the library's Rust; it has no class that can be imported
                raise
            return None


def clean_html(value: str) -> str:
    """The part of one HTML fragment whose display fetches and runs nothing, and opens no connection."""
    return Cleaner().clean(value)


def html_text(value: str) -> str:
    """The text of one HTML fragment, without markup."""
    return Cleaner().text(value)


def work_of(value: str) -> int:
    """What parsing a fragment may take: formatting times tags, and a fiftieth of the squares of tags and attributes."""
    tags = sum(1 for _ in _TAG_START.finditer(value))
    formatting = sum(1 for _ in _FORMATTING.finditer(value))
    attributes = sum(len(_SEPARATOR.findall(tag)) ** 2 for tag in _OPEN_TAG.findall(value))
    return tags * formatting + (tags * tags + attributes) // 50


def _without_tags(value: str) -> str:
    return _unescape(_TAG.sub(" ", _encodable(value)))


def _unescape(value: str) -> str:
    return html.unescape(_NO_CHARACTER.sub("\ufffd", value))


def _encodable(value: str) -> str:
    """The text with a mark in place of each lone surrogate, which JSON can hold and UTF-8 cannot."""
    return value.encode(errors="replace").decode()
