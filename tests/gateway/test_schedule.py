"""The schedule of the switch: by the clock, overruled by hand until it changes next, and kept across restarts."""

from datetime import datetime

import pytest

from onoff.errors import InvalidInput
from onoff.gateway.switch import MOST_RULES, Schedule, Switch

WORK = "ON mon-fri 09:00-17:00"


def at(day, hour, minute=0):
    """A moment in the week of Monday, 5 January 2026, by the clock of this machine."""
    return datetime(2026, 1, 5 + day, hour, minute).timestamp()


@pytest.mark.parametrize(
    ("rule", "moment", "private"),
    [
        (WORK, at(0, 9), True),
        (WORK, at(0, 8, 59), False),
        (WORK, at(4, 16, 59), True),
        (WORK, at(4, 17), False),
        (WORK, at(5, 12), False),
        ("ON sat,sun 00:00-24:00", at(6, 23, 59), True),
        ("ON sun-tue 10:00-11:00", at(1, 10), True),
        ("ON sun-tue 10:00-11:00", at(2, 10), False),
    ],
)
def test_what_a_rule_covers(rule, moment, private):
    assert Schedule.parse([rule]).private(moment) is private


def test_when_it_changes():
    schedule = Schedule.parse([WORK, "ON mon 17:00-18:00"])
    assert schedule.last_change(at(0, 17, 30)) == at(0, 9)  # two rules that meet are one span
    assert schedule.next_change(at(0, 17, 30)) == at(0, 18)
    assert schedule.next_change(at(4, 17)) == at(7, 9)
    assert Schedule.parse(["ON mon-sun 00:00-24:00"]).next_change(at(0, 1)) is None


@pytest.mark.parametrize(
    "rule",
    ["", "on mon 09:00-10:00", "ON", "ON xyz 09:00-10:00", "ON mon 10:00-09:00", "ON mon 9-10", "ON mon 09:61-10:00"],
)
def test_what_is_not_a_rule_is_named(rule):
    with pytest.raises(InvalidInput):
        Schedule.parse([rule])
    with pytest.raises(InvalidInput):
        Schedule.parse([WORK] * (MOST_RULES + 1))


class Clock:
    now = at(0, 8)

    def __call__(self):
        return self.now


@pytest.mark.parametrize("restart", [False, True])
def test_the_switch_follows_and_a_hand_holds_until_the_next_change(tmp_path, restart):
    clock = Clock()
    switch = Switch(tmp_path / "switch.json", clock)

    def look(moment):
        nonlocal switch
        clock.now = moment
        if restart:
            switch = Switch(tmp_path / "switch.json", clock)
        return switch.position.private

    switch.follow([WORK])
    assert [look(at(0, 8)), look(at(0, 9)), look(at(0, 17))] == [False, True, False]
    look(at(1, 10))
    switch.turn(private=False)  # by hand, while the schedule says ON
    assert [look(at(1, 11)), look(at(1, 17, 1)), look(at(2, 9))] == [False, False, True]
    switch.turn(private=False, seconds=3600)  # a timer runs out before the schedule is heard again
    assert [look(at(2, 9, 30)), look(at(2, 10, 1)), look(at(2, 17))] == [False, True, False]
    switch.follow([])
    assert look(at(3, 12)) is switch.position.private is False
