"""The paper's linear programs as it prints them: every subset is a possible query, or those of sizes 1, ..., c and N.

Setting
    q           every subset of the sources that can be reached (or those of the sizes allowed)
    p(q, x|u)   an unknown for every query, every x in it and every row u;  p(q) one for every query

    minimise  sum of p(q) |q|   subject to   sum of p(q, x|u) over q that hold x  =  p(x|u)    for every u and x
                                             sum of p(q, x|u) over x in q         =  p(q)      for every q and u

1. List the sets, write the program down, and let HiGHS solve it, to 1e-10.
2. Rebuild in integers: the table is exact whatever HiGHS said.
3. The duals w_u(x) of the first lines, as integers, prove a lower bound: where the sum over u of the largest w_u(x) in
   q is at most |q| for every listed q, no table costs less than the sum of w_u(x) p(x|u). Every listed q is looked at,
   and w lowered by what is missing.

Without `c` the optimum of all tables, for up to 10 rows over 10 sources; with `c` the optimum of the paper's restricted
program. `optimal` finds the same for any number of sources without listing the sets; the two share nothing but the
rebuild, so that each is a check of the other.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from onoff.errors import InvalidInput, OnOffError
from onoff.model.bounds import simplest
from onoff.model.certificate import SCALE
from onoff.model.rows import UNIT, Floats, Rows
from onoff.schemes.search import proofs
from onoff.schemes.search.exact import Sets, rebuild_sets
from onoff.schemes.search.master import NEGLIGIBLE, SOLVER_TOLERANCE
from onoff.tables.table import QueryTable

NAME = "enumerated"
MOST_UNKNOWNS = 2**16
"""Unknowns p(q, x|u) at most: 10 rows and all subsets of 10 sources have 51200."""


def build(rows: Rows, *, c: int | None = None) -> QueryTable:
    """The cheapest table whose queries have sizes 1, ..., c or "everything possible"; without c, of any sizes.

    Raises InvalidInput where that is too many sets to list.
    """
    sets = _listed(rows.distinct, len(rows.columns), c)
    masses, w = _solve(rows, sets)
    used = np.flatnonzero(masses > 0)
    table = rebuild_sets(rows, sets[used], masses[used], scheme=NAME)
    details = {"sets": len(sets), "unknowns": rows.distinct * int(sets.sum())}
    if len(sets) < 2 ** len(rows.columns) - 1:  # w proves a bound for tables of these sizes only
        return table.labelled(details={**details, "restricted_bound": _restricted_bound(rows, w, sets)})
    found = proofs.best(rows, [simplest(rows), proofs.from_coupling(w)])
    return table.labelled(certificate=found, details=details)


def _restricted_bound(rows: Rows, w: Floats, sets: Sets) -> float:
    """What w proves for tables whose queries are among `sets`: every one of them is looked at, in integers."""
    units = np.floor(w * SCALE).astype(np.int64)
    never = -(2**62) // (2 * len(units))
    excess = sum(np.where(sets, line, never).max(axis=1) for line in units) - SCALE * sets.sum(axis=1)
    total = sum(
        f * p
        for line, row in zip(units.tolist(), rows.weights.tolist(), strict=True)
        for f, p in zip(line, row, strict=True)
    )
    return float(Fraction(total - max(int(excess.max()), 0) * UNIT, SCALE * UNIT))


def _listed(rows: int, reach: int, c: int | None) -> Sets:
    """All sets of 1, ..., c and of `reach` columns, as truth values."""
    if c is not None and (isinstance(c, bool) or not isinstance(c, int | np.integer) or c < 1):
        raise InvalidInput(f"c = {c!r} is not a size of queries", hint="give a whole number from 1 on")
    largest = reach if c is None else min(int(c), reach)
    sizes = [*range(1, largest + 1), *([reach] if largest < reach else [])]
    count = sum(comb(reach, size) for size in sizes)
    unknowns = rows * sum(size * comb(reach, size) for size in sizes)
    if unknowns > MOST_UNKNOWNS:
        raise InvalidInput(
            f"{count} sets of {reach} sources for {rows} rows are {unknowns} unknowns; {MOST_UNKNOWNS} is the most",
            hint="use the scheme 'optimal'" + (" or a small c" if largest > 1 else ""),
        )
    listed = np.zeros((count, reach), dtype=bool)
    chosen = (members for size in sizes for members in combinations(range(reach), size))
    for line, members in zip(listed, chosen, strict=True):
        line[list(members)] = True
    return listed


def _solve(rows: Rows, sets: Sets) -> tuple[Floats, Floats]:
    """The masses p(q), and the duals w_u(x) of the rows."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    p = rows.probabilities()
    p[p < NEGLIGIBLE] = 0.0
    p /= p.sum(axis=1, keepdims=True)
    m, n = p.shape
    k = len(sets)
    query, source = np.nonzero(sets)
    u, at = np.nonzero(p[:, source])  # the unknowns: row u takes source[at] while it asks for query[at]
    unknown, line = np.arange(len(u)), m * n + u * k + query[at]
    masses = len(u) + np.arange(m * k) % k
    entries = (
        np.concatenate([np.ones(2 * len(u)), -np.ones(m * k)]),
        (
            np.concatenate([u * n + source[at], line, m * n + np.arange(m * k)]),
            np.concatenate([unknown, unknown, masses]),
        ),
    )
    matrix: Any = coo_array(entries, shape=(m * (n + k), len(u) + k)).tocsr()
    cost = np.concatenate([np.zeros(len(u)), sets.sum(axis=1)])
    wanted = np.concatenate([p.ravel(), np.zeros(m * k)])
    tight: Any = {"primal_feasibility_tolerance": SOLVER_TOLERANCE, "dual_feasibility_tolerance": SOLVER_TOLERANCE}
    for method in ("highs-ipm", "highs-ds"):  # the first is the quicker one
        solved: Any = linprog(cost, A_eq=matrix, b_eq=wanted, method=method, options=tight)
        if solved.status == 0:
            break
    else:
        raise OnOffError(f"HiGHS could not solve the program: {solved.message}", hint="use the scheme 'optimal'")
    w = np.asarray(solved.eqlin.marginals[: m * n], dtype=np.float64).reshape(m, n)
    never = -np.abs(w).max(axis=1).sum() - n  # what a row cannot take proves nothing, however expensive it is
    return np.asarray(solved.x[len(u) :], dtype=np.float64), np.where(p > 0, w, never)
