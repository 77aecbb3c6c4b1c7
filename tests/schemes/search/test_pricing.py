"""pricing: climbing finds good sets, looking at all subsets finds the best."""

import numpy as np
import pytest

from onoff.schemes.search.pricing import Duals, by_all_subsets, by_climbing


def random_duals(rng, n, count):
    return Duals(float(rng.uniform(1, 4)), rng.exponential(0.4, size=count), rng.random((count, n)) < 0.6)


def brute_force(duals):
    n = duals.inside.shape[1]
    sets = (np.arange(1, 1 << n)[:, None] >> np.arange(n)) & 1 == 1
    return sets, duals.gains(sets)


def test_gains_are_what_they_are_defined_to_be():
    duals = Duals(3.0, np.array([0.5, 1.0]), np.array([[True, True, False], [True, False, False]]))
    sets = np.array([[True, False, False], [True, True, False], [False, False, True]])
    assert duals.gains(sets).tolist() == [3 - 1 - 1.5, 3 - 2 - 0.5, 3 - 1]


@pytest.mark.parametrize("seed", range(20))
def test_exact_pricing_agrees_with_brute_force(seed):
    rng = np.random.default_rng(seed)
    duals = random_duals(rng, 8, 20)
    _, gains = brute_force(duals)
    sets, found = by_all_subsets(duals)
    assert found[0] == pytest.approx(gains.max(), abs=1e-9)
    assert np.count_nonzero(found > 1e-9) == np.count_nonzero(gains > 1e-9)
    assert duals.gains(sets) == pytest.approx(found, abs=1e-9)


def test_climbing_ends_where_no_single_change_gains():
    rng = np.random.default_rng(30)
    best = 0
    for _ in range(30):
        duals = random_duals(rng, 9, 25)
        sets, gains = by_climbing(duals, np.eye(9, dtype=bool), 0.0, rng)
        assert gains == pytest.approx(duals.gains(sets), abs=1e-9)
        best += gains[0] >= brute_force(duals)[1].max() - 1e-9
        for chosen, gain in zip(sets, gains, strict=True):
            changed = np.tile(chosen, (9, 1)) ^ np.eye(9, dtype=bool)
            changed = changed[changed.any(axis=1)]
            assert duals.gains(changed).max() <= gain + 1e-8
    assert best >= 25  # nine starts nearly always reach the best of all


def test_noise_changes_where_climbing_ends_but_not_what_is_reported():
    rng = np.random.default_rng(31)
    duals = random_duals(rng, 12, 60)
    sets, gains = by_climbing(duals, np.eye(12, dtype=bool), 0.5, rng)
    assert gains == pytest.approx(duals.gains(sets), abs=1e-9)
    assert (np.diff(gains) <= 1e-12).all()
