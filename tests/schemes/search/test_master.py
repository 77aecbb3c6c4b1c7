"""master: the live program is the program; duals prove its value; soft cuts end where hard ones do; pricing."""

from typing import Any

import numpy as np
import pytest
from tests.schemes.search.test_proofs import brute_force, random_duals
from tests.support.typed import present

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes.search.exact import each_once, meets
from onoff.schemes.search.master import NOTICED, ColumnGeneration, MasterProgram, by_climbing
from onoff.schemes.search.portfolio import Board, Clock, Problem, never
from onoff.schemes.search.proofs import Duals


def all_subsets(n):
    return (np.arange(1, 1 << n)[:, None] >> np.arange(n)) & 1 == 1


def solved(rows, *, primal=False, **options):
    program = MasterProgram(rows, **options)
    program.walk(primal=primal)
    program.add_sets(all_subsets(program.size))
    program.add_cuts(np.eye(program.size, dtype=bool))
    while True:
        assert program.solve(never)
        missing, violated = present(program.short_rows())
        if not program.add_cuts(violated[missing > NOTICED]):
            if program.missed <= NOTICED:
                return program
            program.soften(2 * present(program.softness))


def test_meets_is_having_an_element_in_common():
    some, others = np.array([[True, False, True]]), np.array([[False, True, False], [False, False, True]])
    assert meets(some, others).tolist() == [[False, True]]


@pytest.mark.parametrize("seed", range(5))
def test_duals_are_feasible_and_have_the_value(seed):
    rows = Rows.of(families.dirichlet(6, 5.0, np.random.default_rng(seed)))
    program = solved(rows)
    duals = Duals.of(program.t, program.y, program.cuts)
    assert duals.gains(program.sets).max() < 1e-8
    low = (program.p @ duals.inside.T).min(axis=0)
    assert duals.t - duals.y @ low == pytest.approx(program.value, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_soft_cuts_end_at_the_same_value(seed):
    rows = Rows.of(families.dirichlet(6, 5.0, np.random.default_rng(seed)))
    assert solved(rows, softness=0.1).value == pytest.approx(solved(rows).value, abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_both_simplex_methods_end_at_the_same_value(seed):
    rows = Rows.of(families.dirichlet(6, 5.0, np.random.default_rng(seed)))
    assert solved(rows, primal=True).value == pytest.approx(solved(rows).value, abs=1e-8)


def test_the_middle_has_the_value_of_the_corners_and_uses_every_set_it_may():
    rows = Rows.of(families.symmetric(5, 0.6))
    program = solved(rows)
    value, corner = program.value, np.count_nonzero(program.masses > NOTICED)
    program.aim(central=True)
    assert program.solve(never)
    assert program.value == pytest.approx(value, abs=1e-8)
    assert np.count_nonzero(program.masses > NOTICED) > corner


def test_what_is_added_twice_is_there_once():
    program = MasterProgram(Rows.of(families.ring(5)))
    sets = all_subsets(5)
    assert (program.add_sets(sets), program.add_sets(sets)) == (31, 0)
    cuts = np.vstack([np.eye(5, dtype=bool), np.ones((1, 5), dtype=bool), np.zeros((1, 5), dtype=bool)])
    assert (program.add_cuts(cuts), program.add_cuts(cuts)) == (5, 0)  # everything and nothing say nothing


def test_a_preference_keeps_the_value():
    rows = Rows.of(families.dirichlet(5, 1.0, np.random.default_rng(1)))
    program = solved(rows, softness=2.0)
    value = program.value
    program.prefer(lambda sets: sets[:, 0].astype(float), value + 1e-9)  # ask for source 0 as rarely as can be
    assert program.solve(never)
    assert program.masses @ program.sets.sum(axis=1) <= value + 1e-7
    assert program.value >= program.p[:, 0].max() - 1e-7


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (40, 3), (300, 64), (300, 65), (50, 200)])
def test_each_set_once(shape):
    rng = np.random.default_rng(3)
    sets = rng.random(shape) < 0.3
    sets = sets[rng.integers(0, max(len(sets), 1), size=2 * len(sets))]
    assert np.array_equal(np.unique(each_once(sets), axis=0), np.unique(sets, axis=0))
    assert len(each_once(sets)) == len(np.unique(sets, axis=0))


def test_climbing_ends_where_no_single_change_gains():
    rng = np.random.default_rng(30)
    best = 0
    for _ in range(30):
        duals = random_duals(rng, 9, 25)
        sets, gains = by_climbing(duals, np.eye(9, dtype=bool), 0.0, rng)
        assert gains == pytest.approx(duals.gains(sets), abs=1e-9)
        best += gains[0] >= brute_force(duals)[1].max() - 1e-9
        for chosen, gain in zip(sets, gains, strict=True):
            changed = np.tile(chosen, (9, 1)) ^ np.eye(9, dtype=bool)
            changed = changed[changed.any(axis=1)]
            assert duals.gains(changed).max() <= gain + 1e-8
    assert best >= 25  # nine starts nearly always reach the best of all


def test_noise_changes_where_climbing_ends_but_not_what_is_reported():
    rng = np.random.default_rng(31)
    duals = random_duals(rng, 12, 60)
    sets, gains = by_climbing(duals, np.eye(12, dtype=bool), 0.5, rng)
    assert gains == pytest.approx(duals.gains(sets), abs=1e-9)
    assert (np.diff(gains) <= 1e-12).all()


def test_out_of_time_climbing_has_what_it_has():
    duals = random_duals(np.random.default_rng(1), 30, 60)
    sets, gains = by_climbing(duals, np.eye(30, dtype=bool), 0.0, np.random.default_rng(1), lambda: True)
    assert 0 < len(sets) <= 20
    assert gains == pytest.approx(duals.gains(sets), abs=1e-9)


@pytest.mark.parametrize("name", ["dirichlet 1", "out-degree 3", "small diagonal"])
def test_column_generation_ends_at_the_optimum_and_proves_it(name):
    rows = Rows.of(families.FAMILIES[name](9, np.random.default_rng(3)))
    problem = Problem(rows, Clock(60.0))
    board = Board(problem)
    for _ in ColumnGeneration(1.0).run(problem, board, never):
        pass
    assert board.met
    assert board.table().optimal or board.cost <= board.lower * (1 + 1e-6)
    assert len(board.cuts) > 0  # of use to others


def test_stopped_within_a_run_the_best_masses_become_a_table():
    """The loop closes a strategy where its time is up: what it has found is offered then."""
    rows = Rows.of(families.dirichlet(30, 1.0, np.random.default_rng(3)))
    problem = Problem(rows, Clock(60.0))
    board = Board(problem)
    board.add(np.eye(30, dtype=bool))
    run: Any = ColumnGeneration(1.0).run(problem, board, never)
    next(run)
    assert board.incumbent is None
    run.close()
    assert board.incumbent is not None
    board.incumbent.verify()
