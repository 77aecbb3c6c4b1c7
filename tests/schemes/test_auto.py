"""auto: optimal where a table fits, the race beyond."""

import numpy as np
import pytest
from tests.support.matrices import many
from tests.support.typed import as_a

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import auto, design, optimal, race
from onoff.schemes.race import Race
from onoff.tables.table import QueryTable


def test_every_table_is_exact_and_optimal_while_small():
    for rows in many(21, 40, 6):
        table = as_a(QueryTable, design(rows, "auto"))
        table.verify()
        assert table.optimal


@pytest.mark.parametrize("most", ["MOST_SEARCHED_CELLS", "MOST_SEARCHED_ENTRIES"])
def test_the_race_where_no_table_fits(monkeypatch, most):
    rows = Rows.of(families.dirichlet(20, 1.0, np.random.default_rng(1)))
    assert design(rows, "auto").scheme == "optimal"
    monkeypatch.setattr(auto, most, 399)
    assert isinstance(design(rows, "auto"), Race)


def test_zeros_are_no_work(monkeypatch):
    monkeypatch.setattr(auto, "MOST_SEARCHED_ENTRIES", 60)
    assert design(families.out_degree(20, 3, np.random.default_rng(1)), "auto").scheme == "optimal"


@pytest.mark.parametrize("each", ["ENTRIES_PER_SECOND", "CELLS_PER_SECOND"])
def test_the_race_where_the_budget_is_short_for_so_many_cells(monkeypatch, each):
    rows = Rows.of(families.dirichlet(20, 1.0, np.random.default_rng(1)))
    monkeypatch.setattr(auto, "FEW_ENTRIES", 100)
    monkeypatch.setattr(auto, each, 300)
    assert isinstance(design(rows, "auto", budget=1.0), Race)
    assert design(rows, "auto", budget=2.0).scheme == "optimal"


def test_the_race_where_it_is_cheaper_than_what_was_found():
    rows = Rows.of(families.dirichlet(40, 1.0, np.random.default_rng(1)))
    assert race.build(rows).cost < optimal.build(rows, budget=0.0).cost
    assert isinstance(design(rows, "auto", budget=0.0), Race)
    table = as_a(QueryTable, design(rows, "auto", budget=5.0))
    assert table.cost < race.build(rows).cost


@pytest.mark.slow(reason="rows of a thousand sources are searched")
def test_a_thousand_sparse_sources_cost_less_than_by_the_race_in_the_time_of_a_session():
    """Three hundred sources that may have been the last one, with six random successors each."""
    rows = Rows.of(families.out_degree(1000, 6, np.random.default_rng(1))[:300])
    table = as_a(QueryTable, design(rows, "auto", budget=2.0))
    table.verify()
    assert table.cost < 0.95 * race.build(rows).cost
