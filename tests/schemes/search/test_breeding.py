"""breeding: few rows over many sources, at the outer bound where that is the optimum."""

from itertools import islice

import numpy as np
import pytest
from tests.schemes.search.test_transport import few_rows

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.search import breeding
from onoff.schemes.search.breeding import STAGES, Breeding
from onoff.schemes.search.clock import never
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.search import ASTRAY


def by_brute_force(p, masses, sets, off):
    """Whether every row meets every Hall inequality of single sources and their complements, up to what is off."""
    met = masses @ sets
    return (met >= p - off).all() and abs(masses.sum() - 1) <= off


@pytest.mark.slow(reason="many cases are worked out")
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
    asked = iter(range(150))
    part = list(Breeding(p, nothing, np.random.default_rng(3)).stages(lambda: next(asked, None) is None))
    assert 1 <= len(part) < len(STAGES)
    for (one, _), other in zip(whole, part, strict=False):
        assert np.array_equal(one.masses, other.masses)
        assert np.array_equal(one.sets, other.sets)


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize(("alpha", "m", "n"), [(0.1, 12, 120), (1.0, 10, 80), (50.0, 12, 40)])
def test_four_stages_come_within_a_tenth_of_a_per_cent(alpha, m, n):
    rows = Rows.of(families.dirichlet(n, alpha, np.random.default_rng(7), rows=m))
    p = rows.probabilities()
    stages = Breeding(p, np.zeros((0, n), dtype=bool), np.random.default_rng(0)).stages(never)
    *_, found = islice(stages, 4)
    table = rebuild(rows, [rows.columns[s].tolist() for s in found.sets], found.masses)
    left_over = table.mass[-1] / table.mass.sum() if len(table.queries[-1]) == n else 0.0
    assert left_over < 1e-3
    assert float(found.masses @ found.sets.sum(axis=1)) == pytest.approx(p.max(axis=0).sum(), rel=1e-3)


def test_the_gradient_is_the_slope_of_the_dual():
    """Against differences of the dual itself, in a few directions."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(6), size=3).T.copy()
    home = np.argmax(p, axis=1)
    of_home = [np.flatnonzero(home == h) for h in range(3)]
    sets = [[x] for x in range(6)] + [sorted([int(a[0]), int(b[0])]) for a, b in ((of_home[0], of_home[1]),)]
    offsets = np.cumsum([0, *map(len, sets)])
    items = np.array([x for s in sets for x in s])

    def dual(f):
        gradient, masses = np.empty_like(p), np.empty(len(sets))
        total = breeding._dual(np.exp(f), p, offsets, items, home, gradient, masses)
        return total - (p * f).sum(), gradient

    f = rng.normal(size=p.shape)
    _, gradient = dual(f)
    for _ in range(5):
        way = rng.normal(size=p.shape)
        by_differences = (dual(f + 1e-6 * way)[0] - dual(f - 1e-6 * way)[0]) / 2e-6
        assert float((gradient * way).sum()) == pytest.approx(by_differences, rel=1e-5, abs=1e-8)


@pytest.mark.slow(reason="kernels are compiled")
def test_breeding_gives_way_where_homes_are_tied_and_it_goes_astray(monkeypatch):
    """With equal masses a source's home is any row that wants it, and the class of one choice may be empty."""
    stages = Breeding.stages
    offs = []

    def watched(self, is_over):
        assert self.homes_are_tied
        for found in stages(self, is_over):
            offs.append(found.off)
            yield found

    monkeypatch.setattr(Breeding, "stages", watched)
    table = design(families.nearest_points(225, 6, np.random.default_rng(1))[:20], "optimal", budget=60.0)
    table.verify()
    assert len(offs) == 1
    assert offs[0] > ASTRAY
    assert table.optimal


def test_homes_are_tied_where_masses_are_equal_and_not_where_they_are_random():
    for family, tied in ((families.equal_masses, True), (families.out_degree, False)):
        p = Rows.of(family(60, 6, np.random.default_rng(1))[:20]).probabilities()
        assert Breeding(p, np.zeros((0, p.shape[1]), dtype=bool), np.random.default_rng(0)).homes_are_tied == tied
