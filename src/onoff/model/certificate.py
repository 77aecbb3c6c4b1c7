"""Certificates: proofs that no private choice of queries is cheaper. What each kind states, and why it is a proof.

Setting
    Y       a random set with X in Y always, independent of U;  OPT the least E|Y|
    low(A)  the smallest p(A|u) over the rows u

Y lies in A only when X does, so Pr(Y lies in A) <= low(A). Seven kinds of proof:

SimpleBound     a theorem of `onoff.model.bounds`: only numbers have to be added up.
HittingBound    Y meets the support of every row, so |Y| >= h where no set of fewer than h sources does.
PartsBound      rows dealt into parts that have no source in common, each with a proof: Y holds what each part needs.
SetCertificate  t and weights y_A >= 0 on sets A of sources. If for every non-empty set S

                    t - sum of y_A over A that contain S  <=  |S|                                          (*)

                then OPT = E|Y| >= t - sum of y_A Pr(Y lies in A) >= t - sum of y_A low(A). Some (t, y) gives OPT.
RowCertificate  phi_u(x) for some rows u. If for every way in which these rows take sources x_u together

                    sum of phi_u(x_u)  <=  the number of different x_u                                    (**)

                then OPT >= sum of phi_u(x) p_u(x), since Y holds a source for every row.
GroupCertificate  groups G of rows, each with a share w_G(x) >= 0 of every source, and phi as above. If

                    sum of w_G(x) over the groups  <=  1                            for every source x
                    sum of phi_u(x_u) over G  <=  sum of w_G(x) over the different x_u                    (***)

                for every group and every way in which its rows take sources that they want together, then OPT is at
                least the sum of phi_u(x) p_u(x) over all groups: a source that Y holds is paid for once, and its
                shares pay what the groups need of it. Groups of a dozen rows prove what a thousand rows cost, where
                each row wants few sources and near rows want the same ones.
LeakCertificate for tables that may leak, see `LeakLimit`: m_q the largest mass of query q, sum of m_q <= B; every row
                sends at most m_q and, with a ratio R, at least m_q / R into q; row u costs w_u |q| there. Prices
                a_u(x) and an allowance l >= 0. With h(s) = s where s > 0, else s / R (0 without a ratio), if

                    sum over u of h(max of a_u(x) over x in q  -  w_u |q|)  <=  l       for every query q (****)

                then the cost is at least the sum of a_u(x) p_u(x), less B l (l = 0 where there is no B): what row u
                sends into q is worth its prices there, costs w_u |q|, and gains at most m_q h(.).

`kind` names each in files and reports. `onoff.model.checker` decides whether they hold;
`onoff.model.certificate_json` is the form in files.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from operator import mul
from typing import ClassVar, TypeAlias

import numpy as np

from onoff.model.rows import UNIT, Rows, exact_sum

SCALE = 2**40
"""The usual denominator of the numbers in a certificate."""
WEIGHTS = 2**30
"""What the weights of the rows of a `LeakLimit` sum to; the prices of its certificates are in units of 1 / WEIGHTS."""
LEAF = -1
"""In a tree: a leaf; other numbers are sources to branch on."""


@dataclass(frozen=True)
class SimpleBound:
    """A bound by its name in `onoff.model.bounds`; `source` is the x of `pencil`."""

    kind: ClassVar = "simple"
    name: str
    source: int | None = None


@dataclass(frozen=True)
class SetCertificate:
    """t and y_A, in units of 1/scale, and the tree that proves (*).

    tree: the nodes in the order "this node, the side that takes the source, the side that leaves it": source or LEAF.
    leaves: for each leaf, in order, its w_A as (place in `sets`, units); what is not named is 0.
    """

    kind: ClassVar = "sets"
    t: int
    sets: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    tree: tuple[int, ...] = (LEAF,)
    leaves: tuple[tuple[tuple[int, int], ...], ...] = ((),)
    scale: int = SCALE

    def bound(self, rows: Rows) -> Fraction:
        """t - sum of y_A low(A): what is proved for these rows, if (*) holds."""
        spent = 0
        columns = rows.columns.tolist()
        for members, weight in zip(self.sets, self.weights, strict=True):
            named = set(members)
            inside = [x in named for x in columns]
            spent += weight * min(exact_sum(rows.weights[:, inside], axis=1))
        return Fraction(self.t * UNIT - spent, self.scale * UNIT)


@dataclass(frozen=True)
class RowCertificate:
    """phi_u(x) in units of 1/scale, for the distinct rows named in `rows` and every reached column."""

    kind: ClassVar = "rows"
    rows: tuple[int, ...]
    phi: tuple[tuple[int, ...], ...]
    scale: int = SCALE

    def bound(self, rows: Rows) -> Fraction:
        """The sum of phi_u(x) p_u(x): what is proved for these rows, if (**) holds."""
        total = 0
        for u, line in zip(self.rows, self.phi, strict=True):
            total += sum(f * w for f, w in zip(line, rows.weights[u].tolist(), strict=True))
        return Fraction(total, self.scale * UNIT)


@dataclass(frozen=True)
class RowGroup:
    """Some distinct rows, the sources that they want, and the group's share and phi_u(x) of each, in units."""

    rows: tuple[int, ...]
    sources: tuple[int, ...]
    shares: tuple[int, ...]
    phi: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class GroupCertificate:
    """Groups whose shares of every source add up to 1 at most; a row may be in several. Units of 1/scale."""

    kind: ClassVar = "groups"
    groups: tuple[RowGroup, ...]
    scale: int = SCALE

    def bound(self, rows: Rows) -> Fraction:
        """The sum of phi_u(x) p_u(x) over all groups: what is proved for these rows, if (***) holds."""
        total = 0
        for group in self.groups:
            place = np.searchsorted(rows.columns, group.sources)
            for u, line in zip(group.rows, group.phi, strict=True):
                total += sum(f * w for f, w in zip(line, rows.weights[u, place].tolist(), strict=True))
        return Fraction(total, self.scale * UNIT)


