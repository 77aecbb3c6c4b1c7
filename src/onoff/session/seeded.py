"""Seeded randomness for experiments: the same seed gives the same numbers. Never for real queries.

It is a module of its own, so that a test can see that nothing which draws real queries imports it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onoff.model.rows import Floats


class SeededEntropy:
    """The interface of `onoff.session.session.Entropy`, drawn from a numpy Generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, weights: Sequence[int]) -> int:
        if sum(map(int, weights)) >= 2**63:  # weights within topics; experiments do without their last digits
            most = max(int(weight).bit_length() for weight in weights)
            weights = [int(weight) >> (most - 50) for weight in weights]
        edges = np.cumsum(np.asarray(weights, dtype=np.int64))
        return int(np.searchsorted(edges, self._rng.integers(edges[-1]), side="right"))

    def uniforms(self, count: int) -> Floats:
        return np.asarray(1 - self._rng.random(count), dtype=np.float64).clip(2.0**-54, 1 - 2.0**-53)
