"""auto: optimal where a table fits, the race beyond."""

import numpy as np
import pytest
from tests.support.matrices import many
from tests.support.typed import as_a

from onoff.experiments import families
from onoff.model.rows import Rows
from onoff.schemes import auto, design, optimal, race
from onoff.schemes.race import Race
from onoff.tables.table import QueryTable


def test_every_table_is_exact_and_optimal_while_small():
    for rows in many(21, 40, 6):
        table = as_a(QueryTable, design(rows, "auto"))
        table.verify()
        assert table.optimal


def test_the_race_where_no_table_fits(monkeypatch):
    rows = Rows.of(families.dirichlet(20, 1.0, np.random.default_rng(1)))
    assert design(rows, "auto").scheme == "optimal"
    monkeypatch.setattr(auto, "MOST_SEARCHED_CELLS", 399)
    assert isinstance(design(rows, "auto"), Race)


def test_the_race_where_the_budget_is_short_for_so_many_cells(monkeypatch):
    rows = Rows.of(families.dirichlet(20, 1.0, np.random.default_rng(1)))
    monkeypatch.setattr(auto, "FEW_CELLS", 100)
    monkeypatch.setattr(auto, "CELLS_PER_SECOND", 300)
    assert isinstance(design(rows, "auto", budget=1.0), Race)
    assert design(rows, "auto", budget=2.0).scheme == "optimal"


@pytest.mark.slow(reason="many cases are worked out")
def test_the_race_where_it_is_much_cheaper_than_what_was_found(monkeypatch):
    rows = Rows.of(families.dirichlet(40, 1.0, np.random.default_rng(1)))
    raced, table = race.build(rows).cost, optimal.build(rows, budget=0.0).cost
    assert design(rows, "auto", budget=0.0).cost == table < raced  # without any time a table is the cheaper one
    monkeypatch.setattr(auto, "MUCH_CHEAPER", 1.01 * raced / table)
    assert isinstance(design(rows, "auto", budget=0.0), Race)
