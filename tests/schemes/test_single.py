"""single: the closed form of the paper's second linear program at c = 1."""

from fractions import Fraction

import pytest
from tests.support.matrices import many

from onoff.model.rows import UNIT
from onoff.schemes import design


@pytest.mark.parametrize("seed", range(4))
def test_cost_is_theta_1_and_everything_possible_for_the_rest(seed):
    for rows in many(seed, 50, 12):
        table = design(rows, "single")
        table.verify()
        theta_1 = Fraction(sum(rows.weights.min(axis=0).tolist()), UNIT)
        assert table.exact_cost == theta_1 + len(rows.columns) * (1 - theta_1)
        assert all(len(q) == 1 or q == tuple(rows.columns.tolist()) for q in table.queries)


def test_the_example_of_the_introduction():
    table = design([[0.75, 0.25], [0.25, 0.75]], "single")
    assert table.queries == [(0,), (1,), (0, 1)]
    assert [m * 4 // UNIT for m in table.mass.tolist()] == [1, 1, 2]


def test_equal_rows_need_no_hiding():
    table = design([[0.5, 0.25, 0.25]] * 5, "single")
    assert table.queries == [(0,), (1,), (2,)]
    assert table.cost == 1
