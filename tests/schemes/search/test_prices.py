"""Sets that pay: rows are met on average, sets are small, and the program makes a cheaper table of them."""

import numpy as np
import pytest
from tests.support.typed import present

from onoff.lab import families
from onoff.schemes.search import prices
from onoff.schemes.search.clock import never
from onoff.schemes.search.prices import _gain_of_turning, _Market, _rank, _sweep, priced_sets, steps_for


def market(p, rng):
    """A market with random prices and a random set, and the gain of a set by its definition."""
    found = _Market(p)
    found._phi[:] = rng.uniform(0, 1, size=len(found._phi))
    found._inside[:] = rng.random(p.shape[1]) < 0.5

    def gain(inside):
        offers = np.full(p.shape, -prices.UNMET)
        offers[found._row, found._column] = found._phi
        return np.where(inside, offers, -prices.UNMET).max(axis=1, initial=-prices.UNMET).sum() - inside.sum()

    return found, gain


def ranked(found):
    best, second = np.zeros(len(found._first) - 1, dtype=np.int64), np.zeros(len(found._first) - 1, dtype=np.int64)
    for u in range(len(best)):
        _rank(u, found._first, found._column, found._phi, found._inside, best, second)
    return best, second


def test_the_gain_of_one_source_more_or_less_is_the_difference():
    rng = np.random.default_rng(0)
    p = families.equal_masses(12, 3, rng)
    for _ in range(20):
        found, gain = market(p, rng)
        best, second = ranked(found)
        if (best < 0).any():
            continue  # what a row counts that is not met is no exact number
        for x in range(12):
            turned = found._inside.copy()
            turned[x] = not turned[x]
            of_column = found._start, found._of_column, found._row
            by_kernel = _gain_of_turning(x, *of_column, found._phi, found._inside, best, second)
            if by_kernel > -prices.UNMET / 2:
                assert by_kernel == pytest.approx(gain(turned) - gain(found._inside), abs=1e-9)


def test_a_sweep_never_loses_and_leaves_no_row_out():
    rng = np.random.default_rng(1)
    p = families.equal_masses(30, 4, rng)
    for _ in range(20):
        found, gain = market(p, rng)
        net = found._first, found._column, found._start, found._of_column, found._row
        best, second = ranked(found)
        before = gain(found._inside)
        changed = _sweep(0, *net, found._phi, found._inside, best, second)
        after = gain(found._inside)
        assert after > before if changed else after == before
        assert np.array_equal(np.stack([best, second]), np.stack(ranked(found)))
        assert (best >= 0).all()


def test_rows_take_what_they_want_on_average():
    p = families.nearest_points(40, 5, np.random.default_rng(1))
    found = _Market(p)
    taken = np.zeros((4000, 40), dtype=bool)
    found.trade(0.02, taken)
    behind = found._phi / 0.02  # prices began at 0
    assert np.abs(behind).max() < 0.02 * len(taken)  # of 4000 steps less than 80 are missing anywhere
    assert (p @ taken[-1] > 0).all()


@pytest.mark.slow(reason="thousands of steps")
def test_sets_that_pay_are_smaller_than_those_of_a_race():
    from onoff.schemes import design

    p = families.nearest_points(60, 6, np.random.default_rng(1))
    sets = present(priced_sets(p, never))
    assert len(sets) == prices.KEPT_SETS
    assert sets.sum(axis=1).mean() < 0.75 * design(p, "race").cost


def test_out_of_time_there_are_no_sets():
    assert priced_sets(families.torus(4, 0.2), lambda: True) is None


def test_the_work_is_foreseen():
    assert steps_for(np.eye(3)) == 3 * (sum(steps for _, steps in prices.PACES) + prices.KEPT_SETS * prices.STEPS_APART)
