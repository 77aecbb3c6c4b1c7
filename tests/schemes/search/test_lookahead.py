"""lookahead: a set is worth the bounds of what follows it, or by dynamic programming what that costs at the least."""

from itertools import combinations

import numpy as np
import pytest
from benchmarks.over_sets import OverSets
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onoff.lab import families
from onoff.model.bounds import bounds
from onoff.model.chain import MarkovChain
from onoff.model.rows import Rows
from onoff.schemes.search.lookahead import RUN, Horizon, SuccessorCost
from onoff.session.seeded import SeededEntropy
from onoff.session.session import MEMORIES, Session

CHAINS = {
    "ring 6": lambda: families.ring(6),
    "dense 5": lambda: families.dirichlet(5, 0.3, np.random.default_rng(1)),
    "out-degree 3": lambda: families.out_degree(5, 3, np.random.default_rng(2)),
}


def never():
    return False


def valued(horizon, rows, chosen, requests, depth):
    """V of one set."""
    columns = tuple(rows.columns.tolist())
    assert horizon.value(chosen, requests, depth, never)
    number = sum(1 << columns.index(x) for x in chosen)
    return horizon.values(columns, np.zeros(1 << len(columns)), requests, depth)[number]


@pytest.mark.parametrize("name", CHAINS)
def test_to_the_end_of_a_run_values_are_those_of_dynamic_programming(name):
    """The baseline of the benchmark has code of its own: it shares the solver and nothing else."""
    matrix = CHAINS[name]()
    rows, everything = Rows.of(matrix), tuple(range(len(matrix)))
    assert valued(Horizon.of(rows), rows, everything, 3, 3) == pytest.approx(OverSets(matrix, 3).best(), abs=1e-7)


@pytest.mark.parametrize("name", CHAINS)
def test_values_grow_with_their_depth_from_the_bounds(name):
    matrix = CHAINS[name]()
    rows, chosen = Rows.of(matrix), (0, 1, 3, 4)
    sets = np.isin(rows.columns, chosen)[None]
    values = [valued(Horizon.of(rows), rows, chosen, 10, depth) for depth in (1, 2, 3)]
    assert SuccessorCost(rows, rows)(sets)[0] <= values[0] + 1e-9
    assert values[0] <= values[1] + 1e-9
    assert values[1] <= values[2] + 1e-9


def test_what_symmetries_take_to_one_another_is_valued_once():
    rows = Rows.of(families.ring(6))
    horizon = Horizon.of(rows)
    assert horizon.tells_more
    assert horizon.value((0, 1, 3), 4, 1, never)
    solved = horizon.solved
    turned = [tuple(sorted((x + k) % 6 for x in (0, 1, 3))) for k in range(6)]
    assert horizon.missing(turned, 4, 1) == []
    assert horizon.missing(list(combinations(range(6), 2)), 4, 1) != []
    assert horizon.solved == solved
    assert not Horizon.of(Rows.of(CHAINS["dense 5"]())).tells_more


def test_it_ends_where_the_time_is_over():
    rows = Rows.of(families.ring(6))
    assert not Horizon.of(rows).value((0, 2, 4), 5, 2, lambda: True)
    assert Horizon.of(rows).missing([(0, 2, 4)], 5, 2) == [(0, 2, 4)]


def with_start_pages(rng, reached, start_pages, symmetric):
    """A random chain with zeros whose start pages are reached from nowhere, turned by a permutation where symmetric."""
    n = reached + start_pages
    p = np.zeros((n, n))
    p[:, :reached] = rng.dirichlet(np.full(reached, 0.5), size=n) * (rng.random((n, reached)) < 0.7)
    p[np.arange(n), np.arange(n) % reached] += 0.1
    if symmetric:
        turn = np.concatenate([rng.permutation(reached), reached + rng.permutation(start_pages)])
        turned, total, power = np.arange(n), np.zeros_like(p), turn
        while True:
            total += p[np.ix_(power, power)]
            if (power == turned).all():
                break
            power = turn[power]
        p = total
    p /= p.sum(axis=1, keepdims=True)
    renamed = rng.permutation(n)  # start pages stand anywhere
    return p[np.ix_(renamed, renamed)]


@given(
    seed=st.integers(0, 2**32),
    reached=st.integers(2, 6),
    start_pages=st.integers(0, 3),
    symmetric=st.booleans(),
    memory=st.sampled_from(MEMORIES),
)
@example(seed=0, reached=4, start_pages=1, symmetric=True, memory="last-query")
@example(seed=0, reached=4, start_pages=1, symmetric=True, memory="bayes-filter")
@settings(max_examples=30, deadline=None)
def test_a_default_session_answers_whatever_sources_are_reached_from_nowhere(
    seed, reached, start_pages, symmetric, memory
):
    rng = np.random.default_rng(seed)
    chain = MarkovChain(with_start_pages(rng, reached, start_pages, symmetric))
    session = Session(chain, memory=memory, entropy=SeededEntropy(rng))
    wanted = int(rng.integers(chain.n))
    session.request(wanted, private=True)
    for _ in range(2):
        wanted = int(rng.choice(chain.n, p=chain.dense()[wanted]))
        assert wanted in session.request(wanted, private=False)


def test_symmetries_of_sources_are_found_beside_a_start_page():
    """The page stands first, so that the number of a source and that of its column differ."""
    matrix = np.zeros((7, 7))
    matrix[0, 1:] = 1 / 6
    matrix[1:, 1:] = families.ring(6)
    horizon = Horizon.of(Rows.of(matrix))
    assert horizon.value((1, 2, 4), 4, 1, never)
    turned = [tuple(sorted((x + k) % 6 + 1 for x in (0, 1, 3))) for k in range(6)]
    assert horizon.missing(turned, 4, 1) == []


def test_the_value_is_the_sum_of_the_simple_bounds_of_the_rows_that_follow():
    p = families.FAMILIES["out-degree 3"](8, np.random.default_rng(1))
    chain = Rows.of(p)
    present = Rows.of(p[:3])
    sets = np.random.default_rng(2).random((20, len(present.columns))) < 0.5
    sets = sets[sets.any(axis=1)]
    for chosen, v in zip(sets, SuccessorCost(present, chain)(sets), strict=True):
        expected = 0.0
        for k in range(1, RUN + 1):
            simple = bounds(np.linalg.matrix_power(p, k)[present.columns[chosen]])
            expected += max(simple.outer, simple.doeblin)
        assert v == pytest.approx(expected, abs=1e-9)


def test_all_sets_at_once_have_the_values_that_each_has():
    p = families.dirichlet(7, 1.0, np.random.default_rng(3))
    chain, present = Rows.of(p), Rows.of(p[:2])
    future = SuccessorCost(present, chain)
    sets = (np.arange(1, 1 << 7)[:, None] >> np.arange(7)) & 1 == 1
    assert future.of_all()[1:] == pytest.approx(future(sets), abs=1e-12)
    assert future.of_all()[0] == 0.0
