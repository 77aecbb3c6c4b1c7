"""The benchmark of looking ahead: a session whose tables look ahead pays less over ten requests."""

import math

import pytest
from benchmarks.look_ahead import (
    CHAINS,
    CLEAR,
    NEAR_THE_BEST,
    SMALL_CHAINS,
    WAYS,
    against_programming,
    run,
    show,
    total,
)

from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.slow(reason="a benchmark is run, if a small one")


@pytest.mark.parametrize("name", ["ring 20", pytest.param("grid 5x5", marks=pytest.mark.deep)])
def test_looking_ahead_saves_messages_over_ten_requests(name):
    """The seed is fixed, so it holds or it does not; the difference is six standard errors and more."""
    chain = MarkovChain(CHAINS[name]())
    (ahead, error), (plain, its_error) = (total(chain, 30, 1, **WAYS[way]) for way in ("look ahead", "plain"))
    assert plain - ahead > CLEAR * math.hypot(error, its_error)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_all_chains_and_all_ways():
    result = run()
    assert result["ok"]
    for case in result["cases"]:
        assert case["lower"] < case["look ahead"][0] < case["plain"][0] < case["greedy, filter"][0]
        assert case["chain"] in show(result)


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SMALL_CHAINS)
def test_what_ships_is_within_half_a_per_cent_of_dynamic_programming(name):
    case = against_programming(name)
    assert 1 - 1e-9 <= case["programming"] <= case["rest of the run"] + 1e-9
    assert case["rest of the run"] <= case["one ahead"] + 1e-9
    assert case["shipped"] <= case["programming"] * (1 + NEAR_THE_BEST)
