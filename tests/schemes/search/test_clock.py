"""clock: the budget counts the thread's own processor time, and whoever may stop the search is asked."""

import time

import pytest

from onoff.errors import Stopped
from onoff.schemes.search.clock import SearchClock


def test_only_the_threads_own_work_counts(monkeypatch):
    now = [10.0]
    monkeypatch.setattr("onoff.schemes.search.clock.thread_time", lambda: now[0])
    monkeypatch.setattr("onoff.schemes.search.clock.preparing_seconds", lambda: 0.0)  # else sums are rounded
    clock = SearchClock(2.0)
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
    monkeypatch.setattr("onoff.schemes.search.clock.thread_time", lambda: now[0])
    monkeypatch.setattr("onoff.schemes.search.clock.preparing_seconds", lambda: preparing[0])
    clock = SearchClock(2.0)
    now[0] += 5.5
    preparing[0] += 5.0
    assert (clock.spent, clock.left()) == (0.5, 1.5)


def test_waiting_costs_nothing_of_the_budget():
    clock = SearchClock(1.0)
    before = time.monotonic()
    while time.monotonic() < before + 0.02:
        time.sleep(0.001)
    assert clock.elapsed >= 0.02
    assert clock.spent < clock.elapsed


def test_where_it_is_enough_the_time_is_up_and_nothing_raises():
    clock = SearchClock(100.0, enough=lambda: True)
    assert clock.is_over()
    assert clock.left() == 0


def test_called_off_it_raises_outside_solvers_and_says_so_inside():
    clock = SearchClock(100.0, stop=lambda: True)
    assert clock.is_over()
    with pytest.raises(Stopped):
        clock.left()
