"""Entries of feeds as text."""

import json

import pytest

from onoff.cli.output import entries_text, html_lines, printable


def test_entries_are_title_link_time_and_text():
    entries = [
        {
            "title": "New",
            "link": "https://a.example/1",
            "time": 1_704_153_600_000,
            "html": "<p>One</p><p>two <b>three</b></p>",
        },
        {"title": "", "link": "", "time": None, "text": "plain <b>"},
        {"title": "Bare", "link": "", "time": 10**18, "html": ""},
    ]
    assert entries_text(json.dumps({"entries": entries}).encode()) == (
        "New\nhttps://a.example/1\n2024-01-02 00:00 UTC\n\nOne\n\ntwo three\n\n(no title)\n\nplain <b>\n\nBare"
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"no", b'{"entries": 3}', b'{"entries": [1]}', b"\xff", b"[" * 100_000])
def test_what_is_no_list_of_entries_is_left_to_others(body):
    assert entries_text(body) is None


def test_a_terminal_is_not_told_what_to_do():
    body = json.dumps({"entries": [{"title": "a\x1b]0;x\x07", "html": "<p>b&#27;[2J\u202e</p>"}]}).encode()
    text = entries_text(body)
    assert printable(text) == text
    assert text == "a]0;x\n\nb[2J"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<h2>Head</h2><p>text</p>", "Head\ntext"),
        ("<p>one</p>\n\n<p>two</p>", "one\n\ntwo"),
        ("<ul><li>a</li><li>b</li></ul>after", "- a\n- b\nafter"),
        ("<pre>x\n  y</pre>", "x\n  y"),
        ("<script>bad()</script><style>p{}</style>ok", "ok"),
        ("unclosed <b>x &lt; y", "unclosed x < y"),
        ("", ""),
    ],
)
def test_html_becomes_lines(html, text):
    assert html_lines(html) == text
