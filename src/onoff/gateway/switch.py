"""The switch: ON or OFF, for good or until a time, and the file that remembers it.

    position   private, until       until is in seconds since 1970; from then on the position is the opposite one

A turn is on disk before it is reported. The timer is a point in time, so it goes on while the gateway does not run: the
first read after that time finds the switch turned, and that the timer ran out. A file that cannot be read counts as ON.
A schedule turns the switch automatically, by the clock of this machine; a turn by hand holds until it next changes.
Turning by the clock, not by what is wanted next, tells the server nothing that it does not see anyway.

    ON mon-fri 09:00-17:00        ON at these times, OFF at all others
    ON sat,sun 00:00-24:00        several rules: ON whenever one of them says so

The file is beside the journal, readable by its owner only, and replaced atomically. It also keeps the tokens of the
page and of apps, so that their addresses stay the same from one start to the next; without the file there are new ones.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from onoff.errors import InvalidInput, JournalWriteFailed
from onoff.gateway.guard import new_token
from onoff.system.files import read_limited, write_private

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
        today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
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


SWITCH_FILE_VERSION: Final = 1
LONGEST_TIMER: Final = 366 * 86400.0
"""Seconds that a timer may run."""
END_OF_TIME: Final = 253_402_300_800.0
"""The year 10000, which no calendar here can show."""
FOLLOWED: Final = 0.0
"""As the time of the last turn: not since the schedule is followed, so that it decides at once."""
UNREADABLE: Final = "the file of the switch could not be read: privacy is ON"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of the switch. `ran_out`: when the timer turned it, if that was the last to turn it."""

    private: bool = True
    until: float | None = None
    ran_out: float | None = None

    def at(self, now: float) -> Position:
        """The position at a later time."""
        if self.until is None or now < self.until:
            return self
        return Position(not self.private, ran_out=self.until)

    def as_dict(self) -> dict[str, Any]:
        return {"private": self.private, "until": self.until, "ran_out": self.ran_out}


@dataclass(frozen=True, slots=True)
class SwitchTokens:
    """The tokens of the page and of apps; see `guard`."""

    page: str = field(default_factory=new_token, repr=False)
    app: str = field(default_factory=new_token, repr=False)


class Switch:
    """The switch that is kept at `path`. Threads may share it.

    clock    the time in seconds since 1970
    changed  called after every change of the position, from the thread that makes or finds it
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.path = path
        self._changed = changed
        self.note: str | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self.schedule: Schedule | None = None
        self._turned = FOLLOWED  # when it was turned last, by hand or by the schedule
        self._position, self.tokens = self._load()

    @property
    def position(self) -> Position:
        """The position now, by the timer and the schedule."""
        with self._lock:
            before = self._position
            self._position, self._turned = position, _ = self._at(self._clock())
        if position != before:
            self._changed()
        return position

    def _at(self, now: float) -> tuple[Position, float]:
        """The position at a time, and when it was turned last, whenever somebody looked at it before."""
        position = self._position.at(now)
        if self.schedule is None or position.until is not None:
            return position, self._turned
        due = self.schedule.last_change(now) or FOLLOWED  # one that never changes has said so since it is followed
        if due > self._turned or self._turned == FOLLOWED:
            return Position(self.schedule.private(now)), due
        return position, self._turned

    def turn(self, *, private: bool, seconds: float | None = None, until: float | None = None) -> Position:
        """Turn it, for good, for some seconds, or until a time. Raises InvalidInput, JournalWriteFailed."""
        now = self._clock()
        if seconds is not None and until is not None:
            raise InvalidInput("both a duration and an end time were given", hint="give seconds or until")
        end = now + seconds if seconds is not None else until
        if end is not None and not (math.isfinite(end) and now < end <= now + LONGEST_TIMER):
            raise InvalidInput("a timer must end in the future, within a year", hint="give seconds, or a later time")
        with self._lock:
            position = Position(private, end)
            self._save(position, self.tokens, now)
            self._position, self._turned, self.note = position, now, None
        self._changed()
        return position

    def schedule_as_dict(self) -> dict[str, Any]:
        """The rules by which it turns automatically, and when it does next."""
        schedule = self.schedule
        if schedule is None:
            return {"rules": [], "next": None}
        return {"rules": list(schedule.written), "next": schedule.next_change(self._clock())}

    def follow(self, rules: Sequence[str]) -> None:
        """Turn by this schedule from now on; without rules, by hand alone. Raises InvalidInput, JournalWriteFailed."""
        schedule = Schedule.parse(rules) if rules else None
        with self._lock:
            position, _ = self._at(self._clock())  # as the schedule before left it, also if nobody looked at it
            before, self.schedule = self.schedule, schedule
            try:
                self._save(position, self.tokens, FOLLOWED)
            except JournalWriteFailed:
                self.schedule = before
                raise
            self._position, self._turned = position, FOLLOWED

    def _load(self) -> tuple[Position, SwitchTokens]:
        try:
            kept = json.loads(read_limited(self.path))
            position, tokens = _position(kept), SwitchTokens(_token(kept, "page_token"), _token(kept, "app_token"))
            self.schedule = Schedule.parse(kept["schedule"]) if kept.get("schedule") else None
            self._turned = float(kept.get("turned", FOLLOWED))
            if "page_token" not in kept:  # a file of version 0.1
                self._save(position, tokens, self._turned)
            return position, tokens
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, RecursionError, InvalidInput):
            self.note = UNREADABLE
            with suppress(OSError):
                os.replace(self.path, f"{self.path}.damaged")
        tokens = SwitchTokens()
        self._save(Position(), tokens, FOLLOWED)
        return Position(), tokens

    def _save(self, position: Position, tokens: SwitchTokens, turned: float) -> None:
        kept = {
            "version": SWITCH_FILE_VERSION,
            "private": position.private,
            "until": position.until,
            "app_token": tokens.app,
            "page_token": tokens.page,
            "turned": turned,
            "schedule": [] if self.schedule is None else list(self.schedule.written),
        }
        write_private(self.path, json.dumps(kept).encode(), "the switch was not turned")


def _position(kept: dict[str, Any]) -> Position:
    private, until = kept["private"], kept["until"]
    if kept["version"] != SWITCH_FILE_VERSION or not isinstance(private, bool):
        raise ValueError("not the file of a switch")
    if until is not None and not (isinstance(until, int | float) and 0 <= until < END_OF_TIME):
        raise ValueError("not a time")
    return Position(private, until)


def _token(kept: dict[str, Any], name: str) -> str:
    token = kept[name] if name != "page_token" else kept.get(name, new_token())
    if not isinstance(token, str) or len(token) < len(new_token()) or not token.isascii():
        raise ValueError("not a token")
    return token
