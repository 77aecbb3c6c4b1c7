"""L-BFGS: the minimum of a smooth convex function of thousands of numbers.

Nocedal and Wright, Numerical Optimization, algorithms 7.4 and 7.5, with a line search by doubling and halving until the
weak Wolfe conditions hold (enough descent, and the slope is up). The loops over the MEMORY last steps are compiled, on
one thread: a general solver hands vectors this short to a threaded library, which takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onoff.model.rows import Floats
from onoff.system.kernels import kernel

MEMORY = 20
ENOUGH, FLATTER = 1e-4, 0.9
"""The part of the promised descent that a step must bring, and the part of the slope that may be left after it."""
MOST_TRIALS = 12
"""Points tried in a line search."""


def descend(
    function: Callable[[Floats], tuple[float, Floats]], start: Floats, steps: int, is_over: Callable[[], bool]
) -> Floats:
    """Where at most `steps` steps from `start` lead; fewer where it `is_over` or nothing is gained.

    function: The value and the gradient at a point; it may remember the points that it was asked about.
    """
    x = start.copy()
    value, gradient = function(x)
    moved, changed = np.zeros((2, MEMORY, len(x)))
    known = 0
    for _ in range(steps):
        if is_over():
            break
        direction = _direction(gradient, moved, changed, known)
        slope = float(_dot(gradient, direction))
        if not slope < 0:  # by rounding only: nothing is left to gain
            break
        length = 1.0 if known else min(1.0, 1.0 / float(np.abs(gradient).max()))
        low, high, before = 0.0, np.inf, value
        for _ in range(MOST_TRIALS):
            there = x + length * direction
            value, after = function(there)
            if value > before + ENOUGH * length * slope:
                high = length
            elif _dot(after, direction) < FLATTER * slope:
                low = length
            else:
                break
            length = (low + high) / 2 if high < np.inf else 2 * length
        if value >= before:
            break
        step, change = there - x, after - gradient
        if _dot(step, change) > 0 and _dot(change, change) > 0:  # or the oldest of the steps stays known
            moved[known % MEMORY], changed[known % MEMORY] = step, change
            known += 1
        x, gradient = there, after
    return x


@kernel
def _dot(one, other):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(one)):
        total += one[i] * other[i]
    return total


@kernel
def _direction(gradient, moved, changed, known):  # type: ignore[no-untyped-def]
    """Minus the inverse Hessian, as the last steps show it, times the gradient."""
    memory = len(moved)
    kept = min(known, memory)
    direction = -gradient
    share = np.zeros(memory)
    for i in range(kept):
        at = (known - 1 - i) % memory
        share[at] = _dot(moved[at], direction) / _dot(moved[at], changed[at])
        direction -= share[at] * changed[at]
    if kept > 0:
        last = (known - 1) % memory
        direction *= _dot(moved[last], changed[last]) / _dot(changed[last], changed[last])
    for i in range(kept):
        at = (known - kept + i) % memory
        direction += (share[at] - _dot(changed[at], direction) / _dot(moved[at], changed[at])) * moved[at]
    return direction
