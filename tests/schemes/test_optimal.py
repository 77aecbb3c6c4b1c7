"""optimal: equal to the program over all subsets where that can be solved, at its lower bound where that is met."""

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.schemes.matrices import many

from onoff.experiments import families
from onoff.experiments.families import FAMILIES
from onoff.rows import Rows
from onoff.schemes import design
from onoff.schemes.certificate import check

SAME_COST = 1e-9


def hall_program(rows):
    """OPT by the program with every set as a query and every set as a Hall inequality, in floats."""
    p = rows.probabilities()
    masks = np.arange(1, 1 << p.shape[1])
    members = (masks[:, None] >> np.arange(p.shape[1])) & 1
    meets = (masks[:, None] & masks[None, :]) > 0
    solved = linprog(
        members.sum(axis=1),
        A_ub=-meets.astype(float),
        b_ub=-(p @ members.T).max(axis=0),
        A_eq=np.ones((1, len(masks))),
        b_eq=[1.0],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return solved.fun


def proven_optimal(table):
    """Exact, met by its own lower bound, and that bound proved by the independent check."""
    table.verify()
    assert table.optimal
    assert check(table.rows, table.details["certificate"]) >= table.lower_bound - 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_program_over_all_subsets(seed):
    for rows in many(seed, 40, 6):
        table = design(rows, "optimal")
        proven_optimal(table)
        assert table.cost == pytest.approx(hall_program(rows), abs=SAME_COST)


@pytest.mark.parametrize("name", FAMILIES)
def test_equals_the_program_over_all_subsets_in_every_family(name):
    rng = np.random.default_rng(3)
    for n in (4, 6, 7):
        rows = Rows.of(FAMILIES[name](n, rng))
        table = design(rows, "optimal")
        proven_optimal(table)
        assert table.cost == pytest.approx(hall_program(rows), abs=SAME_COST)


@pytest.mark.parametrize(("n", "k"), [(4, 2), (5, 3), (6, 2), (6, 3)])
def test_rows_uniform_on_all_k_subsets_cost_n_minus_k_plus_1(n, k):
    table = design(families.k_subsets(n, k), "optimal")
    proven_optimal(table)
    assert table.cost == pytest.approx(n - k + 1, abs=SAME_COST)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("dirichlet 0.1", 20),
        ("dirichlet 1", 20),
        ("dirichlet 10", 20),
        ("sticky", 50),
        ("zipf", 20),
        ("browsing", 20),
        ("ring", 20),
        ("ring", 21),
        ("small diagonal", 20),
        ("grid", 25),
    ],
)
def test_meets_its_lower_bound(name, n):
    proven_optimal(design(FAMILIES[name](n, np.random.default_rng(0)), "optimal"))


def test_one_row_asks_for_what_is_wanted():
    table = design([[0.25, 0.75], [0.25, 0.75]], "optimal")
    proven_optimal(table)
    assert table.queries == [(0,), (1,)]


def test_the_same_seed_gives_the_same_table():
    matrix = FAMILIES["dirichlet 1"](12, np.random.default_rng(4))
    assert design(matrix, "optimal").as_dict() == design(matrix, "optimal").as_dict()


def test_out_of_time_it_is_still_exact_and_the_bound_still_true():
    matrix = FAMILIES["grid"](36, np.random.default_rng(0))
    table = design(matrix, "optimal", budget=0.0)
    table.verify()
    assert table.cost >= table.lower_bound
    assert check(table.rows, table.details["certificate"]) >= table.lower_bound - 1e-12
