"""transport: masses that all rows nearly follow."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import race
from onoff.schemes.search.clock import SearchClock
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.repair import repaired
from onoff.schemes.search.search import Search
from onoff.schemes.search.transport import raced, raced_sets


def few_rows(name, n, m, seed=1):
    return Rows.of(families.FAMILIES[name](n, np.random.default_rng(seed))[:m])


@pytest.mark.parametrize("name", ["dirichlet 1", "dirichlet 10", "out-degree 3"])
def test_a_table_from_races_is_cheaper_than_the_race(name):
    rows = few_rows(name, 30, 30)
    p = rows.probabilities()
    found = raced(p, raced_sets(p, np.random.default_rng(0)))
    table = repaired(rebuild(rows, [rows.columns[s].tolist() for s in found.sets], found.masses))
    table.verify()
    assert table.cost < race.build(rows).cost


def test_the_sets_of_an_unfinished_program_give_a_table_near_the_optimum():
    """Paley 31 with noise costs 2.6368; after 12 of some 50 rounds no row can follow the masses of the program."""
    rows = Rows.of(families.paley(31, 0.3, np.random.default_rng(1)))
    search = Search(rows, SearchClock(1000.0), 1e-7, np.random.default_rng(0), None)
    search.start()
    search.program.walk(primal=False)
    for _ in range(12):
        assert not search._round()
    assert search.best is None
    table = search.cheapest.table
    assert table is not None
    table.verify()
    assert table.cost < 1.15 * 2.6368
