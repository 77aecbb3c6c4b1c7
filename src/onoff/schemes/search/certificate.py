"""A proof that no private choice of queries is cheaper, and the function that checks it.

Setting
    Y       a random set with X in Y always, independent of U;  OPT the least E|Y|
    low(A)  the smallest p(A|u) over the rows u

Y lies in A only when X does, so Pr(Y lies in A) <= low(A). Hence for every number t and weights y_A >= 0 over
sets A of sources with

    t - sum of y_A over A that contain S  <=  |S|        for every non-empty set S                        (*)

OPT = E|Y| >= t - sum of y_A Pr(Y lies in A) >= t - sum of y_A low(A). By duality some (t, y) gives OPT itself.

`check` trusts nothing: t and y are integers in units of 1/SCALE, low(A) is summed exactly from the rows, and (*) is
decided by branch and bound over S in integers. A branch stops where no set in it can violate (*): k more elements
gain at most the k largest single gains, and at most all the weight that is left, less k.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from onoff.errors import InvalidTable
from onoff.model.rows import UNIT, Floats, Integers, Rows, exact_sum
from onoff.schemes.search.hall import Sets
from onoff.system.kernels import kernel

SCALE = 2**40
"""t and y are integers in units of 1/SCALE."""
BRANCHES = 50_000_000
"""Branches that `check` looks at before it gives up."""
FEW_SOURCES = 12
"""Sources up to which the check of a coupling looks at every set of them."""
LARGEST = 2**50
"""The largest dual of a coupling: the sums over a thousand rows fit in 64 bits."""


@dataclass(frozen=True)
class Certificate:
    """t and y over sets of sources, in units of 1/SCALE: a lower bound on the cost for some rows."""

    t: int
    sets: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]

    def bound(self, rows: Rows) -> Fraction:
        """t - sum of y_A low(A): what is proved for these rows, if (*) holds."""
        spent = 0
        for members, weight in zip(self.sets, self.weights, strict=True):
            inside = np.isin(rows.columns, members)
            spent += weight * min(exact_sum(rows.weights[:, inside], axis=1))
        return Fraction(self.t * UNIT - spent, SCALE * UNIT)


@dataclass(frozen=True)
class CouplingCertificate:
    """phi_u(x) for every distinct row and reached column, in units of 1/SCALE: a lower bound of another kind.

    If  sum over u of max over x in S of phi_u(x)  <=  |S|  for every S, then whatever the rows take together has at
    least sum of phi_u(x_u) different values, so OPT >= sum of phi_u(x) p_u(x). For few sources this is checked by
    looking at every S, for few rows by looking at every way in which rows can share a source.
    """

    phi: tuple[tuple[int, ...], ...]

    def bound(self, rows: Rows) -> Fraction:
        """The sum of phi_u(x) p_u(x): what is proved for these rows, if the inequalities hold."""
        pairs = zip(self.phi, rows.weights.tolist(), strict=True)
        return Fraction(sum(f * w for line, row in pairs for f, w in zip(line, row, strict=True)), SCALE * UNIT)

    def excess(self, sets: Sets | None = None) -> int:
        """The largest  sum over u of max over x in S of phi_u(x)  -  |S|,  over all S or over those of `sets`."""
        columns = len(self.phi[0])
        if sets is None and columns <= FEW_SOURCES:
            sets = (np.arange(1, 1 << columns)[:, None] >> np.arange(columns)) & 1 == 1
        return self._excess_by_blocks() if sets is None else self._excess_over(sets)

    def _excess_over(self, sets: Sets) -> int:
        total = -SCALE * sets.sum(axis=1)
        for line in np.array(self.phi, dtype=np.int64):
            total += np.where(sets, line, -LARGEST).max(axis=1)
        return int(total.max())

    def _excess_by_blocks(self) -> int:
        """The largest  sum over blocks of (max over x of the sum of phi_u(x) over u in the block)  -  blocks.

        best[R] for a set R of rows: the block that holds its first row, and the best of the others.
        """
        phi = np.array(self.phi, dtype=object)
        rows = len(phi)
        sums = [np.zeros(phi.shape[1], dtype=object)]
        for mask in range(1, 1 << rows):
            low = (mask & -mask).bit_length() - 1
            sums.append(sums[mask & (mask - 1)] + phi[low])
        worth = [0] + [int(max(total)) - SCALE for total in sums[1:]]
        best = [0] * (1 << rows)
        for mask in range(1, 1 << rows):
            first = mask & -mask
            others = mask ^ first
            with_first = others
            best[mask] = worth[first] + best[others]
            while with_first:
                best[mask] = max(best[mask], worth[first | with_first] + best[others ^ with_first])
                with_first = (with_first - 1) & others
        return best[-1]


def outer(rows: Rows) -> Certificate:
    """The proof of the outer bound, sum of max_u p(x|u): every A leaves out one source."""
    columns = rows.columns.tolist()
    every = [tuple(columns[:at] + columns[at + 1 :]) for at in range(len(columns))]
    return Certificate(len(columns) * SCALE, tuple(every), (SCALE,) * len(columns))


def doeblin(rows: Rows) -> Certificate:
    """The proof of 2 - lam_1: every A is one source."""
    return Certificate(2 * SCALE, tuple((x,) for x in rows.columns.tolist()), (SCALE,) * len(rows.columns))


def simplest(rows: Rows) -> Certificate:
    """The better of `outer` and `doeblin`."""
    return max((outer(rows), doeblin(rows)), key=lambda proof: proof.bound(rows))


def from_duals(rows: Rows, t: float, y: Floats, inside: Sets) -> Certificate:
    """The duals as integers: y rounded down, so that (*) can only be missed by the rounding of t."""
    units = np.floor(y * SCALE).astype(np.int64)
    kept = np.flatnonzero(units)
    sets = tuple(tuple(rows.columns[inside[a]].tolist()) for a in kept)
    lost = len(y)  # each y lost less than one unit, and t - sum y must not exceed what it was
    return Certificate(int(np.floor(t * SCALE)) - lost, sets, tuple(units[kept].tolist()))


def from_coupling(phi: Floats, sets: Sets | None = None) -> CouplingCertificate:
    """The duals of a coupling as integers, lowered alike in every row until the inequalities hold (those of `sets`)."""
    units = np.clip(np.floor(phi * SCALE), -LARGEST, LARGEST).astype(np.int64)
    too_much = CouplingCertificate(tuple(map(tuple, units.tolist()))).excess(sets)
    less = -(-max(too_much, 0) // len(units))
    return CouplingCertificate(tuple(map(tuple, (units - less).tolist())))


def check(rows: Rows, certificate: Certificate | CouplingCertificate) -> Fraction:
    """The lower bound that `certificate` proves for `rows`. Raises InvalidTable where it proves nothing."""
    if isinstance(certificate, CouplingCertificate):
        if max(abs(value) for line in certificate.phi for value in line) * len(certificate.phi) >= 2**62:
            raise InvalidTable("the certificate's numbers are too large to be checked in 64 bits")
        if certificate.excess() > 0:
            raise InvalidTable(f"the certificate is wrong by {certificate.excess() / SCALE:.3g}")
        return certificate.bound(rows)
    if any(weight < 0 for weight in certificate.weights):
        raise InvalidTable("a weight of the certificate is negative")
    worst, where = _largest_violation(certificate, rows.columns.tolist())
    if worst > 0:
        raise InvalidTable(f"the certificate is wrong by {worst / SCALE:.3g} at the set {where}")
    return certificate.bound(rows)


def _largest_violation(certificate: Certificate, columns: Iterable[int]) -> tuple[int, list[int]]:
    """A set that violates (*), and by how much; (0, []) where none does."""
    sources = np.array(list(columns), dtype=np.int64)
    inside = np.array([np.isin(sources, members) for members in certificate.sets], dtype=bool)
    inside = inside.reshape(len(certificate.sets), len(sources))
    weights: Integers = np.array(certificate.weights, dtype=np.int64)
    if sum(certificate.weights) + len(sources) * SCALE + abs(certificate.t) >= 2**62:
        raise InvalidTable("the certificate's numbers are too large to be checked in 64 bits")
    effort = 100 * inside.size
    violation, chosen, finished = _branch(inside, weights, certificate.t, SCALE, BRANCHES, effort=effort)
    if not finished:
        raise InvalidTable("the certificate is too intricate to be checked")
    return int(violation), sources[chosen].tolist()


@kernel
def _branch(inside, weights, t, scale, branches):  # type: ignore[no-untyped-def]
    """(violation, its set, whether all was looked at): depth first over the elements in or out of S.

    At each depth the element with the largest gain is first taken, later refused. gone[A] counts the elements of S
    that A does not hold; refused[x] and taken[x] the depth that decided.
    """
    count, columns = inside.shape
    gone = np.zeros(count, np.int64)
    taken = np.zeros(columns, np.bool_)
    refused = np.zeros(columns, np.bool_)
    stack = np.empty(columns + 1, np.int64)
    gains = np.empty(columns, np.int64)
    order = np.empty(columns, np.int64)
    depth = 0
    size = 0
    looked = 0
    while True:
        looked += 1
        if looked > branches:
            return 0, taken, False
        remaining = 0
        gains[:] = 0
        for a in range(count):
            if gone[a] == 0:
                remaining += weights[a]
                for x in range(columns):
                    if not inside[a, x]:
                        gains[x] += weights[a]
        excess = t - remaining - size * scale
        if size > 0 and excess > 0:
            return excess, taken, True

        # The best k further elements could do, whatever they are.
        candidates = 0
        for x in range(columns):
            if not taken[x] and not refused[x] and (gains[x] > 0 or size == 0):
                order[candidates] = gains[x]
                candidates += 1
        bound = excess if size > 0 else -1
        if candidates > 0:
            ranked = np.sort(order[:candidates])
            reach = 0
            for k in range(1, candidates + 1):
                reach += ranked[candidates - k]
                if reach >= remaining:
                    reach = remaining
                bound = max(bound, excess + reach - k * scale)
                if reach == remaining:
                    break
        best = -1
        if bound > 0:
            for x in range(columns):
                if not taken[x] and not refused[x] and (best < 0 or gains[x] > gains[best]):
                    best = x
        if best >= 0:
            stack[depth] = best
            depth += 1
            taken[best] = True
            size += 1
            for a in range(count):
                if not inside[a, best]:
                    gone[a] += 1
            continue
        # Back to the last element that was taken: refuse it.
        while depth > 0 and not taken[stack[depth - 1]]:
            depth -= 1
            refused[stack[depth]] = False
        if depth == 0:
            return 0, taken, True
        x = stack[depth - 1]
        taken[x] = False
        refused[x] = True
        size -= 1
        for a in range(count):
            if not inside[a, x]:
                gone[a] -= 1
