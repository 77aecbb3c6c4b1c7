"""Algorithm 1 as the paper writes it, in exact rationals: slow, obvious, and the specification of `schemes.greedy`.

Every step, buffer and tuple of the text is here under the text's own name. What the text leaves open ("if the
minimal is not unique, just randomly choose one", ties in the ordering) is settled by taking the first, and what it
prints wrong is corrected (errata): the sums in delta; sigma = M for equal rows; p(x|u^(x,0)) = 0; one atom at
l = 1; atoms of mass zero are discarded. Rows need not be as many as sources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

Output = dict[tuple[tuple[int, ...], int, int], Fraction]


def algorithm1(p: Sequence[Sequence[Fraction]]) -> tuple[Output, list[list[Fraction]]]:
    """p(z, x | u) for the multisets z, and the matrix Q as it is left in the end. p[u][x] are rows summing to 1."""
    M, N = len(p), len(p[0])

    # Pre-calculation, item 1: orders, lambda and sigma.
    order = {x: sorted(range(M), key=lambda u: p[u][x]) for x in range(N)}

    def ranked(x: int, i: int) -> Fraction:
        """p(x | u^(x,i)), which is 0 for i = 0."""
        return p[order[x][i - 1]][x] if i else Fraction(0)

    lam = {i: sum(ranked(x, i) for x in range(N)) for i in range(1, M + 1)}
    sigma = max(i for i in lam if lam[i] <= 1)

    # Pre-calculation, item 2: delta.
    a = [ranked(x, sigma) for x in range(N)]
    delta = list(a)
    if sigma < M:
        b = [ranked(x, sigma + 1) for x in range(N)]
        T = Fraction(0)
        for j in range(N):
            T += b[j] - a[j]
            if 1 - sum(a) >= T:
                delta[j] = b[j]
            else:
                delta[j] = 1 - sum(b[:j]) - sum(a[j + 1 :])
                break

    # Initialization.
    Q = [[max(p[i][j] - delta[j], Fraction(0)) for j in range(N)] for i in range(M)]

    # Procedure.
    out: Output = defaultdict(Fraction)
    for level in range(1, min(sigma + 1, M) + 1):
        for x in range(N):
            rhs = min(delta[x], ranked(x, level)) - ranked(x, level - 1)
            if rhs <= 0:
                continue
            givers = order[x][: level - 1]
            collections = [choose(Q, u, rhs) for u in givers]
            for u, collection in zip(givers, collections, strict=True):
                for x_ij, v_ij in collection:
                    Q[u][x_ij] -= v_ij
            for zeta, nu in interleave(collections, rhs):
                z = tuple(sorted((*zeta, x)))
                for u in range(M):
                    wanted = zeta[givers.index(u)] if u in givers else x
                    out[z, wanted, u] += nu
    return dict(out), Q


def choose(Q: list[list[Fraction]], u: int, rhs: Fraction) -> list[tuple[int, Fraction]]:
    """I_i x V_i: sources for which row u has budget, from the first on, and amounts that sum to rhs."""
    chosen = []
    T = Fraction(0)
    for k, budget in enumerate(Q[u]):
        if budget > 0:
            if T + budget < rhs:
                chosen.append((k, budget))
                T += budget
            else:
                chosen.append((k, rhs - T))
                return chosen
    raise AssertionError("the budget of a row does not suffice, which the paper proves impossible")


def interleave(collections: list[list[tuple[int, Fraction]]], rhs: Fraction) -> list[tuple[tuple[int, ...], Fraction]]:
    """The pairs (zeta_k, nu_k): the buffers B_x and B_v, whose smallest amount is dealt with every round."""
    if not collections:
        return [((), rhs)]
    pairs = []
    at = [0] * len(collections)
    buffer_v = [collection[0][1] for collection in collections]
    buffer_x = [collection[0][0] for collection in collections]
    while True:
        nu = min(buffer_v)
        smallest = buffer_v.index(nu)
        if nu > 0:
            pairs.append((tuple(buffer_x), nu))
        buffer_v = [v - nu for v in buffer_v]
        at[smallest] += 1
        if at[smallest] == len(collections[smallest]):
            return pairs  # the amounts of all rows have the same sum, so the other buffers hold zeros only
        buffer_x[smallest], buffer_v[smallest] = collections[smallest][at[smallest]]


def as_queries(out: Output) -> dict[tuple[tuple[int, ...], int, int], Fraction]:
    """p(y, x | u) for the sets y = Set(z)."""
    merged: Output = defaultdict(Fraction)
    for (z, x, u), mass in out.items():
        merged[tuple(sorted(set(z))), x, u] += mass
    return dict(merged)
