"""auto: optimal where a table fits, the race beyond."""

import numpy as np
from tests.support.matrices import many

from onoff.experiments import families
from onoff.model.rows import Rows
from onoff.schemes import auto, design, optimal, race
from onoff.schemes.race import Race


def test_every_table_is_exact_and_optimal_while_small():
    for rows in many(21, 40, 6):
        table = design(rows, "auto")
        table.verify()
        assert table.optimal


def test_the_race_where_no_table_fits(monkeypatch):
    rows = Rows.of(families.dirichlet(20, 1.0, np.random.default_rng(1)))
    assert design(rows, "auto").scheme == "optimal"
    monkeypatch.setattr(auto, "MOST_CELLS", 399)
    assert isinstance(design(rows, "auto"), Race)


def test_the_race_where_the_time_was_too_short_for_anything_as_cheap():
    rows = Rows.of(families.dirichlet(40, 1.0, np.random.default_rng(1)))
    taken = design(rows, "auto", budget=0.0)
    table = optimal.build(rows, budget=0.0)
    assert race.build(rows).cost < auto.MUCH_CHEAPER * table.cost
    assert isinstance(taken, Race)
