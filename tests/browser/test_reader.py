"""The page as a reader uses it: on a phone, by keyboard alone, with five and with five thousand sources."""

import json
import shlex
from urllib.parse import urlsplit

import pytest
from tests.support.gateway import gateway
from tests.support.waiting import until
from tests.support.world import NAMES, World

from onoff import wire
from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.browser

SELDOM = 3600.0
PHONE = {"viewport": {"width": 390, "height": 844}}
DESKTOP = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture
def mirrored(tmp_path):
    with gateway(tmp_path, refresh=SELDOM) as local:
        yield local


def many(tmp_path, count):
    """A gateway without a model before that many sources."""
    world = World(tuple(f"source {number}" for number in range(count)))
    return gateway(tmp_path, world=world, chain=False, refresh=SELDOM)


def shown(visit):
    return visit.page.locator(".tile b").all_inner_texts()


def test_the_first_line_says_what_it_is_and_the_evidence_is_one_tap_away(visitor, mirrored):
    visit = visitor().open(mirrored)
    assert visit.text(".lead") == "Read your sources without telling their server which ones you read."
    assert not visit.page.is_visible("#seen")
    visit.page.click("#evidence > summary")
    visit.see("#seen")  # it is drawn after the page hears that it was unfolded
    visit.check(mirrored)


def test_while_on_all_is_readable_and_marked_until_read_also_after_a_reload(visitor, mirrored):
    visit = visitor().open(mirrored)
    visit.see("#show-new:text-is('New 4')")
    visit.choose("beta")
    assert visit.text("#message-body pre") == "first of beta"
    assert "nobody was asked" in visit.text("#message-about")
    assert "The next click downloads nothing." in visit.text("#next-cost")
    visit.see("#show-new:text-is('New 3')")
    visit.page.reload()
    visit.see("#show-new:text-is('New 3')")
    visit.page.click("#show-new")
    assert sorted(shown(visit)) == ["alpha", "delta", "gamma"]
    mirrored.world.publish("beta", b"second of beta")
    visit.page.click("#refresh")
    visit.see("#show-new:text-is('New 4')")
    visit.page.click("#mark-all")
    visit.see("#show-new:text-is('New 0')")
    assert visit.text("#none") == "Nothing is new."
    assert mirrored.world.queries == []
    visit.check(mirrored)


def test_off_says_what_the_next_click_costs_before_it_is_made(visitor, mirrored):
    visit = visitor().open(mirrored)
    visit.choose("beta")
    visit.turn("OFF")
    says = ("The next click downloads about", "messages, about", "An hour of ON takes about")
    visit.see(
        "#next-cost" + "".join(f":has-text('{each}')" for each in says)
    )  # at once: it is worked out again meanwhile
    visit.choose("gamma")
    assert "asked with privacy OFF" in visit.text("#message-about")
    assert len(mirrored.world.queries) == 1


def test_a_tap_on_a_phone_brings_the_message_into_view_and_back(visitor, tmp_path):
    with many(tmp_path, 120) as local:
        visit = visitor(**PHONE, has_touch=True).open(local)
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
        tile = visit.page.locator(".tile").nth(3)
        tile.tap()
        visit.see("#message-body[data-ready=true]")
        inside = "document.getElementById('message-title').getBoundingClientRect()"
        until(lambda: visit.page.evaluate(f"{inside}.top >= 0 && {inside}.bottom <= innerHeight"))
        visit.page.tap("#back")
        until(lambda: visit.page.evaluate("document.getElementById('sources').getBoundingClientRect().top >= -1"))
        visit.check(local)


def test_a_link_says_where_it_leads_and_opens_beside_the_message_without_referrer(visitor, tmp_path, elsewhere):
    # With an icon of its own: a browser asks for /favicon.ico at some time after the page was loaded, or even closed.
    elsewhere.pages["/article"] = "<!doctype html><link rel=icon href='data:,'><title>there</title>"
    world = World(frame_size=8192)
    link = f"{elsewhere.url}/article"
    entries = [
        {"title": "Old", "link": link, "time": 1000, "html": "<p>older</p>"},
        {"title": "New", "link": link, "time": 9000, "html": f"<p>newer <a href='{link}'>more</a></p>"},
    ]
    world.messages["beta"] = wire.WireMessage(2, 1000, wire.ENTRY_TYPE, json.dumps({"entries": entries}).encode())
    with gateway(tmp_path, world=world, refresh=SELDOM) as local:
        visit = visitor().open(local)
        visit.choose("beta")
        visit.see("#message-body[data-ready=true]")
        assert visit.page.locator("#message-body h3").all_inner_texts() == ["New", "Old"]
        in_the_entry = visit.page.frame_locator("#message-body iframe").first.locator("a")
        in_its_title = visit.page.locator("#message-body h3 button").first
        for opened_before, press in enumerate((in_the_entry.click, in_its_title.click)):
            press()
            visit.see("#leaving")
            assert visit.text("#leaving-host") == urlsplit(link).netloc
            assert visit.text("#leaving-to") == link
            assert elsewhere.requests == ["/article"] * opened_before
            visit.page.click("#leaving-stay")
            press()
            with visit.context.expect_page() as opened:
                visit.page.click("#leaving-open")
            opened.value.wait_for_load_state()
            assert opened.value.title() == "there"
            assert opened.value.evaluate("document.referrer + String(window.opener)") == "null"
            opened.value.close()
            assert visit.text("#message-title") == "beta"
            visit.gone("#leaving")
            told = [value for name, value in elsewhere.headers if name.lower() in {"referer", "cookie", "origin"}]
            assert not any(str(local.port) in value for value in told)


