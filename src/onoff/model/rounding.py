"""Rows of floats as units, for whole matrices: the same integers as `to_units` gives row by row, in compiled code.

`to_units` takes every float as the fraction that it is and divides in whole numbers, which is exact and slow. Here the
quotient u = 2**60 v / (1 + d), d the sum of the row less 1, is worked out in pairs of floats:

    d        as a pair, by compensated sums
    1/(1+d)  = 1 + r,  r = -d + d**2 - d**3 as a pair, for |d| < 2**-29
    u        = 2**60 v + (2**60 v) r: integer and fractional part kept apart, the latter off by less than DOUBT / 2

Where a fractional part is so near to an integer, or to that of another entry with which it competes for a unit, that
the error could matter, the row is left to `to_units`. So are rows that do not sum to nearly 1.

A row is read twice, once for its sum and once for its quotients, and its units are written twice. The largest
fractional parts are found by counting them in PART_BUCKETS, without sorting.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Floats, Integers, to_units
from onoff.system.kernels import kernel

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
