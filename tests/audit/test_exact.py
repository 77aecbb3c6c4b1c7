"""The exact audit: zero by equality for the real session, and red for every broken twin of it."""

from fractions import Fraction

import numpy as np
import pytest
from tests.support.chains import EVERY, P2, P3, RANDOM

from onoff.audit.exact import NaiveSession, audit_exact, audit_patterns
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.session import Query, Session
from onoff.session.session import MEMORIES

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

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
    with pytest.raises(PrivacyBreach, match=r"step 1: after {source-1, source-2}, the query {source-"):
        audit.require_private()


def test_open_requests_before_an_on_are_shown_by_the_joint_criterion_only():
    audit = audit_exact(P2, "single", parse("OFF ON"))
    assert audit.leak == 0
    assert audit.steps[1].joint == pytest.approx(1 + 0.8 * np.log2(0.8) + 0.2 * np.log2(0.2))


def test_costs_are_exact_expectations():
    steps = audit_exact(P2, "single", parse("ON OFF OFF OFF")).steps
    assert [step.cost for step in steps] == pytest.approx([2, 1.6, 1.36, 1.216])


class Undecodable(Session):
    """Asks for a fixed source."""

    def request(self, source, *, private):
        super().request(source, private=private)
        return Query((0,), self.chain.n)


def test_a_query_without_the_wanted_source_is_named():
    audit = audit_exact(P2, "single", parse("ON"), session=lambda: Undecodable(P2, "single"))  # type: ignore[return-value]
    with pytest.raises(PrivacyBreach, match="step 0: a query did not contain the source that was wanted"):
        audit.require_private()


def test_guesses_before_and_after_a_step():
    steps = audit_exact(P2, "naive", parse("ON OFF")).steps
    assert [s.guess_before for s in steps] == pytest.approx([0.5, 0.5])
    assert [s.guess for s in steps] == pytest.approx([0.5, 0.8])
    assert steps[1].advantage == pytest.approx(0.3)
    assert [s.advantage for s in audit_exact(P2, "single", parse("ON OFF")).steps] == [0, 0]


def require_every_pattern_private(name, scheme, longest):
    """All that start with ON, by equality."""
    seen = set()
    for pattern, step, breach in audit_patterns(EVERY[name], Session(EVERY[name], scheme), longest):
        assert breach is None
        assert step.deviation == 0
        seen.add(pattern)
    assert len(seen) == 2**longest - 1


# Of four sources one random chain and three others go five steps in every run; five steps of the rest take long.
LONG = [
    (name, scheme)
    for name in ("sticky 4", "two equal rows of 4", *RANDOM)
    for scheme in ("greedy", "optimal")
    if EVERY[name].n == 4 and name != "random 4, 5"
]


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        pytest.param(name, scheme, marks=[pytest.mark.deep] if (name, scheme) in LONG else [])
        for name in EVERY
        for scheme in ("single", "greedy", "optimal")
    ],
)
def test_every_pattern_up_to_five_steps_is_private(name, scheme):
    require_every_pattern_private(name, scheme, 5)


@pytest.mark.parametrize(("name", "scheme"), LONG)
def test_every_pattern_up_to_four_steps_is_private_with_four_sources(name, scheme):
    require_every_pattern_private(name, scheme, 4)


def test_patterns_share_their_beginnings_and_agree_with_single_audits():
    ends = {pattern: step for pattern, step, _ in audit_patterns(P3, Session(P3, "single"), 3)}
    for pattern, step in ends.items():
        alone = audit_exact(P3, "single", pattern).steps[-1]
        assert step == alone
    breaches = [breach for *_, breach in audit_patterns(P3, NaiveSession(P3), 2)]
    assert sum(breach is not None for breach in breaches) == 1


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


def test_what_would_never_end_is_refused_with_an_estimate_and_what_ends_is_not():
    """The worlds of this chain grow threefold with each step; those of a chain that comes to rest, by a few."""
    told: list[str] = []
    with pytest.raises(InvalidInput, match=r"40 steps make about 10\^19 worlds, 3 times as many") as refused:
        audit_exact(P3, "greedy", (False,) * 40, progress=told.append)
    assert "about 13 steps" in (refused.value.hint or "")
    assert 5 < len(told) < 12  # it did not go on to the limit of two million
    assert told[-1].startswith("step 8 of 40: 6561 worlds, about 1.2e+19 in the end")
    rest = MarkovChain([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]])
    assert audit_exact(rest, "greedy", (True, *(False,) * 29)).private
