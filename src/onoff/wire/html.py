"""HTML that can be shown without network access: one cleaner, for feeds at the server and for the gateway's page.

What is kept is an allow-list: text, structure and links. Nothing is kept that a browser or a reader's program would
fetch, run, frame, submit to, or *connect to ahead of time*: Chromium preconnects to the address of a frame whose load a
content policy forbids, so frames have to be gone before a browser sees them. Links lose their address unless it is
absolute and of http, https or mailto.

The time for cleaning grows with the square of the number of tags and attributes, in the worst case. A fragment with
more than `MAX_TAGS` is reduced to its text first, so that no message can take long to clean.
"""

from __future__ import annotations

import html
import re
from typing import Final

MAX_TAGS: Final = 10_000
"""Tags of a fragment that is still taken for HTML; a long article has about a thousand."""

TAGS: Final = frozenset(
    {
        *("a", "b", "blockquote", "br", "code", "dd", "del", "div", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5"),
        *("h6", "hr", "i", "ins", "li", "ol", "p", "pre", "q", "s", "span", "strong", "sub", "sup", "table"),
        *("tbody", "td", "th", "thead", "tr", "u", "ul"),
    }
)

_TAG_START = re.compile(r"</?[a-zA-Z]")
_OPEN_TAG = re.compile(r"<[a-zA-Z][^>]*")
_SEPARATOR = re.compile(r"[\s/\"']")
_TAG = re.compile(r"<[^<>]*>")


def clean_html(value: str) -> str:
    """The part of an HTML fragment whose display fetches and runs nothing, and opens no connection."""
    import nh3

    if _too_many_tags(value):
        return html.escape(_without_tags(value), quote=False)
    return nh3.clean(
        value,
        tags=set(TAGS),
        attributes={"*": set(), "a": {"href", "title"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
    )


def html_text(value: str) -> str:
    """The text of an HTML fragment, without markup."""
    import nh3

    if _too_many_tags(value):
        return _without_tags(value).strip()
    return html.unescape(nh3.clean(value, tags=set())).strip()


def _too_many_tags(value: str) -> bool:
    """Whether there are more tags, or in one of them possibly more attributes, than `MAX_TAGS`."""
    if sum(1 for _ in _TAG_START.finditer(value)) > MAX_TAGS:
        return True
    return any(len(_SEPARATOR.findall(tag)) > MAX_TAGS for tag in _OPEN_TAG.findall(value) if len(tag) > MAX_TAGS)


def _without_tags(value: str) -> str:
    return html.unescape(_TAG.sub(" ", value))
