"""The shipped client with a request model, enumerated under every fault: types of people, and two requests back.

One request for everything separates the future from the past under a chain only. Twins that trust in it are caught: one
that forgets what is hidden after any doubt, one that asks for less than everything after a loss.
"""

import pytest
from tests.audit.test_observer import model_of
from tests.support.controls.clients import ForgetsAfterDoubts, GoesOnAfterLosses, as_client

from onoff.audit.client import EVERY_FAULT, Fault, audit_client
from onoff.model.patterns import parse

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

MODEL = model_of(2, 2, 2, 1)
ONE_TYPE = model_of(2, 2, 1, 3)
TYPES_ONLY = model_of(2, 1, 2, 2)
LOSSES = (Fault.RESTORED, Fault.LOST)


def audited(model, pattern, *faults):
    return audit_client(model, "single", parse(pattern), faults)


def require_private(audit):
    audit.require_private()
    assert audit.leak == 0
    assert audit.tolerance < 1e-12  # the rounding that the filter counts
    assert not any(step.undecodable for step in audit.steps)


KEEP_THE_STATE = (Fault.LOST_ANSWER, Fault.GIVEN_UP, Fault.CRASH_AFTER)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.NONE,
        *(pytest.param(fault, marks=[pytest.mark.deep] * (fault in KEEP_THE_STATE)) for fault in EVERY_FAULT),
    ],
)
def test_a_fault_at_every_step_tells_nothing_about_the_last_private_request(fault):
    require_private(audited(MODEL, "ON OFF OFF", *([] if fault is Fault.NONE else [fault])))


@pytest.mark.deep
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, *LOSSES])
@pytest.mark.parametrize("model", [ONE_TYPE, TYPES_ONLY], ids=["one type", "first order"])
def test_order_and_types_by_themselves(model, fault):
    require_private(audited(model, "ON OFF OFF", fault))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", EVERY_FAULT)
@pytest.mark.parametrize("pattern", ["ON OFF OFF OFF", "ON ON OFF OFF"])
def test_longer_patterns(pattern, fault):
    audit = audited(MODEL, pattern, fault)
    if fault in LOSSES and pattern.startswith("ON ON"):  # a loss before the second: see the next test but one
        assert audit.leak == pytest.approx({Fault.LOST: 0.0904, Fault.RESTORED: 0.1818}[fault], rel=0.01)
    else:
        require_private(audit)


@pytest.mark.parametrize(
    ("twin", "fault", "bits"),
    [
        (ForgetsAfterDoubts, Fault.CRASH_BEFORE, 0.0336),
        (GoesOnAfterLosses, Fault.LOST, 0.0672),
        (GoesOnAfterLosses, Fault.RESTORED, 0.1344),
    ],
)
def test_a_client_that_starts_afresh_is_caught(twin, fault, bits):
    with as_client(twin):
        audit = audited(MODEL, "ON OFF OFF", fault)
    assert audit.leak == pytest.approx(bits, rel=0.01)
    assert "step 2: " in audit.breach


@pytest.mark.parametrize(
    ("pattern", "bits"), [("ON ON OFF", 0.0898), pytest.param("ON OFF ON OFF", 0.0488, marks=pytest.mark.deep)]
)
def test_what_a_lost_past_tells_about_the_next_private_request_is_known(pattern, bits):
    """It is hidden as by a new client; the server knows what the person asked before, and the client does not."""
    assert audited(MODEL, pattern, Fault.LOST).leak == pytest.approx(bits, rel=0.01)


@pytest.mark.deep
def test_an_open_request_that_never_left_tells_no_more_than_it_would_have():
    """It hints at the private one after it, through the queries drawn since; sent, it would have hinted by itself."""
    broken, calm = audited(MODEL, "ON OFF ON OFF", Fault.CRASH_BEFORE), audited(MODEL, "ON OFF ON OFF")
    assert 0 < broken.leak < 1e-4
    assert broken.steps[-1].joint < calm.steps[-1].joint
