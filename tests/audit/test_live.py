"""The statistical audit over HTTP: the real server, the real client, real randomness.

Every test here draws from the operating system, and says how likely it is to fail by chance: less than 1e-9. Two things
would make that false. An audit of 100 sessions often has no table to test: `pooled` leaves none where the rarer of two
values was wanted so seldom, or the rarer of two queries seen so seldom, that fewer than ten of both are expected
together, and `smallest` is infinite (5.7e-4 for the model below); 150 and 160 sessions have one. And a request whose
answer did not come in time is sent again, which no other session saw: so the server has all the time that it needs.
"""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from onoff.audit.client import Fault
from onoff.audit.live import LiveUsers
from onoff.audit.sampled import collect, judge_trials
from onoff.cli import run
from onoff.client import Client
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.patterns import parse
from onoff.server import running

pytestmark = pytest.mark.statistical

NAMES = ("news", "weather")
CHAIN = MarkovChain([[0.8, 0.2], [0.2, 0.8]], names=NAMES)
ALPHA = 1e-10
"""How often a private client fails an audit. Counted exactly, the G-test of 100 sessions at 5e-10 fails 5.6e-10."""


@pytest.fixture
def same_draws():
    """Real ones."""


@pytest.fixture(autouse=True)
def _seldom_wrong(monkeypatch):
    monkeypatch.setattr("onoff.audit.live.SERVER_TIMEOUT", 600.0)
    monkeypatch.setattr("onoff.cli.audit.judge_trials", partial(judge_trials, alpha=ALPHA))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "messages.db"
    with running(dict.fromkeys(NAMES, b"hello"), frame_size=512, store=store) as server:
        yield server


def test_the_real_client_passes(server):
    """Fails with probability 1.5e-10: ALPHA, and 4.9e-11 that no table is left. A query of 1/5 is not seen: 6e-15."""
    users = LiveUsers(server.url, CHAIN, "single")
    trials = collect(CHAIN, parse("ON OFF"), users.user, 150)
    assert users.times.shape == (150, 2)
    audit = judge_trials(trials, parse("ON OFF"), alpha=ALPHA, times=users.times)
    assert audit.passed
    assert audit.smallest < 2
    assert len({trial.seen for trial in trials}) == 3


class Plain(Client):
    """m1 over HTTP: while OFF the plain request."""

    def get(self, source, *, private):  # type: ignore[override]
        if private:
            return super().get(source, private=True)
        core = self.core
        x = core.chain.index(source)
        core.session.propose = lambda wanted, *, private: (_query(core, x), core.session.memory)  # type: ignore[assignment, method-assign]
        return super().get(source, private=False)


def _query(core, x):
    from onoff.session import Query

    return Query((x,), core.chain.n)


@pytest.mark.slow(reason="many cases are worked out")
def test_time_sharing_over_http_is_rejected(server, monkeypatch):
    """0.531 bits; 160 sessions do not show it with probability 1.3e-11."""
    monkeypatch.setattr("onoff.audit.live.Client", Plain)
    sticky = MarkovChain([[0.9, 0.1], [0.1, 0.9]], names=NAMES)
    users = LiveUsers(server.url, sticky, "single")
    audit = judge_trials(collect(sticky, parse("ON OFF"), users.user, 160), parse("ON OFF"), times=users.times)
    assert not audit.passed
    assert "step 1: what the server sees depends on the private request of step 0" in (audit.breach or "")


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.CRASH_AFTER, Fault.RESTART])
def test_faults_happen_where_they_are_asked_for(server, fault):
    calm, shaken = LiveUsers(server.url, CHAIN, "full"), LiveUsers(server.url, CHAIN, "full", fault, at=1)
    usual = collect(CHAIN, parse("ON OFF OFF"), calm.user, 2)[0].seen
    seen: Any = collect(CHAIN, parse("ON OFF OFF"), shaken.user, 2)[0].seen
    assert seen[0] == usual[0]
    paths = [event[1] for step in seen for event in step]
    assert paths.count("/v1/query") == (4 if fault is Fault.LOST_ANSWER else 3)
    assert paths.count("/v1/seen") == (0 if fault is Fault.LOST_ANSWER else 1)
    if fault is Fault.LOST_ANSWER:
        assert seen[1][0] == seen[1][1]  # the same bytes again
    assert {event[2][0] for step in seen for event in step if event[1] == "/v1/query"} == {1}  # one session


def test_other_faults_are_refused(server):
    with pytest.raises(InvalidInput, match="cannot be made over HTTP"):
        LiveUsers(server.url, CHAIN, "single", Fault.RESTORED)


def test_the_command(server, tmp_path, capsys):
    """Fails with probability 3e-10: two audits as in `test_the_real_client_passes`."""
    chain, page = tmp_path / "chain.json", tmp_path / "page.html"
    CHAIN.save(chain)
    arguments = ["audit", "run", server.url, "--chain", str(chain), "--scheme", "single", "--pattern", "ON OFF"]
    arguments += ["--sessions", "150", "--html", str(page)]
    assert run([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sessions"] == 150
    assert report["breach"] is None
    assert report["smallest"] > 0
    assert run([*arguments, "--fault", "lost answer"]) == 0
    assert "would have been found" in capsys.readouterr().out
    assert "A trained attacker" in page.read_text()
    assert run([*arguments, "--fault", "earthquake"]) == 3
    assert "no fault called" in capsys.readouterr().err
    assert run([*arguments, "--fault", "restart", "--at", "2"]) == 3
    assert "no step 2" in capsys.readouterr().err
    assert run(["audit", "run", server.url, "--chain", str(chain), "--pattern", "OFF OFF"]) == 3
    assert "no private request" in capsys.readouterr().err


def test_what_could_not_have_been_found_is_said(server, tmp_path, capsys):
    """While ON everything is asked: what is seen never varies, and no leak of any size would have shown.

    Nothing is drawn that it asks about; the attackers, who see times besides, prove something with probability ALPHA.
    """
    chain = tmp_path / "chain.json"
    CHAIN.save(chain)
    arguments = ["audit", "run", server.url, "--chain", str(chain), "--pattern", "ON", "--sessions", "100"]
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["smallest"] is None
    assert run(arguments) == 0
    told = capsys.readouterr().out
    assert "never varied" in told
    assert "too much alike" in told


def test_nobody_there(tmp_path, capsys):
    chain = tmp_path / "chain.json"
    CHAIN.save(chain)
    assert run(["audit", "run", "http://127.0.0.1:9", "--chain", str(chain), "--sessions", "100"]) == 4
    assert "refused" in capsys.readouterr().err


def test_the_command_with_a_model(server, tmp_path, capsys):
    """Two types, each with a chain of its own; a filter hides one private request, so that is what is asked about.

    Fails with probability 1.2e-10: ALPHA, and 1.5e-11 that no table is left.
    """
    path = tmp_path / "model.npz"
    contexts = [(), *((x,) for x in range(CHAIN.n))]
    laws = np.random.default_rng(0).dirichlet(np.ones(CHAIN.n), size=(2, len(contexts)))
    RequestModel(laws, contexts, names=CHAIN.names).save(path)
    arguments = ["audit", "run", server.url, "--chain", str(path), "--scheme", "single", "--sessions", "160", "--json"]
    assert run([*arguments, "--pattern", "ON OFF"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["breach"] is None
    assert report["smallest"] > 0
    assert run([*arguments, "--pattern", "ON ON OFF"]) == 3
    assert "a pattern with one ON" in capsys.readouterr().err