@dataclass(frozen=True)
class HittingBound:
    """Every set that meets the support of every row holds so many sources."""

    kind: ClassVar = "hits"
    least: int

    def bound(self, rows: Rows) -> Fraction:
        """What is proved for these rows, if it is so."""
        return Fraction(self.least)


@dataclass(frozen=True)
class PartsBound:
    """For each part, a list of distinct rows, the certificate of these rows alone."""

    kind: ClassVar = "parts"
    parts: tuple[tuple[int, ...], ...]
    proofs: tuple[Certificate, ...]


@dataclass(frozen=True)
class LeakLimit:
    """How much the queries of a table may tell, and what its cost means.

    leak: the largest masses max_u p(q|u) sum to at most so many units of 1/UNIT; None: no such limit.
    ratio: p(q|u) is at most ratio/UNIT times p(q|v), whatever u and v; None: no such limit.
    weights: of the distinct rows, summing to WEIGHTS. They decide what `cost` is an average over, never privacy.
    """

    leak: int | None
    ratio: int | None
    weights: tuple[int, ...]


@dataclass(frozen=True)
class LeakCertificate:
    """Prices a_u(x) of the distinct rows and reached columns, and the allowance l, in units of 1/WEIGHTS.

    thresholds: for queries of 1, 2, ... sources a number for each row, by which the checker bounds (****) where sources
    are too many to look at every query.
    """

    kind: ClassVar = "leak"
    limit: LeakLimit
    prices: tuple[tuple[int, ...], ...]
    allowance: int
    thresholds: tuple[tuple[int, ...], ...] = ()

    def bound(self, rows: Rows) -> Fraction:
        """The sum of a_u(x) p_u(x), less B l: what is proved for these rows and this limit, if (****) holds."""
        total = -(self.limit.leak or 0) * self.allowance
        for line, weights in zip(self.prices, rows.weights.tolist(), strict=True):
            total += sum(map(mul, line, weights))
        return Fraction(total, WEIGHTS * UNIT)


Certificate: TypeAlias = (
    "SimpleBound | HittingBound | PartsBound | SetCertificate | RowCertificate | GroupCertificate | LeakCertificate"
)
