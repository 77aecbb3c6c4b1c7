"""Bounds: exact where it matters, on the side they claim, and equal to the linear program where that is proven."""

import sys
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from onoff.errors import InvalidChain, InvalidInput, UnknownSource
from onoff.lab import families
from onoff.model.bounds import (
    FOUR_SOURCES,
    STRIP,
    _add_ordered,
    bounds,
    lambda_units,
    lower_bound,
    outer_bound_2,
    step_bounds,
    symmetric_cost,
    theta_units,
    two_source_cost,
)
from onoff.model.chain import LARGEST_DENSE, MarkovChain
from onoff.model.rows import MANY_UNITS, UNIT, Rows, SparseRows, exact_sum, from_halves

PAPER = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
LP_TOLERANCE = 1e-7
"""HiGHS meets its constraints to 1e-7."""
ONE_ROUNDING = 1e-15
"""Three decimals rounded to units of 2**-60, and the float that reports them."""


def optimum(matrix) -> float:
    """OPT by the program over all sets: masses that hit every set C at least as often as some row is in C."""
    matrix = np.asarray(matrix, dtype=float)
    n = matrix.shape[1]
    masks = np.arange(1, 2**n)
    members = (masks[:, None] >> np.arange(n)) & 1
    hits = (masks[:, None] & masks[None, :]) > 0
    needed = (members @ matrix.T).max(axis=1)
    found = linprog(members.sum(axis=1), -hits.astype(float), -needed, np.ones((1, len(masks))), [1.0])
    assert found.status == 0
    return found.fun  # type: ignore[return-value]


def random_rows(rng, m, n):
    """Rows of mixed character: dense, nearly deterministic, with zeros, with a small diagonal."""
    rows = rng.dirichlet(np.full(n, rng.choice([0.1, 1.0, 10.0, 50.0])), size=m)
    if rng.random() < 0.3:
        rows[np.arange(min(m, n)), np.arange(min(m, n))] *= 0.05
    if rng.random() < 0.3:
        rows = np.where(rng.random(rows.shape) < 0.3, 0, rows) + 1e-6 * (rng.random(rows.shape) < 0.1)
        rows[rows.sum(axis=1) == 0] = 1.0
    return rows / rows.sum(axis=1, keepdims=True)


def test_the_papers_three_by_three_example():
    b = bounds(PAPER)
    assert b.lambdas == (0.5, 0.9, 1.6)
    assert b.thetas == pytest.approx((0.5, 0.4, 0.1), abs=ONE_ROUNDING)
    assert (b.n, b.m, b.sigma) == (3, 3, 2)
    assert b.inner == b.outer == b.lower == 1.6
    assert b.doeblin == 1.5
    assert b.as_dict()["lambdas"] == [0.5, 0.9, 1.6]


def test_lambdas_and_thetas_are_sums_of_exact_integers():
    rng = np.random.default_rng(1)
    for _ in range(50):
        rows = Rows.of(random_rows(rng, int(rng.integers(1, 9)), int(rng.integers(1, 9))))
        lambdas = lambda_units(rows)
        assert sum(lambdas) == rows.m * UNIT
        assert lambdas == sorted(lambdas)
        assert sum(theta_units(lambdas)) == UNIT


def added_when_sorted(table) -> list[int]:
    """What the kernel makes of a table."""
    low, high = np.zeros((2, len(table)), dtype=np.int64)
    _add_ordered(table, low, high)
    return from_halves(high, low)


@pytest.mark.parametrize("m", range(1, 14))
def test_columns_sorted_side_by_side_are_sorted_whatever_they_hold(m):
    """Which rows are compared does not depend on the entries, so sorting every column of zeros and ones is enough."""
    table = np.array(list(product((0, 1), repeat=m))).T
    assert added_when_sorted(table) == exact_sum(np.sort(table, axis=0), axis=1)


@pytest.mark.parametrize("m", [5, 31, 32, 33, 100, 129, 1000])
def test_columns_of_any_number_of_rows_are_sorted_side_by_side(m):
    rng = np.random.default_rng(m)
    table = np.hstack([rng.integers(0, bound, size=(m, STRIP + 5)) for bound in (2, m + 1, UNIT)])
    expected = exact_sum(np.sort(table, axis=0), axis=1)
    assert added_when_sorted(table) == expected


