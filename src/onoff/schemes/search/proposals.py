"""Sets to start the search for the optimum with.

Two kinds, both random couplings of the rows seen as the sets that they hit.

`systematic`. Where the optimum is the outer bound, source x is asked for with probability m_x = max_u p_u(x) exactly,
and two sources that share their maximising row never occur together. Lay the sources on a line, each as a piece of
length m_x, the sources of one row next to one another (together at most 1 long), and take those at s, s + 1, s + 2, ...
for a random shift s: both hold for every order of the rows. A few orders give a pool that almost always contains
the optimum of a dense chain.

`races`. X_u = argmin_x E_x / p_u(x) with the same exponential E for every row: the sets that the race would ask for.
Every row can follow these at once, so they make the program feasible.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Floats
from onoff.schemes.search.hall import Sets

MOST_RACED_ENTRIES = 4 * 10**8
"""Entries that some races look at together, at most."""


def systematic(p: Floats, orders: int, rng: np.random.Generator) -> Sets:
    """The sets of `orders` systematic samples with inclusion probabilities max_u p_u(x)."""
    rows, columns = p.shape
    largest: Floats = p.max(axis=0)
    home = np.argmax(p, axis=0)
    found = []
    for _ in range(orders):
        order = np.lexsort((rng.random(columns), rng.permutation(rows)[home]))
        edges = np.concatenate([[0.0], np.cumsum(largest[order])])
        shifts = np.unique(edges % 1.0)
        between = (shifts + np.append(shifts[1:], 1.0)) / 2
        points = between[:, None] + np.arange(int(np.ceil(edges[-1])))
        inside = points < edges[-1]
        at = np.minimum(np.searchsorted(edges, points, side="right") - 1, columns - 1)
        chosen = np.zeros((len(between), columns), dtype=bool)
        chosen[np.nonzero(inside)[0], order[at[inside]]] = True
        found.append(chosen[chosen.any(axis=1)])
    return np.vstack(found)


def affordable(p: Floats, count: int) -> int:
    """How many races of `count` are run: each looks at every entry of p."""
    return min(count, max(MOST_RACED_ENTRIES // p.size, 50))


def races(p: Floats, count: int, rng: np.random.Generator) -> Sets:
    """The sets that `count` exponential races hit."""
    chosen = np.zeros((count, p.shape[1]), dtype=bool)
    with np.errstate(divide="ignore"):
        slowness = 1 / p
    for line in chosen:
        line[np.argmin(rng.exponential(size=p.shape[1]) * slowness, axis=1)] = True
    return chosen
