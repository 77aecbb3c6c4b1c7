"""The shipped client over web sites, enumerated: exactly zero whatever happens there; every leaky twin is caught."""

import pytest
from tests.support.chains import P2, P3
from tests.support.controls.web import TWINS, DrawsAgain, TellsTheUpstream, Told, as_core

from onoff.audit.exact import audit_exact
from onoff.audit.web import Happening, audit_web, every_condition
from onoff.errors import PrivacyBreach
from onoff.model.patterns import parse

pytestmark = pytest.mark.slow(reason="every path of requests, draws and happenings is enumerated")


def require_zero(audit):
    audit.require_private()
    assert audit.leak == 0
    assert all(step.deviation == 0 and not step.undecodable for step in audit.steps)


@pytest.mark.parametrize("pattern", ["ON OFF OFF OFF", "ON OFF ON OFF", "ON ON OFF OFF"])
@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_without_any_happening_the_client_is_the_session(chain, pattern):
    audit = audit_web(chain, "greedy", parse(pattern))
    require_zero(audit)
    plain = audit_exact(chain, "greedy", parse(pattern))
    assert [s.cost for s in audit.steps] == pytest.approx([s.cost for s in plain.steps])


@pytest.mark.parametrize("pattern", ["ON OFF OFF", "ON OFF ON"])
@pytest.mark.parametrize("condition", every_condition(2), ids=str)
def test_a_happening_at_every_step(condition, pattern):
    require_zero(audit_web(P2, "greedy", parse(pattern), [condition]))


@pytest.mark.parametrize("condition", every_condition(3), ids=str)
def test_a_happening_at_every_step_of_the_papers_example(condition):
    require_zero(audit_web(P3, "greedy", parse("ON OFF"), [condition]))


def test_several_happenings_together():
    together = [(Happening.FAILED, 0), (Happening.MOVED, 1), (Happening.CRASH_WITHIN, 0), (Happening.LIMITED, 1)]
    require_zero(audit_web(P2, "greedy", parse("ON OFF OFF"), together))


WHERE_IT_SHOWS = {
    "reload only when the wanted one failed": [(Happening.FAILED, 0)],
    "a redirect followed only for the wanted one": [(Happening.REDIRECTED, 0)],
}


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_that_knows_what_is_wanted_is_caught(name):
    with as_core(TellsTheUpstream):
        audit = audit_web(P2, "greedy", parse("ON OFF OFF"), WHERE_IT_SHOWS.get(name, ()), TWINS[name])
    assert audit.leak > 0.001
    with pytest.raises(PrivacyBreach):
        audit.require_private()


def test_a_twin_whose_retry_draws_again_is_caught():
    with as_core(DrawsAgain):
        audit = audit_web(P2, "greedy", parse("ON OFF OFF"), [(Happening.CRASH_AFTER, 0)])
    assert audit.leak > 0.001
    with pytest.raises(PrivacyBreach):
        audit.require_private()


def test_knowing_alone_is_no_leak():
    """The harness of the twins by itself changes nothing."""
    with as_core(TellsTheUpstream):
        require_zero(audit_web(P2, "greedy", parse("ON OFF OFF"), [(Happening.FAILED, 0)], Told))
