"""descent: L-BFGS against minima that are known."""

import numpy as np
import pytest

from onoff.schemes.search.clock import never
from onoff.schemes.search.descent import MEMORY, descend


def quadratic(n, seed):
    """0.5 x H x - b x with eigenvalues from 1 to 1000, and its minimum."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    hessian = basis @ np.diag(np.geomspace(1, 1000, n)) @ basis.T
    b = rng.normal(size=n)
    return lambda x: (float(x @ hessian @ x / 2 - b @ x), hessian @ x - b), np.linalg.solve(hessian, b)


@pytest.mark.parametrize("n", [1, 5, 60])
def test_a_quadratic_is_minimised(n):
    function, minimum = quadratic(n, n)
    assert descend(function, np.zeros(n), 400, never) == pytest.approx(minimum, abs=1e-5)


def test_a_curved_function_is_minimised():
    """The sum of exp(x) - p x has its minimum at log p."""
    p = np.geomspace(1e-3, 1, 30)
    found = descend(lambda x: (float((np.exp(x) - p * x).sum()), np.exp(x) - p), np.zeros(30), 300, never)
    assert found == pytest.approx(np.log(p), abs=1e-4)


def test_values_only_go_down_and_it_ends_when_told():
    function, _ = quadratic(20, 1)
    ends = []
    for steps in (1, 3, 10, 30):
        asked = iter(range(steps))
        ends.append(function(descend(function, np.zeros(20), 1000, lambda asked=asked: next(asked, None) is None))[0])  # type: ignore[misc]
    assert ends == sorted(ends, reverse=True)
    assert len(set(ends)) == len(ends)


def test_a_slope_that_stops_to_change_takes_no_place_among_the_known_steps():
    """A step without curvature overwrote the oldest of the known ones, and was divided by."""
    quadratic_60, _ = quadratic(60, 60)
    values: list[float] = []
    fixed = np.zeros(0)

    def function(x):
        nonlocal fixed
        if len(values) < 2 * MEMORY:
            value, fixed = quadratic_60(x)
        else:
            value = values[2 * MEMORY - 1] - len(values)
        values.append(value)
        return value, fixed

    assert np.isfinite(descend(function, np.zeros(60), 60, never)).all()
    assert len(values) > 3 * MEMORY
