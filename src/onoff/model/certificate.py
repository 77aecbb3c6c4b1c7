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
`onoff.model.certificate` is the form in files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cache
from operator import mul
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidInput, InvalidTable
from onoff.model.rows import UNIT, Rows, exact_sum, to_units
from onoff.system.kernels import kernel

SCALE = 2**40
"""The usual denominator of the numbers in a certificate."""
WEIGHTS = 2**30
"""What the weights of the rows of a `LeakLimit` sum to; the prices of its certificates are in units of 1 / WEIGHTS."""
LEAST_BITS, MOST_BITS = 2.0**-40, 60.0
"""The smallest budget of leakage that is no rounding error, and one that no table needs."""
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

    @classmethod
    def of(cls, rows: Rows, leak: float | None, ratio: float | None = None, weights: Any = None) -> LeakLimit:
        """The limit of so many bits, and of weights of the original rows (default: all alike), in integers.

        Raises InvalidInput for bits and weights that are none.
        """
        each = np.ones(rows.m) if weights is None else np.asarray(weights, dtype=np.float64)
        if each.shape != (rows.m,) or not np.isfinite(each).all() or (each < 0).any() or not each.any():
            raise InvalidInput(f"the weights are not {rows.m} numbers from 0 up", hint="one for each row, not all 0")
        merged = np.bincount(rows.group, weights=each, minlength=rows.distinct)
        return cls(
            None if leak is None else units_of_bits(leak, "leak"),
            None if ratio is None else units_of_bits(ratio, "ratio"),
            tuple(to_units(merged.tolist(), WEIGHTS).tolist()),
        )


def units_of_bits(bits: float, name: str) -> int:
    """2^bits in units, rounded down."""
    if isinstance(bits, bool) or not isinstance(bits, int | float) or not math.isfinite(bits) or bits < 0:
        raise InvalidInput(f"{name} = {bits}: not a number of bits from 0 up", hint=f"as {name}=0.5 for half a bit")
    if 0 < bits < LEAST_BITS:
        raise InvalidInput(f"{name} = {bits}: less than rounding tells", hint=f"0, or at least {LEAST_BITS:.1g} bits")
    return _power_of_two(float(min(bits, MOST_BITS)))


@cache
def _power_of_two(bits: float) -> int:
    """Kept: a session needs it after every private request."""
    if bits == int(bits):
        return UNIT << int(bits)
    with localcontext() as context:  # 60 digits: an error of 1e-55 cannot pass a whole number unless it is met exactly
        context.prec = 80
        return int((Decimal(2) ** Decimal(bits) * UNIT).to_integral_value(rounding=ROUND_FLOOR))


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


def to_json(certificate: Certificate) -> dict[str, Any]:
    """Plain numbers and lists; `from_json` gives the same certificate back."""
    values = {field.name: getattr(certificate, field.name) for field in fields(certificate)}
    if isinstance(certificate, PartsBound):
        values["proofs"] = [to_json(proof) for proof in certificate.proofs]
    if isinstance(certificate, GroupCertificate):
        values["groups"] = [asdict(group) for group in certificate.groups]
    if isinstance(certificate, LeakCertificate):
        values["limit"] = asdict(certificate.limit)
    return {"kind": certificate.kind, **values}


def from_json(given: Any) -> Certificate:
    """The certificate of a document; what it proves is not checked. Raises InvalidTable where it is not one."""
    named = dict(given) if isinstance(given, dict) else {}
    kind = named.pop("kind", None)
    try:
        if kind == SimpleBound.kind and isinstance(named["name"], str):
            source = named["source"]
            return SimpleBound(named["name"], None if source is None else _whole(source))
        if kind == HittingBound.kind:
            return HittingBound(_whole(named["least"]))
        if kind == PartsBound.kind:
            return PartsBound(_lists(named["parts"]), tuple(from_json(proof) for proof in named["proofs"]))
        if kind == SetCertificate.kind:
            return SetCertificate(
                t=_whole(named["t"]),
                sets=_lists(named["sets"]),
                weights=_wholes(named["weights"]),
                tree=_wholes(named["tree"]),
                leaves=tuple(tuple((at, units) for at, units in _lists(leaf)) for leaf in named["leaves"]),
                scale=_whole(named["scale"]),
            )
        if kind == RowCertificate.kind:
            return RowCertificate(_wholes(named["rows"]), _lists(named["phi"]), _whole(named["scale"]))
        if kind == GroupCertificate.kind:
            return GroupCertificate(tuple(map(_group, named["groups"])), _whole(named["scale"]))
        if kind == LeakCertificate.kind:
            limit, prices, thresholds = limit_from_json(named["limit"]), _lists(named["prices"]), named["thresholds"]
            return LeakCertificate(limit, prices, _whole(named["allowance"]), _lists(thresholds))
    except (KeyError, TypeError, ValueError):
        pass
    raise InvalidTable(f"not a certificate of the kind {kind!r} in whole numbers")


def in_plain_integers(certificate: Certificate) -> Certificate:
    """The same certificate, made anew of plain tuples and Python integers, which are exact whatever is done with them.

    Raises InvalidTable where it has other numbers: fractions would be cut, and those of numpy wrap around.
    """
    try:
        return from_json(to_json(certificate))
    except (AttributeError, TypeError):  # not even a certificate
        raise InvalidTable(f"a {type(certificate).__name__} is no certificate") from None


def limit_from_json(given: Any) -> LeakLimit:
    """The limit of a document. Raises KeyError or TypeError where it is not one."""
    leak, ratio = (None if given[name] is None else _whole(given[name]) for name in ("leak", "ratio"))
    return LeakLimit(leak, ratio, _wholes(given["weights"]))


