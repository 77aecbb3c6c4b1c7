"""The simulator: in law it is a loop over Session, and the same seed gives the same numbers."""

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from tests.support.typed import present

from onoff.audit.exact import enumerate_branches
from onoff.errors import InvalidInput
from onoff.lab import simulate as module
from onoff.lab.families import dirichlet, out_degree
from onoff.lab.simulate import _Crowd, simulate
from onoff.lab.walk import Pattern, RandomSwitching, States, expected_costs
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

ALPHA = 1e-9
"""Error probability of each G-test; the seeds are fixed besides."""
EXAMPLE = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])


def law_of_session(chain, statuses, memory):
    """P(x_0, q_0, x_1, q_1, ...) by enumeration of the real session's branches, exactly."""
    worlds = [(Fraction(1), (), Session(chain, "greedy", memory))]
    for private in statuses:
        after = []
        for weight, path, session in worlds:
            row = chain.initial_rows() if not path else chain.rows([path[-2]])
            for x, units in zip(row.columns.tolist(), row.weights[0].tolist(), strict=True):

                def ask(entropy, session=session, x=x, private=private):
                    twin = session.fork(entropy)
                    return twin.request(x, private=private).sources, twin

                for branch, (query, twin) in enumerate_branches(ask):
                    after.append((weight * branch * Fraction(units, UNIT), (*path, x, query), twin))
        worlds = after  # type: ignore[assignment]
    law: Counter[Any] = Counter()
    for weight, path, _ in worlds:
        law[path] += weight  # type: ignore[assignment]
    return law


def g_test(seen, law, count):
    """The p-value of the counts under the exact law; outcomes expected less than 5 times are put together."""
    assert set(seen) <= set(law), "an outcome that the session cannot have"
    cells = [(seen[path], float(chance) * count) for path, chance in law.items()]
    rare = [cell for cell in cells if cell[1] < 5]
    cells = [cell for cell in cells if cell[1] >= 5]
    if rare:
        cells.append(tuple(map(sum, zip(*rare, strict=True))))
    g = 2 * sum(observed * np.log(observed / expected) for observed, expected in cells if observed)
    return chi2.sf(g, len(cells) - 1)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("chain", "pattern", "memory"),
    [
        (EXAMPLE, "ON OFF OFF", "last-query"),
        (EXAMPLE, "OFF ON OFF", "last-query"),
        (MarkovChain(out_degree(4, 2, np.random.default_rng(3))), "ON OFF ON", "last-query"),
        (EXAMPLE, "ON OFF OFF", "bayes-filter"),
    ],
)
def test_in_law_it_is_the_session(chain, pattern, memory):
    """G-test of the joint law of all requests and queries, at ALPHA."""
    switching, count = Pattern.parse(pattern), 60_000
    states = States(chain, "greedy", memory)
    paths: list[Any] = []

    def observe(t, numbers, wanted, asked):
        # The paper's filter does not keep the query itself; its size tells enough apart.
        queries = [states[number].anchor for number in numbers.tolist()]
        paths.extend((wanted.tolist(), queries if memory == "last-query" else asked.tolist()))

    simulate(chain, "greedy", switching, count, seed=11, states=states, observe=observe)
    law: Counter[Any] = Counter()
    for path, chance in law_of_session(chain, switching.statuses, memory).items():
        law[path if memory == "last-query" else tuple(p if isinstance(p, int) else len(p) for p in path)] += chance
    assert g_test(Counter(zip(*paths, strict=True)), law, count) > ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("memory", ["last-query", "bayes-filter"])
def test_means_agree_with_exact_expectations(memory):
    """Within 6 standard errors at every step and in all; the seed is fixed."""
    chain = MarkovChain(dirichlet(5, 1.0, np.random.default_rng(2)))
    for switching in (Pattern.parse("ON OFF*3 ON OFF"), RandomSwitching(5, 0.5, 0.3)):
        states = States(chain, "greedy", memory)
        run = simulate(chain, "greedy", switching, 20_000, seed=4, states=states)
        exact = [step.cost for step in present(expected_costs(states, switching))]
        for cost, stderr, value in zip(run.cost, run.stderr, exact, strict=True):
            assert abs(cost - value) <= 6 * present(stderr) + 1e-12
        assert abs(run.total - sum(exact)) <= 6 * present(run.total_stderr)
        assert run.impossible == 0


def test_the_same_seed_gives_the_same_numbers(monkeypatch):
    switching = RandomSwitching(6, 0.4, 0.4)
    monkeypatch.setattr(module, "BLOCK", 300)
    one = simulate(EXAMPLE, "greedy", switching, 1000, seed=1)
    two = simulate(EXAMPLE, "greedy", switching, 1000, seed=1)
    other = simulate(EXAMPLE, "greedy", switching, 1000, seed=2)
    assert (one.sizes == two.sizes).all()
    assert one.total_stderr == two.total_stderr
    assert (one.sizes != other.sizes).any()
    assert one.sizes.sum(axis=1).tolist() == [1000] * 6


