"""The page before a web site: the map, what it says the site was asked, costs against staying ON, the way back."""

import contextlib
import math

import numpy as np
import pytest
from tests.browser.test_axe import WIDTHS, faults
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE, until
from tests.support.website import Answer, website

from onoff.gateway.state import snapshot
from onoff.model.chain import MarkovChain
from onoff.upstream.sources import Source, SourceList
from onoff.upstream.transport import origin_of
from onoff.upstream.web import Web

pytestmark = pytest.mark.browser


def stops(n):
    return [f"Stop {at}" for at in range(n)]


def place(at):
    """On a spiral, so that no two stops are at one place."""
    return 47.37 + 0.002 * at * math.sin(2.4 * at), 8.54 + 0.003 * at * math.cos(2.4 * at)


@contextlib.contextmanager
def city(folder, n=8, chain=None, *, places=True, **options):
    names = stops(n)
    with website() as site:
        site.answers = {f"/{at}": Answer(b"tram 4 in 3 min", headers={"content-type": "text/plain"}) for at in range(n)}
        listed = tuple(
            Source(name, f"{site.url}/{at}", str(at), place(at) if places else None) for at, name in enumerate(names)
        )
        web = Web(SourceList(listed, hosts=frozenset({origin_of(site.url)}), every=3600.0, **options))
        model = MarkovChain(np.eye(n) * 0.7 + 0.3 / n, names=names) if chain is None else chain
        with gateway(folder, url=web, chain=model) as local:
            local.engine.refresher.first.result(PATIENCE)
            yield local, site


def asked_on_the_map(visit):
    return visit.page.eval_on_selector_all("#map circle.asked", "es => es.map(e => e.dataset.source)")


def test_the_map_shows_what_the_site_was_asked_and_what_was_wanted(visitor, tmp_path):
    with city(tmp_path) as (local, site):
        visit = visitor().open(local)
        visit.see("#map-text:has-text('the site was asked for everything')")
        assert asked_on_the_map(visit) == stops(8)
        assert "all 8 sources, by the clock" in visit.text("#sentence")
        visit.choose("Stop 2")
        visit.see("#map [data-wanted='Stop 2']")
        visit.turn("OFF")
        site.log.clear()
        visit.choose("Stop 3")
        visit.see("#map [data-wanted='Stop 3']")
        visit.see("#map-text:has-text('the site was asked for')")
        assert asked_on_the_map(visit) == [f"Stop {target[1:]}" for target in site.targets]
        visit.see("#map-beliefs")
        state = snapshot(local.engine)
        for kind in ("ours", "naive"):
            shares = visit.page.eval_on_selector_all(f"#map-{kind} .share", "es => es.map(e => +e.dataset.share)")
            assert shares == pytest.approx([share for share in state["posterior"][kind] if share > 0])
        assert visit.text("#map-ours-text") == "All places are equally likely."
        visit.check(local)


def test_costs_are_compared_with_staying_on_which_may_be_cheaper(visitor, tmp_path):
    with city(tmp_path) as (local, site):
        visit = visitor().open(local)
        visit.turn("OFF")
        visit.page.click("#evidence > summary")
        visit.choose("Stop 5")
        visit.see("#cost-text:has-text('Staying ON would have been cheaper in requests and bytes.')")
        assert visit.text("[data-total=always]") == "8"
        assert visit.text("[data-total=requests]") == str(len(site.targets)) == "16"
        local.engine.started -= 10 * 3600.0  # ten hours of ON would have been ten refreshes more
        local.engine.board.changed()
        visit.see("#cost-text:has-text('fewer requests than staying ON')")
        assert visit.text("[data-total=always]") == "88"
        visit.check(local)


