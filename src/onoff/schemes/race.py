"""The exponential race: private queries without a table, for any number of sources.

Setting
    p_u(x)  rows;   E_x  independent, exponential with mean 1, shared by all rows
    X_u     = argmin over x of E_x / p_u(x): the winner in row u, distributed as p_u
    Y       = {X_u : u}, the query; it depends on the E only, so it is independent of U and holds X_U

The user knows u and the wanted x, and needs Y given X_u = x. The winning time T = E_x / p_u(x) is exponential with
mean 1 whoever wins, and given that x won at T the others are exponential again from there on:

    E_x = T p_u(x),    E_z = T p_u(z) + (a fresh exponential)    for z != x

so one pass over the rows draws an exact sample. Rows that agree tend to have the same winner: the cost is at most
1 + sum of 2d/(1+d) over any tree on the rows, d their total variation distances. It was 1.01 to 1.5 times the optimum
on the families of `benchmarks/optimal.py`, but 1.72 times on a 7-cube and 1.95 on a 10 x 10 torus. Time and memory are
those of the touched rows; nothing is built ahead but their reciprocals.

What is idealised. Exponentials are -log of uniforms of 53 bits, in floats, so that E_z is off by at most about 2**-52.
A row's winner changes only where its two smallest times are closer than the errors; after the first arrival the next
comes at rate at most 1, and x is among the first two with probability at most about 2 p(x), so summed over a row
that has probability at most 2**-50 per positive entry. The law of the query given u is thus within

    (positive entries) * 2**-50        in total variation

of the ideal one, which is the same for every u: about 1e-9 a step for 1000 dense sources, 2e-8 for 10**6 sources of
out-degree 20. A table has no such term; use one where it fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidTable
from onoff.model.bounds import bounds, lower_bound
from onoff.model.rows import Floats, Integers, Rows, SparseRows
from onoff.system.kernels import kernel
from onoff.tables.table import OPTIMAL_GAP, QuerySource

if TYPE_CHECKING:
    from onoff.session.session import Entropy

NAME = "race"
SAMPLED_WORK, SAMPLED_A_SECOND = 200_000_000, 500_000_000
"""Entries that the estimate of the cost looks at, about; and in a second, on a slow machine."""
MOST_SAMPLES = 2000
FEWEST_SAMPLES = 5
ROWS_AT_ONCE = 1024
HORIZON = 4.0
"""A row's winning time is exponential with mean 1: all but 1 in 50 rows have their winner by then."""
MOSTLY_FULL = 0.3
"""The part of positive entries from which rows are kept as a matrix."""


