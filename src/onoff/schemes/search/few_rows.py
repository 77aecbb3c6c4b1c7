"""The optimum for few rows over many sources: one small linear program, exact and certified.

Setting
    M rows, at most 8, over any number of sources
    G        a block: a set of rows that take the same source;   pi   a partition of the rows into blocks

Whatever the rows take together, they fall into blocks, and the query has one source for each block. So a coupling is

    w_pi >= 0     how often the rows fall into the blocks of pi
    b_G(x) >= 0   how often G is a block and takes x

    minimise  sum of w_pi |pi|   subject to   sum of b_G(x) over G that hold u  =  p_u(x)      for every u and x
                                              sum of b_G(x) over x  =  sum of w_pi over pi that hold G

and every solution is one: within a partition the blocks take their sources in any way that has the right marginals
(if two take the same, the better). There are 2**M N + Bell(M) unknowns, however large N is; the Hall program, whose
trouble is the 2**N sets of sources, is left to rows that are many.

The dual is phi_u(x), with  sum over blocks of (max over x of the sum of phi_u(x) over u in G)  <=  |pi|  for every pi;
sum of phi_u(x) p_u(x) is then a lower bound, kept as a `RowCertificate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from onoff.errors import OnOffError
from onoff.model.rows import Floats, Rows
from onoff.schemes.search.exact import Sets
from onoff.schemes.search.master import NEGLIGIBLE, SOLVER_TOLERANCE
from onoff.schemes.search.portfolio import Board, IsOver, Problem
from onoff.schemes.search.proofs import from_coupling

Block = tuple[int, ...]


class FewRows:
    """The optimum of few rows over many columns, by one linear program.

    most_rows: eight rows have 4140 partitions, nine 21,147. most_unknowns: some seconds for the solver.
    fewest_columns: with fewer the master program is as quick; and to look ahead, for which its cuts are of use.
    """

    share = np.inf

    def __init__(
        self, *, most_rows: int = 8, most_unknowns: int = 16_000, fewest_columns: tuple[int, int] = (15, 26)
    ) -> None:
        self.most_rows, self.most_unknowns, self.fewest_columns = most_rows, most_unknowns, fewest_columns

    def applies(self, problem: Problem) -> bool:
        """Where the program is small enough."""
        few = problem.distinct <= self.most_rows and problem.size >= self.fewest_columns[problem.looks_ahead]
        return bool(few and 2**problem.distinct * problem.size <= self.most_unknowns)

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """One table, and its proof."""
        sets, masses, phi = solve(problem.rows)
        board.add(sets)
        board.propose(sets, masses)
        if not board.met:
            board.prove(from_coupling(phi))
        yield


def solve(rows: Rows) -> tuple[Sets, Floats, Floats]:
    """Optimal sets of columns, their masses, and the dual phi of shape (rows, columns)."""
    p = rows.probabilities()
    p[p < NEGLIGIBLE] = 0.0  # left to the rebuild; so small numbers make the solver inaccurate
    p /= p.sum(axis=1, keepdims=True)
    m, n = p.shape
    blocks = [tuple(u for u in range(m) if mask >> u & 1) for mask in range(1, 1 << m)]
    place = {block: at for at, block in enumerate(blocks)}
    taking = [
        (g, x) for g, block in enumerate(blocks) for x in np.flatnonzero((p[list(block)] > 0).all(axis=0)).tolist()
    ]
    parts = list(partitions(range(m)))

    row = [u * n + x for g, x in taking for u in blocks[g]] + [m * n + g for g, _ in taking]
    column = [at for at, (g, _) in enumerate(taking) for _ in blocks[g]] + list(range(len(taking)))
    value = [1.0] * len(row)
    for at, part in enumerate(parts):
        row += [m * n + place[block] for block in part]
        column += [len(taking) + at] * len(part)
        value += [-1.0] * len(part)
    cost = np.concatenate([np.zeros(len(taking)), [float(len(part)) for part in parts]])
    wanted = np.concatenate([p.ravel(), np.zeros(len(blocks))])
    solution, dual = _minimise(cost, row, column, value, wanted)

    taken = np.zeros((len(blocks), n))
    for (g, x), mass in zip(taking, solution, strict=False):
        taken[g, x] = max(mass, 0.0)
    sets, masses = _coupled(taken, parts, place, np.maximum(solution[len(taking) :], 0.0))
    phi = np.where(p > 0, dual[: m * n].reshape(m, n), -2.0 * m)  # no row takes what it cannot: as expensive as need be
    return sets, masses, phi


def partitions(rows: Sequence[int]) -> Iterator[tuple[Block, ...]]:
    """Every partition of `rows` into blocks.

    >>> len(list(partitions(range(4))))
    15
    """
    if not rows:
        yield ()
        return
    first, *others = rows
    for part in partitions(others):
        yield ((first,), *part)
        for at, block in enumerate(part):
            yield (*part[:at], (first, *block), *part[at + 1 :])


def _minimise(
    cost: Floats, row: list[int], column: list[int], value: list[float], wanted: Floats
) -> tuple[Floats, Floats]:
    """The solution and the duals of: minimise cost x, A x = wanted, x >= 0."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    matrix: Any = coo_array((value, (row, column)), shape=(len(wanted), len(cost))).tocsr()
    tight = {"primal_feasibility_tolerance": SOLVER_TOLERANCE, "dual_feasibility_tolerance": SOLVER_TOLERANCE}
    attempts: list[Any] = [tight, {**tight, "presolve": False}, {"presolve": False}]
    for options in attempts:
        solved = linprog(cost, A_eq=matrix, b_eq=wanted, method="highs-ds", options=options)
        if solved.x is not None:
            break
    else:
        raise OnOffError(
            f"HiGHS could not solve the program of blocks: {solved.message}", hint="use the scheme 'greedy'"
        )
    return np.asarray(solved.x, dtype=np.float64), np.asarray(solved.eqlin.marginals, dtype=np.float64)


def _coupled(
    taken: Floats, parts: list[tuple[Block, ...]], place: dict[Block, int], shares: Floats
) -> tuple[Sets, Floats]:
    """Sets and masses: each partition takes the next stretch of what its blocks take, side by side."""
    ends = np.cumsum(taken, axis=1)
    used = np.zeros(len(taken))  # how far the partitions before have come in each block
    sets, masses = [], []
    for part, share in zip(parts, shares.tolist(), strict=True):
        if share <= 0:
            continue
        at = [place[block] for block in part]
        inner = [ends[g] - used[g] for g in at]
        cuts = np.unique(np.clip(np.concatenate([[0.0, share], *inner]), 0.0, share))
        for low, high in pairwise(cuts.tolist()):
            chosen = np.zeros(taken.shape[1], dtype=bool)
            for g in at:
                x = int(np.searchsorted(ends[g], used[g] + (low + high) / 2, side="right"))
                chosen[min(x, taken.shape[1] - 1)] = True
            sets.append(chosen)
            masses.append(high - low)
        used[at] += share
    return np.array(sets), np.array(masses)
