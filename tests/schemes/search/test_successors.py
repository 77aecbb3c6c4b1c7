"""future: V of a set is the simple lower bound of the rows that follow it."""

import numpy as np
import pytest

from onoff.experiments import families
from onoff.model.bounds import bounds
from onoff.model.rows import Rows
from onoff.schemes.search.successors import SuccessorCost


def test_v_is_the_simple_bound_of_the_rows_that_follow():
    p = families.FAMILIES["out-degree 3"](8, np.random.default_rng(1))
    chain = Rows.of(p)
    present = Rows.of(p[:3])
    sets = np.random.default_rng(2).random((20, len(present.columns))) < 0.5
    sets = sets[sets.any(axis=1)]
    for chosen, v in zip(sets, SuccessorCost(present, chain)(sets), strict=True):
        rows = Rows.of(p[present.columns[chosen]])
        simple = bounds(rows)
        expected = 1.0 if rows.distinct == 1 else max(simple.outer, simple.doeblin)
        assert v == pytest.approx(expected, abs=1e-12)
