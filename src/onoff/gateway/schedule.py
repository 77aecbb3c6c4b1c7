"""Schedule: when the switch turns automatically, by the clock of this machine.

    ON mon-fri 09:00-17:00        ON at these times, OFF at all others
    ON sat,sun 00:00-24:00        several rules: ON whenever one of them says so

A turn by hand holds until the schedule next changes. Turning by the clock, not by what is wanted next, tells the server
nothing that it does not see anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Final

from onoff.errors import InvalidInput

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MOST_RULES: Final = 20
HINT: Final = 'such as "ON mon-fri 09:00-17:00"'
_RULE = re.compile(r"ON ([a-z,-]+) (\d\d):(\d\d)-(\d\d):(\d\d)")
DAY_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class Rule:
    """ON on some days of the week (0: Monday) from one minute of the day to another."""

    days: frozenset[int]
    start: int
    end: int

    def covers(self, moment: datetime) -> bool:
        minute = moment.hour * 60 + moment.minute
        return moment.weekday() in self.days and self.start <= minute < self.end


@dataclass(frozen=True)
class Schedule:
    """Rules, as they were written and as they are understood."""

    written: tuple[str, ...]
    rules: tuple[Rule, ...]

    @classmethod
    def parse(cls, written: Sequence[str]) -> Schedule:
        """Raises InvalidInput for what is not a rule."""
        if len(written) > MOST_RULES:
            raise InvalidInput(f"{len(written)} rules", hint=f"give at most {MOST_RULES}")
        return cls(tuple(written), tuple(_rule(text) for text in written))

    def private(self, when: float) -> bool:
        """Whether the switch is ON at a time, in seconds since 1970, by the schedule alone."""
        moment = datetime.fromtimestamp(when)
        return any(rule.covers(moment) for rule in self.rules)

    def last_change(self, now: float) -> float | None:
        """When the schedule changed last; None where it never does."""
        return max((at for at in self._changes(now, range(-8, 1)) if at <= now), default=None)

    def next_change(self, now: float) -> float | None:
        """When it will change next; None where it never does."""
        return min((at for at in self._changes(now, range(9)) if at > now), default=None)

    def _changes(self, now: float, days: range) -> list[float]:
        today = datetime.combine(datetime.fromtimestamp(now).date(), time())
        minutes = {minute for rule in self.rules for minute in (rule.start, rule.end)}
        moments = [(today + timedelta(days=day, minutes=minute)).timestamp() for day in days for minute in minutes]
        return [at for at in moments if self.private(at) != self.private(at - 1)]


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"not a rule: {text[:60]!r}", hint=HINT)
    start, end = int(found[2]) * 60 + int(found[3]), int(found[4]) * 60 + int(found[5])
    if not 0 <= start < end <= DAY_MINUTES or int(found[3]) > 59 or int(found[5]) > 59:
        raise InvalidInput(
            f"not a span of a day: {text[:60]!r}", hint=f"{HINT}; use two rules for a span over midnight"
        )
    return Rule(frozenset(day for part in found[1].split(",") for day in _days(part)), start, end)


def _days(part: str) -> list[int]:
    first, dash, last = part.partition("-")
    if first not in DAYS or (dash and last not in DAYS):
        raise InvalidInput(f"not days of the week: {part[:20]!r}", hint=f"use {', '.join(DAYS)}, or mon-fri")
    begin = DAYS.index(first)
    if not dash:
        return [begin]
    span = (DAYS.index(last) - begin) % 7
    return [(begin + offset) % 7 for offset in range(span + 1)]
