"""What is shown of a message: entries, clean, and nothing that a browser would do more with than show it."""

import json

import nh3
import pytest

from onoff import wire
from onoff.client import Copy
from onoff.gateway.render import (
    MOST_READABLE_ENTRIES,
    ReadableEntry,
    entries_of,
    for_browser,
    for_program,
    leads_to_a_page,
    moment_of,
)
from onoff.wire import html as wire_html


def message(kind, body, version=1):
    text = body if isinstance(body, str) else json.dumps(body)
    found = wire.WireMessage(version, 5000, kind, text.encode()) if version else wire.NOTHING
    return Copy.of("paper", found)


FRAME = "<p>Hi</p><iframe src='http://x.example/'></iframe>"


def test_entries_come_in_their_order_with_clean_html():
    entry = {"title": "<b>T</b>", "link": "https://x.example/1", "time": 7, "html": FRAME}
    second = {"title": "U", "link": "javascript:x", "time": None, "text": "<p>"}
    assert entries_of(message(wire.ENTRY_TYPE, {"entries": [entry, second]})) == (
        ReadableEntry("<b>T</b>", "https://x.example/1", 7, html="<p>Hi</p>"),
        ReadableEntry("U", "", None, text="<p>"),
    )
    assert entries_of(message(wire.ENTRY_TYPE, entry)) == (
        ReadableEntry("<b>T</b>", "https://x.example/1", 7, html="<p>Hi</p>"),
    )
    many = {"entries": [second] * (MOST_READABLE_ENTRIES + 1)}
    assert len(entries_of(message(wire.ENTRY_TYPE, many))) == MOST_READABLE_ENTRIES
    assert entries_of(message("text/plain", "", version=0)) == ()


NOT_ENTRIES = [
    *("not json", "[1]", "null", '{"entries": 3}', '{"entries": [1]}', "[" * 100_000),
    *('{"entries": {"a": 1}}', '{"entries": "text"}', '{"time": ' + "9" * 5000 + "}"),
]


@pytest.mark.parametrize("body", NOT_ENTRIES, ids=range(len(NOT_ENTRIES)))
def test_an_entry_that_is_none_is_its_text(body):
    assert entries_of(message(wire.ENTRY_TYPE, body)) == (ReadableEntry("", "", None, text=body),)


def test_fields_that_are_not_what_they_should_be_are_shown_as_far_as_they_can_be():
    half = "\ud800"
    fields = {
        "title": half + "T",
        "link": "https://x.example/" + half,
        "time": 10**300,
        "html": f"<p>{half}",
        "text": [1],
    }
    (entry,) = entries_of(message(wire.ENTRY_TYPE, {"entries": [fields]}))
    assert entry == ReadableEntry("?T", "https://x.example/?", None, html="<p>?</p>", text="[1]")
    assert json.dumps(entry.as_dict(), ensure_ascii=False).encode()
    (entry,) = entries_of(message(wire.ENTRY_TYPE, {"title": None, "link": 7, "time": True}))
    assert entry == ReadableEntry("", "", None)


def test_what_no_library_can_read_is_its_text(monkeypatch):
    monkeypatch.setattr(wire_html, "clean_html", lambda text: 1 / 0)
    assert entries_of(message("text/html", FRAME)) == (ReadableEntry("", "", None, text=FRAME),)
    found = message("text/html", FRAME)
    assert b"&lt;iframe" in for_browser(found, entries_of(found))[0]


def test_all_entries_of_a_message_are_cleaned_within_one_budget(monkeypatch):
    """Each of three fragments took its own limit, and a click seconds."""
    heavy = "<font>" * 900
    parsed = []

    def clean(text, **rules):
        parsed.append(text)
        return original(text, **rules)

    original = nh3.clean
    monkeypatch.setattr(nh3, "clean", clean)
    fragments = [heavy, "<p>light</p>", heavy, heavy, "<p>light</p>"]
    entries = entries_of(message(wire.ENTRY_TYPE, {"entries": [{"html": each} for each in fragments]}))
    assert parsed == [heavy, "<p>light</p>", "<p>light</p>"]
    assert [(entry.html or "").strip() for entry in entries] == ["", "<p>light</p>", "", "", "<p>light</p>"]


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain", "first\nsecond", ReadableEntry("first", "", 5000, text="first\nsecond")),
        ("text/plain", "x" * 200, ReadableEntry("x" * 119 + "…", "", 5000, text="x" * 200)),
        ("text/html", FRAME, ReadableEntry("", "", 5000, html="<p>Hi</p>")),
        ("application/xml", "<x/>", ReadableEntry("", "", 5000, text="<x/>")),
        ("image/svg+xml", FRAME, ReadableEntry("", "", 5000, text=FRAME)),
        ("image/png", "1234", ReadableEntry("", "", 5000, text="4 bytes of image/png")),
    ],
)
def test_a_message_of_any_kind_is_an_entry(kind, body, expected):
    assert entries_of(message(kind, body)) == (expected,)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("text/html; charset=utf-8", "text/html; charset=utf-8"),
        ("text/plain", "text/plain; charset=utf-8"),
        ("application/json", "text/plain; charset=utf-8"),
        (wire.ENTRY_TYPE, "text/plain; charset=utf-8"),
        ("image/png", "image/png"),
        *((kind, None) for kind in ("image/svg+xml", "text/xml", "application/pdf", "application/xhtml+xml", "x/y")),
    ],
)
def test_a_browser_gets_what_it_can_only_show_and_the_rest_as_a_file(kind, shown):
    found = message(kind, FRAME)
    body, headers = for_browser(found, entries_of(found))
    if shown is None:
        assert headers == {"content-type": wire.ANY_TYPE, "content-disposition": "attachment"}
    else:
        assert headers == {"content-type": shown}
    assert (b"iframe" in body) == (not kind.startswith("text/html"))


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "text/plain", "x/y"])
def test_a_program_gets_the_publishers_bytes_and_type(kind):
    body, headers = for_program(message(kind, FRAME))
    assert (body, headers["content-type"]) == (FRAME.encode(), kind)
    assert ("content-disposition" in headers) == (kind != "text/plain")


def test_links_and_times():
    assert leads_to_a_page("https://x.example/")
    assert not any(map(leads_to_a_page, ["", "javascript:x", "mailto:x", "http://[", "/x", "data:,x"]))
    assert moment_of(wire.TIME_LIMIT - 1).year == moment_of(0).year == 1970
