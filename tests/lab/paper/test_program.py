"""The paper's program in full: how wide the optimum is, and no answer where there is none."""

import pytest

from onoff.errors import InvalidTable
from onoff.lab.paper.claim import range_of_optimal_tables
from onoff.model.rows import Rows

ROWS = Rows.of([[0.8, 0.2], [0.2, 0.8]])
TOLERANCE = 1e-7
"""HiGHS meets its constraints to 1e-7."""


def test_the_optimum_of_two_sources_is_one_table():
    assert max(high - low for low, high in range_of_optimal_tables(ROWS, cost=1.6)) <= TOLERANCE


def test_above_the_optimum_there_is_room():
    assert max(high - low for low, high in range_of_optimal_tables(ROWS, cost=1.7)) == pytest.approx(0.1, abs=TOLERANCE)


@pytest.mark.parametrize("cost", [1.2, 2.5])
def test_a_cost_that_no_table_has_is_not_taken_for_a_range_of_no_width(cost):
    with pytest.raises(InvalidTable, match="no table of cost"):
        range_of_optimal_tables(ROWS, cost=cost)
