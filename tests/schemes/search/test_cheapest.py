"""cheapest: exact tables of proposed masses, and the cheapest of all that were offered."""

import numpy as np
import pytest
from tests.support.matrices import many

from onoff.lab import families
from onoff.model.bounds import lower_bound
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design, full, greedy
from onoff.schemes.search import cheapest
from onoff.schemes.search.cheapest import CheapestTable, sets_of, table_of


def test_the_queries_of_a_table_as_sets():
    rows = Rows.of([[0.5, 0.0, 0.25, 0.25], [0.25, 0.0, 0.25, 0.5]])
    table = greedy.build(rows)
    assert [tuple(rows.columns[chosen].tolist()) for chosen in sets_of(table)] == list(table.queries)


def test_the_masses_of_a_table_give_a_table_that_costs_no_more():
    for rows in many(17, 20, 6):
        table = greedy.build(rows)
        made = table_of(rows, sets_of(table), table.mass / UNIT)
        made.verify()
        assert float(made.exact_cost - table.exact_cost) < 1e-9


def test_the_cheapest_is_kept_in_whatever_order_tables_come():
    rows = Rows.of(families.dirichlet(7, 0.5, np.random.default_rng(3)))
    tables = [full.build(rows), design(rows, "optimal"), greedy.build(rows)]
    costs = sorted(table.exact_cost for table in tables)
    assert costs[0] < costs[1] < costs[2]
    for order in (tables, tables[::-1]):
        kept = CheapestTable(rows)
        assert kept.cost == np.inf
        for table in order:
            kept.offer(table)
        assert kept.table is tables[1]
        assert kept.cost == tables[1].cost


def test_what_would_cost_more_is_not_repaired(monkeypatch):
    """Half of the mass is left to everything: Algorithm 1 is counted, and built only where it could be of use."""
    rows = Rows.of(families.dirichlet(12, 1.0, np.random.default_rng(1)))
    whole, built = greedy.build(rows), []
    build = greedy.build
    monkeypatch.setattr(greedy, "build", lambda *given: built.append(given) or build(*given))  # type: ignore[func-returns-value]
    for known, times in ((full.build(rows), 1), (design(rows, "optimal"), 0)):
        built.clear()
        kept = CheapestTable(rows)
        kept.offer(known)
        kept.offer_masses(sets_of(whole), whole.mass / (2 * UNIT))
        assert len(built) == times
        assert (kept.cost < known.cost) == (times == 1)


@pytest.mark.parametrize("at_once", [False, True])
def test_masses_of_few_sources_wait_until_they_are_needed(monkeypatch, at_once):
    rows = Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(4)))
    table = greedy.build(rows)
    if at_once:
        monkeypatch.setattr(cheapest, "SMALL_PROGRAM", 0)
    kept = CheapestTable(rows)
    kept.postpone(sets_of(table), table.mass / UNIT)
    assert (kept.table is not None) is at_once
    kept.offer_postponed()
    assert kept.cost == pytest.approx(table.cost, rel=1e-9)


def test_algorithm_1_is_offered_where_it_fits_in_memory(monkeypatch):
    rows = Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(5)))
    kept = CheapestTable(rows)
    kept.offer_algorithm_1()
    assert kept.cost == greedy.build(rows).cost
    monkeypatch.setattr(greedy, "fits_in_memory", lambda rows: False)
    kept = CheapestTable(rows)
    kept.offer_algorithm_1()
    assert kept.table is None


def test_races_give_a_table_between_the_bound_and_everything_and_always_the_same():
    rows = Rows.of(families.dirichlet(12, 0.3, np.random.default_rng(6)))
    bound = float(lower_bound(rows))
    costs = []
    for _ in range(2):
        kept = CheapestTable(rows)
        kept.offer_races(bound)
        assert kept.table is not None
        kept.table.verify()
        costs.append(kept.table.exact_cost)
    assert costs[0] == costs[1]
    assert bound <= costs[0] < 12


def test_races_that_are_clearly_more_expensive_make_no_table(monkeypatch):
    rows = Rows.of(families.dirichlet(9, 0.3, np.random.default_rng(7)))
    kept = CheapestTable(rows)
    kept.offer(design(rows, "optimal"))
    monkeypatch.setattr(cheapest, "CLEARLY_MORE", 0.5)
    monkeypatch.setattr(cheapest, "table_of", lambda *proposed: pytest.fail("a table was made"))
    kept.offer_races(float(lower_bound(rows)))
