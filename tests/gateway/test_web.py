"""The gateway before ordinary web sites: what it serves, and that the sites see nothing of what is wanted."""

import contextlib
import threading

import numpy as np
import pytest
from tests.support.gateway import gateway
from tests.support.waiting import PATIENCE
from tests.support.website import Answer, website

from onoff import MarkovChain
from onoff.errors import CatalogueMismatch, OnOffError
from onoff.gateway.engine import Engine
from onoff.gateway.state import snapshot
from onoff.upstream.budget import Budget
from onoff.upstream.sources import Source, SourceList
from onoff.upstream.transport import origin_of
from onoff.upstream.web import Web

STOPS = ("Central", "Harbour", "Lake", "Museum")
TEXT = {"content-type": "text/plain; charset=utf-8"}


def rides(stay=0.7):
    return MarkovChain(np.eye(4) * (stay - 0.1) + 0.1, names=STOPS)


@contextlib.contextmanager
def city(folder, *, chain=None, broken=(), **options):
    """A site with four stops, those in `broken` answered by 503, and a gateway before it that has refreshed once."""
    answers = {stop: Answer(f"tram from {stop}".encode(), headers=TEXT) for stop in STOPS}
    with website(**{**answers, **dict.fromkeys(broken, Answer(status=503))}) as site:
        listed = tuple(Source(stop, f"{site.url}/{stop}", stop) for stop in STOPS)
        sources = SourceList(listed, hosts=frozenset({origin_of(site.url)}), **options)
        web = Web(sources, sleep=lambda seconds: None)
        with gateway(folder, url=web, chain=rides() if chain is None else chain) as local:
            local.engine.refresher.first.result(PATIENCE)
            quiet(local)
            yield local, site


def quiet(local):
    """Wait until both threads of the gateway have done all that is due by now."""
    for later in (local.engine._work.put, lambda work: local.engine.deadlines.after(0, work)):
        done = threading.Event()
        later(done.set)
        assert done.wait(PATIENCE)


def test_while_on_everything_is_asked_for_by_the_clock_and_reading_is_local(tmp_path):
    with city(tmp_path) as (local, site):
        assert site.targets == [f"/{stop}" for stop in STOPS]
        for stop in ("Museum", "Lake", "Museum"):
            answer = local.get(f"/v1/sources/{stop}", token=local.app_token)
            assert (answer.status, answer.body) == (200, f"tram from {stop}".encode())
            assert answer.headers["content-type"] == TEXT["content-type"]
            assert answer.headers["x-mirror"] == "yes"
        assert len(site.targets) == len(STOPS)
        assert local.get("/v1/sources").json == {"sources": list(STOPS)}
        state = snapshot(local.engine)
        assert (state["connected"], state["site"]["on"]["requests"], state["site"]["off"]["requests"]) == (True, 4, 0)


def test_while_off_a_set_is_asked_for_by_ordinary_gets(tmp_path):
    with city(tmp_path) as (local, site):
        local.get("/v1/sources/Museum")
        local.turn(private=False)
        site.log.clear()
        answer = local.get("/v1/sources/Lake")
        assert (answer.body, answer.headers["x-mirror"]) == (b"tram from Lake", "no")
        assert "/Lake" in site.targets
        assert site.targets == [f"/{stop}" for stop in STOPS if f"/{stop}" in site.targets]  # in the order of the list
        state = snapshot(local.engine)
        assert state["steps"][-1]["left"]
        assert [STOPS[at] for at in state["steps"][-1]["sources"]] == [target[1:] for target in site.targets]
        assert state["site"]["off"]["requests"] == len(site.targets)


def test_without_a_model_everything_is_read_here_whatever_the_switch_says(tmp_path):
    with city(tmp_path, chain=False) as (local, site):
        for private in (True, False):
            local.turn(private=private)
            quiet(local)
            before = len(site.targets)
            assert local.get("/v1/sources/Lake").body == b"tram from Lake"
            assert len(site.targets) == before


def test_a_source_that_the_site_does_not_give_is_named_and_the_rest_is_read(tmp_path):
    with city(tmp_path, broken=("Lake",)) as (local, site):
        assert local.get("/v1/sources/Central").status == 200
        answer = local.get("/v1/sources/Lake")
        assert (answer.status, answer.json["title"]) == (502, "the site answers with status 503")
        assert snapshot(local.engine)["connected"]
        local.turn(private=False)
        assert {local.get(f"/v1/feeds{end}").status for end in ("", "/Lake", "/Central")} == {200}
        assert site.targets.count("/Central") == 1


def test_a_site_that_gives_nothing_is_not_asked_again_before_the_interval_is_over(tmp_path):
    with city(tmp_path, broken=STOPS) as (local, site):
        asked = len(site.targets)
        state = snapshot(local.engine)
        assert state["connected"] is False
        assert state["problem"] == f"{site.url}: the site answers with status 503"
        assert local.get("/v1/sources/Lake").status == 502
        quiet(local)
        assert len(site.targets) == asked


