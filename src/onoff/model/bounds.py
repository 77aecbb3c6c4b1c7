"""Lower and upper bounds on what hiding costs, each labelled with its side.

Setting
    p(x|u)   rows, u one of M hidden values, x one of N sources
    Y        a random set with X in Y always, independent of U; its cost is E|Y|
    OPT      the smallest cost of all such Y; no answer, coded or not, is shorter (proof of Theorem 1)
    lam_i    sum over x of the i-th smallest p(x|u) over u;  lam_1 <= ... <= lam_M,  sum of them = M
    theta_i  min(1, lam_i) - min(1, lam_{i-1});  they sum to 1
    sigma    the largest i with lam_i <= 1
    low(A)   the smallest p(A|u) over u

Upper bound (a scheme reaches it)
    inner    sum of min(i, N) theta_i: Algorithm 1 costs no more (Theorem 2)
Lower bounds (no scheme costs less)
    outer    lam_M = sum of the largest p(x|u) (Theorem 1, outer bound 2)
    doeblin  2 - lam_1: a set of one source {x} has at most low({x})
    pairs    3 - sum of low({x, z}) over all pairs
    pencil   the largest over x of 2 + max p(x|u) - sum of low({x, z}) over z != x
    lower    the largest of these and, for four sources, of the rest of their complete list

All lower bounds are weak duality for one linear program (see `certificate`): wherever  t - sum of y_A over A that
contain S <= |S|  holds for every set S and y >= 0, OPT >= t - sum of y_A low(A).
For N <= 3 or M <= 3 `lower` is OPT (outer and doeblin do it); for N = 4 it has been OPT in every program solved. All
sums are exact integers in units of 1/UNIT; floats appear when they are reported. Cost: N sorts of M numbers, and
N**2 M additions for the pairs.

Many steps. Let tau be the last private time. Given the queries before tau, the k-th request after it has the rows
P**k. OPT is convex in the rows, and later queries only split them, so every scheme, coded or not, pays at least
OPT(P**k) at time tau + k *provided that every source can be X_tau given the queries before tau*. Where that
support is smaller, so are the rows: only those of sources in it count (`outer_bound_2`, `step_bounds` with
`possible`). The printed outer bound 2 leaves this out and is false without it. The inner bound for P**k is reached
at time tau + k by a scheme that asks for everything until then; a scheme that saves earlier need not reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from onoff.errors import InvalidInput
from onoff.model.certificate import Certificate, SetCertificate, SimpleBound
from onoff.model.chain import MarkovChain
from onoff.model.checker import check_certificate, pair_units
from onoff.model.rows import MANY_UNITS, UNIT, Rows, SparseRows, exact_sum, from_halves, units_of
from onoff.system.kernels import kernel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Number = TypeVar("Number", float, Fraction)

FEWEST_FOR_PAIRS = 3
"""`pairs` and `pencil` are bounds from three sources on: below, a pair is everything."""

SPARSE_ROUNDING = 1e-9
"""What rows in floats may be off by, as they need not sum to 1 any better."""
QUICK_ADDITIONS = 10**8
"""Up to as many additions (464 sources with a row each) `pairs` and `pencil` are always worked out."""
MOST_ADDITIONS = 4 * 10**9
"""Beyond as many additions (about 1600 sources with a row each) `pairs` and `pencil` are not worked out."""

STRIP = 64
"""Columns that are sorted at a time; of a thousand rows they fill half a megabyte."""

FOUR_SOURCES: tuple[tuple[int, int, Mapping[str, int]], ...] = (
    (6, 2, {"a": 1, "bc": 1, "bd": 1, "cd": 1, "abc": 1, "abd": 1, "acd": 1}),
    (5, 2, {"b": 1, "c": 1, "d": 1, "ab": 1, "ac": 1, "ad": 1, "bcd": 1}),
    (8, 3, {"a": 1, "b": 1, "ac": 1, "ad": 1, "bc": 1, "bd": 1, "cd": 2, "abc": 1, "abd": 1}),
)
"""What completes the list for four sources a, b, c, d: (t, scale, y by set), up to renaming the sources."""


@dataclass(frozen=True, repr=False)
class Bounds:
    """Bounds on the cost of hiding U once; the module's docstring says which side each is on."""

    n: int
    m: int
    lambdas: tuple[float, ...]
    thetas: tuple[float, ...]
    sigma: int
    inner: float
    outer: float
    doeblin: float
    pairs: float
    pencil: float
    lower: float

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers and lists."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def __repr__(self) -> str:
        return f"<Bounds: {self.m} rows over {self.n} sources, lower={self.lower:.6g}, inner={self.inner:.6g}>"

    def _repr_html_(self) -> str:
        from onoff.model.notebook import bounds_html

        return bounds_html(self)

    def plot(self) -> Figure:
        """The bounds side by side, a matplotlib figure."""
        from onoff.model.notebook import bounds_figure

        return bounds_figure(self)


