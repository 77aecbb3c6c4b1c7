"""Families of chains: what the tests, the benchmarks and the sweeps run on.

Each function returns a matrix of probabilities, rows summing to 1. The random ones take a numpy Generator, so
the same seed gives the same chain; nothing here is used for real queries.

    dirichlet       dense rows, each from a symmetric Dirichlet law; small alpha: peaked, large: nearly equal
    sticky          stay with probability `stay`, else move by a dense row
    zipf            every row a Zipf law over its own order of the sources
    browsing        stay, or jump to a popular source: what logs of a news site look like
    ring, grid      lazy walks on a cycle and on a rectangle: what locations look like
    torus           the same on a square whose edges are joined
    hypercube       lazy walks that change one of d bits
    paley           u moves to u + any square modulo a prime
    plane           the lines of a projective plane of prime order, uniform on their points
    equal_masses    a few random successors for each source, all alike
    nearest_points  the nearest of random points on a square, all alike
    small_diagonal  nearly equal rows that avoid the present source; there the bound is 2 - lam_1
    out_degree      a few random successors for each source
    k_subsets       rows uniform on all k-subsets of [N]: optimum N - k + 1, outer bound only N / k
    symmetric       stay with probability alpha, else move to any other source alike
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.model.rows import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def dirichlet(n: int, alpha: float, rng: np.random.Generator, rows: int | None = None) -> Floats:
    """`rows` (default n) rows over n sources, each from Dirichlet(alpha, ..., alpha)."""
    weights = rng.gamma(alpha, size=(n if rows is None else rows, n))
    weights[weights.sum(axis=1) == 0, 0] = 1.0  # a tiny alpha can underflow a whole row
    return _normalised(weights)


def sticky(n: int, rng: np.random.Generator, stay: float = 0.5) -> Floats:
    """Stay with probability `stay`, else move by a row from Dirichlet(1)."""
    return _normalised(stay * np.eye(n) + (1 - stay) * dirichlet(n, 1.0, rng))


def zipf(n: int, rng: np.random.Generator, exponent: float = 1.5) -> Floats:
    """Row u gives the source of rank r in its own random order a probability proportional to r ** -exponent."""
    law = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return _normalised(np.stack([law[rng.permutation(n)] for _ in range(n)]))


def browsing(n: int, rng: np.random.Generator) -> Floats:
    """Stay with a probability of the source's own, else jump mostly to what is popular with everybody."""
    popular = rng.permutation(np.arange(1, n + 1, dtype=np.float64) ** -1.0)
    stay = rng.uniform(0.3, 0.9, size=n)
    jump = _normalised(popular * rng.gamma(2.0, size=(n, n)))
    return _normalised(np.diag(stay) + (1 - stay)[:, None] * jump)


def ring(n: int, stay: float = 0.5) -> Floats:
    """The lazy walk on a cycle: stay with probability `stay`, else one step left or right."""
    here = np.arange(n)
    matrix = stay * np.eye(n)
    np.add.at(matrix, (here, (here + 1) % n), (1 - stay) / 2)
    np.add.at(matrix, (here, (here - 1) % n), (1 - stay) / 2)
    return matrix


def grid(height: int, width: int, stay: float = 0.2) -> Floats:
    """The lazy walk on a rectangle: stay with probability `stay`, else go to any neighbouring cell alike."""
    matrix = np.zeros((height * width, height * width))
    for cell in range(height * width):
        i, j = divmod(cell, width)
        near = [(i + di, j + dj) for di, dj in ((-1, 0), (0, -1), (0, 1), (1, 0))]
        inside = [a * width + b for a, b in near if 0 <= a < height and 0 <= b < width]
        matrix[cell, cell] = stay if inside else 1.0
        for other in inside:
            matrix[cell, other] = (1 - stay) / len(inside)
    return matrix


def torus(side: int, stay: float = 0.0) -> Floats:
    """The lazy walk on a square of side * side cells whose opposite edges are joined."""
    around = ring(side, 0.0)
    here = np.eye(side)
    return stay * np.eye(side * side) + (1 - stay) / 2 * (np.kron(around, here) + np.kron(here, around))


def hypercube(d: int, stay: float = 0.0) -> Floats:
    """The lazy walk on d bits: stay, or change any one of them alike."""
    one_bit = np.bitwise_count(np.arange(2**d)[:, None] ^ np.arange(2**d)) == 1
    return np.asarray(stay * np.eye(2**d) + (1 - stay) / d * one_bit, dtype=np.float64)


