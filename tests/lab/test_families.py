"""The families are stochastic, reproducible, and have the shape that their names say."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.lab.families import FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("n", [2, 9, 16])
def test_every_family_gives_a_transition_matrix_fixed_by_its_seed(name: str, n: int) -> None:
    matrix = FAMILIES[name](n, np.random.default_rng(5))
    assert matrix.shape == (n, n)
    assert (matrix >= 0).all()
    assert np.abs(matrix.sum(axis=1) - 1).max() < 1e-12
    assert np.array_equal(matrix, FAMILIES[name](n, np.random.default_rng(5)))


def test_ring_and_grid_move_to_neighbours_only() -> None:
    ring = families.ring(6)
    assert ring[0].tolist() == [0.5, 0.25, 0, 0, 0, 0.25]
    assert families.ring(2)[0].tolist() == [0.5, 0.5]
    grid = families.grid(3, 4, stay=0.2)
    assert np.flatnonzero(grid[0]).tolist() == [0, 1, 4]
    assert np.flatnonzero(grid[5]).tolist() == [1, 4, 5, 6, 9]
    assert grid[0, 1] == 0.4
    assert families.grid(1, 1).tolist() == [[1.0]]


def test_out_degree_keeps_to_its_successors() -> None:
    assert (np.count_nonzero(families.out_degree(12, 3, np.random.default_rng(0)), axis=1) == 3).all()
    sparse = families.sparse_out_degree(1000, 5, np.random.default_rng(0))
    assert sparse.shape == (1000, 1000)
    assert sparse.nnz <= 5000
    assert np.abs(sparse.sum(axis=1) - 1).max() < 1e-12


def test_nearest_points_are_the_successors() -> None:
    rng = np.random.default_rng(1)
    matrix = families.nearest_points(20, 3, rng)
    assert (np.count_nonzero(matrix, axis=1) == 3).all()
    assert np.abs(matrix.sum(axis=1) - 1).max() < 1e-12
    assert np.flatnonzero(matrix[0]).tolist() == [1, 2, 3]  # numbered by the distance from the first
    assert not matrix.diagonal().any()


def test_k_subsets_are_uniform_on_every_k_subset() -> None:
    rows = families.k_subsets(6, 2)
    assert rows.shape == (15, 6)
    assert (np.count_nonzero(rows, axis=1) == 2).all()
    assert len({tuple(row) for row in rows.tolist()}) == 15


def test_small_diagonal_and_symmetric_have_the_diagonal_they_say() -> None:
    matrix = families.small_diagonal(8, np.random.default_rng(1))
    assert matrix.diagonal().max() < 0.05
    assert families.symmetric(4, 0.1).diagonal().tolist() == [0.1] * 4
    assert families.symmetric(4, 0.1)[0, 1] == pytest.approx(0.3)
