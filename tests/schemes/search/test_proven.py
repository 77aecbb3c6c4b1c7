"""BestProof: the bound only rises, and what the checker refuses never counts."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.certificate import SCALE, HittingBound, SetCertificate, SimpleBound
from onoff.model.checker import check_certificate
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.search.clock import never
from onoff.schemes.search.pricing import Duals
from onoff.schemes.search.proven import BestProof


def walk():
    """The 5 x 5 torus without staying: its outer bound is 25/4, and eight sources are needed to meet all rows."""
    return Rows.of(families.torus(5))


def test_it_begins_with_the_best_simple_bound():
    proven = BestProof(walk())
    assert proven.certificate == SimpleBound("outer")
    assert proven.lower == proven.simple == 25 / 4


def test_a_larger_bound_is_kept_and_a_smaller_one_is_not():
    proven = BestProof(walk())
    proven.offer(HittingBound(8))
    assert (proven.certificate, proven.lower, proven.simple) == (HittingBound(8), 8.0, 25 / 4)
    for less in (SimpleBound("outer"), HittingBound(7)):
        proven.offer(less)
        assert (proven.certificate, proven.lower) == (HittingBound(8), 8.0)


@pytest.mark.parametrize("false", [HittingBound(9), SetCertificate(9 * SCALE, (), ())])
def test_a_certificate_that_proves_nothing_does_not_count(false):
    proven = BestProof(walk())
    proven.offer(false)
    assert (proven.certificate, proven.lower) == (SimpleBound("outer"), 25 / 4)


def test_supports_are_counted_as_far_as_the_steps_allow():
    proven = BestProof(walk())
    proven.offer_supports(0)
    assert proven.lower == 25 / 4
    proven.offer_supports(10**6)
    assert proven.certificate == HittingBound(8)


def test_duals_are_lowered_by_what_sets_gain_and_those_sets_are_told():
    rows = Rows.of(families.equal_masses(14, 4, np.random.default_rng(1)))
    optimum = design(rows, "optimal")
    duals = duals_of(rows, optimum.certificate)
    promising_too_much = Duals(duals.t + 1, duals.y, duals.inside)
    proven = BestProof(rows)
    sets = proven.offer_duals(promising_too_much, never)
    assert promising_too_much.gains(sets).max() == pytest.approx(1.0, abs=1e-6)
    assert proven.simple < 0.99 * optimum.cost
    assert proven.lower == pytest.approx(optimum.cost, rel=1e-6)
    assert check_certificate(rows, proven.certificate) <= optimum.exact_cost


def test_a_tree_that_ends_early_proves_less_and_nothing_false():
    rows = Rows.of(families.equal_masses(24, 4, np.random.default_rng(1)))
    optimum = design(rows, "optimal", budget=60.0)
    assert optimum.optimal
    duals = duals_of(rows, optimum.certificate)
    bounds = []
    for steps in (0, 3, 10**6):
        left = [steps]

        def is_over(left=left):
            left[0] -= 1
            return left[0] < 0

        proven = BestProof(rows)
        proven.offer_duals(duals, is_over)
        assert check_certificate(rows, proven.certificate) <= optimum.exact_cost
        bounds.append(proven.lower)
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1] == pytest.approx(optimum.cost)


def duals_of(rows, certificate):
    assert isinstance(certificate, SetCertificate)
    inside = np.array([np.isin(rows.columns, members) for members in certificate.sets])
    return Duals(certificate.t / certificate.scale, np.array(certificate.weights) / certificate.scale, inside)
