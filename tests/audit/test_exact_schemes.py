"""Every scheme with a table, with both memories, leaks exactly nothing: N = 2, 3, 4, the three patterns that matter.

`ON OFF` alone would pass with a dead memory, a missing reset and unsorted queries; these patterns do not.
"""

import numpy as np
import pytest

from onoff.audit.exact import audit_exact
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.session.session import MEMORIES

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

CHAINS = {
    "N=2": MarkovChain([[0.8, 0.2], [0.2, 0.8]]),
    "N=3": MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]),
    "N=4": MarkovChain(np.random.default_rng(4).dirichlet(np.ones(4), size=4)),
}
PATTERNS = ("ON OFF OFF OFF", "ON OFF ON OFF OFF", "ON ON OFF OFF")
ROUNDING = 1e-18  # about a unit of 2**-60


def takes_long(name, pattern, scheme, memory):
    """With four sources five steps; and four steps where every query leads to an optimum of its own."""
    return name == "N=4" and (
        len(pattern) > 15
        or (pattern == PATTERNS[0] and scheme in {"enumerated", "optimal"} and memory == "bayes-filter")
    )


@pytest.mark.parametrize(
    ("chain", "pattern", "scheme", "memory"),
    [
        pytest.param(
            chain,
            pattern,
            scheme,
            memory,
            marks=[pytest.mark.deep] if takes_long(name, pattern, scheme, memory) else [],
            id=f"{name} {pattern}-{scheme}-{memory}",
        )
        for name, chain in CHAINS.items()
        for pattern in PATTERNS
        for scheme in ("full", "single", "greedy", "enumerated", "optimal")
        for memory in MEMORIES
    ],
)
def test_nothing_leaks(chain, pattern, scheme, memory):
    audit = audit_exact(chain, scheme, parse(pattern), memory)
    audit.require_private()
    assert audit.leak == 0
    assert not any(step.undecodable for step in audit.steps)
    if memory == "last-query":
        assert [step.deviation for step in audit.steps] == [0] * len(audit.steps)
    else:
        assert audit.rounding < ROUNDING
