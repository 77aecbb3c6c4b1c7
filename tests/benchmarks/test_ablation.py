"""The benchmark of strategies: only what ran is left out, and what it is worth is the difference."""

import pytest

from benchmarks import ablation

pytestmark = pytest.mark.slow(reason="a benchmark is run, if a small one")


def test_the_suite_has_fifty_instances_of_many_kinds():
    assert len(ablation.SUITE) >= 40
    assert len({name.rsplit(",")[0] for name in ablation.SUITE}) >= 15


def test_strategies_that_ran_are_left_out_in_turn():
    result = ablation.run(0.3, names=["3 random successors, 40"], without=["Herding", "Orbits", "FewRows"])
    (case,) = result["cases"]
    assert "Herding" in case["without"]
    assert "FewRows" not in case["without"]
    assert case["whole"]["cost"] >= case["whole"]["bound"] * (1 - 1e-9)
    assert result["worth"]["FewRows"]["cost"] == 0.0
    expected = case["without"]["Herding"]["cost"] / case["whole"]["cost"] - 1
    assert result["worth"]["Herding"]["cost"] == pytest.approx(expected)
    shown = ablation.show([result])
    assert "| Herding | 1 |" in shown
    assert "3 random successors, 40" in shown
