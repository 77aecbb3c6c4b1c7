"""portfolio: the clock, the board, and a loop that strategies can be left out of, moved in or added to from outside."""

import time

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.certificate import HittingBound
from onoff.model.rows import Rows
from onoff.schemes import design, full, greedy, optimal
from onoff.schemes.search.portfolio import Board, Clock, Greedy, Problem, never, search


def board_of(rows, **options):
    return Board(Problem(rows, **options))


def test_only_the_threads_own_work_counts(monkeypatch):
    now = [10.0]
    monkeypatch.setattr("onoff.schemes.search.portfolio.thread_time", lambda: now[0])
    monkeypatch.setattr("onoff.schemes.search.portfolio.preparing_seconds", lambda: 0.0)  # else sums are rounded
    clock = Clock(2.0)
    now[0] += 0.5
    assert (clock.spent, clock.left(), clock.left(0.5)) == (0.5, 1.5, 0.5)
    assert not clock.is_over()
    now[0] += 0.5
    assert clock.is_over(0.5)
    assert not clock.is_over()
    now[0] += 1.0
    assert clock.is_over()
    assert clock.left() == 0


def test_making_kernels_ready_does_not_count(monkeypatch):
    now, preparing = [10.0], [3.0]
    monkeypatch.setattr("onoff.schemes.search.portfolio.thread_time", lambda: now[0])
    monkeypatch.setattr("onoff.schemes.search.portfolio.preparing_seconds", lambda: preparing[0])
    clock = Clock(2.0)
    now[0] += 5.5
    preparing[0] += 5.0
    assert (clock.spent, clock.left()) == (0.5, 1.5)


def test_waiting_costs_nothing_of_the_budget():
    clock = Clock(1.0)
    before = time.monotonic()
    while time.monotonic() < before + 0.02:
        time.sleep(0.001)
    assert clock.elapsed >= 0.02
    assert clock.spent < clock.elapsed


def test_a_search_that_is_called_off_is_over():
    assert Clock(100.0, stop=lambda: True).is_over()


def test_the_cheapest_table_is_kept_in_whatever_order_tables_come():
    rows = Rows.of(families.dirichlet(7, 0.5, np.random.default_rng(3)))
    tables = [full.build(rows), design(rows, "optimal"), greedy.build(rows)]
    costs = sorted(table.exact_cost for table in tables)
    assert costs[0] < costs[1] < costs[2]
    for order in (tables, tables[::-1]):
        board = board_of(rows)
        assert board.cost == np.inf
        assert not board.met
        for table in order:
            board.offer(table)
        assert board.incumbent is tables[1]
        assert board.cost == tables[1].cost


def test_there_is_a_table_before_the_first_is_offered():
    rows = Rows.of(families.dirichlet(7, 0.5, np.random.default_rng(3)))
    board_of(rows).table().verify()


def test_met_is_the_cost_at_the_bound():
    rows = Rows.of(families.torus(5))
    board = board_of(rows)
    sets = np.array([[True] * 25])
    board.propose(sets, np.ones(1))
    assert not board.met
    board.prove(HittingBound(8))
    board.offer(design(rows, "optimal"))
    assert board.met


class Offers:
    """A strategy that notes that it ran, and offers a table."""

    def __init__(self, table, ran, share=1.0):
        self.table, self.ran, self.share = table, ran, share

    def applies(self, problem):
        return True

    def run(self, problem, board, is_over):
        self.ran.append(self.table.cost)
        board.offer(self.table)
        yield
        self.ran.append("went on")


def test_the_loop_runs_strategies_in_order_until_the_bound_is_met():
    rows = Rows.of(families.dirichlet(7, 0.5, np.random.default_rng(3)))
    best, dear = design(rows, "optimal"), full.build(rows)
    ran: list[object] = []
    problem = Problem(rows)
    board = Board(problem)
    board.prove(best.certificate)
    search(problem, board, [Offers(dear, ran), Offers(best, ran), Offers(dear, ran)])
    assert ran == [dear.cost, "went on", best.cost]  # met: the second is not asked to go on, the third not to start
    assert board.incumbent is best


def test_what_has_no_time_left_does_not_run():
    rows = Rows.of(families.dirichlet(7, 0.5, np.random.default_rng(3)))
    ran: list[object] = []
    problem = Problem(rows, Clock(0.0))
    search(problem, Board(problem), [Offers(full.build(rows), ran)])
    assert ran == []
    search(problem, Board(problem), [Offers(full.build(rows), ran, share=np.inf)])
    assert ran == [7.0, "went on"]


def test_progress_is_told_now_and_then(monkeypatch):
    monkeypatch.setattr("onoff.schemes.search.portfolio.TELL_EVERY", 0.0)
    lines: list[str] = []
    design(families.grid(6, 6), "optimal", budget=2.0, progress=lines.append)
    assert lines
    assert all("lower bound" in line for line in lines)


def test_a_portfolio_from_outside():
    rows = Rows.of(families.dirichlet(9, 1.0, np.random.default_rng(3)))
    ran: list[object] = []
    alone = design(rows, "optimal", portfolio=[Greedy()])
    assert alone.cost == greedy.build(rows).cost
    cheap = design(rows, "optimal")
    mine = design(rows, "optimal", portfolio=[Offers(cheap, ran), Greedy()])
    assert mine.as_dict() == cheap.as_dict()
    assert ran[0] == cheap.cost
    nothing = design(rows, "auto", portfolio=[], budget=1.0)
    assert nothing.cost <= 9


@pytest.mark.parametrize("left_out", range(len(optimal.default_portfolio())))
def test_any_strategy_can_be_left_out(left_out):
    rows = Rows.of(families.out_degree(26, 4, np.random.default_rng(5)))
    portfolio = optimal.default_portfolio()
    del portfolio[left_out]
    table = design(rows, "optimal", budget=1.0, portfolio=portfolio)
    table.verify()
    assert table.cost >= float(table.lower_bound or 0.0) - 1e-9


def test_strategies_may_stand_in_any_order():
    rows = Rows.of(families.out_degree(26, 4, np.random.default_rng(5)))
    table = design(rows, "optimal", budget=1.0, portfolio=optimal.default_portfolio()[::-1])
    table.verify()
    assert never() is False
