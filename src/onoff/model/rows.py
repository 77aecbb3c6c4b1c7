"""Rows: p(x | u) as exact integers.

Setting
    U       what must stay hidden, one of M values u
    X       the present request, one of N sources x
    p(x|u)  a matrix of M rows; row u is the law of X given U = u

A row of probabilities is rounded once, by largest remainder, to integers that sum to UNIT = 2**60; every
positive probability keeps at least one unit, so supports are kept. From here on everything a scheme does
is integer arithmetic, and "the same for every u" means `==`.

Equal rows are merged: values of U that lead to the same law need not be told apart. Columns that no row
can reach are left out, so rows of a chain with 10**6 sources cost only what they touch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidChain, InvalidModel
from onoff.system.kernels import kernel

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


UNIT = 2**60
FLOAT_ERROR = UNIT >> 53
"""The relative error of one operation on floats, in units."""
SUM_TOLERANCE = 1e-9
"""How far a row of given probabilities may be from summing to 1."""
MANY_UNITS = 40_000
"""Entries of a table of units from which it is looked over in compiled code."""

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """The distinct rows p(x|u) in units of 1/UNIT, on the columns that some row can reach.

    n: number of sources N.
    columns: the sources that some row can reach, ascending; shape (C,).
    weights: the distinct rows, each summing to UNIT; shape (distinct, C).
    group: which distinct row belongs to each original u; shape (M,).

    >>> rows = Rows.of([[0.75, 0.25], [0.25, 0.75], [0.75, 0.25]])
    >>> rows.m, rows.distinct, rows.group.tolist()
    (3, 2, [0, 1, 0])
    """

    n: int
    columns: Integers
    weights: Integers
    group: Integers

    @classmethod
    def of(cls, probabilities: Any) -> Rows:
        """Rows from a matrix of probabilities (array, nested lists, Fractions), from a chain, or from Rows."""
        if isinstance(probabilities, Rows):
            return probabilities
        if hasattr(probabilities, "transition"):  # a MarkovChain, which is built from rows and knows its own
            return cls.of(probabilities.rows())
        if isinstance(probabilities, SparseRows):
            raise InvalidChain(
                f"{probabilities.m} rows over {len(probabilities.columns)} sources are too many for a table",
                hint="use scheme 'race' or 'auto'",
            )
        matrix = as_matrix(probabilities)
        return cls.from_integers(
            np.stack([to_units(row) for row in matrix]) if matrix.size else matrix, matrix.shape[1]
        )

    @classmethod
    def from_integers(cls, weights: npt.ArrayLike, n: int, columns: npt.ArrayLike | None = None) -> Rows:
        """Rows from integers that already sum to UNIT. `columns` names the sources of the columns (default: all N).

        Parameters
        ----------
        weights
            Shape (rows, columns).
        n
            How many sources there are.
        columns
            The sources of the columns; the first ones unless given.
        """
        table = np.ascontiguousarray(weights, dtype=np.int64)
        if table.ndim != 2 or table.size == 0:
            raise InvalidChain("no rows, or rows without sources", hint="give at least one row and one source")
        where = np.arange(n, dtype=np.int64) if columns is None else np.asarray(columns, dtype=np.int64)
        if where.shape != table.shape[1:] or (np.diff(where) <= 0).any() or where[0] < 0 or where[-1] >= n:
            raise InvalidChain(
                f"{table.shape[1]} columns for {len(where)} of {n} sources", hint="one for each, sources ascending"
            )
        mixed = np.zeros(len(table), dtype=np.int64)
        reached: npt.NDArray[np.bool_] = np.zeros(table.shape[1], dtype=np.bool_)
        many = table.size >= MANY_UNITS
        factors = (2 * np.arange(table.shape[1]) + 1) ** 3  # they mix a row into one number, whatever overflows
        if not many or not _looked_over(table, UNIT, factors, mixed, reached):
            _check_units(table)
            mixed, reached = table @ factors, np.asarray(table.any(axis=0))
        distinct, group = _merge_equal(table, mixed)
        if not reached.all():
            where, distinct = where[reached], np.ascontiguousarray(distinct[:, reached])
        return cls(n, where, distinct, group)

    @property
    def m(self) -> int:
        """M, the number of values that U can take."""
        return len(self.group)

    @property
    def distinct(self) -> int:
        """The number of different rows."""
        return len(self.weights)

    def position(self, source: int) -> int | None:
        """The column that holds `source`, or None where no row can reach it."""
        at = int(np.searchsorted(self.columns, source))
        return at if at < len(self.columns) and self.columns[at] == source else None

    def weight(self, u: int, source: int) -> int:
        """p(source | u) in units, for an original u."""
        at = self.position(source)
        return 0 if at is None else int(self.weights[self.group[u], at])

    def reaches(self, row: Integers, column: Integers) -> npt.NDArray[np.bool_]:
        """Whether each distinct row can reach the column beside it."""
        return np.asarray(self.weights[row, column] > 0)

    def part(self, distinct: Sequence[int]) -> Rows:
        """Some of the distinct rows alone, on the columns that they reach."""
        return Rows.from_integers(self.weights[list(distinct)], self.n, self.columns)

    def probabilities(self) -> Floats:
        """The distinct rows as floats, on the reached columns."""
        return self.weights / UNIT


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows too many for exact tables: p(x|u) as floats in CSR form, on the columns that some row can reach.

    n: number of sources N.   columns: the sources that some row can reach, ascending; shape (C,).
    starts, at, p: row u has probability p[e] at columns[at[e]] for e in starts[u]:starts[u+1], `at` ascending.

    Only the race draws from these. Equal rows are not merged.
    """

    n: int
    columns: Integers
    starts: Integers
    at: npt.NDArray[np.int32]
    p: Floats

    @classmethod
    def of_csr(cls, matrix: Any, states: Integers) -> SparseRows:
        """The rows `states` of a scipy CSR matrix; nothing but these rows is read."""
        starts = np.concatenate([[0], np.cumsum(np.diff(matrix.indptr)[states])]).astype(np.int64)
        if len(states) == matrix.shape[0] and np.array_equal(states, np.arange(len(states))):
            sources, p = matrix.indices, matrix.data
        else:
            first = np.repeat(matrix.indptr[states] - starts[:-1], np.diff(starts))
            edges = first + np.arange(starts[-1])
            sources, p = matrix.indices[edges], matrix.data[edges]
        columns, at = _ranked(sources, matrix.shape[1])
        return cls(matrix.shape[1], columns, starts, at, p)

    @property
    def m(self) -> int:
        """M, the number of values that U can take."""
        return len(self.starts) - 1

    @property
    def distinct(self) -> int:
        """The number of rows: equal ones are not looked for."""
        return self.m

    @property
    def group(self) -> Integers:
        """Which of the rows belongs to each u: its own."""
        return np.arange(self.m, dtype=np.int64)

    def position(self, source: int) -> int | None:
        """The column that holds `source`, or None where no row can reach it."""
        at = int(np.searchsorted(self.columns, source))
        return at if at < len(self.columns) and self.columns[at] == source else None

    def weight(self, u: int, source: int) -> float:
        """p(source | u)."""
        at = self.position(source)
        lo, hi = int(self.starts[u]), int(self.starts[u + 1])
        if at is None:
            return 0.0
        e = lo + int(np.searchsorted(self.at[lo:hi], at))
        return float(self.p[e]) if e < hi and self.at[e] == at else 0.0

    def reaches(self, row: Integers, column: Integers) -> npt.NDArray[np.bool_]:
        """Whether each row can reach the column beside it."""
        found = (self.weight(u, int(self.columns[c])) > 0 for u, c in zip(row.tolist(), column.tolist(), strict=True))
        return np.fromiter(found, dtype=bool, count=len(row))


