"""What a wrong chain leaks: exact values agree with the enumeration, and no bound is ever exceeded."""

import numpy as np
import pytest
from tests.support.chains import NAMED, P2, P3

from onoff.errors import InvalidInput
from onoff.lab.mismatch import (
    DIRECTIONS,
    bounds_for,
    enumerated,
    error_curve,
    filter_bits_bound,
    first_step,
    moved,
    row_errors,
    sampling_error,
)
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("error", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("name", ["P2", "P3", "zeros 3"])
def test_the_first_step_is_the_enumerations_and_below_the_bounds(name, direction, error):
    designed = NAMED[name]
    truth = moved(designed, direction, error)
    furthest = row_errors(designed, truth).max()
    assert furthest <= error + 1e-12
    leak, step = first_step(designed, truth, "greedy"), enumerated(designed, truth, parse("ON OFF"), "greedy").steps[1]
    assert leak.bits == pytest.approx(step.bits, abs=1e-12)
    assert leak.advantage == pytest.approx(step.advantage, abs=1e-12)
    upper = bounds_for(furthest, designed.n)
    assert leak.bits <= upper.bits + 1e-12
    assert leak.advantage <= upper.advantage + 1e-12
    assert leak.told_apart <= upper.told_apart + 1e-12


def test_the_first_step_is_that_of_the_table_that_sessions_use():
    """Six sources: among tables of one cost, `auto` takes the one with the cheapest successors, and so must we."""
    designed = MarkovChain(np.random.default_rng(0).dirichlet(np.full(6, 0.5), size=6))
    truth = moved(designed, "rows more alike", 0.1)
    step = enumerated(designed, truth, parse("ON OFF")).steps[1]
    assert first_step(designed, truth).bits == pytest.approx(step.bits, rel=1e-9)


@pytest.mark.parametrize("pattern", ["ON OFF OFF OFF", "ON OFF ON OFF", "ON ON OFF OFF"])
@pytest.mark.parametrize("name", ["P3", "zeros 3"])
def test_every_step_of_a_pattern_is_below_the_bounds(name, pattern):
    designed = NAMED[name]
    for direction in DIRECTIONS:
        truth = moved(designed, direction, 0.15)
        upper = bounds_for(row_errors(designed, truth).max(), designed.n)
        for step in enumerated(designed, truth, parse(pattern), "greedy").steps:
            assert step.bits <= upper.bits
            assert step.advantage <= upper.advantage + 1e-12


def test_the_papers_filter_stays_below_its_own_bound():
    truth = moved(P3, "stickier", 0.02)
    audit = enumerated(P3, truth, parse("ON OFF OFF OFF"), "greedy", "bayes-filter")
    for step in audit.steps[1:]:
        assert 0 < step.bits < filter_bits_bound(0.02, 3, step.t)


def test_no_error_no_leak():
    assert enumerated(P3, P3, parse("ON OFF OFF"), "greedy").leak == 0
    assert first_step(P3, P3, "greedy").bits == pytest.approx(0, abs=1e-12)
    assert bounds_for(0.0, 3).bits == 0
    assert bounds_for(0.9, 3).bits == pytest.approx(np.log2(3))
    assert bounds_for(0.5, 1).bits == 0


def test_the_leak_is_quadratic_with_equal_supports_and_linear_where_a_zero_is_violated():
    smooth = [first_step(P3, moved(P3, "stickier", e), "greedy").bits for e in (0.01, 0.02)]
    assert smooth[1] / smooth[0] == pytest.approx(4, rel=0.1)
    zeros = MarkovChain([[0.5, 0.5, 0], [0.3, 0.3, 0.4], [0.3, 0.4, 0.3]])
    broken = [first_step(zeros, moved(zeros, "to the unlikeliest", e), "greedy").bits for e in (0.001, 0.002)]
    assert broken[1] / broken[0] == pytest.approx(2, rel=0.1)


def test_the_figures_of_the_threat_model():
    """P6: TV 1.3 % costs about 0.0005 bit, 5.3 % about 0.008 bit; no chain at all is no protection."""
    assert first_step(P3, moved(P3, "rows more alike", 0.013), "greedy").bits == pytest.approx(0.0005, abs=2e-4)
    assert first_step(P3, moved(P3, "rows more alike", 0.053), "greedy").bits == pytest.approx(0.008, abs=2e-3)
    uniform = MarkovChain(np.full((3, 3), 1 / 3))
    assert enumerated(uniform, P3, parse("ON OFF"), "greedy").leak == pytest.approx(0.185, abs=5e-4)


def test_the_curve_rises_and_holds_its_worst():
    curve = error_curve(P2, [0.0, 0.1, 0.2], "greedy")
    worst = [leak.bits for leak in curve.worst]
    assert worst == sorted(worst)
    assert worst[2] == max(found[2].bits for found in curve.by_direction.values())
    assert set(curve.as_dict()) == {"errors", "found", "upper", "directions"}
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        error_curve(P2, [1.5], "greedy")


def test_more_data_means_less_sampling_error():
    few = sampling_error(P3, np.full((3, 3), 10), "greedy")
    many = sampling_error(P3, np.full((3, 3), 1000), "greedy")
    assert many.typical < few.typical / 5
    assert many.bits < few.bits / 20
    assert many.high < few.high
    # the proved bound holds over what was resampled, and says nothing without data
    assert many.typical < many.high < 1
    assert sampling_error(P3, np.zeros((3, 3), dtype=int), "greedy").high == 1


def test_chains_that_cannot_be_compared_are_refused():
    with pytest.raises(InvalidInput, match="different sources"):
        row_errors(P2, MarkovChain(P2.transition, names=["a", "b"]))
    with pytest.raises(InvalidInput, match="start from different"):
        first_step(P2, MarkovChain(P2.transition, initial=[1, 0]), "greedy")
    with pytest.raises(InvalidInput, match="counts of shape"):
        sampling_error(P2, np.zeros((3, 3), dtype=int))
    with pytest.raises(InvalidInput, match="too many"):
        sampling_error(MarkovChain(np.eye(401)), np.zeros((401, 401), dtype=int))
