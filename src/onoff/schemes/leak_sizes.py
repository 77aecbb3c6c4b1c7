"""Many sources: the program of `leak` with sizes in the place of queries, and queries drawn from its solution.

Setting
    n_k      the mass of all queries of k sources;   z_k(x) <= n_k  the part of it that holds x, sum over x = k n_k
    g_k,u(x) <= z_k(x)  what row u, wanting x, sends there;   n_k / R <= sum over x of g_k,u(x) <= n_k
    sum over k of g_k,u(x) = p_u(x),    sum of n_k <= B,    minimise the sum of w_u k g_k,u(x)

Every table gives such numbers, so the minimum is a lower bound; its dual is a `LeakCertificate` whose thresholds are
the duals of the second line. It is nearly tight (10 sources 0 to 0.8 % below the optimum, 17 sources 0.04 %), and
small: a primal-dual method (Chambolle, Pock) solves it with a few numbers for each row, source and size.

Queries of k sources are drawn with inclusion probabilities z_k(x) / n_k, by systematic samples, and made better by
exchanges at prices that follow what the queries before took. All get the same mass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from onoff.model.rows import Floats, Integers
from onoff.schemes.search.exact import Sets
from onoff.system.kernels import kernel

SIZES, SPREAD = 12, 4.0
"""Sizes of queries in the program, and the largest of them as a multiple of the cost to expect."""
STEPS = 50
"""Steps between two looks at the clock."""
NO_MASS, NEARLY = 1e-4, 0.97
"""Sizes that matter in the program have more mass, or gains of their queries that are nearly the largest."""
SAMPLE_ORDERS = 4
"""Orders of the sources in which queries of one size are sampled."""
NEVER = -1e6
"""The price of a source that a row never wants."""
LEAST_CLASS = 1e-3
"""The mass of a size from which queries of it are drawn."""


@dataclass(frozen=True)
class Relaxed:
    """Prices, the mass of every size, and its parts by source."""

    prices: Floats
    sizes: Integers
    masses: Floats
    inside: Floats
    duals: Floats

    def thresholds(self, columns: int, share: float) -> Floats:
        """For queries of 1, 2, ... sources: between the sizes of the program by interpolation, in what rows gain."""
        every = np.arange(1, columns + 1)
        between = np.array([np.interp(every, self.sizes, line) for line in self.duals.T]).T
        return np.where(between > 0, between, share * between)


class Sizes:
    """The program over sizes, in floats."""

    def __init__(self, p: Floats, w: Floats, most: float, share: float) -> None:
        self.p, self.w, self.most, self.share = p, w, most, share
        rows, columns = p.shape
        expected = max(p.max(axis=0).sum() / min(most, 1 / max(share, 1e-9)), 1.0)
        self.pace = float(expected**0.6)
        largest = min(columns, max(int(SPREAD * expected), 4))
        self.sizes = np.unique(np.rint(np.geomspace(1, largest, SIZES)).astype(np.int64))
        k = len(self.sizes)
        self._g, self._beta = np.zeros((k, rows, columns)), np.zeros((k, rows, columns))
        self._z, self._nu = np.zeros((k, columns)), np.zeros((k, columns))
        self._n, self._mu, self._lambda = np.zeros(k), np.zeros(k), np.zeros(1)
        self._high, self._low = np.zeros((k, rows)), np.zeros((k, rows))
        self._a = np.where(p > 0, 0.0, NEVER)

    def run(self, is_over: Callable[[], bool]) -> Relaxed:
        """Take steps until it is over."""
        while True:
            _relax(
                self.p, self.w, self.sizes.astype(np.float64), self.most, self.share, self._g, self._z, self._n,
                self._a, self._beta, self._high, self._low, self._nu, self._mu, self._lambda, self.pace, STEPS,
            )  # fmt: skip
            if is_over():
                break
        return Relaxed(self._a.copy(), self.sizes, self._n, self._z, self._high - self._low)

    def refine(self, gains: Floats, most: int) -> None:
        """Add the sizes between those of the program whose queries would gain more, leave out those that do not matter.

        gains: of queries of 1, 2, ... sources. What is added starts with duals between those of its neighbours.
        """
        at_program = gains[self.sizes - 1]
        matters = (self._n > NO_MASS) | (at_program > NEARLY * at_program.max())
        matters[[0, -1]] = True
        added = []
        for low, high in pairwise([*self.sizes.tolist(), len(gains) + 1]):
            if high > low + 1:
                worst = low + 1 + int(np.argmax(gains[low : high - 1]))
                added.append((gains[worst - 1] - at_program.max(), worst))
        new = [size for excess, size in sorted(added, reverse=True)[:most] if excess > 0]
        sizes = np.array(sorted([*self.sizes[matters].tolist(), *new]))
        known = np.isin(sizes, self.sizes)
        for name in ("_beta", "_nu", "_mu", "_high", "_low"):
            setattr(self, name, _between(sizes, self.sizes, getattr(self, name)))
        for name in ("_g", "_z", "_n"):
            before = getattr(self, name)
            now = np.zeros((len(sizes), *before.shape[1:]))
            now[known] = before[np.isin(self.sizes, sizes)]
            setattr(self, name, now)
        self.sizes = sizes


def _between(sizes: Integers, known: Integers, values: Floats) -> Floats:
    """Values at `sizes`, linear between those at the known ones."""
    above = np.clip(np.searchsorted(known, sizes), 1, len(known) - 1)
    part = np.clip((sizes - known[above - 1]) / (known[above] - known[above - 1]), 0, 1)
    part = part.reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(values[above - 1] * (1 - part) + values[above] * part)


@kernel
def _relax(p, w, sizes, most, share, g, z, n, a, beta, high, low, nu, mu, lam, pace, steps):  # type: ignore[no-untyped-def]
    """Steps of the primal-dual method, in place: primal down, dual up where the primal was extrapolated to.

    Duals: a of the rows met, beta of g <= z, high and low of the masses that a row sends into a size, nu of z <= n, mu
    of the size, lam of the budget. Step lengths by the sums of the coefficients of each. The inner loop has no sum in
    it and no branch, so that it is compiled to vectors.
    """
    k, rows, columns = g.shape
    tau, sigma = 2.0 / pace, 0.5 * pace
    missing, beyond, ahead = np.empty((rows, columns)), np.empty(columns), np.empty(columns)
    ones = np.ones(columns)
    sums = np.empty((k, columns))
    for s in range(k):
        sums[s] = beta[s].sum(axis=0)
    for _ in range(steps):
        missing[:] = p
        spent = 0.0
        for s in range(k):
            size = sizes[s]
            pull = size * mu[s] - lam[0] + high[s].sum() - share * low[s].sum() + nu[s].sum()
            before = n[s]
            n[s] = max(0.0, before + tau / (rows * (1 + share) + columns + size + 1) * pull)
            mass = 2 * n[s] - before
            spent += mass
            for x in range(columns):
                old = z[s, x]
                z[s, x] = max(0.0, old + tau / (rows + 2) * (sums[s, x] - nu[s, x] - mu[s]))
                beyond[x] = 2 * z[s, x] - old
                nu[s, x] = max(0.0, nu[s, x] + sigma / 2 * (beyond[x] - mass))
            mu[s] = max(0.0, mu[s] + sigma / (columns + size) * (beyond.sum() - size * mass))
            of_size = sums[s]
            of_size[:] = 0.0
            for u in range(rows):
                price = w[u] * size + high[s, u] - low[s, u]
                g_u, beta_u, a_u, missing_u = g[s, u], beta[s, u], a[u], missing[u]
                for x in range(columns):
                    old = g_u[x]
                    now = max(0.0, old - tau / 4 * (price - a_u[x] + beta_u[x]))
                    g_u[x] = now
                    ahead[x] = 2 * now - old
                    missing_u[x] -= ahead[x]
                    dual = max(0.0, beta_u[x] + sigma / 2 * (ahead[x] - beyond[x]))
                    beta_u[x] = dual
                    of_size[x] += dual
                sent = np.dot(ahead, ones)
                high[s, u] = max(0.0, high[s, u] + sigma / (columns + 1) * (sent - mass))
                low[s, u] = max(0.0, low[s, u] + sigma / (columns + 1) * (share * mass - sent))
        lam[0] = max(0.0, lam[0] + sigma / k * (spent - most)) if most < np.inf else 0.0
        for u in range(rows):
            for x in range(columns):
                a[u, x] += sigma / k * missing[u, x]


# -- queries -----------------------------------------------------------------------------------------------


def drawn(relaxed: Relaxed, p: Floats, edges: int, rng: np.random.Generator) -> Sets:
    """Queries of every size, as many as its mass, by systematic samples with the program's inclusion probabilities.

    edges: how many sources they hold together, about.
    """
    home = np.argmax(p, axis=0)  # sources of one row are laid side by side: a query holds few of them
    used = np.flatnonzero(relaxed.masses > LEAST_CLASS)
    shares = relaxed.masses[used] / relaxed.masses[used].sum()
    each = edges / (shares @ relaxed.sizes[used])
    sets = []
    for k, share in zip(used.tolist(), shares.tolist(), strict=True):
        size, count = int(relaxed.sizes[k]), max(int(each * share), 2)
        for part in range(SAMPLE_ORDERS):
            order = np.lexsort((rng.random(len(home)), rng.permutation(len(p))[home]))
            ends = np.cumsum(relaxed.inside[k][order])
            ends *= size / ends[-1]
            shifts = (np.arange(part, count, SAMPLE_ORDERS) + rng.random()) / count
            at = np.searchsorted(ends, shifts[:, None] % 1 + np.arange(size), side="right")
            chosen = np.zeros((len(shifts), len(home)), dtype=bool)
            chosen[np.arange(len(shifts))[:, None], order[np.minimum(at, len(home) - 1)]] = True
            sets.append(chosen)
    return np.concatenate(sets)


@kernel
def herd(sets, p, prices, w, mass, pace):  # type: ignore[no-untyped-def]
    """Make each set better at prices that follow what the sets before it took, in place.

    Each source of a set is exchanged for the one that gains most. Then every row that gains takes its dearest source of
    the set, which makes it cheaper by pace * mass; all become dearer by pace * p in the course of all sets. So rows get
    what they want in the right amounts (a subgradient method; "herding" where it is used to draw samples).
    """
    count, columns = sets.shape
    rows = len(w)
    gains = np.empty(columns)
    members = np.empty(columns, np.int64)
    for t in range(count):
        size = 0
        for x in range(columns):
            if sets[t, x]:
                members[size] = x
                size += 1
        for u in range(rows):
            for x in range(columns):
                prices[u, x] += pace / count * p[u, x]
        for at in range(size if size < columns else 0):
            gains[:] = 0.0
            for u in range(rows):
                least = w[u] * size
                of_row = prices[u]
                for other in range(size):
                    if other != at:
                        least = max(least, of_row[members[other]])
                for x in range(columns):
                    gains[x] += max(0.0, of_row[x] - least)
            sets[t, members[at]] = False
            chosen = members[at]
            for x in range(columns):
                if gains[x] > gains[chosen] and not sets[t, x]:
                    chosen = x
            sets[t, chosen] = True
            members[at] = chosen
        for u in range(rows):
            least, taken = w[u] * size, -1
            for other in range(size):
                if prices[u, members[other]] > least:
                    least, taken = prices[u, members[other]], members[other]
            if taken >= 0:
                prices[u, taken] -= pace * mass
