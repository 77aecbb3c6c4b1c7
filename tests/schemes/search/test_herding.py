"""herding: rows are met on average, every step ends where no single change gains, and its table is near the bound."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.search.herding import Herding, Market
from onoff.schemes.search.portfolio import Board, Clock, Problem, never


def gain(p, market, inside):
    """By its definition."""
    offers = np.full(p.shape, -np.inf)
    offers[market.row, market.column] = market.phi
    best = np.where(inside, offers, -np.inf).max(axis=1)
    return best.sum() - inside.sum()


@pytest.mark.parametrize("name", ["out-degree 3", "dirichlet 1", "grid"])
def test_a_step_ends_where_no_adding_dropping_or_swapping_gains(name):
    p = Rows.of(families.FAMILIES[name](16, np.random.default_rng(1))).probabilities()
    n = p.shape[1]
    rng = np.random.default_rng(2)
    for _ in range(10):
        market = Market(p)
        market.phi += rng.uniform(0, 0.7, size=len(market.phi))
        before = market.phi.copy()
        (inside,) = market.take(0.0, 1)  # prices stay as they are
        assert np.array_equal(before, market.phi)
        reached = gain(p, market, inside)
        assert np.isfinite(reached)
        for x in range(n):
            changed = inside.copy()
            changed[x] = not changed[x]
            assert gain(p, market, changed) <= reached + 1e-7
            for z in np.flatnonzero(inside) if not inside[x] else ():
                swapped = changed.copy()
                swapped[z] = False
                assert gain(p, market, swapped) <= reached + 1e-7


def test_rows_take_what_they_want_on_average():
    p = families.nearest_points(40, 5, np.random.default_rng(1))
    market = Market(p)
    market.take(0.02, 500)
    before, steps = market.phi.copy(), 4000
    taken = market.take(0.02, steps)
    behind = (market.phi - before) / 0.02  # steps by which each row is behind with each source
    assert np.abs(behind).max() < 0.02 * steps
    assert ((p > 0) & taken[-1]).any(axis=1).all()


def test_prices_start_at_the_dual_of_the_outer_bound():
    p = families.dirichlet(12, 1.0, np.random.default_rng(1))
    market = Market(p)
    assert market.phi @ market.p == pytest.approx(p.max(axis=0).sum())
    assert not Market(p, outer=False).phi.any()


def herded(rows, seconds, **options):
    problem = Problem(rows, Clock(seconds))
    board = Board(problem)
    for _ in Herding(1.0, **options).run(problem, board, never):
        pass
    return board


@pytest.mark.slow(reason="a second of steps for each")
@pytest.mark.parametrize(
    ("name", "matrix", "near"),
    [
        ("sparse", lambda rng: families.out_degree(120, 6, rng), 1.05),
        ("mixed", lambda rng: 0.85 * families.out_degree(100, 6, rng) + 0.0015, 1.1),
        ("few rows", lambda rng: families.dirichlet(100, 0.1, rng, rows=12), 1.02),
    ],
)
def test_its_frequencies_are_a_table_near_the_bound(name, matrix, near):
    rows = Rows.of(matrix(np.random.default_rng(1)))
    board = herded(rows, 1.0)
    table = board.table()
    table.verify()
    assert table.cost < near * board.lower
    assert table.cost < design(rows, "race").cost
    assert 0 < len(board.sets) <= 1500


def test_what_is_left_is_herded_again():
    rows = Rows.of(families.out_degree(100, 6, np.random.default_rng(1)))
    once, thrice = (herded(rows, 0.4, passes=passes, steps=300).cost for passes in (1, 3))
    assert thrice < once


def test_without_time_it_takes_some_steps_at_least():
    board = herded(Rows.of(families.out_degree(40, 6, np.random.default_rng(1))), 1e-9)
    assert board.incumbent is not None
