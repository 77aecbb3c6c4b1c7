"""The shipped client of several servers, enumerated: exactly zero for each server; together they learn it all.

Six twins are caught: by what they leak to one server, by the wire, or by a rule of the audit. (An independent second
draw at one server, and a zero vector that is left out, tell one server nothing by themselves; they break the rules that
a step has one byte string and that every server sees every request.)
"""

import pytest
from tests.support.chains import NAMED, P2, P3
from tests.support.controls import servers as twins
from tests.support.controls.servers import as_decode_sums, as_sum_servers, careless_wire

from onoff.audit.client import Fault, audit_servers
from onoff.errors import InvalidWire, PrivacyBreach
from onoff.model.patterns import parse

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

FAULTS = tuple(fault for fault in Fault if fault is not Fault.NONE)


def require_zero(audit):
    audit.require_private()
    assert audit.leak == 0
    assert all(step.deviation == 0 and not step.undecodable for step in audit.steps)


CASES = [
    *[("P2", pattern, 2) for pattern in ("ON OFF OFF", "OFF ON OFF", "ON ON OFF")],
    ("P2", "ON OFF", 3),
    ("P3", "ON OFF", 2),
    ("P3", "ON", 3),
    *[pytest.param("P2", pattern, 3, marks=pytest.mark.deep) for pattern in ("ON OFF OFF", "OFF ON OFF", "ON ON OFF")],
    *[pytest.param("P3", pattern, 2, marks=pytest.mark.deep) for pattern in ("OFF ON", "ON ON")],
    *[pytest.param("P3", pattern, 3, marks=pytest.mark.deep) for pattern in ("ON OFF", "OFF ON", "ON ON")],
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "pattern", "servers"), CASES)
def test_no_server_alone_learns_anything(name, pattern, servers):
    for view in range(servers):
        require_zero(audit_servers(NAMED[name], "greedy", parse(pattern), servers, view))


# At the second server too where a request was sent once more or an old folder is put back.
AT_THE_SECOND = {Fault.LOST_ANSWER, Fault.CRASH_AFTER, Fault.RESTORED}


@pytest.mark.parametrize("view", [0, 1])
@pytest.mark.parametrize(
    ("fault", "faulty"),
    [
        pytest.param(fault, faulty, marks=[] if faulty == 0 or fault in AT_THE_SECOND else [pytest.mark.deep])
        for fault in FAULTS
        for faulty in (0, 1)
    ],
)
def test_faults_at_one_server_with_probability_one_half(fault, faulty, view):
    require_zero(audit_servers(P2, "greedy", parse("ON OFF"), 2, view, [fault], faulty=faulty))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_over_longer_patterns(fault):
    for view in range(2):
        require_zero(audit_servers(P2, "greedy", parse("ON OFF OFF"), 2, view, [fault], faulty=1))


LIES = [
    *[("P2", pattern, 2, lie) for pattern in ("ON", "OFF", "ON OFF") for lie in (0, 1)],
    ("P2", "ON", 3, 0),
    ("P3", "ON", 2, 1),
    pytest.param("P3", "ON OFF", 2, 1, marks=pytest.mark.deep),
    pytest.param("P2", "ON OFF", 3, 0, marks=pytest.mark.deep),
]


@pytest.mark.parametrize(("name", "pattern", "servers", "lie"), LIES)
def test_a_server_that_lies_about_a_source_does_not_learn_whether_it_was_wanted(name, pattern, servers, lie):
    """Even where the person asks again whenever answers are refused. Without that no server learns anything."""
    for liar in range(servers):
        require_zero(audit_servers(NAMED[name], "greedy", parse(pattern), servers, liar, faulty=liar, lie=lie))
        for view in range(servers):
            audit = audit_servers(
                NAMED[name], "greedy", parse(pattern), servers, view, faulty=liar, lie=lie, insists=False
            )
            require_zero(audit)


def test_a_lie_that_depends_on_what_was_asked_tells_the_other_server_when_the_person_asks_again():
    """Reported, not hidden: it lies wherever its vector is not zero, which is a way to tell others about the vector."""
    assert audit_servers(P2, "greedy", parse("ON"), 2, 1, faulty=0, lie=0).leak > 0.1


def test_servers_that_collude_learn_what_is_wanted():
    """Reported, not hidden: all of the present request."""
    audit = audit_servers(P2, "greedy", parse("ON"), 2, None)
    assert audit.leak == pytest.approx(1)
    with pytest.raises(PrivacyBreach):
        audit.require_private()


# -- controls ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_a_subset_drawn_once_for_two_wants_is_caught(chain):
    with as_sum_servers(twins.DrawsOnce):
        audit = audit_servers(chain, "greedy", parse("ON ON"), 2, 0)
    assert audit.leak > 0.05
    with pytest.raises(PrivacyBreach, match="step 1: "):
        audit.require_private()


def test_a_wanted_source_that_is_always_added_at_one_server_is_caught():
    with as_sum_servers(twins.AddsAtOne):
        with pytest.raises(InvalidWire, match="residue class"):
            audit_servers(P2, "greedy", parse("ON"), 2, 1)
        with careless_wire():
            audit = audit_servers(P2, "greedy", parse("ON"), 2, 1)
    assert audit.leak > 0.1
    with pytest.raises(PrivacyBreach, match="step 0: "):
        audit.require_private()


def test_parity_that_is_not_enforced_is_caught():
    with as_sum_servers(twins.NoParity), pytest.raises(InvalidWire, match="residue class"):
        audit_servers(P2, "greedy", parse("ON"), 2, 0)


def test_a_zero_vector_that_is_not_sent_is_caught():
    with as_sum_servers(twins.SkipsZeros), pytest.raises(PrivacyBreach, match="server 0 was not asked"):
        audit_servers(P2, "greedy", parse("ON"), 2, 0)


@pytest.mark.parametrize(("liar", "lie"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_frame_that_is_taken_by_its_checksum_is_caught(liar, lie):
    """Any valid frame of a source is taken: a liar sees whether it is asked again, and knows what was wanted."""
    with as_decode_sums(twins.by_checksum):
        audit = audit_servers(P2, "greedy", parse("ON"), 2, liar, faulty=liar, lie=lie)
    assert audit.leak > 0.4
    with pytest.raises(PrivacyBreach, match="step 0: "):
        audit.require_private()


@pytest.mark.parametrize("faulty", [0, 1])
def test_a_retry_that_draws_again_at_one_server_is_caught(faulty):
    with (
        as_sum_servers(twins.RedrawsAtOne),
        pytest.raises(PrivacyBreach, match=r"before it was stored|with another set"),
    ):
        audit_servers(P2, "greedy", parse("ON"), 2, faulty, [Fault.LOST_ANSWER], faulty=faulty)
