"""Seeded entropy: the interface of the real one, and the same numbers again."""

import os

import numpy as np
import pytest
from scipy.stats import chisquare

from onoff.model.rows import UNIT
from onoff.session.seeded import SeededEntropy
from onoff.session.session import SystemEntropy


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


@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE", "same") != "same", reason="new draws were asked for")
def test_what_a_test_draws_is_the_same_in_every_run():
    """By the fixture `same_draws` of all tests: sessions and audits in the process of a test draw with its seed."""
    assert [SystemEntropy().choose([1, 2, 3]) for _ in range(9)] == [2, 0, 1, 1, 1, 1, 1, 2, 1]
    assert SystemEntropy().uniforms(2).tolist() == pytest.approx([0.088517, 0.468325], abs=1e-6)
    assert [int(np.random.default_rng().integers(1000)) for _ in range(3)] == [919, 941, 308]
    assert np.random.default_rng(5).integers(1000, size=3).tolist() == [670, 805, 22]
