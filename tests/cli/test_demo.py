"""`onoff demo`, before a web site and with news: all answered, nothing told, naive switching for what it is."""

import contextlib
import json
import re
import signal
import subprocess
import sys
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pytest
from tests.support.typed import present
from tests.support.waiting import PATIENCE

from onoff import RequestModel
from onoff.cli import run
from onoff.cli.demo import news_chain
from onoff.cli.demo_city import APPOINTMENTS, RIDE, city_chain, departures, ride
from onoff.cli.output import Work
from onoff.model.patterns import parse


def shown_by(capsys, *options):
    assert run(["demo", "--feeds", "--exit", "--scheme", "single", "--json", *options]) == 0
    shown = json.loads(capsys.readouterr().out)
    steps = shown["steps"]
    assert [step["t"] for step in steps] == list(range(20))
    assert len(shown["sources"]) == 12
    assert all(step["bits"] == 0 for step in steps)
    assert sum(step["naive"] for step in steps) > 0.5
    assert shown["received"] > 0
    return shown, steps


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_access_log_of_the_city_shows_the_sets_and_nothing_else(capsys):
    assert run(["demo", "--exit", "--scheme", "race", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    steps, stops = shown["steps"], shown["sources"]
    assert (len(steps), len(stops)) == (22, 30)
    assert steps[6]["wanted"] == "Clinic"
    assert steps[15]["wanted"] == "Court"
    before = 30  # everything, when the gateway started
    for last, step in zip([{"private": True}, *steps], steps, strict=False):
        if not step["private"]:
            assert step["asked"] == step["seen"]  # in the order of the list
            assert step["wanted"] in step["asked"]
        elif not last["private"]:
            assert step["asked"][:30] == stops  # the switch was turned ON
        assert step["mirror"] == step["private"]
        assert step["private"] or step["cost"] == len(step["asked"])
        before += len(step["asked"])
    assert shown["requests"] == before < 660
    assert shown["received"] > 0


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_draws_the_city(capsys):
    assert run(["demo", "--exit", "--scheme", "greedy"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("the site saw", "Main Station", "█", "○", "told 0 bits", "requests to the site, 30 of them before"):
        assert words in shown
    assert "naive switching would have told" in shown


def test_a_rider_keeps_the_appointments():
    chain = city_chain()
    assert chain.n == 30
    assert (chain.dense() > 0).all()
    for seed in range(5):
        walk = [chain.names[x] for x in ride(chain, 22, np.random.default_rng(seed))]
        assert {at: walk[at] for at in APPOINTMENTS} == APPOINTMENTS
        assert all(parse(RIDE)[at] for at in APPOINTMENTS)


def test_the_page_of_a_stop_changes_each_minute():
    pages = [departures(13, 1.8e9 + second) for second in (0, 59, 60)]
    assert pages[0] == pages[1] != pages[2]
    assert pages[0].startswith(b"Clinic, ")


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_shows_what_it_promises(capsys):
    _, steps = shown_by(capsys)
    for step in steps:
        assert step["mirror"] == step["private"]
        assert step["views"] == [step["seen"]]
        assert step["cost"] == len(step["seen"])
        assert step["mirror"] or step["wanted"] in step["seen"]
    assert 0 < sum(step["cost"] for step in steps) < 15 * 12


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_counts_its_requests_where_nobody_watches_a_table(capsys, monkeypatch):
    told: list[int] = []

    class Told(Work):
        def __call__(self, done):
            told.append(done)

    @contextlib.contextmanager
    def progress(label, total=None):
        yield Told(label, total)

    monkeypatch.setattr("onoff.cli.demo.progress", progress)
    assert run(["demo", "--exit", "--scheme", "single"]) == 0
    assert told == list(range(1, 23))
    assert "The site was told" in capsys.readouterr().out


@pytest.mark.slow(reason="programs are started and waited for")
def test_without_a_mirror_every_request_is_a_query(capsys):
    _, steps = shown_by(capsys, "--no-mirror")
    for step in steps:
        assert step["wanted"] in step["seen"]
        assert step["cost"] == len(step["seen"])
        assert not step["private"] or step["cost"] == 12
    assert sum(step["cost"] for step in steps) < 240


@pytest.mark.slow(reason="programs are started and waited for")
def test_with_two_servers_each_sees_a_set_of_its_own_and_both_together_what_was_wanted(capsys):
    shown, steps = shown_by(capsys, "--servers", "2")
    assert shown["servers"] == 2
    for step in steps:
        first, second = map(set, step["views"])
        assert set(step["seen"]) == first | second
        assert len(first) % 2 == 0
        assert first ^ second == {step["wanted"]}
        assert step["cost"] == bool(first) + bool(second)
    assert sum(step["cost"] for step in steps) <= 40


@pytest.mark.slow(reason="programs are started and waited for")
def test_with_two_servers_the_table_has_a_column_for_each_and_says_what_they_know_together(capsys):
    assert run(["demo", "--exit", "--scheme", "single", "--servers", "2"]) == 0
    shown = capsys.readouterr().out
    assert "server 2 saw" in shown
    assert "told 0 bits" in shown
    assert "they would know every source that was wanted" in shown


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_reads_the_sources_of_a_model(capsys, tmp_path):
    contexts = [(), (0,), (1,), (2,)]
    laws = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, len(contexts)))
    RequestModel(laws, contexts, names=["left", "world", "right"]).save(tmp_path / "model.npz")
    assert run(["demo", "--exit", "--scheme", "single", "--json", "--model", str(tmp_path / "model.npz")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["sources"] == ["left", "world", "right"]
    assert {step["wanted"] for step in shown["steps"]} <= {"left", "world", "right"}
    assert sum(step["naive"] for step in shown["steps"]) > 0


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_draws(capsys):
    assert run(["demo", "--feeds", "--exit", "--scheme", "single"]) == 0
    shown = capsys.readouterr().out
    assert "naive switching" in shown.lower()
    assert "█" in shown
    assert "○" in shown  # read from the mirror: wanted, and not asked for
    assert "told 0 bits" in shown


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_claims_nothing_about_queries_without_a_table(capsys):
    assert run(["demo", "--feeds", "--exit", "--scheme", "race"]) == 0
    shown = capsys.readouterr().out
    assert "not worked out" in shown
    assert "told 0 bits" not in shown


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_claims_nothing_about_more_sources_than_are_weighed(capsys, monkeypatch):
    monkeypatch.setattr("onoff.gateway.evidence.MOST_WEIGHED_SOURCES", 2)
    assert run(["demo", "--feeds", "--exit", "--scheme", "single"]) == 0
    shown = capsys.readouterr().out
    assert "not known" in shown
    assert "naive switching would have told what is not worked out" in shown


def started(*options):
    command = [sys.executable, "-c", "from onoff.cli import main; main()", "demo", "--no-browser", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def addresses(process, name):
    """The address of the page, and that of its kind for programs."""
    page = next(line.split()[1] for line in present(process.stderr) if line.startswith("open"))
    assert re.match(r"http://127\.0\.0\.1:\d+/#\S+", page)
    return page, next(line.split()[1] for line in present(process.stderr) if line.startswith(name))


def body(url):
    with build_opener(ProxyHandler({})).open(url, timeout=PATIENCE) as answer:
        return answer.headers["content-type"], answer.read().decode()


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_keeps_serving_the_city_and_shows_the_access_log_until_it_is_stopped():
    with started("--scheme", "race") as process:
        _, apps = addresses(process, "apps")
        media_type, text = body(apps)
        assert media_type.startswith("text/plain")
        assert text.startswith("Clinic, ")  # the path of the site itself
        seen = next(line for line in present(process.stderr) if line.startswith("site "))
        assert re.search(r"GET /stops/\d+/departures HTTP/1.1", seen)
        process.send_signal(signal.SIGINT)
        present(process.stderr).read()  # nobody else reads the log
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_demo_keeps_serving_feeds_until_it_is_stopped():
    with started("--feeds", "--scheme", "single") as process:
        _, feeds = addresses(process, "feeds")
        media_type, text = body(feeds.replace("NAME", "weather"))
        assert media_type.startswith("application/atom+xml")
        assert "Weather, edition" in text
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_the_readers_chain_stays_with_a_subject():
    chain = news_chain()
    assert (chain.transition.diagonal() > 0.2).all()
    assert (chain.dense() > 0).all()


def test_a_port_that_is_none(capsys):
    assert run(["demo", "--port", "70000"]) == 3
