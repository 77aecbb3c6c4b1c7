"""The page in a real browser: what it shows is what the engine says, and it loads nothing from elsewhere."""

import threading
import time
from datetime import datetime, timedelta

import pytest
from tests.support.gateway import gateway
from tests.support.ports import reserved_port
from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, Failing, World

from onoff.gateway.guard import REFUSAL
from onoff.gateway.state import snapshot
from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.browser


@pytest.fixture
def port():
    """A port that one gateway gets after the other."""
    with reserved_port() as port:
        yield port


SENTENCES = {
    "ON": "Hidden. The server cannot tell which source you want.",
    "OFF": "The server sees this request, but not what you read while ON.",
}


def shown(visit):
    """The state that the page shows, by each of its means; all must agree."""
    word = visit.text("#word")
    by = {
        "ON": ("on", "true", "when-on", "ON · onoff"),
        "OFF": ("off", "false", "when-off", "OFF · onoff"),
    }[word]
    assert visit.page.get_attribute("body", "data-state") == by[0]
    assert visit.page.get_attribute("#switch", "aria-checked") == by[1]
    icons = {name: visit.page.is_visible(f".{name}") for name in ("when-on", "when-off", "when-gone")}
    assert icons == {name: name == by[2] for name in icons}
    assert visit.page.title() == by[3]
    assert visit.text("#sentence") == SENTENCES[word]
    return word


def test_it_opens_with_the_token_and_is_refused_without(visitor, local):
    stranger = visitor()
    for path in ("/v1/state", "/v1/sources/alpha", "/t/wrong/", f"/t/{local.token}/"):
        answer = stranger.page.goto(local.address.base + path)
        assert (answer.status, answer.body()) == (403, REFUSAL)
    for address in (f"{local.address.base}/", f"{local.address.base}/#wrong"):
        stranger.page.goto(address)
        stranger.see("#sentence:has-text('This page has no token, or an old one')")
        assert stranger.page.is_disabled("#switch")
    visit = visitor().open(local)
    assert visit.page.url == local.address.base + "/"  # the token is gone from the address
    assert local.token not in visit.page.content()
    assert shown(visit) == "ON"
    visit.page.reload()
    visit.see("body[data-state=on]")
    visit.page.click("footer a[href='/limits']")
    visit.see("text=What is promised")
    visit.check(local)
    assert local.world.queries == []


def test_tiles_bring_messages_and_the_charts_have_the_right_values(visitor, local):
    visit = visitor().open(local).unfold()
    assert visit.page.locator(".tile b").all_inner_texts() == list(NAMES)
    for name, word in (("beta", "ON"), ("gamma", "OFF"), ("gamma", "OFF"), ("alpha", "ON"), ("alpha", "OFF")):
        visit.turn(word)
        assert shown(visit) == word
        visit.choose(name)
        assert visit.text("#message-body pre") == f"first of {name}"
        assert f"asked with privacy {word}" in visit.text("#message-about")
        assert f"{len(local.world.sets()[-1])} of 4 messages downloaded" in visit.text("#message-about")
    visit.see("#cost [data-cost][data-step='4']")
    state = snapshot(local.engine)
    charts(visit, local, state)
    assert visit.text("#cost-text").startswith(f"{state['totals']['messages']} messages for 5 requests")
    assert visit.text("#evidence-short") == f"5 requests, {state['totals']['messages']} messages"
    visit.check(local)


def charts(visit, local, state):
    page = visit.page
    cells = page.eval_on_selector_all("#seen .asked", "es => es.map(e => [Number(e.dataset.step), e.dataset.source])")
    assert sorted(cells) == sorted([step, name] for step, asked in enumerate(local.world.sets()) for name in asked)
    marks = page.eval_on_selector_all("#seen .wanted", "es => es.map(e => e.dataset.wanted)")
    assert marks == ["beta", "gamma", "gamma", "alpha", "alpha"]
    modes = page.eval_on_selector_all("#seen [data-mode]", "es => es.map(e => e.dataset.mode)")
    assert modes == ["ON", "OFF", "OFF", "ON", "OFF"]
    costs = page.eval_on_selector_all("#cost [data-cost]", "es => es.map(e => Number(e.dataset.cost))")
    assert costs == [len(asked) for asked in local.world.sets()]
    heights = page.eval_on_selector_all("#cost [data-cost]", "es => es.map(e => e.height.baseVal.value)")
    assert heights == pytest.approx([110 * cost / 4 for cost in costs])
    bounds = page.eval_on_selector_all("#cost [data-lower]", "es => es.map(e => Number(e.dataset.lower))")
    assert bounds == pytest.approx([step["lower"] for step in state["steps"]])
    totals = {name: visit.text(f"[data-total={name}]") for name in ("all", "messages", "lower", "plain")}
    assert totals["all"] == "20"
    assert totals["messages"] == str(sum(costs))
    assert totals["plain"] == "5"
    assert float(totals["lower"]) == pytest.approx(state["totals"]["lower"], abs=0.06)
    shares = {
        kind: page.eval_on_selector_all(f".belief.{kind} progress", "es => es.map(e => Number(e.dataset.share))")
        for kind in ("ours", "naive")
    }
    assert shares["ours"] == pytest.approx([0.25] * 4, rel=1e-12)
    assert shares["naive"] == pytest.approx(state["posterior"]["naive"])
    assert max(shares["naive"]) > 0.5
    assert visit.text(".belief.ours .bits").startswith("0 bits")
    assert float(page.get_attribute(".belief.naive .bits", "data-bits")) == pytest.approx(state["totals"]["naive"])
    assert visit.text(".belief.naive .who.true") == "alpha"


