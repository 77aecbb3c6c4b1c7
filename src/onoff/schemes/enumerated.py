"""The paper's linear programs: every subset is a possible query, or those of sizes 1, ..., c and N.

Setting
    S, m_S   every subset of the sources that can be reached (or those of the sizes allowed), and its mass
    low(A)   the smallest p(A|u) over the rows u

The paper's program has a variable p(q, x|u) for every query, source and row. The masses alone are enough: rows can
follow them if and only if no set of sources is left with too little (Hall), which in terms of the complement A is

    minimise  sum of m_S |S|   subject to   sum of m_S over S inside A  <=  low(A)  for every A,   sum of m_S = 1

1. List the sets. Solve; for every row a maximum flow finds the inequality that it violates most; add these; repeat
   until every row can follow. HiGHS proposes the masses, to 1e-10.
2. Rebuild in integers: the table is exact whatever HiGHS said.
3. The duals y_A, rounded down to integers, prove a lower bound: with t = min over S of |S| + sum of y_A over A that
   contain S, found by looking at every S, no table costs less than t - sum of y_A low(A).

Without `c` the optimum of all tables, for up to 12 sources; with `c` the optimum of the paper's restricted program.
`optimal` does the same for any number of sources without listing the sets.
"""

from __future__ import annotations

from itertools import combinations
from math import comb, inf

import numpy as np

from onoff.errors import InvalidInput, OnOffError
from onoff.rows import Rows
from onoff.schemes.certificate import SCALE, Certificate
from onoff.schemes.hall import NOTICED, HallProgram, Sets
from onoff.schemes.rebuild import rebuild
from onoff.table import QueryTable

NAME = "enumerated"
MOST_SETS = 2**12
"""Sets that are listed at most: all subsets of 12 sources."""


def build(rows: Rows, *, c: int | None = None) -> QueryTable:
    """The cheapest table whose queries have sizes 1, ..., c or "everything possible"; without c, of any sizes.

    Raises InvalidInput where that is too many sets to list.
    """
    sets = _listed(len(rows.columns), c)
    program = HallProgram(rows)
    program.add_sets(sets)
    one = np.eye(program.size, dtype=bool)
    program.add_cuts(np.vstack([one, ~one]))
    rounds = 0
    while True:
        if not program.solve(inf):
            raise OnOffError("HiGHS found no masses for the listed sets", hint="use the scheme 'optimal' or 'greedy'")
        rounds += 1
        missing, violated = program.short_rows()
        if not program.add_cuts(violated[missing > NOTICED]):
            break
    used = np.flatnonzero(program.masses)
    table = rebuild(rows, [rows.columns[s].tolist() for s in sets[used]], program.masses[used], scheme=NAME)
    proof = _proof(rows, program)
    bound = min(float(proof.bound(rows)), table.cost)
    details = {"sets": len(sets), "cuts": len(program.cuts), "rounds": rounds, "certificate": proof}
    if len(sets) < 2**program.size - 1:  # a bound for tables of these sizes only
        return table.labelled(details={**details, "restricted_bound": bound})
    return table.labelled(lower_bound=bound, details=details)


def _listed(reach: int, c: int | None) -> Sets:
    """All sets of 1, ..., c and of `reach` columns, as truth values."""
    if c is not None and (isinstance(c, bool) or not isinstance(c, int | np.integer) or c < 1):
        raise InvalidInput(f"c = {c!r} is not a size of queries", hint="give a whole number from 1 on")
    largest = reach if c is None else min(int(c), reach)
    sizes = [*range(1, largest + 1), *([reach] if largest < reach else [])]
    count = sum(comb(reach, size) for size in sizes)
    if count > MOST_SETS:
        raise InvalidInput(
            f"{count} sets of {reach} sources are too many to list; {MOST_SETS} is the most",
            hint="use the scheme 'optimal'" + (" or a small c" if largest > 1 else ""),
        )
    listed = np.zeros((count, reach), dtype=bool)
    chosen = (members for size in sizes for members in combinations(range(reach), size))
    for line, members in zip(listed, chosen, strict=True):
        line[list(members)] = True
    return listed


def _proof(rows: Rows, program: HallProgram) -> Certificate:
    """The bound that the duals prove for tables made of the listed sets, in integers."""
    y = np.floor(program.y * SCALE).astype(np.int64)
    used = y > 0
    inside = ~program.cuts[: len(y)][used]
    contained = (program.sets.astype(np.int64) @ (~inside).astype(np.int64).T) == 0
    t = int((program.sets.sum(axis=1) * SCALE + contained.astype(np.int64) @ y[used]).min())
    return Certificate(t, tuple(tuple(rows.columns[a].tolist()) for a in inside), tuple(y[used].tolist()))
