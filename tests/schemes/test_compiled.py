"""Every kernel gives the same in its compiled and in its plain form, on what real designs ask of it."""

import copy
import importlib
import pkgutil

import numpy as np
import pytest
from tests.support.matrices import many

import onoff.schemes
from onoff.experiments.families import FAMILIES, torus
from onoff.model import checker
from onoff.model.certificate import SCALE
from onoff.model.chain import MarkovChain
from onoff.model.checker import pair_units, row_excess
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.greedy import costs_less
from onoff.schemes.search import breeding, orbits, prices, transport
from onoff.schemes.search.breeding import Breeding
from onoff.schemes.search.clock import never
from onoff.schemes.search.groups import Sharing
from onoff.schemes.search.orbits import OrbitProgram
from onoff.schemes.search.pricing import Duals, by_climbing
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.search.successors import SuccessorCost
from onoff.schemes.search.swapping import swapped
from onoff.schemes.search.symmetry import symmetries
from onoff.schemes.search.transport import raced, raced_sets
from onoff.session.seeded import SeededEntropy
from onoff.system.kernels import Kernel

NAMES = [module.name for module in pkgutil.walk_packages(onoff.schemes.__path__, "onoff.schemes.")]
MODULES = [checker, *(importlib.import_module(name) for name in NAMES)]
KERNELS = {value.python.__name__ for module in MODULES for value in vars(module).values() if isinstance(value, Kernel)}


def same(one, other):
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if np.asarray(one).dtype.kind == "f":  # a logarithm may differ in its last bit
        return np.allclose(one, other, rtol=1e-9, atol=1e-12)
    return np.array_equal(one, other)


@pytest.fixture
def compared(monkeypatch):
    """Each call of a kernel is made twice, once in each form; the names of those that were called."""
    called = set()

    def both(self, *args, effort=0):
        plain, compiled = copy.deepcopy(args), args
        expected, found = self.python(*plain), self.compiled(*compiled)
        assert same(found, expected), self.__name__
        assert same(compiled, plain), self.__name__  # what they wrote into their arguments
        called.add(self.__name__)
        return found

    monkeypatch.setattr(Kernel, "__call__", both)
    return called


@pytest.mark.slow(reason="many cases are worked out")
def test_compiled_and_plain_agree(compared, monkeypatch):
    monkeypatch.setattr(breeding, "SMALLEST_POOL", 40)
    monkeypatch.setattr(breeding, "SETS_PER_SOURCE", 1)
    monkeypatch.setattr(breeding, "SCALINGS", 2)
    monkeypatch.setattr(breeding, "STAGES", ((3, 3),))
    monkeypatch.setattr(transport, "RACED_SCALINGS", 5)
    monkeypatch.setattr(orbits, "ANNEALINGS", 2)
    monkeypatch.setattr(orbits, "CHANGES", 2)
    rng = np.random.default_rng(3)
    for rows in many(3, 12, 6):
        design(rows, "greedy")
        design(rows, "optimal")
        pair_units(rows)
    for _ in range(5):
        row_excess(rng.integers(-SCALE, 2 * SCALE, size=(4, 6)), SCALE)
    for _ in range(5):
        duals = Duals(float(rng.uniform(1, 4)), rng.exponential(0.4, size=20), rng.random((20, 8)) < 0.6)
        by_climbing(duals, np.eye(8, dtype=bool), 0.1, rng)
    rows = MarkovChain(FAMILIES["ring"](60, rng)).rows()
    rebuild(rows, [[x, (x + 30) % 60] for x in range(30)], np.full(30, 1 / 30))
    p = rng.dirichlet(np.ones(8), size=4)
    raced(p, raced_sets(p, rng))
    assert costs_less(rows, 60.0)
    next(Breeding(p, np.eye(8, dtype=bool), rng).stages(never))
    p = rng.dirichlet(np.ones(6), size=6)
    design(p, "optimal", future=Rows.of(p))
    SuccessorCost(Rows.of(p), Rows.of(p))(np.eye(6, dtype=bool))
    symmetric = torus(4, 0.2)
    next(OrbitProgram(symmetric, symmetries(symmetric, never), rng).solutions(never))
    swapped(symmetric, 2, rng, never)
    monkeypatch.setattr(prices, "PACES", ((0.1, 3),))
    monkeypatch.setattr(prices, "KEPT_SETS", 1)
    monkeypatch.setattr(prices, "AT_A_TIME", 2)
    prices.priced_sets(symmetric, never)
    Sharing(Rows.of(symmetric))
    race = design(rows, "race")
    for x in rows.columns[rows.weights[0] > 0].tolist():
        race.draw(0, x, SeededEntropy(rng))
    assert compared == KERNELS
