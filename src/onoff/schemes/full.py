"""Everything, always: what single-server private information retrieval costs, N messages for every request."""

from __future__ import annotations

import numpy as np

from onoff.model.rows import Rows
from onoff.tables.table import QueryTable

NAME = "full"


def build(rows: Rows) -> QueryTable:
    """The table with the one query "all N sources"."""
    row, column = np.nonzero(rows.weights)
    return QueryTable.from_csr(
        rows,
        offsets=np.array([0, rows.n], dtype=np.int64),
        items=np.arange(rows.n, dtype=np.int64),
        query=np.zeros(len(row), dtype=np.int64),
        row=row,
        source=rows.columns[column],
        weight=rows.weights[row, column],
        scheme=NAME,
    )
