"""greedy: Algorithm 1 as its literal transcription has it, exact, and never above the paper's inner bound."""

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from benchmarks.literal_algorithm1 import algorithm1, as_queries
from tests.support.matrices import KINDS, many

from onoff.model.bounds import bounds, lambda_units, lower_bound, theta_units
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design, greedy
from onoff.schemes.greedy import _cells, atoms

EXAMPLE = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]


def inner_units(rows):
    """The paper's inner bound of the distinct rows, in units: sum of min(i, N) theta_i."""
    thetas = theta_units(lambda_units(rows, distinct=True))
    return sum(min(i, len(rows.columns)) * units for i, units in enumerate(thetas, start=1))


def as_fractions(rows):
    return [[Fraction(units, UNIT) for units in row] for row in rows.weights.tolist()]


def as_cells(table):
    """{(query, source, distinct row): weight} for every stored cell."""
    cells = {}
    owner = np.searchsorted(table.offsets, table.slots, side="right") - 1
    for r in range(table.rows.distinct):
        for c in range(int(table.starts[r]), int(table.starts[r + 1])):
            cells[table.query(int(owner[c])), int(table.items[table.slots[c]]), r] = int(table.weights[c])
    return cells


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("seed", [0, 1, 2, *[pytest.param(seed, marks=pytest.mark.deep) for seed in range(3, 10)]])
def test_two_hundred_matrices_verify_exactly_and_cost_at_most_the_inner_bound(seed):
    for rows in many(seed, 200, 24):
        table = design(rows, "greedy")
        table.verify()
        assert table.exact_cost * UNIT <= inner_units(rows)
        assert table.cost <= bounds(rows).inner * (1 + 1e-15)  # of all rows, equal ones counted as often as they occur
        assert table.queries == sorted(table.queries, key=lambda q: (len(q), q))


def same_as_the_literal_transcription(rows):
    out, budget = algorithm1(as_fractions(rows))
    assert not any(map(any, budget))
    columns = rows.columns.tolist()
    wanted = {
        (tuple(columns[c] for c in query), columns[c], r): mass * UNIT
        for (query, c, r), mass in as_queries(out).items()
    }
    assert as_cells(design(rows, "greedy")) == wanted


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("seed", range(4))
def test_the_literal_transcription_gives_the_same_table(seed):
    for rows in many(100 + seed, 75, 9):
        same_as_the_literal_transcription(rows)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_the_literal_transcription_gives_the_same_two_thousand_tables(seed):
    for rows in many(seed, 200, 24):
        same_as_the_literal_transcription(rows)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_the_papers_proof_states(kind):
    """P(|Z| = i) = theta_i for the multisets, and the budget matrix Q ends all zero."""
    rng = np.random.default_rng(3)
    for m, n in product((1, 2, 3, 5, 8), repeat=2):
        rows = Rows.from_integers(kind(rng, m, n), n)
        found = atoms(rows)
        assert not found.budget.any()
        assert (found.mass > 0).all()
        mass: Counter[Any] = Counter()
        for a in range(len(found)):
            assert len(found.multiset(a)) == found.size[a]
            assert set(found.multiset(a)) == set(found.taken[a].tolist())
            mass[int(found.size[a])] += int(found.mass[a])
        thetas = theta_units(lambda_units(rows, distinct=True))
        assert mass == Counter({i: units for i, units in enumerate(thetas, start=1) if units})


def test_delta_lies_between_its_ranks_and_sums_to_one():
    for rows in many(21, 200, 12):
        found = atoms(rows)
        ranked = np.sort(rows.weights, axis=0)
        assert sum(found.delta.tolist()) == UNIT
        assert (ranked[found.sigma - 1] <= found.delta).all()
        assert (found.delta <= ranked[min(found.sigma, rows.distinct - 1)]).all()


def test_delta_of_the_papers_example():
    """(0.3, 0.4, 0.3); the sums as printed would give (0.6, 0.4, 0.3), which is more than one in all."""
    found = atoms(Rows.of(EXAMPLE))
    assert found.sigma == 2
    assert found.delta / UNIT == pytest.approx([0.3, 0.4, 0.3], rel=1e-15)


def test_the_papers_example_is_optimal():
    table = design(EXAMPLE, "greedy")
    assert table.cost == pytest.approx(1.6, rel=1e-15)
    assert table.lower_bound == pytest.approx(1.6, rel=1e-15)


def test_it_is_optimal_where_that_is_proven():
    """N <= 2, M <= 3, lambda_2 >= 1 or lambda_{M-1} <= 1: the cost is max(lambda_M, 2 - lambda_1), to the unit."""
    proven = 0
    for rows in many(31, 600, 8):
        lambdas = lambda_units(rows, distinct=True)
        few = len(rows.columns) <= 2 or rows.distinct <= 3
        if few or lambdas[1] >= UNIT or lambdas[-2] <= UNIT:
            proven += 1
            cost = design(rows, "greedy").exact_cost
            assert cost == Fraction(max(lambdas[-1], 2 * UNIT - lambdas[0]), UNIT) == lower_bound(rows)
    assert proven > 300


def test_different_certain_sources_are_all_asked_for():
    table = design(np.eye(5)[[3, 1, 4]], "greedy")
    assert table.queries == [(1, 3, 4)]
    assert table.mass.tolist() == [UNIT]


def test_a_level_of_no_mass_is_skipped():
    """lambda_1 = 1/2 and lambda_2 = 1 exactly: sigma is 2, and size 3 gets nothing."""
    rows = Rows.of([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.5, 0.25, 0.25]])
    rows = Rows.from_integers(rows.weights[[0, 1, 3]], 3)
    lambdas = lambda_units(rows)
    assert lambdas[1] == UNIT
    found = atoms(rows)
    assert found.sigma == 2
    assert set(found.size.tolist()) == {1, 2}
    design(rows, "greedy").verify()


def test_its_kernel_is_compiled_once(monkeypatch):
    """For one kind of arrays: processes that compile another kind at the same moment may mix up what numba keeps."""

    def cells(*arrays):
        assert all(array.flags.c_contiguous for array in arrays)
        _cells(*arrays)

    monkeypatch.setattr(greedy, "_cells", cells)
    for rows in many(42, 15, 9):
        greedy.build(rows).verify()


def test_its_cost_is_counted_without_a_table():
    for rows in many(31, 30, 7):
        cost = design(rows, "greedy").cost
        assert greedy.costs_less(rows, cost * (1 + 1e-9))
        assert not greedy.costs_less(rows, cost * (1 - 1e-9))
        assert not greedy.costs_less(rows, 0.5)
