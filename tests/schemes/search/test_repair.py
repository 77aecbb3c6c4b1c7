"""repair: exact as before, never dearer, and much cheaper where much was left to "everything"."""

import numpy as np
from tests.support.matrices import many

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import greedy
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.repair import everything_left, laid_together, repaired


def test_a_proposal_of_nothing_becomes_algorithm_1():
    for rows in many(31, 40, 8):
        table = repaired(rebuild(rows, [], []))
        table.verify()
        assert abs(float(table.exact_cost - greedy.build(rows).exact_cost)) < 1e-9


def test_half_a_proposal_keeps_its_half():
    rows = Rows.of(families.dirichlet(12, 1.0, np.random.default_rng(1)))
    whole = greedy.build(rows)
    half = rebuild(rows, whole.queries, whole.mass / 2**61)
    mended = repaired(half)
    mended.verify()
    assert mended.exact_cost < half.exact_cost
    assert mended.cost < 1.2 * whole.cost


def test_three_tables_laid_together_are_the_first_two_and_then_the_third():
    rows = Rows.of(families.dirichlet(9, 1.0, np.random.default_rng(4)))
    one = rebuild(rows, [(0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 8)], [0.2, 0.3])
    rest = everything_left(one)
    two = rebuild(rest, [(1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5)], [0.1, 0.1])
    three = greedy.build(everything_left(two), int(two.mass[-1]))
    together = laid_together(rows, one, two, three)
    together.verify()
    assert together.as_dict() == laid_together(rows, one, laid_together(rest, two, three)).as_dict()
    assert together.exact_cost < one.exact_cost


def test_nothing_to_mend_is_left_alone():
    rows = Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(2)))
    table = rebuild(rows, greedy.build(rows).queries, greedy.build(rows).mass / 2**60)
    assert repaired(table) is table


def test_rows_too_many_for_algorithm_1_are_left_as_they_are(monkeypatch):
    rows = Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(2)))
    table = rebuild(rows, [(0, 1, 2)], [0.3])
    assert repaired(table).cost < table.cost
    monkeypatch.setattr(greedy, "MOST_BYTES", 4 * 6**3 - 1)
    assert repaired(table) is table
