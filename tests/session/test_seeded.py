"""Seeded entropy: the interface of the real one, and the same numbers again."""

import numpy as np
import pytest
from scipy.stats import chisquare

from onoff.model.rows import UNIT
from onoff.session.seeded import SeededEntropy


def test_the_same_seed_gives_the_same_draws():
    one, two = (SeededEntropy(np.random.default_rng(5)) for _ in range(2))
    assert [one.choose([1, 2, 3]) for _ in range(50)] == [two.choose([1, 2, 3]) for _ in range(50)]
    assert one.uniforms(5).tolist() == two.uniforms(5).tolist()


@pytest.mark.statistical
def test_choices_follow_the_weights():
    """Chi-square at alpha = 1e-9; the seed is fixed, so this never fails by chance."""
    entropy = SeededEntropy(np.random.default_rng(1))
    weights = [UNIT // 8, 0, UNIT // 8 * 7]
    seen = np.bincount([entropy.choose(weights) for _ in range(4000)], minlength=3)
    assert seen[1] == 0
    assert chisquare(seen[[0, 2]], [500, 3500]).pvalue > 1e-9


def test_uniforms_are_inside_the_open_interval():
    drawn = SeededEntropy(np.random.default_rng(2)).uniforms(10_000)
    assert drawn.min() > 0
    assert drawn.max() < 1
