"""Entropy: exact weights, from the operating system only."""

import pytest
from scipy.stats import binom

from onoff.session.session import SystemEntropy


@pytest.fixture
def same_draws():
    """Real ones."""


def test_system_choice_follows_the_weights():
    """Error probability 1e-10 per side: an exact binomial interval for 60,000 draws with weights 1 : 0 : 3."""
    draws = [SystemEntropy().choose([1, 0, 3]) for _ in range(60_000)]
    assert draws.count(1) == 0
    assert binom.ppf(1e-10, 60_000, 0.25) <= draws.count(0) <= binom.isf(1e-10, 60_000, 0.25)


def test_system_uniforms_lie_inside_the_open_interval():
    values = SystemEntropy().uniforms(10_000)
    assert values.shape == (10_000,)
    assert 0 < values.min() < values.max() < 1


@pytest.mark.parametrize(("byte", "expected"), [(b"\x00", 2.0**-54), (b"\xff", 1 - 2.0**-53)])
def test_the_rarest_system_uniforms_lie_inside_too(monkeypatch, byte, expected):
    """One in 2**53 each: all bits 0, all bits 1."""
    monkeypatch.setattr("os.urandom", lambda count: byte * count)
    assert SystemEntropy().uniforms(3).tolist() == [expected] * 3
