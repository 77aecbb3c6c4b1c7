"""The checker: which lower bound a certificate proves, in integers.

`check_certificate` alone decides. It does not depend on how a certificate was found, calls no solver, and uses no
floats. `onoff.model.certificate` says what each kind states; this is how each is checked:

simple  the sum is formed again.
hits    by looking at every set of fewer than h sources (see `hitting`).
parts   no source in common, and the proof of each part on its rows alone.
sets    (*) up to FEW_SOURCES sources by looking at every S. Beyond, the certificate carries a tree: each branch takes
        one source into S on one side and leaves it out on the other, and each leaf carries numbers 0 <= w_A <= y_A.
        Let A be alive where it contains everything taken, and f the sources that are still free. S leaves A where it
        takes some x not in A, so for every S of the leaf

            t - sum of y_A over A that contain S - |S|
              <=  t - |taken| - sum of y_A over A alive  +  sum of (y_A - w_A) over A alive that some free x leaves
                  + sum over free x of max(0, sum of w_A over A alive without x  -  1)

        because those A that S leaves have at most the sum of their w_A over what S takes. Where this is at most 0 the
        leaf is done.
rows    (**) Rows that take the same source are a block, so the largest left side is a partition of the rows into
        blocks, each worth max over x of the sum of phi_u(x) over its rows, less 1: a dynamic program over subsets of
        rows. Where there are few sources, by looking at every set of them instead.
groups  (***) the same for each group, with blocks of rows that have a source in common, less its share.
leak    (****) up to FEW_SOURCES sources by looking at every query. Beyond, size by size: for queries of k sources let
        b_u(x) = h(a_u(x) - w_u k). The largest b_u(x) over x in q is at most t_u + sum over x in q of (b_u(x) - t_u)^+,
        whatever t_u. So the left side is at most the sum of the thresholds t_u and of the k largest, over all x,
        of the sum over u of (b_u(x) - t_u)^+. Sizes without thresholds: every row gets its largest b_u(x) of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidTable
from onoff.model.certificate import (
    LEAF,
    WEIGHTS,
    Certificate,
    GroupCertificate,
    HittingBound,
    LeakCertificate,
    LeakLimit,
    PartsBound,
    RowCertificate,
    RowGroup,
    SetCertificate,
    SimpleBound,
    in_plain_integers,
    no_fewer_than,
)
from onoff.model.rows import UNIT, Integers, Rows, exact_sum, from_halves
from onoff.system.kernels import kernel

FEW_SOURCES = 20
"""Sources up to which every set of them is looked at."""
MOST_CERTIFIED_ROWS = 18
"""Rows of a RowCertificate up to which every partition of them is looked at."""
RATIO_BITS = 22
"""Binary digits of 1/R in the check of a certificate for a ratio R; it is rounded down, which proves less."""
FITS = 2**62
"""Sums must stay below, to fit in 64 bits."""


def check_certificate(rows: Rows, certificate: Certificate) -> Fraction:
    """The lower bound that `certificate` proves for `rows`, exactly. Its numbers have to be Python integers.

    Raises InvalidTable where it proves nothing.
    """
    certificate = in_plain_integers(certificate)
    match certificate:
        case SimpleBound(name, source):
            return Fraction(simple_units(rows, name, source), UNIT)
        case PartsBound(parts, proofs):
            alone = zip(_parts(rows, parts, proofs), proofs, strict=True)
            return sum((check_certificate(some, proof) for some, proof in alone), Fraction(0))
        case HittingBound():
            _check_hits(rows, certificate)
        case SetCertificate():
            _check_sets(rows, certificate)
        case RowCertificate():
            _check_rows(rows, certificate)
        case GroupCertificate():
            _check_groups(rows, certificate)
        case LeakCertificate():
            _check_leak(rows, certificate)
    return certificate.bound(rows)


# -- simple bounds -----------------------------------------------------------------------------------------


def simple_units(rows: Rows, name: str, source: int | None = None) -> int:
    """The bound of that name, in units of 1/UNIT. See `onoff.model.bounds` for what each says and why it holds."""
    if (source is not None) != (name == "pencil"):
        raise InvalidTable(f"the bound {name!r} {'needs a source' if source is None else 'has no source'}")
    if name == "outer":
        return exact_sum(rows.weights.max(axis=0), axis=0)[0]
    if name == "doeblin":
        return 2 * UNIT - exact_sum(rows.weights.min(axis=0), axis=0)[0]
    if name == "pairs" and len(rows.columns) > 2:
        return 3 * UNIT - sum(pair_units(rows)) // 2  # every pair is met from both of its ends
    if name == "pencil" and len(rows.columns) > 2:
        x = rows.position(int(source or 0))
        if x is not None:
            low = np.delete((rows.weights + rows.weights[:, x : x + 1]).min(axis=0), x)
            return 2 * UNIT + int(rows.weights[:, x].max()) - exact_sum(low, axis=0)[0]
    raise InvalidTable(f"no bound {name!r} for {len(rows.columns)} sources")


def pair_units(rows: Rows) -> list[int]:
    """For each reached column x the sum over z != x of low({x, z}), in units."""
    low, high = _pair_sums(np.ascontiguousarray(rows.weights.T))
    return from_halves(high, low)


@kernel
def _pair_sums(weights):  # type: ignore[no-untyped-def]
    """The sums of low({x, z}) over z != x, as sums of their low 31 bits and of the others: no overflow."""
    columns, rows = weights.shape
    low = np.zeros(columns, np.int64)
    high = np.zeros(columns, np.int64)
    for x in range(columns):
        for z in range(x):
            least = weights[x, 0] + weights[z, 0]
            for u in range(1, rows):
                least = min(least, weights[x, u] + weights[z, u])
            for at in (x, z):
                low[at] += least & (2**31 - 1)
                high[at] += least >> 31
    return low, high


# -- hits and parts ----------------------------------------------------------------------------------------


def _check_hits(rows: Rows, certificate: HittingBound) -> None:
    if not 1 <= certificate.least <= len(rows.columns):
        raise InvalidTable("the certificate's number of sources is none of these rows")
    held = no_fewer_than(rows.weights > 0, certificate.least)
    if held is None:
        raise InvalidTable("there are too many sets for the certificate to be checked")
    if not held:
        raise InvalidTable(f"fewer than {certificate.least} sources meet every row")


def _parts(rows: Rows, parts: Sequence[tuple[int, ...]], proofs: Sequence[Certificate]) -> list[Rows]:
    """The rows of each part alone. Raises InvalidTable where they are not parts, or share a source."""
    if len(parts) != len(proofs) or not all(part and _ascending(part, rows.distinct) for part in parts):
        raise InvalidTable("a part of the certificate is not a list of rows in ascending order, or has no proof")
    if any(isinstance(proof, PartsBound) for proof in proofs):
        raise InvalidTable("a part of the certificate has parts")
    alone = [rows.part(part) for part in parts]
    if len(set().union(*(some.columns.tolist() for some in alone))) < sum(len(some.columns) for some in alone):
        raise InvalidTable("two parts of the certificate have a source in common")
    return alone


# -- sets --------------------------------------------------------------------------------------------------


def _check_sets(rows: Rows, certificate: SetCertificate) -> None:
    t, weights, scale = certificate.t, certificate.weights, certificate.scale
    if scale < 1 or any(weight < 0 for weight in weights):
        raise InvalidTable("a weight of the certificate is negative, or its scale is not positive")
    if len(weights) != len(certificate.sets):
        raise InvalidTable("the certificate's sets and weights do not fit")
    if not all(_ascending(members, rows.n) for members in certificate.sets):
        raise InvalidTable("a set of the certificate is not a list of sources in ascending order")
    if sum(weights) + len(rows.columns) * (scale + sum(weights)) + abs(t) >= FITS:
        raise InvalidTable("the certificate's numbers are too large to be checked in 64 bits")
    inside = np.array([np.isin(rows.columns, members) for members in certificate.sets], dtype=bool)
    inside = inside.reshape(len(weights), len(rows.columns))
    y = np.array(weights, dtype=np.int64)
    worst = (
        _worst_of_all(t, y, inside, scale)
        if len(rows.columns) <= FEW_SOURCES
        else _worst_of_tree(rows, certificate, y, inside)
    )
    if worst > 0:
        raise InvalidTable(f"the certificate is wrong by {worst / scale:.3g}")


def _ascending(members: tuple[int, ...], n: int) -> bool:
    return all(a < b for a, b in pairwise((-1, *members, n)))


def _worst_of_all(t: int, y: Integers, inside: npt.NDArray[np.bool_], scale: int) -> int:
    """The largest t - |S| - sum of y_A over A that contain S, over all non-empty S."""
    columns = inside.shape[1]
    contained = np.zeros(1 << columns, dtype=np.int64)
    np.add.at(contained, inside @ (1 << np.arange(columns)), y)
    for x in range(columns):  # sums over supersets, one element at a time
        halves = contained.reshape(-1, 2, 1 << x)
        halves[:, 0] += halves[:, 1]
    sizes = np.bitwise_count(np.arange(1 << columns)).astype(np.int64)
    return t - int((contained + scale * sizes)[1:].min())


def _worst_of_tree(rows: Rows, certificate: SetCertificate, y: Integers, inside: npt.NDArray[np.bool_]) -> int:
    """The largest bound of a leaf. Raises InvalidTable where it is not a tree."""
    free = np.ones(len(rows.columns), dtype=bool)
    taken = np.zeros(len(rows.columns), dtype=bool)
    leaves = iter(certificate.leaves)
    worst = -FITS
    waiting = [(free, taken)]  # the sides of branches that are still to come
    for node in certificate.tree:
        if not waiting:
            raise InvalidTable("the certificate's tree goes on after its end")
        free, taken = waiting.pop()
        if node == LEAF:
            w = _multipliers(next(leaves, None), y)
            if free.any() or taken.any():  # else S is empty
                worst = max(worst, leaf_bound(certificate.t, y, w, inside, free, taken, certificate.scale))
            continue
        x = rows.position(node)
        if x is None or not free[x]:
            raise InvalidTable("the certificate branches on a source that is not free")
        rest = free.copy()
        rest[x] = False
        with_x = taken.copy()
        with_x[x] = True
        waiting += [(rest, taken), (rest, with_x)]
    if waiting or next(leaves, None) is not None:
        raise InvalidTable("the certificate's tree has not as many ends as leaves")
    return worst


def _multipliers(leaf: tuple[tuple[int, int], ...] | None, y: Integers) -> Integers:
    if leaf is None:
        raise InvalidTable("the certificate's tree has not as many ends as leaves")
    w = np.zeros(len(y), dtype=np.int64)
    for at, units in leaf:
        if not (0 <= at < len(y) and 0 <= units <= y[at]):
            raise InvalidTable("a leaf of the certificate has a number out of range")
        w[at] = units
    return w


def leaf_bound(
    t: int,
    y: Integers,
    w: Integers,
    inside: npt.NDArray[np.bool_],
    free: npt.NDArray[np.bool_],
    taken: npt.NDArray[np.bool_],
    scale: int,
) -> int:
    """What t - sum of y_A over A that contain S - |S| is at most, for every S of a leaf (see the module)."""
    alive = inside[:, taken].all(axis=1)
    y, w, outside = y[alive], w[alive], ~inside[alive][:, free]
    may_go = outside.any(axis=1)
    load = w[may_go] @ outside[may_go].astype(np.int64)
    over = int(np.maximum(load - scale, 0).sum())
    return t - int(taken.sum()) * scale - int(y.sum()) + int((y - w)[may_go].sum()) + over


# -- rows --------------------------------------------------------------------------------------------------


def _check_rows(rows: Rows, certificate: RowCertificate) -> None:
    named, phi, scale = certificate.rows, certificate.phi, certificate.scale
    if scale < 1 or not named or len(set(named)) != len(named) or not all(0 <= u < rows.distinct for u in named):
        raise InvalidTable("the certificate names rows that are not there, or no scale")
    if len(phi) != len(named) or any(len(line) != len(rows.columns) for line in phi):
        raise InvalidTable("the certificate does not fit the rows")
    largest = max(abs(value) for line in phi for value in line)
    if len(phi) * (largest + scale) + len(rows.columns) * scale >= FITS:
        raise InvalidTable("the certificate's numbers are too large to be checked in 64 bits")
    worst = row_excess(np.array(phi, dtype=np.int64), scale)
    if worst > 0:
        raise InvalidTable(f"the certificate is wrong by {worst / scale:.3g}")


def row_excess(phi: Integers, scale: int) -> int:
    """The largest sum of phi_u(x_u) less the number of different x_u, over all x.

    Raises InvalidTable where there are too many rows and too many sources to look at all.
    """
    m, columns = phi.shape
    if m <= MOST_CERTIFIED_ROWS or columns > FEW_SOURCES:
        return group_excess(phi, np.ones(phi.shape, dtype=bool), np.full(columns, scale))
    worst = -FITS
    for high in range(1 << max(columns - 12, 0)):  # 4096 sets at a time
        masks = (high << 12) + np.arange(1 << min(columns, 12))
        sets = (masks[masks > 0][:, None] >> np.arange(columns)) & 1 == 1
        total = -scale * sets.sum(axis=1)
        for line in phi:
            total += np.where(sets, line, -FITS // (2 * m)).max(axis=1)
        worst = max(worst, int(total.max()))
    return worst


# -- groups ------------------------------------------------------------------------------------------------


def _check_groups(rows: Rows, certificate: GroupCertificate) -> None:
    scale = certificate.scale
    if not 1 <= scale < FITS:
        raise InvalidTable("the certificate names no scale, or one that is too large")
    shared = dict.fromkeys(rows.columns.tolist(), 0)
    for group in certificate.groups:
        able = _wanted(rows, group)
        if any(share < 0 for share in group.shares):
            raise InvalidTable("a share of the certificate is negative")
        largest = max((abs(value) for line in group.phi for value in line), default=0)
        if len(group.rows) * (largest + max(group.shares, default=0)) >= FITS:  # each block pays its source
            raise InvalidTable("the certificate's numbers are too large to be checked in 64 bits")
        worst = group_excess(np.array(group.phi, dtype=np.int64), able, np.array(group.shares, dtype=np.int64))
        if worst > 0:
            raise InvalidTable(f"the certificate is wrong by {worst / scale:.3g}")
        for source, share in zip(group.sources, group.shares, strict=True):
            shared[source] += share
    if any(share > scale for share in shared.values()):
        raise InvalidTable("the groups of the certificate share more than the whole of a source")


def _wanted(rows: Rows, group: RowGroup) -> npt.NDArray[np.bool_]:
    """Which of the group's sources each of its rows wants. Raises InvalidTable where they do not fit the rows."""
    if not group.rows or not _ascending(group.rows, rows.distinct) or not _ascending(group.sources, rows.n):
        raise InvalidTable("a group of the certificate is not of rows and sources in ascending order")
    if len(group.shares) != len(group.sources) or len(group.phi) != len(group.rows):
        raise InvalidTable("a group of the certificate does not fit its rows")
    if any(len(line) != len(group.sources) for line in group.phi):
        raise InvalidTable("a group of the certificate does not fit its sources")
    inside = np.isin(rows.columns, group.sources)
    some = rows.weights[list(group.rows)]
    if inside.sum() != len(group.sources) or some[:, ~inside].any():
        raise InvalidTable("the sources of a group of the certificate are not those that its rows want")
    return np.asarray(some[:, inside] > 0)


