"""The certified optimum: the cheapest private table for the rows, and a proof that none is cheaper.

Setting
    p_u(x)  rows;  Y a random set with X in Y always, independent of U;  OPT the least E|Y|
    lower   max(sum of max_u p_u(x), 2 - lam_1), or a better bound from the duals

Where Algorithm 1 is proved optimal it is taken: at most 3 rows, or rows of weak or strong links (see `greedy`). Few
rows over many sources are solved outright by the program of `blocks` where that fits. Else OPT is a linear program over
the masses of all sets with one Hall inequality for every set (see `hall`); both are far too many to write down, and few
of either matter: `search` finds those, keeps the cheapest table met on the way, and proves what it can. The bound is
the best one whose certificate `onoff.model.checker.check_certificate` accepts.

Dense, sticky, Zipf and ring-like chains meet the bound without a single priced set. A few hundred sources take
seconds to a minute; the program is where the time goes. Deterministic for a given seed unless the time runs out.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from onoff.model.bounds import simplest
from onoff.model.certificate import PartsBound, SimpleBound
from onoff.model.checker import check_certificate
from onoff.model.rows import Rows
from onoff.schemes import SCHEMES, greedy
from onoff.schemes.search import ahead, blocks, proofs
from onoff.schemes.search.cheapest import table_of
from onoff.schemes.search.clock import SearchClock, Stop, never
from onoff.schemes.search.parts import joined, parts_of
from onoff.schemes.search.pricing import ALL_SETS_PRICED
from onoff.schemes.search.search import MANY_SOURCES, MET, Report, Search
from onoff.tables.table import QueryTable

NAME = "optimal"


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
) -> QueryTable:
    """The cheapest table for `rows` that the budget can find, with a certificate of a lower bound on every table.

    future: The row P_x of every source x of the chain, to prefer among optimal tables those whose queries have cheap
    successors.
    progress: Called now and then with a line about the progress of the search.
    enough: Asked now and then whether to end with what there is, as if the time were up.

    Raises
    ------
    Stopped
        where `stop` returned True.
    """
    if rows.distinct == 1:
        return _plain(rows)
    clock = SearchClock(budget, stop, enough)
    few = ALL_SETS_PRICED if future is None else MANY_SOURCES  # to look ahead, the cuts of a search are a better start
    outright = _outright(rows, few, clock)
    if outright is not None and future is None:
        return outright
    parts = parts_of(rows) if future is None else []
    if len(parts) > 1:
        alone = [rows.part(part) for part in parts]
        shares = [budget * one.weights.size / sum(some.weights.size for some in alone) for one in alone]
        options: Any = {"gap": gap, "seed": seed, "progress": progress, "stop": stop, "enough": enough}
        tables = [build(one, budget=share, **options) for one, share in zip(alone, shares, strict=True)]
        proof = PartsBound(tuple(parts), tuple(table.certificate or SimpleBound("outer") for table in tables))
        together = joined(rows, tables).labelled(certificate=proof)
        if not together.optimal and greedy.fits_in_memory(rows):
            together = min(together, greedy.build(rows), key=lambda table: table.exact_cost)
        return together.labelled(scheme=NAME, certificate=proof, details=_summed(tables))
    search = Search(rows, clock, gap, np.random.default_rng(seed), progress)
    if outright is None:
        search.run(only_table=future is None)
    elif search.central and rows.distinct > 2:  # few rows give few cuts a round: looking ahead would take too long
        return outright
    else:
        search.adopt(outright)
    table = search.cheapest.table
    assert table is not None
    if future is not None:
        table = ahead.look_ahead(search, table, future)
    return table.labelled(scheme=NAME, certificate=search.proven.certificate, details=search.details())


def _summed(tables: list[QueryTable]) -> dict[str, float]:
    """The figures of the searches for the parts, added up."""
    names = {name for table in tables for name in table.details}
    return {name: sum(table.details.get(name, 0) for table in tables) for name in sorted(names)}


def _plain(rows: Rows) -> QueryTable:
    """One row: nothing to hide, ask for what is wanted."""
    cells = [(k, 0, int(x), int(rows.weights[0, k])) for k, x in enumerate(rows.columns)]
    queries = rows.columns.reshape(-1, 1).tolist()
    return QueryTable.from_cells(rows, queries, cells, scheme=NAME, certificate=SimpleBound("outer"))


def _outright(rows: Rows, few: int, clock: SearchClock) -> QueryTable | None:
    """The optimum without a search: Algorithm 1 where it is proved optimal; `blocks` for few rows and many sources."""
    found = [simplest(rows)]
    if greedy.is_optimal(rows):
        table = greedy.build(rows)
    elif len(rows.columns) > few and blocks.solvable_outright(rows):
        sets, masses, phi = blocks.solve(rows)
        table = table_of(rows, sets, masses)
        if check_certificate(rows, found[0]) * (1 + Fraction(MET)) < table.exact_cost:
            found.append(proofs.from_coupling(phi))
    else:
        return None
    details = {"rounds": 0, "sets": len(table), "seconds": clock.spent}
    return table.labelled(scheme=NAME, certificate=proofs.best(rows, found), details=details)