def test_entries_are_newest_first_and_the_older_ones_behind_a_button(visitor, tmp_path):
    def feed(numbers):
        entries = [{"title": f"E{k}", "link": f"http://a.example/{k}", "time": 1000 * k, "text": "x"} for k in numbers]
        return wire.WireMessage(2 + max(numbers), 1000, wire.ENTRY_TYPE, json.dumps({"entries": entries}).encode())

    world = World(frame_size=8192)
    world.messages["beta"] = feed(range(25))
    with gateway(tmp_path, world=world, refresh=SELDOM) as local:
        visit = visitor().open(local)
        visit.see(".tile[data-source=beta] .newest:text-is('E24')")
        visit.page.fill("#filter", "e24")  # titles are searched too
        visit.choose("beta")
        visit.see("#message-body[data-ready=true]")
        heads = visit.page.locator("#message-body h3")
        assert heads.all_inner_texts() == [f"E{k}" for k in reversed(range(5, 25))]
        visit.page.click("#earlier:text-is('Show earlier entries (5 left)')")
        assert heads.all_inner_texts() == [f"E{k}" for k in reversed(range(25))]
        visit.check(local)


def test_what_never_left_is_shown_as_such(visitor, tmp_path):
    from onoff.upstream.transport import Failure, Http

    class Line:
        cut = False

        def exchange(self, request):
            if self.cut:
                return Failure("connection refused", left=False)
            return Http(local.engine.urls[0], timeout=60).exchange(request)

    line = Line()
    with gateway(tmp_path, transport=line) as local:
        visit = visitor().open(local).unfold()
        visit.choose("alpha")
        line.cut = True
        visit.page.click(".tile[data-source=beta]")
        visit.see("#again")
        visit.see("#evidence-short:text-is('1 request, 4 messages, 1 request never left')")
        assert visit.page.locator("#seen .mode-unsent").count() == 1
        assert visit.page.locator("#cost [data-cost]").count() == 1
        assert "never left" in visit.text("#steps tr:first-child")
        assert visit.text("[data-total=plain]") == "1"


@pytest.mark.parametrize("count", [5, pytest.param(120, marks=pytest.mark.deep), 5000])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["390", "1280"])
def test_any_number_of_sources_fits_the_page(visitor, tmp_path, count, size):
    with many(tmp_path, count) as local:
        visit = visitor(**size).open(local).unfold()
        visit.see(f"#show-all:text-is('All {count}')")
        assert visit.page.evaluate("document.documentElement.scrollWidth") == size["viewport"]["width"]
        assert visit.page.evaluate("document.querySelectorAll('*').length") < 700  # however many there are
        wanted = f"source {count - 1}"
        visit.page.fill("#filter", wanted)
        assert shown(visit) == [wanted]
        visit.choose(wanted)
        assert visit.text("#message-body pre") == f"first of {wanted}"
        visit.page.fill("#filter", "")
        if count > 60:
            before = len(shown(visit))
            visit.page.click("#more")
            assert len(shown(visit)) == 2 * before
        assert local.world.queries == []
        visit.check(local)


def test_the_strip_sums_up_many_sources(visitor, tmp_path):
    names = tuple(f"source {number}" for number in range(120))
    chain = MarkovChain([[1 / 120] * 120] * 120, names=names)
    with gateway(tmp_path, world=World(names), chain=chain) as local:
        visit = visitor().open(local).unfold()
        visit.page.fill("#filter", "source 17")
        visit.choose("source 17")
        visit.turn("OFF")
        visit.choose("source 17")
        visit.see("#seen [data-step='1']")
        shares = visit.page.eval_on_selector_all(
            "#seen [data-step='0'][data-share]", "es => es.map(e => Number(e.dataset.share))"
        )
        assert shares == [1.0] * 24
        assert visit.page.locator(".belief .who").count() <= 16
        assert visit.page.get_attribute("#seen .wanted >> nth=0", "data-wanted") == "source 17"
        visit.check(local)


