"""The cleaner: what is left of HTML names no address but that of a link, whatever the fragment."""

import re
from html.parser import HTMLParser

import nh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff.wire.html import CLEANING_BUDGET, TAGS, Cleaner, clean_html, html_text, work_of


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


LONG = {
    "deep": "<div>" * 10_000,
    "mismatched": "<b></p>" * 1_000,
    "attributes": "<a " + " ".join(f"x{i}=y" for i in range(10_000)) + ">",
    "opened again in every block": "<p>" + "".join(f"<B id={i}>" for i in range(1_000)) + "</p>" + "<p>" * 1_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_what_would_take_long_is_reduced_to_its_text_without_being_parsed(text, monkeypatch):
    monkeypatch.setattr(nh3, "clean", lambda *a, **k: pytest.fail("parsed"))
    text += "words &amp; more"
    assert re.sub(r"\s+", " ", clean_html(text)).strip() == "words &amp; more"
    assert re.sub(r"\s+", " ", html_text(text)).strip() == "words & more"


def test_a_long_article_is_not_reduced():
    text = "<p>One <b>bold</b> word and <a href='https://x.example/'>a link</a>.</p>" * 250
    assert clean_html(text).count("<b>bold</b>") == 250


def test_a_cleaner_has_one_budget_for_all_it_is_given():
    cleaner, fragment = Cleaner(), "<i>x</i>" * 300
    assert CLEANING_BUDGET // 2 > work_of(fragment) > CLEANING_BUDGET // 8
    kept = [cleaner.clean(fragment).count("<i>") for _ in range(8)]
    assert kept == sorted(kept, reverse=True)
    assert (kept[0], kept[-1]) == (300, 0)


@pytest.mark.parametrize("digits", ["9" * 5000, "x" + "f" * 5000, "1114112", "0"])
def test_no_reference_to_a_character_is_an_error(digits):
    """int() refuses thousands of digits. One such message ended the refreshing of every gateway."""
    text = f"&#{digits};"
    assert "\ufffd" in clean_html("<b>" * 10_001 + text)
    assert "\ufffd" in clean_html(text)
    assert "\ufffd" in html_text("<b>" * 10_001 + text)


def test_text_that_cannot_be_encoded_is_marked():
    assert clean_html("<p>\ud800") == "<p>?</p>"
    assert html_text("<b>" * 10_001 + "\ud800") == html_text("\ud800") == "?"


def test_a_panic_of_the_library_leaves_the_text(monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(*args, **rules):
        raise PanicException

    monkeypatch.setattr(nh3, "clean", panic)
    assert (clean_html("<p>a &lt; b</p>").strip(), html_text("<p>a &lt; b</p>")) == ("a &lt; b", "a < b")
