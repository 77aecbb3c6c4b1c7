"""The benchmark of the simulator measures what it says, with few users."""

import json

import numpy as np
import pytest

from benchmarks import simulate
from onoff.lab.walk import Pattern, States
from onoff.model.chain import MarkovChain


@pytest.mark.slow(reason="programs are started and waited for")
def test_it_times_both_and_shows_the_ratio():
    result = simulate.run(users=300, loop_users=20)
    assert result["ratio"] == result["warm_per_second"] / result["loop_per_second"]
    assert json.loads(json.dumps(result)) == result
    assert "in a loop over Session" in simulate.show(result)


def test_the_loop_is_one_session_a_user():
    chain = MarkovChain(np.full((3, 3), 1 / 3))
    states = States(chain, "greedy")
    assert simulate.loop(chain, states, Pattern.parse("ON OFF OFF"), 4, seed=0) == [5, 5, 5, 5]
