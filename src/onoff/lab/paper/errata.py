"""What the paper prints wrong, shown wrong and shown right.

Each erratum computes the printed statement, the corrected one, and measures the truth on the real scheme: the printed
value must differ from it and the corrected one must not. Numbers follow the project's list of errata.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable
from typing import Any, Self

import numpy as np

from onoff.audit.exact import audit_exact
from onoff.information import mutual_information
from onoff.lab.paper import claim
from onoff.lab.paper.claim import Claims, same, wrong_and_right
from onoff.lab.paper.tables import EXAMPLE, SECTION_V_CHAIN, TableThree, two_source_chain
from onoff.lab.querytree import bounds_along
from onoff.model.bounds import bounds, lambda_units, outer_bound_2, theta_units
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.schemes.greedy import atoms
from onoff.session import Query
from onoff.session.session import Entropy

claims = Claims()

S = 0.4
"""sum over x_t of min over x_{t-1} of p(x_t | x_{t-1}) for alpha = beta = 0.2."""


def measured_cost(since: int) -> float:
    """What the real scheme costs that long after the last private request, alpha = beta = 0.2."""
    return bounds_along(EXAMPLE, parse(f"ON OFF*{since}"), "greedy")[since].cost


@claims.add("E1: the cost given P(|Q_{t-1}| = 1) counts it once, not twice (alpha = beta = 0.2, t - tau = 2)")
def e1() -> tuple[Any, Any, bool]:
    one, two = S, 1 - S
    return wrong_and_right(one * 2 + two * (2 - S), one * 1 + two * (2 - S), measured_cost(2))


@claims.add("E2: the cost is 1 + (1-s)^(t-tau), not 2 - s (1-s)^(t-1-tau) (t - tau = 3)")
def e2() -> tuple[Any, Any, bool]:
    return wrong_and_right(2 - S * (1 - S) ** 2, 1 + (1 - S) ** 3, measured_cost(3))


@claims.add("E3: the last line of Section VII lacks a 1 + (t - tau = 3)")
def e3() -> tuple[Any, Any, bool]:
    return wrong_and_right((1 - S) ** 3, 1 + (1 - S) ** 3, measured_cost(3))


@claims.add("E4: the caption of Table 3 swaps its two cases: as printed it leaks, corrected it does not")
def e4() -> tuple[Any, Any, bool]:
    pattern = parse("ON OFF OFF OFF")
    as_printed = audit_exact(EXAMPLE, "table 3", pattern, session=lambda: TableThree(EXAMPLE, printed_caption=True))
    corrected = audit_exact(EXAMPLE, "table 3", pattern, session=lambda: TableThree(EXAMPLE))
    return leaks_and_does_not(as_printed.leak, corrected.leak)


@claims.add("E5: (b) and (c) of Table 3 are told apart by t - tau: by t as printed it leaks where tau is odd")
def e5() -> tuple[Any, Any, bool]:
    chain, pattern = two_source_chain(0.9, 0.6), parse("ON ON OFF OFF")
    as_printed = audit_exact(chain, "table 3", pattern, session=lambda: TableThree(chain, printed_parity=True))
    corrected = audit_exact(chain, "table 3", pattern, session=lambda: TableThree(chain))
    return leaks_and_does_not(as_printed.leak, corrected.leak)


@claims.add("E6: delta of the 3x3 example: the printed sums over b_j, a_j give (0.6, 0.4, 0.3), which is no choice")
def e6() -> tuple[Any, Any, bool]:
    below, above = [0.2, 0.4, 0.3], [0.5, 0.5, 0.6]  # p(j | u^(j,2)) and p(j | u^(j,3)), sigma = 2
    # j = 1 already has T = b_1 - a_1 = 0.3 > 1 - 0.9, so delta_1 = 1 - (no b) - (a twice), and delta_k = a_k after it
    literal = [1 - sum(below[0] for _ in (2, 3)), below[1], below[2]]
    found = atoms(SECTION_V_CHAIN.rows())
    expected, got, ok = wrong_and_right(literal, [0.3, 0.4, 0.3], [int(d) / UNIT for d in found.delta])
    return expected, got, ok and sum(int(d) for d in found.delta) == UNIT and literal[0] > above[0]


@claims.add("E7: equal rows have sigma = N and no u^(x,sigma+1): the plain request; in floats lambda_1 > 1 may happen")
def e7() -> tuple[Any, Any, bool]:
    rng = np.random.default_rng(7)
    laws = [rng.dirichlet(np.ones(5)) for _ in range(200)]
    floats_above_one = any(float(np.stack([law] * 5).min(axis=0).sum()) > 1 for law in laws)
    integers_above_one = any(lambda_units(Rows.of([law] * 5))[0] > UNIT for law in laws)
    b, table = bounds([laws[0]] * 5), design([laws[0]] * 5, "greedy")
    expected = {"sigma": 5, "cost": 1.0, "queries of one": True, "floats above 1": True, "integers above 1": False}
    got = {
        "sigma": b.sigma,
        "cost": table.cost,
        "queries of one": all(len(q) == 1 for q in table.queries),
        "floats above 1": floats_above_one,
        "integers above 1": integers_above_one,
    }
    return same(expected, got)


@claims.add("E8: at l = 1 no atoms (the sum of no e_i) would lose the mass lambda_1 = 0.5; one atom ({x}, r) keeps it")
def e8() -> tuple[Any, Any, bool]:
    found = atoms(SECTION_V_CHAIN.rows())
    return wrong_and_right(0.0, 0.5, sum(int(mass) for mass in found.mass[found.size == 1]) / UNIT)


@claims.add("E9: P(|Z| = i) = theta_i is for multisets; as sets Algorithm 1 costs less than the inner bound")
def e9() -> tuple[Any, Any, bool]:
    rows = Rows.of(np.random.default_rng(9).dirichlet(np.ones(6), size=6))
    found, table = atoms(rows), design(rows, "greedy")
    multisets = sum(int(size) * int(mass) for size, mass in zip(found.size, found.mass, strict=True))
    as_sets = sum(len(set(found.multiset(a))) * int(found.mass[a]) for a in range(len(found)))
    inner = sum(i * units for i, units in enumerate(theta_units(lambda_units(rows)), start=1))
    expected, got, ok = wrong_and_right(inner / UNIT, as_sets / UNIT, table.cost)
    return expected, got, ok and multisets == inner and as_sets < inner


@claims.add("E12: outer bound 2 needs every x_tau possible: with pi_0 = (1, 0, 0) it says 1.6, the cost is 1")
def e12() -> tuple[Any, Any, bool]:
    chain = MarkovChain(claim.THREE_BY_THREE, initial=[1, 0, 0])
    off = bounds_along(chain, parse("ON OFF"), "greedy")[1]
    return wrong_and_right(outer_bound_2(chain, 1), outer_bound_2(chain, 1, possible=[0]), off.cost)


@claims.add("E12: a sparse chain with uniform pi_0, ON OFF ON OFF: outer bound 2 says 2, the cost is 1.5")
def e12_sparse() -> tuple[Any, Any, bool]:
    chain = MarkovChain([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]])
    last = bounds_along(chain, parse("ON OFF ON OFF"), "greedy")[-1]
    return wrong_and_right(outer_bound_2(chain, 1), last.outer2, last.cost)


@claims.add(
    "E13: Proposition 1 needs Q_t made from X_tau, X_t, Q_[t-1]: otherwise 0 bits on X_1 and 1 bit on (X_0, X_1)"
)
def e13() -> tuple[Any, Any, bool]:
    coin = two_source_chain(0.5, 0.5)
    audit = audit_exact(coin, "remembers X_0", parse("ON ON OFF"), session=lambda: RemembersTheFirst(coin))
    worlds = [(x0, x1, x2) for x0 in (0, 1) for x1 in (0, 1) for x2 in (0, 1)]
    about_last = mutual_information(Counter((x1, (x2,) if x0 == 0 else (0, 1)) for x0, x1, x2 in worlds))
    return same(
        {"about X_1": 0.0, "about X_0 and X_1": 1.0}, {"about X_1": about_last, "about X_0 and X_1": audit.leak}
    )


@claims.add("E17: R_1 = 1/(2-alpha-beta) holds for alpha + beta <= 1 only; it is 1/(1 + |1-alpha-beta|) (0.9, 0.6)")
def e17() -> tuple[Any, Any, bool]:
    alpha, beta = 0.9, 0.6
    cost = bounds_along(two_source_chain(alpha, beta), parse("ON OFF"), "greedy")[1].cost
    return wrong_and_right(1 / (2 - alpha - beta), 1 / (1 + abs(1 - alpha - beta)), 1 / cost)


class RemembersTheFirst:
    """Erratum 13's counterexample: Q_2 is the plain request or both, by the first private request."""

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        self.first: int | None = None

    @property
    def state(self) -> Hashable:
        return self.first

    def fork(self, entropy: Entropy) -> Self:
        return copy.copy(self)

    def request(self, source: int | str, *, private: bool) -> Query:
        x = self.chain.index(source)
        if self.first is None:
            self.first = x
        return Query((x,) if not private and self.first == 0 else (0, 1), 2)


def leaks_and_does_not(as_printed: float, corrected: float) -> tuple[Any, Any, bool]:
    """More than a tenth of a bit as printed, exactly nothing corrected."""
    got = {"printed leaks (bits)": as_printed, "corrected leaks (bits)": corrected}
    return {"printed leaks (bits)": "> 0.1", "corrected leaks (bits)": 0}, got, as_printed > 0.1 and corrected == 0
