"""What the request after this one will cost: how to choose among tables of equal cost.

With the last query as memory, the request after query S has to hide which x in S it came from: its cost is at least

    V(S)  =  max(sum over z of max P_x(z),  2 - sum over z of min P_x(z)),      max and min over x in S,

which is the optimum for |S| <= 3 and mostly beyond. The expected cost of the next request is linear in the masses,
so among all optimal masses a linear program finds those with the cheapest successors: first the cost, then V.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Floats, Rows
from onoff.schemes.search.hall import Sets


class SuccessorCost:
    """V of sets of columns of `rows`, where `chain` holds the row P_x of every source x."""

    def __init__(self, rows: Rows, chain: Rows) -> None:
        self._following: Floats = chain.probabilities()[chain.group[rows.columns]]

    def __call__(self, sets: Sets) -> Floats:
        found = np.empty(len(sets))
        for at, members in enumerate(sets):
            rows = self._following[members]
            found[at] = max(rows.max(axis=0).sum(), 2 - rows.min(axis=0).sum())
        return found
