"""Groups: every bound is proved, reaches what groups of a dozen rows can prove, and comes with the search."""

from fractions import Fraction

import numpy as np
import pytest
from tests.support.typed import present

from onoff.lab import families
from onoff.model.bounds import simplest
from onoff.model.certificate import GroupCertificate
from onoff.model.checker import check_certificate
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.search import group_bound
from onoff.schemes.search.group_bound import GROUP_ROWS, Sharing, blocks_of, dealt
from onoff.schemes.search.portfolio import never


def places(n, seed=1, degree=6):
    return Rows.of(families.nearest_points(n, degree, np.random.default_rng(seed)))


def test_every_row_is_in_one_group_and_groups_are_small(monkeypatch):
    monkeypatch.setattr(group_bound, "GROUP_ROWS", 5)
    found = dealt(places(40).weights > 0)
    assert sorted(np.concatenate(found).tolist()) == list(range(places(40).distinct))
    assert all(1 <= len(group) <= 5 for group in found)


def test_rows_without_a_source_in_common_are_in_different_groups():
    matrix = np.kron(np.eye(3), np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]))
    assert [group.tolist() for group in dealt(matrix > 0)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_proved_and_below_the_optimum_wherever_the_climb_ends(seed):
    rows = places(24, seed, degree=4)
    optimum = design(rows, "optimal", budget=60.0)
    assert optimum.optimal
    sharing = Sharing(rows)
    for steps in (0, 1, 30):
        left = [steps]

        def is_over(left=left):
            left[0] -= 1
            return left[0] < 0

        sharing.climb(optimum.cost, is_over)
        proved = check_certificate(rows, sharing.certificate())
        assert proved <= optimum.exact_cost
        assert float(proved) == pytest.approx(sharing.bound, abs=1e-9)


def test_one_group_of_all_rows_comes_to_the_optimum():
    rows = places(12, degree=3)
    assert rows.distinct <= GROUP_ROWS
    cost = design(rows, "optimal").exact_cost
    assert check_certificate(rows, simplest(rows)) < cost * Fraction(99, 100)  # else there would be nothing to show
    sharing = Sharing(rows)
    sharing.climb(float(cost), never)
    assert 0.99 * cost < check_certificate(rows, sharing.certificate()) <= cost


def test_groups_of_unequal_masses_are_proved_too():
    matrix = families.nearest_points(60, 5, np.random.default_rng(2))
    matrix *= np.random.default_rng(3).uniform(0.5, 1.5, size=matrix.shape)
    rows = Rows.of(matrix / matrix.sum(axis=1, keepdims=True))
    sharing = Sharing(rows)
    before = sharing.bound
    sharing.climb(30.0, never)
    assert sharing.bound > before
    assert float(check_certificate(rows, sharing.certificate())) == pytest.approx(sharing.bound, abs=1e-9)


def test_rows_that_all_want_the_same_sources_have_too_many_blocks():
    rng = np.random.default_rng(1)
    assert blocks_of(places(200)) < 20_000
    assert blocks_of(Rows.of(families.dirichlet(200, 1.0, rng, rows=60))) > 10**6


@pytest.mark.slow(reason="a search of six seconds")
def test_places_on_a_map_are_bounded_by_groups():
    rows = places(60)
    table = design(rows, "optimal", budget=6.0)
    table.verify()
    assert isinstance(table.certificate, GroupCertificate)
    assert present(table.lower_bound) > 1.1 * float(check_certificate(rows, simplest(rows)))
