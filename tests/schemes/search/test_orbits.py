"""The program over orbits: known optima, and masses that rows can follow."""

from itertools import pairwise

import numpy as np
import pytest
from tests.support.typed import present

from onoff.lab import families
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.schemes.search.exact import rebuild
from onoff.schemes.search.orbits import SAME, OrbitProgram, symmetries


def herded(matrix, rounds):
    """The program after so many rounds, and its value after each."""
    program = OrbitProgram(matrix, present(symmetries(matrix, lambda: False)), 1.0)
    values = []
    for number in range(rounds):
        program.herd(0.02, 50, afresh=number % 4 == 0)
        values.append(program.value)
    return program, values


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
    program, _ = herded(matrix, 20)
    assert program.value == pytest.approx(cost, abs=1e-7)
    follows(matrix, program, 1e-6)


@pytest.mark.slow(reason="many cases are worked out")
def test_each_solution_is_cheaper_and_the_last_near_the_optimum():
    matrix = families.grid(5, 5)
    program, values = herded(matrix, 40)
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values))
    least = design(matrix, "optimal").cost
    assert program.missed <= 1e-9
    assert least - 1e-7 <= program.value < 1.02 * least
    follows(matrix, program, 1e-5)


def follows(matrix, program, near):
    """Every row can follow the masses: a table of them costs what they say."""
    sets, masses = program.spread(20_000)
    table = rebuild(Rows.of(matrix), [np.flatnonzero(s).tolist() for s in sets], masses)
    table.verify()
    assert table.cost == pytest.approx(program.value, abs=near)
    assert int(table.mass.sum()) == UNIT


CASES = {
    "torus": (families.torus(5), 1, 200),
    "torus that stays": (families.torus(5, 0.3), 2, 200),
    "grid": (families.grid(4, 4), 9, 8),
    "rectangle": (families.grid(3, 4), 14, 4),
    "Paley": (families.paley(19), 1, 171),
    "cube": (families.hypercube(3, 0.25), 1, 24),
    "plane": (families.plane(3), 1, 13),
}


@pytest.mark.parametrize("name", CASES)
def test_orbits_of_flags_and_true_symmetries(name):
    p, orbits, _ = CASES[name]
    found = present(symmetries(p, lambda: False))
    assert found.orbits == orbits
    for rows, columns in zip(found.of_rows, found.of_columns, strict=True):
        moved = np.empty_like(p)
        moved[np.ix_(rows, columns)] = p
        assert np.abs(moved - p).max() < SAME
    assert (np.bincount(found.orbit, p[found.row, found.column] ** 2) > 0).all()
    for orbit in range(found.orbits):  # what is in one orbit has one value
        assert np.ptp(p[found.row, found.column][found.orbit == orbit]) < SAME


@pytest.mark.parametrize("name", ["torus", "grid", "Paley"])
def test_images_are_the_whole_orbit_and_each_once(name):
    p, _, order = CASES[name]
    found = present(symmetries(p, lambda: False))
    chosen = np.zeros(p.shape[1], dtype=bool)
    chosen[[0, 1, 3, 7]] = True
    images = found.images(chosen, 10**4)
    assert len(images) == len(np.unique(images, axis=0)) <= order
    assert (images.sum(axis=1) == 4).all()
    assert order % len(images) == 0
    assert len(found.images(chosen, 3)) == 3


def test_rows_without_symmetries_have_none():
    assert symmetries(families.dirichlet(12, 1.0, np.random.default_rng(0)), lambda: False) is None
    almost = families.torus(4, 0.2)
    almost[0, 0] += 1e-3
    almost[0, 1] -= 1e-3
    found = symmetries(almost, lambda: False)
    assert found is None or found.orbits > 10


def test_out_of_time_it_gives_up():
    assert symmetries(families.torus(5), lambda: True) is None
