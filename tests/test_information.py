"""Beliefs and bits: the forward filter against enumeration, mutual information by hand, the G-test's error rates."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, chi2

from onoff.information import (
    EVERYTHING,
    LEAST_EXPECTED,
    Belief,
    contingency,
    entropy_bits,
    fit_g,
    g_statistic,
    independence_g,
    mutual_information,
    p_value,
    plain_chances,
    pooled,
    query_chances,
    smallest_leak,
)
from onoff.model.rows import UNIT
from onoff.schemes import design

THIRDS = np.array([[Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)], [Fraction(1, 8), Fraction(3, 4), Fraction(1, 8)],
                   [Fraction(0), Fraction(1, 2), Fraction(1, 2)]], dtype=object)  # fmt: skip


# -- the forward filter ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hides_value", [False, True])
def test_the_filter_is_the_sum_over_all_paths(hides_value):
    """Two steps after a private request, by enumeration in fractions: chances that depend on x_{t-1}, or on X_0."""
    first = np.array([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], dtype=object)
    chances = np.array([[Fraction(1, 1 + a + 2 * b) for b in range(3)] for a in range(3)], dtype=object)
    one, after = Belief.of_present(first).after(THIRDS, chances, hides_value=hides_value)
    two, after = after.after(THIRDS, chances, hides_value=hides_value)
    law = np.full((3, 3), Fraction(0), dtype=object)
    for a, b, c in product(range(3), repeat=3):
        seen = chances[a, b] * chances[a if hides_value else b, c]
        law[a, c] += first[a] * THIRDS[a, b] * THIRDS[b, c] * seen
    assert one * two == law.sum()
    assert (after.law == law / law.sum()).all()
    assert (after.value == law.sum(axis=1) / law.sum()).all()
    assert (after.present == law.sum(axis=0) / law.sum()).all()


def test_everything_tells_nothing_and_the_plain_request_tells_itself():
    known = Belief.of_present(np.array([0.5, 0.25, 0.25]))
    P = THIRDS.astype(float)
    chance, moved = known.after(P, EVERYTHING)
    assert chance == 1
    assert moved.value.tolist() == [0.5, 0.25, 0.25]
    chance, told = known.after(P, plain_chances(0, 3))
    assert chance == pytest.approx(0.5 * 0.5 + 0.25 / 8)
    assert told.present.tolist() == [1, 0, 0]
    assert told.value == pytest.approx(np.array([0.25, 0.25 / 8, 0]) / chance)
    impossible, same = Belief(np.array([[1.0, 0, 0]])).after(np.eye(3), plain_chances(2, 3))
    assert impossible == 0
    assert same.present.tolist() == [1, 0, 0]


def test_chances_of_a_query_are_its_masses_over_the_rows():
    rows: list[list[Fraction | int]]
    rows = [[Fraction(1, 2), Fraction(1, 2), 0], [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]]
    table = design(rows, "greedy")
    hidden = (2, 0)
    for exact in (True, False):
        total = np.sum([query_chances(table, query, hidden, exact=exact) for query in table.queries], axis=0)
        for u, source in enumerate(hidden):
            for x in range(3):
                assert total[source, x] == (1 if rows[u][x] else 0)
        assert not total[1].any()
    for k, query in enumerate(table.queries):
        chances = query_chances(table, query, hidden, exact=True)
        for u, source in enumerate(hidden):
            masses = [chances[source, x] * table.rows.weight(u, x) for x in query]
            assert masses == table.block(k)[table.rows.group[u]].tolist()
            assert sum(masses) == int(table.mass[k])
    assert int(table.mass.sum()) == UNIT


# -- bits --------------------------------------------------------------------------------------------------------


def test_mutual_information_of_matrices_and_mappings():
    joint = np.array([[3, 1], [0, 4]])
    by_hand = 3 / 8 * math.log2(3 * 8 / (4 * 3)) + 1 / 8 * math.log2(8 / (4 * 5)) + 4 / 8 * math.log2(4 * 8 / (4 * 5))
    assert mutual_information(joint) == pytest.approx(by_hand)
    pairs = {("a", 0): 3, ("a", 1): 1, ("b", 1): 4, ("b", 0): 0}
    assert mutual_information(pairs) == pytest.approx(by_hand)
    assert mutual_information({pair: weight * 2**2000 for pair, weight in pairs.items()}) == pytest.approx(by_hand)
    assert contingency(pairs).tolist() == joint.tolist()
    assert mutual_information(np.outer([1, 2, 3], [0.5, 0.1])) == pytest.approx(0, abs=1e-15)
    assert mutual_information(np.eye(8)) == 3


def test_entropy_in_bits():
    assert entropy_bits([[0.5, 0.5, 0], [1, 0, 0]]).tolist() == [1.0, 0.0]
    assert entropy_bits([[0.25] * 4])[0] == pytest.approx(math.log2(4))


# -- the G-test --------------------------------------------------------------------------------------------------


def test_the_test_of_fit_puts_rare_values_together():
    expected = np.array([60.0, 30, 6, 4])
    seen = np.array([50.0, 38, 9, 3])
    assert fit_g(seen, expected) == (pytest.approx(g_statistic([50, 38, 12], [60, 30, 10])), 2)  # type: ignore[comparison-overlap]
    assert fit_g(expected.copy(), expected) == (0, 2)
    assert fit_g(np.array([5.0]), np.array([5.0])) == (0, 0)
    # too rare even together: with the commonest
    assert fit_g(np.array([50.0, 40, 10]), np.array([60.0, 36, 4])) == (  # type: ignore[comparison-overlap]
        pytest.approx(g_statistic([60, 40], [64, 36])),
        1,
    )
    assert p_value(0.0, 0) == 1
    assert p_value(chi2.isf(0.01, 3), 3) == pytest.approx(0.01)


def null_p_values(count, n, rng, rows=4, columns=6):
    """p-values of the G-test on independent draws with uneven margins, rare values included."""
    left, right = rng.dirichlet(np.ones(rows)), rng.dirichlet(np.full(columns, 0.5))
    found = []
    for drawn in rng.multinomial(n, np.outer(left, right).reshape(-1), size=count).reshape(count, rows, columns):
        table = drawn[drawn.any(axis=1)][:, drawn.any(axis=0)].astype(float)
        statistic, degrees = independence_g(pooled(table))
        if degrees:
            found.append(chi2.sf(statistic, degrees))
    return np.array(found)


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_under_independence_the_g_test_errs_as_often_as_it_says(level):
    """Seeded. 5,000 tables of 100 laws: the errors lie between what 0.9 and 1.1 of the level explain, at 1e-6 each."""
    rng = np.random.default_rng(5)
    p = np.concatenate([null_p_values(50, n, rng) for _ in range(20) for n in (80, 150, 300, 600, 1200)])
    errors = int((p < level).sum())
    assert errors <= binom.isf(1e-6, len(p), 1.1 * level)
    assert errors >= binom.ppf(1e-6, len(p), 0.9 * level)


def test_rare_values_are_put_together_until_counts_are_large_enough():
    table = pooled(np.array([[500.0, 3, 2], [400, 4, 1], [2, 1, 0]]))
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    assert table.sum() == 913
    assert 1 in table.shape or expected.min() >= LEAST_EXPECTED
    big = np.full((3, 3), 100.0)
    assert np.array_equal(pooled(big), big)
    assert independence_g(np.ones((1, 5))) == (0.0, 0)


def test_the_g_statistic_is_the_textbooks():
    """Sokal and Rohlf's corrected G of a 2 x 2 table, worked by hand."""
    table = np.array([[30.0, 10], [20, 40]])
    n, r, c = 100, [40, 60], [50, 50]
    raw = 2 * sum(table[i, j] * np.log(table[i, j] * n / (r[i] * c[j])) for i in range(2) for j in range(2))
    q = 1 + (n / 40 + n / 60 - 1) * (n / 50 + n / 50 - 1) / (6 * n)
    assert independence_g(table) == (pytest.approx(raw / q), 1)  # type: ignore[comparison-overlap]


