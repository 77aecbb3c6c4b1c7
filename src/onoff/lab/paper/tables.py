"""The tables and worked examples of the paper: the introduction, Table 3 for two sources, the 3x3 example.

Tables 1 and 4 are compared cell by cell with what Algorithm 1 makes by its deterministic specification; that the
printed Table 4 is itself a private, decodable table is decided in integers, in tenths as it is printed.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, Self

from onoff.audit.exact import audit_exact
from onoff.lab.paper import claim
from onoff.lab.paper.claim import Claims, range_of_optimal_tables, same
from onoff.model.bounds import bounds, outer_bound_2, two_source_cost
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.model.rows import UNIT
from onoff.schemes import design
from onoff.schemes.greedy import atoms
from onoff.session import Query
from onoff.session.session import Entropy, SystemEntropy, start
from onoff.tables.table import QueryTable

# Table 3 swaps in its caption when it is to be used, and its sub-captions say "t even / odd" where t - tau is meant.
# Both readings are here: the corrected one, and the printed ones to show what they do.

BOTH = (0, 1)


def two_source_chain(alpha: float, beta: float) -> MarkovChain:
    """The chain that leaves source 0 with probability alpha and source 1 with probability beta."""
    return MarkovChain([[1 - alpha, alpha], [beta, 1 - beta]])


def alone(chain: MarkovChain, case: str, x_tau: int, x: int) -> Fraction:
    """Table 3: the probability of asking for x alone, given x_tau and x, when the table applies."""
    p = chain.rows()
    stay = [p.weight(u, u) for u in BOTH]
    leave = [p.weight(u, 1 - u) for u in BOTH]
    if case == "a":
        return Fraction(leave[1 - x], stay[x]) if x == x_tau else Fraction(1)
    if case == "b":
        return Fraction(stay[x], leave[1 - x]) if x == x_tau else Fraction(1)
    return Fraction(stay[x], leave[1 - x]) if x != x_tau else Fraction(1)


@dataclass
class TableThree:
    """A user who follows Table 3.

    printed_caption: use the table after a query for one message, as the caption says, instead of after one for two.
    printed_parity: tell (b) from (c) by t, as the sub-captions say, instead of by t - tau.
    """

    chain: MarkovChain
    printed_caption: bool = False
    printed_parity: bool = False
    time: int = -1
    tau: int = -1
    secret: int = -1
    last: tuple[int, ...] = BOTH
    entropy: Entropy = field(default_factory=SystemEntropy)

    @property
    def state(self) -> Hashable:
        return self.time, self.tau, self.secret, self.last

    def fork(self, entropy: Entropy) -> Self:
        twin = copy.copy(self)
        twin.entropy = entropy
        return twin

    def request(self, source: int | str, *, private: bool) -> Query:
        x = self.chain.index(source)
        self.time += 1
        if private:
            self.tau, self.secret, self.last = self.time, x, BOTH
        else:
            self.last = self._draw(x)
        return Query(self.last, 2)

    def _draw(self, x: int) -> tuple[int, ...]:
        use_table = (len(self.last) == 1) if self.printed_caption else (len(self.last) == 2)
        case = self.case()
        if not use_table or case is None:
            return (x,)
        chance = alone(self.chain, case, self.secret, x)
        weights = (chance.numerator, chance.denominator - chance.numerator)
        return ((x,), BOTH)[self.entropy.choose(weights)]

    def case(self) -> str | None:
        """Which part of the table; None for alpha + beta = 1, which is in no part: the plain request."""
        p = self.chain.rows()
        beta, stay = p.weight(1, 0), p.weight(0, 0)  # alpha + beta < 1 means beta < 1 - alpha
        if beta == stay:
            return None
        if beta < stay:
            return "a"
        return "b" if (self.time if self.printed_parity else self.time - self.tau) % 2 == 0 else "c"


claims = Claims()

EXAMPLE = two_source_chain(claim.EXAMPLE_ALPHA, claim.EXAMPLE_BETA)
SECTION_V_CHAIN = MarkovChain(claim.THREE_BY_THREE)


def show_set(query: tuple[int, ...]) -> str:
    """A query as the paper writes it, sources numbered from 1."""
    return "{" + ",".join(str(x + 1) for x in query) + "}"


def cells(table: QueryTable, *, given_x: bool) -> dict[str, float]:
    """The nonzero p(q, x | u) of a table by "u,x,q"; with `given_x`, p(q | u, x) instead."""
    found: dict[str, float] = {}
    for k, query in enumerate(table.queries):
        block = table.block(k)[table.rows.group]
        for u in range(table.rows.m):
            for i, x in enumerate(query):
                if block[u, i]:
                    total = table.rows.weight(u, x) if given_x else UNIT
                    found[f"{u + 1},{x + 1},{show_set(query)}"] = int(block[u, i]) / total
    return dict(sorted(found.items()))


def printed_cells(table: Mapping[tuple[int, int], Mapping[tuple[int, ...], float | str]]) -> dict[str, float]:
    """A printed table in the form of `cells`."""
    listed = {f"{u + 1},{x + 1},{show_set(q)}": float(p) for (u, x), line in table.items() for q, p in line.items()}
    return dict(sorted(listed.items()))


def masses(table: QueryTable) -> dict[str, float]:
    """p(q) of every query."""
    return {show_set(q): int(mass) / UNIT for q, mass in zip(table.queries, table.mass, strict=True)}


# -- introduction ---------------------------------------------------------------------------------------------


@claims.add("Introduction: a plain request while OFF reveals X_0 (bits, alpha = beta = 0.2)")
def naive_switching() -> tuple[Any, Any, bool]:
    audit = audit_exact(EXAMPLE, "naive", parse("ON OFF"))
    return same(0.278071905112638, audit.leak)  # 1 - h(0.2)


@claims.add("Table 1: p(q_1 | x_0, x_1) at alpha = beta = 0.2")
def table_1() -> tuple[Any, Any, bool]:
    return same(printed_cells(claim.TABLE_1), cells(design(EXAMPLE.rows(), "greedy"), given_x=True))


@claims.add("Table 1: Q_1 is independent of X_0, exactly")
def table_1_is_private() -> tuple[Any, Any, bool]:
    table = design(EXAMPLE.rows(), "greedy")
    table.verify()
    return same({"{1}": 0.2, "{2}": 0.2, "{1,2}": 0.6}, masses(table))


@claims.add("Introduction: R_0 = 1/2 and R_1 = 0.625")
def introduction_rates() -> tuple[Any, Any, bool]:
    audit = audit_exact(EXAMPLE, "greedy", parse("ON OFF"))
    return same([0.5, claim.RATE_1], [1 / step.cost for step in audit.steps])


@claims.add("Introduction: no other probabilities keep both privacy and the rate of Table 1")
def table_1_is_unique() -> tuple[Any, Any, bool]:
    widest = max(high - low for low, high in range_of_optimal_tables(EXAMPLE.rows(), cost=1 / claim.RATE_1))
    return same(0.0, widest, tolerance=1e-7)  # the tolerance of the linear program


# -- Table 3 --------------------------------------------------------------------------------------------------


@claims.add("Table 3 (c): alpha + beta > 1, t - tau odd, equal to the generic scheme", 0.9, 0.6, {1: "c", 3: "c"})
@claims.add("Table 3 (b): alpha + beta > 1, t - tau even, equal to the generic scheme", 0.9, 0.6, {2: "b", 4: "b"})
@claims.add("Table 3 (a): alpha + beta < 1, equal to the generic scheme", 0.2, 0.3, {1: "a", 2: "a", 3: "a"})
def table_3(alpha: float, beta: float, case_at: dict[int, str]) -> tuple[Any, Any, bool]:
    """p(q_t | x_tau, x_t) while every query before was for two messages: the paper's filter and Algorithm 1."""
    chain = two_source_chain(alpha, beta)
    memory = start("bayes-filter", chain).after(BOTH, 0, private=True, table=None)
    expected: dict[str, float] = {}
    got: dict[str, float] = {}
    for since in range(1, max(case_at) + 1):
        table = design(memory.rows, "greedy")
        if since in case_at:
            got.update({f"t-tau={since}: {cell}": p for cell, p in cells(table, given_x=True).items()})
            for u in BOTH:
                for x in BOTH:
                    single = alone(chain, case_at[since], u, x)
                    for query, p in (((x,), single), (BOTH, 1 - single)):
                        if p:
                            expected[f"t-tau={since}: {u + 1},{x + 1},{show_set(query)}"] = float(p)
        memory = memory.after(BOTH, 0, private=False, table=table)
    return same(dict(sorted(expected.items())), dict(sorted(got.items())))


