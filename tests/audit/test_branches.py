"""Choices that an audit controls: every branch is enumerated once, scripts are replayed."""

from fractions import Fraction

import pytest

from onoff.audit.exact import EnumeratingEntropy, ScriptedEntropy, enumerate_branches
from onoff.errors import InvalidInput


def test_every_branch_is_taken_once_with_its_exact_probability():
    def run(entropy):
        first = entropy.choose([1, 2])
        return (first, entropy.choose([0, 3, 1]) if first else None)

    branches = {outcome: p for p, outcome in enumerate_branches(run)}
    assert branches == {(0, None): Fraction(1, 3), (1, 1): Fraction(1, 2), (1, 2): Fraction(1, 6)}


def test_a_run_without_choices_has_one_branch():
    assert list(enumerate_branches(lambda entropy: "done")) == [(1, "done")]  # type: ignore[comparison-overlap]


def test_scripts_replay_and_refuse_impossible_choices():
    script = ScriptedEntropy([1, 0])
    assert script.choose([5, 5]) == 1
    with pytest.raises(ValueError, match="no weight"):
        script.choose([0, 5])
    with pytest.raises(TypeError):
        script.uniforms(1)
    with pytest.raises(InvalidInput, match="cannot be audited exactly"):
        EnumeratingEntropy().uniforms(1)