def test_the_page_says_which_model_is_in_use_and_remembers_open_requests_only_if_told(visitor, tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.client.consent.LEAST_REQUESTS", 2)
    with gateway(tmp_path, refresh=SELDOM, about={"guess": "sticky"}, accept_leak=True) as local:
        visit = visitor().open(local)
        assert visit.text("#learning-short") == "a guess (sticky)"
        visit.page.click("#learning > summary")
        assert "In use: a chain of 4 sources. A guess (sticky), learnt from nobody." in visit.text("#model-text")
        assert visit.page.locator("#model-text code").all_inner_texts() == ["onoff audit traces"]
        visit.turn("OFF")
        visit.choose("alpha")
        visit.page.click("#remember")
        visit.see("#learning-text:has-text('0 requests made while OFF. A model needs 2.')")
        visit.choose("beta")
        visit.turn("ON")
        visit.choose("delta")
        visit.turn("OFF")
        visit.choose("gamma")
        visit.see("#learning-text:has-text('2 requests made while OFF. Enough to learn a model from:')")
        assert visit.text("#learning-command").startswith(
            f"onoff learn --from-gateway --server {local.engine.urls[0]} "
        )
        kept = (tmp_path / "journal.open.jsonl").read_text()
        assert [name for name in NAMES if name in kept] == ["beta", "gamma"]
        visit.page.click("#forget")
        visit.see("#remember")
        assert not list(tmp_path.glob("*.open*"))
        visit.check(local)


def test_without_a_model_the_page_says_so_and_what_off_would_save(visitor, tmp_path):
    with gateway(tmp_path, chain=False, refresh=SELDOM) as local:
        visit = visitor().open(local)
        assert visit.text("#learning-short") == "none in use"
        assert "with one, OFF would ask for a few messages" in visit.text("#next-cost")


# -- for everybody -----------------------------------------------------------------------------------------


def by_tab(visit):
    """Presses Tab until what it is called with has the focus."""

    def until_focused(selector):
        for _ in range(40):
            if visit.page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
                return
            visit.page.keyboard.press("Tab")
        raise AssertionError(f"{selector} is not reached by Tab")

    return until_focused


def test_the_keyboard_alone_goes_into_a_message_to_a_link_and_back_on_a_phone(visitor, tmp_path):
    world = World(frame_size=8192)
    entries = [
        {"title": "T", "link": "http://a.example/", "time": 1, "html": "<p><a href='http://b.example/'>b</a></p>"}
    ]
    world.messages["gamma"] = wire.WireMessage(2, 1000, wire.ENTRY_TYPE, json.dumps({"entries": entries}).encode())
    with gateway(tmp_path, world=world, refresh=SELDOM) as local:
        visit = visitor(**PHONE).open(local)
        keys, until_focused = visit.page.keyboard, by_tab(visit)
        until_focused(".tile[data-source=gamma]")
        keys.press("Space")
        visit.see("#message-body[data-ready=true]")
        for place, host in (("#message-body h3 button", "a.example"), ("#message-body iframe", "b.example")):
            until_focused(place)
            keys.press("Enter")
            visit.see("#leaving")
            assert visit.text("#leaving-host") == host
            keys.press("Escape")
            visit.gone("#leaving")
        until_focused("#back")
        keys.press("Enter")
        assert visit.page.evaluate("document.activeElement.dataset.source") == "gamma"
        visit.check(local)


def test_the_keyboard_alone_reads_a_message_and_turns_the_switch(visitor, mirrored):
    visit = visitor().open(mirrored)
    keys, until_focused = visit.page.keyboard, by_tab(visit)
    until_focused("#switch")
    keys.press("Space")
    visit.see("#word:text-is('OFF')")
    until_focused("#filter")
    keys.type("gam")
    until_focused(".tile[data-source=gamma]")
    keys.press("Enter")
    visit.see("#message-body pre:text-is('first of gamma')")
    assert visit.page.evaluate("document.activeElement.dataset.source") == "gamma"  # the place is kept
    until_focused("#evidence > summary")
    keys.press("Enter")
    visit.see("#seen .asked")


NAMELESS = """() => {
  const text = (id) => document.getElementById(id)?.textContent.trim();
  const named = (e) => e.getAttribute('aria-label') || e.getAttribute('title') || e.textContent.trim()
    || e.labels?.length || (e.getAttribute('aria-labelledby') || '').split(' ').some(text);
  const kinds = 'button, a[href], input, select, textarea, summary, [tabindex], [role=img], progress, iframe';
  const visible = [...document.querySelectorAll(kinds)].filter((e) => e.offsetParent !== null || e.closest('svg'));
  return visible.filter((e) => !named(e)).map((e) => e.outerHTML);
}"""
STRUCTURE = """() => {
  const all = (what) => [...document.querySelectorAll(what)], faults = [];
  const ids = all('[id]').map((e) => e.id);
  if (new Set(ids).size !== ids.length) faults.push('an id twice');
  for (const name of ['aria-labelledby', 'aria-describedby', 'for']) {
    for (const id of all(`[${name}]`).flatMap((e) => e.getAttribute(name).split(' '))) {
      if (!document.getElementById(id)) faults.push(`no #${id}`);
    }
  }
  const levels = all('h1, h2, h3').map((e) => Number(e.tagName[1]));
  if (levels.filter((l) => l === 1).length !== 1) faults.push('not one h1');
  levels.forEach((l, i) => { if (i && l > levels[i - 1] + 1) faults.push(`h${levels[i - 1]} then h${l}`); });
  for (const child of all('ul > *, ol > *')) if (child.tagName !== 'LI') faults.push(`${child.tagName} in a list`);
  if (all('img:not([alt])').length) faults.push('an image without alt');
  if (!document.documentElement.lang) faults.push('no language');
  if (all('main').length !== 1) faults.push('not one main');
  if (all('button button, a a, button a, a button').length) faults.push('a control in a control');
  return faults;
}"""
CONTRAST = """(pairs) => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = (name) => {
    canvas.fillStyle = getComputedStyle(document.body).getPropertyValue(name).trim();
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  return pairs.map((pair) => pair.map(luminance)).map(([a, b]) => Math.max(a, b) / Math.min(a, b));
}"""


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "limits", "api"])
def test_names_structure_and_contrast_are_there_for_everybody(visitor, mirrored, colours, path):
    visit = visitor(color_scheme=colours).open(mirrored)
    if path:
        visit.page.goto(f"{mirrored.address.base}/{path}")
        visit.see("main h1, header h1")
    else:
        visit.choose("alpha")
        visit.turn("OFF")
        visit.choose("beta")
        visit.unfold()
        visit.see("#belief .belief")
    assert visit.page.evaluate(NAMELESS) == []
    assert visit.page.evaluate(STRUCTURE) == []
    text = [
        ("--ink", "--card"),
        ("--soft", "--card"),
        ("--soft", "--paper"),
        ("--ink", "--paper"),
        ("--on", "--on-wash"),
    ]
    text += [
        ("--off", "--off-wash"),
        ("--ink", "--on-wash"),
        ("--soft", "--on-wash"),
        ("--soft", "--off-wash"),
        ("--on-ink", "--on"),
    ]
    fills = [(front, "--card") for front in ("--asked", "--on", "--off", "--leak")]
    fills.append(("--wanted", "--asked"))
    assert min(visit.page.evaluate(CONTRAST, text)) >= 4.5
    assert min(visit.page.evaluate(CONTRAST, fills)) >= 3


