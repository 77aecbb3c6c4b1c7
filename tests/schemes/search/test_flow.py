"""flows: what is missing is proved by a violated set, and sparse rows are sent the same along their own edges."""

from typing import Any

import numpy as np
from tests.support.matrices import random_rows
from tests.support.typed import present

from onoff.lab import families
from onoff.model.rows import UNIT, Rows
from onoff.schemes.search.exact import csr
from onoff.schemes.search.flow import cells_of, fitted, short_rows
from onoff.schemes.search.portfolio import never


def random_sets(rng, n, count):
    drawn = (rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False).tolist() for _ in range(count))
    return sorted({tuple(sorted(s)) for s in drawn})


def as_csr(sets: Any) -> tuple[Any, Any]:
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
        row, edge, weight = present(cells_of(rows.weights, offsets, items, lowered, never))
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
        missing, violated = present(short_rows(rows.weights, *as_csr(sets), units, never))
        for row, gap, inside in zip(rows.weights, missing.tolist(), violated, strict=True):
            met = sum(int(units[k]) for k, s in enumerate(sets) if inside[list(s)].any())
            assert gap == sum(row[inside].tolist()) - met
            short += gap > 0
    assert short > 100


def test_sparse_rows_are_sent_as_much_along_their_own_edges():
    """Rows that want few of many sources: the same sources alone, where they are not few, give the same."""
    rng = np.random.default_rng(13)
    for _ in range(10):
        wanted = np.sort(rng.choice(24, size=6, replace=False))
        weights = np.zeros((5, 24), dtype=np.int64)
        weights[:, wanted] = rng.multinomial(UNIT, np.full(6, 1 / 6), size=5)
        sets = [s for s in random_sets(rng, 24, 30) if set(s) & set(wanted.tolist())]
        units = (rng.dirichlet(np.ones(len(sets))) * UNIT).astype(np.int64)
        alone = [tuple(np.flatnonzero(np.isin(wanted, s)).tolist()) for s in sets]
        missing = present(short_rows(weights, *as_csr(sets), units, never))[0]
        assert np.array_equal(missing, present(short_rows(weights[:, wanted], *as_csr(alone), units, never))[0])


def test_cells_that_are_nearly_a_flow_are_cut_to_one():
    rng = np.random.default_rng(14)
    for _ in range(10):
        rows = random_rows(rng, 4, 6)
        sets = random_sets(rng, len(rows.columns), 9)
        offsets, items = as_csr(sets)
        units = (rng.dirichlet(np.ones(len(sets))) * UNIT).astype(np.int64)
        exact = present(cells_of(rows.weights, offsets, items, units, never))
        shaken, lowered = exact.copy(), units.copy()
        shaken[2] += rng.integers(-5, 6, size=shaken.shape[1])
        row, edge, weight = fitted(rows.weights, offsets, items, lowered, shaken)
        owner = np.searchsorted(offsets, edge, side="right") - 1
        for u in range(rows.distinct):
            filled = np.zeros_like(units)
            np.add.at(filled, owner[row == u], weight[row == u])
            assert np.array_equal(filled, lowered)
        assert (units - lowered).sum() < 5 * shaken.shape[1]


def test_out_of_time_there_is_nothing():
    rows = random_rows(np.random.default_rng(15), 3, 5)
    offsets, items = as_csr([(0,)])
    units = np.array([UNIT])
    assert cells_of(rows.weights, offsets, items, units, lambda: True) is None
    assert short_rows(rows.weights, offsets, items, units, lambda: True) is None


def test_what_many_sparse_rows_share_is_worked_out_for_hundreds_at_once():
    """Each look at the clock stands for one such piece of work; by the edges of all sets it would be 57 of them."""
    rng = np.random.default_rng(4)
    looks: list[int] = []
    rows = Rows.of(families.out_degree(400, 3, rng))
    offsets, items = csr(rng.random((200, len(rows.columns))) < 0.5)

    def is_over() -> bool:
        looks.append(1)
        return False

    assert cells_of(rows.weights, offsets, items, np.full(200, UNIT // 200), is_over) is not None
    assert len(looks) <= 2
