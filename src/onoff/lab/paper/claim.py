"""A claim of the paper, and the result of checking it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from onoff.errors import InvalidTable
from onoff.model.rows import UNIT, Floats, Rows

PRINTED = 1e-12
"""How far a number may be from a printed decimal: the roundings of the chain to units and of the sums to floats."""

PROGRAM = 1e-9
"""How far the cost of a table proposed by a linear program may be: HiGHS meets its constraints to 1e-10."""


@dataclass(frozen=True)
class Item:
    """One line of the reproduction: what the paper says (or must be corrected to), and what was computed."""

    item: str
    expected: Any
    got: Any
    ok: bool

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers, lists and text."""
        return asdict(self)


@dataclass(frozen=True)
class Claim:
    """A named check that has not run yet."""

    item: str
    check: Callable[[], tuple[Any, Any, bool]]

    def run(self) -> Item:
        """Compute, compare, report."""
        expected, got, ok = self.check()
        return Item(self.item, expected, got, ok)


class Claims:
    """The claims of one module, in the order in which they stand there."""

    def __init__(self) -> None:
        self.listed: list[Claim] = []

    def add(
        self, item: str, *arguments: Any
    ) -> Callable[[Callable[..., tuple[Any, Any, bool]]], Callable[..., tuple[Any, Any, bool]]]:
        """Register the decorated check, called with `arguments`, under this name."""

        def register(check: Callable[..., tuple[Any, Any, bool]]) -> Callable[..., tuple[Any, Any, bool]]:
            self.listed.append(Claim(item, lambda: check(*arguments)))
            return check

        return register


def same(expected: Any, got: Any, tolerance: float = PRINTED) -> tuple[Any, Any, bool]:
    """Both, and whether they agree: numbers to `tolerance`, anything else exactly, collections element by element."""
    return expected, got, _agree(expected, got, tolerance)


def wrong_and_right(printed: Any, corrected: Any, measured: Any, tolerance: float = PRINTED) -> tuple[Any, Any, bool]:
    """An erratum: what is printed must differ from what was measured, what it is corrected to must not."""
    ok = _agree(corrected, measured, tolerance) and not _agree(printed, measured, tolerance)
    return {"printed": printed, "corrected": corrected}, measured, ok


def _agree(expected: Any, got: Any, tolerance: float) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and expected.keys() == got.keys()
            and all(_agree(value, got[key], tolerance) for key, value in expected.items())
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(expected) == len(got)
            and all(_agree(a, b, tolerance) for a, b in zip(expected, got, strict=True))
        )
    if isinstance(expected, bool | str) or expected is None:
        return type(expected) is type(got) and bool(expected == got)
    return isinstance(got, int | float) and not isinstance(got, bool) and abs(expected - got) <= tolerance


# What the paper prints ("ON-OFF Privacy in the Presence of Correlation", Ye, Naim, El Rouayheb), and nothing
# computed. Sources are numbered from 0 here.

EXAMPLE_ALPHA = EXAMPLE_BETA = 0.2
"""The chain of the introduction: two sources, left with this probability each."""

TABLE_1: dict[tuple[int, int], dict[tuple[int, ...], float]] = {
    (0, 0): {(0,): 0.25, (0, 1): 0.75},
    (0, 1): {(1,): 1.0},
    (1, 0): {(0,): 1.0},
    (1, 1): {(1,): 0.25, (0, 1): 0.75},
}
"""Table 1: p(q_1 | x_0, x_1) by (x_0, x_1); what is not listed is 0."""

RATE_1 = 0.625
"""The introduction: R_1 = 1 / (2 - alpha - beta)."""

THREE_BY_THREE = ((0.1, 0.3, 0.6), (0.5, 0.4, 0.1), (0.2, 0.5, 0.3))
"""The transition matrix of the example in Section V-A."""

ORDERING = ((0, 0, 1), (2, 1, 2), (1, 2, 0))
"""Table 5: the source x_0 with the i-th smallest p(x_1 = j | x_0), by i and j."""
LAMBDAS = (0.5, 0.9, 1.6)
THETAS = (0.5, 0.4, 0.1)
EXAMPLE_COST = 1.6

TABLE_4: dict[tuple[int, int], dict[tuple[int, ...], str]] = {
    (0, 0): {(0,): "0.1"},
    (0, 1): {(1,): "0.3"},
    (0, 2): {(2,): "0.1", (0, 2): "0.3", (1, 2): "0.1", (0, 1, 2): "0.1"},
    (1, 0): {(0,): "0.1", (0, 2): "0.3", (0, 1, 2): "0.1"},
    (1, 1): {(1,): "0.3", (1, 2): "0.1"},
    (1, 2): {(2,): "0.1"},
    (2, 0): {(0,): "0.1", (0, 2): "0.1"},
    (2, 1): {(1,): "0.3", (1, 2): "0.1", (0, 1, 2): "0.1"},
    (2, 2): {(2,): "0.1", (0, 2): "0.2"},
}
"""Table 4: p(q_1, x_1 | x_0) by (x_0, x_1), as decimals; what is not listed is 0."""

_CURVES = {
    "1": "0.5" + " 1" * 20,
    "0.7": """
        0.5 0.769230769230769 0.91743119266055 0.973709834469328 0.991965082829084
        0.997575890585876 0.999271531053862 0.999781347819232 0.99993439430439 0.999980317387413
        0.999994095134868 0.999998228533138 0.999999468559282 0.999999840567725 0.999999952170312
        0.999999985651093 0.999999995695328 0.999999998708598 0.999999999612579 0.999999999883774
        0.999999999965132
    """,
    "0.4": """
        0.5 0.625 0.735294117647059 0.822368421052631 0.885269121813031
        0.927850356294537 0.955423749541397 0.972768702061958 0.98348129088135 0.990022850677816
        0.993989724239196 0.996385144031034 0.997827945753317 0.998695634190672 0.999216971972409
        0.999530035985447 0.99971796857342 0.999830762051884 0.999898450356709 0.999939067738966
        0.9999634397523
    """,
    "0.2": """
        0.5 0.555555555555556 0.609756097560976 0.661375661375661 0.709421112372304
        0.753193540612196 0.792302621570914 0.82664084901967 0.856331426842715 0.881664935499932
        0.903037126829805 0.920895664738407 0.9356992379835 0.947889238046222 0.957872329434476
        0.966011492215792 0.972623093734289 0.977977895569679 0.982304377486352 0.985793222434495
        0.988602192725058
    """,
}
RATE_CURVES = {total: tuple(float(rate) for rate in rates.split()) for total, rates in _CURVES.items()}
"""Figure 4: the rate R_t for t - tau = 0, ..., 20, by alpha + beta."""


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
