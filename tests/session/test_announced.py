"""What is announced stays hidden until it is made, with all of the past; broken twins are caught."""

from collections import defaultdict
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.support.world import NAMES, P4, Direct, World

import onoff
from onoff.audit.exact import enumerate_branches
from onoff.errors import InvalidInput
from onoff.information import foretell
from onoff.lab import families
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.rows import UNIT
from onoff.session import Session
from onoff.session.memories import Announced

ON, OFF = True, False
Queries = tuple[tuple[int, ...], ...]


def chain_of(n: int, zeros: bool = False) -> MarkovChain:
    matrix = np.random.default_rng(n).dirichlet(np.ones(n), size=n)
    if zeros:
        matrix[np.arange(n), (np.arange(n) + 1) % n] = 0
        matrix /= matrix.sum(axis=1, keepdims=True)
    return MarkovChain(matrix)


def worst(chain: MarkovChain, pattern: tuple[bool, ...], after: int, start: Any = None) -> tuple[Fraction, int]:
    """The largest |P(u, q | h) - P(u | h) P(q | h)| over steps, u = (private requests so far, the announced one).

    What is announced is the request `after` more after the first, by a session that is told it; and the rounding that
    sessions count, in units.
    """
    begun = Session(chain, "optimal") if start is None else start
    law: dict[int, dict[tuple[Any, Queries], Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    counted = 0
    for path in product(range(chain.n), repeat=len(pattern)):
        likely = Fraction(1)
        for t, x in enumerate(path):
            rows = chain.initial_rows() if t == 0 else chain.rows([path[t - 1]])
            likely *= Fraction(rows.weight(0, x), UNIT)
        if not likely:
            continue

        def run(entropy, path=path):
            session, queries, rounding = begun.fork(entropy), [], 0
            for t, (x, private) in enumerate(zip(path, pattern, strict=True)):
                if t == 1:
                    session.announce(path[after + 1], after=after)
                queries.append(session.request(x, private=private).sources)
                rounding = max(rounding, session.memory.rounding)
            return tuple(queries), rounding

        for chance, (queries, rounding) in enumerate_branches(run):
            counted = max(counted, rounding)
            for t in range(1, len(pattern)):
                u = tuple(x for x, private in zip(path[: t + 1], pattern, strict=False) if private)
                law[t][(u, path[after + 1]), queries[: t + 1]] += likely * chance
    largest = Fraction(0)
    for joint in law.values():
        histories: dict[Queries, dict[tuple[Any, Queries], Fraction]] = defaultdict(dict)
        for (u, queries), mass in joint.items():
            histories[queries[:-1]][u, queries] = mass
        for inside in histories.values():
            left: dict[Any, Fraction] = defaultdict(Fraction)
            right: dict[Queries, Fraction] = defaultdict(Fraction)
            for (u, queries), mass in inside.items():
                left[u] += mass
                right[queries] += mass
            whole = sum(left.values())
            for u, queries in product(left, right):
                largest = max(largest, abs(inside.get((u, queries), 0) * whole - left[u] * right[queries]) / whole**2)
    return largest, counted


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("pattern", "after"),
    [((ON, OFF, ON), 1), ((ON, OFF, OFF, ON), 2), ((OFF, OFF, OFF, ON), 2), ((ON, ON, OFF, ON), 2)],
)
def test_past_and_announced_request_are_hidden_but_for_rounding_that_is_counted(pattern, after, zeros):
    deviation, rounding = worst(chain_of(2 if len(pattern) > 3 else 3, zeros and len(pattern) == 3), pattern, after)
    assert deviation <= Fraction(2 * rounding, UNIT) < Fraction(1, 10**12)


def test_a_request_that_is_not_announced_shows_before_it_is_made(monkeypatch):
    monkeypatch.setattr(Session, "announce", lambda self, source, *, after: None)
    assert worst(chain_of(3), (ON, OFF, ON), 1)[0] > 1e-3


def test_rows_that_are_one_request_late_are_caught(monkeypatch):
    right = Announced.after

    def late(self, query, wanted, *, private, table):
        after = right(self, query, wanted, private=private, table=table)
        return Announced(after.inner, after.announced, after.left + 1) if isinstance(after, Announced) else after

    monkeypatch.setattr(Announced, "after", late)
    assert worst(chain_of(2), (ON, OFF, OFF, ON), 2)[0] > 1e-6


@pytest.mark.parametrize(("after", "cost"), [(1, 12.0), (2, 12.0), (4, 12.0), (8, 6.80)])
def test_it_costs_what_it_should_on_a_ring(after, cost):
    ring = MarkovChain(families.ring(12))
    session = Session(ring, "optimal", budget=4.0)
    session.request(0, private=ON)
    session.announce(after % 2, after=after)
    assert session.expected_cost(private=OFF) == pytest.approx(cost, rel=0.03)


def test_made_openly_after_all_it_asks_for_everything():
    chain = chain_of(3)
    session = Session(chain, "optimal")
    session.request(0, private=ON)
    session.announce(2, after=1)
    session.request(1, private=OFF)
    assert session.request(2, private=OFF).everything
    assert not isinstance(session.memory, Announced)


@pytest.mark.parametrize("after", [0, -1, 1001])
def test_after_how_many_requests_is_checked(after):
    with pytest.raises(InvalidInput, match="after"):
        Session(chain_of(3)).announce(0, after=after)


def test_what_the_model_calls_impossible_is_named():
    session = Session(MarkovChain([[0.0, 1.0], [1.0, 0.0]]))
    session.request(0, private=ON)
    with pytest.raises(InvalidInput, match="impossible"):
        session.announce(1, after=1)
    session.announce(0, after=1)
    with pytest.raises(InvalidInput, match="already"):
        session.announce(0, after=1)


@pytest.mark.parametrize("options", [{"leak": 0.5}, {"memory": "bayes-filter"}, {"topics": {"a": [0]}}], ids=str)
def test_a_session_that_cannot_serve_it_says_so(options):
    with pytest.raises(InvalidInput, match="cannot hide"):
        Session(chain_of(3), **options).announce(0, after=1)
    with pytest.raises(InvalidInput, match="cannot hide"):
        Session(RequestModel(np.full((2, 1, 3), 1 / 3), [()])).announce(0, after=1)


def test_a_client_keeps_it_over_a_restart(tmp_path):
    from tests.support.clients import Client

    world, chain = World(), onoff.MarkovChain(P4, names=NAMES)

    def client():
        return Client(
            "http://w", chain, tmp_path / "journal", transport=Direct(world), mirror=False, tick=0, background=False
        )

    with client() as one:
        with pytest.raises(InvalidInput, match="first"):
            one.announce("beta", after=2)
        one.get("alpha", private=ON)
        one.announce("beta", after=2)
        one.get("gamma", private=OFF)
    with client() as one:
        memory = one.core.session.memory
        assert isinstance(memory, Announced)
        assert (memory.announced, memory.left) == (NAMES.index("beta"), 1)
        assert "beta" not in repr(memory)
        one.get("gamma", private=OFF)
        assert one.get("beta", private=ON) == b"first of beta"
        assert not isinstance(one.core.session.memory, Announced)


def test_what_is_foretold_fades():
    chain = MarkovChain(families.sticky(6, np.random.default_rng(0)))
    session = Session(chain)
    session.request(0, private=OFF)
    told = foretell(chain, session.memory.last, 30)  # type: ignore[attr-defined]
    assert told[0].bits > told[1].bits > told[10].bits
    assert told[0].guess > told[-1].guess
    assert told[-1].bits < 0.1
    assert told[0].unknown == pytest.approx(-(chain.stationary() * np.log2(chain.stationary())).sum())