def group_excess(phi: Integers, able: npt.NDArray[np.bool_], shares: Integers) -> int:
    """The largest sum of phi_u(x_u) less the shares of the different x_u, where every row takes what it is able to.

    Raises InvalidTable where there are too many rows to look at all.
    """
    m = len(phi)
    if m > MOST_CERTIFIED_ROWS:
        raise InvalidTable(f"the certificate is for {m} rows, too many to check", hint=f"{MOST_CERTIFIED_ROWS} at most")
    return int(_best_partition(phi, able, shares))


@kernel
def _best_partition(phi, able, shares):  # type: ignore[no-untyped-def]
    """The largest worth of a partition of all rows into blocks.

    A block is worth its best source: the sum of phi over its rows, all of which can take that source, less its share.
    """
    m, columns = phi.shape
    everyone = (1 << m) - 1
    none = -(1 << 62)
    worth = np.full(1 << m, none, np.int64)
    sums = np.empty(1 << m, np.int64)
    masks = np.empty(1 << m, np.int64)
    for x in range(columns):  # all blocks that can take x
        sums[0], masks[0], known = -shares[x], 0, 1
        for u in range(m):
            if able[u, x]:
                for k in range(known):
                    sums[known + k] = sums[k] + phi[u, x]
                    masks[known + k] = masks[k] | 1 << u
                known *= 2
        for k in range(1, known):
            worth[masks[k]] = max(worth[masks[k]], sums[k])

    blocks = np.empty(1 << m, np.int64)  # by their lowest row
    first = np.zeros(m + 1, np.int64)
    for low in range(m):
        first[low + 1] = first[low]
        for block in range(1 << low, 1 << m, 2 << low):
            if worth[block] > none:
                blocks[first[low + 1]] = block
                first[low + 1] += 1

    best = np.full(1 << m, none, np.int64)  # of the partitions of just these rows
    best[0] = 0
    for inside in range(everyone):
        if best[inside] == none:
            continue
        low = 0
        while inside >> low & 1:
            low += 1
        others, free = everyone ^ inside ^ 1 << low, 0
        for u in range(low + 1, m):
            free += others >> u & 1
        if first[low + 1] - first[low] <= 1 << free:  # few blocks hold that row
            for k in range(first[low], first[low + 1]):
                if blocks[k] & inside == 0:
                    more = inside | blocks[k]
                    best[more] = max(best[more], best[inside] + worth[blocks[k]])
        else:  # few rows are left
            beside = others
            while True:
                block = beside | 1 << low
                if worth[block] > none:
                    best[inside | block] = max(best[inside | block], best[inside] + worth[block])
                if beside == 0:
                    break
                beside = (beside - 1) & others
    return best[everyone]


