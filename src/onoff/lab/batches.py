"""Many users by few paths: what they download where almost every public state needs another table.

The law of a query is the same whatever is hidden, so what a user downloads follows from the public states alone. Users
are shared out over batches; a batch is one path through the public states, along which every query is drawn from the
masses of its table. So the tables to build are as many as there are batches, not users, and costs keep their law. Users
of one batch download the same, so standard errors are those between batches.

This is for models, whose filters hardly ever meet a state twice, and for chains of many sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onoff.lab.walk import Switching
from onoff.model.contexts import Model
from onoff.model.rows import UNIT, Floats, Integers, Rows
from onoff.schemes import find_scheme
from onoff.schemes.race import Drawn, Race
from onoff.session.filter import ModelFilter
from onoff.session.session import Memory, SeededEntropy, TableCache, start
from onoff.tables.table import QueryTable

BATCHES = 40
"""Paths that users are shared out over."""
BUDGET = 0.5
"""Seconds that the search for a table may take, unless told otherwise."""
BUDGET_OF_ALL = 10.0
"""The same for the table after everything was asked, which all paths share."""


@dataclass(frozen=True)
class Paths:
    """What the batches did.

    sizes: of the query, shape (batches, steps). expected: the expected size in the state it was drawn in. private: the
    status of each request. tables: how many public states needed one.
    """

    sizes: Integers
    expected: Floats
    private: Integers
    tables: int


def walk(
    model: Model,
    scheme: str,
    switching: Switching,
    batches: int,
    rng: np.random.Generator,
    *,
    memory: str | None = None,
    hide: int = 1,
    everything: bool = False,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Paths:
    """Take batches through every step of a pattern."""
    tables = _tables(model, scheme, BUDGET, options)
    whole = _tables(model, scheme, BUDGET_OF_ALL, options)
    shape = (batches, switching.steps)
    sizes, private, expected = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    built = 0
    for batch in range(batches):
        state: Memory = start(memory, model, hide)
        before: bool | None = None
        for t in range(switching.steps):
            before = bool(rng.random() < switching.chance(t, before))
            mine = whole if state.lasting else tables
            built += not before and state.rows.distinct > 1 and not mine.has(state)
            query, expected[batch, t], drawn = _query(model, state, before, everything, mine, rng)
            # Which of its sources was wanted is secret and changes nothing that is public.
            state = state.after(query, query[0], private=before, table=drawn)
            sizes[batch, t], private[batch, t] = len(query), before
            if progress is not None:
                progress(batch * switching.steps + t + 1)
    return Paths(sizes, expected, private, built)


def _tables(model: Model, scheme: str, budget: float, options: dict[str, Any]) -> TableCache:
    searches = find_scheme(scheme).budget is not None
    return TableCache(model, scheme, **{"look_ahead": False, **({"budget": budget} if searches else {}), **options})


def _query(
    model: Model, state: Memory, private: bool, everything: bool, tables: TableCache, rng: np.random.Generator
) -> tuple[tuple[int, ...], float, Drawn | None]:
    """A query as the server sees it, its expected size, and what it was drawn from."""
    rows = state.rows
    if private:
        asked = tuple(range(model.n)) if everything else tuple(rows.columns.tolist())
        return asked, float(len(asked)), None
    if rows.distinct == 1 and isinstance(rows, Rows):
        return (int(rng.choice(rows.columns, p=rows.weights[0] / UNIT)),), 1.0, None
    table = tables.of(state)
    if isinstance(table, QueryTable):
        k = int(np.searchsorted(np.cumsum(table.mass), rng.integers(UNIT), side="right"))
        return table.query(k), table.cost, table
    wanted = _wanted(state, rng)
    entropy = SeededEntropy(rng)
    if isinstance(table, Race) and isinstance(state, ModelFilter):
        winners = table.draw_winners(0, wanted, entropy)
        return winners.sources, float(len(winners.sources)), winners
    query = table.draw(0, wanted, entropy)
    return query, float(len(query)), table


def _wanted(state: Memory, rng: np.random.Generator) -> int:
    """A request of a user who hides the first value: the query has the same law for all."""
    rows = state.rows
    if isinstance(rows, Rows):
        return int(rng.choice(rows.columns, p=rows.weights[rows.group[0]] / UNIT))
    first = slice(int(rows.starts[0]), int(rows.starts[1]))
    return int(rows.columns[rng.choice(rows.at[first], p=rows.p[first] / rows.p[first].sum())])
