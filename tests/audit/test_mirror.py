"""The shipped client with its mirror, enumerated: exactly zero whatever breaks; and leaky twins are caught.

A server sees when it is refreshed and what is asked while OFF. What is read while ON must not show in either.
"""

from unittest.mock import patch

import pytest
from tests.support.chains import NAMED, P2, P3
from tests.support.controls import clients, readers
from tests.support.controls.clients import as_client

from onoff import wire
from onoff.audit.client import MIRROR_LIMITS, Fault, audit_mirror
from onoff.audit.logs import Recorder
from onoff.errors import PrivacyBreach
from onoff.model.patterns import parse
from onoff.upstream.transport import Request

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

SEVERAL_READS = "ON ON OFF ON OFF"
FIRST_ONLY, EVERY_OTHER, ALWAYS = (True, *[False] * 7), (True, False), (True,)
FAULTS = tuple(fault for fault in Fault if fault not in {Fault.NONE, *MIRROR_LIMITS})


def require_zero(audit):
    audit.require_private()
    assert audit.leak == 0
    assert all(step.deviation == 0 and not step.undecodable for step in audit.steps)


REFRESHES = {"once": FIRST_ONLY, "half": EVERY_OTHER, "all": ALWAYS, "get": None}
# Of three sources every pattern and every kind of refresh once; the other pairs of them take long.
OF_THREE = {SEVERAL_READS: "once", "OFF ON OFF OFF": "get", "ON OFF OFF ON": "half", "OFF ON ON OFF": "all"}


@pytest.mark.parametrize(
    ("name", "pattern", "refreshes"),
    [
        pytest.param(
            name,
            pattern,
            refreshes,
            id=f"{name}-{pattern}-{kind}",
            marks=[pytest.mark.deep] if name != "P2" and OF_THREE[pattern] != kind else [],
        )
        for name in ("P2", "P3", "zeros 3")
        for pattern in OF_THREE
        for kind, refreshes in REFRESHES.items()
    ],
)
def test_reads_between_refreshes_show_nowhere(name, pattern, refreshes):
    if name != "P2" and len(parse(pattern)) > 4:
        pattern = "ON ON OFF OFF"
    audit = audit_mirror(NAMED[name], "greedy", parse(pattern), refreshes)
    require_zero(audit)
    if refreshes is FIRST_ONLY:
        assert [step.cost for step, private in zip(audit.steps, parse(pattern), strict=True) if private][1:] in (
            [0] * (sum(parse(pattern)) - 1),
            [0] * sum(parse(pattern)),
        )


CHANGE_THE_STATE = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST)


@pytest.mark.parametrize(
    ("pattern", "refreshes", "fault"),
    [
        *[
            pytest.param("OFF ON OFF", REFRESHES[kind], fault, id=f"OFF ON OFF-{kind}-{fault}")
            for kind in ("half", "get")
            for fault in FAULTS
        ],
        *[
            pytest.param(
                "ON OFF ON OFF",
                REFRESHES[kind],
                fault,
                id=f"ON OFF ON OFF-{kind}-{fault}",
                marks=[] if kind == "get" and fault in CHANGE_THE_STATE else [pytest.mark.deep],
            )
            for kind in ("half", "get")
            for fault in FAULTS
        ],
    ],
)
def test_faults_at_every_step_with_probability_one_half(pattern, fault, refreshes):
    require_zero(audit_mirror(P2, "greedy", parse(pattern), refreshes, [fault]))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_papers_example(fault):
    require_zero(audit_mirror(P3, "greedy", parse("OFF ON OFF OFF"), EVERY_OTHER, [fault]))


def test_a_folder_put_back_to_before_a_read_is_not_recognised():
    """The known limit, as it stands in the threat model."""
    audit = audit_mirror(P2, "greedy", parse("OFF ON OFF"), ALWAYS, [Fault.RESTORED])
    assert audit.leak > 0.001


OPENED_BY_A_REFRESH = ("ON OFF OFF", None, [Fault.RESTORED])


def test_a_folder_put_back_to_when_a_private_request_opened_the_session_is_recognised():
    pattern, refreshes, faults = OPENED_BY_A_REFRESH
    require_zero(audit_mirror(P2, "greedy", parse(pattern), refreshes, faults))


# -- controls ----------------------------------------------------------------------------------------------