def test_lambdas_of_large_tables_are_those_of_numpys_sort():
    rows = Rows.of(random_rows(np.random.default_rng(3), 210, 230))
    assert rows.weights.size >= MANY_UNITS
    assert lambda_units(rows) == exact_sum(np.sort(rows.weights, axis=0), axis=1)
    twice = Rows(rows.n, rows.columns, rows.weights, np.repeat(rows.group, 2))
    assert lambda_units(twice) == exact_sum(np.sort(np.repeat(rows.weights, 2, axis=0), axis=0), axis=1)
    assert lambda_units(twice, distinct=True) == lambda_units(rows)


def test_equal_rows_count_in_the_papers_lambdas_and_not_in_the_distinct_ones():
    rows = Rows.of([PAPER[0], PAPER[0], PAPER[1]])
    assert len(lambda_units(rows)) == 3
    assert lambda_units(rows, distinct=True) == lambda_units(Rows.of(PAPER[:2]))


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ([[1.0]], 1),
        ([[0.2, 0.8]], 1),
        ([[0.25, 0.75]] * 4, 1),
        (np.eye(5), 5),
        (np.eye(4)[[1, 2, 3, 0]], 4),
        ([[0.5, 0.5, 0], [0, 0.5, 0.5]], 1.5),
    ],
)
def test_degenerate_rows_are_known_exactly(matrix, expected):
    b = bounds(matrix)
    assert b.lower == b.inner == expected
    assert optimum(matrix) == pytest.approx(expected, abs=LP_TOLERANCE)


