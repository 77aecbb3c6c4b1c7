"""transport: masses that all rows nearly follow, at the outer bound where that is the optimum."""

import numpy as np
import pytest

from onoff.experiments import families
from onoff.model.rows import Rows
from onoff.schemes import race
from onoff.schemes.search.clock import never
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.repair import repaired
from onoff.schemes.search.transport import STAGES, Breeding, raced


def few_rows(name, n, m, seed=1):
    return Rows.of(families.FAMILIES[name](n, np.random.default_rng(seed))[:m])


def by_brute_force(p, masses, sets, off):
    """Whether every row meets every Hall inequality of single sources and their complements, up to what is off."""
    met = masses @ sets
    return (met >= p - off).all() and abs(masses.sum() - 1) <= off


@pytest.mark.parametrize(("name", "n", "m"), [("dirichlet 10", 40, 6), ("dirichlet 1", 60, 9), ("sticky", 50, 10)])
def test_bred_sets_come_close_to_the_outer_bound(name, n, m):
    rows = few_rows(name, n, m)
    p = rows.probabilities()
    breeding = Breeding(p, np.zeros((0, n), dtype=bool), np.random.default_rng(0))
    home = np.argmax(p, axis=0)
    offs = []
    for found, _ in zip(breeding.stages(never), range(3), strict=False):
        assert max(np.bincount(home[s], minlength=m).max() for s in found.sets) <= 1
        assert by_brute_force(p, found.masses, found.sets, m * found.off + 1e-9)
        offs.append(found.off)
    table = rebuild(rows, [rows.columns[s].tolist() for s in found.sets], found.masses)
    table.verify()
    outer = p.max(axis=0).sum()
    assert float(found.masses @ found.sets.sum(axis=1)) == pytest.approx(outer, rel=0.01)
    assert offs[-1] < 0.005


def test_what_a_stage_gives_does_not_depend_on_when_it_is_over():
    p = few_rows("dirichlet 1", 40, 6).probabilities()
    nothing = np.zeros((0, 40), dtype=bool)
    whole = list(zip(Breeding(p, nothing, np.random.default_rng(3)).stages(never), range(2), strict=False))
    asked = iter(range(STAGES[0][0] + 200))
    part = list(Breeding(p, nothing, np.random.default_rng(3)).stages(lambda: next(asked, None) is None))
    assert 1 <= len(part) < len(STAGES)
    for (one, _), other in zip(whole, part, strict=False):
        assert np.array_equal(one.masses, other.masses)
        assert np.array_equal(one.sets, other.sets)


@pytest.mark.parametrize(("name", "tilt"), [("dirichlet 1", 1.0), ("dirichlet 10", 3.0), ("out-degree 3", 1.0)])
def test_a_table_from_races_is_cheaper_than_the_race(name, tilt):
    rows = few_rows(name, 30, 30)
    found = raced(rows.probabilities(), tilt, np.random.default_rng(0))
    table = repaired(rebuild(rows, [rows.columns[s].tolist() for s in found.sets], found.masses))
    table.verify()
    assert table.cost < race.build(rows).cost
