"""The cleaner: what is left of HTML names no address but that of a link, whatever the fragment."""

import re
from html.parser import HTMLParser

import nh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff.wire.html import MAX_TAGS, TAGS, clean_html, html_text


class Left(HTMLParser):
    """The tags and attributes of a document."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}

    handle_startendtag = handle_starttag


ALLOWED = {("a", "href"), ("a", "title"), ("a", "rel")}


def check(text):
    left = Left(clean_html(text))
    assert left.tags <= TAGS
    assert left.attributes <= ALLOWED


PIECES = [
    *("<iframe src='http://x/'>", "<frameset><frame src='http://x/'>", "<img src=http://x/ srcset=http://x/>"),
    *(
        "<svg><image href='http://x/'/>",
        "<math href='http://x/'>",
        "<style>@import 'http://x/'</style>",
        "<base href=x>",
    ),
    *(
        "<b style='background:url(http://x/)'>",
        "<a href='http://x/' ping='http://y/' onclick=z>",
        "<!--",
        "-->",
        "<![CDATA[",
    ),
    *("<table background=http://x/>", "<template><iframe src=x>", "<noscript><img src=x></noscript>", "</p>", "]]>"),
    *(
        "<iframe srcdoc='<iframe src=http://x/>'>",
        "<p title='<iframe src=http://x/>'>",
        "<textarea><img src=x>",
        "\x00",
    ),
    *(
        "<a href='javascript:x'>",
        "<a href='/v1/privacy'>",
        "<a href='//x/'>",
        "<title><iframe src=x>",
        "&lt;iframe&gt;",
    ),
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=12).map("".join))
def test_only_harmless_tags_and_attributes_are_left(text):
    check(text)


@pytest.mark.parametrize("text", PIECES)
def test_each_piece(text):
    check(text)


def test_the_check_sees_a_frame():
    assert "iframe" in Left("<iframe src='http://x/'>").tags
    assert not {("p", "title")} <= ALLOWED


def test_text_structure_and_absolute_links_stay():
    kept = '<p>Hi &amp; <b>ho</b> <a href="https://x.example/1" rel="noopener noreferrer nofollow">there</a></p>'
    assert clean_html("<p>Hi &amp; <b>ho</b> <a href='https://x.example/1'>there</a></p>") == kept
    for address in ("/v1/privacy", "//x.example/", "javascript:alert(1)", "data:text/html,x", "?a"):
        assert "href" not in clean_html(f"<a href='{address}'>x</a>")
    assert html_text("<p>Hi &amp; <b>ho</b></p>") == "Hi & ho"


@pytest.mark.parametrize(
    "text",
    [
        "<div>" * (MAX_TAGS + 1) + "words &amp; more",
        "<b></p>" * MAX_TAGS + "words &amp; more",
        "<a " + " ".join(f"x{i}=y" for i in range(MAX_TAGS + 2)) + ">words &amp; more",
    ],
    ids=["deep", "mismatched", "attributes"],
)
def test_what_would_take_long_is_reduced_to_its_text_without_being_parsed(text, monkeypatch):
    monkeypatch.setattr(nh3, "clean", lambda *a, **k: pytest.fail("parsed"))
    assert re.sub(r"\s+", " ", clean_html(text)).strip() == "words &amp; more"
    assert re.sub(r"\s+", " ", html_text(text)).strip() == "words & more"
