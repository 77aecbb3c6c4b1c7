"""Rows of floats as units, for whole matrices: the same integers as `to_units` gives row by row, in compiled code.

`to_units` takes every float as the fraction that it is and divides in whole numbers, which is exact and slow. Here the
quotient u = 2**60 v / (1 + d), d the sum of the row less 1, is worked out in pairs of floats:

    d        as a pair, by compensated sums
    1/(1+d)  = 1 + r,  r = -d + d**2 - d**3 as a pair, for |d| < 2**-29
    u        = 2**60 v + (2**60 v) r: integer and fractional part kept apart, the latter off by less than DOUBT / 2

Where a fractional part is so near to an integer, or to that of another entry with which it competes for a unit, that
the error could matter, the row is left to `to_units`. So are rows that do not sum to nearly 1.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Floats, Integers, to_units
from onoff.system.kernels import kernel

DOUBT = 2.0**-32
"""Fractional parts nearer to each other, or to an integer, than this count as equal."""


def matrix_units(rows: Floats) -> Integers:
    """Each row of not negative floats as integers that sum to UNIT: `to_units` of every row."""
    given = np.ascontiguousarray(rows, dtype=np.float64)
    units = np.zeros(given.shape, dtype=np.int64)
    sure = np.zeros(len(given), dtype=np.bool_)
    _round_rows(given, units, sure, effort=given.size)
    for u in np.flatnonzero(~sure):
        positive = np.flatnonzero(given[u])
        units[u, positive] = to_units(given[u, positive].tolist())
    return units


@kernel
def _round_rows(given, units, sure):  # type: ignore[no-untyped-def]
    """Fill in the units of the rows that are sure."""
    columns = given.shape[1]
    broken = np.empty(columns)
    for u in range(len(given)):
        over, over_low = _excess(given[u])
        if abs(over) >= 2.0**-29:
            continue
        r = -over
        r_low = over * over - over * over * over - over_low
        left = np.int64(2**60)
        doubtful = False
        for x in range(columns):
            v = given[u, x] * 2.0**60
            if v == 0.0:
                broken[x] = -1.0
                continue
            product, product_low = _product(v, r)
            whole, more = np.floor(v), np.floor(product)
            part = (v - whole) + (product - more) + (product_low + v * r_low)
            carry = np.floor(part)
            part -= carry
            doubtful |= part > 1 - DOUBT or (part < DOUBT and v >= 0.5)
            count = np.int64(whole) + np.int64(more) + np.int64(carry)
            broken[x] = part
            units[u, x] = max(count, np.int64(1))
            left -= units[u, x]
        sure[u] = not doubtful and _hand_out(units[u], broken, left)


@kernel
def _excess(values):  # type: ignore[no-untyped-def]
    """The sum of the values less 1, as a pair of floats."""
    high = -1.0
    low = 0.0
    for x in range(len(values)):
        total = high + values[x]
        back = total - high
        low += (high - (total - back)) + (values[x] - back)
        high = total
    total = high + low
    return total, low - (total - high)


@kernel
def _product(one, other):  # type: ignore[no-untyped-def]
    """The product of two floats as a pair of floats (Dekker)."""
    product = one * other
    c = 134217729.0 * one
    one_high = c - (c - one)
    one_low = one - one_high
    c = 134217729.0 * other
    other_high = c - (c - other)
    other_low = other - other_high
    low = ((one_high * other_high - product) + one_high * other_low + one_low * other_high) + one_low * other_low
    return product, low


@kernel
def _hand_out(units, broken, left):  # type: ignore[no-untyped-def]
    """Give the remaining units to the largest fractional parts. Returns whether it is certain which these are."""
    columns = len(units)
    if left < 0:  # units given to tiny entries are taken back from the largest
        units[np.argmax(units)] += left
        return True
    if left == 0:
        return True
    if left >= columns:
        return False
    ordered = np.partition(broken, columns - left)
    least = ordered[columns - left]
    if least - np.max(ordered[: columns - left]) <= DOUBT:
        return False
    for x in range(columns):
        if broken[x] >= least:
            units[x] += 1
    return True
