"""The benchmark of sessions: runs are paired, and what is clearly dearer is said."""

import pytest
from benchmarks.session import clearly_dearer, mean_and_error, run, show

pytestmark = pytest.mark.slow(reason="a benchmark is run, if a small one")


def test_auto_is_not_dearer_than_greedy_or_the_race_on_five_sources():
    result = run([5])
    assert result["ok"]
    assert {case["scheme"] for case in result["cases"]} == {"auto", "greedy", "race"}
    for case in result["cases"]:
        assert case["chain"] in show(result)
        if case["scheme"] == "auto":
            assert case["dearer"] == [0.0, 0.0]


def test_a_difference_counts_from_two_standard_errors_on():
    mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert error == pytest.approx((5 / 3 / 4) ** 0.5)
    assert clearly_dearer({"dearer": [0.3, 0.1]})
    assert not clearly_dearer({"dearer": [0.3, 0.2]})
    assert not clearly_dearer({"dearer": [0.0, 0.0]})