def paley(q: int, noise: float = 0.0, rng: np.random.Generator | None = None) -> Floats:
    """From u to u + any non-zero square modulo the prime q, mixed with a part `noise` of rows from Dirichlet(1)."""
    squares = np.zeros(q, dtype=bool)
    squares[np.arange(1, q) ** 2 % q] = True
    matrix = _normalised(squares[(np.arange(q) - np.arange(q)[:, None]) % q].astype(np.float64))
    return matrix if rng is None else _normalised((1 - noise) * matrix + noise * dirichlet(q, 1.0, rng))


def plane(q: int) -> Floats:
    """A row for each line of the projective plane over the integers modulo the prime q, uniform on its points."""
    points = np.array([(1, a, b) for a in range(q) for b in range(q)] + [(0, 1, a) for a in range(q)] + [(0, 0, 1)])
    return _normalised((points @ points.T % q == 0).astype(np.float64))


def equal_masses(n: int, degree: int, rng: np.random.Generator) -> Floats:
    """`degree` random successors for each source, all alike."""
    return _normalised((out_degree(n, degree, rng) > 0).astype(np.float64))


def nearest_points(n: int, degree: int, rng: np.random.Generator) -> Floats:
    """From each of n random points on a square to its `degree` nearest others, all alike.

    Points are numbered by their distance from the first, so that the first rows are those of one neighbourhood.
    """
    points = rng.random((n, 2))
    points = points[np.argsort(np.linalg.norm(points - points[0], axis=1), kind="stable")]
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    np.fill_diagonal(apart, np.inf)
    matrix = np.zeros((n, n))
    np.put_along_axis(matrix, np.argsort(apart, axis=1, kind="stable")[:, :degree], 1.0, axis=1)
    return _normalised(matrix)


def small_diagonal(n: int, rng: np.random.Generator, shrink: float = 0.05) -> Floats:
    """Nearly equal rows (Dirichlet 50) whose diagonal is multiplied by `shrink`."""
    matrix = dirichlet(n, 50.0, rng)
    matrix[np.diag_indices(n)] *= shrink
    return _normalised(matrix)


def out_degree(n: int, degree: int, rng: np.random.Generator) -> Floats:
    """`degree` random successors for each source, with probabilities from Dirichlet(1)."""
    matrix = np.zeros((n, n))
    for u in range(n):
        matrix[u, rng.choice(n, size=min(degree, n), replace=False)] = rng.dirichlet(np.ones(min(degree, n)))
    return matrix


def sparse_out_degree(n: int, degree: int, rng: np.random.Generator) -> csr_array[Any]:
    """The same as scipy CSR, for n up to millions: successors drawn with replacement, repeated ones added up."""
    from scipy.sparse import coo_array

    successors = rng.integers(n, size=(n, degree))
    weights = _normalised(rng.exponential(size=(n, degree)))
    here = np.repeat(np.arange(n), degree)
    return coo_array((weights.ravel(), (here, successors.ravel())), shape=(n, n)).tocsr()


def k_subsets(n: int, k: int) -> Floats:
    """One row for each k-subset of [n], uniform on it."""
    return np.array([[1.0 / k if x in chosen else 0.0 for x in range(n)] for chosen in combinations(range(n), k)])


def symmetric(n: int, alpha: float) -> Floats:
    """Stay with probability alpha, else move to each other source alike."""
    return np.full((n, n), (1 - alpha) / max(n - 1, 1)) * (1 - np.eye(n)) + alpha * np.eye(n)


FAMILIES: dict[str, Callable[[int, np.random.Generator], Floats]] = {
    "dirichlet 0.1": lambda n, rng: dirichlet(n, 0.1, rng),
    "dirichlet 1": lambda n, rng: dirichlet(n, 1.0, rng),
    "dirichlet 10": lambda n, rng: dirichlet(n, 10.0, rng),
    "sticky": lambda n, rng: sticky(n, rng),
    "zipf": lambda n, rng: zipf(n, rng),
    "browsing": lambda n, rng: browsing(n, rng),
    "ring": lambda n, _: ring(n),
    "grid": lambda n, _: grid(*_sides(n)),
    "small diagonal": lambda n, rng: small_diagonal(n, rng),
    "out-degree 2": lambda n, rng: out_degree(n, 2, rng),
    "out-degree 3": lambda n, rng: out_degree(n, 3, rng),
}
"""Square chains by name: (number of sources, generator) -> matrix."""


def _sides(n: int) -> tuple[int, int]:
    """The sides of the squarest rectangle of n cells."""
    height = max(side for side in range(1, int(n**0.5) + 1) if n % side == 0)
    return height, n // height


def _normalised(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)