def test_more_rows_than_sources_cap_the_inner_bound_at_n():
    extremes = [[1, 0], [0, 1], [0.5, 0.5]]
    b = bounds(extremes)
    assert b.thetas == (0.0, 1.0, 0.0)
    assert b.inner == 2
    corners = bounds([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert corners.lambdas == (0, 0, 0, 0, 3, 3)
    assert corners.inner == corners.lower == 3


def test_closed_form_of_the_inner_bound():
    """THEORY T2: for M <= N the inner bound is the largest of k + 1 - lam_1 - ... - lam_k."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        n = int(rng.integers(1, 9))
        rows = Rows.of(random_rows(rng, int(rng.integers(1, n + 1)), n))
        lambdas = lambda_units(rows)
        best = max((k + 1) * UNIT - sum(lambdas[:k]) for k in range(rows.m))
        assert bounds(rows).inner == best / UNIT


@pytest.mark.slow(reason="many cases are worked out")
def test_lower_is_the_optimum_for_three_sources_or_three_rows():
    """THEORY T3."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        for m, n in [(3, 3), (6, 3), (3, 5), (2, 6), (5, 2)]:
            matrix = random_rows(rng, m, n)
            assert bounds(matrix).lower == pytest.approx(optimum(matrix), abs=LP_TOLERANCE)


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("count", [80, pytest.param(1000, marks=pytest.mark.deep)])
def test_lower_is_the_optimum_for_four_sources(count):
    rng = np.random.default_rng(4)
    gained = 0
    for _ in range(count):
        matrix = random_rows(rng, int(rng.integers(4, 7)), 4)
        b = bounds(matrix)
        assert b.lower == pytest.approx(optimum(matrix), abs=LP_TOLERANCE)
        gained += b.lower > max(b.outer, b.doeblin, b.pairs, b.pencil) + 1e-4
    assert gained > 0, "no instance needed the complete list: the test shows nothing of it"


@pytest.mark.slow(reason="many cases are worked out")
def test_lower_never_passes_the_optimum_and_inner_never_falls_below():
    rng = np.random.default_rng(5)
    by_pairs = 0
    for _ in range(80):
        matrix = random_rows(rng, int(rng.integers(4, 8)), int(rng.integers(5, 7)))
        b, best = bounds(matrix), optimum(matrix)
        assert max(b.outer, b.doeblin, b.pairs, b.pencil) == b.lower
        assert b.lower <= best + LP_TOLERANCE
        assert best <= b.inner + LP_TOLERANCE
        by_pairs += b.lower > max(b.outer, b.doeblin)
    assert by_pairs > 0


def dual_bound_holds(n, total, weights) -> bool:
    """Weak duality: total - sum of y_A over A containing S <= |S| for every nonempty S."""
    sets = [frozenset(s) for size in range(1, n + 1) for s in combinations(range(n), size)]
    return all(total - sum(y for a, y in weights.items() if s <= a) <= len(s) for s in sets)


@pytest.mark.parametrize("which", range(len(FOUR_SOURCES)))
def test_the_list_for_four_sources_is_proved_by_weak_duality(which):
    total, scale, units = FOUR_SOURCES[which]
    total, weights = Fraction(total, scale), {s: Fraction(y, scale) for s, y in units.items()}
    assert dual_bound_holds(4, total, {frozenset("abcd".index(c) for c in a): y for a, y in weights.items()})


@pytest.mark.parametrize("n", [3, 4, 5, 7])
def test_pairs_and_pencil_are_proved_by_weak_duality_from_three_sources_on(n):
    pairs = {frozenset(p): 1 for p in combinations(range(n), 2)}
    pencil = {frozenset({0, z}): 1 for z in range(1, n)}
    pencil[frozenset(range(1, n))] = pencil.get(frozenset(range(1, n)), 0) + 1
    assert dual_bound_holds(n, 3, pairs)
    assert dual_bound_holds(n, 3, pencil)
    assert not dual_bound_holds(n, Fraction(31, 10), pairs)


def test_pairs_and_pencil_agree_with_their_definition():
    rng = np.random.default_rng(6)
    rows = Rows.of(random_rows(rng, 5, 6))
    w = [[int(v) for v in row] for row in rows.weights]
    low = {p: min(row[p[0]] + row[p[1]] for row in w) for p in combinations(range(len(w[0])), 2)}
    pairs = max(UNIT, 3 * UNIT - sum(low.values()))
    pencil = max(
        2 * UNIT + max(row[x] for row in w) - sum(v for p, v in low.items() if x in p) for x in range(len(w[0]))
    )
    b = bounds(rows)
    assert (b.pairs, b.pencil) == (pairs / UNIT, pencil / UNIT)


def test_rows_uniform_on_all_subsets_of_size_k_cost_what_is_known():
    """THEORY section 2: Lam = N/k while OPT = N - k + 1, so outer alone can be far off."""
    matrix = [[0.5 if x in pair else 0.0 for x in range(4)] for pair in combinations(range(4), 2)]
    b = bounds(matrix)
    assert b.outer == 2
    assert b.lower == 3
    assert optimum(matrix) == pytest.approx(3, abs=LP_TOLERANCE)


def test_sources_that_no_row_reaches_do_not_weaken_the_bounds():
    small = random_rows(np.random.default_rng(7), 4, 4)
    wide = np.concatenate([small, np.zeros((4, 3))], axis=1)
    assert bounds(wide).lower == bounds(small).lower
    assert lower_bound(Rows.of(wide)) == lower_bound(Rows.of(small))


def test_too_many_sources_for_pairs_leave_the_bounds_that_need_none(monkeypatch):
    matrix = np.full((6, 6), 0.19) - 0.14 * np.eye(6)
    matrix[:, :] /= matrix.sum(axis=1, keepdims=True)
    full = bounds(matrix)
    monkeypatch.setattr(sys.modules["onoff.model.bounds"], "MOST_ADDITIONS", 6**3 - 1)
    short = bounds(matrix)
    assert (short.pairs, short.pencil) == (1, 1)
    assert short.lower == max(full.outer, full.doeblin)


def test_hundreds_of_sources_are_no_trouble():
    matrix = np.random.default_rng(8).dirichlet(np.full(300, 20.0), size=300)
    b = bounds(matrix)
    assert b.outer < b.inner
    assert 1 <= b.lower <= b.inner


# -- many steps ---------------------------------------------------------------------------------------------


def symmetric(n, alpha):
    return np.full((n, n), (1 - alpha) / (n - 1)) + np.eye(n) * (alpha - (1 - alpha) / (n - 1))


@pytest.mark.parametrize(("alpha", "beta"), [(0.2, 0.2), (0.9, 0.6), (0.3, 0.7), (0, 0), (1, 1), (0.05, 0.6)])
def test_two_sources_meet_their_closed_form_at_every_step(alpha, beta):
    for step in step_bounds([[1 - alpha, alpha], [beta, 1 - beta]], 8):
        expected = two_source_cost(alpha, beta, step.t)
        assert (step.inner, step.outer, step.lower) == pytest.approx([expected] * 3, abs=1e-14)
    assert two_source_cost(alpha, beta, 0) == 2


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.2, 0.5, 0.9, 1.0])
def test_symmetric_chains_meet_their_closed_form_at_every_step(n, alpha):
    for step in step_bounds(symmetric(n, alpha), 5):
        assert step.lower == pytest.approx(symmetric_cost(n, alpha, step.t), abs=1e-13)
    assert symmetric_cost(n, alpha, 0) == n


