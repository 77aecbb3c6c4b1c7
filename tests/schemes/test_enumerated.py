"""enumerated: the paper's linear programs, against the same programs in the paper's own variables."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.support.matrices import many, random_rows
from tests.support.typed import present

from onoff.errors import InvalidInput
from onoff.lab.families import dirichlet, k_subsets
from onoff.model.bounds import lambda_units
from onoff.model.rows import UNIT
from onoff.schemes import design

CLOSE = 1e-8
"""How near a cost must come to the optimum of a program solved in floats."""


def program_of_the_paper(rows, sizes):
    """The least cost with queries of these sizes, from the variables p(q, x|u) and p(q)."""
    p = rows.probabilities()
    m, n = p.shape
    queries = [q for size in sizes for q in combinations(range(n), size)]
    cells = [(u, k, x) for u in range(m) for k, q in enumerate(queries) for x in q]
    privacy = np.zeros((m * len(queries), len(cells) + len(queries)))
    budget = np.zeros((m * n, len(cells) + len(queries)))
    for at, (u, k, x) in enumerate(cells):
        privacy[u * len(queries) + k, at] = 1
        budget[u * n + x, at] = 1
    for u in range(m):
        for k in range(len(queries)):
            privacy[u * len(queries) + k, len(cells) + k] = -1
    found = linprog(
        np.concatenate([np.zeros(len(cells)), [len(q) for q in queries]]),
        A_eq=np.vstack([privacy, budget]),
        b_eq=np.concatenate([np.zeros(len(privacy)), p.reshape(-1)]),
    )
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("seed", range(2))
def test_the_cost_is_the_optimum_of_the_papers_program(seed):
    for rows in many(200 + seed, 25, 5):
        table = design(rows, "enumerated")
        table.verify()
        assert table.cost == pytest.approx(program_of_the_paper(rows, range(1, len(rows.columns) + 1)), rel=CLOSE)
        assert table.optimal


@pytest.mark.parametrize("c", [1, 2, 3])
def test_restricted_sizes(c):
    for rows in many(300 + c, 20, 5):
        reach = len(rows.columns)
        table = design(rows, "enumerated", c=c)
        table.verify()
        assert all(len(q) <= c or len(q) == reach for q in table.queries)
        sizes = sorted({*range(1, min(c, reach) + 1), reach})
        assert table.cost == pytest.approx(program_of_the_paper(rows, sizes), rel=CLOSE)


def test_c_1_is_the_closed_form():
    for rows in many(400, 60, 20):
        table = design(rows, "enumerated", c=1)
        table.verify()
        assert table.cost == pytest.approx(design(rows, "single").cost, rel=CLOSE)


def test_a_restricted_bound_holds_for_the_sizes_allowed_and_for_no_more():
    table = design(k_subsets(5, 2), "enumerated", c=1)
    assert table.details["restricted_bound"] == pytest.approx(5, abs=1e-6)  # only everything will do
    assert present(table.lower_bound) < 4
    assert not table.optimal


def test_three_sources_cost_what_greedy_costs():
    """For chains of three sources both are optimal: max(lambda_M, 2 - lambda_1)."""
    rng = np.random.default_rng(8)
    for _ in range(150):
        rows = random_rows(rng, int(rng.integers(1, 4)), 3)
        cost = design(rows, "enumerated").cost
        assert cost == pytest.approx(design(rows, "greedy").cost, rel=CLOSE)
        lambdas = lambda_units(rows)
        assert cost == pytest.approx(max(lambdas[-1], 2 * UNIT - lambdas[0]) / UNIT, rel=CLOSE)


def test_greedy_is_equal_where_it_is_proven_optimal_and_never_below():
    equal = 0
    for rows in many(600, 80, 7):
        lambdas = lambda_units(rows, distinct=True)
        optimum, greedy = design(rows, "enumerated").cost, design(rows, "greedy").cost
        assert greedy >= optimum * (1 - CLOSE)
        if rows.distinct <= 3 or lambdas[1] >= UNIT or lambdas[-2] <= UNIT:
            assert greedy == pytest.approx(optimum, rel=CLOSE)
            equal += 1
    assert equal >= 40


@pytest.mark.parametrize(("n", "k"), [(4, 2), (6, 2), (6, 3)])
def test_rows_uniform_on_all_k_subsets(n, k):
    table = design(k_subsets(n, k), "enumerated")
    table.verify()
    assert table.cost == pytest.approx(n - k + 1, rel=CLOSE)


def test_too_many_sets_are_refused_with_a_hint():
    chain = dirichlet(13, 1.0, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="8191 sets of 13 sources") as error:
        design(chain, "enumerated")
    assert "optimal" in (error.value.hint or "")
    design(chain, "enumerated", c=2).verify()


@pytest.mark.parametrize("c", [0, -1, 1.5, True, "2"])
def test_c_must_be_a_size(c):
    with pytest.raises(InvalidInput, match="not a size"):
        design([[0.5, 0.5], [0.1, 0.9]], "enumerated", c=c)
