"""proposals: systematic samples have the right inclusions and take one source of each row; races are what rows hit."""

import numpy as np

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes.search.clock import never
from onoff.schemes.search.hall import HallProgram
from onoff.schemes.search.proposals import races, systematic


def test_a_systematic_sample_takes_at_most_one_source_of_each_row():
    rng = np.random.default_rng(1)
    for n in (3, 8, 30):
        p = families.dirichlet(n, 1.0, rng)
        home = p.argmax(axis=0)
        for chosen in systematic(p, 3, rng):
            assert len(set(home[chosen].tolist())) == chosen.sum() > 0


def test_systematic_samples_alone_reach_the_inclusions_of_the_outer_bound():
    """Cuts of single sources only: the program over one order has the value of the outer bound."""
    p = families.dirichlet(15, 1.0, np.random.default_rng(2))
    program = HallProgram(Rows.of(p))
    program.add_sets(systematic(p, 1, np.random.default_rng(3)))
    program.add_cuts(np.eye(15, dtype=bool))
    assert program.solve(never)
    assert abs(program.value - p.max(axis=0).sum()) < 1e-8


def test_races_hit_what_some_row_can_reach():
    p = families.out_degree(20, 2, np.random.default_rng(4))
    for chosen in races(p, 20, np.random.default_rng(5)):
        assert ((p > 0) & chosen).any(axis=1).all()  # every row finds a source of its own in the set
