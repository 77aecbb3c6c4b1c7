"""The bounds along the tree of queries: both theorems, for whatever scheme and memory."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from onoff.audit.exact import audit_exact, enumerate_branches
from onoff.lab.querytree import bounds_along, query_law
from onoff.model.bounds import outer_bound_2, symmetric_cost, two_source_cost
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.model.rows import UNIT
from onoff.session import Session
from onoff.session.session import TableCache

PAPER = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
MEMORIES = ["last-query", "bayes-filter"]
ROUNDING = 1e-12


def sparse_chain():
    return MarkovChain([[0, 0.5, 0.5, 0], [0.3, 0, 0, 0.7], [0, 0, 0.6, 0.4], [1, 0, 0, 0]], initial=[0.5, 0.5, 0, 0])


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("scheme", ["single", "greedy"])
@pytest.mark.parametrize("pattern", ["ON OFF OFF ON OFF", "OFF ON ON OFF OFF"])
def test_the_cost_is_that_of_the_audit_of_the_real_session(memory, scheme, pattern):
    for chain in (MarkovChain(PAPER, initial=[0.5, 0.2, 0.3]), sparse_chain()):
        audited = audit_exact(chain, scheme, parse(pattern), memory)
        walked = bounds_along(chain, parse(pattern), scheme, memory)
        assert [s.cost for s in walked] == pytest.approx([s.cost for s in audited.steps], abs=ROUNDING)


@pytest.mark.parametrize("chain", [MarkovChain(PAPER), sparse_chain()], ids=["dense", "sparse"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_bound_is_on_its_side(chain, memory):
    for step in bounds_along(chain, parse("ON OFF OFF ON OFF OFF"), "greedy", memory):
        assert step.outer2 <= step.lower + ROUNDING
        assert step.outer2 <= step.outer + ROUNDING
        assert step.outer <= step.inner + ROUNDING
        assert step.outer <= step.cost + ROUNDING
        if memory == "bayes-filter":  # Algorithm 1 for the very rows of Theorem 2
            assert step.cost <= step.inner + ROUNDING


def test_two_sources_meet_theorem_3_at_every_step_of_any_pattern():
    alpha, beta = 0.35, 0.2
    chain = MarkovChain([[1 - alpha, alpha], [beta, 1 - beta]])
    since = -1
    for step in bounds_along(chain, parse("ON OFF*4 ON ON OFF*3"), "greedy"):
        since = 0 if step.private else since + 1
        expected = two_source_cost(alpha, beta, since)
        assert [step.cost, step.inner, step.outer, step.outer2, step.lower] == pytest.approx(
            [expected] * 5, abs=ROUNDING
        )


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.6])
def test_symmetric_chains_are_met_by_algorithm_1(alpha):
    n = 4
    matrix = np.full((n, n), (1 - alpha) / (n - 1)) + np.eye(n) * (alpha - (1 - alpha) / (n - 1))
    for step in bounds_along(MarkovChain(matrix), parse("ON OFF*3"), "greedy"):
        expected = symmetric_cost(n, alpha, step.t)
        assert (step.cost, step.lower) == pytest.approx((expected, expected), abs=ROUNDING)


def test_only_what_is_possible_counts():
    """The printed outer bound 2 says 1.6 here; one possible first request costs 1."""
    chain = MarkovChain(PAPER, initial=[1, 0, 0])
    on, off = bounds_along(chain, parse("ON OFF"), "greedy")
    assert outer_bound_2(chain, 1) == 1.6
    assert (on.cost, off.cost, off.outer, off.outer2, off.inner) == (1, 1, 1, 1, 1)
    forced = bounds_along(chain, parse("ON OFF"), "greedy", everything=True)
    assert (forced[0].cost, forced[0].outer) == (3, 1)
    assert forced[1].outer2 == 1


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_law_of_the_queries_is_a_law_and_has_the_costs_of_the_tree(memory):
    pattern = parse("ON OFF OFF ON OFF")
    law = query_law(sparse_chain(), pattern, "greedy", memory)
    assert sum(law.values()) == 1
    for step in bounds_along(sparse_chain(), pattern, "greedy", memory):
        assert float(sum(weight * len(q[step.t]) for q, weight in law.items())) == pytest.approx(
            step.cost, abs=ROUNDING
        )


def outer_bound_1_by_brute_force(chain, scheme, memory):
    """Theorem 1 at t = 3 for ON OFF OFF OFF: every path and every branch of the real session, then the definition."""
    tables, rows = TableCache(chain, scheme), chain.rows()
    joint: defaultdict[Any, Any] = defaultdict(Fraction)  # p(q_[2], x_0, x_3)
    for path in product(range(chain.n), repeat=4):
        chance = Fraction(chain.initial_rows().weight(0, path[0]), UNIT)
        for before, after in pairwise(path):
            chance *= Fraction(rows.weight(before, after), UNIT)

        def ask(entropy, path=path):
            session = Session(chain, scheme, memory, entropy=entropy, tables=tables)
            return tuple(session.request(x, private=t == 0).sources for t, x in enumerate(path[:3]))

        for branch, queries in enumerate_branches(ask) if chance else ():
            joint[queries, path[0], path[3]] += chance * branch
    total = Fraction(0)
    for q in {key[0] for key in joint}:
        given = {u: sum(joint.get((q, u, x), 0) for x in range(chain.n)) for u in range(chain.n)}
        largest = [max(joint.get((q, u, x), 0) / mass for u, mass in given.items() if mass) for x in range(chain.n)]
        total += sum(given.values()) * sum(largest)
    return float(total)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("scheme", ["single", "greedy"])  # with optimal tables only the set matters, not the belief
def test_outer_bound_1_is_its_definition(scheme, memory):
    for chain in (MarkovChain(PAPER, initial=[0.5, 0.2, 0.3]), sparse_chain()):
        walked = bounds_along(chain, parse("ON OFF*3"), scheme, memory)[3]
        assert walked.outer == pytest.approx(outer_bound_1_by_brute_force(chain, scheme, memory), abs=ROUNDING)
