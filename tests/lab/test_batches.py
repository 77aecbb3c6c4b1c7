"""Paths and batches of users: the law of what is downloaded is that of sessions one by one, chains and models alike."""

from typing import Any

import numpy as np
import pytest
from tests.support.chains import request_model
from tests.support.typed import present

from onoff.lab.families import sparse_out_degree
from onoff.lab.simulate import SHARED_FROM, shares, simulate
from onoff.lab.walk import Pattern, RandomSwitching, States, expected_costs, sampled_paths
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

pytestmark = pytest.mark.slow(reason="whole experiments are run")

P3 = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
CHAIN = MarkovChain(P3)
MODEL = request_model(P3, ("a", "b", "c"))
PATTERN = Pattern.parse("ON OFF OFF ON OFF")


def test_a_chain_costs_what_its_states_say():
    exact = [step.cost for step in present(expected_costs(States(CHAIN, "greedy"), PATTERN))]
    paths = sampled_paths(States(CHAIN, "greedy"), PATTERN, 600, np.random.default_rng(0))
    apart = np.abs(paths.sizes.mean(axis=0) - exact)
    assert (apart <= 5 * paths.sizes.std(axis=0) / np.sqrt(600) + 1e-9).all()
    assert paths.expected.mean(axis=0) == pytest.approx(exact, abs=0.05)
    assert paths.private.tolist() == [[1, 0, 0, 1, 0]] * 600


@pytest.mark.parametrize("scheme", ["greedy", "race"])
def test_a_model_costs_what_sessions_of_it_cost(scheme):
    rng = np.random.default_rng(1)
    sizes = []
    for path in MODEL.sample_many(400, 5, rng).tolist():
        session = Session(MODEL, scheme, entropy=SeededEntropy(rng))
        sizes.append([len(session.request(x, private=on)) for x, on in zip(path, PATTERN.statuses, strict=True)])
    one_by_one = np.array(sizes)
    paths = sampled_paths(States(MODEL, scheme), PATTERN, 400, rng)
    error = np.sqrt((one_by_one.var(axis=0) + paths.sizes.var(axis=0)) / 400)
    assert (np.abs(one_by_one.mean(axis=0) - paths.sizes.mean(axis=0)) <= 5 * error + 1e-9).all()


def test_every_step_is_reported_and_the_seed_decides():
    made: list[Any] = []
    one = sampled_paths(States(MODEL, "greedy"), PATTERN, 4, np.random.default_rng(3), made.append)
    assert made == list(range(1, 21))
    again = sampled_paths(States(MODEL, "greedy"), PATTERN, 4, np.random.default_rng(3))
    assert (one.sizes == again.sizes).all()
    assert 1 <= one.tables <= 12


def test_random_switching_is_drawn_for_each_batch():
    states = States(CHAIN, "single", everything=True)
    paths = sampled_paths(states, RandomSwitching(6, 0.5, 0.5), 30, np.random.default_rng(0))
    assert paths.private[:, 0].all()
    assert 0 < paths.private[:, 1:].mean() < 1
    assert (paths.sizes[paths.private == 1] == 3).all()


def test_simulating_a_model_shares_queries_in_batches():
    found = simulate(MODEL, "greedy", PATTERN, 1000, seed=2)
    assert found.batches == 40
    assert found.sizes.sum(axis=1).tolist() == [1000] * 5
    assert (found.sizes[:, 1:] % 25 == 0).all()  # 25 users in each batch
    assert found.private.tolist() == [1000, 0, 0, 1000, 0]
    assert found.stderr == list(found.between)
    assert found.stderr[0] == 0 < present(found.stderr[1])
    assert simulate(MODEL, "greedy", PATTERN, 3, seed=2).batches == 3
    alone = simulate(MODEL, "greedy", PATTERN, 1, seed=2)
    assert alone.total_stderr is None
    assert alone.stderr == [None] * 5


def test_real_requests_go_through_sessions_of_the_model():
    requests = MODEL.sample_many(50, 5, np.random.default_rng(0))
    done: list[Any] = []
    found = simulate(MODEL, "greedy", PATTERN, 50, seed=2, requests=requests, progress=done.append)
    assert found.batches == 0
    assert done == list(range(1, 51))
    assert found.cost[0] == 3
    assert 1 <= found.cost[1] < 3
    assert found.impossible == 0


def test_chains_share_where_a_table_takes_a_search():
    large = MarkovChain(np.full((SHARED_FROM + 1,) * 2, 1 / (SHARED_FROM + 1)))
    assert shares(large, "auto", 1000)
    assert not shares(large, "greedy", 1000)
    assert not shares(large, "auto", 40)
    assert not shares(CHAIN, "auto", 1000)
    assert shares(MODEL, "greedy", 2)
    assert shares(MarkovChain(sparse_out_degree(40, 3, np.random.default_rng(0))), "auto", 1000)


def test_a_sparse_chain_goes_through_in_batches():
    chain = MarkovChain(sparse_out_degree(40, 3, np.random.default_rng(0)))
    assert chain.is_sparse
    found = simulate(chain, "auto", Pattern.parse("ON OFF OFF"), 80, seed=0)
    assert found.batches == 40
    assert 40 >= found.cost[0] > found.cost[1] > found.cost[2] > 1


def test_progress_moves_within_a_block():
    done: list[Any] = []
    simulate(CHAIN, "greedy", Pattern.parse("ON OFF OFF OFF"), 800, seed=0, progress=done.append)
    assert done == sorted(done)
    assert done[0] == 200  # all of them are a quarter through
    assert done[-1] == 800
    assert len(done) > 6
