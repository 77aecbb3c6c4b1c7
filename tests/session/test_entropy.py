"""Entropy: exact weights, the operating system only, every branch enumerated once."""

from fractions import Fraction

import pytest
from scipy.stats import binom

from onoff.errors import InvalidInput
from onoff.session.entropy import EnumeratingEntropy, ScriptedEntropy, SystemEntropy, enumerate_branches


def test_system_choice_follows_the_weights():
    """Error probability 1e-9 per side: an exact binomial interval for 60,000 draws with weights 1 : 0 : 3."""
    draws = [SystemEntropy().choose([1, 0, 3]) for _ in range(60_000)]
    assert draws.count(1) == 0
    assert binom.ppf(1e-9, 60_000, 0.25) <= draws.count(0) <= binom.ppf(1 - 1e-9, 60_000, 0.25)


def test_system_uniforms_lie_inside_the_open_interval():
    values = SystemEntropy().uniforms(10_000)
    assert values.shape == (10_000,)
    assert 0 < values.min() < values.max() < 1


@pytest.mark.parametrize(("byte", "expected"), [(b"\x00", 2.0**-54), (b"\xff", 1 - 2.0**-53)])
def test_the_rarest_system_uniforms_lie_inside_too(monkeypatch, byte, expected):
    """One in 2**53 each: all bits 0, all bits 1."""
    monkeypatch.setattr("os.urandom", lambda count: byte * count)
    assert SystemEntropy().uniforms(3).tolist() == [expected] * 3


def test_every_branch_is_taken_once_with_its_exact_probability():
    def run(entropy):
        first = entropy.choose([1, 2])
        return (first, entropy.choose([0, 3, 1]) if first else None)

    branches = {outcome: p for p, outcome in enumerate_branches(run)}
    assert branches == {(0, None): Fraction(1, 3), (1, 1): Fraction(1, 2), (1, 2): Fraction(1, 6)}


def test_a_run_without_choices_has_one_branch():
    assert list(enumerate_branches(lambda entropy: "done")) == [(1, "done")]


def test_scripts_replay_and_refuse_impossible_choices():
    script = ScriptedEntropy([1, 0])
    assert script.choose([5, 5]) == 1
    with pytest.raises(ValueError, match="no weight"):
        script.choose([0, 5])
    with pytest.raises(TypeError):
        script.uniforms(1)
    with pytest.raises(InvalidInput, match="cannot be enumerated"):
        EnumeratingEntropy().uniforms(1)
