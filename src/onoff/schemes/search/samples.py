"""Sets to start the master program with: random couplings of the rows, seen as the sets that they hit.

`systematic`. Where the optimum is the outer bound, source x is asked for with probability m_x = max_u p_u(x) exactly,
and two sources that share their maximising row never occur together. Lay the sources on a line, each as a piece of
length m_x, the sources of one row next to one another (together at most 1 long), and take those at s, s + 1, s + 2, ...
for a random shift s: both hold for every order of the rows. A few orders give a pool that almost always contains
the optimum of a dense chain.

`races`. X_u = argmin_x E_x / p_u(x) with the same exponential E for every row: the sets that the race would ask for.
Every row can follow these at once, so they make the program feasible.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onoff.model.rows import Floats
from onoff.schemes.search.exact import Sets, rebuild_sets
from onoff.schemes.search.herding import Herding
from onoff.schemes.search.kinds import MANY, Where, starts_from_samples
from onoff.schemes.search.portfolio import Board, IsOver, Problem


class Samples:
    """A table of systematic samples, for full rows with small queries; and sets for the pool, with those of races.

    where: the kind of rows that it is for. table: whether to make a table, where no program follows.
    orders: of the systematic samples, at least and at most; the larger the queries, the more are of use.
    most_sets: that the systematic samples give, about.
    races_a_source: for each source two races make the program feasible.
    rest: what the samples leave is herded.
    """

    def __init__(
        self,
        share: float = 0.4,
        where: Where = starts_from_samples,
        *,
        table: bool = False,
        orders: tuple[int, int] = (4, 24),
        most_sets: int = 6000,
        races_a_source: int = 2,
        rest: Herding | None = None,
    ) -> None:
        self.share, self.where, self.table, self.orders, self.most_sets = share, where, table, orders, most_sets
        self.races_a_source, self.rest = races_a_source, Herding(share) if rest is None else rest

    def applies(self, problem: Problem) -> bool:
        """Rows of the kind."""
        return self.where(problem)

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """Two kinds of sets; or a table."""
        rng, wanted = problem.rng(), 1.3 * problem.p.max(axis=0).sum()
        if problem.size >= MANY:
            wanted += 2 * problem.size / problem.distinct
        wanted = np.clip(wanted, *self.orders) if problem.full else self.orders[0]
        most = float(self.most_sets)
        if self.table:  # what they leave is little, or else there are too few of them for rows so many
            a_set = problem.distinct * (self.rest.a_row + self.rest.a_column * problem.lower)
            most = min(most, 0.9 * problem.clock.left(self.share) / a_set)
        sets, masses = systematic(problem.p, int(np.clip(wanted, 1, max(most // problem.size, 1))), rng)
        if self.table:
            table = rebuild_sets(problem.rows, sets, masses)
            board.offer(table)
            yield from self.rest.passes_from(problem, board, [table])
        else:
            board.add(sets)
            yield
            board.add(races(problem.p, self.races_a_source * problem.size, rng))
        yield


def systematic(p: Floats, orders: int, rng: np.random.Generator) -> tuple[Sets, Floats]:
    """The sets of `orders` systematic samples with inclusion probabilities max_u p_u(x), and their masses."""
    rows, columns = p.shape
    largest: Floats = p.max(axis=0)
    home = np.argmax(p, axis=0)
    found, masses = [], []
    for _ in range(orders):
        order = np.lexsort((rng.random(columns), rng.permutation(rows)[home]))
        edges = np.concatenate([[0.0], np.cumsum(largest[order])])
        shifts = np.unique(edges % 1.0)
        lengths = np.diff(np.append(shifts, 1.0))
        points = (shifts + lengths / 2)[:, None] + np.arange(int(np.ceil(edges[-1])))
        inside = points < edges[-1]
        at = np.minimum(np.searchsorted(edges, points, side="right") - 1, columns - 1)
        chosen = np.zeros((len(shifts), columns), dtype=bool)
        chosen[np.nonzero(inside)[0], order[at[inside]]] = True
        found.append(chosen[chosen.any(axis=1)])
        masses.append(lengths[chosen.any(axis=1)] / orders)
    return np.vstack(found), np.concatenate(masses)


def races(p: Floats, count: int, rng: np.random.Generator) -> Sets:
    """The sets that `count` exponential races hit."""
    chosen = np.zeros((count, p.shape[1]), dtype=bool)
    with np.errstate(divide="ignore"):
        slowness = 1 / p
    for line in chosen:
        line[np.argmin(rng.exponential(size=p.shape[1]) * slowness, axis=1)] = True
    return chosen
