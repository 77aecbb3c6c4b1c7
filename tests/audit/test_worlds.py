"""The worlds of an enumeration: their law is the law, in whole numbers, and nothing is driven twice."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import pytest
from tests.support.chains import NAMED, P2, P3

from onoff.audit.exact import NaiveSession, SeenHistory, Worlds, enumerate_branches
from onoff.model.patterns import parse
from onoff.model.rows import UNIT
from onoff.session import Session


def after(chain, session, pattern):
    worlds = Worlds.before_the_first_request(chain, session)
    for private in pattern:
        worlds, cost, undecodable = worlds.after(private=private)
        assert not undecodable
    return worlds, cost


def law_by_hand(chain, pattern):
    """(private requests, queries) -> probability, from whole paths and whole sessions: slow and obvious."""
    law: defaultdict[Any, Any] = defaultdict(Fraction)
    start = dict(zip(range(chain.n), chain.initial_rows().weights[0].tolist(), strict=True))
    for path in product(range(chain.n), repeat=len(pattern)):
        chance = Fraction(start[path[0]], UNIT)
        for x, y in pairwise(path):
            sources, units = chain.row_units(x)
            chance *= Fraction(dict(zip(sources.tolist(), units.tolist(), strict=True)).get(y, 0), UNIT)
        if not chance:
            continue

        def whole(entropy, path=path):
            session = Session(chain, "greedy", entropy=entropy)
            return tuple(session.request(x, private=p).sources for x, p in zip(path, pattern, strict=True))

        for branch, queries in enumerate_branches(whole):
            hidden = tuple(x for x, private in zip(path, pattern, strict=True) if private)
            law[hidden, queries] += chance * branch
    return law


@pytest.mark.parametrize("pattern", ["ON", "ON OFF OFF", "OFF ON OFF"])
@pytest.mark.parametrize("name", ["P2", "P3", "two equal rows of 4"])
def test_the_law_is_that_of_whole_paths_exactly(name, pattern):
    chain, statuses = NAMED[name], parse(pattern)
    worlds, cost = after(chain, Session(chain, "greedy"), statuses)
    law: defaultdict[Any, Any] = defaultdict(Fraction)
    for world, (weight, _) in worlds.held.items():
        law[world.private_sources, tuple(world.history.all_seen)] += Fraction(weight, worlds.denominator)
    expected = law_by_hand(chain, statuses)
    assert law == expected
    assert sum(law.values()) == 1
    assert cost == sum(weight * len(queries[-1]) for (_, queries), weight in expected.items())


def test_one_history_is_one_object_with_all_that_was_seen():
    start = SeenHistory()
    first = start.then(0, "a")
    assert start.then(0, "a") is first
    assert start.then(1, "b") is not first
    assert first.then(1, "b").all_seen == ["a", "b"]
    assert first.then(1, "b").before is first
    assert start.all_seen == []


class Counting(Session):
    """Counts its requests; what it does depends on its state alone."""

    self_contained = True
    requests = 0

    def request(self, source, *, private):
        Counting.requests += 1
        return super().request(source, private=private)


def test_a_session_is_driven_once_at_each_place(monkeypatch):
    """After OFF OFF OFF of P2 the state is the last query and the last request, whatever was seen before."""
    monkeypatch.setattr(Counting, "requests", 0)
    worlds, _ = after(P2, Counting(P2, "single"), parse("ON OFF OFF OFF"))
    once = Counting.requests
    worlds.after(private=False)
    assert Counting.requests == once
    worlds.after(private=True)
    assert Counting.requests > once


def test_where_the_state_does_not_decide_all_the_history_does():
    class Remembering(NaiveSession):
        """Its answer depends on how often it was asked, which its state does not say."""

        def __init__(self, chain, asked=0):
            super().__init__(chain)
            self.asked = asked

        def request(self, source, *, private):
            self.asked += 1
            return super().request(self.asked % self.model.n, private=private)

        def fork(self, entropy):
            return Remembering(self.model, self.asked)

    worlds = Worlds.before_the_first_request(P3, Remembering(P3))
    for _ in range(3):
        worlds, _, undecodable = worlds.after(private=False)
    assert undecodable
    assert {tuple(world.history.all_seen) for world in worlds.held} == {((1,), (2,), (0,))}