@claims.add("Table 3: the whole scheme is private and has the costs of Theorem 3 (pattern ON OFF*3 ON OFF*2)")
def table_3_scheme() -> tuple[Any, Any, bool]:
    expected, got = [], []
    for alpha, beta in ((0.1, 0.3), (0.9, 0.6), (0.5, 0.5)):
        chain = two_source_chain(alpha, beta)
        audit = audit_exact(chain, "table 3", parse("ON OFF*3 ON OFF*2"), session=partial(TableThree, chain))
        expected.append([0.0, *(two_source_cost(alpha, beta, k) for k in (0, 1, 2, 3, 0, 1, 2))])
        got.append([audit.leak, *(step.cost for step in audit.steps)])
    return same(expected, got)


# -- the 3x3 example ------------------------------------------------------------------------------------------


@claims.add("Table 5: the orderings x_0^(j,i) of the 3x3 example")
def table_5_orderings() -> tuple[Any, Any, bool]:
    expected = [[x + 1 for x in line] for line in claim.ORDERING]
    return same(expected, (atoms(SECTION_V_CHAIN.rows()).order + 1).tolist())


@claims.add("Table 5: lambda = (0.5, 0.9, 1.6)")
def table_5_lambdas() -> tuple[Any, Any, bool]:
    return same(list(claim.LAMBDAS), list(bounds(SECTION_V_CHAIN).lambdas))


