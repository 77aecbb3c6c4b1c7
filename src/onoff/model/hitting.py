"""How many sources a set must hold to meet the support of every row: the whole number below which there is none.

Setting
    D_u  the support of row u, the sources that it can want;   S a set of sources that meets every D_u

A query holds what row u wants, whichever u it is, so it meets every support. If no set of fewer than h sources does,
every private table costs h at least, and h is a whole number where sums of masses give a fraction: a walk on the 7 x 7
torus without staying costs 14, and the outer bound says 12.25.

`no_fewer_than` looks at every set, one after the other, in a tree: take the row that is not met yet and has the fewest
sources left, and of these the one that meets the most rows; first all sets with it, then all sets without it. A branch
is left where no set of it can be small enough:

    a row has no source left that could meet it, or
    the sources taken, and so many more that the largest numbers of open rows that sources meet add up to all open
    rows, are h or more.

No proof is stored: the checker does the same search. Integers only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onoff.system.kernels import kernel

MOST_BRANCHES = 5 * 10**7
"""Nodes of a tree at most: seconds, compiled."""


def no_fewer_than(supports: npt.NDArray[np.bool_], least: int, most_steps: int = MOST_BRANCHES) -> bool | None:
    """Whether every set that meets all of `supports` (one per line) holds `least` sources or more; None: too many.

    >>> no_fewer_than(np.eye(3, dtype=bool) | np.eye(3, k=1, dtype=bool), 2), no_fewer_than(np.eye(3, dtype=bool), 4)
    (True, False)
    """
    row, of_row = np.nonzero(supports)
    column, of_column = np.nonzero(supports.T)
    first = np.searchsorted(row, np.arange(len(supports) + 1)).astype(np.int64)
    start = np.searchsorted(column, np.arange(supports.shape[1] + 1)).astype(np.int64)
    found = _smaller_set(first, of_row, start, of_column, least, most_steps)
    return None if found < 0 else found == 0


@kernel
def _smaller_set(first, of_row, start, of_column, least, most_steps):  # type: ignore[no-untyped-def]
    """1 where a set of fewer than `least` columns meets every row, 0 where none does, -1 after `most_steps` nodes.

    first, of_row: the columns of each row, as CSR; start, of_column: the rows of each column. For the node at hand:
    met[u] counts the columns taken in row u, left[u] those that are free, load[x] the open rows of column x, and
    having[l] the free columns with load l.
    """
    rows, columns = len(first) - 1, len(start) - 1
    met = np.zeros(rows, np.int64)
    left = np.empty(rows, np.int64)
    load = np.empty(columns, np.int64)
    free = np.ones(columns, np.bool_)
    for u in range(rows):
        left[u] = first[u + 1] - first[u]
    for x in range(columns):
        load[x] = start[x + 1] - start[x]
    largest = load.max()
    having = np.zeros(largest + 1, np.int64)
    for x in range(columns):
        having[load[x]] += 1
    path = np.empty(columns + 1, np.int64)
    with_it = np.zeros(columns + 1, np.bool_)
    depth, taken, open_rows = 0, 0, rows
    for _ in range(most_steps):
        more, rest, size = 0, open_rows, largest
        while rest > 0 and size > 0:
            if having[size] * size >= rest:
                more += (rest + size - 1) // size
                rest = 0
            else:
                more += having[size]
                rest -= having[size] * size
            size -= 1
        row = -1
        if rest == 0 and taken + more < least:
            if open_rows == 0:
                return 1
            for u in range(rows):
                if met[u] == 0 and (row < 0 or left[u] < left[row]):
                    row = u
            if left[row] == 0:
                row = -1
        if row >= 0:
            x = -1
            for e in range(first[row], first[row + 1]):
                if free[of_row[e]] and (x < 0 or load[of_row[e]] > load[x]):
                    x = of_row[e]
            path[depth], with_it[depth] = x, True
            depth += 1
            taken += 1
            free[x] = False
            having[load[x]] -= 1
            for e in range(start[x], start[x + 1]):
                u = of_column[e]
                left[u] -= 1
                met[u] += 1
                if met[u] == 1:
                    open_rows -= 1
                    for f in range(first[u], first[u + 1]):
                        z = of_row[f]
                        if free[z]:
                            having[load[z]] -= 1
                            having[load[z] - 1] += 1
                        load[z] -= 1
            continue
        while depth > 0 and not with_it[depth - 1]:
            depth -= 1
            x = path[depth]
            free[x] = True
            having[load[x]] += 1
            for e in range(start[x], start[x + 1]):
                left[of_column[e]] += 1
        if depth == 0:
            return 0
        x = path[depth - 1]
        with_it[depth - 1] = False
        taken -= 1
        for e in range(start[x], start[x + 1]):
            u = of_column[e]
            met[u] -= 1
            if met[u] == 0:
                open_rows += 1
                for f in range(first[u], first[u + 1]):
                    z = of_row[f]
                    if free[z]:
                        having[load[z]] -= 1
                        having[load[z] + 1] += 1
                    load[z] += 1
    return -1
