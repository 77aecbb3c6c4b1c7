"""flows: what is missing is proved by a violated set, and sparse rows are sent the same along their own edges."""

from typing import Any

import numpy as np
from tests.support.matrices import random_rows

from onoff.model.rows import UNIT
from onoff.schemes.search.flow import flows


def random_sets(rng, n, count):
    drawn = (rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False).tolist() for _ in range(count))
    return sorted({tuple(sorted(s)) for s in drawn})


def as_csr(sets):
    return np.cumsum([0, *map(len, sets)], dtype=np.int64), np.array([x for s in sets for x in s], dtype=np.int64)


def test_lowered_masses_are_filled_by_every_row():
    """The cells of each row add up to the lowered mass of each set, and to no more than the row wants."""
    rng = np.random.default_rng(11)
    for _ in range(10):
        rows = random_rows(rng, 4, 6)
        sets = random_sets(rng, len(rows.columns), 9)
        units = (rng.dirichlet(np.ones(len(sets))) * UNIT).astype(np.int64)
        offsets, items = as_csr(sets)
        lowered = units.copy()
        row, edge, weight, _, _ = flows(rows.weights, offsets, items, lowered, True)
        assert (lowered <= units).all()
        owner = np.searchsorted(offsets, edge, side="right") - 1
        for u in range(rows.distinct):
            filled, taken = np.zeros_like(units), np.zeros_like(rows.weights[u])
            np.add.at(filled, owner[row == u], weight[row == u])
            np.add.at(taken, items[edge[row == u]], weight[row == u])
            assert np.array_equal(filled, lowered)
            assert (taken <= rows.weights[u]).all()


def test_missing_units_are_proved_by_the_violated_set():
    """p_u(C) minus the mass of the sets that meet C is what is missing: no flow can be larger."""
    rng = np.random.default_rng(12)
    short = 0
    for _ in range(200):
        rows = random_rows(rng, 5, 7)
        sets = random_sets(rng, len(rows.columns), 9)
        units = (rng.dirichlet(np.ones(len(sets))) * UNIT).astype(np.int64)
        *_, missing, violated = flows(rows.weights, *as_csr(sets), units, False)
        for row, gap, inside in zip(rows.weights, missing.tolist(), violated, strict=True):
            met = sum(int(units[k]) for k, s in enumerate(sets) if inside[list(s)].any())
            assert gap == sum(row[inside].tolist()) - met
            short += gap > 0
    assert short > 100


def test_sparse_rows_are_sent_the_same_along_their_own_edges(monkeypatch):
    rng = np.random.default_rng(13)
    for lower in [True, False] * 10:
        weights = np.zeros((5, 12), dtype=np.int64)
        for line in weights:
            line[rng.choice(12, size=3, replace=False)] = [UNIT // 2, UNIT // 4, UNIT // 4]
        sets = random_sets(rng, 12, 15)
        units = (rng.dirichlet(np.ones(len(sets))) * UNIT).astype(np.int64)
        results = []
        plain: Any = flows.__wrapped__  # type: ignore[attr-defined]  # compiled, the constant is fixed
        for one_in, sent in ((3, flows), (3, plain), (12, plain)):
            monkeypatch.setattr("onoff.schemes.search.flow.SPARSE_ROW", one_in)
            lowered = units.copy()
            results.append((*sent(weights, *as_csr(sets), lowered, lower), lowered))
        for others in results[1:]:
            for one, other in zip(results[0], others, strict=True):
                np.testing.assert_array_equal(one, other)