# -- leak --------------------------------------------------------------------------------------------------


def _check_leak(rows: Rows, certificate: LeakCertificate) -> None:
    limit, shape = certificate.limit, (rows.distinct, len(rows.columns))
    check_limit(rows, limit)
    if len(certificate.prices) != shape[0] or any(len(line) != shape[1] for line in certificate.prices):
        raise InvalidTable("the certificate's prices do not fit the rows")
    if any(len(line) != shape[0] for line in certificate.thresholds):
        raise InvalidTable("the certificate's thresholds do not fit the rows")
    if certificate.allowance < 0 or (limit.leak is None and certificate.allowance > 0):
        raise InvalidTable("the certificate's allowance is negative, or there is no leak that it could be for")
    largest = max(abs(number) for line in (*certificate.prices, *certificate.thresholds) for number in line)
    factor = max(shape[0] * shape[1], 1 if limit.ratio is None else 1 << RATIO_BITS)
    if (largest + WEIGHTS * shape[1]) * factor >= FITS:
        raise InvalidTable("the certificate's numbers are too large to be checked in 64 bits")
    prices = np.array(certificate.prices, dtype=np.int64)
    if shape[1] <= FEW_SOURCES:
        gained = int(query_gains(prices, limit)[1:].max())
    else:
        gained = max(size_gains(prices, limit, certificate.thresholds))
    if gained > certificate.allowance:
        raise InvalidTable(f"the certificate is wrong by {(gained - certificate.allowance) / WEIGHTS:.3g}")


