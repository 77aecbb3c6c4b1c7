"""Beliefs and bits: what an observer of queries can know, for audits, the gateway and experiments alike.

Setting
    V           what the observer wants to know, one value to a row (a private request, mostly)
    X_t         the present request, one source to a column
    U           what the session hides at step t: the request before, or the last private request (`session.memory`)
    law[v, x]   p(V = v, X_t = x | q_[t]), the observer's belief. Where requests depend on more than the one before, x
                is a context (the last requests), and an axis in front of both is the type of the person

The forward filter takes a belief over one step in two moves and returns the probability of what was seen:

    predict     sum over x' of law[v, x'] P(x', x)
    observe     times p(q_t | u, x), the chance that q_t is drawn when u is hidden and x is wanted; then normalise

It is exact in `fractions.Fraction` (arrays of dtype object) and quick in floats. `query_chances` reads p(q | u, x) from
a table; a plain request or "everything" has chances that do not depend on u (`plain_chances`, `EVERYTHING`).

Bits are measured by one `mutual_information`, independence is tested by one G-test. A test that finds nothing proves
nothing: `smallest_leak` is what it would have found.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.model.chain import MarkovChain
from onoff.model.rows import Floats, Integers
from onoff.tables.table import QueryTable

LEAST_EXPECTED = 10.0
"""Expected count of a cell of a G-test at least; rarer values are counted together."""

Law: TypeAlias = npt.NDArray[Any]
"""Probabilities as floats, or as Fractions in an array of dtype object."""

EVERYTHING: Law = np.ones((1, 1), dtype=np.int64)
"""Chances of a query that is sent whatever is hidden and whatever is wanted."""


# -- the forward filter --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Belief:
    """The joint law of a value V (rows) and the present request or context (columns), given the queries seen so far.

    Axes in front of these two are what a person is and stays: a type.

    >>> certain = Belief.of_present(np.array([0.5, 0.5]))
    >>> chance, after = certain.after(np.array([[0.75, 0.25], [0.25, 0.75]]), plain_chances(0, 2))
    >>> float(chance), after.value.tolist()
    (0.5, [0.75, 0.25])
    """

    law: Law

    @classmethod
    def of_present(cls, law: Law) -> Belief:
        """V is the present request itself, of which `law` is known."""
        return cls(np.diag(law))

    @property
    def value(self) -> Law:
        """p(v | queries)."""
        return np.asarray(self.law.sum(axis=-1).reshape(-1, self.law.shape[-2]).sum(axis=0))

    @property
    def present(self) -> Law:
        """p(x_t | queries)."""
        return np.asarray(self.law.reshape(-1, self.law.shape[-1]).sum(axis=0))

    def after(self, transition: Any, chances: Law, *, hides_value: bool = False) -> tuple[Any, Belief]:
        """The probability of what was seen at the next step, and the belief once it was seen.

        transition: P(x', x), dense or sparse, one for each type where there are types; None where the belief is
        already about the request that was just made.
        chances: p(q | u, x), shape (u, x), u by source or context; (1, x) or (1, 1) where they do not depend on u.
        hides_value: What the session hides is V itself; by default it is the request before.

        Returns
        -------
        tuple
            Where the probability is zero, the belief is the one before.
        """
        if transition is None:
            joint = self.law * chances
        elif hides_value or len(chances) == 1:
            joint = np.asarray(self.law @ transition) * chances
        else:
            joint = self.law @ (transition * chances)
        seen = joint.sum()
        return (seen, Belief(joint / seen)) if seen > 0 else (seen, self)


def plain_chances(source: int, n: int) -> Law:
    """p(q | u, x) of the plain request for `source`: it is sent for nothing else."""
    return np.asarray(np.arange(n) == source, dtype=np.int64)[None]


def row_chances(table: QueryTable, query: Sequence[int], *, exact: bool = False) -> Law:
    """p(q | u, x) for a query of a table: shape (M, size of q), for each original u and each source x of the query.

    Zero where x cannot be wanted.
    """
    rows = table.rows
    joint = table.block(table.index_of(query))[rows.group]
    at = np.minimum(np.searchsorted(rows.columns, query), len(rows.columns) - 1)
    wanted = np.where(rows.columns[at] == query, rows.weights[rows.group][:, at], 0)
    if not exact:
        return np.divide(joint, wanted, out=np.zeros(joint.shape), where=wanted > 0)
    chances = np.full(joint.shape, Fraction(0), dtype=object)
    for u, i in zip(*np.nonzero(joint), strict=True):
        chances[u, i] = Fraction(int(joint[u, i]), int(wanted[u, i]))
    return chances


def table_chances(table: QueryTable) -> Floats:
    """p(q | u, x) for every query of a table: shape (queries, M, n), for each original u and each source x."""
    rows = table.rows
    row = np.repeat(np.arange(rows.distinct), np.diff(table.starts))
    source = table.items[table.slots]
    owner = np.repeat(np.arange(len(table)), table.sizes)[table.slots]
    chances = np.zeros((len(table), rows.distinct, rows.n))
    chances[owner, row, source] = table.weights / rows.weights[row, np.searchsorted(rows.columns, source)]
    return chances[:, rows.group]


def query_chances(table: QueryTable, query: Sequence[int], hidden: Sequence[int], *, exact: bool = False) -> Law:
    """p(q | u, x) for a query of a table, shape (n, n): rows are hidden sources u, columns wanted sources x.

    hidden: The source of each original row of the table; rows of other sources are zero.
    """
    share = row_chances(table, query, exact=exact)
    n = table.rows.n
    chances: Law = np.full((n, n), Fraction(0), dtype=object) if exact else np.zeros((n, n))
    chances[np.ix_(list(hidden), list(query))] = share
    return chances


# -- bits ----------------------------------------------------------------------------------------------------


def entropy_bits(rows: Iterable[Any]) -> Floats:
    """The entropy of each row of probabilities, in bits."""
    table = np.asarray(rows, dtype=np.float64)
    logs = np.log2(table, out=np.zeros_like(table), where=table > 0)
    return np.asarray(-(table * logs).sum(axis=1), dtype=np.float64)


def mutual_information(joint: Mapping[Any, Any] | npt.ArrayLike) -> float:
    """I(A ; B) in bits, from weights of pairs (a, b) on any scale: a matrix, or a mapping from pairs to numbers.

    >>> mutual_information([[1, 0], [0, 1]]), mutual_information({("a", 1): 3, ("b", 1): 1, ("a", 2): 3, ("b", 2): 1})
    (1.0, 0.0)
    """
    if isinstance(joint, Mapping):
        a, b = _numbered(pair[0] for pair in joint), _numbered(pair[1] for pair in joint)
        total = sum(joint.values())
        p = np.array([weight / total for weight in joint.values()], dtype=np.float64)  # integers of any size
    else:
        weights = np.asarray(joint, dtype=np.float64)
        a, b = np.nonzero(weights)
        p = weights[a, b] / weights.sum()
    a, b, p = a[p > 0], b[p > 0], p[p > 0]
    independent = np.bincount(a, p)[a] * np.bincount(b, p)[b]
    return max(0.0, math.fsum(p * np.log2(p / independent)))


def contingency(counts: Mapping[Any, Any]) -> Floats:
    """Counts of pairs (a, b) as a table, a row to each a and a column to each b in order of first appearance."""
    a, b = _numbered(pair[0] for pair in counts), _numbered(pair[1] for pair in counts)
    table = np.zeros((a.max(initial=-1) + 1, b.max(initial=-1) + 1))
    table[a, b] = list(counts.values())
    return table


def _numbered(values: Iterable[Hashable]) -> Integers:
    """Each value by its number in order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


# -- the G-test ----------------------------------------------------------------------------------------------


def g_statistic(counts: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """G = 2 sum of count ln(count / expected), of any shape."""
    seen = np.asarray(counts, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(2 * np.where(seen > 0, seen * np.log(seen / np.asarray(expected)), 0.0).sum())


def independence_g(table: Floats) -> tuple[float, int]:
    """G of a contingency table with Williams's correction, and its degrees of freedom."""
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    if degrees == 0:
        return 0.0, 0
    rows, columns, n = table.sum(axis=1), table.sum(axis=0), table.sum()
    correction = 1 + (n * (1 / rows).sum() - 1) * (n * (1 / columns).sum() - 1) / (6 * n * degrees)
    return g_statistic(table, np.outer(rows, columns) / n) / correction, degrees


def fit_g(counts: Floats, expected: Floats) -> tuple[float, int]:
    """G of counts against a given law, rare values counted together, and its degrees of freedom."""
    rare = expected < LEAST_EXPECTED
    if 0 < expected[rare].sum() < LEAST_EXPECTED:
        rare[np.argmax(expected)] = True
    law = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(counts[~rare], counts[rare].sum())
    return g_statistic(seen, law), max(0, int((law > 0).sum()) - 1)


def p_value(statistic: float, degrees: int) -> float:
    """How likely a G at least as large is where there is no dependence; 1 with no degree of freedom."""
    from scipy.stats import chi2

    return float(chi2.sf(statistic, degrees)) if degrees else 1.0


def pooled(table: Floats) -> Floats:
    """`table` with its rarest rows and columns added up until every expected count is LEAST_EXPECTED or more."""
    while min(table.shape) > 1:
        rows, columns = table.sum(axis=1), table.sum(axis=0)
        if rows.min() * columns.min() / rows.sum() >= LEAST_EXPECTED:
            break
        # the dimension whose rarest value is rarer gives way, unless it has only two left and the other has more
        axis = 0 if (rows.min() <= columns.min() or table.shape[1] == 2) and table.shape[0] > 2 else 1
        if table.shape[axis] == 2 and table.shape[1 - axis] > 2:
            axis = 1 - axis
        rarest = np.argsort(rows if axis == 0 else columns, kind="stable")[:2]
        merged = table.take(rarest, axis=axis).sum(axis=axis, keepdims=True)
        table = np.concatenate([np.delete(table, rarest, axis=axis), merged], axis=axis)
    return table


def smallest_leak(degrees: int, trials: int, level: float, beta: float) -> float:
    """Bits that a G-test would have found with probability 1 - beta.

    degrees: Degrees of freedom of the test; with none, nothing would have been found (infinity).
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    if degrees == 0 or trials == 0:
        return math.inf
    critical = chi2.isf(level, degrees)
    shift = brentq(lambda nc: ncx2.sf(critical, degrees, nc) - (1 - beta), 1e-3, 1e5)
    return float(shift / (2 * trials * math.log(2)))


# --------------------------------------------------------------------------------------------------------------------
# What one step tells the server: a query drawn from a table, and the plain request of naive switching.
#
# A query drawn from a table tells I(U ; Q) about the hidden value U. It is zero exactly when the masses p(q|u) are
# equal
# integers for every u, which is what the table is built for.
#
# Naive switching asks for everything while ON and for the plain source while OFF. The first plain request after a
# private run gives away what it carries about the request before it: given the last request x_0 that was seen
# openly
# (or the initial law), the private request X just before has a law p, and
#
#     leak = I(X ; X') = sum over x, y of p(x) P(x, y) log2( P(x, y) / sum over z of p(z) P(z, y) ),
#
# the mutual information of X and the open request X' that follows it. By the Markov property this is also what X'
# tells
# about the whole private run, and later open requests add nothing.


def table_leak(table: QueryTable) -> float:
    """I(U ; Q) in bits for a query drawn from `table`, U uniform over its rows; exactly 0.0 when it is private."""
    seen = np.stack([table.mass_seen_by(r) for r in range(table.rows.distinct)])
    if (seen == seen[0]).all():
        return 0.0
    return mutual_information(seen)


def plain_request_leak(chain: MarkovChain, before: Floats) -> float:
    """I(X ; X') in bits, where X ~ `before` is private and X' is the plain request right after it."""
    return mutual_information(before[:, None] * chain.dense())


class NaiveObserver:
    """Follows a run of requests as a server would that is asked naively, and adds up what it learns."""

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        self.belief = Belief(chain.initial[None])
        """The law of the present request, from what was seen openly."""
        self._private = False
        self._started = False
        self.total = 0.0

    def request(self, source: int, *, private: bool) -> float:
        """The bits that this request would have given away about private ones before it."""
        leak = 0.0
        if not private and self._private:
            leak = plain_request_leak(self.chain, self.belief.present)
        chances = EVERYTHING if private else plain_chances(source, self.chain.n)
        seen, self.belief = self.belief.after(self.chain.transition if self._started else None, chances)
        if seen == 0:  # impossible under the chain, but it was made
            self.belief = Belief(chances)
        self._started, self._private = True, private
        self.total += leak
        return leak


@dataclass(frozen=True)
class Foretold:
    """What a server that saw the last query can tell of a later request.

    bits: of `unknown` bits, what it knows more than the long run tells. guess, base: how often its best guess is right,
    and how often without.
    """

    wait: int
    bits: float
    unknown: float
    guess: float
    base: float


def foretell(chain: MarkovChain, last: Sequence[int] | None, waits: int) -> list[Foretold]:
    """What the last query tells of the next request, and of those after 1, 2, ... more.

    That is, if the last request was any of the last query as often as in the long run.
    """
    usual = chain.stationary()
    law = np.array(chain.initial)
    if last is not None:
        law = np.zeros(chain.n)
        law[list(last)] = usual[list(last)] if usual[list(last)].sum() > 0 else 1.0
        law = (law / law.sum()) @ chain.dense()
    found, unknown = [], float(entropy_bits([usual])[0])
    for wait in range(waits + 1):
        there = law > 0
        bits = float((law[there] * np.log2(law[there] / np.maximum(usual[there], 1e-300))).sum())
        found.append(Foretold(wait, max(bits, 0.0), unknown, float(law.max()), float(usual.max())))
        law = law @ chain.dense()
    return found
