"""Leaky twins of the session: each is the real thing with one mistake, and must be caught.

The numbers m1, ... are those of the threat model. m6, m7, m10 and m12 are mistakes of the client: see `clients`.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from tests.support.typed import as_a, present

from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, to_units
from onoff.session import Query, Session
from onoff.session.memories import BayesFilter, LastQuery
from onoff.tables.table import QueryTable


class TimeSharing(Session):
    """m1: everything while ON, the plain request while OFF."""

    def request(self, source, *, private):
        query = super().request(source, private=private)
        return query if private else Query((self.chain.index(source),), self.chain.n)


class Forgetful(Session):
    """m2: queries made while OFF do not change what it remembers."""

    def request(self, source, *, private):
        query, after = self.propose(source, private=private)
        if private:
            self.memory = after
        return query


class NeverAnchoredAgain(Session):
    """m3: a second ON does not become what must be hidden."""

    seen_on = False

    @property
    def state(self):
        return (self.memory, self.seen_on)

    def request(self, source, *, private):
        if private and self.seen_on:
            return Query(tuple(range(self.chain.n)), self.chain.n)
        self.seen_on |= private
        return super().request(source, private=private)


class WantedFirst(Session):
    """m4: sends the wanted source first."""

    def request(self, source, *, private):
        sources = super().request(source, private=private).sources
        x = self.chain.index(source)
        return Query((x, *(s for s in sources if s != x)), self.chain.n)


def atoms_of(rows):
    """A coupling of all rows: [(mass, (z_0, ..., z_{M-1}))], z_u being what row u takes.

    One uniform number picks from every row, whose sources are laid out from left to right, in every other row from
    right to left.
    """
    layouts = [rows.columns[:: 1 if u % 2 else -1].tolist() for u in range(rows.m)]
    edges = [list(accumulate(rows.weight(u, x) for x in layout)) for u, layout in enumerate(layouts)]
    cuts = sorted({0, *(edge for row in edges for edge in row)})
    return [
        (high - low, tuple(layout[bisect_right(row, low)] for row, layout in zip(edges, layouts, strict=True)))
        for low, high in pairwise(cuts)
    ]


class ConstructionOrder(Session):
    """m5: sends the sources in the order of the construction, while the filter knows only the set.

    The construction couples all rows by one uniform number. The order tells nothing about the present step, and lets
    the next one leak. Only the paper's filter has this weakness: the table of a last query is right for every belief
    about it.
    """

    def __init__(self, chain):
        super().__init__(chain, "single", "bayes-filter")

    def table(self):
        rows = self.memory.rows
        cells, queries = [], []
        for mass, z in atoms_of(rows):
            queries.append(tuple(set(z)))
            cells += [(len(queries) - 1, int(rows.group[u]), z[u], mass) for u in _firsts(rows.group)]
        return QueryTable.from_cells(rows, queries, cells)

    def request(self, source, *, private):
        x, memory = self.chain.index(source), self.memory
        if private or memory.rows.distinct == 1:
            return super().request(x, private=private)
        atoms = [(mass, z) for mass, z in atoms_of(memory.rows) if z[memory.secret_row] == x]
        z = atoms[self._entropy.choose([mass for mass, _ in atoms])][1]
        sent = tuple(dict.fromkeys(z))
        self.memory = self.remember(z, tuple(sorted(sent)), x)
        return Query(sent, self.chain.n)

    def remember(self, z, query, x):
        return self.memory.after(query, x, private=False, table=self.table())


@dataclass(frozen=True)
class OnPieces:
    """A memory that knows the ordered piece: given it and u the present request is certain, so the rows are P_{z_u}."""

    chain: MarkovChain
    pieces: tuple[int, ...]
    secret_row: int
    key = None
    blind = False

    @property
    def rows(self):
        return self.chain.rows(self.pieces)

    def after(self, query, wanted, *, private, table):
        if private:
            return OnPieces(self.chain, query, query.index(wanted))
        return OnPieces(self.chain, (wanted,) * len(self.pieces), self.secret_row)


class OrderedPieces(ConstructionOrder):
    """Control that must stay exactly zero: all of the piece is sent, and the filter knows it."""

    def request(self, source, *, private):
        if isinstance(self.memory, BayesFilter):  # the first request, ON
            query = super().request(source, private=private)
            self.memory = OnPieces(self.chain, query.sources, query.sources.index(self.chain.index(source)))  # type: ignore[assignment]
            return query
        query = super().request(source, private=private)
        return query if private or len(set(self.sent)) == 1 else Query(self.sent, self.chain.n)

    sent = (0,)

    def remember(self, z, query, x):
        self.sent = z
        return OnPieces(self.chain, z, self.memory.secret_row)


class BlindTable(Session):
    """m8: the table is asked without what is hidden: rows are mixed."""

    def request(self, source, *, private):
        memory = self.memory
        if private or memory.rows.distinct == 1:
            return super().request(source, private=private)
        x = self.chain.index(source)
        table = as_a(QueryTable, self.tables.of(memory))
        pooled: dict[Any, Any] = {}
        for u in range(memory.rows.m):
            for k, weight in zip(*table.options(u, x), strict=True):
                pooled[k] = pooled.get(k, 0) + weight
        queries = sorted(pooled)
        query = table.query(queries[self._entropy.choose([pooled[k] for k in queries])])
        self.memory = memory.after(query, x, private=False, table=table)
        return Query(query, self.chain.n)


class Skipped(Query):
    """Nothing was sent, and the user has what was wanted."""

    def __contains__(self, source):
        return True


class SkipsIfCached(Session):
    """m9: does not ask again for the message that it has just been given."""

    def request(self, source, *, private):
        if not private and as_a(LastQuery, self.memory).secret == self.chain.index(source):
            return Skipped((), self.chain.n)
        return super().request(source, private=private)


class TwoDevices(Session):
    """m10b: a second device with a state of its own takes every other request."""

    def __init__(self, chain, scheme):
        super().__init__(chain, scheme)
        self.other = LastQuery(chain)

    @property
    def state(self):
        return (self.memory, self.other)

    def request(self, source, *, private):
        query = super().request(source, private=private)
        self.memory, self.other = self.other, self.memory
        return query


class _Seeded:
    """Draws that follow from one number."""

    def __init__(self, number, of):
        self.number, self.of = number, of

    def choose(self, weights):
        edges = list(accumulate(int(weight) for weight in weights))
        return bisect_right(edges, edges[-1] * self.number // self.of)


class KnownSeed(Session):
    """m11: the server knows the seed, so it knows every draw before it is made."""

    SEEDS = 16

    def request(self, source, *, private):
        real, seed = self._entropy, self._entropy.choose([1] * self.SEEDS)
        self._entropy = _Seeded(seed, self.SEEDS)  # type: ignore[assignment]
        query = super().request(source, private=private)
        self._entropy = real
        return Known(query.sources, query.n, seed)


class Known(Query):
    """A query, and the seed that it was drawn with."""

    drawn: tuple[int, ...]

    def __init__(self, sources, n, seed):
        super().__init__(sources, n)
        object.__setattr__(self, "drawn", sources)
        object.__setattr__(self, "sources", (seed, sources))

    def __contains__(self, source):
        return source in self.drawn


def on_a_grid(chain, bits):
    """m13: a session that works on rows rounded to so many bits."""
    rounded = np.stack([to_units(row.tolist(), 2**bits) / 2**bits for row in chain.transition])
    return Session(MarkovChain(rounded, chain.names, chain.initial), "single")


class RawProgram(Session):
    """m14: draws from what a linear program returned, as it is."""

    def __init__(self, chain):
        super().__init__(chain, "single")
        self.raw = {}

    def request(self, source, *, private):
        memory, x = as_a(LastQuery, self.memory), self.chain.index(source)
        if private or memory.rows.distinct == 1:
            return super().request(x, private=private)
        if memory.last not in self.raw:
            self.raw[memory.last] = raw_solution(memory.rows)
        queries, masses = self.raw[memory.last]
        weights = [int(masses[k, memory.secret_row, x] * UNIT) for k in range(len(queries))]
        if not any(weights):
            query, self.memory = self._fall_back(x)
            return query
        query = queries[self._entropy.choose(weights)]
        self.memory = memory.after(query, x, private=False, table=None)
        return Query(query, self.chain.n)


def raw_solution(rows):
    """The paper's linear program over all subsets, solved in floats: p(q, x | u) as a dense array."""
    from itertools import combinations

    from scipy.optimize import linprog

    n, m = rows.n, rows.m
    queries = [q for size in range(1, n + 1) for q in combinations(range(n), size)]
    place = {key: at for at, key in enumerate((k, u, x) for k, q in enumerate(queries) for u in range(m) for x in q)}
    equal, right = [], []
    for u in range(m):
        for x in range(n):
            equal.append({place[k, u, x]: 1.0 for k, q in enumerate(queries) if x in q})
            right.append(rows.weight(u, x) / UNIT)
    for k, q in enumerate(queries):
        for u in range(1, m):
            equal.append({**{place[k, u, x]: 1.0 for x in q}, **{place[k, 0, x]: -1.0 for x in q}})
            right.append(0.0)
    matrix = np.zeros((len(equal), len(place)))
    for at, entries in enumerate(equal):
        matrix[at, list(entries)] = list(entries.values())
    cost = [len(queries[k]) / m for k, _, _ in place]
    solved = linprog(cost, A_eq=matrix, b_eq=right, method="highs")
    masses = np.zeros((len(queries), m, n))
    for (k, u, x), at in place.items():
        masses[k, u, x] = max(present(solved.x)[at], 0.0)
    return queries, masses