def test_the_switch_shows_the_engine_whoever_turns_it(visitor, local, tmp_path):
    first, second = visitor().open(local), visitor().open(local)
    for private, word in ((False, "OFF"), (True, "ON"), (False, "OFF")):
        local.turn(private=private)
        for visit in (first, second):
            visit.see(f"#word:text-is('{word}')")
            assert shown(visit) == word
    first.page.click("#switch")
    second.see("#word:text-is('ON')")
    assert local.engine.switch.position.private
    for visit in (first, second):
        visit.check(local)


def test_after_a_restart_the_page_says_so_and_the_new_address_shows_the_engine(visitor, port, tmp_path):
    world = World()
    with gateway(tmp_path, world=world, port=port) as local:
        visit = visitor().open(local)
        visit.turn("OFF")
    visit.see("#word:text-is('Not connected')")
    assert "gateway does not answer" in visit.text("#sentence")
    assert visit.text("#next-cost") == ""  # there is no next click
    assert visit.page.get_attribute("#switch", "aria-checked") == "mixed"
    assert visit.page.is_disabled("#switch")
    with gateway(tmp_path, world=world, port=port) as local:
        again = visitor().open(local)
        assert shown(again) == "OFF"
        again.choose("delta")
        again.check(local)


def test_the_keyboard_is_enough(visitor, local):
    visit = visitor().open(local)
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.id") == "switch"
    visit.page.keyboard.press("Space")
    visit.see("#word:text-is('OFF')")
    visit.page.focus(".tile[data-source=beta]")
    visit.page.keyboard.press("Enter")
    visit.see("#message-title:text-is('beta')")
    visit.check(local)


def test_a_timer_counts_down_runs_out_and_says_so(visitor, local):
    visit = visitor().open(local).unfold()
    visit.page.select_option("#timer-for", "60")
    asked = time.time()
    visit.page.click("#timer-start")
    visit.see("#word:text-is('OFF')")
    visit.see("#countdown:has-text('OFF for another 00:')")
    assert asked + 60 <= local.engine.switch.position.until <= time.time() + 60
    visit.page.click("#timer-stop")
    visit.gone("#countdown")
    assert (local.engine.switch.position.private, local.engine.switch.position.until) == (False, None)
    local.turn(private=False, seconds=0.5)
    visit.see("#notice:has-text('The timer ran out')")
    assert shown(visit) == "ON"
    assert local.engine.switch.position.private
    visit.page.select_option("#timer-for", "until")
    far = datetime.now() + timedelta(hours=12)  # at any time of day it is far away
    visit.page.fill("#timer-until", far.strftime("%H:%M"))
    visit.page.click("#timer-start")
    visit.see("#countdown:has-text('then ON')")
    assert local.engine.switch.position.until % 60 == 0
    visit.check(local)


def test_nothing_sticks_out_at_phone_width(visitor, local):
    visit = visitor(viewport={"width": 360, "height": 780}).open(local).unfold()
    visit.choose("alpha")
    visit.turn("OFF")
    visit.choose("gamma")
    visit.see("#belief .belief")
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 360
    small = "es => es.filter(e => e.offsetParent && e.getBoundingClientRect().height < 40).map(e => e.outerHTML)"
    assert visit.page.eval_on_selector_all("button, select", small) == []
    visit.check(local)


def test_many_sources_are_found_by_name_and_a_frugal_log_shows_totals_only(visitor, tmp_path):
    names = [f"source {number}" for number in range(30)]
    chain = MarkovChain([[1 / 30] * 30] * 30, names=names)
    with gateway(tmp_path, world=World(names), chain=chain, level="counters") as local:
        visit = visitor().open(local).unfold()
        visit.page.fill("#filter", "ce 17")
        assert visit.page.locator(".tile:visible b").all_inner_texts() == ["source 17"]
        visit.choose("source 17")
        visit.see("#cost-text:has-text('30 messages for 1 requests')")
        assert visit.text("#seen") == "The log keeps no sets."
        assert visit.text("#cost") == "The log keeps totals only."
        assert visit.page.inner_html("#belief") == ""
        visit.check(local)


def test_a_table_that_is_being_built_is_announced(visitor, tmp_path, monkeypatch):
    from onoff.schemes import design
    from onoff.session import session as tables

    release = threading.Event()

    def slow(*arguments, **options):
        assert release.wait(PATIENCE)
        return design(*arguments, **options)

    monkeypatch.setattr(tables, "design", slow)
    with gateway(tmp_path) as local:
        try:
            visit = visitor().open(local)
            visit.choose("alpha")
            visit.see("#progress:has-text('Preparing the next query: a table for 4 sources')")
            visit.turn("OFF")
            visit.page.click(".tile[data-source=beta]")
            visit.see("#progress:has-text('sent when it is ready')")
        finally:
            release.set()
        visit.see("#message-title:text-is('beta')")
        visit.gone("#progress")
        visit.check(local)


def test_without_the_server_it_is_not_connected_and_the_same_request_can_be_sent_again(visitor, tmp_path):
    world = Failing()
    with gateway(tmp_path, world=world, heartbeat=0.2) as local:
        visit = visitor().open(local)
        visit.choose("alpha")
        world.down = True
        visit.see("#word:text-is('Not connected')")
        assert "The switch is set to ON." in visit.text("#sentence")
        visit.page.click(".tile[data-source=beta]")
        visit.see("#again")
        world.down = False
        visit.see("#word:text-is('ON')")
        visit.page.click("#again")
        visit.see("#message-body pre:text-is('first of beta')")
        assert [len(strings) for strings in world.byte_strings().values()] == [1, 1]
