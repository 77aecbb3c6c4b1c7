"""The benchmark of trees: more leaves prove more, and never more than the optimum."""

import numpy as np
import pytest
from benchmarks.trees import after, run

from onoff.lab import families
from onoff.schemes import design


@pytest.mark.slow(reason="two searches and six trees")
def test_more_leaves_prove_more_and_never_more_than_the_optimum():
    found = run(sources=24, seconds=2.0, doublings=5)
    proved = list(found["proved_by_leaves"].values())
    optimum = design(families.equal_masses(24, 6, np.random.default_rng(1)), "optimal", budget=60.0)
    assert optimum.optimal
    assert proved == sorted(proved)
    assert proved[0] < proved[-1] <= optimum.cost + 1e-9
    assert found["rise_by_doubling"] > 0


def test_a_clock_is_over_after_so_many_looks():
    is_over = after(2)
    assert [is_over() for _ in range(4)] == [False, False, True, True]