def to_units(row: Iterable[Any], unit: int = UNIT) -> Integers:
    """One row of probabilities as integers summing to `unit`, by largest remainder; positive entries keep a unit.

    Entries are taken as exact numbers (a float is the binary fraction that it is), divided by their exact sum.
    """
    given = list(row)
    if given and given[0] > 0 and all(value == given[0] for value in given):  # quick for a million sources
        share, extra = divmod(unit, len(given))
        return share + (np.arange(len(given)) < extra).astype(np.int64)
    values = _over_common_denominator(given)
    total = sum(values)
    quotas = [divmod(value * unit, total) for value in values]
    units = [max(whole, 1) if value else 0 for (whole, _), value in zip(quotas, values, strict=True)]
    missing = unit - sum(units)
    if missing > 0:
        for x in sorted(range(len(units)), key=lambda x: (-quotas[x][1], x))[:missing]:
            units[x] += 1
    elif missing < 0:  # units given to tiny entries are taken back from the largest
        units[max(range(len(units)), key=units.__getitem__)] += missing
    return np.array(units, dtype=np.int64)


def units_of(rows: Floats) -> Integers:
    """Rows of not negative floats as integers summing to UNIT, quickly: within 2**-53 of each entry and N units a row.

    What is missing goes to the largest entry; positive entries keep a unit.
    """
    rows = np.asarray(rows, dtype=np.float64)
    share = rows / rows.sum(axis=1, keepdims=True)
    units: Integers = np.rint(share * float(UNIT)).astype(np.int64)
    units[(rows > 0) & (units == 0)] = 1
    missing = [UNIT - total for total in exact_sum(units, axis=1)]
    units[np.arange(len(units)), np.argmax(units, axis=1)] += np.array(missing, dtype=np.int64)
    return units


