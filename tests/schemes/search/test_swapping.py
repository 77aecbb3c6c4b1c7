"""Exchanges: the rows are met at every moment, and it gets cheaper."""

import numpy as np
import pytest
from tests.support.typed import present

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.swapping import LEFT, _dealt, _exchange, couplings_for, swapped


def test_the_rows_are_met_and_it_is_cheaper_than_races():
    matrix = families.equal_masses(60, 6, np.random.default_rng(1))
    rows = Rows.of(matrix)
    few, many = (swapped(rows.probabilities(), sweeps, np.random.default_rng(0), lambda: False) for sweeps in (3, 150))
    costs = []
    for sets, masses in (present(few), present(many)):
        table = rebuild(rows, [rows.columns[one].tolist() for one in sets], masses)
        table.verify()
        assert table.cost == pytest.approx(sets.sum(axis=1) @ masses, abs=1e-9)  # nothing was left for everything
        costs.append(table.cost)
    assert costs[1] < costs[0]
    assert costs[1] < 0.9 * design(rows, "race").cost


def test_masses_that_no_number_of_couplings_fits_are_met_in_passes():
    rows = Rows.of(families.out_degree(120, 6, np.random.default_rng(1)))
    sets, masses = present(swapped(rows.probabilities(), 60, np.random.default_rng(0), lambda: False))
    assert masses.sum() > 1 - LEFT
    assert len(np.unique(masses)) >= 3  # one mass to a pass
    table = rebuild(rows, [rows.columns[one].tolist() for one in sets], masses)
    table.verify()
    assert table.cost == pytest.approx(sets.sum(axis=1) @ masses, abs=1e-3)  # next to nothing is left for everything
    assert table.cost < 0.9 * design(rows, "race").cost


def test_the_number_of_couplings_fits_the_rows():
    assert couplings_for(families.grid(4, 4)) == (60, 60)  # 1/5, 4/15 and 2/5
    assert couplings_for(np.full((2, 7), 1 / 7)) == (63, 63)
    divided, couplings = couplings_for(families.out_degree(50, 6, np.random.default_rng(1)))
    assert divided - 5 <= couplings < divided <= 120  # six fractions sum to five at most


def test_exchanges_keep_what_each_row_takes():
    p = families.torus(4, 0.2)
    before = _dealt(np.rint(p * 60).astype(np.int64), 60, np.random.default_rng(0))
    taken, held = before.copy(), np.zeros((60, 16), dtype=np.int32)
    np.add.at(held, (np.tile(np.arange(60), 16), taken.ravel()), 1)
    sets_before = np.count_nonzero(held)
    _exchange(taken, held, np.exp(-np.arange(3) / 0.2), 5000, 17)
    again = np.zeros_like(held)
    np.add.at(again, (np.tile(np.arange(60), 16), taken.ravel()), 1)
    assert np.array_equal(again, held)
    assert np.array_equal(np.sort(taken, axis=1), np.sort(before, axis=1))
    assert np.count_nonzero(held) < sets_before


def test_out_of_time_there_is_nothing():
    assert swapped(families.torus(4, 0.2), 5, np.random.default_rng(0), lambda: True) is None


def test_few_sparse_rows_meet_the_bound_by_exchanges():
    table = design(families.equal_masses(225, 6, np.random.default_rng(1))[:20], "optimal", budget=60.0)
    table.verify()
    assert table.optimal
    assert table.details["rounds"] == 0  # of the master program
