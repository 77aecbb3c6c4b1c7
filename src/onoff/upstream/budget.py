"""How many requests a site allows: `500/min 10000/day`, kept by planning before anything leaves.

A plan is made from how many requests there are and from the times of earlier ones, which the site knows; what is wanted
plays no part. Each limit is a sliding window: among any `count + 1` requests in a row, the last comes `seconds` after
the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onoff.errors import InvalidInput, OnOffError

SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "day": 86400.0}
_LIMIT = re.compile(r"(\d{1,9})\s*/\s*(\d{1,6})?\s*([a-z]+)")
_HINT = 'write limits as "500/min 10000/day"; s, min, h and day can be counted, as in "10/5min"'


class OverBudget(OnOffError):
    """A request would exceed the site's budget. Nothing was sent; `seconds` says when it can be made."""

    def __init__(self, message: str, *, hint: str, seconds: float) -> None:
        super().__init__(message, hint=hint)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` requests in any `seconds`."""

    count: int
    seconds: float

    def __str__(self) -> str:
        unit = next((name for name in ("day", "h", "min", "s") if self.seconds == SECONDS[name]), None)
        return f"{self.count}/{unit or f'{self.seconds:g}s'}"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits, all of which hold. Without any, everything is allowed at once."""

    limits: tuple[Limit, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Budget:
        """A budget as people write it. Raises InvalidInput.

        >>> str(Budget.parse("500/min 10000/day"))
        '500/min 10000/day'
        """
        limits, rest = [], text.strip()
        while rest:
            found = _LIMIT.match(rest)
            if found is None or found[3] not in SECONDS or int(found[1]) == 0 or found[2] == "0":
                raise InvalidInput(f"{text!r} is no budget", hint=_HINT)
            limits.append(Limit(int(found[1]), float(found[2] or 1) * SECONDS[found[3]]))
            rest = rest[found.end() :].lstrip(" ,;")
        if not limits:
            raise InvalidInput("an empty budget", hint=_HINT)
        return cls(tuple(limits))

    def __str__(self) -> str:
        return " ".join(map(str, self.limits)) or "no limit"

    @property
    def longest(self) -> float:
        """Seconds for which the times of requests have to be remembered."""
        return max((limit.seconds for limit in self.limits), default=0.0)

    def plan(self, count: int, now: float, sent: Sequence[float] = ()) -> list[float]:
        """When each of `count` requests may leave, at the earliest `now`.

        sent: the times of earlier requests, ascending; those older than `longest` do not matter. A time in the future,
        which a clock that was set back leaves behind, counts as now, so that it cannot lock the site for years.
        """
        times = [min(time, now) for time in sent]
        first = len(times)
        for _ in range(count):
            at = times[-1] if len(times) > first else now
            for limit in self.limits:
                if len(times) >= limit.count:
                    at = max(at, times[-limit.count] + limit.seconds)
            times.append(at)
        return times[first:]

    def check(self, count: int, now: float, sent: Sequence[float], patience: float) -> list[float]:
        """The plan, if its last request leaves within `patience` seconds; else raises OverBudget."""
        times = self.plan(count, now, sent)
        late = times[-1] - now if times else 0.0
        if late <= patience:
            return times
        # The earliest start from which the whole plan fits into the patience, found by moving the start.
        low, high = now, times[-1]
        while high - low > 1:
            middle = (low + high) / 2
            if self.plan(count, middle, sent)[-1] - middle <= patience:
                high = middle
            else:
                low = middle
        wait = high - now
        fits = self.plan(count, high, sent)[-1] - high <= patience
        raise OverBudget(
            f"{count} requests would exceed the budget {self}: they take {late:.0f} s, and at most {patience:.0f} s "
            "are allowed for them",
            hint=f"try again in {wait:.0f} s" if fits else "allow more time, a larger budget, or ask for fewer sources",
            seconds=wait if fits else late,
        )
