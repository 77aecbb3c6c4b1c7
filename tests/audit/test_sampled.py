"""The statistical audit: rejects what leaks, lets pass what does not, and errs as often as it says.

Error probabilities: a true client fails an audit with probability 1e-6; the leaky ones pass with less than 1e-6 at the
numbers of sessions used here, which exceed those of the threat model. The calibration tests state their own.
"""

import numpy as np
import pytest
from scipy.stats import binom, chi2
from tests.audit.chains import P2, P3
from tests.audit.controls import clients, sessions
from tests.audit.controls.clients import as_client

from onoff.audit.client import Fault, client_user
from onoff.audit.sampled import (
    LEAST_EXPECTED,
    Trial,
    collect,
    g_statistic,
    judge,
    pooled,
    session_user,
    smallest_leak,
)
from onoff.errors import InvalidInput
from onoff.model.patterns import parse
from onoff.session import Session

pytestmark = pytest.mark.statistical

LEAKY = {
    "m1": (sessions.TimeSharing, "ON OFF", 500),
    "m2": (sessions.Forgetful, "ON OFF OFF", 800),
    "m3": (sessions.NeverAnchoredAgain, "ON OFF ON OFF", 700),
    "m8": (sessions.BlindTable, "ON OFF", 700),
    "m9": (sessions.SkipsIfCached, "ON OFF", 700),
    "m10": (sessions.TwoDevices, "ON ON OFF", 700),
}
BROKEN_CLIENTS = {
    "m6": (clients.RedrawsOnRetry, Fault.LOST_ANSWER, 1, "ON OFF", 500),
    "m7": (clients.SendsFirstAndTrusts, Fault.CRASH_AFTER, 1, "ON OFF OFF", 1500),
    "m10": (clients.Trusting, Fault.RESTORED, 2, "ON OFF OFF", 1500),
}


def audit_of(user, chain, pattern, count):
    return judge(collect(chain, parse(pattern), user, count), parse(pattern))


@pytest.mark.parametrize("name", LEAKY)
def test_a_leaky_session_is_rejected(name):
    twin, pattern, count = LEAKY[name]
    audit = audit_of(session_user(twin(P2, "single")), P2, pattern, count)
    assert not audit.passed
    assert "private request" in audit.breach


@pytest.mark.parametrize("pattern", ["ON OFF OFF", "ON OFF ON OFF"])
def test_the_true_session_passes_and_says_what_it_could_have_missed(pattern):
    audit = audit_of(session_user(Session(P3, "greedy")), P3, pattern, 1000)
    assert audit.passed
    assert 0.01 < audit.smallest < 1
    report = audit.as_dict()
    assert report["breach"] is None
    assert report["looks"][0]["smallest"] is None  # ON shows always the same
    assert all(one["upper"] > one["advantage"] for one in report["attacks"])


def test_a_client_that_redraws_is_rejected():
    twin, fault, at, pattern, count = BROKEN_CLIENTS["m6"]
    with as_client(twin):
        assert not audit_of(client_user(P2, "single", fault, at, judging=False), P2, pattern, count).passed


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LEAKY)
@pytest.mark.parametrize("chain", [P2, P3], ids=["P2", "P3"])
def test_leaky_sessions_are_rejected_20_times_of_20(name, chain):
    twin, pattern, count = LEAKY[name]
    user = session_user(twin(chain, "greedy"))
    assert sum(not audit_of(user, chain, pattern, 2 * count).passed for _ in range(20)) == 20


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", BROKEN_CLIENTS)
def test_leaky_clients_are_rejected_20_times_of_20(name):
    twin, fault, at, pattern, count = BROKEN_CLIENTS[name]
    with as_client(twin):
        user = client_user(P2, "greedy", fault, at, judging=False)
        assert sum(not audit_of(user, P2, pattern, count).passed for _ in range(20)) == 20


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", [Fault.NONE, Fault.LOST_ANSWER, Fault.CRASH_AFTER, Fault.RESTORED])
def test_the_true_client_is_rejected_0_times_of_200(fault):
    """50 audits for each fault: 200 in all, each wrong with probability 1e-6."""
    user = client_user(P3, "greedy", fault, at=1)
    assert sum(not audit_of(user, P3, "ON OFF OFF", 300).passed for _ in range(50)) == 0


