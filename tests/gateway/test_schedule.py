"""The schedule of the switch: by the clock, overruled by hand until it changes next, and kept across restarts."""

from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff.errors import InvalidInput
from onoff.gateway.switch import DAYS, MOST_RULES, Schedule, Switch

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


QUARTER = 900.0
RULES = st.lists(
    st.builds(
        lambda days, start, length: f"ON {days} {start // 4:02}:{start % 4 * 15:02}-{_clock(start + length)}",
        st.sampled_from(["mon-sun", "mon-fri", "sat,sun", "tue", "fri-mon"]),
        st.integers(0, 95),
        st.integers(1, 96),
    ),
    max_size=2,
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.booleans(), st.one_of(st.none(), st.integers(1, 200))),
        st.tuples(st.just("follow"), st.one_of(RULES, st.just(["ON mon-sun 00:00-24:00"]))),
        st.tuples(st.just("wait"), st.integers(1, 200)),
        st.tuples(st.just("look")),
        st.tuples(st.just("restart")),
    ),
    max_size=12,
)
"""What happens to a switch; times in quarters of an hour."""


def _clock(quarters):
    return "24:00" if quarters >= 96 else f"{quarters // 4:02}:{quarters % 4 * 15:02}"


def covered(rules, when):
    """Whether a rule says ON, read off its words."""
    moment = datetime.fromtimestamp(when)
    today, clock = DAYS[moment.weekday()], f"{moment:%H:%M}"
    for _, days, span in map(str.split, rules):
        start, end = span.split("-")
        named = [
            day
            for part in days.split(",")
            for day in (([*DAYS] * 2)[DAYS.index(part[:3]) :][: (DAYS.index(part[-3:]) - DAYS.index(part[:3])) % 7 + 1])
        ]
        if today in named and start <= clock < end:
            return True
    return False


def position(past, now):
    """Whether the switch is ON, as a function of what was done to it, and when: `past` is a list of (time, event)."""
    if not past:
        return True, None
    since, (kind, *how) = past[-1]
    rules: list[str] = next((event[1] for _, event in reversed(past) if event[0] == "follow"), [])
    if kind == "turn":
        private, until = how[0], None if how[1] is None else since + how[1] * QUARTER
    else:
        private, until = position(past[:-1], since)
    if until is not None and now < until:
        return private, until
    private = private if until is None else not private
    quarters = [since + k * QUARTER for k in range(1, int((now - since) / QUARTER) + 1)]
    changed = any(covered(rules, at) != covered(rules, at - 1) for at in quarters)
    return (covered(rules, now) if rules and (changed or kind == "follow") else private), None


@given(EVENTS)
@settings(deadline=None)
def test_whatever_is_done_the_switch_is_a_function_of_that_and_of_the_time(events):
    """Not of when somebody looked at it, nor of when the gateway was started again."""
    with TemporaryDirectory() as folder:
        clock = Clock()
        switch, past = Switch(Path(folder) / "switch.json", clock), []
        for event in [*events, ("look",)]:
            match event:
                case ("turn", private, quarters):
                    switch.turn(private=private, seconds=None if quarters is None else quarters * QUARTER)
                    past.append((clock.now, event))
                case ("follow", rules):
                    switch.follow(rules)
                    past.append((clock.now, event))
                case ("wait", quarters):
                    clock.now += quarters * QUARTER
                case ("restart",):
                    switch = Switch(Path(folder) / "switch.json", clock)
                case ("look",):
                    found = switch.position
                    assert (found.private, found.until) == position(past, clock.now)
