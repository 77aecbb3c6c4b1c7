"""samples: systematic samples have the right inclusions and take one source of each row; races are what rows hit."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes.search.exact import rebuild_sets
from onoff.schemes.search.herding import races, systematic
from onoff.schemes.search.master import MasterProgram
from onoff.schemes.search.portfolio import never


def test_a_systematic_sample_takes_at_most_one_source_of_each_row():
    rng = np.random.default_rng(1)
    for n in (3, 8, 30):
        p = families.dirichlet(n, 1.0, rng)
        home = p.argmax(axis=0)
        sets, masses = systematic(p, 3, rng)
        assert masses.sum() == pytest.approx(1.0)
        assert masses @ sets == pytest.approx(p.max(axis=0))
        for chosen in sets:
            assert len(set(home[chosen].tolist())) == chosen.sum() > 0


def test_systematic_samples_alone_reach_the_inclusions_of_the_outer_bound():
    """Cuts of single sources only: the program over one order has the value of the outer bound."""
    p = families.dirichlet(15, 1.0, np.random.default_rng(2))
    program = MasterProgram(Rows.of(p))
    program.add_sets(systematic(p, 1, np.random.default_rng(3))[0])
    program.add_cuts(np.eye(15, dtype=bool))
    assert program.solve(never)
    assert abs(program.value - p.max(axis=0).sum()) < 1e-8


def test_races_hit_what_some_row_can_reach():
    p = families.out_degree(20, 2, np.random.default_rng(4))
    for chosen in races(p, 20, np.random.default_rng(5)):
        assert ((p > 0) & chosen).any(axis=1).all()  # every row finds a source of its own in the set


def test_a_few_orders_place_nearly_all_of_full_rows():
    rows = Rows.of(families.dirichlet(120, 1.0, np.random.default_rng(6)))
    one, five = (rebuild_sets(rows, *systematic(rows.probabilities(), k, np.random.default_rng(7))) for k in (1, 5))
    one.verify()
    assert five.cost < 0.2 * one.cost
