"""Sets for the pool, and tables of them: herding, and random samples to start with.

Herding: sets that are best at prices, and prices that follow what was taken.

Setting
    phi_u(x)  the price that row u offers for taking x;   S  a set of columns, each of which costs 1
    gain(S)   sum over rows of the largest phi_u(x) with x in S,  less |S|

Maximising the gain is what the dual of a coupling asks for (see `few_rows`), so a set that gains most at good prices is
worth its mass. Let it be taken, for one step: each row takes the column of S that it offers most for. Then prices
follow,

    phi_u(x)  +=  pace * (p_u(x) - 1 where u took x),

so that a column taken too seldom by a row is offered more for. The rows are met on average: phi cannot run away, and
(phi now - phi before) / pace is just what a row is behind or ahead. And with a small pace every set gains nearly the
most that any can, so that on average they cost nearly the optimum: a subgradient method on the dual, called herding
where it is used to draw samples. The sets of the last steps, each with the same mass, are a table but for a small rest;
and they are the columns of a master program whose optimum is cheaper still (see `master`).

Prices start at the dual of the outer bound: each column is worth 1 to the row that wants it most. Where that bound is
the optimum, or near it, nothing is left to be learned but which of many equally good sets to take when.

The best set is not looked for from scratch: after a step of prices the last one nearly is it. Adding, dropping and
swapping a column are judged for all columns in one pass over the positive entries (the fast interchange of facility
location), so that a step costs O(entries).

Samples: random couplings of the rows, seen as the sets that they hit.

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

from onoff.model.rows import UNIT, Floats, Integers
from onoff.schemes.search.exact import Sets, each_once, everything_left, laid_together, rebuild_sets, repaired
from onoff.schemes.search.portfolio import Board, Clock, IsOver, Problem, Where
from onoff.system.kernels import kernel
from onoff.tables.table import QueryTable

WORTH_MOVING = 1e-9
"""What a change of the set must gain."""
FOR_THE_FIRST = 2 / 3
"""The part of the time that is left for the next of several passes."""
SWEEPS = 6
"""Passes over all columns in a step, at most."""


class Herding:
    """As many steps as fit in the time of the strategy, then a table of the last sets; the pool gets some of them.

    What the sets of a table leave is again a matrix of rows, the same mass in each, and is herded again: passes.

    where: the kind of rows that it is for.
    steps: at most. short: whether to run only where all of them fit in the time, as a first look before the program.
    paces: how fast prices follow, as multiples of the last pace, and in which part of the steps.
    slowest: the last pace; where steps are few it is larger, so that prices could still move by `reach` in all of them.
    worth_slowing: steps for each column from which those of the first paces can be spared; of fewer each set counts.
    timed: steps after which it is known how long one takes; an_entry: what it takes for each entry, about, in seconds.
    for_tables: the part of its time that making tables takes; a_row, a_column: what a set takes there, for each row and
    for each of its columns that a row can want, in seconds.
    pooled: sets for the pool: the program of the pool is solved quickly with so many.
    passes: at most; worth_a_pass: the mass from which another is made.
    """

    def __init__(
        self,
        share: float = 0.55,
        where: Where = lambda problem: problem.many,
        *,
        steps: int = 60_000,
        short: bool = False,
        paces: tuple[tuple[float, float], ...] = ((4.0, 0.2), (2.0, 0.3), (1.0, 0.5)),
        slowest: float = 0.005,
        reach: float = 16.0,
        worth_slowing: float = 3.0,
        timed: int = 8,
        an_entry: float = 2.5e-8,
        for_tables: float = 0.3,
        a_row: float = 6e-7,
        a_column: float = 5e-8,
        pooled: int = 1500,
        passes: int = 3,
        worth_a_pass: float = 1e-4,
    ) -> None:
        self.share, self.where, self.steps, self.short, self.paces = share, where, steps, short, paces
        self.slowest, self.reach, self.worth_slowing = slowest, reach, worth_slowing
        self.timed, self.an_entry, self.for_tables = timed, an_entry, for_tables
        self.a_row, self.a_column = a_row, a_column
        self.pooled, self.passes, self.worth_a_pass = pooled, passes, worth_a_pass

    def applies(self, problem: Problem) -> bool:
        """Rows of the kind; a short run, only where it is one."""
        if self.short and self.steps * problem.entries * self.an_entry > self.share * problem.clock.budget:
            return False
        return self.where(problem)

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """Passes of steps; a table of all passes so far after each."""
        yield from self.passes_from(problem, board, [])

    def passes_from(self, problem: Problem, board: Board, parts: list[QueryTable]) -> Iterator[None]:
        """Passes for what `parts`, tables each for what the one before leaves, leave in the end."""
        clock = problem.clock
        for number in range(self.passes):
            rows, unit = problem.rows, UNIT
            if parts:
                rest, unit = everything_left(parts[-1]), int(parts[-1].mass[-1])
                if rest is None or unit < self.worth_a_pass * UNIT:
                    return
                rows = rest
            spent = clock.spent / clock.budget
            until = self.share if number == self.passes - 1 else spent + (self.share - spent) * FOR_THE_FIRST
            taken: list[Sets] = []
            for some in self._steps(rows.weights / unit, problem.outer or bool(parts), clock, until):
                taken.append(some)
                yield
            sets = np.concatenate(taken)
            if not parts:
                board.add(each_once(sets[:: -(-len(sets) // self.pooled)]))
            a_set = self.a_row * problem.table_rows + self.a_column * sets.mean() * np.count_nonzero(rows.weights)
            used = sets[-int(np.clip(max(clock.left(until), 0.02) / a_set, 1, len(sets))) :]
            parts.append(rebuild_sets(rows, used, np.full(len(used), unit / UNIT / len(used))))
            mended = repaired(parts[-1], board.seconds(self.share))
            board.offer(laid_together(problem.rows, *parts[:-1], mended) if len(parts) > 1 else mended)
            yield

    def _steps(self, p: Floats, outer: bool, clock: Clock, until: float) -> Iterator[Sets]:
        """The sets of the steps at the last pace, some at a time; nothing before it."""
        market, began = Market(p, outer=outer), clock.spent
        for _ in range(self.timed):
            market.take(4 * self.slowest, 1)
            if clock.left(until) <= 0:
                break
        left, step = clock.left(until) * (1 - self.for_tables), (clock.spent - began) / self.timed
        paces = self.paces if left > self.worth_slowing * step * p.shape[1] else ((1.0, 1.0),)
        end = clock.spent
        for number, (multiple, part) in enumerate(paces):
            end, wanted = end + part * left, int(part * self.steps)
            while wanted > 0 and (clock.spent < end or wanted == int(part * self.steps)):
                at_a_time = int(np.clip(0.02 / max(step, 1e-7), 1, wanted))  # early steps take longer than later ones
                pace, began = max(self.slowest, self.reach * step / max(left, 1e-3)), clock.spent
                some = market.take(multiple * pace, at_a_time)
                step, wanted = (clock.spent - began) / at_a_time, wanted - at_a_time
                yield some if number == len(paces) - 1 else some[:0]


class Samples:
    """A table of systematic samples, for full rows with small queries; and sets for the pool, with those of races.

    where: the kind of rows that it is for. table: whether to make a table, where no program follows.
    orders: of the systematic samples, at least and at most; the larger the queries, the more are of use.
    most_sets: that the systematic samples give, about.
    races_a_source: for each source two races make the program feasible.
    """

    def __init__(
        self,
        share: float = 0.4,
        where: Where = lambda problem: not problem.many or (problem.central and not problem.few),
        *,
        table: bool = False,
        orders: tuple[int, int] = (4, 24),
        most_sets: int = 6000,
        races_a_source: int = 2,
    ) -> None:
        self.share, self.where, self.table, self.orders, self.most_sets = share, where, table, orders, most_sets
        self.races_a_source, self.rest = races_a_source, Herding(share)  # what samples leave is herded

    def applies(self, problem: Problem) -> bool:
        """Rows of the kind."""
        return self.where(problem)

    def run(self, problem: Problem, board: Board, is_over: IsOver) -> Iterator[None]:
        """Two kinds of sets; or a table."""
        rng, wanted = problem.rng(), 1.3 * problem.p.max(axis=0).sum()
        if problem.many:
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


class Market:
    """Prices, and the set that gains most at them.

    Entries are the positive p_u(x), column by column; `of_row` lists them row by row.
    outer: whether prices start at the dual of the outer bound, else at 0. unmet: what a row counts for that can take
    nothing of a set: more than any column costs.
    """

    def __init__(self, p: Floats | Sets, *, outer: bool = True, unmet: float = 1e3) -> None:
        column, row = np.nonzero(p.T)
        self.column, self.row = column.astype(np.int64), row.astype(np.int64)
        self.p: Floats = np.ascontiguousarray(p.T[column, row], dtype=np.float64)
        self.start = np.searchsorted(column, np.arange(p.shape[1] + 1)).astype(np.int64)
        self.of_row: Integers = np.argsort(row, kind="stable").astype(np.int64)
        self.first = np.searchsorted(row[self.of_row], np.arange(len(p) + 1)).astype(np.int64)
        self.phi, self.unmet = np.zeros(len(row)), unmet
        if outer:
            wanted_most = self.p >= p.max(axis=0)[column] * (1 - 1e-9)
            self.phi += wanted_most / np.bincount(column, wanted_most)[column]
        self.inside = np.ones(p.shape[1], dtype=np.bool_)

    def take(self, pace: float, steps: int) -> Sets:
        """The sets of so many steps."""
        taken = np.zeros((steps, len(self.inside)), dtype=bool)
        net = self.start, self.row, self.first, self.of_row, self.column
        _take(*net, self.p, self.phi, self.inside, self.unmet, pace, taken)
        return taken


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


@kernel
def _take(start, row, first, of_row, column, p, phi, inside, unmet, pace, taken):  # type: ignore[no-untyped-def]
    """Find a set that gains most, let rows take of it, let prices follow; once for each line of `taken`.

    start: where the entries of each column begin, row and column: of each entry; first, of_row: the entries of each
    row. best, second: the entries of the two columns in the set that a row offers most for, or -1; offer, other: these
    prices. loss[x]: what rows lose if x leaves the set. O(entries) a pass, and few passes a step.
    """
    rows, columns = len(first) - 1, len(inside)
    best, second = np.empty(rows, np.int64), np.empty(rows, np.int64)
    offer, other = np.empty(rows), np.empty(rows)
    loss, saved = np.empty(columns), np.zeros(columns)
    touched = np.empty(rows, np.int64)
    for step in range(len(taken)):
        _rank(start, row, column, phi, inside, unmet, best, second, offer, other, loss)
        for _ in range(SWEEPS):
            changed = False
            for x in range(columns):
                gone, come = -1, -1
                if inside[x]:
                    if loss[x] < 1.0 - WORTH_MOVING:
                        gone = x
                else:
                    gain, gone = _move(x, start, row, column, phi, unmet, best, offer, other, loss, saved, touched)
                    if gain > WORTH_MOVING:
                        come = x
                    else:
                        gone = -1
                if come >= 0:
                    inside[come] = True
                    _add(come, start, row, column, phi, best, second, offer, other, loss)
                if gone >= 0:
                    inside[gone] = False
                    _drop(gone, start, row, first, of_row, column, phi, inside, unmet, best, second, offer, other, loss)
                changed = changed or come >= 0 or gone >= 0
            if not changed:
                break
        taken[step] = inside
        for e in range(len(p)):
            phi[e] += pace * p[e]
        for u in range(rows):
            phi[best[u]] -= pace


@kernel
def _rank(start, row, column, phi, inside, unmet, best, second, offer, other, loss):  # type: ignore[no-untyped-def]
    """Fill in best, second, offer, other and loss for the set: a pass over the entries of its columns."""
    best[:] = -1
    second[:] = -1
    offer[:] = -unmet
    other[:] = -unmet
    loss[:] = 0.0
    for x in range(len(inside)):
        if inside[x]:
            for e in range(start[x], start[x + 1]):
                u = row[e]
                if phi[e] > offer[u]:
                    second[u], other[u], best[u], offer[u] = best[u], offer[u], e, phi[e]
                elif phi[e] > other[u]:
                    second[u], other[u] = e, phi[e]
    for u in range(len(best)):
        if best[u] >= 0:
            loss[column[best[u]]] += offer[u] - other[u]


@kernel
def _move(x, start, row, column, phi, unmet, best, offer, other, loss, saved, touched):  # type: ignore[no-untyped-def]
    """The most that taking x into the set gains, and the column that leaves for it, or -1.

    saved[z]: what of loss[z] rows do not lose where x is there; `touched` lists the z with any, and leaves it 0 again.
    """
    gain, count = -1.0, 0
    for e in range(start[x], start[x + 1]):
        u = row[e]
        if best[u] < 0:
            gain += phi[e] + unmet
        elif phi[e] > other[u]:
            z = column[best[u]]
            if saved[z] == 0.0:
                touched[count] = z
                count += 1
            saved[z] += min(phi[e], offer[u]) - other[u] + 1e-300
            if phi[e] > offer[u]:
                gain += phi[e] - offer[u]
    most, gone = gain, -1
    for k in range(count):
        z = touched[k]
        swapped = gain + 1.0 - loss[z] + saved[z]
        if swapped > most + WORTH_MOVING:
            most, gone = swapped, z
        saved[z] = 0.0
    return most, gone


@kernel
def _add(x, start, row, column, phi, best, second, offer, other, loss):  # type: ignore[no-untyped-def]
    """Keep best, second, offer, other and loss after x was taken into the set: O(entries of x)."""
    for e in range(start[x], start[x + 1]):
        u = row[e]
        if phi[e] > offer[u]:
            if best[u] >= 0:
                loss[column[best[u]]] -= offer[u] - other[u]
            second[u], other[u], best[u], offer[u] = best[u], offer[u], e, phi[e]
            loss[x] += offer[u] - other[u]
        elif phi[e] > other[u]:
            loss[column[best[u]]] -= phi[e] - other[u]
            second[u], other[u] = e, phi[e]


@kernel
def _drop(x, start, row, first, of_row, column, phi, inside, unmet, best, second, offer, other, loss):  # type: ignore[no-untyped-def]
    """The same after x left the set: rows that offered most or second most for x look for another second."""
    loss[x] = 0.0
    for e in range(start[x], start[x + 1]):
        u = row[e]
        if best[u] != e and second[u] != e:
            continue
        if best[u] == e:
            best[u], offer[u] = second[u], other[u]
        else:
            loss[column[best[u]]] -= offer[u] - other[u]
        second[u], other[u] = -1, -unmet
        for k in range(first[u], first[u + 1]):
            f = of_row[k]
            if f != best[u] and inside[column[f]] and phi[f] > other[u]:
                second[u], other[u] = f, phi[f]
        if best[u] >= 0:
            loss[column[best[u]]] += offer[u] - other[u]
