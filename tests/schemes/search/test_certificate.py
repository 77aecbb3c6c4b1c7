"""certificate: the check is exact, agrees with looking at every set, and refuses what is wrong by one unit."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from tests.support.matrices import many

from onoff.errors import InvalidTable
from onoff.experiments import families
from onoff.model.bounds import lambda_units
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.schemes.search.certificate import (
    SCALE,
    Certificate,
    CouplingCertificate,
    check,
    doeblin,
    from_coupling,
    outer,
    simplest,
)


def largest_violation(certificate, n):
    """max over all non-empty S of t - |S| - sum of y_A over A that contain S, by looking at each."""
    sets = [set(members) for members in certificate.sets]
    return max(
        certificate.t
        - size * SCALE
        - sum(y for inside, y in zip(sets, certificate.weights, strict=True) if inside.issuperset(chosen))
        for size in range(1, n + 1)
        for chosen in combinations(range(n), size)
    )


def test_the_simple_proofs_prove_the_simple_bounds():
    for rows in many(51, 60, 9):
        lambdas = lambda_units(rows)
        assert check(rows, outer(rows)) == Fraction(lambdas[-1], UNIT)
        if len(rows.columns) > 1:
            assert check(rows, doeblin(rows)) == 2 - Fraction(lambdas[0], UNIT)
            assert check(rows, simplest(rows)) == max(Fraction(lambdas[-1], UNIT), 2 - Fraction(lambdas[0], UNIT))


def test_the_simple_proofs_are_checked_at_any_size():
    rows = Rows.of(families.dirichlet(150, 1.0, np.random.default_rng(1)))
    assert check(rows, outer(rows)) > check(rows, doeblin(rows))


def test_random_certificates_are_judged_as_by_looking_at_every_set():
    rng = np.random.default_rng(2)
    verdicts = set()
    for _ in range(80):
        n = int(rng.integers(2, 8))
        rows = Rows.of(families.dirichlet(n, 1.0, rng))
        sets = tuple(tuple(np.flatnonzero(rng.random(n) < 0.6).tolist()) for _ in range(int(rng.integers(1, 9))))
        weights = tuple(int(y) for y in rng.integers(0, SCALE, size=len(sets)))
        shape = Certificate(0, sets, weights)
        t = -largest_violation(shape, n)  # the largest t for which it holds
        assert check(rows, Certificate(t, sets, weights)) <= Fraction(design(rows, "optimal").exact_cost)
        with pytest.raises(InvalidTable, match="wrong by"):
            check(rows, Certificate(t + 1, sets, weights))
        verdicts.add(t > 0)
    assert verdicts == {True}


def test_couplings_are_judged_alike_by_sources_by_rows_and_by_looking():
    rng = np.random.default_rng(4)
    for _ in range(40):
        m, n = rng.integers(1, 5, size=2).tolist()
        phi = rng.integers(-SCALE, 2 * SCALE, size=(m, n)).tolist()
        taken = product(range(n), repeat=m)
        worst = max(sum(phi[u][x] for u, x in enumerate(one)) - SCALE * len(set(one)) for one in taken)
        coupling = CouplingCertificate(tuple(map(tuple, phi)))
        assert coupling.excess() == coupling._excess_by_blocks() == worst
        held = from_coupling(np.array(phi) / SCALE)
        assert -m < held.excess() <= 0 if worst > 0 else held == coupling


def test_numbers_that_would_overflow_prove_nothing():
    rows = Rows.of([[0.5, 0.5], [0.25, 0.75]])
    with pytest.raises(InvalidTable, match="too large"):
        check(rows, CouplingCertificate(((2**62, 0), (2**62, 0))))


def test_negative_weights_prove_nothing():
    rows = Rows.of([[0.5, 0.5], [0.25, 0.75]])
    with pytest.raises(InvalidTable, match="negative"):
        check(rows, Certificate(SCALE, ((0,),), (-1,)))


def test_duals_of_a_program_above_the_simple_bounds_are_proved():
    found = 0
    for seed in range(30):
        rows = Rows.of(families.dirichlet(6, 50.0, np.random.default_rng(seed)))
        table = design(rows, "optimal")
        proof = table.details["certificate"]
        if proof not in (outer(rows), doeblin(rows)):
            found += 1
            assert largest_violation(proof, 6) <= 0
            assert float(check(rows, proof)) == pytest.approx(table.cost, abs=1e-8)
    assert found > 3
