"""The page with two real servers: what each saw, what they would know together, and one of them killed and back."""

import pytest
from tests.support.gateway import gateway
from tests.support.servers import two_servers
from tests.support.waiting import until
from tests.support.world import NAMES

from onoff.client.copies import fetch_edition_of
from onoff.gateway.state import snapshot
from onoff.upstream.message_server import publish

from .test_axe import WIDTHS, faults

pytestmark = pytest.mark.browser

SELDOM = 3600.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with two_servers(tmp_path_factory.mktemp("servers"), NAMES) as (leader, follower, token):
        for name in NAMES:
            publish(leader.url, token, name, f"first of {name}".encode(), "text/plain")
        until(lambda: fetch_edition_of(follower.url) == fetch_edition_of(leader.url))
        yield leader, follower


@pytest.fixture
def local(tmp_path, servers):
    with gateway(tmp_path, url=[server.url for server in servers], refresh=SELDOM, heartbeat=0.2) as running:
        yield running


def drawn_sets(visit, place):
    """What the page draws of what one server saw: step -> sources."""
    cells = visit.page.eval_on_selector_all(
        f"[data-server='{place}'] .asked", "es => es.map(e => [Number(e.dataset.step), e.dataset.source])"
    )
    steps = visit.page.eval_on_selector_all(f"[data-server='{place}'] [data-mode]", "es => es.map(e => e.dataset.step)")
    return {int(step): {name for at, name in cells if at == int(step)} for step in steps}


def test_both_positions_and_what_each_server_saw(visitor, local, servers):
    visit = visitor().open(local).unfold()
    assert visit.text("#sentence") == "Hidden. No server by itself can tell which source you want."
    asked = [("beta", "ON"), ("gamma", "OFF"), ("gamma", "OFF"), ("alpha", "ON"), ("delta", "OFF")]
    for name, word in asked:
        visit.turn(word)
        visit.choose(name)
        assert visit.text("#message-body pre") == f"first of {name}"
        assert f"asked with privacy {word}" in visit.text("#message-about")
        assert "of 4 messages downloaded" in visit.text("#message-about")
    visit.see("#together-known [data-step='4']")
    assert visit.text("#evidence-title") == "What each server saw"
    assert visit.page.locator("[data-server] h3").all_inner_texts() == [server.url for server in servers]
    first, second = drawn_sets(visit, 0), drawn_sets(visit, 1)
    assert list(first) == list(second) == list(range(5))
    for step, (name, _) in enumerate(asked):
        assert first[step] ^ second[step] == {name}
        assert len(first[step]) % 2 == 0
    known = visit.page.eval_on_selector_all("#together-known li", "es => es.map(e => e.dataset.known)")
    assert known == [name for name, _ in asked]
    state = snapshot(local.engine)
    assert visit.text("#evidence-short") == f"5 requests, {state['totals']['messages']:g} messages"
    for place, server in enumerate(state["servers"]):
        assert f"{server['queries']} requests" in visit.text(f"[data-server='{place}'] .hint")
    visit.check(local)


@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_wrong_and_nothing_is_wider_than_the_page(visitor, local, width):
    visit = visitor(viewport=WIDTHS[width], reduced_motion="reduce").open(local).unfold()
    visit.choose("beta")
    visit.see("#together-known [data-known='beta']")
    assert faults(visit) == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") == WIDTHS[width]["width"]


def test_without_a_model_the_switch_says_that_every_request_is_private(visitor, tmp_path, servers):
    urls = [server.url for server in servers]
    with gateway(tmp_path, url=urls, chain=False, refresh=SELDOM) as local:
        visit = visitor().open(local)
        visit.turn("OFF")
        visit.see("#sentence:has-text('Without a model every request is private: OFF hides as much as ON.')")
        visit.choose("delta")
        assert "asked with privacy ON" in visit.text("#message-about")
        visit.see("#next-cost:has-text('The next click downloads about 1.9 messages')")
        visit.check(local)


def test_a_killed_server_is_named_and_the_same_request_works_when_it_is_back(visitor, local, servers):
    _, follower = servers
    visit = visitor().open(local).unfold()
    visit.choose("beta")
    follower.kill()
    visit.see("#word:text-is('A server is missing')")
    assert follower.url in visit.text("#sentence")
    assert "All of them are needed" in visit.text("#sentence")
    visit.see("[data-server='1'] .hint:has-text('It does not answer now.')")
    visit.page.click(".tile[data-source='gamma']")
    visit.see("#again:visible")
    assert follower.url in visit.text("#message-about")
    follower.start()
    visit.see("#word:text-is('ON')")
    visit.page.click("#again")
    visit.see("#message-body pre:text-is('first of gamma')")
    assert visit.page.is_hidden("#again")
