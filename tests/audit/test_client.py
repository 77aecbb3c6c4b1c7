"""The shipped client, enumerated: exactly zero whatever breaks, and the answers are the right ones."""

from itertools import combinations

import pytest
from tests.support.chains import EVERY, NAMED, P2, P3

from onoff.audit import client as audit_client_module
from onoff.audit.client import EVERY_FAULT, KNOWN_LIMITS, AuditedClient, Fault, audit_client
from onoff.audit.exact import audit_exact, audit_patterns
from onoff.audit.logs import Recorder
from onoff.client import Client
from onoff.errors import PrivacyBreach
from onoff.model.patterns import parse
from onoff.session.session import SystemEntropy

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

PATTERNS = ["ON OFF OFF OFF", "ON OFF ON OFF OFF", "ON ON OFF OFF"]


def require_zero(audit):
    audit.require_private()
    assert audit.leak == 0
    assert all(step.deviation == 0 and not step.undecodable for step in audit.steps)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ["P2", "P3", "zeros 3", "sticky 2", "equal rows 2"])
def test_without_faults_the_client_is_the_session(name, pattern):
    audit = audit_client(NAMED[name], "greedy", parse(pattern))
    require_zero(audit)
    # once everything was asked, both go on alike
    if name in {"P2", "P3"}:
        plain = audit_exact(NAMED[name], "greedy", parse(pattern))
        assert [s.cost for s in audit.steps] == pytest.approx([s.cost for s in plain.steps])
        assert [s.joint for s in audit.steps] == pytest.approx([s.joint for s in plain.steps])


ALL_BUT_P2 = [pytest.param(name, marks=pytest.mark.deep) for name in EVERY if name != "P2"]


@pytest.mark.parametrize("name", ["P2", *ALL_BUT_P2])
@pytest.mark.timeout(3600)
def test_every_pattern_up_to_five_steps_is_private(name):
    """With the scheme that users get."""
    seen = set()
    for pattern, step, breach in audit_patterns(EVERY[name], AuditedClient(EVERY[name], "auto"), 5):
        assert breach is None
        assert step.deviation == 0
        assert not step.undecodable
        seen.add(pattern)
    assert len(seen) == 31


# Five steps take long; and after two private requests what tells most is a past that is lost, old or sent twice.
AFTER_TWO = {Fault.CRASH_AFTER, Fault.RESTORED, Fault.LOST}


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        pytest.param(
            pattern,
            fault,
            marks=[]
            if pattern == PATTERNS[0] or (pattern == PATTERNS[2] and fault in AFTER_TWO)
            else [pytest.mark.deep],
        )
        for pattern in PATTERNS
        for fault in EVERY_FAULT
    ],
)
def test_a_fault_at_every_step_with_probability_one_half(pattern, fault):
    require_zero(audit_client(P2, "greedy", parse(pattern), [fault]))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", EVERY_FAULT)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_fault_at_every_step_of_the_papers_example(pattern, fault):
    require_zero(audit_client(P3, "greedy", parse(pattern), [fault]))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name, chain in EVERY.items() if chain.n <= 3])
def test_faults_on_every_small_chain(name):
    for fault in EVERY_FAULT:
        require_zero(audit_client(EVERY[name], "greedy", parse("ON OFF OFF"), [fault]))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("left_out", [{Fault.RESTORED}, {Fault.LOST, Fault.CRASH_BEFORE}], ids=["restored", "others"])
@pytest.mark.parametrize("pattern", ["ON OFF OFF", "ON OFF ON"])
def test_faults_of_every_kind_together(pattern, left_out):
    """All of them but one side of every known limit."""
    assert all(limit & left_out for limit in KNOWN_LIMITS)
    require_zero(audit_client(P2, "greedy", parse(pattern), [fault for fault in EVERY_FAULT if fault not in left_out]))


# Every pair with an old folder, the known limits among them, and every other fault with two more.
PAIRS_IN_EVERY_RUN = [
    *[{Fault.RESTORED, fault} for fault in EVERY_FAULT if fault is not Fault.RESTORED],
    {Fault.CRASH_BEFORE, Fault.CRASH_AFTER},
    {Fault.CRASH_BEFORE, Fault.RESTART},
    {Fault.CRASH_AFTER, Fault.LOST},
    {Fault.GIVEN_UP, Fault.LOST},
    {Fault.GIVEN_UP, Fault.LOST_ANSWER},
    {Fault.LOST_ANSWER, Fault.RESTART},
]


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(pair, id=" and ".join(pair), marks=[] if set(pair) in PAIRS_IN_EVERY_RUN else [pytest.mark.deep])
        for pair in combinations(EVERY_FAULT, 2)
    ],
)
def test_two_faults_leak_nothing_unless_they_are_a_known_limit(pair):
    """A folder put back to before the journal was lost, or to before a request that never left, is not recognised."""
    audit = audit_client(P2, "greedy", parse("ON OFF OFF"), pair)
    if set(pair) not in KNOWN_LIMITS:
        require_zero(audit)
        return
    assert audit.leak > 0.001
    with pytest.raises(PrivacyBreach, match=r"step 2: "):
        audit.require_private()


def test_a_wrong_message_is_seen(monkeypatch):
    monkeypatch.setattr(Recorder, "message", staticmethod(lambda source: b"another"))
    life = AuditedClient(P2, "single", entropy=SystemEntropy())
    assert 0 in life.request(0, private=True)
    real = Client.get
    monkeypatch.setattr(Client, "get", lambda self, source, *, private: _changed(real(self, source, private=private)))
    assert 0 not in life.request(0, private=True)


def _changed(message):
    class Other(bytes):
        payload = b"something else"

    return Other(message)


def test_only_giving_up_is_forgiven(monkeypatch):
    """A client that fails where no fault was made is an error of the audit, not a silent pass."""
    monkeypatch.setattr(audit_client_module, "CLIENT_ATTEMPTS", 1)
    with pytest.raises(Exception, match="lost on the way back"):
        audit_client(P2, "single", parse("ON"), [Fault.LOST_ANSWER])


def test_a_query_that_is_not_canonical_is_a_breach():
    from onoff.upstream.transport import Request
    from onoff.wire import QUERY_PATH

    with pytest.raises(PrivacyBreach, match="not canonical"):
        Recorder(P3.names).exchange(Request("POST", QUERY_PATH, (), b"x" * 40, 100))