def test_the_state_says_what_the_budget_leaves_and_what_staying_on_would_have_taken(tmp_path):
    with city(tmp_path, budget=Budget.parse("100/min 1000/day"), every=60.0) as (local, site):
        shown = snapshot(local.engine)["site"]
        assert shown["budgets"] == [
            {"host": site.url, "limit": "100/min", "left": 96},
            {"host": site.url, "limit": "1000/day", "left": 996},
        ]
        assert shown["every"] == 60.0
        assert (shown["refreshes"], shown["always_on"]["requests"] % 4) == (1, 0)
        assert local.engine.refresher.interval == 60.0


def test_over_budget_is_said_before_anything_leaves(tmp_path):
    with city(tmp_path, budget=Budget.parse("4/day")) as (local, site):
        local.turn(private=False)
        asked = len(site.targets)
        answer = local.get("/v1/sources/Lake")
        assert answer.status == 503
        assert "exceed the budget 4/day" in answer.json["title"]
        assert len(site.targets) == asked
        assert snapshot(local.engine)["steps"][-1]["left"] is False


def test_a_model_of_other_sources_is_refused_before_anything_leaves(tmp_path):
    with website() as site:
        web = Web(SourceList((Source("Airport", f"{site.url}/Airport"),), hosts=frozenset({origin_of(site.url)})))
        with pytest.raises(CatalogueMismatch, match="4 of the chain's 4 sources are not in the list"):
            Engine(web, rides(), tmp_path / "journal")
        assert site.log == []


# -- what the site sees ----------------------------------------------------------------------------------------------


def seen(folder, wanted, failing):
    """All that the site sees of a morning in which only what is wanted differs, failures and repeats among it.

    The first open request of a journal asks for everything, so the set is the same whatever is wanted.
    """
    with city(folder, broken=failing) as (local, site):
        local.turn(private=False)
        for _ in range(2):  # an app that tries again when it gets an error, with the key that it used
            local.get(f"/v1/sources/{wanted}", **{"Idempotency-Key": "one"})
            quiet(local)
        local.turn(private=True)
        quiet(local)
        local.get(f"/v1/sources/{wanted}")
        quiet(local)
        return str([(number, target, {**headers, "host": ""}) for number, target, headers in site.log])


def different(tmp_path, failing=("Lake",)):
    """How many different things the site sees, over all that can be wanted."""
    for wanted in STOPS:
        (tmp_path / wanted).mkdir()
    return len({seen(tmp_path / wanted, wanted, failing) for wanted in STOPS})


def test_the_site_sees_the_same_whatever_is_wanted_also_where_it_fails(tmp_path):
    assert different(tmp_path) == 1


def looks_again(monkeypatch):
    """A gateway that looks for the site when a request of the person failed."""
    do = Engine._do

    def eager(self, job):
        do(self, job)
        if isinstance(job.done.exception(), OnOffError):
            self.refresher.soon()

    monkeypatch.setattr(Engine, "_do", eager)


def asks_again(monkeypatch):
    """A gateway that takes a repeated key of a request that failed for a new request."""
    monkeypatch.setattr(Engine, "_repeated", lambda self, known: self._accept(type(known)(known.wanted, False, "one")))


def refreshes_for_readers(monkeypatch):
    """A gateway that refreshes where a reader finds no copy."""
    read = Engine.read

    def eager(self, job, copies):
        try:
            return read(self, job, copies)
        except OnOffError:
            self.refresher.soon()
            raise

    monkeypatch.setattr(Engine, "read", eager)


@pytest.mark.parametrize("twin", [looks_again, asks_again, refreshes_for_readers])
def test_gateways_that_act_on_what_became_of_the_wanted_one_are_caught(tmp_path, monkeypatch, twin):
    twin(monkeypatch)
    assert different(tmp_path) > 1


# -- the site's own paths --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def site_with(folder, answers, chain=False, **options):
    """A site with these answers by target, a list of all of them, and a gateway before it that has refreshed once."""
    with website() as site:
        site.answers = answers
        listed = tuple(Source(f"source {at}", site.url + target) for at, target in enumerate(answers))
        web = Web(SourceList(listed, hosts=frozenset({origin_of(site.url)})), sleep=lambda seconds: None, **options)
        with gateway(folder, url=web, chain=chain) as local:
            local.engine.refresher.first.result(PATIENCE)
            quiet(local)
            yield local, site


