"""Row matrices on which every construction is tried: random ones, and those where a construction is likely to slip."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onoff.model.rows import UNIT, Rows, to_units


def random_rows(rng: np.random.Generator, m: int, n: int) -> Rows:
    """Rows of one of the kinds below, with m rows and n sources."""
    kind = KINDS[int(rng.integers(len(KINDS)))]
    return Rows.from_integers(kind(rng, m, n), n)


def many(seed: int, count: int, largest: int) -> Iterator[Rows]:
    """`count` matrices with M and N from 1 to `largest`; every kind and every corner (M or N = 1) occurs."""
    rng = np.random.default_rng(seed)
    for at in range(count):
        m, n = rng.integers(1, largest + 1, size=2).tolist()
        corner = at % 10
        yield random_rows(rng, 1 if corner == 0 else m, 1 if corner == 1 else n)


def _units(matrix):
    return np.stack([to_units(row) for row in matrix])


def dense(rng, m, n):
    return _units(rng.dirichlet(np.full(n, rng.choice([0.1, 1.0, 10.0])), size=m) + 1e-18)


def with_zeros(rng, m, n):
    matrix = rng.random((m, n)) * (rng.random((m, n)) < rng.choice([0.2, 0.5]))
    matrix[np.arange(m), rng.integers(n, size=m)] += 0.1
    return _units(matrix / matrix.sum(axis=1, keepdims=True))


def identity(rng, m, n):
    return np.eye(n, dtype=np.int64)[np.arange(m) % n] * UNIT


def permutation(rng, m, n):
    return np.eye(n, dtype=np.int64)[rng.permutation(max(m, n))[:m] % n] * UNIT


def equal(rng, m, n):
    return np.repeat(dense(rng, 1, n), m, axis=0)


def ties(rng, m, n):
    """Small integers over a common denominator: most entries occur several times."""
    counts = rng.integers(0, 3, size=(m, n))
    counts[np.arange(m), rng.integers(n, size=m)] += 1
    padded = counts / counts.sum(axis=1, keepdims=True)
    return _units(padded)


def permuted_copies(rng, m, n):
    row = dense(rng, 1, n)[0]
    return np.stack([row[rng.permutation(n)] for _ in range(m)])


def one_unit_apart(rng, m, n):
    """Copies of one row in which single units have been moved."""
    rows = equal(rng, m, n)
    for u in range(m):
        for _ in range(int(rng.integers(0, 4))):
            x, z = rng.integers(n, size=2)
            if rows[u, x] > 0:
                rows[u, x] -= 1
                rows[u, z] += 1
    return rows


def single_units(rng, m, n):
    """Almost everything on one source, a few single units elsewhere: the smallest masses that there are."""
    rows = (rng.random((m, n)) < 0.5).astype(np.int64)
    rows[:, 0] = 0
    rows[:, 0] = UNIT - rows.sum(axis=1)
    return rows


def sticky(rng, m, n):
    matrix = 0.1 * rng.dirichlet(np.ones(n), size=m)
    matrix[np.arange(m), np.arange(m) % n] += 0.9
    return _units(matrix)


def shy_of_home(rng, m, n):
    """Weak correlation with a small diagonal: 2 - lambda_1 decides."""
    matrix = rng.dirichlet(np.full(n, 50.0), size=m)
    if n > 1:
        matrix[np.arange(m), np.arange(m) % n] *= 0.05
    return _units(matrix / matrix.sum(axis=1, keepdims=True))


KINDS = (
    dense, with_zeros, identity, permutation, equal, ties, permuted_copies, one_unit_apart, single_units, sticky,
    shy_of_home,
)  # fmt: skip