def check_limit(rows: Rows, limit: LeakLimit) -> None:
    """Raise InvalidTable where it is no limit for these rows."""
    if len(limit.weights) != rows.distinct or min(limit.weights) < 0 or sum(limit.weights) != WEIGHTS:
        raise InvalidTable("the weights of the limit are not those of the rows")
    if (limit.leak is None and limit.ratio is None) or min(limit.leak or UNIT, limit.ratio or UNIT) < UNIT:
        raise InvalidTable("the limit is none, or less than nothing")


def query_gains(prices: Integers, limit: LeakLimit) -> Integers:
    """The left side of (****) for every set of columns, by its mask; the one of the empty set means nothing."""
    columns = prices.shape[1]
    sizes = np.bitwise_count(np.arange(1 << columns)).astype(np.int64)
    gains = np.zeros(1 << columns, dtype=np.int64)
    best = np.empty(1 << columns, dtype=np.int64)
    for line, weight in zip(prices, limit.weights, strict=True):
        best[0] = line.min()  # of no set; what it makes of larger ones is not more than their own
        for x in range(columns):
            np.maximum(best[: 1 << x], line[x], out=best[1 << x : 2 << x])
        gains += _gain(best - weight * sizes, limit)
    return gains


def size_gains(prices: Integers, limit: LeakLimit, thresholds: Sequence[tuple[int, ...]]) -> list[int]:
    """For queries of 1, 2, ... sources a bound on the left side of (****), by the thresholds of that size."""
    weights = np.array(limit.weights, dtype=np.int64)
    found = []
    for size in range(1, prices.shape[1] + 1):
        gain = _gain(prices - size * weights[:, None], limit)
        t = np.array(thresholds[size - 1], dtype=np.int64) if size <= len(thresholds) else gain.max(axis=1)
        above = np.sort(np.maximum(gain - t[:, None], 0).sum(axis=0))
        found.append(int(t.sum()) + int(above[len(above) - size :].sum()))
    return found


def _gain(s: Integers, limit: LeakLimit) -> Integers:
    """h(s), rounded up."""
    if limit.ratio is None:
        return np.maximum(s, 0)
    share = (UNIT << RATIO_BITS) // limit.ratio
    return np.where(s > 0, s, -((np.maximum(-s, 0) * share) >> RATIO_BITS))