def test_an_address_of_the_site_answers_with_what_the_site_has_there(tmp_path):
    departures = Answer(
        b'[{"line": 4}]',
        headers={"content-type": "application/json", "etag": '"v1"', "last-modified": "Fri, 02 Jan 1970 00:00:00 GMT"},
    )
    answers = {
        "/v1/stops/42/departures?limit=5": departures,
        "/v1/stops/43/departures?limit=5": Answer(b"other"),
        "/Lake%20View?q=a%2Cb": Answer(b"escaped", headers=TEXT),
        "/Lake%2FView": Answer(b"one name", headers=TEXT),
        "/Lake/View": Answer(b"two names", headers=TEXT),
    }
    with site_with(tmp_path, answers) as (local, site):
        asked = len(site.targets)
        answer = local.send("GET", f"/t/{local.app_token}/web/v1/stops/42/departures?limit=5")
        assert (answer.status, answer.body) == (200, b'[{"line": 4}]')
        assert answer.headers["content-type"] == "application/json"
        assert (answer.headers["etag"], answer.headers["last-modified"]) == ('"v1"', "Fri, 02 Jan 1970 00:00:00 GMT")
        again = local.get("/web/v1/stops/42/departures?limit=5", If_None_Match='"v1"')
        assert (again.status, again.body) == (304, b"")
        when = {"If_Modified_Since": "Fri, 02 Jan 1970 00:00:00 GMT"}
        assert local.get("/web/v1/stops/42/departures?limit=5", **when).status == 304
        assert local.get("/web/v1/stops/42/departures?limit=5", **when, If_None_Match='"v0"').status == 200
        assert local.get("/web/Lake/View", **when).status == 200
        assert local.get("/web/Lake%20View?q=a%2Cb").body == b"escaped"
        assert local.get("/web/Lake%20View?q=a,b").body == b"escaped"  # as another library writes it
        assert local.get("/web/Lake%2FView").body == b"one name"
        assert local.get("/web/Lake/View").body == b"two names"
        assert "last-modified" not in local.get("/web/Lake/View").headers
        assert len(site.targets) == asked


@pytest.mark.parametrize(
    "target", ["/v1/stops/42", "/v1/stops/42/departures", "/", "//127.0.0.1/", "/v1/stops/42?limit"]
)
def test_an_address_that_is_not_in_the_list_is_refused_and_nothing_leaves(tmp_path, target):
    with site_with(tmp_path, {"/v1/stops/42/departures?limit=5": Answer(b"tram")}, rides_of(1)) as (local, site):
        for private in (True, False):
            local.turn(private=private)
            quiet(local)
            asked = len(site.targets)
            answer = local.get(f"/web{target}")
            assert (answer.status, answer.json["title"]) == (
                404,
                "this address is not in the list of sources; nothing was sent",
            )
            quiet(local)
            assert len(site.targets) == asked


def rides_of(n):
    return MarkovChain(np.full((n, n), 1 / n), names=[f"source {at}" for at in range(n)])


def test_only_downloads_pass_and_only_with_a_token(tmp_path):
    with site_with(tmp_path, {"/tram": Answer(b"tram")}) as (local, _):
        assert local.send("GET", "/web/tram").status == 403
        assert local.get("/web/tram", Sec_Fetch_Dest="image").status == 403
        assert local.send("POST", f"/t/{local.app_token}/web/tram").status == 403
        assert local.send("POST", "/web/tram", {"Authorization": f"Bearer {local.token}"}).status == 405
        assert local.get("/web/tram").status == 200


def test_the_status_of_the_site_passes_through_where_it_is_about_the_source(tmp_path):
    answers = {"/gone": Answer(status=410), "/busy": Answer(status=429), "/down": Answer(status=503)}
    with site_with(tmp_path, answers, rides_of(3)) as (local, _):
        for private in (True, False):
            local.turn(private=private)
            quiet(local)
            found = [local.get(f"/web/{name}") for name in ("gone", "busy", "down")]
            assert [answer.status for answer in found] == [410, 502, 502]
            assert all("the site answers with status" in answer.json["title"] for answer in found)


def test_while_off_an_address_of_the_site_goes_out_as_a_set(tmp_path):
    answers = {f"/stops/{at}": Answer(f"tram {at}".encode(), headers=TEXT) for at in range(4)}
    with site_with(tmp_path, answers, rides_of(4)) as (local, site):
        local.turn(private=False)
        quiet(local)
        site.log.clear()
        assert local.get("/web/stops/2").body == b"tram 2"
        assert site.targets == list(answers)  # the first open request of a journal asks for everything


def test_a_gateway_before_a_message_server_has_no_site(tmp_path):
    with gateway(tmp_path) as local:
        assert local.get("/web/alpha").status == 404
        assert local.world.queries == []


def test_a_source_that_fails_is_listed_as_dead(tmp_path):
    with city(tmp_path, broken={"Lake"}) as (local, _):
        listed = {source["name"]: source["dead"] for source in local.get("/v1/reading").json["sources"]}
        assert listed == {**dict.fromkeys(STOPS), "Lake": "the site answers with status 503"}
