"""The trained attacker: finds what is there, claims nothing where nothing is, and its bounds err as they say."""

import numpy as np
import pytest
from scipy.stats import binom

from onoff.audit.sampled import advantage_bounds, at_least, at_most, attack

pytestmark = pytest.mark.statistical


def sessions(n, leak, seed=0):
    """X uniform on three values; the one thing seen is X with probability `leak`, else anything."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(3, size=n)
    seen = np.where(rng.random(n) < leak, hidden, rng.integers(3, size=n))
    return hidden, [(("everything",), (int(s),)) for s in seen]


def test_a_leak_is_learnt_and_proven():
    hidden, seen = sessions(4000, 0.5)
    found = attack(hidden, seen, 0, 1e-6)
    assert found.after == pytest.approx(2 / 3, abs=0.05)
    assert found.advantage == pytest.approx(1 / 3, abs=0.07)
    assert 0 < found.proven < found.advantage < found.upper


def test_nothing_is_claimed_where_nothing_is():
    hidden, seen = sessions(4000, 0.0)
    found = attack(hidden, seen, 0, 1e-6)
    assert found.proven < 0 < found.upper < 0.2


def test_what_was_known_before_is_not_counted():
    """The first sighting tells all of X, before the private request: the attacker gains nothing by the rest."""
    rng = np.random.default_rng(1)
    hidden = rng.integers(3, size=2000)
    seen = [((int(x),), ("everything",), ("anything",)) for x in hidden]
    found = attack(hidden, seen, 1, 1e-6)
    assert found.before == found.after == 1
    assert found.advantage == 0
    assert found.upper < 0.01


def test_times_are_looked_at():
    rng = np.random.default_rng(2)
    hidden = rng.integers(2, size=2000)
    times = np.stack([hidden + rng.normal(size=2000), rng.normal(size=2000)], axis=1)
    blind = attack(hidden, [((0,), (0,))] * 2000, 0, 1e-6)
    seeing = attack(hidden, [((0,), (0,))] * 2000, 0, 1e-6, times)
    assert blind.advantage == pytest.approx(0, abs=0.02)
    assert seeing.proven > 0


@pytest.mark.parametrize(("p", "n"), [(0.02, 400), (0.3, 250), (0.5, 1000)])
def test_the_bound_on_a_probability_fails_about_as_often_as_it_says(p, n):
    """At 10 %: over all counts, exactly, it fails at most 10 % and at least 6 % of the time, on either side."""
    counts = np.arange(n + 1)
    law = binom.pmf(counts, n, p)
    above = law[[at_most(int(k), n, 0.1) < p for k in counts]].sum()
    below = law[[at_least(int(k), n, 0.1) > p for k in counts]].sum()
    assert 0.06 <= above <= 0.1
    assert 0.06 <= below <= 0.1


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize(("win", "loss", "fewest"), [(0.1, 0.1, 40), (0.2, 0.12, 10), (0.12, 0.2, 10), (0.4, 0.0, 0)])
def test_the_bounds_on_the_advantage_fail_as_often_as_they_say(win, loss, fewest):
    """Seeded. 1,000 runs at 10 %: at most the 1 - 1e-6 quantile of Binomial(1000, 0.1).

    Where there is no advantage they come near to it; otherwise both h and s have to be off, which is rarer.
    """
    rng, n = np.random.default_rng(3), 400
    drawn = rng.multinomial(n, [win, loss, 1 - win - loss], size=1000)
    bounds = np.array([advantage_bounds(int(w), int(lost), n, 0.1, 0.1) for w, lost, _ in drawn])
    for failures in ((bounds[:, 0] < win - loss).sum(), (bounds[:, 1] > win - loss).sum()):
        assert fewest <= failures <= binom.isf(1e-6, 1000, 0.1)


def test_where_both_guess_alike_the_advantage_is_bounded_by_how_rarely_they_could_differ():
    upper, lower = advantage_bounds(0, 0, 1000, 1e-3, 1e-6)
    assert 0 < upper < 0.02
    assert lower == pytest.approx(-at_most(0, 1000, 5e-8))


def test_extreme_counts():
    assert at_most(10, 10, 0.1) == 1
    assert at_least(0, 10, 0.1) == 0
    assert at_most(0, 1000, 1e-6) == pytest.approx(-np.log(1e-6) / 1000, rel=0.01)
