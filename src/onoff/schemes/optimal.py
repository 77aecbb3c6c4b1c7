"""The certified optimum: the cheapest private table for the rows, and a proof that none is cheaper.

Setting
    p_u(x)  rows;  Y a random set with X in Y always, independent of U;  OPT the least E|Y|
    lower   max(sum of max_u p_u(x), 2 - lam_1), or a better bound from the duals

OPT is a linear program over the masses of all sets with one Hall inequality for every set (see `search.master`); both
are far too many to write down, and few of either matter. A portfolio of strategies finds those, one after the other,
until the best table meets the best bound or the time is up; the bound is the best one whose certificate
`onoff.model.checker.check_certificate` accepts. Rows without a source in common are solved part by part, and rows
inside the convex hull of others are left out of the search.

Deterministic for a given seed unless the time runs out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onoff.model.certificate import Certificate, PartsBound, SimpleBound
from onoff.model.rows import Rows
from onoff.schemes import SCHEMES, greedy
from onoff.schemes.search.exact import components, joined
from onoff.schemes.search.few_rows import FewRows
from onoff.schemes.search.herding import Herding, Samples
from onoff.schemes.search.hull import extreme_rows, lifted
from onoff.schemes.search.lookahead import look_ahead
from onoff.schemes.search.master import ColumnGeneration
from onoff.schemes.search.orbits import Orbits
from onoff.schemes.search.portfolio import MET, Board, Clock, Greedy, Problem, Report, Stop, Strategy, never, search
from onoff.schemes.search.proofs import Supports, Tree
from onoff.tables.table import QueryTable

NAME = "optimal"
FOR_THE_HULL = 0.2
"""The part of the time after which rows inside the hull of others are no longer looked for."""
FOR_THE_LIFT, LIFTED_CELLS = (0.1, 0.5), 500_000
"""The part that it takes to make the table for them, at least and at most; and rows inside times columns that take all
of it."""


def default_portfolio() -> list[Strategy]:
    """The strategies of the search, in their order."""
    return [
        Greedy(proved=True),
        FewRows(),
        Supports(0.1, 10**6),
        Orbits(0.5),
        Supports(0.7),
        Herding(0.1, steps=2000, short=True, pooled=400),
        Samples(0.4),
        Samples(0.85, lambda problem: problem.sampled, table=True, orders=(5, 5)),
        Herding(0.4, lambda problem: problem.central and (problem.few or problem.mixed)),
        Herding(0.65, lambda problem: problem.central, steps=40_000, short=True),
        ColumnGeneration(0.8, lambda problem: problem.central, central=True),
        ColumnGeneration(0.3),
        Herding(0.55, lambda problem: problem.solvable),
        Herding(0.92, lambda problem: problem.many and not (problem.central or problem.sampled or problem.solvable)),
        ColumnGeneration(0.9),
        Tree(1.0),
        Greedy(),
    ]


def build(
    rows: Rows,
    *,
    budget: float = SCHEMES[NAME].budget or 0.0,
    gap: float = MET,
    seed: int = 0,
    future: Rows | None = None,
    progress: Report | None = None,
    stop: Stop = never,
    enough: Stop = never,
    portfolio: Sequence[Strategy] | None = None,
) -> QueryTable:
    """The cheapest table for `rows` that the budget can find, with a certificate of a lower bound on every table.

    future: The row P_x of every source x of the chain, to prefer among optimal tables those whose queries have cheap
    successors.
    progress: Called now and then with a line about the progress of the search.
    stop, enough: Called now and then; where one returns True the search ends with what it has.
    portfolio: The strategies, in their order; those of `default_portfolio` unless given.
    """
    strategies = default_portfolio() if portfolio is None else portfolio
    clock = Clock(budget, stop, enough)
    parts = [] if future is not None or greedy.is_optimal(rows) else components(rows)
    if len(parts) <= 1:
        return _searched(rows, clock, gap, seed, future, progress, strategies)
    alone = [rows.part(part) for part in parts]
    cells = sum(one.weights.size for one in alone)
    tables = []
    for one in alone:
        share = Clock(budget * one.weights.size / cells, stop, enough)
        tables.append(_searched(one, share, gap, seed, None, progress, strategies))
    proof = _together(parts, [table.certificate or SimpleBound("outer") for table in tables])
    together = joined(rows, tables).labelled(certificate=proof)
    if not together.optimal and greedy.fits_in_memory(rows):
        together = min(together, greedy.build(rows), key=lambda table: table.exact_cost)
    names = sorted({name for table in tables for name in table.details})
    summed = {"rounds": 0, **{name: sum(table.details.get(name, 0) for table in tables) for name in names}}
    return together.labelled(scheme=NAME, certificate=proof, details=summed)


def _searched(
    rows: Rows,
    clock: Clock,
    gap: float,
    seed: int,
    future: Rows | None,
    progress: Report | None,
    portfolio: Sequence[Strategy],
) -> QueryTable:
    """One run of the portfolio, on the extreme rows; the table is made for all of them."""
    if rows.distinct == 1:
        return _plain(rows)
    outright = greedy.is_optimal(rows)
    extreme, weights = extreme_rows(rows, lambda: outright or clock.is_over(FOR_THE_HULL))
    reduced = rows if len(extreme) == rows.distinct else rows.part(extreme.tolist())
    inside = rows.distinct - reduced.distinct
    if inside:
        clock.budget *= 1 - float(np.clip(inside * len(rows.columns) / LIFTED_CELLS, *FOR_THE_LIFT))
    problem = Problem(reduced, clock, seed=seed, looks_ahead=future is not None, inside=inside)
    board = Board(problem, gap)
    search(problem, board, portfolio, progress)
    table = board.table() if future is None else look_ahead(problem, board, future)
    certificate: Certificate = board.certificate
    if inside:
        table = lifted(rows, table, weights)
        if not board.met and greedy.fits_in_memory(rows) and greedy.costs_less(rows, table.cost):
            table = greedy.build(rows)
        certificate = PartsBound((tuple(extreme.tolist()),), (certificate,))
    details = board.figures | {"seconds": clock.spent}
    return table.labelled(scheme=NAME, certificate=certificate, details=details)


def _together(parts: list[tuple[int, ...]], proofs: list[Certificate]) -> PartsBound:
    """The proofs of all components: where one is of its extreme rows alone, these are the part that it is for."""
    named = []
    for part, proof in zip(parts, proofs, strict=True):
        if isinstance(proof, PartsBound):
            named.append((tuple(part[u] for u in proof.parts[0]), proof.proofs[0]))
        else:
            named.append((part, proof))
    return PartsBound(tuple(part for part, _ in named), tuple(proof for _, proof in named))


def _plain(rows: Rows) -> QueryTable:
    """One row: nothing to hide, ask for what is wanted."""
    cells = [(k, 0, int(x), int(rows.weights[0, k])) for k, x in enumerate(rows.columns)]
    queries = rows.columns.reshape(-1, 1).tolist()
    return QueryTable.from_cells(rows, queries, cells, scheme=NAME, certificate=SimpleBound("outer"))
