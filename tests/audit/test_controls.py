"""Leaky twins must be caught, each by name; controls that do not leak must stay at exactly zero.

The sixteen of the threat model, with the leak that it measured (P3 / P2, in bits, where the twin is the same). A test
that cannot fail is none: these show that the exact audit fails when it should, and only then.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
from tests.support.chains import P2, P3, symmetric
from tests.support.controls import clients, sessions
from tests.support.controls.clients import as_client

import onoff
from onoff.audit.client import AuditedClient, Fault, audit_client
from onoff.audit.exact import audit_exact
from onoff.audit.logs import LogLine, audit_log
from onoff.errors import InvalidWire, PrivacyBreach
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.session import Session
from onoff.wire import encode_bitmap

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

P4 = MarkovChain(np.random.default_rng(4).dirichlet(np.ones(4), size=4))
STICKY = symmetric(3, 1 - 2e-8)

SESSIONS = {
    "m1 time sharing": (lambda c: sessions.TimeSharing(c, "greedy"), "ON OFF", {P3: 0.185, P2: 0.278}),
    "m2 filter not updated": (lambda c: sessions.Forgetful(c, "greedy"), "ON OFF OFF", {P3: 0.229, P2: 0.111}),
    "m3 no second anchor": (
        lambda c: sessions.NeverAnchoredAgain(c, "greedy"),
        "ON OFF ON OFF",
        {P3: 0.222, P2: 0.203},
    ),
    "m4 wanted first": (lambda c: sessions.WantedFirst(c, "greedy"), "ON", {P3: 1.585, P2: 1.0}),
    "m5 construction order": (sessions.ConstructionOrder, "ON OFF OFF", {P3: 0.0015, P4: 0.084}),
    "m8 blind table": (lambda c: sessions.BlindTable(c, "greedy"), "ON OFF", {P3: 0.073, P2: 0.111}),
    "m9 skip if cached": (lambda c: sessions.SkipsIfCached(c, "greedy"), "ON OFF", {P3: 0.314, P2: 0.2}),
    "m10b second device": (lambda c: sessions.TwoDevices(c, "greedy"), "ON ON OFF", {P3: 0.319, P2: 0.208}),
    "m11 known seed": (lambda c: sessions.KnownSeed(c, "greedy"), "ON OFF", {P3: 0.407, P2: 0.220}),
    "m13 grid of 4 bits": (lambda c: sessions.on_a_grid(c, 4), "ON OFF", {P3: 3.1e-3, P2: 4.4e-4}),
    "m13 grid of 8 bits": (lambda c: sessions.on_a_grid(c, 8), "ON OFF", {P3: 1.25e-5, P2: 1.7e-6}),
    "m14 raw linear program": (sessions.RawProgram, "ON OFF", {STICKY: 1.2e-8}),
    "m15 learns from all": (lambda c: sessions.LearnsFromAll(c, "greedy"), "ON ON OFF", {P3: 0.102, P2: 0.0143}),
    "m16 all but one": (lambda c: sessions.AllButOne(c, "greedy"), "ON", {P3: 0.585, P2: 1.0}),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_the_exact_audit_catches_a_leaky_session(name):
    make, pattern, leaks = SESSIONS[name]
    for chain, bits in leaks.items():
        audit = audit_exact(chain, "twin", parse(pattern), session=lambda chain=chain, make=make: make(chain))  # type: ignore[misc]
        last = audit.steps[-1]
        assert last.deviation > 0
        assert last.bits == pytest.approx(bits, rel=0.06)
        # no earlier step gives it away: shorter patterns would have passed
        assert name.startswith("m10b") or all(step.deviation == 0 for step in audit.steps[:-1])
        with pytest.raises(PrivacyBreach, match=f"step {last.t}: "):
            audit.require_private()


CLIENTS = {
    "m6 redraws on retry": (clients.RedrawsOnRetry, Fault.LOST_ANSWER, "ON OFF", "again with another", (0.415, 0.370)),
    "m7 sends first": (clients.SendsFirstAndTrusts, Fault.CRASH_AFTER, "ON OFF OFF", "before it was stored", None),
    "m10 restored": (clients.Trusting, Fault.RESTORED, "ON OFF OFF", "again with another", (0.2290, 0.1112)),
}


def takes_long(name):
    return len(parse(CLIENTS[name][2])) > 2


@pytest.mark.parametrize(
    ("chain", "at", "name"),
    [
        pytest.param(
            chain,
            at,
            name,
            id=f"P{chain.n}-{name}",
            marks=[pytest.mark.deep] if chain is P3 and takes_long(name) else [],
        )
        for at, chain in enumerate((P3, P2))
        for name in CLIENTS
    ],
)
def test_the_recorder_and_the_exact_audit_catch_a_leaky_client(name, chain, at):
    """The recorder sees the rule broken; and with the recorder silent the bytes are shown to leak."""
    core, fault, pattern, rule, conditional = CLIENTS[name]
    with as_client(core):
        with pytest.raises(PrivacyBreach, match=rule):
            audit_client(chain, "greedy", parse(pattern), [fault])
        silent = audit_exact(
            chain,
            "greedy",
            parse(pattern),
            session=lambda: AuditedClient(chain, "greedy", (fault,), judging=False),
        )
    assert silent.steps[-1].deviation > 0
    with pytest.raises(PrivacyBreach, match=f"step {len(silent.steps) - 1}: "):
        silent.require_private()
    if conditional is not None:  # the fault happens half of the time, and nothing is lost in the other half
        share = 0.5 if fault is Fault.LOST_ANSWER else 0.25
        assert silent.leak == pytest.approx(share * conditional[at], rel=0.02)


def test_m7_alone_is_caught_by_the_recorder_and_made_harmless_by_asking_the_server():
    with as_client(clients.SendsFirst):
        with pytest.raises(PrivacyBreach, match="before it was stored"):
            audit_client(P2, "greedy", parse("ON OFF"))
        guarded = audit_exact(
            P2,
            "greedy",
            parse("ON OFF OFF"),
            session=lambda: AuditedClient(P2, "greedy", (Fault.CRASH_AFTER,), judging=False),
        )
    assert guarded.leak == 0


def test_m12_closing_early_is_seen_in_how_much_is_read():
    with as_client(clients.ClosesEarly):
        audit = audit_client(P3, "greedy", parse("ON"))
    assert audit.leak == pytest.approx(np.log2(3))
    with pytest.raises(PrivacyBreach, match="step 0"):
        audit.require_private()


def test_m4_and_m5_cannot_be_put_on_the_wire_and_are_seen_in_a_log():
    with pytest.raises(InvalidWire, match="ascend"):
        encode_bitmap((2, 0), 3)
    assert "ascend" in audit_log([LogLine(1, 0, (2, 0, 1), True)], P3, "greedy").faults[0].reason


def test_m11_nothing_that_draws_queries_imports_a_seeded_generator():
    source = Path(onoff.__file__).parent
    parts = [
        "tables/table.py",
        *(f"session/{name}.py" for name in ("session", "memories", "filter")),
        *(f"{room}/{p.name}" for room in ("client", "upstream") for p in (source / room).glob("*.py")),
    ]
    for part in parts:
        tree = ast.parse((source / part).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not any(alias.name == "random" or alias.name.startswith("numpy.random") for alias in node.names)
            if isinstance(node, ast.ImportFrom):
                assert node.module not in {"random", "numpy.random", "onoff.session.seeded"}
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
                assert node.attr != "random", part


def test_m16_is_seen_in_a_log():
    assert "ON, but only 2 of the 3" in audit_log([LogLine(1, 0, (0, 2), True)], P3, "greedy").faults[0].reason


# -- controls that must stay at exactly zero -------------------------------------------------------------------


def exactly_zero(audit):
    audit.require_private()
    return audit.leak == 0 and all(step.deviation == 0 for step in audit.steps)


@pytest.mark.parametrize("chain", [P2, P3, P4], ids=["P2", "P3", "P4"])
def test_ordered_pieces_with_a_filter_on_pieces_leak_nothing(chain):
    assert exactly_zero(audit_exact(chain, "twin", parse("ON OFF OFF"), session=lambda: sessions.OrderedPieces(chain)))  # type: ignore[return-value]


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.CRASH_BEFORE, Fault.LOST])
@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_the_same_bytes_again_a_crash_after_the_commit_and_a_lost_state_leak_nothing(chain, fault):
    assert exactly_zero(audit_client(chain, "greedy", parse("ON OFF"), [fault]))


@pytest.mark.parametrize("chain", [MarkovChain([[1.0]]), MarkovChain([[0.3, 0.7]] * 2)], ids=["N=1", "equal rows"])
@pytest.mark.parametrize("make", [Session, sessions.TimeSharing])
def test_where_there_is_nothing_to_tell_even_time_sharing_tells_nothing(chain, make):
    assert exactly_zero(audit_exact(chain, "twin", parse("ON OFF ON OFF"), session=lambda: make(chain, "single")))
