"""A message cannot call home: whatever it is and wherever it is shown, nobody is connected to, no name is looked up.

The browser is a person's, with a profile of its own and what that switches on (preconnecting, looking up names); names
of the test lead to a listener on this machine. The page is opened, and each message, by a click and by its address.
Then a canary is visited: it is the only one that the listener and the browser's network log may know.
"""

import contextlib
import json
import re

import pytest
from playwright.sync_api import Error, sync_playwright
from tests.browser.conftest import CHROMIUM
from tests.support.calling import FRAMESET, WAYS, Listener, document, names_in
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE
from tests.support.world import World

from onoff import wire
from onoff.gateway import render
from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.browser

FEW = [way for way in WAYS if way.startswith("<iframe") or "preconnect'" in way]  # no script among them
CANARY = "canary.example"
RULES = (
    "MAP canary.example 127.0.0.1, MAP *.example looked-up.localhost, MAP * ~NOTFOUND, "
    "EXCLUDE 127.0.0.1, EXCLUDE *.localhost"
)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-component-update", f"--host-resolver-rules={RULES}"),
]
QUIETER_THAN_A_PERSON = ["--disable-background-networking", "--disable-client-side-phishing-detection"]

XML = (
    '<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="{u}"?>'
    '<!DOCTYPE x SYSTEM "{u}" [<!ENTITY e SYSTEM "{u}">]>'
)
XHTML = XML + (
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><link rel="preconnect" href="{u}"/></head>'
    '<body><iframe src="{u}"></iframe><img src="{u}"/><object data="{u}"></object></body></html>'
)
SVG = (
    '<?xml version="1.0"?><?xml-stylesheet type="text/css" href="{u}"?><svg xmlns="http://www.w3.org/2000/svg" '
    'xmlns:xlink="http://www.w3.org/1999/xlink"><image xlink:href="{u}" width="9" height="9"/><image href="{u}"/>'
    '<foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="{u}"></iframe>'
    '<link xmlns="http://www.w3.org/1999/xhtml" rel="preconnect" href="{u}"/></foreignObject>'
    '<a href="{u}"><text>x</text></a></svg>'
)
PDF = "%PDF-1.4\n1 0 obj<</Type/Catalog/OpenAction<</S/URI/URI({u})>>>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{u}\n#EXT-X-ENDLIST\n"
MHTML = (
    'MIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"; type="text/html"\n\n--b\n'
    "Content-Type: text/html\nContent-Location: {u}\n\n<iframe src='{u}'></iframe>\n--b--\n"
)
ACTIVE = {
    "image/svg+xml": SVG,
    "application/xhtml+xml": XHTML,
    "application/xml": XHTML,
    "text/xml": XHTML,
    "application/rss+xml": XHTML,
    "application/atom+xml": XHTML,
    "application/mathml+xml": XHTML,
    "text/xsl": XHTML,
    "application/pdf": PDF,
    "application/vnd.apple.mpegurl": PLAYLIST,
    "audio/mpegurl": PLAYLIST,
    "multipart/related": MHTML,
    "message/rfc822": MHTML,
    "text/css": "@import '{u}';",
    "text/javascript": "location = '{u}'",
    "text/vtt": "WEBVTT\n\n{u}",
    "application/octet-stream": XHTML,
    "application/x-shockwave-flash": XHTML,
}
LOOKING_HARMLESS = (
    "text/plain",
    "application/json",
    "image/png",
    "image/jpeg",
    "video/mp4",
    "x/unknown",
    "text/html; charset=utf-16",
)
MADE_INTO_ENTRIES = (
    *("html", "html charset", "frameset", "entry", "entry frames", "entries", "entry broken"),
    *("text plain", "text xsl", "application json", "image svg+xml", "application xhtml+xml", "application pdf"),
)
"""Messages for each way in which entries are made of one: HTML, entries, other text, JSON and XML, the rest."""


def messages(listener, ways):
    """A message of every kind that names addresses in every way it can."""
    everything, frames = "<p>shown</p>" + document(listener, ways), document(listener, [FRAMESET])
    made = {
        "html": ("text/html", everything),
        "html charset": ("text/html; charset=utf-8", everything),
        "frameset": ("text/html", frames),
        "entry": (wire.ENTRY_TYPE, _entry(listener, everything)),
        "entry frames": (wire.ENTRY_TYPE, _entry(listener, frames)),
        "entries": (
            wire.ENTRY_TYPE,
            json.dumps({"entries": [json.loads(_entry(listener, w)) for w in _halves(everything)]}),
        ),
        "entry broken": (wire.ENTRY_TYPE, everything),
    }
    for kind, text in ACTIVE.items():
        made[kind.replace("/", " ")] = (kind, text.replace("{u}", listener.address()))
    for kind in LOOKING_HARMLESS:
        made[kind.replace("/", " ")] = (kind, everything)
    return made