def test_a_leak_of_the_smallest_size_is_found_as_often_as_promised():
    """Seeded. At beta = 0.1 the test of a leak of exactly that size must find it about 90 times of 100.

    1,000 runs: the count lies within the central 1 - 1e-6 of Binomial(1000, 0.9), widened by the approximation (0.03).
    """
    rng, n, level = np.random.default_rng(6), 2000, 1e-3
    bits = smallest_leak(1, n, level, beta=0.1)
    joint = leaking_pair(bits)
    found = 0
    for _ in range(1000):
        table = rng.multinomial(n, joint.reshape(-1)).reshape(2, 2).astype(float)
        statistic, degrees = independence_g(table)
        found += chi2.sf(statistic, degrees) < level
    assert binom.ppf(1e-6, 1000, 0.87) <= found <= binom.isf(1e-6, 1000, 0.93)


def leaking_pair(bits):
    """A symmetric pair of bits that share so many bits of information."""
    from scipy.optimize import brentq

    def information(e):
        return 1 + (0.5 + e) * np.log2(0.5 + e) + (0.5 - e) * np.log2(0.5 - e)

    e = brentq(lambda e: information(e) - bits, 1e-9, 0.49)
    return np.array([[0.25 + e / 2, 0.25 - e / 2], [0.25 - e / 2, 0.25 + e / 2]])


def test_numbers_of_the_threat_model():
    """alpha = beta = 1e-6: 0.185 bits take about 416 sessions, 0.001 bits about 10^5."""
    assert smallest_leak(4, 416, 1e-6, 1e-6) == pytest.approx(0.185, rel=0.1)
    assert smallest_leak(4, 100_000, 1e-6, 1e-6) < 0.001
    assert smallest_leak(0, 100, 1e-6, 1e-6) == np.inf