def test_means_and_errors_are_those_of_the_sizes():
    run = simulate(EXAMPLE, "greedy", Pattern.parse("ON OFF"), 500, seed=3)
    sizes = np.repeat(np.arange(4), run.sizes[1])
    assert run.cost[1] == pytest.approx(sizes.mean())
    assert run.stderr[1] == pytest.approx(sizes.std(ddof=1) / np.sqrt(500))
    assert run.total_stderr == pytest.approx(run.stderr[1])
    assert run.private.tolist() == [500, 0]
    assert simulate(EXAMPLE, "greedy", Pattern.parse("ON OFF"), 1, seed=3).stderr == [None, None]


def test_given_requests_are_taken_and_impossible_ones_ask_for_everything():
    chain = MarkovChain([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]])
    requests = np.array([[0, 1, 1], [0, 3, 3], [0, 0, 2]])
    run = simulate(chain, "greedy", Pattern.parse("OFF*3"), 3, seed=0, requests=requests)
    assert run.impossible == 2  # 0 -> 3 and 0 -> 2
    assert run.sizes[1].tolist() == [0, 2, 0, 0, 1]
    on = simulate(chain, "greedy", Pattern.parse("OFF ON"), 3, seed=0, requests=requests[:, :2])
    assert on.sizes[1].tolist() == [0, 0, 2, 0, 1]
    forced = simulate(chain, "greedy", Pattern.parse("OFF ON"), 3, seed=0, requests=requests[:, :2], everything=True)
    assert forced.sizes[1].tolist() == [0, 0, 0, 0, 3]
    assert forced.impossible == 0


def test_more_rows_than_one_search_holds():
    """20 rows need two arrays of keys; every query must contain what its user wants."""
    chain = MarkovChain(dirichlet(20, 0.3, np.random.default_rng(0)))
    states = States(chain, "single")
    seen: list[Any] = []

    def observe(t, numbers, wanted, asked):
        if t == 1:
            seen.extend(x in states[number].anchor for number, x in zip(numbers.tolist(), wanted.tolist(), strict=True))

    run = simulate(chain, "single", Pattern.parse("ON OFF"), 3000, seed=0, states=states, observe=observe)
    assert seen == [True] * 3000
    assert abs(run.cost[1] - states[states[0].after_private].cost) <= 6 * present(run.stderr[1]) + 1e-9


def test_samplers_that_were_let_go_are_made_again(monkeypatch):
    chain = MarkovChain(dirichlet(5, 1.0, np.random.default_rng(2)))
    pattern = Pattern.parse("ON OFF*3")
    whole = simulate(chain, "greedy", pattern, 500, seed=4)
    monkeypatch.setattr(module, "SAMPLER_BYTES", 1)
    assert (simulate(chain, "greedy", pattern, 500, seed=4).sizes == whole.sizes).all()


class WithoutTable:
    """A scheme that only draws: the table's own draws behind the smaller interface."""

    def __init__(self, table):
        self._table, self.cost, self.lower_bound, self.nbytes = table, table.cost, None, 0

    def draw(self, u, x, entropy):
        assert isinstance(entropy, SeededEntropy)
        return self._table.draw(u, x, entropy)


@pytest.mark.statistical
def test_schemes_without_a_table_are_drawn_one_by_one(monkeypatch):
    """Within 6 standard errors of the exact expectation; the seed is fixed."""
    pattern = Pattern.parse("ON OFF OFF")
    exact = [step.cost for step in present(expected_costs(States(EXAMPLE, "greedy"), pattern))]
    states = States(EXAMPLE, "greedy")
    of = states.tables.of
    monkeypatch.setattr(states.tables, "of", lambda memory: WithoutTable(of(memory)))
    run = simulate(EXAMPLE, "greedy", pattern, 3000, seed=0, states=states)
    for cost, stderr, value in zip(run.cost, run.stderr, exact, strict=True):
        assert abs(cost - value) <= 6 * present(stderr) + 1e-12
    assert expected_costs(states, pattern) is None


@pytest.mark.parametrize(("users", "seed", "shape"), [(0, 0, None), (10, -1, None), (10, 0, (9, 2)), (10, 0, (10, 3))])
def test_what_cannot_be_simulated_is_refused(users, seed, shape):
    requests = None if shape is None else np.zeros(shape, dtype=np.int64)
    with pytest.raises(InvalidInput):
        simulate(EXAMPLE, "greedy", Pattern.parse("ON OFF"), users, seed, requests=requests)


def test_the_error_of_a_large_total_is_exact(monkeypatch):
    """Squares of totals beyond 2**63 when added up, and almost equal: in floats nothing would be left of the spread."""
    monkeypatch.setattr(_Crowd, "run", lambda self, count, *rest: np.arange(count) + 3 * 10**9)
    run = simulate(EXAMPLE, "greedy", Pattern.parse("ON"), 1000, seed=1)
    assert run.total_stderr == pytest.approx(np.arange(1000).std(ddof=1) / np.sqrt(1000), rel=1e-12)