class LearnsFromAll(Session):
    """m15: the chain is learnt anew from every request, private ones included."""

    def __init__(self, chain, scheme):
        super().__init__(chain, scheme)
        self.counts = tuple(tuple(5 * p for p in row) for row in chain.transition.tolist())
        self.scheme = scheme

    @property
    def state(self):
        memory = as_a(LastQuery, self.memory)
        return (self.counts, memory.last, memory.secret)

    def request(self, source, *, private):
        x, before = self.chain.index(source), as_a(LastQuery, self.memory).secret
        query = super().request(x, private=private)
        if before is not None:
            counts = [list(row) for row in self.counts]
            counts[before][x] += 1
            self.counts = tuple(tuple(row) for row in counts)
            rows = np.array(counts)
            learnt = MarkovChain(rows / rows.sum(axis=1, keepdims=True), self.chain.names, self.chain.initial)
            fresh = Session(learnt, self.scheme)
            self.model, self.tables = learnt, fresh.tables
            after = as_a(LastQuery, self.memory)
            self.memory = LastQuery(learnt, after.last, after.secret)
        return query


class AllButOne(Session):
    """m16: ON leaves out another source."""

    def request(self, source, *, private):
        query = super().request(source, private=private)
        if not private:
            return query
        others = [s for s in query.sources if s != self.chain.index(source)]
        dropped = others[self._entropy.choose([1] * len(others))]
        return Query(tuple(s for s in query.sources if s != dropped), self.chain.n)


def _firsts(group):
    """The first u of every distinct row."""
    return [group.tolist().index(r) for r in sorted(set(group.tolist()))]
