"""Where randomness comes from.

Real queries draw from the operating system and from nothing else: there is no seed to leak, to guess or to
restore from a backup. Everything random in a session goes through one small interface, so that a test can
replace it by a script or by an enumeration of every branch (`audit.branches`). Seeded sources are for experiments only
(`seeded`).
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np

from onoff.model.rows import Floats


class Entropy(Protocol):
    """One draw at a time."""

    def choose(self, weights: Sequence[int]) -> int:
        """An index i with probability weights[i] / sum(weights), exactly."""
        ...

    def uniforms(self, count: int) -> Floats:
        """`count` floats, uniform on the open interval (0, 1), of 53 random bits each."""
        ...


class SystemEntropy:
    """The operating system's randomness."""

    def choose(self, weights: Sequence[int]) -> int:
        edges = list(accumulate(int(weight) for weight in weights))
        return bisect_right(edges, secrets.randbelow(edges[-1]))

    def uniforms(self, count: int) -> Floats:
        bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(11)
        # The last of the 2**53 midpoints has no float of its own: it would round to 1, whose logarithm is 0.
        return np.asarray(np.minimum((bits + 0.5) * 2.0**-53, 1 - 2.0**-53), dtype=np.float64)