def _halves(text):
    lines = text.splitlines()
    return "\n".join(lines[: len(lines) // 2]), "\n".join(lines[len(lines) // 2 :])


def _entry(listener, html):
    return json.dumps(
        {"title": f"<iframe src='{listener.address()}'>", "link": listener.address(), "time": 1, "html": html}
    )


@pytest.fixture
def listener():
    with contextlib.closing(Listener()) as listening:
        yield listening


@contextlib.contextmanager
def reading(tmp_path, listener, wanted=lambda name: True, ways=WAYS):
    """A gateway to these messages, and a person's browser that opens them all and then the canary."""
    made = {name: message for name, message in messages(listener, ways).items() if wanted(name)}
    world = World(tuple(made), frame_size=64 * 1024)
    for name, (kind, text) in made.items():
        world.messages[name] = wire.WireMessage(2, 1000, kind, text.encode())
    n = len(made)
    netlog = tmp_path / "net.json"
    chain = MarkovChain([[1 / n] * n] * n, names=tuple(made))
    with gateway(tmp_path, world=world, chain=chain) as local, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"),
            executable_path=CHROMIUM,
            args=[*FLAGS, f"--log-net-log={netlog}"],
            ignore_default_args=QUIETER_THAN_A_PERSON,
            timeout=1000 * PATIENCE,
        )
        with contextlib.closing(context):
            page = context.new_page()
            page.set_default_timeout(1000 * PATIENCE)
            yield local, page, netlog
            page.goto(f"http://{CANARY}:{listener.port}/")
            listener.wait_for(CANARY)


def by_click(local, page, names):
    page.goto(local.address.page)
    page.wait_for_selector(".tile")
    for name in names:
        page.click(f"[data-source='{name}']")
        page.wait_for_selector(f"#message-title:text-is('{name}')")
        page.wait_for_selector("#message-body[data-ready=true]", state="attached")


def by_address(local, page, names, kind):
    for name in names:
        with contextlib.suppress(Error):  # a file to save is not a page
            page.goto(f"{local.address.apps}/{kind}/{name}")
            for link in page.query_selector_all("a"):
                link.hover(force=True, timeout=1000)


@pytest.mark.parametrize("all_as_entries", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_nothing_that_is_shown_connects_to_anybody_or_looks_up_a_name(tmp_path, listener, all_as_entries):
    with reading(tmp_path, listener) as (local, page, netlog):
        names = list(local.world.messages)
        assert set(names) > set(MADE_INTO_ENTRIES)
        by_click(local, page, names)
        by_click(local, page, ["html"])
        assert page.frame_locator("#message-body iframe").locator("p").first.inner_text() == "shown"
        by_address(local, page, names, "sources")
        for kind in ("entries", "feeds"):
            by_address(local, page, names if all_as_entries else MADE_INTO_ENTRIES, kind)
        assert listener.connections == 0
    assert listener.hellos == 0
    assert all(CANARY.encode() in said or said == b"" for said in listener.first_bytes)
    assert names_in(netlog) == {CANARY}


def test_a_link_is_not_connected_to_when_it_is_pointed_at(tmp_path, listener):
    with reading(tmp_path, listener, {"entry"}.__contains__) as (local, page, _):
        by_click(local, page, ["entry"])
        inside = page.frame_locator("#message-body iframe")
        assert inside.locator("a[href]").count() == 0
        link = inside.locator("a[data-leads-to]").first
        link.hover()
        link.click()
        page.wait_for_selector("#leaving")
        assert page.inner_text("#leaving-host") == f"{page.inner_text('#leaving-to').split('/')[2]}"
        page.click("#leaving-stay")
        assert listener.connections == 0


def test_without_the_cleaner_it_does(tmp_path, listener, monkeypatch):
    """Each of these messages when it is clicked, and one by its address; each has names of its own."""
    monkeypatch.setattr("onoff.wire.html.clean_html", lambda text: text)
    clicked = ["html", "entry", "entries"]
    with reading(tmp_path, listener, {*clicked, "html charset"}.__contains__, FEW) as (local, page, netlog):
        by_click(local, page, clicked)
        by_address(local, page, ["html charset"], "sources")
        sent = {name: message.body.decode() for name, message in local.world.messages.items()}
    found = names_in(netlog)
    for name in (*clicked, "html charset"):
        assert found & set(re.findall(r"t\d+\.example", sent[name])), name


def test_what_is_not_html_would_call_too_if_it_were_shown_as_it_is(tmp_path, listener, monkeypatch):
    monkeypatch.setattr(
        render, "for_browser", lambda message, _: (message.payload, {"content-type": message.media_type})
    )
    with reading(tmp_path, listener, {"image svg+xml", "application xhtml+xml"}.__contains__) as (local, page, netlog):
        by_address(local, page, list(local.world.messages), "sources")
    assert names_in(netlog) - {CANARY}