def test_the_back_button_leads_from_a_message_to_the_list(visitor, tmp_path):
    with city(tmp_path) as (local, _):
        visit = visitor(viewport={"width": 390, "height": 700}).open(local)
        visit.choose("Stop 6")
        until(
            lambda: visit.page.evaluate(
                "document.getElementById('message').getBoundingClientRect().top < innerHeight / 2"
            )
        )
        assert "6" not in visit.page.url.partition("//")[2].partition("/")[2]
        visit.page.go_back()
        until(lambda: visit.page.evaluate("document.activeElement.dataset.source === 'Stop 6'"))
        assert visit.page.evaluate("document.getElementById('sources').getBoundingClientRect().top < innerHeight / 2")
        visit.choose("Stop 7")
        until(
            lambda: visit.page.evaluate(
                "document.getElementById('message').getBoundingClientRect().top < innerHeight / 2"
            )
        )
        visit.page.click("#back")
        until(lambda: visit.page.evaluate("document.activeElement.dataset.source === 'Stop 7'"))
        visit.check(local)


def test_the_keyboard_walks_over_the_map_and_opens_a_stop(visitor, tmp_path):
    with city(tmp_path) as (local, _):
        visit = visitor().open(local)
        visit.see("#map circle")
        visit.page.focus("#map")
        seen = set()
        for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"):
            visit.page.keyboard.press(key)
            seen.add(visit.page.get_attribute("#map .cursor", "data-cursor"))
        assert len(seen) > 1
        here = visit.page.get_attribute("#map .cursor", "data-cursor")
        assert visit.text("#map-here") == f"{here}. Enter opens it."
        visit.page.keyboard.press("Enter")
        visit.see(f"#message-title:text-is('{here}')")
        visit.check(local)


def test_a_dot_is_a_link_to_its_stop(visitor, tmp_path):
    with city(tmp_path) as (local, _):
        visit = visitor().open(local)
        visit.page.click("#map circle[data-source='Stop 4']")
        visit.see("#message-title:text-is('Stop 4')")
        visit.check(local)


@pytest.mark.parametrize("n", [500, pytest.param(5000, marks=pytest.mark.deep)])
def test_many_stops_are_dots_and_nothing_sticks_out(visitor, tmp_path, n):
    with city(tmp_path, n=n, chain=False, connections=8) as (local, _):
        visit = visitor(viewport=WIDTHS["390"]).open(local)
        visit.see(f"#map path.asked[data-count='{n}']")
        assert visit.page.locator("#map *").count() < 10
        assert visit.page.locator(".tile").count() < 100
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
        visit.page.fill("#filter", "Stop 321")
        visit.choose("Stop 321")
        visit.see("#map [data-wanted='Stop 321']")
        visit.check(local)


def test_without_places_there_is_no_map(visitor, tmp_path):
    with city(tmp_path, places=False) as (local, _):
        visit = visitor().open(local)
        visit.choose("Stop 1")
        assert visit.page.is_hidden("#map-card")
        visit.check(local)


def test_a_site_that_does_not_answer_is_named(visitor, tmp_path):
    with city(tmp_path) as (local, site):
        visit = visitor().open(local)
        site.answers = dict.fromkeys(site.answers, Answer(status=404))
        visit.page.click("#refresh")
        visit.see("#sentence:has-text('The site does not answer')")
        until(lambda: snapshot(local.engine)["connected"] is False)
        visit.choose("Stop 1")  # the copy that is here
        visit.check(local)


@pytest.mark.slow(reason="axe looks at every element of a page")
@pytest.mark.parametrize(("width", "colours"), [("390", "dark"), ("1280", "light")])
def test_axe_finds_nothing_wrong_with_the_map(visitor, tmp_path, width, colours):
    with city(tmp_path) as (local, _):
        visit = visitor(viewport=WIDTHS[width], color_scheme=colours).open(local).unfold()
        visit.choose("Stop 2")
        visit.turn("OFF")
        visit.choose("Stop 3")
        visit.see("#map-beliefs")
        assert faults(visit) == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") == WIDTHS[width]["width"]
        visit.check(local)
