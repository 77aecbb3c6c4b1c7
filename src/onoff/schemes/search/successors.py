"""What the requests after this one will cost: how to choose among tables of equal cost.

With the last query as memory, the request after query S has to hide which x in S it came from. The k-th request after
it costs at least

    V_k(S)  =  max(sum over z of max P^k(x, z),  2 - sum over z of min P^k(x, z)),      max and min over x in S,

for k = 1 the optimum if |S| <= 3 and mostly beyond. What follows is valued at the sum of V_k(S) over the next RUN
requests, as if all were OFF: V_1 alone does not see that two queries with equally costly successors differ later. The
expected value is linear in the masses, so among all optimal masses a linear program finds those with the cheapest
successors: first the cost, then this.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from onoff.model.rows import Floats, Rows
from onoff.schemes.search.hall import Sets
from onoff.system.kernels import kernel

RUN = 10
"""Requests that are looked ahead."""
MOST_POWERS = 4 * 10**6
"""Entries of the powers of a chain that are kept: fewer requests are looked ahead where sources are many."""

_powers: WeakKeyDictionary[Rows, Floats] = WeakKeyDictionary()


class SuccessorCost:
    """The sum of V_k of sets of columns of `rows`, where `chain` holds the row P_x of every source x.

    Call it with sets; `of_all` gives that of every set at once.
    """

    def __init__(self, rows: Rows, chain: Rows) -> None:
        self._following: Floats = np.ascontiguousarray(powers_of(chain)[:, rows.columns])
        self.requests = len(self._following)
        """How many requests are looked ahead."""

    def __call__(self, sets: Sets) -> Floats:
        owner, items = np.nonzero(sets)
        offsets = np.searchsorted(owner, np.arange(len(sets) + 1)).astype(np.int64)
        found = np.empty(len(sets))
        _values(self._following, offsets, items.astype(np.int64), found)
        return found

    def of_all(self) -> Floats:
        """The value of every set of columns, by the number whose bits are its members; that of no column is 0."""
        values: Floats = bounds_by_request(self._following)[-1]
        return values


def bounds_by_request(following: Floats) -> Floats:
    """V_1 + ... + V_t of every set of columns, shape (requests + 1, sets): line t is for the next t requests.

    following: P^k(x, z) for k = 1, 2, ..., each column x and each source z.
    """
    powers, columns, sources = following.shape
    found = np.zeros((powers + 1, 1 << columns))
    for power, values in zip(following, found[1:], strict=True):
        highest, lowest = np.zeros((2, 1 << columns))
        for z in range(sources):
            highest += _over_sets(np.maximum, power[:, z])
            lowest += _over_sets(np.minimum, power[:, z])
        values[1:] = np.maximum(highest, 2 - lowest)[1:]
    return np.cumsum(found, axis=0)


def _over_sets(extreme: np.ufunc, values: Floats) -> Floats:
    """The largest or smallest value of each set of columns: of all sets of the first columns, and these with the next.

    That of no column is infinite. numpy does it as quickly as compiled code, so that none is needed.
    """
    found = np.empty(1 << len(values))
    found[0] = -np.inf if extreme is np.maximum else np.inf
    for x, value in enumerate(values):
        extreme(found[: 1 << x], value, out=found[1 << x : 2 << x])
    return found


def powers_of(chain: Rows) -> Floats:
    """P, P^2, ..., kept as long as the chain is."""
    if chain not in _powers:
        p = np.zeros((chain.m, chain.n))
        p[:, chain.columns] = chain.probabilities()[chain.group]
        powers = [p]
        if chain.m == chain.n:  # a chain's rows may be all that is known of it
            for _ in range(1, min(RUN, max(MOST_POWERS // p.size, 1))):
                powers.append(powers[-1] @ p)
        _powers[chain] = np.array(powers)
    return _powers[chain]


@kernel
def _values(following, offsets, items, found):  # type: ignore[no-untyped-def]
    """Fills in the value of each set."""
    powers, _, sources = following.shape
    for s in range(len(found)):
        found[s] = 0.0
        for k in range(powers):
            highest = 0.0
            lowest = 0.0
            for z in range(sources):
                high = following[k, items[offsets[s]], z]
                low = high
                for e in range(offsets[s] + 1, offsets[s + 1]):
                    value = following[k, items[e], z]
                    high = max(high, value)
                    low = min(low, value)
                highest += high
                lowest += low
            found[s] += max(highest, 2 - lowest)