def bounds(probabilities: Any) -> Bounds:
    """Every bound on the cost of hiding which of these rows is the true one.

    probabilities: a matrix p(x|u), Rows, or a MarkovChain (then U is the last request: its rows).

    >>> b = bounds([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])
    >>> b.lambdas, b.inner, b.outer
    ((0.5, 0.9, 1.6), 1.6, 1.6)
    """
    given = probabilities.possible_rows() if hasattr(probabilities, "possible_rows") else probabilities
    if isinstance(given, SparseRows):
        return _bounds_of_sparse(given)
    rows = Rows.of(given)
    lambdas = lambda_units(rows)
    thetas = theta_units(lambdas)
    lower = lower_bound(rows)
    pairs, (pencil, _) = _pair_bounds(rows) if _pairs_are_shown(rows, lower) else (0, (0, 0))
    return Bounds(
        n=rows.n,
        m=rows.m,
        lambdas=tuple(units / UNIT for units in lambdas),
        thetas=tuple(units / UNIT for units in thetas),
        sigma=sum(units <= UNIT for units in lambdas),
        inner=sum(min(i, rows.n) * units for i, units in enumerate(thetas, start=1)) / UNIT,
        outer=lambdas[-1] / UNIT,
        doeblin=(2 * UNIT - lambdas[0]) / UNIT,
        pairs=max(pairs, UNIT) / UNIT,
        pencil=max(pencil, UNIT) / UNIT,
        lower=float(lower),
    )


def lower_bound(rows: Rows) -> Fraction:
    """The best of the lower bounds above for these rows, exactly: what `simplest(rows)` proves."""
    return check_certificate(rows, simplest(rows))


def simplest(rows: Rows) -> Certificate:
    """The certificate of the largest of the lower bounds above.

    The bounds by pairs are worked out only where they could be the largest: they never exceed 3, and each
    low({x, z}) is at least low({x}) + low({z}).
    """
    smallest, largest = rows.weights.min(axis=0), rows.weights.max(axis=0)
    lambda_first, lambda_last = exact_sum(smallest, axis=0)[0], exact_sum(largest, axis=0)[0]
    sources = len(rows.columns)
    found: list[tuple[Fraction, Certificate]] = [
        (Fraction(lambda_last, UNIT), SimpleBound("outer")),
        (Fraction(2 * UNIT - lambda_first, UNIT), SimpleBound("doeblin")),
    ]
    if rows.distinct > 3 and sources > FEWEST_FOR_PAIRS:
        if _pairs_may_exceed(rows, max(found[0][0], found[1][0])):
            pairs, (pencil, source) = _pair_bounds(rows)
            found.append((Fraction(pairs, UNIT), SimpleBound("pairs")))
            found.append((Fraction(pencil, UNIT), SimpleBound("pencil", source)))
        if sources == 4:
            found.append(_four_sources(rows))
    return max(found, key=lambda one: one[0])[1]


def lambda_units(rows: Rows, distinct: bool = False) -> list[int]:
    """lam_1, ..., lam_M in units of 1/UNIT; with `distinct`, of the distinct rows only."""
    table = rows.weights if distinct or rows.distinct == rows.m else rows.weights[rows.group]
    if table.size < MANY_UNITS:
        return exact_sum(np.sort(table, axis=0), axis=1)
    low, high = np.zeros((2, len(table)), dtype=np.int64)
    _add_ordered(table, low, high)
    return from_halves(high, low)