def as_matrix(probabilities: Any) -> npt.NDArray[Any]:
    """A checked matrix of probabilities: rectangular, finite, not negative, every row summing to 1."""
    matrix = _rectangular(probabilities)
    try:
        floats = matrix.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidChain(
            "an entry is not a number, or too large for one", hint="give probabilities from 0 to 1"
        ) from None
    bad = ~np.isfinite(floats)
    if bad.any():
        u, x = np.argwhere(bad)[0]
        raise InvalidChain(
            f"row {u}, column {x}: {floats[u, x]} is not a number", hint="give a probability from 0 to 1"
        )
    negative = np.asarray(matrix < 0, dtype=bool)  # of what was given: a Fraction may be too small for a float
    if negative.any():
        u, x = np.argwhere(negative)[0]
        raise InvalidChain(f"row {u}, column {x}: {floats[u, x]} is negative", hint="give a probability from 0 to 1")
    sums = floats.sum(axis=1)
    off = np.abs(sums - 1) > SUM_TOLERANCE
    if off.any():
        u = int(np.argmax(off))
        raise InvalidChain(f"row {u} sums to {float(sums[u]):.12g}, not to 1", hint="divide the row by its sum")
    return matrix


def exact_sum(values: Integers, axis: int) -> list[int]:
    """Sums along `axis` of not negative int64, as Python integers: no overflow whatever the size."""
    low = np.atleast_1d((values & (2**31 - 1)).sum(axis=axis))
    high = np.atleast_1d((values >> 31).sum(axis=axis))
    return from_halves(high, low)


def from_halves(high: Integers, low: Integers) -> list[int]:
    """2**31 high + low, as Python integers."""
    return [(above << 31) + below for above, below in zip(high.tolist(), low.tolist(), strict=True)]


def _ranked(sources: npt.NDArray[Any], n: int) -> tuple[Integers, npt.NDArray[np.int32]]:
    """The different sources, ascending, and the place of each of `sources` among them."""
    if 20 * len(sources) < n:
        columns, at = np.unique(sources, return_inverse=True)
        return columns.astype(np.int64), at.astype(np.int32)
    seen = np.zeros(n, dtype=bool)
    seen[sources] = True
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - 1)[sources]


