"""Tables that may leak a little: the cheapest one within a budget of maximal leakage, of a ratio, or of both.

Setting
    p_u(x)   rows, w_u their weights;   f_u(q)  what row u sends into query q;   m_q  the largest f_u(q) over u
    leak     sum of m_q <= B = 2^bits: whatever the server guesses about u, its chance is at most B times what it was,
             on average over queries (Issa, Wagner, Kamath)
    ratio    f_u(q) >= m_q / R, R = 2^bits: no query changes the odds between two values of u by more than R

    minimise    sum of w_u |q| f_u(q)      such that row u can send its units from sources x in q, f_u(q) <= m_q, ...

B = 1 is the table without leakage. The dual is what a `LeakCertificate` states. Few rows and sources: column
generation, all queries priced, until cost and bound meet. Else queries and bound come from a program over sizes
(`leak_sizes`): 50 sources within 3 % in 9 s, 200 within 1 to 14 %.

A float only proposes sets and masses. The table is rebuilt in integers: every row sends its units by the cheapest flow
into the proposed masses (sets by size, so that none is dearer than it must be), what does not fit goes to "everything",
and masses are lowered until the sum of the largest is within the budget. Weights decide cost, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from onoff.errors import Stopped
from onoff.model.certificate import WEIGHTS, LeakCertificate, LeakLimit
from onoff.model.checker import FEW_SOURCES, query_gains, size_gains
from onoff.model.rows import UNIT, Floats, Integers, Rows
from onoff.schemes import optimal
from onoff.schemes.leak_sizes import Sizes, drawn, herd
from onoff.schemes.search.exact import Sets
from onoff.schemes.search.flow import cheapest_flows
from onoff.schemes.search.portfolio import Clock, Stop, never
from onoff.tables.table import QueryTable

NAME = "leak"
SOLVED = 1e-7
"""Relative distance of cost and bound at which the program counts as solved."""
LOWEST = -64.0
"""The price of a source that a row never wants, where it matters."""
MOST_PRICED = 400
"""Rows times sources up to which all queries are priced."""
PRICING_SECONDS = 20.0
"""Seconds from which that many are priced; with less, sampled queries are cheaper: 17 sources within 0.4 % in 2 s."""
FOR_THE_BOUND, REFINEMENTS = 0.55, 5
"""The part of the time for the program over sizes, and how often its sizes are chosen again."""
SECONDS_PER_EDGE = 2e-7
"""Of a flow, for each row: by which queries are as many as there is time for."""
MOST_EDGES, EDGES_PER_ENTRY = 200_000, 50
"""Sources of all sampled queries together, and the same for each entry of the rows."""
MENDINGS = 2
"""How often sources are added, at most, to queries where rows lack them."""
PACE = 0.3
"""How much dearer a source becomes by one query that lacks it, for rows of the usual weight."""
NEW_SETS, LOOKED_AT = 60, 4000
"""Queries that are added in a round, and those of the largest gains among which they are looked for."""
SMALLEST_MASS = 1e-9
"""A proposed query with less mass is left out."""


def build(
    rows: Rows,
    *,
    leak: float | None = None,
    ratio: float | None = None,
    weights: Any = None,
    budget: float = 120.0,
    progress: Callable[[str], None] | None = None,
    stop: Stop = never,
    enough: Stop = never,
) -> QueryTable:
    """The cheapest table whose queries tell at most so much, with a certificate.

    leak: bits of maximal leakage. ratio: bits between the masses of a query for two values of u.
    weights: of the values u, for the cost (default: all alike).
    """
    return within(rows, LeakLimit.of(rows, leak, ratio, weights), budget, progress, stop, enough)


def within(
    rows: Rows,
    limit: LeakLimit,
    budget: float,
    progress: Callable[[str], None] | None = None,
    stop: Stop = never,
    enough: Stop = never,
) -> QueryTable:
    """The same for a limit in integers."""
    program, clock = LeakProgram(rows, limit), Clock(budget, stop, enough)
    few = len(rows.columns) <= FEW_SOURCES and rows.weights.size <= MOST_PRICED
    few = few and budget >= PRICING_SECONDS * rows.weights.size / MOST_PRICED
    found = _solve(program, clock, progress) if few else _sampled(program, clock, progress)
    return exact_table(rows, limit, found.sets, found.masses, scheme="optimal", certificate=found.certificate)


# -- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeakProposal:
    """Sets and largest masses, proposed, and a proof of what every table costs at least."""

    sets: Sets
    masses: Floats
    certificate: LeakCertificate


class LeakProgram:
    """The program over a pool of sets, in floats."""

    def __init__(self, rows: Rows, limit: LeakLimit) -> None:
        self.rows, self.limit = rows, limit
        self.p: Floats = rows.probabilities()
        self.w: Floats = np.array(limit.weights) / WEIGHTS
        self.most: float = math.inf if limit.leak is None else limit.leak / UNIT
        self.share: float = 0.0 if limit.ratio is None else UNIT / limit.ratio

    def solve(self, sets: Sets) -> tuple[float, Floats, Floats]:
        """The cost, the largest masses and the prices of the sets alone, by an interior point method.

        Variables m_q, then the flow of row u from x into q wherever p_u(x) > 0 and x in q. Rows of the program: the
        supply of each (u, x), f_u(q) - m_q <= 0, f_u(q) - m_q / R >= 0, sum of m_q <= B.
        """
        import highspy
        from scipy.sparse import coo_array

        m, n, k = *self.p.shape, len(sets)
        of_set, source = np.nonzero(sets)
        row, edge = np.nonzero(self.p[:, source] > 0)
        flow, pair = k + np.arange(len(row)), row * k + of_set[edge]
        mass = np.tile(np.arange(k), m)
        lines = [row * n + source[edge], m * n + pair, m * n + np.arange(m * k), np.full(k, m * n + m * k)]
        columns, values = [flow, flow, mass, np.arange(k)], [1.0, 1.0, -1.0, 1.0]
        infinity = float(highspy.kHighsInf)
        low = [self.p.ravel(), np.full(m * k + 1, -infinity)]
        high = [self.p.ravel(), np.zeros(m * k), np.array([self.most])]
        if self.share:
            first = m * n + m * k + 1
            lines += [first + pair, first + np.arange(m * k)]
            columns, values = [*columns, flow, mass], [*values, 1.0, -self.share]
            low, high = [*low, np.zeros(m * k)], [*high, np.full(m * k, infinity)]
        entries = np.concatenate([np.full(len(at), value) for at, value in zip(columns, values, strict=True)])
        height, width = sum(map(len, low)), k + len(row)
        where = (np.concatenate(lines), np.concatenate(columns))
        matrix = coo_array((entries, where), shape=(height, width)).tocsc()
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = width, height
        program.col_cost_ = np.concatenate([np.zeros(k), self.w[row] * sets.sum(axis=1)[of_set[edge]]])
        program.col_lower_, program.col_upper_ = np.zeros(width), np.full(width, infinity)
        program.row_lower_, program.row_upper_ = np.concatenate(low), np.concatenate(high)
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_, program.a_matrix_.index_ = matrix.indptr, matrix.indices
        program.a_matrix_.value_ = matrix.data
        model = highspy.Highs()
        model.silent()
        for option, setting in {"solver": "ipm", "run_crossover": "off", "threads": 1}.items():
            model.setOptionValue(option, setting)
        model.passModel(program)
        model.run()
        solution = model.getSolution()
        prices = np.array(solution.row_dual)[: m * n].reshape(m, n)
        cost = float(model.getInfo().objective_function_value)
        return cost, np.maximum(np.array(solution.col_value)[:k], 0.0), prices

    def least_proof(self) -> LeakCertificate:
        """That a query holds one source at least."""
        prices = tuple((weight,) * self.p.shape[1] for weight in self.limit.weights)
        return LeakCertificate(self.limit, prices, 0)

    def certificate(self, prices: Floats, thresholds: Floats | None = None) -> tuple[LeakCertificate, Integers]:
        """The proof that the prices give, and the gains at them: of every set of columns by its mask, or by sizes.

        thresholds: for queries of 1, 2, ... sources; None where every set is looked at.
        """
        never = 0.0 if self.limit.ratio is None else LOWEST
        priced = np.floor(np.where(self.p > 0, np.maximum(prices, never), never) * WEIGHTS).astype(np.int64)
        t = np.zeros((0, len(priced)), dtype=np.int64)
        if thresholds is not None:
            t = np.rint(thresholds * WEIGHTS).astype(np.int64)
        gains = self._gains(priced, t)
        over = int(gains.max())
        while self.limit.leak is None and over > 0:  # lower prices take 1/R of what they are lowered by from every gain
            lower = [over * weight * (self.limit.ratio or 0) // (UNIT * WEIGHTS) + 2 for weight in self.limit.weights]
            priced -= np.array(lower, dtype=np.int64)[:, None]
            t -= np.array([less * UNIT // (self.limit.ratio or UNIT) for less in lower], dtype=np.int64)
            over = int(self._gains(priced, t).max())
        proof = LeakCertificate(self.limit, _tuples(priced), max(over, 0), _tuples(t))
        return proof, gains

    def _gains(self, prices: Integers, thresholds: Integers) -> Integers:
        if len(thresholds):
            return np.array(size_gains(prices, self.limit, _tuples(thresholds)))
        gains = query_gains(prices, self.limit)
        gains[0] = np.iinfo(np.int64).min  # no query
        return gains


def _tuples(lines: Integers) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, lines.tolist()))


def _solve(program: LeakProgram, clock: Clock, progress: Callable[[str], None] | None) -> LeakProposal:
    """Column generation: solve over the pool, price all queries at its duals, add those of the largest gains."""
    columns = program.p.shape[1]
    sets = np.vstack([np.eye(columns, dtype=bool), np.ones((1, columns), dtype=bool)])[: columns + (columns > 1)]
    proof, proved = program.least_proof(), 1.0
    while True:
        _go_on(clock)
        cost, masses, prices = program.solve(sets)
        certificate, gains = program.certificate(prices)
        bound = float(certificate.bound(program.rows))
        if bound > proved:
            proof, proved = certificate, bound
        if progress is not None:
            progress(f"{len(sets)} queries, cost {cost:.5f}, at least {proved:.5f}, {clock.spent:.1f} s")
        new = _gaining(gains, sets)
        if cost <= proved * (1 + SOLVED) or not len(new) or clock.is_over():
            break
        sets = np.vstack([sets, new])
    return LeakProposal(sets, masses, proof)


def _gaining(gains: Integers, known: Sets) -> Sets:
    """Sets that are not known and gain more than those that are, local maxima first."""
    columns = known.shape[1]
    bits = 1 << np.arange(columns)
    masks = known @ bits
    least = int(gains[masks].max())
    some = np.argpartition(-gains, min(LOOKED_AT, len(gains) - 1))[:LOOKED_AT]
    some = some[(gains[some] > least) & (some > 0)]
    highest = (gains[some] >= gains[some[:, None] ^ bits].max(axis=1)) if len(some) else np.zeros(0, dtype=bool)
    order = np.lexsort((some, -gains[some], ~highest))[:NEW_SETS]
    return np.asarray((some[order][:, None] & bits) > 0)


# -- many sources ------------------------------------------------------------------------------------------


def _sampled(program: LeakProgram, clock: Clock, progress: Callable[[str], None] | None) -> LeakProposal:
    """A bound and queries from the program over sizes; with a ratio, the queries of a table that tells nothing.

    Within a ratio every row must ask for every query, which the queries drawn here are not made for.
    """
    rows, limit = program.rows, program.limit
    sizes = Sizes(program.p, program.w, program.most, program.share)
    proof, proved = program.least_proof(), 1.0
    for part in range(1, REFINEMENTS + 1):
        _go_on(clock)
        relaxed = sizes.run(partial(clock.is_over, FOR_THE_BOUND * part / REFINEMENTS))
        certificate, gains = program.certificate(relaxed.prices, relaxed.thresholds(program.p.shape[1], program.share))
        bound = float(certificate.bound(rows))
        if bound > proved:
            proof, proved = certificate, bound
        if progress is not None:
            progress(f"{len(relaxed.sizes)} sizes of queries, cost at least {proved:.5f}, {clock.spent:.1f} s")
        sizes.refine(gains / WEIGHTS, most=4)
    if limit.ratio is not None:
        silent = optimal.build(rows, budget=max(clock.left(), 0.0), stop=clock.stop)
        sets = np.array([np.isin(rows.columns, query) for query in silent.queries])
        return LeakProposal(sets, silent.mass / UNIT, proof)
    edges = min(clock.left() / (2 * SECONDS_PER_EDGE * len(program.p)), MOST_EDGES)  # to mend them, and for the table
    edges = min(edges, EDGES_PER_ENTRY * program.p.size)
    rng = np.random.default_rng(0)
    sets = rng.permutation(drawn(relaxed, program.p, max(int(edges), 4 * program.p.shape[1]), rng))
    mass = program.most / len(sets)
    herd(sets, program.p, relaxed.prices.copy(), program.w, mass, PACE / (len(program.p) * mass))
    for _ in range(MENDINGS):
        before = int(sets.sum())
        sets = _mended(rows, sets, int(mass * UNIT))
        if sets.sum() == before:
            break
    return LeakProposal(sets, np.full(len(sets), mass), proof)


def _mended(rows: Rows, sets: Sets, mass: int) -> Sets:
    """The sets, each of that mass in units, with sources added where rows cannot send all that they have.

    A row that has units of x left has as much room, and more, in sets without x: x is added where most rows that lack
    it have room, for the least cost.
    """
    sets = sets[np.argsort(sets.sum(axis=1), kind="stable")]
    owner, items = np.nonzero(np.vstack([sets, np.ones((1, sets.shape[1]), dtype=bool)]))
    offsets = np.searchsorted(owner, np.arange(len(sets) + 2)).astype(np.int64)
    most = np.append(np.full(len(sets), mass), UNIT)
    row, edge, weight, _ = cheapest_flows(rows.weights, offsets, items.astype(np.int64), np.zeros_like(most), most)
    sent = np.zeros((rows.distinct, len(sets) + 1))
    np.add.at(sent, (row, owner[edge]), weight / UNIT)
    unsent = owner[edge] == len(sets)
    left = np.zeros(rows.weights.shape)
    np.add.at(left, (row[unsent], items[edge[unsent]]), weight[unsent] / UNIT)
    room, load = np.maximum(mass / UNIT - sent[:, :-1], 0.0), sent[:, :-1].sum(axis=0) + SMALLEST_MASS
    for x in np.flatnonzero(left.any(axis=0)).tolist():
        lacking = np.flatnonzero(left[:, x])
        missing, open_to = left[lacking, x], room[lacking] * ~sets[:, x]
        while True:
            placed = np.minimum(open_to, missing[:, None])
            best = int(np.argmax(placed.sum(axis=0) / load))
            if missing.max() <= SMALLEST_MASS or not placed[:, best].any():
                break
            sets[best, x] = True
            missing = missing - placed[:, best]
            room[lacking, best] -= placed[:, best]
            open_to[:, best] = 0.0
    return sets


def _go_on(clock: Clock) -> None:
    """Raise Stopped where the search was called off."""
    if clock.stop():
        raise Stopped("the search was told to stop", hint="give it time, or a smaller budget")


# -- the table ---------------------------------------------------------------------------------------------


def exact_table(rows: Rows, limit: LeakLimit, sets: Sets, masses: Floats, **labels: Any) -> QueryTable:
    """The table in integers that follows the proposal: cheapest flows into its masses, within the limit exactly."""
    columns = len(rows.columns)
    kept = (masses > SMALLEST_MASS) & (sets.sum(axis=1) < columns) & sets.any(axis=1)
    order = np.argsort(sets[kept].sum(axis=1), kind="stable")
    sets = np.vstack([sets[kept][order], np.ones((1, columns), dtype=bool)])
    most = np.append((np.minimum(masses[kept][order], 1.0) * UNIT).astype(np.int64), 0)
    owner, items = np.nonzero(sets)
    offsets = np.searchsorted(owner, np.arange(len(sets) + 1)).astype(np.int64)
    least = _least(most, limit)
    while True:
        most[-1] = UNIT
        row, edge, weight, filled = cheapest_flows(rows.weights, offsets, items.astype(np.int64), least, most)
        sent = np.zeros((rows.distinct, len(sets)), dtype=np.int64)
        np.add.at(sent, (row, owner[edge]), weight)
        if (filled < least).any():  # a row cannot send what others must: nobody has to
            least = filled
            most[:-1] = np.minimum(most[:-1], _most(least, limit)[:-1])
            continue
        largest, smallest = sent.max(axis=0), sent.min(axis=0)
        if limit.ratio is not None and int(largest[-1]) * UNIT > int(smallest[-1]) * limit.ratio:
            least[-1] = -(-int(largest[-1]) * UNIT // limit.ratio)
            continue
        told = sum(largest.tolist())
        if limit.leak is None or told <= limit.leak:
            break
        # All of it in proportion, and the rest of every row to everything: (1 - e) told + e = limit.
        keep = (limit.leak - UNIT) / (told - UNIT) * (1 - 1e-12)
        most = (largest * keep).astype(np.int64)
        least = _least(most, limit)
    return QueryTable.from_arrays(
        rows,
        [rows.columns[flags].tolist() for flags in sets],
        owner[edge],
        row,
        rows.columns[items[edge]],
        weight,
        limit=limit,
        **labels,
    )


def _least(most: Integers, limit: LeakLimit) -> Integers:
    """What every row must send into a set into which one may send so much."""
    if limit.ratio is None:
        return np.zeros_like(most)
    return np.array([-(-units * UNIT // limit.ratio) for units in most.tolist()], dtype=np.int64)


def _most(least: Integers, limit: LeakLimit) -> Integers:
    """What a row may send into a set into which every row sends at least so much."""
    ratio = UNIT if limit.ratio is None else limit.ratio
    return np.array([min(units * ratio // UNIT, UNIT) for units in least.tolist()], dtype=np.int64)
