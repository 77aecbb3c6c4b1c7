"""rounding: whole matrices give the very integers that each row gives by itself."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model import rows
from onoff.model.chain import MANY_ENTRIES, MarkovChain
from onoff.model.rows import UNIT, matrix_units, to_units

MATRICES = {
    "dense": lambda rng: families.dirichlet(120, 1.0, rng),
    "peaked": lambda rng: families.dirichlet(120, 0.02, rng),
    "nearly equal": lambda rng: families.dirichlet(60, 50.0, rng),
    "zipf": lambda rng: families.zipf(90, rng),
    "few successors": lambda rng: families.out_degree(80, 6, rng),
    "binary fractions": lambda rng: families.grid(7, 7, stay=0.5),
    "equal entries": lambda rng: families.symmetric(30, 0.3),
    "certain": lambda rng: np.eye(6),
    "sums a little off": lambda rng: families.dirichlet(60, 1.0, rng) * (1 + rng.uniform(-9e-10, 9e-10, size=(60, 1))),
    "tiny entries": lambda rng: np.array([[1.0, 1e-300, 0.0], [0.5, 0.5 - 1e-17, 1e-17], [1 - 2**-53, 2**-53, 1e-25]]),
    "one source": lambda rng: np.ones((3, 1)),
}


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("name", MATRICES)
def test_the_same_units_as_row_by_row(name):
    for seed in range(3):
        matrix = MATRICES[name](np.random.default_rng(seed))
        units = matrix_units(matrix)
        assert np.array_equal(units, np.stack([to_units(row.tolist()) for row in matrix]))
        assert all(sum(row) == UNIT for row in units.tolist())


def test_dense_rows_are_rounded_without_falling_back(monkeypatch):
    matrix = families.dirichlet(100, 1.0, np.random.default_rng(1))
    expected = np.stack([to_units(row.tolist()) for row in matrix])

    def never(row):
        raise AssertionError("a row was left to to_units")

    monkeypatch.setattr(rows, "to_units", never)
    assert np.array_equal(matrix_units(matrix), expected)


def test_a_large_chain_has_the_rows_that_its_sources_have_one_by_one():
    matrix = families.sticky(210, np.random.default_rng(2))
    matrix[:, 7] = 0.0
    matrix[7, 7] = 0.0
    matrix[5] = matrix[3]
    matrix /= matrix.sum(axis=1, keepdims=True)
    chain = MarkovChain(matrix)
    assert chain.n**2 >= MANY_ENTRIES
    rows = chain.rows()
    assert rows.columns.tolist() == [x for x in range(210) if x != 7]
    assert rows.group[5] == rows.group[3]
    for x in range(210):
        sources, units = chain.row_units(x)
        assert np.array_equal(rows.weights[rows.group[x]][np.searchsorted(rows.columns, sources)], units)
    assert rows.distinct == 209


@pytest.mark.parametrize("name", ["peaked", "sums a little off", "tiny entries", "equal entries", "few successors"])
def test_where_the_compiled_rounding_is_sure_it_is_that_of_whole_numbers(name):
    matrix = np.ascontiguousarray(MATRICES[name](np.random.default_rng(5))[:20])
    units, sure = np.zeros(matrix.shape, dtype=np.int64), np.zeros(len(matrix), dtype=bool)
    rows._round_rows(matrix, units, sure)
    for row, found in zip(matrix[sure], units[sure], strict=True):
        assert np.array_equal(found, to_units(row.tolist()))