def test_closed_forms_are_exact_for_fractions_and_agree_where_they_meet():
    alpha = Fraction(1, 7)
    assert symmetric_cost(2, 1 - alpha, 3) == two_source_cost(alpha, alpha, 3) == 1 + Fraction(5, 7) ** 3
    assert symmetric_cost(4, Fraction(1, 2), 1) == 4 * Fraction(1, 2)
    assert symmetric_cost(5, Fraction(1, 10), 1) == 2 - 5 * Fraction(1, 10)
    assert symmetric_cost(1, 1.0, 3) == 1


def test_outer_bound_2_is_the_sum_of_the_largest_entries_of_the_power():
    assert outer_bound_2(PAPER, 1) == 1.6
    square = np.linalg.matrix_power(np.array(PAPER), 2)
    assert outer_bound_2(PAPER, 2) == pytest.approx(square.max(axis=0).sum(), abs=1e-14)


def test_only_sources_that_are_possible_count():
    assert outer_bound_2(PAPER, 1, possible=[0]) == 1
    assert outer_bound_2(PAPER, 1, possible=[2, 0]) == pytest.approx(0.2 + 0.5 + 0.6)
    assert [step.t for step in step_bounds(PAPER, 3, possible=[1])] == [1, 2, 3]


def test_rows_that_are_slightly_off_stay_rows_at_every_power():
    off = np.array(PAPER) * (1 + 9e-10)
    assert step_bounds(off, 40)[-1].lower == pytest.approx(1, abs=1e-9)


def test_the_steps_of_a_chain_start_with_its_own_integers():
    chain = MarkovChain(PAPER)
    assert step_bounds(chain, 1)[0].as_dict() == {"t": 1, "inner": 1.6, "outer": 1.6, "lower": 1.6}
    sparse = MarkovChain(csr_matrix(np.array([[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]])))
    dense = sparse.dense()
    assert [s.lower for s in step_bounds(sparse, 4)] == [s.lower for s in step_bounds(dense, 4)]
    assert bounds(chain) == bounds(chain.rows())


@pytest.mark.parametrize("call", [lambda: two_source_cost(1.5, 0.1, 1), lambda: symmetric_cost(3, float("nan"), 1)])
def test_what_is_no_probability_is_refused_by_name(call):
    with pytest.raises(InvalidInput, match="is not a probability"):
        call()


def test_no_steps_are_refused():
    with pytest.raises(InvalidInput, match="0 steps"):
        step_bounds(PAPER, 0)


def test_sparse_rows_have_the_bounds_of_the_same_rows_in_integers():
    rng = np.random.default_rng(17)
    for degree in (2, 5, 12):
        matrix = families.sparse_out_degree(12, degree, rng)
        exact, sparse = bounds(matrix.toarray()), bounds(SparseRows.of_csr(matrix, np.arange(12)))
        assert (sparse.n, sparse.m, sparse.sigma) == (exact.n, exact.m, exact.sigma)
        assert sparse.lambdas == pytest.approx(exact.lambdas, abs=1e-12)
        assert sparse.inner == pytest.approx(exact.inner, abs=1e-12)
        assert (sparse.outer, sparse.doeblin) == pytest.approx((exact.outer, exact.doeblin), abs=1e-12)
        assert sparse.lower <= exact.lower
        assert sparse.lower == pytest.approx(max(exact.outer, exact.doeblin), rel=2e-9)


def test_later_steps_of_what_is_no_chain_are_refused_in_our_words():
    with pytest.raises(InvalidChain, match="2 rows and 3 columns"):
        step_bounds([[0.5, 0.5, 0], [0.2, 0.3, 0.5]], 2)
    with pytest.raises(UnknownSource, match="sources are 0 to 2"):
        step_bounds(PAPER, 2, possible=[3])
    with pytest.raises(InvalidInput, match="no source"):
        step_bounds(PAPER, 2, possible=[])


def test_more_sources_than_a_dense_matrix_takes_are_bounded_one_step_on_and_refused_beyond():
    n = LARGEST_DENSE + 1
    here = np.arange(n)
    ring = csr_matrix((np.full(2 * n, 0.5), (np.r_[here, here], np.r_[here, (here + 1) % n])), shape=(n, n))
    chain = MarkovChain(ring)
    (first,) = step_bounds(chain, 1)
    assert first.outer == pytest.approx(n / 2)
    assert first.lower <= first.inner
    with pytest.raises(InvalidChain, match="too many for a dense matrix"):
        step_bounds(chain, 2)
