"""The paper's linear program (Section VI) in full, for as few sources as tell something: how wide the optimum is."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from onoff.errors import InvalidTable
from onoff.model.rows import UNIT, Floats, Rows


def range_of_optimal_tables(rows: Rows, cost: float) -> list[tuple[float, float]]:
    """The least and the largest value of every p(q, x | u), over all private, decodable tables of this cost.

    Raises InvalidTable where there is no table of this cost, or the program was not solved.
    """
    sizes, equations, sides = _program(rows)
    equations = np.vstack([equations, sizes])
    sides = np.append(sides, cost)
    ranges = []
    for cell in np.eye(len(sizes)):
        least, most = (_least(sign * cell, equations, sides) for sign in (1, -1))
        ranges.append((least, -most))
    return ranges


def _least(costs: Floats, equations: Floats, sides: Floats) -> float:
    from scipy.optimize import linprog

    found = linprog(costs, A_eq=equations, b_eq=sides)
    if not found.success or found.fun is None:  # a failure must not look like a range of no width
        raise InvalidTable(f"no table of cost {sides[-1]:g}: {found.message}", hint="give a cost that is reached")
    return float(found.fun)


def _program(rows: Rows) -> tuple[Floats, Floats, Floats]:
    """Variables p(q, x | u), x in q: their cost (|q| as the first u sees it), and equations with right sides."""
    sources = range(rows.n)
    queries = [q for size in range(1, rows.n + 1) for q in combinations(sources, size)]
    variables = [(u, q, x) for u in range(rows.m) for q in queries for x in q]
    lines: list[list[float]] = []
    sides: list[float] = []
    for u in range(rows.m):
        for x in sources:  # the rows are met
            lines.append([float(v[0] == u and v[2] == x) for v in variables])
            sides.append(rows.weight(u, x) / UNIT)
        for q in queries if u else ():  # p(q | u) is the same as for the first u
            lines.append([float(v[1] == q) * ((v[0] == u) - (v[0] == 0)) for v in variables])
            sides.append(0.0)
    cost = np.array([float(len(q)) if u == 0 else 0.0 for u, q, _ in variables])
    return cost, np.array(lines), np.array(sides)
