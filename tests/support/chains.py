"""The chains on which every exact audit is run, by name: THREATS asks for these and no fewer."""

import numpy as np

from onoff.model.chain import MarkovChain
from onoff.model.context_tree import all_contexts
from onoff.model.contexts import RequestModel

P2 = MarkovChain([[0.8, 0.2], [0.2, 0.8]])
P3 = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])


def symmetric(n, alpha):
    return MarkovChain(np.full((n, n), (1 - alpha) / (n - 1)) + (alpha - (1 - alpha) / (n - 1)) * np.eye(n))


def random_rational(n, seed):
    """Rows of whole numbers from 0 to 12 over their sum, so zeros happen."""
    counts = np.random.default_rng(seed).integers(0, 13, size=(n, n)) + np.eye(n, dtype=int)
    return MarkovChain(counts / counts.sum(axis=1, keepdims=True))


NAMED = {
    "P2": P2,
    "P3": P3,
    **{f"symmetric {n}": symmetric(n, 0.7) for n in (2, 3, 4)},
    **{f"restless {n}": symmetric(n, 0.0) for n in (3, 4)},
    **{f"sticky {n}": symmetric(n, 1 - 1e-4) for n in (2, 3, 4)},
    "zeros 3": MarkovChain([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.25, 0, 0.75]], initial=[0.5, 0.5, 0]),
    "zeros 4": MarkovChain([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]]),
    "equal rows 2": MarkovChain([[0.3, 0.7]] * 2),
    "equal rows 3": MarkovChain([[0.2, 0.3, 0.5]] * 3),
    "two equal rows of 4": MarkovChain([[0.1, 0.2, 0.3, 0.4]] * 2 + [[0.4, 0.3, 0.2, 0.1]] * 2),
}
RANDOM = {f"random {2 + seed % 3}, {seed}": random_rational(2 + seed % 3, seed) for seed in range(20)}
EVERY = NAMED | RANDOM


def request_model(rows, names):
    """Two types of order 2: one follows the rows of a chain, the other does so where it alternates, and else stays."""
    n = len(rows)
    contexts = all_contexts(n, 2)
    laws = np.full((2, len(contexts), n), 1 / n)
    for c, context in enumerate(contexts[1:], start=1):
        laws[0, c] = rows[context[-1]]
        laws[1, c] = 0.5 * laws[0, c] + 0.5 * np.eye(n)[context[0]]
    return RequestModel(laws, contexts, names, [0.6, 0.4])