def test_the_checks_see_what_is_wrong(visitor, mirrored):
    visit = visitor().open(mirrored)
    visit.page.evaluate("document.body.append(document.createElement('button'), document.createElement('h1'))")
    visit.page.evaluate("document.body.lastChild.id = 'word'")
    assert visit.page.evaluate(NAMELESS) == ["<button></button>"]
    assert set(visit.page.evaluate(STRUCTURE)) >= {"an id twice", "not one h1"}
    assert visit.page.evaluate(CONTRAST, [("--card", "--card")]) == [1]


def test_each_line_of_curl_does_what_it_says(visitor, mirrored):
    visit = visitor().open(mirrored)
    visit.page.goto(f"{mirrored.address.base}/api")
    visit.see(".call code")
    lines = visit.page.locator(".call code").all_inner_texts()
    assert len(lines) >= 15
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "curl"
        headers = [tuple(words[at + 1].split(": ", 1)) for at, word in enumerate(words) if word == "-H"]
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        body = words[words.index("-d") + 1].encode() if "-d" in words else b""
        path = urlsplit(words[-1]).path
        if path == "/v1/events":
            continue  # it never ends
        if "X-Privacy-Expected" in line:
            mirrored.turn(private=True)
        answer = mirrored.send(method, path, headers, body)
        assert answer.status == 200, (line, answer.body)
    assert mirrored.get("/v1/schedule").json["rules"] == ["ON mon-fri 09:00-17:00"]


def test_the_addresses_of_feeds_are_listed_for_a_reader_program(visitor, mirrored):
    answer = mirrored.send("GET", f"/t/{mirrored.app_token}/v1/feeds.opml")
    assert answer.headers["content-type"].startswith("text/x-opml")
    assert all(f"/v1/feeds/{name}".encode() in answer.body for name in NAMES)