@kernel
def _add_ordered(table, low, high):  # type: ignore[no-untyped-def]
    """Sort each column and add up the rows, the lower 31 bits of the entries apart from the upper ones.

    Batcher's odd-even merges: which two rows are compared does not depend on the entries, so STRIP columns are sorted
    at a time, several of them by one instruction.
    """
    rows, columns = table.shape
    strip = np.zeros((rows, STRIP), np.int64)
    for first in range(0, columns, STRIP):
        width = min(STRIP, columns - first)
        strip[:, :width] = table[:, first : first + width]
        strip[:, width:] = 0
        sorted_run = 1
        while sorted_run < rows:
            apart = sorted_run
            while apart >= 1:
                for start in range(apart % sorted_run, rows - apart, 2 * apart):
                    if start // (2 * sorted_run) != (start + apart) // (2 * sorted_run):
                        continue
                    for u in range(start, min(start + apart, rows - apart)):
                        for x in range(STRIP):
                            one, other = strip[u, x], strip[u + apart, x]
                            strip[u, x] = min(one, other)
                            strip[u + apart, x] = max(one, other)
                apart //= 2
            sorted_run *= 2
        for u in range(rows):
            for x in range(STRIP):
                low[u] += strip[u, x] & 0x7FFFFFFF
                high[u] += strip[u, x] >> 31


def theta_units(lambdas: list[int]) -> list[int]:
    """theta_1, ..., theta_M in units of 1/UNIT, from the lambdas in units."""
    capped = [min(units, UNIT) for units in lambdas]
    return [after - before for before, after in zip([0, *capped], capped, strict=False)]