def _group(given: dict[str, Any]) -> RowGroup:
    rows, sources, shares = (_wholes(given[name]) for name in ("rows", "sources", "shares"))
    return RowGroup(rows, sources, shares, _lists(given["phi"]))


def _whole(value: Any) -> int:
    if type(value) is not int:  # a bool is one, and a class derived from it may calculate as it likes
        raise TypeError(value)
    return value


def _wholes(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(_whole, values))


def _lists(values: Sequence[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(_wholes, values))


# How many sources a set must hold to meet the support of every row: the whole number below which there is none.
#
# Setting
#     D_u  the support of row u, the sources that it can want;   S a set of sources that meets every D_u
#
# A query holds what row u wants, whichever u it is, so it meets every support. If no set of fewer than h sources
# does, every private table costs h at least, and h is a whole number where sums of masses give a fraction: a walk on
# the 7 x 7 torus without staying costs 14, and the outer bound says 12.25.
#
# `no_fewer_than` looks at every set, one after the other, in a tree: take the row that is not met yet and has the
# fewest sources left, and of these the one that meets the most rows; first all sets with it, then all sets without
# it. A branch is left where no set of it can be small enough:
#
#     a row has no source left that could meet it, or
#     the sources taken, and so many more that the largest numbers of open rows that sources meet add up to all open
#     rows, are h or more.
#
# No proof is stored: the checker does the same search. Integers only.

MOST_BRANCHES = 5 * 10**7
"""Nodes of a tree at most: seconds, compiled."""


def no_fewer_than(supports: npt.NDArray[np.bool_], least: int, most_steps: int = MOST_BRANCHES) -> bool | None:
    """Whether every set that meets all of `supports` (one per line) holds `least` sources or more; None: too many.

    >>> no_fewer_than(np.eye(3, dtype=bool) | np.eye(3, k=1, dtype=bool), 2), no_fewer_than(np.eye(3, dtype=bool), 4)
    (True, False)
    """
    row, of_row = np.nonzero(supports)
    column, of_column = np.nonzero(supports.T)
    first = np.searchsorted(row, np.arange(len(supports) + 1)).astype(np.int64)
    start = np.searchsorted(column, np.arange(supports.shape[1] + 1)).astype(np.int64)
    found = _smaller_set(first, of_row, start, of_column, least, most_steps)
    return None if found < 0 else found == 0


@kernel
def _smaller_set(first, of_row, start, of_column, least, most_steps):  # type: ignore[no-untyped-def]
    """1 where a set of fewer than `least` columns meets every row, 0 where none does, -1 after `most_steps` nodes.

    first, of_row: the columns of each row, as CSR; start, of_column: the rows of each column. For the node at hand:
    met[u] counts the columns taken in row u, left[u] those that are free, load[x] the open rows of column x, and
    having[l] the free columns with load l.
    """
    rows, columns = len(first) - 1, len(start) - 1
    met = np.zeros(rows, np.int64)
    left = np.empty(rows, np.int64)
    load = np.empty(columns, np.int64)
    free = np.ones(columns, np.bool_)
    for u in range(rows):
        left[u] = first[u + 1] - first[u]
    for x in range(columns):
        load[x] = start[x + 1] - start[x]
    largest = load.max()
    having = np.zeros(largest + 1, np.int64)
    for x in range(columns):
        having[load[x]] += 1
    path = np.empty(columns + 1, np.int64)
    with_it = np.zeros(columns + 1, np.bool_)
    depth, taken, open_rows = 0, 0, rows
    for _ in range(most_steps):
        more, rest, size = 0, open_rows, largest
        while rest > 0 and size > 0:
            if having[size] * size >= rest:
                more += (rest + size - 1) // size
                rest = 0
            else:
                more += having[size]
                rest -= having[size] * size
            size -= 1
        row = -1
        if rest == 0 and taken + more < least:
            if open_rows == 0:
                return 1
            for u in range(rows):
                if met[u] == 0 and (row < 0 or left[u] < left[row]):
                    row = u
            if left[row] == 0:
                row = -1
        if row >= 0:
            x = -1
            for e in range(first[row], first[row + 1]):
                if free[of_row[e]] and (x < 0 or load[of_row[e]] > load[x]):
                    x = of_row[e]
            path[depth], with_it[depth] = x, True
            depth += 1
            taken += 1
            free[x] = False
            having[load[x]] -= 1
            for e in range(start[x], start[x + 1]):
                u = of_column[e]
                left[u] -= 1
                met[u] += 1
                if met[u] == 1:
                    open_rows -= 1
                    for f in range(first[u], first[u + 1]):
                        z = of_row[f]
                        if free[z]:
                            having[load[z]] -= 1
                            having[load[z] - 1] += 1
                        load[z] -= 1
            continue
        while depth > 0 and not with_it[depth - 1]:
            depth -= 1
            x = path[depth]
            free[x] = True
            having[load[x]] += 1
            for e in range(start[x], start[x + 1]):
                left[of_column[e]] += 1
        if depth == 0:
            return 0
        x = path[depth - 1]
        with_it[depth - 1] = False
        taken -= 1
        for e in range(start[x], start[x + 1]):
            u = of_column[e]
            met[u] -= 1
            if met[u] == 0:
                open_rows += 1
                for f in range(first[u], first[u + 1]):
                    z = of_row[f]
                    if free[z]:
                        having[load[z]] -= 1
                        having[load[z] + 1] += 1
                    load[z] += 1
    return -1
