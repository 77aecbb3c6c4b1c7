"""branching: the tree bounds every gain whenever it is stopped, and grown to its end it finds the best set."""

import numpy as np
import pytest
from tests.schemes.search.test_pricing import brute_force, random_duals

from onoff.model.certificate import LEAF
from onoff.schemes.search.branching import branch


def never():
    return False


def after(count):
    """Over after it was asked so often."""
    asked = iter(range(count))
    return lambda: next(asked, None) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_best_set_is_found_and_proved_best(seed):
    duals = random_duals(np.random.default_rng(seed), 8, 20)
    best = brute_force(duals)[1].max()
    tree = branch(duals, never)
    assert best - 1e-9 <= tree.most <= max(best, 0.0) + 1e-6
    if best > 1e-6:
        assert duals.gains(tree.sets).max() == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("asked", [0, 1, 3, 10])
def test_stopped_at_any_moment_it_bounds_every_gain(asked):
    worst = 0.0
    for seed in range(10):
        duals = random_duals(np.random.default_rng(seed), 9, 30)
        tree = branch(duals, after(asked))
        best = brute_force(duals)[1].max()
        assert tree.most >= best - 1e-9
        assert tree.nodes.count(LEAF) == len(tree.leaves) == len(tree.nodes) // 2 + 1 <= asked + 1
        worst = max(worst, tree.most - best)
    assert worst > 0.01 or asked == 10  # stopped early it does not know the best
