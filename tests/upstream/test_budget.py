"""Budgets: every plan keeps every limit, is as early as it can be, and depends on counts and times alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff.errors import InvalidInput
from onoff.upstream.budget import Budget, Limit, OverBudget

limits = st.lists(st.builds(Limit, st.integers(1, 5), st.integers(1, 50).map(float)), min_size=1, max_size=3)
times = st.lists(st.integers(-60, 0).map(float), max_size=12).map(sorted)


def keeps(budget, moments):
    return all(
        later - earlier >= limit.seconds
        for limit in budget.limits
        for earlier, later in zip(moments, moments[limit.count :], strict=False)
    )


def kept_before(budget, moments):
    """Those of some moments that a site with this budget would have let through."""
    kept: list[float] = []
    for moment in moments:
        if keeps(budget, [*kept, moment]):
            kept.append(moment)
    return kept


@given(limits, times, st.integers(0, 8))
def test_every_plan_keeps_every_limit_and_none_is_earlier(given_limits, earlier, count):
    budget = Budget(tuple(given_limits))
    sent = kept_before(budget, earlier)
    plan = budget.plan(count, 0.0, sent)
    assert len(plan) == count
    assert plan == sorted(plan)
    assert keeps(budget, [*sent, *plan])
    for place, moment in enumerate(plan):  # a second earlier is too early, or before now, or before the one before
        sooner = [*sent, *plan[:place], moment - 1]
        assert moment - 1 < (plan[place - 1] if place else 0.0) or not keeps(budget, sooner)


def test_times_of_a_clock_that_was_set_back_lock_nobody_out():
    assert Budget.parse("1/min").plan(1, 0.0, [1e9]) == [60.0]


def test_what_does_not_fit_is_refused_and_says_when_it_does():
    budget = Budget.parse("10/min")
    assert budget.check(10, 0.0, [], 0.0) == [0.0] * 10
    with pytest.raises(OverBudget) as caught:
        budget.check(10, 0.0, [-30.0] * 5, 5.0)
    assert 25 <= caught.value.seconds <= 31
    with pytest.raises(OverBudget, match="allow more time"):
        budget.check(30, 0.0, [], 5.0)


@pytest.mark.parametrize("text", ["", "many", "5/fortnight", "0/min", "5/0min", "5", "-1/min", "5/min x"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(InvalidInput):
        Budget.parse(text)
