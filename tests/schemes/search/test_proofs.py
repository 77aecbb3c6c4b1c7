"""proofs: gains are bounded wherever a tree ends, the bound only rises, and what the checker refuses never counts."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.certificate import LEAF, SCALE, HittingBound, SetCertificate, SimpleBound
from onoff.model.checker import check_certificate
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.search.portfolio import Board, Clock, Problem, never
from onoff.schemes.search.proofs import Duals, Supports, best_subsets, branch, prove_duals, subset_gains


def random_duals(rng, n, count):
    return Duals(float(rng.uniform(1, 4)), rng.exponential(0.4, size=count), rng.random((count, n)) < 0.6)


def brute_force(duals):
    n = duals.inside.shape[1]
    sets = (np.arange(1, 1 << n)[:, None] >> np.arange(n)) & 1 == 1
    return sets, duals.gains(sets)


def test_gains_are_what_they_are_defined_to_be():
    duals = Duals(3.0, np.array([0.5, 1.0]), np.array([[True, True, False], [True, False, False]]))
    sets = np.array([[True, False, False], [True, True, False], [False, False, True]])
    assert duals.gains(sets).tolist() == [3 - 1 - 1.5, 3 - 2 - 0.5, 3 - 1]


@pytest.mark.parametrize("seed", range(20))
def test_the_gains_of_all_subsets_agree_with_brute_force(seed):
    duals = random_duals(np.random.default_rng(seed), 8, 20)
    _, gains = brute_force(duals)
    assert subset_gains(duals)[1:] == pytest.approx(gains, abs=1e-9)
    found = best_subsets(subset_gains(duals), 256)
    assert len(found) == np.count_nonzero(gains > 1e-9)
    assert np.array_equal(duals.gains(found), np.sort(duals.gains(found))[::-1])
    few = best_subsets(subset_gains(duals), 3)
    assert duals.gains(few) == pytest.approx(duals.gains(found)[:3], abs=1e-9)


def after(count):
    """Over after it was asked so often."""
    asked = iter(range(count))
    return lambda: next(asked, None) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_best_set_is_found_and_proved_best(seed):
    duals = random_duals(np.random.default_rng(seed), 8, 20)
    best = brute_force(duals)[1].max()
    tree = branch(duals, never)
    assert best - 1e-9 <= tree.most <= max(best, 0.0) + 1e-6
    if best > 1e-6:
        assert duals.gains(tree.sets).max() == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("asked", [0, 1, 3, 10])
def test_stopped_at_any_moment_it_bounds_every_gain(asked):
    worst = 0.0
    for seed in range(10):
        duals = random_duals(np.random.default_rng(seed), 9, 30)
        tree = branch(duals, after(asked))
        best = brute_force(duals)[1].max()
        assert tree.most >= best - 1e-9
        assert tree.nodes.count(LEAF) == len(tree.leaves) == len(tree.nodes) // 2 + 1 <= asked + 1
        worst = max(worst, tree.most - best)
    assert worst > 0.01 or asked == 10  # stopped early it does not know the best


def walk():
    """The 5 x 5 torus without staying: its outer bound is 25/4, and eight sources are needed to meet all rows."""
    return Rows.of(families.torus(5))


def board_of(rows):
    return Board(Problem(rows))


def test_it_begins_with_the_best_simple_bound():
    board = board_of(walk())
    assert board.certificate == SimpleBound("outer")
    assert board.lower == 25 / 4


def test_a_larger_bound_is_kept_and_a_smaller_one_is_not():
    board = board_of(walk())
    board.prove(HittingBound(8))
    assert (board.certificate, board.lower) == (HittingBound(8), 8.0)
    for less in (SimpleBound("outer"), HittingBound(7)):
        board.prove(less)
        assert (board.certificate, board.lower) == (HittingBound(8), 8.0)


@pytest.mark.parametrize("false", [HittingBound(9), SetCertificate(9 * SCALE, (), ())])
def test_a_certificate_that_proves_nothing_does_not_count(false):
    board = board_of(walk())
    board.prove(false)
    assert (board.certificate, board.lower) == (SimpleBound("outer"), 25 / 4)


@pytest.mark.parametrize(("steps", "bound"), [(0, 25 / 4), (10**6, 8.0)])
def test_supports_are_counted_as_far_as_the_steps_allow(steps, bound):
    problem = Problem(walk(), Clock(10.0))
    board = Board(problem)
    for _ in Supports(0.5, steps).run(problem, board, never):
        pass
    assert board.lower == bound


def test_duals_are_lowered_by_what_sets_gain_and_those_sets_are_told():
    rows = Rows.of(families.equal_masses(14, 4, np.random.default_rng(1)))
    optimum = design(rows, "optimal")
    duals = duals_of(rows, optimum.certificate)
    promising_too_much = Duals(duals.t + 1, duals.y, duals.inside)
    board = board_of(rows)
    sets = prove_duals(rows, board, promising_too_much, never)
    assert promising_too_much.gains(sets).max() == pytest.approx(1.0, abs=1e-6)
    assert Problem(rows).lower < 0.99 * optimum.cost
    assert board.lower == pytest.approx(optimum.cost, rel=1e-6)
    assert check_certificate(rows, board.certificate) <= optimum.exact_cost


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

        board = board_of(rows)
        prove_duals(rows, board, duals, is_over)
        assert check_certificate(rows, board.certificate) <= optimum.exact_cost
        bounds.append(board.lower)
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1] == pytest.approx(optimum.cost)


def duals_of(rows, certificate):
    assert isinstance(certificate, SetCertificate)
    inside = np.array([np.isin(rows.columns, members) for members in certificate.sets])
    return Duals(certificate.t / certificate.scale, np.array(certificate.weights) / certificate.scale, inside)