@claims.add("Table 5: theta = (0.5, 0.4, 0.1)")
def table_5_thetas() -> tuple[Any, Any, bool]:
    return same(list(claim.THETAS), list(bounds(SECTION_V_CHAIN).thetas))


@claims.add("Table 4: every cell p(q_1, x_1 | x_0), made by the deterministic specification")
def table_4() -> tuple[Any, Any, bool]:
    return same(printed_cells(claim.TABLE_4), cells(design(SECTION_V_CHAIN.rows(), "greedy"), given_x=False))


@claims.add("Table 4: as printed, its block sums are equal in integers (tenths) and its rows are the budget")
def table_4_block_sums() -> tuple[Any, Any, bool]:
    tenths = {(u, x, q): int(10 * Fraction(p)) for (u, x), line in claim.TABLE_4.items() for q, p in line.items()}
    queries = sorted({q for _, _, q in tenths}, key=lambda q: (len(q), q))
    blocks = [[sum(tenths.get((u, x, q), 0) for x in range(3)) for q in queries] for u in range(3)]
    budget = [[sum(tenths.get((u, x, q), 0) for q in queries) for x in range(3)] for u in range(3)]
    decodable = all(x in q for _, x, q in tenths)
    expected = [[[1, 3, 1, 3, 1, 1]] * 3, [[1, 3, 6], [5, 4, 1], [2, 5, 3]], True]
    return same(expected, [blocks, budget, decodable], tolerance=0)


@claims.add("Section V-A: E|Q_1| = 1.6, R_1 = 5/8")
def example_cost() -> tuple[Any, Any, bool]:
    table = design(SECTION_V_CHAIN.rows(), "greedy")
    return same([claim.EXAMPLE_COST, 5 / 8], [table.cost, table.rate])


@claims.add("Section V-A: outer bound 2 is 0.5 + 0.5 + 0.6 = 1.6, so 5/8 is optimal")
def example_outer_bound() -> tuple[Any, Any, bool]:
    return same(claim.EXAMPLE_COST, outer_bound_2(SECTION_V_CHAIN, 1))


@claims.add("Section V-A: asking for everything is always feasible (cost N)")
def everything_is_feasible() -> tuple[Any, Any, bool]:
    table = design(SECTION_V_CHAIN.rows(), "full")
    table.verify()
    return same(3, table.cost)
