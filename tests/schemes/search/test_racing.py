"""racing: exact after every pass, and cheaper from pass to pass."""

from itertools import count, pairwise

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import design, greedy, race
from onoff.schemes.search import racing
from onoff.schemes.search.clock import never
from onoff.schemes.search.racing import raced_in_passes


@pytest.fixture(autouse=True)
def few_races(monkeypatch):
    monkeypatch.setattr("onoff.schemes.search.search.FIRST_RACES", 150)
    monkeypatch.setattr(racing, "LATER_RACES", 60)


def after(rows, passes):
    """The table after so many passes."""
    asked = iter(range(1, passes + 1))
    return raced_in_passes(rows, lambda: next(asked) == passes, 150)


def test_each_pass_is_exact_and_cheaper():
    rows = Rows.of(families.dirichlet(40, 1.0, np.random.default_rng(1)))
    tables = [after(rows, passes) for passes in range(1, 6)]
    for table in tables:
        table.verify()
    assert all(later.exact_cost < earlier.exact_cost for earlier, later in pairwise(tables))
    assert tables[-1].cost < race.build(rows).cost < tables[0].cost


def test_it_ends_where_nothing_is_left():
    rows = Rows.of([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.25, 0.25, 0.5], [0.25, 0.5, 0.25]])
    raced_in_passes(rows, never, 150).verify()


def test_the_optimum_of_rows_too_many_for_algorithm_1_is_raced_for(monkeypatch):
    rows = Rows.of(families.dirichlet(40, 1.0, np.random.default_rng(1)))
    monkeypatch.setattr(greedy, "MOST_BYTES", 1000)
    looks = count()  # a clock on which every look takes a second: as much is done on every machine
    monkeypatch.setattr("onoff.schemes.search.clock.thread_time", lambda: float(next(looks)))
    hurried, table = design(rows, "optimal", budget=0.0), design(rows, "optimal", budget=20.0)
    assert hurried.exact_cost == after(rows, 1).exact_cost
    assert table.exact_cost < hurried.exact_cost
    table.verify()
