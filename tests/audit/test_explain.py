"""What the server could guess: the filter agrees with the enumeration, and ours adds nothing after a request."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from tests.support.chains import NAMED, P2, P3

from onoff.audit.exact import NaiveSession, Worlds
from onoff.errors import InvalidInput
from onoff.lab import explain as module
from onoff.lab.explain import explain, naive_guess
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.session import Session


def guesses_by_enumeration(chain, session, pattern):
    """For the k-th private request: E max_x P(X_i = x | everything seen), from the worlds of the exact audit."""
    worlds = Worlds.before_the_first_request(chain, session)
    for private in pattern:
        worlds, _, _ = worlds.after(private=private)
    best = []
    for k in range(sum(pattern)):
        law: defaultdict[Any, Any] = defaultdict(lambda: defaultdict(float))
        for world, (weight, _) in worlds.held.items():
            law[world.history][world.private_sources[k]] += weight / worlds.denominator
        best.append(sum(max(beliefs.values()) for beliefs in law.values()))
    return best


@pytest.mark.parametrize("pattern", ["ON OFF", "OFF ON OFF", "ON OFF OFF ON OFF", "OFF ON ON OFF"])
@pytest.mark.parametrize("name", ["P2", "P3", "zeros 3", "equal rows 3"])
def test_guesses_are_those_of_the_enumeration(name, pattern):
    chain, statuses = NAMED[name], parse(pattern)
    found = explain(chain, statuses, "greedy")
    assert found.exact
    ours = guesses_by_enumeration(chain, Session(chain, "greedy"), statuses)
    naive = guesses_by_enumeration(chain, NaiveSession(chain), statuses)
    assert [g.ours for g in found.guesses] == pytest.approx(ours, abs=1e-9)
    assert [g.naive for g in found.guesses] == pytest.approx(naive, abs=1e-9)
    for guess in found.guesses:
        assert guess.prior <= guess.earlier + 1e-12
        assert guess.ours == pytest.approx(guess.earlier, abs=1e-9)
        assert guess.ours <= guess.naive + 1e-9


def test_the_papers_example_in_words():
    guess = explain(P2, parse("ON OFF"), "greedy").guesses[0]
    assert (guess.prior, guess.ours, guess.naive) == pytest.approx((0.5, 0.5, 0.8))
    assert "still 50.0%" in guess.in_words()
    assert "Open requests before" not in guess.in_words()
    assert "Open requests before" in explain(P2, parse("OFF ON"), "greedy").guesses[0].in_words()


def test_naive_between_two_open_requests_uses_both():
    both = naive_guess(P2, parse("OFF ON OFF"), 1)
    # neighbours agree: 0.68 of the time, guess right 16/17; else a coin
    assert both == pytest.approx(0.68 * (0.64 / 0.68) + 0.32 * 0.5)


def test_sampled_histories_agree_with_all_of_them(monkeypatch):
    """Mean of 300 values in [0, 1], seeded: Hoeffding puts an error above 0.15 at 2 exp(-2 * 300 * 0.0225) < 1e-5."""
    exact = explain(P3, parse("ON OFF OFF ON OFF"), "greedy")
    monkeypatch.setattr(module, "MOST_HISTORIES", 10)
    monkeypatch.setattr(module, "SESSIONS", 300)
    sampled = explain(P3, parse("ON OFF OFF ON OFF"), "greedy")
    assert not sampled.exact
    assert sampled.sessions == module.SESSIONS
    for a, b in zip(exact.guesses, sampled.guesses, strict=True):
        assert b.ours == pytest.approx(a.ours, abs=0.15)
        assert b.ours == pytest.approx(b.earlier, abs=1e-9)
    assert sampled == explain(P3, parse("ON OFF OFF ON OFF"), "greedy")


def test_what_cannot_be_explained_is_refused(monkeypatch):
    with pytest.raises(InvalidInput, match="no private request"):
        explain(P2, parse("OFF OFF"))
    monkeypatch.setattr(module, "MOST_SOURCES_EXPLAINED", 2)
    with pytest.raises(InvalidInput, match="too many"):
        explain(MarkovChain(np.eye(3)), parse("ON"))
