"""A table for people: as text as the paper prints it, and as HTML in a notebook.

A block for each u, a line for each x, a column for each query. Sources have their names where the table knows them,
else numbers from 1 as in the paper. Of a large table the queries with the most mass are shown, and how many are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from onoff.model.notebook import html_table
from onoff.model.rows import UNIT

if TYPE_CHECKING:
    from onoff.tables.table import QueryTable

MOST_SHOWN = 16
"""Queries, rows and sources that are shown of a table at most."""
LONGEST_WORD = 16
"""Letters of a name that are shown at most."""


def table_text(table: QueryTable) -> str:
    """The table as text."""
    head, *lines = _cells(table)
    width = [max(len(cell) for cell in column) for column in zip(head, *lines, strict=True)]
    blank = "-" * (sum(width) + 2 * (len(width) - 1))
    text = [_line(head, width)]
    for before, line in zip([head, *lines], lines, strict=False):
        text += [blank] * (line[0] != before[0]) + [_line(line, width)]
    return "\n".join([*text, *_rest(table)])


def table_html(table: QueryTable) -> str:
    """The table as HTML."""
    head, *lines = _cells(table)
    return html_table(repr(table), head, lines, " ".join(_rest(table)).strip())


def _line(cells: list[str], width: list[int]) -> str:
    return "  ".join(cell.rjust(size) for cell, size in zip(cells, width, strict=True))


def _cells(table: QueryTable) -> Iterator[list[str]]:
    """The heading, a line for each u and x, and the masses of the queries with the cost."""
    source, hidden = _names(table)
    shown = np.sort(np.argsort(-table.mass, kind="stable")[:MOST_SHOWN]).tolist()
    queries, blocks = [table.query(k) for k in shown], [table.block(k) for k in shown]
    yield ["u", "x", *("{" + ",".join(map(source, q)) + "}" for q in queries), "budget"]
    for u, r in enumerate(table.rows.group[:MOST_SHOWN].tolist()):
        for c, x in enumerate(table.rows.columns[:MOST_SHOWN].tolist()):
            masses = [
                _decimal(int(block[r, q.index(x)])) if x in q else "." for q, block in zip(queries, blocks, strict=True)
            ]
            yield [hidden(u), source(x), *masses, _decimal(int(table.rows.weights[r, c]))]
    yield ["", "mass", *(_decimal(int(table.mass[k])) for k in shown), f"cost {table.cost:.6g}"]


def _names(table: QueryTable) -> tuple[Callable[[int], str], Callable[[int], str]]:
    """How a source is called, and how a hidden value: it is a source where there is a row for each."""
    names = table.names

    def source(x: int) -> str:
        return str(x + 1) if names is None else _short(names[x])

    def number(u: int) -> str:
        return str(u + 1)

    return source, source if table.rows.m == table.rows.n else number


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_WORD else f"{name[: LONGEST_WORD - 1]}…"


def _rest(table: QueryTable) -> Iterator[str]:
    if max(len(table), table.rows.m, len(table.rows.columns)) > MOST_SHOWN:
        sizes = f"{len(table)} queries, {table.rows.m} rows, {len(table.rows.columns)} sources"
        yield f"   ({sizes} in all; at most {MOST_SHOWN} of each are shown)"


def _decimal(units: int) -> str:
    """Six digits; less than 1e-12, which comes from rounding, is written as "~0"."""
    if 0 < units < UNIT // 10**12:
        return "~0"
    return f"{units / UNIT:.6g}"
