"""Rows: one exact rounding, supports kept, equal rows merged, bad matrices refused by place."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff.errors import InvalidChain
from onoff.model.rows import MANY_UNITS, UNIT, Rows, _looked_over, exact_sum, to_units

positive_rows = st.lists(st.floats(0, 1, allow_nan=False), min_size=1, max_size=12).filter(lambda r: sum(r) > 0)


@given(positive_rows)
def test_units_sum_to_unit_keep_supports_and_are_within_one_unit(row):
    units = to_units(row)
    total = sum(Fraction(value) for value in row)
    assert sum(int(v) for v in units) == UNIT
    for value, got in zip(row, units.tolist(), strict=True):
        assert (got > 0) == (value > 0)
        # one unit by largest remainder, and at most one more per tiny entry that had to be kept
        assert abs(Fraction(value) * UNIT / total - got) <= len(row)


def test_largest_remainder_gives_the_missing_units_to_the_largest_remainders():
    assert to_units([1, 1, 1], unit=10).tolist() == [4, 3, 3]
    assert to_units([Fraction(5, 16), Fraction(3, 16), Fraction(8, 16)], unit=10).tolist() == [3, 2, 5]


def test_a_tiny_probability_keeps_a_unit_at_the_expense_of_the_largest():
    assert to_units([1.0, 1e-300]).tolist() == [UNIT - 1, 1]


def test_equal_rows_are_merged_and_unreached_columns_dropped():
    rows = Rows.of([[0.5, 0, 0.5], [1, 0, 0], [0.5, 0, 0.5]])
    assert rows.columns.tolist() == [0, 2]
    assert rows.group.tolist() == [0, 1, 0]
    assert rows.weights.tolist() == [[UNIT // 2, UNIT // 2], [UNIT, 0]]
    assert rows.weight(2, 2) == UNIT // 2
    assert rows.weight(1, 1) == 0
    assert (rows.m, rows.distinct, rows.n) == (3, 2, 3)


def test_exact_sum_does_not_overflow():
    assert exact_sum(np.full((1, 100), UNIT), axis=1) == [100 * UNIT]


@pytest.mark.parametrize(
    ("matrix", "where"),
    [
        ([], "not a matrix"),
        ([[]], "not a matrix"),
        ([[0.5, 0.5], [1.0]], "row 1 has 1 entries"),
        ([[1.5, -0.5]], "row 0, column 1: -0.5 is negative"),
        ([[0.5, float("nan")]], "row 0, column 1: nan"),
        ([[0.5, float("inf")]], "row 0, column 1: inf"),
        ([[0.5, 0.4]], "row 0 sums to 0.9"),
        ([[0.5, 0.5 + 2e-9]], "row 0 sums to"),
        ([[0.5, "0.5"]], "row 0, column 1: '0.5'"),
        ([[0.5, None]], "row 0, column 1: None"),
        ([0.5, 0.5], "row 0 is not a list"),
        (np.array(["a"]), "not a matrix"),
        (np.array([["a"]]), "not numbers"),
        (np.array([[1j]]), "complex"),
        (np.array([["a", 1]], dtype=object), "not a number"),
        ([[10**400, 0]], "too large"),
        ([[Fraction(1), Fraction(-1, 10**400)]], "row 0, column 1: -0.0 is negative"),
        (3, "not a matrix"),
    ],
)
def test_bad_matrices_are_refused_by_place(matrix, where):
    with pytest.raises(InvalidChain, match=where):
        Rows.of(matrix)


def test_integer_rows_must_sum_to_unit():
    with pytest.raises(InvalidChain, match="row 1 sums to"):
        Rows.from_integers([[UNIT, 0], [UNIT, 1]], 2)
    with pytest.raises(InvalidChain, match="negative"):
        Rows.from_integers([[UNIT + 1, -1]], 2)


@pytest.mark.parametrize(
    ("n", "columns"), [(5, None), (1, None), (5, [1, 1]), (5, [3, 2]), (2, [1, 2]), (5, [-1, 2]), (5, [0, 1, 2])]
)
def test_columns_must_be_sources(n, columns):
    with pytest.raises(InvalidChain, match="2 columns for"):
        Rows.from_integers([[UNIT // 2, UNIT // 2]], n, columns)


def large_table():
    """210 x 210 units: enough to be looked over in compiled code."""
    table = np.zeros((210, 210), dtype=np.int64)
    table[:, :7] = UNIT // 8
    table[:, 8] = UNIT - 7 * (UNIT // 8) - np.arange(210)[::-1]
    table[:, 9] = np.arange(210)[::-1]
    return table


def test_a_large_table_is_looked_over_as_a_small_one_is():
    table = large_table()
    assert table.size >= MANY_UNITS
    table[30] = table[4]
    rows = Rows.from_integers(table, 210)
    assert rows.columns.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert rows.group.tolist() == [*range(30), 4, *range(30, 209)]
    assert np.array_equal(rows.weights, np.delete(table, 30, axis=0)[:, rows.columns])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({(7, 3): -1, (7, 4): UNIT // 4 + 1}, "row 7, column 3: -1 is negative"),
        ({(9, 20): 1}, f"row 9 sums to {UNIT + 1} units"),
        ({(9, 20): 2**62, (9, 21): 2**62, (9, 22): 2**62, (9, 23): 2**62}, f"row 9 sums to {UNIT + 2**64} units"),
    ],
)
def test_a_large_table_that_is_none_is_refused(changes, message):
    table = large_table()
    for place, value in changes.items():
        table[place] = value
    with pytest.raises(InvalidChain, match=message):
        Rows.from_integers(table, 210)


def test_looking_over_finds_what_numpy_finds():
    for row, column, value in ((0, 0, None), (7, 3, -1), (9, 20, 1), (3, 8, 0)):
        table = large_table()
        if value is not None:
            table[row, column] = value
        mixed, reached = np.zeros(210, dtype=np.int64), np.zeros(210, dtype=bool)
        assert _looked_over(table, UNIT, np.arange(210) ** 2, mixed, reached) == (value is None)
        if value is None:
            assert np.array_equal(mixed, table @ np.arange(210) ** 2)
            assert np.array_equal(reached, table.any(axis=0))
