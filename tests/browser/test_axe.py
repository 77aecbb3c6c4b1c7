"""Accessibility, judged by axe-core: no violation on any page, open or folded, at both widths and in both themes."""

import json

import pytest
from axe_playwright_python.sync_playwright import Axe
from tests.support.gateway import gateway
from tests.support.world import World

from onoff import wire
from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.browser

NAMES = tuple(f"source {number}" for number in range(12))
CHAIN = MarkovChain([[0.5 + 0.5 / 12 if x == y else 0.5 / 12 for y in range(12)] for x in range(12)], names=NAMES)
ENTRIES = [
    {
        "title": "First",
        "link": "https://news.example/1",
        "time": 2000,
        "html": "<p>Hi <a href='http://a.example'>a</a></p>",
    },
    {"title": "Second", "link": "", "time": 1000, "text": "plain"},
]
WIDTHS = {"390": {"width": 390, "height": 844}, "1280": {"width": 1280, "height": 900}}


@pytest.fixture
def reading(tmp_path):
    world = World(NAMES, frame_size=2048)
    entries = json.dumps({"entries": ENTRIES}).encode()
    world.messages["source 3"] = wire.WireMessage(2, 1000, wire.ENTRY_TYPE, entries)
    with gateway(tmp_path, world=world, chain=CHAIN, refresh=3600.0) as local:
        yield local


WHOLE_PAGES = ("document-title", "html-has-lang", "landmark-one-main", "page-has-heading-one", "region")
"""Rules for pages, not for what stands in a frame of one."""


def faults(visit, without=()):
    """What axe finds wrong now: rule and place."""
    rules = {rule: {"enabled": False} for rule in without}
    found = Axe().run(visit.page, options={"resultTypes": ["violations"], "rules": rules}).response
    assert found["testEngine"]["name"] == "axe-core"
    return [(one["id"], node["target"], node["failureSummary"]) for one in found["violations"] for node in one["nodes"]]


@pytest.mark.slow(reason="axe looks at every element of six pages")
@pytest.mark.parametrize(
    ("width", "colours"),
    [
        ("390", "dark"),
        ("1280", "light"),
        pytest.param("390", "light", marks=pytest.mark.deep),
        pytest.param("1280", "dark", marks=pytest.mark.deep),
    ],
)
def test_axe_finds_nothing_wrong(visitor, reading, width, colours):
    visit = visitor(viewport=WIDTHS[width], color_scheme=colours, reduced_motion="reduce").open(reading)
    assert faults(visit) == []
    visit.choose("source 1")
    visit.turn("OFF")
    visit.choose("source 3")
    visit.see("#message-body[data-ready=true]")
    framed = visit.page.get_attribute("#message-body iframe", "srcdoc")
    card = visit.page.eval_on_selector("#message", "card => getComputedStyle(card).backgroundColor")
    visit.unfold()
    visit.see("#belief .belief")
    visit.page.click("#remember")
    visit.see("#forget")
    assert faults(visit) == []
    visit.turn("ON")
    assert faults(visit) == []
    visit.page.click("#message-body h3 button")
    visit.see("#leaving-open")
    assert faults(visit) == []
    for path in ("limits", "api"):
        visit.page.goto(f"{reading.address.base}/{path}")
        visit.see("main h2")
        assert faults(visit) == []
    # Nothing runs in the frame of a message, so what it holds is judged as a page of its own.
    visit.context.route("**/framed", lambda route: route.fulfill(body=framed, content_type="text/html"))
    visit.page.goto(f"{reading.address.base}/framed")
    visit.see("a[data-leads-to]")
    visit.page.evaluate("colour => { document.documentElement.style.backgroundColor = colour; }", card)
    assert faults(visit, without=WHOLE_PAGES) == []


def test_axe_finds_what_is_wrong(visitor, reading):
    """Else its silence would say nothing."""
    visit = visitor().open(reading)
    visit.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    visit.page.evaluate("document.getElementById('sentence').setAttribute('class', 'side')")
    visit.page.evaluate("document.querySelector('.lead').style.color = '#ddd'")
    assert {rule for rule, _, _ in faults(visit)} >= {"button-name", "color-contrast"}