def _over_common_denominator(row: Iterable[Any]) -> list[int]:
    """Integers in the exact proportions of `row`."""
    ratios = [(value.item() if isinstance(value, np.generic) else value).as_integer_ratio() for value in row]
    denominator = math.lcm(*(below for _, below in ratios))
    return [above * (denominator // below) for above, below in ratios]


def _rectangular(probabilities: Any) -> npt.NDArray[Any]:
    if isinstance(probabilities, np.ndarray):
        matrix = probabilities
    elif isinstance(probabilities, Mapping):
        raise TypeError("a matrix is a list of rows, not a dict; of a chain file's content make MarkovChain(**content)")
    elif not isinstance(probabilities, Iterable):
        raise InvalidChain("not a matrix", hint="give a list of rows")
    else:
        listed: Sequence[Any] = list(probabilities)
        for u, row in enumerate(listed):
            if isinstance(row, str | bytes) or not hasattr(row, "__len__"):
                raise InvalidChain(f"row {u} is not a list of probabilities", hint="give a list of rows")
            if len(row) != len(listed[0]):
                raise InvalidChain(
                    f"row {u} has {len(row)} entries, row 0 has {len(listed[0])}", hint="rows are of one length"
                )
            for x, value in enumerate(row):
                if isinstance(value, bool | str | bytes) or not isinstance(value, int | float | Fraction | np.number):
                    raise InvalidChain(
                        f"row {u}, column {x}: {value!r} is not a number", hint="give a probability from 0 to 1"
                    )
        matrix = np.array([[*row] for row in listed], dtype=object) if _has_fractions(listed) else np.array(listed)
    if matrix.ndim != 2 or matrix.size == 0:
        raise InvalidChain("not a matrix with at least one row and one column", hint="give a list of rows")
    if matrix.dtype != object and not np.issubdtype(matrix.dtype, np.number):
        raise InvalidChain(f"entries of type {matrix.dtype} are not numbers", hint="give floats, integers or Fractions")
    if np.issubdtype(matrix.dtype, np.complexfloating):
        raise InvalidChain("complex entries are not probabilities", hint="give real numbers")
    return matrix


def _has_fractions(rows: Sequence[Sequence[Any]]) -> bool:
    return any(isinstance(value, Fraction) for row in rows for value in row)


def _check_units(table: Integers) -> None:
    """Raise InvalidChain where an entry is negative or a row does not sum to UNIT."""
    if (table < 0).any():
        u, x = np.argwhere(table < 0)[0]
        raise InvalidChain(f"row {u}, column {x}: {table[u, x]} is negative", hint="give units from 0 up")
    for u, total in enumerate(exact_sum(table, axis=1)):
        if total != UNIT:
            raise InvalidChain(f"row {u} sums to {total} units, not to {UNIT}", hint="Rows.of takes probabilities")


@kernel
def _looked_over(table, unit, factors, mixed, reached):  # type: ignore[no-untyped-def]
    """In one pass: whether the table is rows of `unit`, its product with the factors, and which columns are not 0."""
    for u in range(len(table)):
        low = np.int64(0)
        high = np.int64(0)
        signs = np.int64(0)
        mix = np.int64(0)
        for x in range(table.shape[1]):
            value = table[u, x]
            signs |= value
            low += value & 0x7FFFFFFF
            high += value >> 31
            mix += value * factors[x]
            reached[x] |= value != 0
        mixed[u] = mix
        high += low >> 31
        if signs < 0 or high != unit >> 31 or low & 0x7FFFFFFF != unit & 0x7FFFFFFF:
            return False
    return True


def _merge_equal(table: Integers, mixed: Integers) -> tuple[Integers, Integers]:
    """The distinct rows in order of first appearance, and which of them each row is.

    mixed: a number for each row, equal for equal rows.
    """
    if len(np.unique(mixed)) == len(table):
        return table, np.arange(len(table))
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return table[first[order]], rank[inverse.reshape(-1)].astype(np.int64)


# Rows of floats as units, for whole matrices: the same integers as `to_units` gives row by row, in compiled code.
#
# `to_units` takes every float as the fraction that it is and divides in whole numbers, which is exact and slow. Here
# the quotient u = 2**60 v / (1 + d), d the sum of the row less 1, is worked out in pairs of floats:
#
#     d        as a pair, by compensated sums
#     1/(1+d)  = 1 + r,  r = -d + d**2 - d**3 as a pair, for |d| < 2**-29
#     u        = 2**60 v + (2**60 v) r: integer and fractional part kept apart, the latter off by less than DOUBT /
#     2
#
# Where a fractional part is so near to an integer, or to that of another entry with which it competes for a unit,
# that the error could matter, the row is left to `to_units`. So are rows that do not sum to nearly 1.
#
# A row is read twice, once for its sum and once for its quotients, and its units are written twice. The largest
# fractional parts are found by counting them in PART_BUCKETS, without sorting.

DOUBT = 2.0**-32
"""Fractional parts nearer to each other, or to an integer, than this count as equal."""
PART_BUCKETS = 1024
"""Equal parts of [0, 1) in which fractional parts are counted."""
SHIFT = 1.5 * 2.0**52
SHIFT_BITS = int(np.float64(SHIFT).view(np.int64))
"""A float whose last bit counts one, and its bits."""


def matrix_units(rows: Floats) -> Integers:
    """Each row of not negative floats as integers that sum to UNIT: `to_units` of every row."""
    given = np.ascontiguousarray(rows, dtype=np.float64)
    units = np.empty(given.shape, dtype=np.int64)
    sure = np.zeros(len(given), dtype=np.bool_)
    _round_rows(given, units, sure)
    for u in np.flatnonzero(~sure):
        positive = np.flatnonzero(given[u])
        units[u] = 0
        units[u, positive] = to_units(given[u, positive].tolist())
    return units


@kernel
def _round_rows(given, units, sure):  # type: ignore[no-untyped-def]
    """Fill in the units of the rows that are sure."""
    columns = given.shape[1]
    broken = np.empty(columns)
    shifted = np.empty((2, columns))
    counts = np.empty(PART_BUCKETS, np.int64)
    for u in range(len(given)):
        over, over_low = _excess(given[u])
        if abs(over) >= 2.0**-29:
            continue
        left, doubtful = _divide(given[u], over, over_low, units[u], broken, shifted)
        counts[:] = 0
        for x in range(columns):
            if broken[x] >= 0.0:
                counts[min(int(broken[x] * PART_BUCKETS), PART_BUCKETS - 1)] += 1
        sure[u] = not doubtful and _hand_out(units[u], broken, counts, left)


@kernel
def _divide(values, over, over_low, units, broken, shifted):  # type: ignore[no-untyped-def]
    """The whole and the fractional part of each quotient; a fractional part is -1 for the value 0.

    Returns the units that are left, and whether a fractional part is in doubt. There is no branch in the loops, so that
    several values are divided at a time. Not every processor makes integers of several floats at a time, so that is
    done by bits: a whole number i, |i| < 2**51, added to SHIFT is a float whose last bits are i. Quotients are longer,
    and taken in two parts; `shifted` is room for these.
    """
    r = -over
    r_low = over * over - over * over * over - over_low
    c = 134217729.0 * r
    r_upper = c - (c - r)
    r_lower = r - r_upper
    doubtful = np.int64(0)
    for x in range(len(values)):
        v = values[x] * 2.0**60
        product = v * r  # and what it is off by (Dekker)
        c = 134217729.0 * v
        upper = c - (c - v)
        lower = v - upper
        off = ((upper * r_upper - product) + upper * r_lower + lower * r_upper) + lower * r_lower
        whole, more = np.floor(v), np.floor(product)
        part = (v - whole) + (product - more) + (off + v * r_low)
        carry = np.floor(part)
        part -= carry
        doubtful |= np.int64(part > 1 - DOUBT) | (np.int64(part < DOUBT) & np.int64(v >= 0.5))
        broken[x] = part if v > 0.0 else -1.0
        high = np.floor(whole * 2.0**-32)
        shifted[0, x] = high + SHIFT
        shifted[1, x] = (whole - high * 2.0**32) + (more + carry) + SHIFT
    left = np.int64(2**60)
    bits = shifted.view(np.int64)
    for x in range(len(values)):
        quotient = ((bits[0, x] - SHIFT_BITS) << 32) + (bits[1, x] - SHIFT_BITS)
        count = max(quotient, np.int64(broken[x] >= 0.0))
        units[x] = count
        left -= count
    return left, doubtful > 0


@kernel
def _excess(values):  # type: ignore[no-untyped-def]
    """The sum of the values less 1, as a pair of floats. Four sums run side by side, as each addition waits."""
    a, b, c, d = -1.0, 0.0, 0.0, 0.0
    a_low = b_low = c_low = d_low = 0.0
    fours = len(values) // 4 * 4
    for x in range(0, fours, 4):
        a, off = _two_sum(a, values[x])
        a_low += off
        b, off = _two_sum(b, values[x + 1])
        b_low += off
        c, off = _two_sum(c, values[x + 2])
        c_low += off
        d, off = _two_sum(d, values[x + 3])
        d_low += off
    for x in range(fours, len(values)):
        a, off = _two_sum(a, values[x])
        a_low += off
    low_sum = a_low + b_low + c_low + d_low
    b, off = _two_sum(b, c)
    low_sum += off
    b, off = _two_sum(b, d)
    low_sum += off
    a, off = _two_sum(a, b)
    return _two_sum(a, low_sum + off)


@kernel
def _two_sum(one, other):  # type: ignore[no-untyped-def]
    """The sum of two floats as a pair of floats (Knuth)."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)


@kernel
def _hand_out(units, broken, counts, left):  # type: ignore[no-untyped-def]
    """Give the remaining units to the largest fractional parts. Returns whether it is certain which these are.

    counts: of the fractional parts by bucket.
    """
    columns = len(units)
    if left < 0:  # units given to tiny entries are taken back from the largest
        units[np.argmax(units)] += left
        return True
    if left == 0:
        return True
    bucket = len(counts) - 1
    wanted = left  # of this bucket and those below
    while bucket >= 0 and counts[bucket] < wanted:
        wanted -= counts[bucket]
        bucket -= 1
    if bucket < 0:
        return False
    some = np.empty(columns)
    found = 0
    middle = (bucket + 0.5) / PART_BUCKETS
    for x in range(columns):
        if abs(broken[x] - middle) <= 0.5 / PART_BUCKETS:  # one at the upper end is one too many: noticed below
            some[found] = broken[x]
            found += 1
    if found < wanted:
        return False
    least = np.sort(some[:found])[found - wanted]
    below = -1.0
    given = np.int64(0)
    for x in range(columns):
        part = broken[x]
        chosen = np.int64(part >= least)  # no branch: which it is cannot be foreseen
        units[x] += chosen
        given += chosen
        below = max(below, part if part < least else -1.0)
    return given == left and least - below > DOUBT


def checked_csr(given: Any, error: type[InvalidChain] | type[InvalidModel]) -> csr_matrix:
    """A copy of a sparse matrix as CSR floats, each entry once and none zero. Raises `error` where it is broken."""
    from scipy.sparse import csr_matrix

    matrix = csr_matrix(given, dtype=np.float64, copy=True)
    try:
        matrix.check_format(full_check=True)
    except ValueError as fault:
        raise error(f"not a CSR matrix: {fault}", hint="sources are numbered from 0 to N - 1") from None
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
