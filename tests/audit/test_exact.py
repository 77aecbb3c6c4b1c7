"""The exact audit: zero by equality for the real session, and red for every broken twin of it."""

from fractions import Fraction

import numpy as np
import pytest

from onoff.audit.exact import NaiveSession, audit_exact
from onoff.chain import MarkovChain
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.memory import MEMORIES
from onoff.pattern import parse
from onoff.session import Query, Session

P2 = MarkovChain([[0.8, 0.2], [0.2, 0.8]])
P3 = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])
P4 = MarkovChain(np.random.default_rng(4).dirichlet(np.ones(4), size=4))
PATTERNS = ["ON OFF OFF OFF", "ON OFF ON OFF OFF", "ON ON OFF OFF"]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_single_leaks_nothing(chain, pattern, memory):
    audit = audit_exact(chain, "single", parse(pattern), memory)
    audit.require_private()
    assert audit.leak == 0
    assert audit.private
    if memory == "last-query":
        assert all(step.deviation == 0 for step in audit.steps)
    assert audit.rounding < 1e-15


def test_naive_switching_leaks_what_the_chain_carries():
    audit = audit_exact(P2, "naive", parse("ON OFF"))
    assert audit.leak == pytest.approx(1 + 0.8 * np.log2(0.8) + 0.2 * np.log2(0.2))
    assert audit.naive == (0.0, audit.leak)
    with pytest.raises(PrivacyBreach, match=r"step 1: after the queries \[\(0, 1\)\], query"):
        audit.require_private()


def test_open_requests_before_an_on_are_shown_by_the_joint_criterion_only():
    audit = audit_exact(P2, "single", parse("OFF ON"))
    assert audit.leak == 0
    assert audit.steps[1].joint == pytest.approx(1 + 0.8 * np.log2(0.8) + 0.2 * np.log2(0.2))


def test_costs_are_exact_expectations():
    steps = audit_exact(P2, "single", parse("ON OFF OFF OFF")).steps
    assert [step.cost for step in steps] == pytest.approx([2, 1.6, 1.36, 1.216])


class Forgetful(Session):
    """Does not update its memory after a query (m2)."""

    def request(self, source, *, private):
        query, after = self.propose(source, private=private)
        if private:
            self.memory = after
        return query


class NeverAnchoredAgain(Session):
    """A second ON does not reset what is hidden (m3)."""

    seen_on = False

    @property
    def state(self):
        return (self.memory, self.seen_on)

    def request(self, source, *, private):
        if private and self.seen_on:
            return Query(tuple(range(self.chain.n)), self.chain.n)
        self.seen_on |= private
        return super().request(source, private=private)


class Unsorted(Session):
    """Sends the wanted source first (m4)."""

    def request(self, source, *, private):
        sources = super().request(source, private=private).sources
        x = self.chain.index(source)
        return Query((x, *(s for s in sources if s != x)), self.chain.n)


class Undecodable(Session):
    """Asks for a fixed source."""

    def request(self, source, *, private):
        super().request(source, private=private)
        return Query((0,), self.chain.n)


class AllButOne(Session):
    """ON leaves out another source (m16)."""

    def request(self, source, *, private):
        query = super().request(source, private=private)
        if not private:
            return query
        others = [s for s in query.sources if s != self.chain.index(source)]
        dropped = others[self._entropy.choose([1] * len(others))]
        return Query(tuple(s for s in query.sources if s != dropped), self.chain.n)


@pytest.mark.parametrize(
    ("twin", "pattern", "step"),
    [
        (Forgetful, "ON OFF OFF", 2),
        (NeverAnchoredAgain, "ON OFF ON OFF", 3),
        (Unsorted, "ON", 0),
        (Undecodable, "ON", 0),
        (AllButOne, "ON", 0),
    ],
)
@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_broken_twins_are_caught_at_their_step(twin, pattern, step, chain):
    audit = audit_exact(chain, "single", parse(pattern), session=lambda: twin(chain, "single"))
    with pytest.raises(PrivacyBreach, match=f"step {step}:"):
        audit.require_private()
    if twin is not Undecodable:
        assert audit.leak > 0.01


@pytest.mark.parametrize("chain", [MarkovChain([[1.0]]), MarkovChain([[0.3, 0.7]] * 2)], ids=["N=1", "equal rows"])
def test_where_there_is_nothing_to_leak_naive_switching_is_exactly_zero(chain):
    assert audit_exact(chain, "naive", parse("ON OFF ON OFF")).leak == 0


def test_the_report_has_the_agreed_form():
    report = audit_exact(P2, "single", parse("ON OFF")).as_dict()
    assert report["leak"] == 0
    assert [step["bits"] for step in report["steps"]] == [0, 0]
    assert len(report["naive"]) == 2


def test_too_many_worlds_are_refused(monkeypatch):
    monkeypatch.setattr("onoff.audit.exact.MOST_WORLDS", 10)
    with pytest.raises(InvalidInput, match="worlds"):
        audit_exact(P4, "single", parse("ON OFF OFF"))


def test_the_naive_session_asks_for_one_or_for_everything():
    session = NaiveSession(P3)
    assert session.request(1, private=False).sources == (1,)
    assert session.request(1, private=True).sources == (0, 1, 2)
    assert Fraction(1) == sum(step.deviation == 0 for step in audit_exact(P3, "naive", parse("ON")).steps)
