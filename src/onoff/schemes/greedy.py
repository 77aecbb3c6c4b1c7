"""The paper's Algorithm 1, exact in integers.

Setting (the distinct rows only: equal rows need not be told apart)
    p(x|u)      rows in units of 1/UNIT, u one of M, x one of the N sources that can be reached
    u^(x,i)     the row with the i-th smallest p(x|u); ties in any order, for between tied rows r = 0
    lambda_i    sum over x of p(x|u^(x,i));   theta_i = min(1, lambda_i) - min(1, lambda_{i-1})
    sigma       the largest i with lambda_i <= 1
    delta_x     between a_x = p(x|u^(x,sigma)) and b_x = p(x|u^(x,sigma+1)), summing to one
    Q(u, x)     the budget max(p(x|u) - delta_x, 0)

Algorithm
1. Choose delta: b_x for the first sources, a_x for the last, one in between.
2. For every size l = 1, ..., sigma + 1 and every source x let r = min(delta_x, p(x|u^(x,l))) - p(x|u^(x,l-1)), where
   p(x|u^(x,0)) = 0. The rows u^(x,1), ..., u^(x,l-1) each give r units of budget away, from the first sources on;
   all other rows take x. Laid side by side, the amounts given break into atoms, in each of which every row takes one
   source: a multiset {zeta_1, ..., zeta_{l-1}, x} with a mass.
3. The query of an atom is the set of its sources; atoms with equal sets are added up.

The multisets have P(|Z| = i) = theta_i and leave no budget (`atoms` returns both), so the cost is at
most sum of min(i, N) theta_i, the paper's inner bound; where a multiset repeats a source it is less. The table is
optimal if M <= 3 or N <= 2, if lambda_2 >= 1, or if lambda_{M-1} <= 1; then cost and lower bound meet.

As against the printed text (errata): the sums in delta run over b_k, k < j and a_k, k > j; equal rows (sigma = M) need
no b; at l = 1 there is one atom ({x}, r); atoms of mass zero are discarded.

A row always gives from its first source with budget, so it needs one pointer that only moves on: an atom costs O(l)
and there are at most N (sigma + 1) + M N of them. Time O(sigma M N), and M weights in the table for every atom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onoff.model.bounds import lambda_units
from onoff.model.rows import UNIT, Integers, Rows
from onoff.system.kernels import kernel
from onoff.tables.table import QueryTable

NAME = "greedy"
MOST_BYTES = 10**9
"""Memory for atoms beyond which a search asks for this table once, as its last resort, and not to repair others."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """The output of Algorithm 1 before equal sets are added up; atom a is one multiset with its mass.

    order[i, x]: the row u^(x,i+1).   delta[x].   sigma.
    size[a]: |Z| = l.   source[a]: x, as a column.   mass[a]: in units.
    taken[a, u]: the column that row u takes; the first l - 1 rows of order[:, x] give zeta, the others x.
    budget[u, x]: what is left of Q, all zero in the end.
    """

    order: Integers
    sigma: int
    delta: Integers
    size: Integers
    source: Integers
    mass: Integers
    taken: npt.NDArray[np.int32]
    budget: Integers

    def __len__(self) -> int:
        return len(self.mass)

    def multiset(self, a: int) -> tuple[int, ...]:
        """The columns of atom a, ascending, repeated as often as they occur."""
        x = int(self.source[a])
        giving = self.order[: int(self.size[a]) - 1, x]
        return tuple(sorted([*self.taken[a, giving].tolist(), x]))


def is_optimal(rows: Rows) -> bool:
    """Whether Algorithm 1 is proved to be optimal: at most 3 different rows, lambda_2 >= 1, or lambda_{M-1} <= 1."""
    if rows.distinct <= 3:
        return True
    lambdas = lambda_units(rows, distinct=True)
    return lambdas[1] >= UNIT or lambdas[-2] <= UNIT


def fits_in_memory(rows: Rows) -> bool:
    """Whether the atoms, a source for each row and atom, take less than MOST_BYTES: about 600 rows over 600 sources."""
    return 4 * rows.distinct**2 * len(rows.columns) <= MOST_BYTES


def most_cells(rows: Rows, unit: int = UNIT) -> int:
    """Cells of the table at most, where sets do not repeat: some seven million are made in a second."""
    _, ranked, sigma, _, budget = _prepared(rows, unit)
    return rows.distinct * _most_atoms(ranked, sigma, budget)


def build(rows: Rows, unit: int = UNIT) -> QueryTable:
    """The table of Algorithm 1. unit: what each row sums to, where the rows are a part of others (see `repair`)."""
    found = atoms(rows, unit)
    member = np.zeros((len(found), len(rows.columns)), dtype=bool)
    np.put_along_axis(member, found.taken.astype(np.int64), True, axis=1)
    by_set, first = equal_sets(member)
    owner, items = map(np.ascontiguousarray, np.nonzero(member[by_set[first]]))  # one kind of array for the kernel
    offsets = np.searchsorted(owner, np.arange(len(first) + 1)).astype(np.int64)
    taken = np.ascontiguousarray(found.taken[by_set].T)
    starts = np.zeros(rows.distinct + 1, dtype=np.int64)
    slots, weights = np.empty((2, taken.size), dtype=np.int64)
    ends = np.append(first, len(found))
    _cells(taken, found.mass[by_set], ends, offsets, items, starts, slots, weights)
    slots, weights = slots[: starts[-1]].copy(), weights[: starts[-1]].copy()
    mass = np.add.reduceat(found.mass[by_set], first)
    return QueryTable(rows, offsets, rows.columns[items], mass, starts, slots, weights, scheme=NAME)


def costs_less(rows: Rows, cost: float, unit: int = UNIT) -> bool:
    """Whether the table of Algorithm 1 costs less than that: atoms are counted and not kept, until it is known.

    unit: as for `build`; the cost is in parts of UNIT whatever the rows sum to.
    """
    order, ranked, sigma, delta, budget = _prepared(rows, unit)
    most = cost * UNIT
    return bool(_total(order, ranked, sigma, delta, budget, most) < most)


def atoms(rows: Rows, unit: int = UNIT) -> Atoms:
    """Steps 1 and 2: the multisets with their masses, before sets are formed."""
    weights = rows.weights
    order, ranked, sigma, delta, budget = _prepared(rows, unit)
    most = _most_atoms(ranked, sigma, budget)
    size, source, mass = np.empty((3, most), dtype=np.int64)
    taken = np.empty((most, len(weights)), dtype=np.int32)
    found = _atoms(order, ranked, sigma, delta, budget, size, source, mass, taken)
    return Atoms(order, sigma, delta, size[:found], source[:found], mass[:found], taken[:found], budget)


def _most_atoms(ranked: Integers, sigma: int, budget: Integers) -> int:
    """Atoms at most: each ends either its pair (l, x) or an entry of the budget."""
    return int(ranked.shape[1] * min(sigma + 1, len(ranked)) + np.count_nonzero(budget))


def _prepared(rows: Rows, unit: int) -> tuple[Integers, Integers, int, Integers, Integers]:
    """Step 1: the order of the rows for each source, their weights in this order, sigma, delta and the budget."""
    order = np.argsort(rows.weights, axis=0, kind="stable")
    ranked = np.take_along_axis(rows.weights, order, axis=0)
    sigma = sum(units <= unit for units in lambda_units(rows, distinct=True))
    delta = _delta(ranked, sigma, unit)
    return order, ranked, sigma, delta, np.maximum(rows.weights - delta, 0)


def _delta(ranked: Integers, sigma: int, unit: int) -> Integers:
    """Numbers between ranks sigma and sigma + 1 that sum to `unit`, raised from the first source on."""
    delta: Integers = ranked[sigma - 1].copy()
    if sigma < len(ranked):
        missing = unit - int(delta.sum())
        for x, room in enumerate((ranked[sigma] - delta).tolist()):
            raised = min(room, missing)
            delta[x] += raised
            missing -= raised
    return delta


def equal_sets(member: npt.NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """The rows of `member` by size and then by their elements, and where in this order each new set begins."""
    padded = np.zeros((len(member), -(-member.shape[1] // 64) * 64), dtype=bool)
    padded[:, : member.shape[1]] = member
    words = np.packbits(padded, axis=1).view(">u8")
    # An element early in the set is a high bit: among sets of one size the larger words come first.
    keys = [~words[:, w].astype(np.uint64) for w in reversed(range(words.shape[1]))]
    by_set = np.lexsort([*keys, member.sum(axis=1)])
    ordered = words[by_set]
    new = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    return by_set, np.flatnonzero(new)


@kernel
def _next_amount(order, budget, giving, level, x, left):  # type: ignore[no-untyped-def]
    """The mass of the next atom of size `level` at source x: what is left, or the least budget of a row that gives.

    Moves `giving` on: for each row that gives, the first source for which it has budget.
    """
    amount = left
    for i in range(level - 1):
        u = order[i, x]
        while budget[u, giving[u]] == 0:
            giving[u] += 1
        amount = min(amount, budget[u, giving[u]])
    return amount


@kernel
def _atoms(order, ranked, sigma, delta, budget, size, source, mass, taken):  # type: ignore[no-untyped-def]
    """Fills in size, source, mass and taken in the order in which the paper finds atoms, and returns their number.

    Spends `budget`.
    """
    m, n = ranked.shape
    found = 0
    giving = np.zeros(m, np.int64)  # the first source for which each row has budget
    for level in range(1, min(sigma + 1, m) + 1):
        for x in range(n):
            left = min(delta[x], ranked[level - 1, x])
            if level > 1:
                left -= ranked[level - 2, x]
            while left > 0:
                amount = _next_amount(order, budget, giving, level, x, left)
                size[found], source[found], mass[found] = level, x, amount
                for u in range(m):
                    taken[found, u] = x
                for i in range(level - 1):
                    u = order[i, x]
                    taken[found, u] = giving[u]
                    budget[u, giving[u]] -= amount
                found += 1
                left -= amount
    return found


@kernel
def _total(order, ranked, sigma, delta, budget, most):  # type: ignore[no-untyped-def]
    """The summed size of the sets of all atoms times their masses, as `_atoms` finds them, or where it passes `most`.

    Spends `budget`.
    """
    m, n = ranked.shape
    giving = np.zeros(m, np.int64)
    seen = np.full(n, -1, np.int64)  # the last atom that held each source
    found = 0
    total = 0.0
    for level in range(1, min(sigma + 1, m) + 1):
        for x in range(n):
            left = min(delta[x], ranked[level - 1, x])
            if level > 1:
                left -= ranked[level - 2, x]
            while left > 0:
                amount = _next_amount(order, budget, giving, level, x, left)
                seen[x] = found
                size = 1
                for i in range(level - 1):
                    u = order[i, x]
                    if seen[giving[u]] != found:
                        seen[giving[u]] = found
                        size += 1
                    budget[u, giving[u]] -= amount
                found += 1
                left -= amount
                total += float(amount) * size
                if total >= most:
                    return total
    return total


@kernel
def _cells(taken, mass, first, offsets, items, starts, slots, weights):  # type: ignore[no-untyped-def]
    """Fills in the masses by row and slot as CSR. Query k is made of atoms first[k]:first[k+1], taken is by row."""
    m = len(taken)
    cells = 0
    for u in range(m):
        for k in range(len(first) - 1):
            before = cells
            for a in range(first[k], first[k + 1]):
                slot, end = offsets[k], offsets[k + 1]  # the source's slot, by bisection
                while slot < end:
                    middle = (slot + end) // 2
                    if items[middle] < taken[u, a]:
                        slot = middle + 1
                    else:
                        end = middle
                at = cells  # its place among the cells of this query, most of which have one only
                while at > before and slots[at - 1] > slot:
                    at -= 1
                if at > before and slots[at - 1] == slot:
                    weights[at - 1] += mass[a]
                else:
                    for c in range(cells, at, -1):
                        slots[c], weights[c] = slots[c - 1], weights[c - 1]
                    slots[at], weights[at] = slot, mass[a]
                    cells += 1
        starts[u + 1] = cells
