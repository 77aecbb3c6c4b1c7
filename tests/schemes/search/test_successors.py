"""successors: a set is worth the simple lower bounds of the rows that follow it, one request after the other."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.bounds import bounds
from onoff.model.rows import Rows
from onoff.schemes.search.successors import RUN, SuccessorCost


def test_the_value_is_the_sum_of_the_simple_bounds_of_the_rows_that_follow():
    p = families.FAMILIES["out-degree 3"](8, np.random.default_rng(1))
    chain = Rows.of(p)
    present = Rows.of(p[:3])
    sets = np.random.default_rng(2).random((20, len(present.columns))) < 0.5
    sets = sets[sets.any(axis=1)]
    for chosen, v in zip(sets, SuccessorCost(present, chain)(sets), strict=True):
        expected = 0.0
        for k in range(1, RUN + 1):
            simple = bounds(np.linalg.matrix_power(p, k)[present.columns[chosen]])
            expected += max(simple.outer, simple.doeblin)
        assert v == pytest.approx(expected, abs=1e-9)


def test_all_sets_at_once_have_the_values_that_each_has():
    p = families.dirichlet(7, 1.0, np.random.default_rng(3))
    chain, present = Rows.of(p), Rows.of(p[:2])
    future = SuccessorCost(present, chain)
    sets = (np.arange(1, 1 << 7)[:, None] >> np.arange(7)) & 1 == 1
    assert future.of_all()[1:] == pytest.approx(future(sets), abs=1e-12)
    assert future.of_all()[0] == 0.0
