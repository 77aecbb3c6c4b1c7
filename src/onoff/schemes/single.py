"""The wanted source alone, or everything that can be wanted: the paper's second linear program at c = 1.

With n_x = min over u of p(x|u), no table can give the query {x} more than n_x, whoever asks (THEORY T1: the
others, who want x with probability n_x only, could not follow). Giving it exactly n_x leaves p(x|u) - n_x for
"everything possible", and the cost is

    lambda_1 + C (1 - lambda_1),     lambda_1 = sum of n_x,  C = number of sources that can be wanted.

Closed form, O(MN), and the least cost of any table whose queries have size 1 or C.
"""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Rows
from onoff.tables.table import QueryTable

NAME = "single"


def build(rows: Rows) -> QueryTable:
    """The table whose queries are single sources and everything possible."""
    alone = rows.weights.min(axis=0)
    shared = np.flatnonzero(alone)
    left = rows.weights - alone
    row, column = np.nonzero(left)
    everything = [rows.columns] if len(row) else []
    return QueryTable.from_csr(
        rows,
        offsets=np.cumsum([0, *([1] * len(shared)), *map(len, everything)], dtype=np.int64),
        items=np.concatenate([rows.columns[shared], *everything]),
        query=np.concatenate(
            [np.tile(np.arange(len(shared)), rows.distinct), np.full(len(row), len(shared))], dtype=np.int64
        ),
        row=np.concatenate([np.repeat(np.arange(rows.distinct), len(shared)), row], dtype=np.int64),
        source=np.concatenate([np.tile(rows.columns[shared], rows.distinct), rows.columns[column]]),
        weight=np.concatenate([np.tile(alone[shared], rows.distinct), left[row, column]]),
        scheme=NAME,
    )
