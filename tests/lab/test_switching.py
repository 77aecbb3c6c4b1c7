"""Switching: the fixed pattern and the random process as laws of the status."""

import numpy as np
import pytest

from onoff.errors import InvalidPattern
from onoff.lab.walk import Pattern, RandomSwitching, draw_statuses


def test_a_pattern_is_certain():
    pattern = Pattern.parse("ON OFF*2 ON")
    assert [pattern.chance(t, None) for t in range(pattern.steps)] == [1, 0, 0, 1]
    assert str(pattern) == "ON OFF*2 ON"
    assert draw_statuses(pattern, 1, np.array([True, False]), 2, np.random.default_rng(0)).tolist() == [False, False]
    assert draw_statuses(pattern, 3, np.array([True, False]), 2, np.random.default_rng(0)).tolist() == [True, True]


def test_random_switching_starts_on_and_flips():
    switching = RandomSwitching(steps=4, turn_off=1.0, turn_on=1.0)
    statuses, before = [], None
    for t in range(4):
        before = draw_statuses(switching, t, before, 1, np.random.default_rng(t))
        statuses.append(bool(before[0]))
    assert statuses == [True, False, True, False]
    assert RandomSwitching(4, 0.25, 0.5).chance(1, True) == 0.75
    assert RandomSwitching(4, 0.25, 0.5).chance(1, False) == 0.5


@pytest.mark.parametrize(("steps", "off", "on"), [(0, 0.5, 0.5), (3, -0.1, 0.5), (3, 0.5, 1.1), (3, float("nan"), 0)])
def test_what_is_no_process_is_refused(steps, off, on):
    with pytest.raises(InvalidPattern):
        RandomSwitching(steps, off, on)