# -- calibration -----------------------------------------------------------------------------------------------


def null_p_values(count, n, rng, rows=4, columns=6):
    """p-values of the G-test on independent draws with uneven margins, rare values included."""
    left, right = rng.dirichlet(np.ones(rows)), rng.dirichlet(np.full(columns, 0.5))
    found = []
    for drawn in rng.multinomial(n, np.outer(left, right).reshape(-1), size=count).reshape(count, rows, columns):
        table = drawn[drawn.any(axis=1)][:, drawn.any(axis=0)].astype(float)
        statistic, degrees = g_statistic(pooled(table))
        if degrees:
            found.append(chi2.sf(statistic, degrees))
    return np.array(found)


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_under_independence_the_g_test_errs_as_often_as_it_says(level):
    """Seeded. 5,000 tables of 100 laws: the errors lie between what 0.9 and 1.1 of the level explain, at 1e-6 each."""
    rng = np.random.default_rng(5)
    p = np.concatenate([null_p_values(50, n, rng) for _ in range(20) for n in (80, 150, 300, 600, 1200)])
    errors = int((p < level).sum())
    assert errors <= binom.isf(1e-6, len(p), 1.1 * level)
    assert errors >= binom.ppf(1e-6, len(p), 0.9 * level)


def test_rare_values_are_put_together_until_counts_are_large_enough():
    table = pooled(np.array([[500.0, 3, 2], [400, 4, 1], [2, 1, 0]]))
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    assert table.sum() == 913
    assert 1 in table.shape or expected.min() >= LEAST_EXPECTED
    big = np.full((3, 3), 100.0)
    assert np.array_equal(pooled(big), big)
    assert g_statistic(np.ones((1, 5))) == (0.0, 0)


def test_the_g_statistic_is_the_textbooks():
    """Sokal and Rohlf's corrected G of a 2 x 2 table, worked by hand."""
    table = np.array([[30.0, 10], [20, 40]])
    n, r, c = 100, [40, 60], [50, 50]
    raw = 2 * sum(table[i, j] * np.log(table[i, j] * n / (r[i] * c[j])) for i in range(2) for j in range(2))
    q = 1 + (n / 40 + n / 60 - 1) * (n / 50 + n / 50 - 1) / (6 * n)
    assert g_statistic(table) == (pytest.approx(raw / q), 1)


def test_a_leak_of_the_smallest_size_is_found_as_often_as_promised():
    """Seeded. At beta = 0.1 the test of a leak of exactly that size must find it about 90 times of 100.

    1,000 runs: the count lies within the central 1 - 1e-6 of Binomial(1000, 0.9), widened by the approximation (0.03).
    """
    rng, n, level = np.random.default_rng(6), 2000, 1e-3
    bits = smallest_leak(1, n, level, beta=0.1)
    joint = leaking_pair(bits)
    found = 0
    for _ in range(1000):
        table = rng.multinomial(n, joint.reshape(-1)).reshape(2, 2).astype(float)
        statistic, degrees = g_statistic(table)
        found += chi2.sf(statistic, degrees) < level
    assert binom.ppf(1e-6, 1000, 0.87) <= found <= binom.isf(1e-6, 1000, 0.93)


def leaking_pair(bits):
    """A symmetric pair of bits that share so many bits of information."""
    from scipy.optimize import brentq

    def information(e):
        return 1 + (0.5 + e) * np.log2(0.5 + e) + (0.5 - e) * np.log2(0.5 - e)

    e = brentq(lambda e: information(e) - bits, 1e-9, 0.49)
    return np.array([[0.25 + e / 2, 0.25 - e / 2], [0.25 - e / 2, 0.25 + e / 2]])


def test_numbers_of_the_threat_model():
    """alpha = beta = 1e-6: 0.185 bits take about 416 sessions, 0.001 bits about 10^5."""
    assert smallest_leak(4, 416, 1e-6) == pytest.approx(0.185, rel=0.1)
    assert smallest_leak(4, 100_000, 1e-6) < 0.001
    assert smallest_leak(0, 100, 1e-6) == np.inf


def test_too_few_sessions_are_refused():
    with pytest.raises(InvalidInput, match="too few"):
        judge([Trial((0,), ((0,),))] * 99, (True,))
