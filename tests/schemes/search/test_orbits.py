"""The program over orbits: known optima, and masses that rows can follow."""

from itertools import pairwise

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.schemes.search.orbits import OrbitProgram, _settle
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.symmetry import symmetries


class Looks:
    """Over after so many looks."""

    def __init__(self, count):
        self.left = count

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize(
    ("name", "matrix", "cost"),
    [
        ("torus", families.torus(5), 8.0),
        pytest.param("torus that stays", families.torus(5, 0.2), 5.0, marks=pytest.mark.deep),
        ("Paley", families.paley(13), 4.0),
        ("cube", families.hypercube(4, 0.2), 4.0),
        ("plane", families.plane(3), 4.0),
    ],
)
def test_known_optima(name, matrix, cost):
    program = OrbitProgram(matrix, symmetries(matrix, lambda: False), np.random.default_rng(0))
    *_, last = program.solutions(Looks(6))
    assert last.value == pytest.approx(cost, abs=1e-7)
    sets, masses = program.spread(last)
    table = rebuild(Rows.of(matrix), [np.flatnonzero(s).tolist() for s in sets], masses)
    table.verify()
    assert table.cost == pytest.approx(cost, abs=1e-6)


@pytest.mark.slow(reason="many cases are worked out")
def test_each_solution_is_cheaper_and_the_last_near_the_optimum():
    matrix = families.grid(5, 5)
    program = OrbitProgram(matrix, symmetries(matrix, lambda: False), np.random.default_rng(0))
    found = [one for one in program.solutions(Looks(24)) if one.missed <= 1e-9]
    assert all(later.value < earlier.value for earlier, later in pairwise(found))
    least = design(matrix, "optimal").cost
    assert least - 1e-7 <= found[-1].value < 1.1 * least
    follows(matrix, program, found[-1])


def test_what_misses_equations_is_completed():
    matrix = families.grid(5, 5)
    program = OrbitProgram(matrix, symmetries(matrix, lambda: False), np.random.default_rng(0))
    *_, last = program.solutions(Looks(3))
    assert last.missed > 0.1
    completed = program._completed(program._solve())
    assert completed.missed <= 1e-9
    assert completed.value < 1.5 * last.value
    follows(matrix, program, completed)


def follows(matrix, program, found):
    """Every row can follow the masses: a table of them costs what they say."""
    sets, masses = program.spread(found)
    table = rebuild(Rows.of(matrix), [np.flatnonzero(s).tolist() for s in sets], masses)
    table.verify()
    assert table.cost == pytest.approx(found.value, abs=1e-5)
    assert int(table.mass.sum()) == UNIT


def test_annealing_leaves_sets_that_meet_every_row():
    matrix = families.torus(4, 0.2)
    program = OrbitProgram(matrix, symmetries(matrix, lambda: False), np.random.default_rng(0))
    found = program.found
    worth = np.full(len(found.row), 0.25)
    sets, heat = np.zeros((2, 16), dtype=bool), np.array([0.3, 0.1])
    _settle(program.first, found.column, program.start, program.edge, found.row, worth, sets, heat, 0.05, 400, 3.0, 7)
    assert (sets.sum(axis=1) <= 6).all()
    assert all((matrix[:, line] > 0).any(axis=1).all() for line in sets)  # every row has a source in the set