def test_a_client_that_does_not_ask_the_server_about_a_session_that_a_refresh_opened_is_caught():
    pattern, refreshes, faults = OPENED_BY_A_REFRESH
    with as_client(clients.Trusting):
        assert audit_mirror(P2, "greedy", parse(pattern), refreshes, faults, judging=False).leak > 0.01


@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_a_memory_that_a_read_does_not_update_is_caught(chain):
    with as_client(readers.ForgetsReads):
        audit = audit_mirror(chain, "greedy", parse("OFF ON OFF"), ALWAYS)
    assert audit.leak > 0.01
    with pytest.raises(PrivacyBreach, match="step 2: "):
        audit.require_private()


@pytest.mark.parametrize("chain", [P2, pytest.param(P3, marks=pytest.mark.deep)], ids=["P2", "P3"])
def test_a_memory_that_is_updated_after_the_message_is_shown_is_caught_by_a_kill_between(chain):
    with readers.as_reader(readers.ShowsFirst):
        require_zero(audit_mirror(chain, "greedy", parse("OFF ON OFF"), ALWAYS))  # nothing happens, nothing leaks
        audit = audit_mirror(chain, "greedy", parse("OFF ON OFF"), ALWAYS, [Fault.CRASH_AFTER])
    assert audit.leak > 0.005
    with pytest.raises(PrivacyBreach, match="step 2: "):
        audit.require_private()


@pytest.mark.parametrize("reader", [readers.RefreshesToOpen, readers.RefreshesForNewOnes])
def test_opening_a_source_that_causes_a_refresh_is_caught(reader):
    pattern = parse("ON ON ON")
    with readers.as_reader(reader):
        with pytest.raises(PrivacyBreach, match="caused traffic"):
            audit_mirror(P3, "greedy", pattern, FIRST_ONLY)
        if reader is readers.RefreshesForNewOnes:
            audit = audit_mirror(P3, "greedy", pattern, FIRST_ONLY, judging=False)
            assert audit.leak > 0.1
            with pytest.raises(PrivacyBreach, match="step 1: "):
                audit.require_private()


@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_a_changed_source_that_is_fetched_alone_is_caught(chain):
    with readers.as_reader(readers.FetchesAlone):
        with pytest.raises(PrivacyBreach, match=r"before it was stored|caused traffic"):
            audit_mirror(chain, "greedy", parse("ON ON"), FIRST_ONLY)
        audit = audit_mirror(chain, "greedy", parse("ON ON"), FIRST_ONLY, judging=False)
    assert audit.leak > 0.5
    with pytest.raises(PrivacyBreach, match="step 1: "):
        audit.require_private()


def test_open_requests_say_what_they_know():
    """Else the controls below would catch nothing."""
    seen = []

    class Listening(Recorder):
        def exchange(self, request):
            if request.path == wire.QUERY_PATH:
                seen.append(wire.decode_query(request.body, 2).known)
            return super().exchange(request)

    with patch("onoff.audit.client.Recorder", Listening):
        require_zero(audit_mirror(P2, "greedy", parse("ON OFF OFF"), FIRST_ONLY))
    assert seen
    assert all(seen)


@pytest.mark.parametrize("core", [readers.KeepsWhatWasOpened, readers.AsksForTheWantedAnew])
def test_copies_that_depend_on_what_is_wanted_are_caught(core):
    with as_client(core):
        audit = audit_mirror(P2, "greedy", parse("ON OFF OFF"), FIRST_ONLY)
    assert audit.leak > 0.01
    with pytest.raises(PrivacyBreach, match=r"step [12]: "):
        audit.require_private()


def test_copies_that_depend_on_what_was_read_are_caught():
    with readers.as_reader(readers.ForgetsWhatWasRead):
        audit = audit_mirror(P2, "greedy", parse("ON OFF"), FIRST_ONLY)
    assert audit.leak > 0.5
    with pytest.raises(PrivacyBreach, match="step 1: "):
        audit.require_private()


def test_a_message_that_was_never_sent_cannot_be_known():
    recorder = Recorder(("a", "b"), frame_size=None)
    query = wire.WireQuery(recorder.catalogue.epoch, bytes(16), 0, (0, 1), n=2, known=b"never sent" + bytes(6))
    with pytest.raises(PrivacyBreach, match="never sent"):
        recorder.exchange(Request("POST", wire.QUERY_PATH, wire.QUERY_HEADERS, wire.encode_query(query), 2**20))
