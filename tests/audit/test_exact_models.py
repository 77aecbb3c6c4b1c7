"""The exact audit of sessions of request models: order 2, types, both memories; zero up to the rounding they count.

Broken filters come from the tests of the filter itself: one forgets the type, one updates by a wrong kernel, one drops
what is hidden. Each is caught at the first pattern that can show its mistake.
"""

import pytest
from tests.audit.test_observer import model_of
from tests.session.test_filter import DropsWhatIsHidden, ForgetsTheType, WrongKernel, twin_of
from tests.support.chains import P3
from tests.support.typed import as_a

from onoff.audit.exact import audit_exact, audit_patterns
from onoff.model.contexts import RequestModel
from onoff.model.patterns import parse
from onoff.session import Session
from onoff.session.filter import ModelFilter

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

CASES = {
    "2 sources, order 2, 2 types": (model_of(2, 2, 2, 1), "single", None),
    "2 sources, order 1, 3 types": (model_of(2, 1, 3, 2), "optimal", None),
    "2 sources, order 2, last queries": (model_of(2, 2, 1, 3), "single", "last-query"),
    "3 sources, order 2, last queries": (model_of(3, 2, 1, 4), "greedy", "last-query"),
}
AFTER_OPEN = ("OFF ON OFF OFF", "OFF OFF ON OFF", "OFF ON ON OFF")


@pytest.mark.parametrize("name", CASES)
def test_every_pattern_of_four_steps_is_private(name):
    model, scheme, memory = CASES[name]
    count = 0
    for pattern, step, breach in audit_patterns(model, Session(model, scheme, memory), 4):
        assert breach is None, (pattern, breach)
        assert step.deviation <= step.rounding
        count += 1
    assert count == 1 + 2 + 4 + 8
    for pattern in AFTER_OPEN:  # type: ignore[assignment]
        assert audit_exact(model, scheme, parse(pattern), memory).private


def test_every_pattern_of_four_steps_with_three_sources_and_two_types():
    model = model_of(3, 2, 2, 5)
    for pattern, _, breach in audit_patterns(model, Session(model, "greedy"), 4):
        assert breach is None, (pattern, breach)


def test_three_sources_and_two_types():
    model = model_of(3, 2, 2, 5)
    for pattern in ("ON OFF OFF", "ON ON OFF", "OFF ON OFF", "ON OFF ON"):
        audit = audit_exact(model, "greedy", parse(pattern))
        assert audit.leak == 0, audit.breach
        assert 0 < audit.tolerance < 1e-12


def test_naive_switching_leaks_and_rounding_does_not_hide_it():
    model = model_of(2, 2, 2, 1)
    audit = audit_exact(model, "naive", parse("ON OFF OFF"))
    assert not audit.private
    assert audit.tolerance == 0
    ours = audit_exact(model, "single", parse("ON OFF OFF"))
    assert ours.naive == tuple(step.bits for step in audit.steps)
    assert ours.as_dict()["leak"] == 0
    assert ours.rounding < 1e-12


@pytest.mark.parametrize("kind", [ForgetsTheType, WrongKernel, DropsWhatIsHidden])
@pytest.mark.parametrize("sources", [2, 3])
def test_a_filter_with_one_mistake_is_caught(kind, sources):
    model = model_of(sources, 2, 2, 1)

    def broken():
        session = Session(model, "greedy")
        session.memory = twin_of(session.memory, kind, as_a(ModelFilter, session.memory).belief)
        return session

    pattern = parse("ON OFF OFF OFF" if sources == 2 else "ON OFF OFF")
    audit = audit_exact(model, "twin", pattern, session=broken)
    assert audit.leak > 1e-4
    assert "tells about the private requests" in (audit.breach or "")


def test_hiding_one_lets_older_ones_show_and_hiding_two_does_not():
    """What is promised is zero either way; what is not promised is said."""
    model = model_of(2, 2, 2, 1)
    one = audit_exact(model, "single", parse("ON ON OFF OFF"))
    two = audit_exact(model, "single", parse("ON ON OFF OFF"), hide=2)
    assert one.private
    assert two.private
    assert max(step["all_bits"] for step in one.as_dict()["steps"]) > 1e-4
    assert [step["all_bits"] for step in two.as_dict()["steps"]] == [0, 0, 0, 0]
    # a chain's last query hides all of them
    assert [step["all_bits"] for step in audit_exact(P3, "greedy", parse("ON ON OFF OFF")).as_dict()["steps"]] == [
        0
    ] * 4


def test_a_chain_as_a_model_is_audited_the_same():
    chain, model = audit_exact(P3, "greedy", parse("ON OFF OFF")), RequestModel.of(P3)
    as_model = audit_exact(model, "greedy", parse("ON OFF OFF"))
    assert [s.cost for s in as_model.steps] == pytest.approx([s.cost for s in chain.steps])
    assert as_model.naive == pytest.approx(chain.naive)
    assert audit_exact(model, "greedy", parse("ON OFF OFF"), "last-query").steps[-1].deviation == 0
