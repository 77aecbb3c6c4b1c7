"""The scheme `auto`: the construction that fits the rows.

    a table of moderate size   the certified optimum, for as long as the budget lasts
    anything larger            the race, which needs no table

"Moderate" is what the search for the optimum does within the budget on an ordinary machine: so many positive entries,
which is what it works on (sparse rows of a thousand sources have few), in a table that fits in memory. Where it runs
out of time its table is still exact and still carries a true lower bound. Wherever no optimum is proved the race is
looked at too, and taken if it is cheaper: its queries are as private up to the rounding of floats that its docstring
bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onoff.model.rows import Rows, SparseRows
from onoff.schemes import SCHEMES, optimal, race
from onoff.schemes.race import Race
from onoff.schemes.search.portfolio import Report, Stop, Strategy, never
from onoff.tables.table import QueryTable

NAME = "auto"
MOST_SEARCHED_ENTRIES = 200_000
"""Positive entries up to which the optimum is searched for: 447 full rows."""
ENTRIES_PER_SECOND, FEW_ENTRIES = 90_000, 10_000
"""The same for each second of a short budget, and up to which it is searched for in any case."""
MOST_SEARCHED_CELLS, CELLS_PER_SECOND = 2000 * 2000, 10**6
"""Rows times columns, zero or not, up to which it is searched for; and for each second of a short budget."""
FOR_THE_RACE, LEAST_WORK = 0.1, 5_000_000
"""The part of the time in which the cost of the race is estimated, and entries that are looked at in any case."""


def build(
    rows: Rows | SparseRows,
    *,
    budget: float = SCHEMES[NAME].budget or 0.0,
    seed: int = 0,
    future: Rows | None = None,
    progress: Report | None = None,
    stop: Stop = never,
    enough: Stop = never,
    portfolio: Sequence[Strategy] | None = None,
) -> QueryTable | Race:
    """A table for `rows`, the optimal one if `budget` seconds find it; a race where no table fits, or it is cheaper."""
    if isinstance(rows, SparseRows) or not _is_moderate(rows, budget):
        return race.build(rows, seed=seed)
    table = optimal.build(
        rows,
        budget=(1 - FOR_THE_RACE) * budget,
        seed=seed,
        future=future,
        progress=progress,
        stop=stop,
        enough=enough,
        portfolio=portfolio,
    )
    if table.optimal:  # then no race is cheaper
        return table
    work = int(np.clip(race.SAMPLED_A_SECOND * FOR_THE_RACE * budget, LEAST_WORK, race.SAMPLED_WORK))
    racing = replace(race.build(rows, seed=seed), work=work)
    return racing if racing.cost < table.cost else table


def _is_moderate(rows: Rows, budget: float) -> bool:
    """Whether the optimum is searched for."""
    entries = min(MOST_SEARCHED_ENTRIES, max(ENTRIES_PER_SECOND * budget, FEW_ENTRIES))
    cells = min(MOST_SEARCHED_CELLS, max(CELLS_PER_SECOND * budget, FEW_ENTRIES))
    return rows.weights.size <= cells and int(np.count_nonzero(rows.weights)) <= entries
