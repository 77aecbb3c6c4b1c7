"""Nested queries: whoever wants one of the first k sources may ask for those k alone; all others ask for everything.

A table gives each query a mass that is the same for every hidden value u, or it would tell which u it was. So the
first k sources can be asked for with the mass that even the least likely u has for them.
"""

from onoff.model.rows import Rows
from onoff.tables.table import QueryTable


def build(rows: Rows, first: int = 1) -> QueryTable:
    """The table with the queries `the first most common sources` and `everything possible`."""
    common = sorted(range(len(rows.columns)), key=lambda x: -int(rows.weights[:, x].sum()))[:first]
    shared = min(int(weights[common].sum()) for weights in rows.weights)
    cells = []
    for u, weights in enumerate(rows.weights):
        left = shared  # what this u still gives to the small query
        for x, weight in enumerate(map(int, weights)):
            small = min(left, weight) if x in common else 0
            left -= small
            cells += [(0, u, int(rows.columns[x]), small), (1, u, int(rows.columns[x]), weight - small)]
    queries = [sorted(int(rows.columns[x]) for x in common), [int(x) for x in rows.columns]]
    return QueryTable.from_cells(rows, queries, [cell for cell in cells if cell[3]], scheme="nested")


def leaky(rows: Rows) -> QueryTable:
    """What must not be done: everybody asks for what they want, and the server sees it."""
    cells = [
        (x, u, int(rows.columns[x]), int(weight))
        for u, weights in enumerate(rows.weights)
        for x, weight in enumerate(weights)
        if weight
    ]
    return QueryTable.from_cells(rows, [[int(x)] for x in rows.columns], cells, scheme="leaky")


def hello() -> None:
    """Say that a command of another distribution runs."""
    print("hello from a plug-in")