@dataclass(frozen=True)
class StepBounds:
    """Bounds for the t-th request after the last private one, from the rows P**t."""

    t: int
    inner: float
    outer: float
    lower: float

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers."""
        return asdict(self)


def step_bounds(
    chain: MarkovChain | Any,
    steps: int,
    possible: Iterable[int] | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[StepBounds]:
    """Bounds on the cost of the requests 1, ..., steps after the last private one.

    outer and lower are lower bounds for every scheme, if each source of `possible` can be the last private request
    given the queries before it. inner is an upper bound for that one step (see the module).

    Raises
    ------
    InvalidInput
        for no steps, or no possible source.

    >>> [round(step.lower, 3) for step in step_bounds([[0.8, 0.2], [0.2, 0.8]], 3)]
    [1.6, 1.36, 1.216]
    """
    if steps < 1:
        raise InvalidInput(f"bounds for {steps} steps", hint="give at least 1")
    whole = chain if isinstance(chain, MarkovChain) else MarkovChain(chain)
    kept = None if possible is None else sorted({whole.index(x) for x in possible})
    if kept == []:
        raise InvalidInput("no source can be the last private request", hint="name at least one as possible")
    found = []
    for t, rows in enumerate(_rows_of_powers(whole, steps, kept), start=1):
        b = bounds(rows)
        found.append(StepBounds(t, b.inner, b.outer, b.lower))
        if progress is not None:
            progress(t)
    return found


def outer_bound_2(chain: MarkovChain | Any, k: int, possible: Iterable[int] | None = None) -> float:
    """Lower bound on the cost k >= 1 steps after the last private request: sum over x of max over u of P**k(u, x).

    u runs over `possible`, the sources that can be the last private request given the queries before it. With all
    sources (the default) this is the paper's outer bound 2, which is a bound only where all of them are possible.
    """
    return step_bounds(chain, k, possible)[-1].outer


def two_source_cost(alpha: Number, beta: Number, k: int) -> Number:
    """The optimal cost k steps after the last private request, for two sources (Theorem 3): both sides at once.

    Holds where both sources can be the last private request given the queries before it.
    """
    _check_probabilities(alpha=alpha, beta=beta)
    return 1 + abs(1 - alpha - beta) ** k


def symmetric_cost(n: int, alpha: Number, k: int) -> Number:
    """The optimal cost k steps after the last private request, for n sources and the symmetric chain: both sides.

    The chain stays with probability alpha and goes to each other source with the same probability. For every
    alpha and k it is 1 + (n - 1) |rho|**k, rho = (n alpha - 1) / (n - 1), under the same condition as above;
    for k = 1 and alpha >= 1/n the paper's n alpha, for alpha < 1/n its inner bound 2 - n alpha.
    """
    _check_probabilities(alpha=alpha)
    if n < 2:
        return alpha - alpha + 1
    return 1 + (n - 1) * abs((n * alpha - 1) / (n - 1)) ** k


def _rows_of_powers(chain: MarkovChain, steps: int, possible: list[int] | None) -> Iterator[Rows | SparseRows]:
    """The rows of P, P**2, ..., of the sources in `possible`. P itself is rounded once; its powers are floats."""
    yield chain.possible_rows(possible)
    power = step = chain.dense() if steps > 1 else np.zeros((0, 0))
    for _ in range(1, steps):
        power = power @ step
        power = power / power.sum(axis=1, keepdims=True)  # rows may be off by 1e-9 each time
        yield Rows.from_integers(units_of(power if possible is None else power[possible]), chain.n)


def _check_probabilities(**given: float | Fraction) -> None:
    for name, value in given.items():
        if not 0 <= value <= 1:
            raise InvalidInput(f"{name} = {value} is not a probability", hint="give a number from 0 to 1")


def _bounds_of_sparse(rows: SparseRows) -> Bounds:
    """The bounds of rows too many for exact integers, in floats; `lower` is lowered by their rounding.

    A column with k positive entries adds them to the k largest lambdas, so sorting the entries is enough.
    """
    order = np.lexsort((-rows.p, rows.at))
    column = rows.at[order]
    first = np.searchsorted(column, np.arange(len(rows.columns)))
    from_the_top = np.bincount(np.arange(len(order)) - first[column], weights=rows.p[order], minlength=rows.m)
    lambdas = from_the_top[::-1]
    capped = np.minimum(lambdas, 1.0)
    thetas = np.diff(capped, prepend=0.0)
    outer, doeblin = float(lambdas[-1]), 2 - float(lambdas[0])
    return Bounds(
        n=rows.n,
        m=rows.m,
        lambdas=tuple(lambdas.tolist()),
        thetas=tuple(thetas.tolist()),
        sigma=int(np.count_nonzero(lambdas <= 1)),
        inner=float(np.minimum(np.arange(1, rows.m + 1), rows.n) @ thetas),
        outer=outer,
        doeblin=doeblin,
        pairs=1.0,
        pencil=1.0,
        lower=max(outer, doeblin) * (1 - SPARSE_ROUNDING),
    )


def _pairs_may_exceed(rows: Rows, lower: Fraction) -> bool:
    """Whether `pairs` or `pencil` could be larger than `lower`, as far as that is seen without looking at pairs."""
    if lower >= 3:  # they never are
        return False
    smallest, largest = rows.weights.min(axis=0), rows.weights.max(axis=0)
    first = exact_sum(smallest, axis=0)[0]
    sources = len(rows.columns)
    through = max(int(m) - (sources - 2) * int(n) for m, n in zip(largest, smallest, strict=True))
    return max(3 * UNIT - (sources - 1) * first, 2 * UNIT + through - first) > UNIT * lower


def _pairs_are_shown(rows: Rows, lower: Fraction) -> bool:
    """Whether `pairs` and `pencil` are worked out: where that is quick, or where they could be the largest."""
    if len(rows.columns) ** 2 * rows.distinct <= QUICK_ADDITIONS:
        return True
    return _pairs_may_exceed(rows, lower)


def _pair_bounds(rows: Rows) -> tuple[int, tuple[int, int]]:
    """`pairs`, and `pencil` with its source, in units; with too few sources for them, or too many, 0."""
    sources = len(rows.columns)
    if sources < FEWEST_FOR_PAIRS or sources**2 * rows.distinct > MOST_ADDITIONS:
        return 0, (0, 0)
    through = pair_units(rows)
    largest = rows.weights.max(axis=0).tolist()
    pencil = max((2 * UNIT + m - t, x) for m, t, x in zip(largest, through, rows.columns.tolist(), strict=True))
    return 3 * UNIT - sum(through) // 2, pencil  # every pair was met from both of its ends


def _four_sources(rows: Rows) -> tuple[Fraction, Certificate]:
    """The largest bound of FOUR_SOURCES under all names of the sources, and its certificate."""
    columns = rows.columns.tolist()
    places = {frozenset(some): [columns.index(x) for x in some] for k in (1, 2, 3) for some in combinations(columns, k)}
    low = {some: min(exact_sum(rows.weights[:, inside], axis=1)) for some, inside in places.items()}
    found = []
    for total, scale, weights in FOUR_SOURCES:
        for order in permutations(columns):
            name = dict(zip("abcd", order, strict=True))
            sets = [frozenset(name[c] for c in members) for members in weights]
            spent = sum(weight * low[some] for some, weight in zip(sets, weights.values(), strict=True))
            found.append((Fraction(total * UNIT - spent, scale * UNIT), (total, scale, weights, sets)))
    bound, (total, scale, weights, sets) = max(found, key=lambda one: one[0])
    named = tuple(tuple(sorted(some)) for some in sets)
    return bound, SetCertificate(total, named, tuple(weights.values()), scale=scale)
