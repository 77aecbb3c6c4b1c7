"""Attackers and their stack: a planted leak is found within its error, none is 0, and who is too sure is put right.

Seeded. What a stack must gain is known, because cases are drawn from a known law.
"""

from dataclasses import replace

import numpy as np
import pytest

from onoff.audit import guesses
from onoff.audit.guesses import Clues, attackers_of, bits_of, fit_choice, known_before, let_guess, mean_by_person, stack

N, CASES = 4, 1500


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Enough for four values."""
    monkeypatch.setitem(guesses.TREES, "max_iter", 20)


def planted(trust, power, cases=CASES, each=1, seed=0):
    """One query, a single source: X with probability `trust`, else any. A Bayes attacker takes it `power` times."""
    rng = np.random.default_rng(seed)
    wanted = rng.integers(N, size=cases)
    shown = np.where(rng.random(cases) < trust, wanted, rng.integers(N, size=cases))
    chance = np.full((N, N), (1 - trust) / N) + trust * np.eye(N)
    logs = np.zeros((cases, 2, N))
    logs[:, 1] = power * np.log(chance.T[shown])
    logs -= np.log(np.exp(logs).sum(axis=2, keepdims=True))
    asked = np.eye(N, dtype=bool)[shown][:, None]
    return Clues(np.arange(cases) // each, wanted, {"bayes": logs}, asked)


def true_leak(trust):
    right, wrong = trust + (1 - trust) / N, (1 - trust) / N
    return np.log2(N) + right * np.log2(right) + (N - 1) * wrong * np.log2(wrong)


def old_way(clues):
    """What was reported before: the gain of the attacker as it is, over what it thought before."""
    logs = clues.bayes["bayes"]
    return float((bits_of(logs[:, 1], clues.wanted) - bits_of(logs[:, 0], clues.wanted)).mean())


def judged(clues):
    attackers, missing = attackers_of(clues.bayes)
    assert missing == ()
    return let_guess(clues, attackers, known_before(clues, attackers))


@pytest.mark.parametrize(("trust", "power"), [(0.15, 1), (0.15, 5), (0.5, 3)])
def test_a_planted_leak_is_found_within_its_error(trust, power):
    """0.03 and 0.45 bits; an attacker that is too sure reads as less than nothing, its stack does not."""
    clues = planted(trust, power)
    bits, error = judged(clues).gain(1)
    assert abs(bits - true_leak(trust)) < 3 * error
    assert bits > 3 * error
    if power > 1:
        assert old_way(clues) < bits - 3 * error
    if (trust, power) == (0.15, 5):
        assert old_way(clues) < 0


@pytest.mark.parametrize("power", [1, 5])
def test_where_nothing_leaks_nothing_is_found(power):
    """The attacker believes in a leak that is not there."""
    believed, none = planted(0.3, power), planted(0.0, 1, seed=1)
    clues = replace(believed, wanted=none.wanted)
    bits, error = judged(clues).gain(1)
    assert abs(bits) <= 2 * error
    assert abs(bits) < 0.003
    assert old_way(clues) < -0.05


@pytest.mark.parametrize("seed", range(5))
def test_the_control_is_nothing_however_much_leaks(seed):
    control = judged(planted(0.5, 3, seed=seed).of_others())
    bits, error = control.gain(1)
    assert abs(bits) <= 2 * error
    assert abs(bits) < 0.003


def test_the_control_has_the_queries_of_another_person():
    clues = planted(0.5, 1, cases=60, each=4)
    told = replace(clues, asked=np.broadcast_to(np.eye(15, dtype=bool)[clues.person][:, None], (60, 1, 15)))
    other = told.of_others().asked[:, 0].argmax(axis=1)
    assert (other != told.person).all()
    assert sorted(other) == sorted(told.person)


def test_what_is_learnt_is_learnt_from_other_people():
    """A person is always in one part, so what is peculiar to a person's cases teaches nothing about them."""
    clues = planted(0.0, 1, cases=400, each=8)
    assert all(len(set(clues.fold[clues.person == person])) == 1 for person in set(clues.person))
    # every person has a value of their own, and queries that show who it is: by case this would look like a leak
    own = np.random.default_rng(5).integers(N, size=50)
    asked = np.random.default_rng(6).random((50, 12, N)) < 0.5
    sure = replace(
        clues,
        wanted=own[clues.person],
        asked=asked[clues.person],
        bayes={"bayes": np.full((400, 13, N), -np.log(N))},
    )
    attackers, _ = attackers_of(sure.bayes)
    prior = known_before(sure, attackers)

    def gain(seen):
        logs = stack(seen, [attackers["boosted"](seen, 12, prior)], prior)
        return mean_by_person(bits_of(logs, seen.wanted) - bits_of(prior, seen.wanted), clues.person)

    by_person, error = gain(sure)
    assert by_person <= 2 * error
    mixed = replace(sure)
    mixed.__dict__["fold"] = np.arange(400) % guesses.FOLDS  # the broken twin: dealt out case by case
    by_case, error = gain(mixed)
    assert by_case > 4 * error > 0


def test_errors_count_people_not_cases():
    rng = np.random.default_rng(0)
    values, person = np.repeat(rng.normal(size=100), 9), np.repeat(np.arange(100), 9)
    one, error = mean_by_person(values[::9], person[::9])
    assert error == pytest.approx(values[::9].std(ddof=1) / 10)
    assert mean_by_person(values, person) == pytest.approx((one, error))


def test_what_was_known_before_is_not_gained_again():
    """Before the query everything is known already; how often each value is tells less."""
    clues = planted(0.5, 1)
    logs = clues.bayes["bayes"].copy()
    logs[:, 0] = logs[:, 1]
    known = replace(clues, bayes={"bayes": logs})
    attackers, _ = attackers_of(known.bayes)
    prior = known_before(known, attackers)
    told, error = mean_by_person(
        bits_of(prior, known.wanted) - bits_of(guesses.counted(known), known.wanted), known.person
    )
    assert abs(told - true_leak(0.5)) < 3 * error
    bits, error = let_guess(known, attackers, prior).gain(1)
    assert abs(bits) < max(2 * error, 0.005)


def test_cautious_weights_are_zero_until_something_is_gained():
    rng = np.random.default_rng(0)
    chosen = rng.integers(N, size=500)
    good = 0.8 * np.eye(N)[chosen] + rng.normal(size=(500, N))
    bad = -good
    start = np.full((500, N), -np.log(N))
    w = fit_choice(np.stack([good, bad, rng.normal(size=(500, N)) * 1e-6], axis=2), chosen, start, cautious=True)
    assert w[0] > 0.5
    assert w[1] == 0
    plain = fit_choice(good[..., None], chosen, start)
    assert fit_choice(bad[..., None], chosen, start) == pytest.approx(-plain, abs=1e-4)
    assert w[0] < plain[0]


def test_without_scikit_learn_the_others_go_on_and_it_is_said(monkeypatch):
    monkeypatch.setattr(guesses, "find_spec", lambda name: None)
    attackers, missing = attackers_of(["bayes"])
    assert list(attackers) == ["bayes", "logistic"]
    assert missing == ("boosted",)
    clues = planted(0.5, 3)
    bits, error = let_guess(clues, attackers, known_before(clues, attackers)).gain(1)
    assert abs(bits - true_leak(0.5)) < 3 * error