@dataclass(frozen=True, eq=False)
class Race:
    """Queries for `rows` by racing.

    slowness: 1 / p_u(x). For rows that are mostly full a matrix, one line for each column, infinite where p_u(x) = 0;
    for others one number for each positive entry, and then starts, at: the entries of row u are
    starts[u]:starts[u+1], at these columns.
    work: entries that the estimate of the cost may look at.
    """

    rows: Rows | SparseRows
    slowness: Floats
    starts: Integers
    at: npt.NDArray[np.int32]
    seed: int
    work: int = SAMPLED_WORK
    scheme: str = NAME

    def draw(self, u: int, x: int, entropy: Entropy) -> tuple[int, ...]:
        """A query, drawn given that the hidden value is u (an original row) and that x is wanted.

        Raises InvalidTable where the rows say that x cannot be wanted given u.
        """
        arrival, place = self._arrivals(u, x, entropy)
        hit = self._hit(arrival)
        hit[place] = True  # it is the winner by construction; a tie of floats must not lose it
        return tuple(self.rows.columns[hit].tolist())

    def draw_winners(self, u: int, x: int, entropy: Entropy) -> Winners:
        """As `draw`, with the winner of every row: the query is the set of them."""
        arrival, place = self._arrivals(u, x, entropy)
        if self.slowness.ndim == 2:
            rows = range(0, self.slowness.shape[1], ROWS_AT_ONCE)
            parts = [np.argmin(self.slowness[:, r : r + ROWS_AT_ONCE] * arrival[:, None], axis=0) for r in rows]
            winner = np.concatenate(parts)
        else:
            times = arrival[self.at] * self.slowness
            least = np.repeat(np.minimum.reduceat(times, self.starts[:-1]), np.diff(self.starts))
            first = np.searchsorted(np.flatnonzero(times == least), self.starts[:-1])
            winner = self.at[np.flatnonzero(times == least)[first]].astype(np.int64)
        winner[int(self.rows.group[u])] = place
        return Winners(self, self.rows.columns[winner])

    def _arrivals(self, u: int, x: int, entropy: Entropy) -> tuple[Floats, int]:
        """When each column comes, given that x is the first in row u; and the column of x."""
        place = self.rows.position(x)
        if place is None or self.rows.weight(u, x) == 0:
            raise InvalidTable("the wanted source has probability zero under the chain")
        u = int(self.rows.group[u]) if isinstance(self.rows, Rows) else u
        count = len(self.rows.columns)
        exponential = -np.log(entropy.uniforms(count + 1))
        won, arrival = exponential[count], exponential[:count]
        arrival[place] = 0.0
        if self.slowness.ndim == 2:
            arrival += won / self.slowness[:, u]
        else:
            row = slice(int(self.starts[u]), int(self.starts[u + 1]))
            arrival[self.at[row]] += won / self.slowness[row]
        return arrival, place

    def _hit(self, arrival: Floats) -> npt.NDArray[np.bool_]:
        """Which columns win in some row."""
        hit = np.zeros(len(arrival), dtype=bool)
        if self.slowness.ndim == 2:
            for first in range(0, self.slowness.shape[1], ROWS_AT_ONCE):
                self._race(self.slowness[:, first : first + ROWS_AT_ONCE], arrival, hit)
        else:
            _winners(self.starts, self.at, self.slowness, arrival, hit)
        return hit

    def _race(self, slowness: Floats, arrival: Floats, hit: npt.NDArray[np.bool_]) -> None:
        """Mark the winners of some rows. Most winners come early, and few columns can come early in any row.

        No row sees column x before arrival * least, so a time up to HORIZON beats all columns that are not `near`.
        """
        near = np.flatnonzero(arrival * self._least <= HORIZON)
        decided = np.zeros(slowness.shape[1], dtype=bool)
        if len(near):
            times = slowness[near] * arrival[near, None]
            winner = np.argmin(times, axis=0)
            decided = times[winner, np.arange(len(winner))] <= HORIZON
            hit[near[winner[decided]]] = True
        if not decided.all():
            hit[np.argmin(slowness[:, ~decided] * arrival[:, None], axis=0)] = True

    @cached_property
    def _least(self) -> Floats:
        """The smallest slowness of each column in any row."""
        return np.asarray(self.slowness.min(axis=1), dtype=np.float64)

    @cached_property
    def _sampled(self) -> tuple[float, float]:
        """Mean and standard error of the size of the query, over races with a seed of their own."""
        rng = np.random.default_rng(self.seed)
        samples = int(np.clip(self.work // self.slowness.size, FEWEST_SAMPLES, MOST_SAMPLES))
        sizes = [int(self._hit(rng.exponential(size=len(self.rows.columns))).sum()) for _ in range(samples)]
        return float(np.mean(sizes)), float(np.std(sizes, ddof=1) / np.sqrt(samples))

    @property
    def cost(self) -> float:
        """The expected number of messages downloaded, estimated by seeded sampling: see `stderr`."""
        return self._sampled[0]

    @property
    def stderr(self) -> float:
        """The standard error of `cost`."""
        return self._sampled[1]

    @cached_property
    def lower_bound(self) -> float:
        """A proven lower bound on the cost of every private choice of queries."""
        return float(lower_bound(self.rows)) if isinstance(self.rows, Rows) else bounds(self.rows).lower

    @property
    def gap(self) -> float:
        """How far the cost may be from the least possible, relative to the lower bound."""
        return max(0.0, self.cost / self.lower_bound - 1)

    @property
    def optimal(self) -> bool:
        """Whether cost and proven lower bound meet: only where the cost is surely known, with one row."""
        return self.stderr == 0 and self.gap <= OPTIMAL_GAP

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.starts.nbytes + self.at.nbytes + self.slowness.nbytes

    def distance(self) -> Fraction:
        """How far, at most, the law of a query given u can be from one that is the same for every u (see above)."""
        return Fraction(self.slowness.size, 2**50)

    def __repr__(self) -> str:
        return f"<Race: {self.rows.distinct} rows over {len(self.rows.columns)} sources>"


@dataclass(frozen=True, eq=False)
class Winners:
    """One race as it went: the source that won in every distinct row.

    All rows ran with the same exponentials, which are independent of what is hidden. A filter that takes their outcome
    as known to the server, which sees the set of winners only, is therefore as private, and needs no law of queries.
    """

    race: Race
    winner: Integers

    @property
    def sources(self) -> tuple[int, ...]:
        """The query."""
        return tuple(np.unique(self.winner).tolist())

    def won(self, query: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Whether each source of the query won in each distinct row."""
        return np.asarray(self.winner[:, None] == np.array(query))


Drawn: TypeAlias = QuerySource | Winners
"""What a query was drawn from, as a memory needs to know it."""


def build(rows: Rows | SparseRows, *, seed: int = 0) -> Race:
    """The race for `rows`. seed: of the estimate of its cost; queries are drawn from the entropy given to `draw`."""
    if isinstance(rows, SparseRows):
        return Race(rows, 1 / rows.p, rows.starts, rows.at, seed)
    p = rows.probabilities()
    row, at = np.nonzero(p)
    starts = np.searchsorted(row, np.arange(rows.distinct + 1)).astype(np.int64)
    if len(at) < MOSTLY_FULL * p.size:
        return Race(rows, 1 / p[row, at], starts, at.astype(np.int32), seed)
    with np.errstate(divide="ignore"):
        return Race(rows, np.ascontiguousarray(1 / p.T), starts[:0], at[:0].astype(np.int32), seed)


@kernel
def _winners(starts, at, slowness, arrival, hit):  # type: ignore[no-untyped-def]
    """Mark the winner of every row in `hit`: the column with the smallest arrival * slowness."""
    for u in range(len(starts) - 1):
        best = np.inf
        winner = -1
        for e in range(starts[u], starts[u + 1]):
            time = arrival[at[e]] * slowness[e]
            if time < best:
                best = time
                winner = at[e]
        if winner >= 0:
            hit[winner] = True
