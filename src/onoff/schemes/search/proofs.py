"""Certificates from the duals of a search: floats in, integers out. `check_certificate` decides what they prove.

from_tree      the duals of the Hall program, and the tree of `branching` that bounds what any set gains by them
from_coupling  the duals of a program over couplings of rows
from_supports  no duals: how many sources it takes to meet the support of every row
best           the first of some certificates that the checker accepts, by what they claim

Rounding. Each y is rounded down to units, so that no inequality is missed but for t; then t is lowered by the most that
any leaf of the tree still misses, in integers. Whatever the floats were, the result holds.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onoff.errors import InvalidTable
from onoff.model.certificate import (
    LEAF,
    SCALE,
    Certificate,
    HittingBound,
    RowCertificate,
    SetCertificate,
    SimpleBound,
    no_fewer_than,
)
from onoff.model.checker import check_certificate, leaf_bound, row_excess
from onoff.model.rows import Floats, Rows
from onoff.schemes.search.branching import Tree
from onoff.schemes.search.pricing import Duals

LARGEST = 2**50
"""The largest dual of a coupling: the sums over a thousand rows fit in 64 bits."""


def from_duals(rows: Rows, duals: Duals, most: float) -> SetCertificate:
    """For few sources, where no tree is needed: t lowered by `most`, the largest gain of any set."""
    units = np.floor(duals.y * SCALE).astype(np.int64)
    kept = np.flatnonzero(units)
    sets = tuple(tuple(rows.columns[duals.inside[a]].tolist()) for a in kept)
    lost = len(units)  # each y lost less than one unit, and t - sum y must not exceed what it was
    t = int(np.floor((duals.t - max(most, 0.0)) * SCALE)) - lost
    return SetCertificate(t, sets, tuple(units[kept].tolist()))


def from_tree(rows: Rows, duals: Duals, tree: Tree) -> SetCertificate:
    """The certificate of duals whose gains `tree` has bounded."""
    y = np.floor(duals.y * SCALE).astype(np.int64)
    kept = np.flatnonzero(y)
    y, inside = y[kept], duals.inside[kept]
    place = {int(a): at for at, a in enumerate(kept)}
    t = int(np.floor(duals.t * SCALE))
    worst, leaves = 0, []
    for leaf in tree.leaves:
        w = np.clip(np.floor(leaf.w[kept] * SCALE), 0, y).astype(np.int64)
        if leaf.free.any() or leaf.taken.any():
            worst = max(worst, leaf_bound(t, y, w, inside, leaf.free, leaf.taken, SCALE))
        leaves.append(tuple((place[int(kept[a])], int(w[a])) for a in np.flatnonzero(w)))
    sets = tuple(tuple(rows.columns[line].tolist()) for line in inside)
    nodes = tuple(LEAF if x == LEAF else int(rows.columns[x]) for x in tree.nodes)
    return SetCertificate(t - worst, sets, tuple(y.tolist()), nodes, tuple(leaves))


def from_coupling(phi: Floats) -> RowCertificate:
    """The duals of a coupling of all rows, lowered alike in every row until (**) holds."""
    units = np.clip(np.floor(phi * SCALE), -LARGEST, LARGEST).astype(np.int64)
    less = -(-max(row_excess(units, SCALE), 0) // len(units))
    return RowCertificate(tuple(range(len(units))), tuple(map(tuple, (units - less).tolist())))


def from_supports(rows: Rows, most_steps: int) -> HittingBound:
    """The largest number of sources that so many steps prove to be needed for the supports."""
    supports = rows.weights > 0
    least = 1
    while no_fewer_than(supports, least + 1, most_steps):
        least += 1
    return HittingBound(least)


def best(rows: Rows, certificates: Iterable[Certificate]) -> Certificate:
    """The certificate with the largest bound that the checker accepts; the outer bound where it accepts none.

    >>> best(Rows.of([[0.5, 0.5], [0.25, 0.75]]), [SetCertificate(5 * SCALE, (), ())]).name
    'outer'
    """
    accepted: list[tuple[object, int, Certificate]] = []
    for at, certificate in enumerate((*certificates, SimpleBound("outer"))):
        try:
            accepted.append((check_certificate(rows, certificate), -at, certificate))
        except InvalidTable:
            continue
    return max(accepted, key=lambda one: one[:2])[2]
