"""Expected costs, lower bounds and leaks against the exact audit, which enumerates the real session."""

import numpy as np
import pytest
from tests.support.typed import present

from onoff.audit.exact import audit_exact
from onoff.lab.families import dirichlet, out_degree, symmetric
from onoff.lab.walk import Pattern, RandomSwitching, States, expected_costs, lower_bounds, naive_leaks, sampled_costs
from onoff.model.bounds import bounds, symmetric_cost
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse

EXAMPLE = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
SPARSE = MarkovChain(out_degree(4, 2, np.random.default_rng(3)), initial=[0.5, 0.5, 0, 0])


def costs(chain, scheme, switching, memory="last-query", **options):
    return [step.cost for step in present(expected_costs(States(chain, scheme, memory), switching, **options))]


@pytest.mark.parametrize("memory", ["last-query", "bayes-filter"])
@pytest.mark.parametrize("scheme", ["greedy", "single", "full"])
@pytest.mark.parametrize("pattern", ["ON OFF OFF ON OFF", "OFF ON ON OFF", "OFF OFF"])
@pytest.mark.parametrize("chain", [MarkovChain(EXAMPLE), SPARSE], ids=["3x3", "sparse"])
def test_expected_costs_are_those_of_the_enumerated_session(chain, pattern, scheme, memory):
    exact = audit_exact(chain, scheme, parse(pattern), memory)
    assert costs(chain, scheme, Pattern.parse(pattern), memory) == pytest.approx(
        [s.cost for s in exact.steps], rel=1e-12
    )


def test_the_symmetric_chain_has_its_closed_form():
    chain = MarkovChain(symmetric(5, 0.6))
    found = costs(chain, "greedy", Pattern.parse("ON OFF*6"))
    assert found == pytest.approx([symmetric_cost(5, 0.6, k) for k in range(7)], rel=1e-12)


def test_random_switching_averages_over_its_patterns():
    """Four patterns of three steps, each weighted by its probability."""
    chain = MarkovChain(EXAMPLE)
    process = RandomSwitching(3, turn_off=0.3, turn_on=0.2)
    weighted = {"ON ON ON": 0.49, "ON ON OFF": 0.21, "ON OFF ON": 0.06, "ON OFF OFF": 0.24}
    by_hand = sum(w * np.array(costs(chain, "greedy", Pattern.parse(p))) for p, w in weighted.items())
    assert costs(chain, "greedy", process) == pytest.approx(by_hand, rel=1e-12)
    bound = sum(w * np.array(lower_bounds(chain, Pattern.parse(p))) for p, w in weighted.items())
    assert lower_bounds(chain, process) == pytest.approx(bound, rel=1e-12)
    leak = sum(w * np.array(naive_leaks(chain, Pattern.parse(p))) for p, w in weighted.items())
    assert naive_leaks(chain, process) == pytest.approx(leak, rel=1e-9)


def test_too_many_states_are_not_walked():
    chain = MarkovChain(dirichlet(6, 1.0, np.random.default_rng(0)))
    assert expected_costs(States(chain, "greedy"), Pattern.parse("ON OFF*3"), most_states=3) is None


@pytest.mark.statistical
@pytest.mark.parametrize("memory", ["last-query", "bayes-filter"])
def test_descents_agree_with_the_exact_expectation(memory):
    """Within 6 standard errors at every step; the seed is fixed, so this never fails by chance."""
    chain = MarkovChain(dirichlet(4, 1.0, np.random.default_rng(7)))
    pattern = Pattern.parse("ON OFF*3 ON OFF")
    exact = costs(chain, "greedy", pattern, memory)
    drawn = sampled_costs(States(chain, "greedy", memory), pattern, 4000, np.random.default_rng(1))
    for step, value in zip(drawn, exact, strict=True):
        assert abs(step.cost - value) <= 6 * step.stderr + 1e-9
    assert max(step.stderr for step in drawn) < 0.05
    again = sampled_costs(States(chain, "greedy", memory), pattern, 4000, np.random.default_rng(1))
    assert drawn == again


@pytest.mark.parametrize("pattern", ["ON OFF ON ON OFF OFF", "OFF ON OFF", "ON*3 OFF", "OFF OFF ON"])
def test_naive_leaks_are_those_of_the_exact_audit(pattern):
    for chain in (MarkovChain(EXAMPLE, initial=[0.2, 0.3, 0.5]), SPARSE):
        audit = audit_exact(chain, "naive", parse(pattern))
        assert naive_leaks(chain, Pattern.parse(pattern)) == pytest.approx(audit.naive, abs=1e-12)


def test_lower_bounds_hold_and_are_the_best_known():
    chain = MarkovChain(EXAMPLE)
    pattern = Pattern.parse("OFF ON OFF OFF ON OFF")
    squared = bounds(np.linalg.matrix_power(chain.transition, 2)).lower
    assert lower_bounds(chain, pattern) == pytest.approx([1, 3, 1.6, squared, 3, 1.6])
    for cost, bound in zip(costs(chain, "greedy", pattern), lower_bounds(chain, pattern), strict=True):
        assert cost >= present(bound) - 1e-12


def test_with_zeros_only_what_is_certain_is_bounded():
    """Two sources are possible first, so the paper's bound over all four would be false (its erratum)."""
    found = lower_bounds(SPARSE, Pattern.parse("ON OFF ON OFF"))
    assert found[0] == 2
    assert found[1] == pytest.approx(bounds(SPARSE.rows([0, 1])).lower)
    assert found[2:] == [None, None]
    assert bounds(SPARSE).outer > costs(SPARSE, "greedy", Pattern.parse("ON OFF"))[1] >= present(found[1]) - 1e-12


def test_random_switching_with_zeros_keeps_the_certain_paths_apart():
    found = lower_bounds(SPARSE, RandomSwitching(3, 0.5, 0.5))
    assert found[0] == 2
    assert found[1] is not None
    assert found[2] is None
    assert lower_bounds(SPARSE, RandomSwitching(3, 0.0, 0.5))[2] is not None
