"""hull: rows inside the convex hull of others are found and cost nothing; table and proof hold for all rows."""

import numpy as np
import pytest
from tests.support.typed import present

from onoff.lab import families
from onoff.model.checker import check_certificate
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.schemes.search.hull import extreme_rows, lifted
from onoff.schemes.search.portfolio import never


def with_mixtures(extreme, count, rng):
    """Rows, and mixtures of them, in a random order."""
    rows = np.vstack([extreme, rng.dirichlet(np.ones(len(extreme)), size=count) @ extreme])
    return rows[rng.permutation(len(rows))]


@pytest.mark.parametrize("seed", range(5))
def test_mixtures_are_inside_and_what_they_are_mixtures_of_is_not(seed):
    rng = np.random.default_rng(seed)
    p = families.dirichlet(20, 0.5, rng, rows=6)
    matrix = with_mixtures(p, 15, rng)
    rows = Rows.of(matrix)
    extreme, weights = extreme_rows(rows, never)
    assert np.allclose(np.sort(rows.probabilities()[extreme], axis=0), np.sort(p, axis=0), atol=1e-12)
    assert np.allclose(weights @ rows.probabilities()[extreme], rows.probabilities(), atol=1e-9)
    assert (weights >= 0).all()


@pytest.mark.parametrize(
    "matrix",
    [families.torus(5), families.k_subsets(5, 2), families.dirichlet(12, 1.0, np.random.default_rng(0)), np.eye(6)],
)
def test_rows_that_are_extreme_stay(matrix):
    extreme, weights = extreme_rows(Rows.of(matrix), never)
    assert len(extreme) == len(matrix)
    assert np.array_equal(weights, np.eye(len(matrix)))


def test_out_of_time_all_rows_stay():
    rng = np.random.default_rng(1)
    rows = Rows.of(with_mixtures(families.dirichlet(9, 1.0, rng, rows=3), 5, rng))
    assert len(extreme_rows(rows, lambda: True)[0]) == rows.distinct


@pytest.mark.parametrize("seed", range(5))
def test_the_table_of_the_extreme_rows_is_one_for_all_at_the_same_cost(seed):
    rng = np.random.default_rng(seed)
    rows = Rows.of(with_mixtures(families.dirichlet(16, 0.5, rng, rows=6), 20, rng))
    extreme, weights = extreme_rows(rows, never)
    alone = design(rows.part(extreme.tolist()), "optimal", budget=20.0)
    table = lifted(rows, alone, weights)
    table.verify()
    assert table.rows is rows
    assert table.cost == pytest.approx(alone.cost, abs=1e-7)


def test_the_proof_holds_for_all_rows():
    rng = np.random.default_rng(3)
    rows = Rows.of(with_mixtures(families.dirichlet(16, 0.5, rng, rows=6), 20, rng))
    table = design(rows, "optimal", budget=20.0)
    table.verify()
    assert check_certificate(rows, present(table.certificate)) == table.proven_bound
    assert table.optimal


def test_components_may_have_mixtures_too():
    rng = np.random.default_rng(4)
    parts = [with_mixtures(families.dirichlet(6, 0.5, rng, rows=4), 3, rng) for _ in range(2)]
    matrix = np.block([[parts[0], np.zeros((7, 6))], [np.zeros((7, 6)), parts[1]]])
    rows = Rows.of(matrix)
    table = design(rows, "optimal", budget=20.0)
    table.verify()
    assert check_certificate(rows, present(table.certificate)) == table.proven_bound
    assert table.optimal


def test_rows_a_few_units_apart_cost_no_more_than_those_units():
    """One of them stands for all, and knows no source but the first."""
    weights = np.array([[UNIT, 0, 0], [UNIT - 1, 1, 0], [UNIT - 3, 1, 2], [UNIT - 2, 0, 2]])
    rows = Rows.from_integers(weights, 3)
    table = design(rows, "optimal")
    table.verify()
    assert 1 <= table.cost < 1 + 1e-9
