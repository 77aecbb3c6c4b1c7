"""What the server saw, kept at the level of detail that the user chose; in memory, unless a file is named.

    full      every step: when, ON or OFF, which set, its cost. The page marks the wanted source, nobody else learns it.
    costs     the same without sets, and without what was wanted
    counters  totals only

As JSON lines: {"step", "private", "sources", "cost", "time", "session"}, sources as numbers of the chain; `onoff audit
log` reads them. What was wanted is in no line. The file, if there is one, gets each line as it comes and is for its
owner only; if it cannot be written any more it ends there, with a warning, and requests go on. Totals count everything
since the gateway was started, whatever the level.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

from onoff.client import Sent
from onoff.errors import InvalidInput
from onoff.gateway.evidence import Assessment

log = logging.getLogger("onoff.gateway")

Level = Literal["full", "costs", "counters"]
LEVELS: Final[tuple[str, ...]] = get_args(Level)
MOST_STEPS: Final = 10_000


@dataclass
class Totals:
    """Sums over all steps. everything: what always asking for everything takes; unweighed: see `evidence`."""

    requests: int = 0
    private: int = 0
    messages: int = 0
    everything: int = 0
    lower: float = 0.0
    bits: float = 0.0
    naive: float = 0.0
    unweighed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what the server saw of it, and what it did not see. `wanted` is secret."""

    time: float
    sent: Sent
    wanted: int | None
    weighed: Assessment

    def line(self, level: str) -> dict[str, Any]:
        """What the server saw."""
        seen: dict[str, Any] = {"step": self.sent.step, "private": self.sent.private}
        if level == "full":
            seen["sources"] = list(self.sent.sources)
        moment = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {**seen, "cost": self.sent.cost, "time": moment, "session": self.sent.session}

    def shown(self, level: str) -> dict[str, Any]:
        """The same with what is known only here, for the page."""
        line = {**self.line(level), **asdict(self.weighed), "time": self.time, "note": self.sent.note}
        return {**line, "wanted": self.wanted} if level == "full" else line


class SeenLog:
    """The steps of one gateway."""

    def __init__(self, level: str = "full", path: Path | None = None) -> None:
        if level not in LEVELS:
            raise InvalidInput(f"no log level {level!r}", hint=f"use {', '.join(LEVELS)}")
        self.level = level
        self.totals = Totals()
        self._steps: deque[Step] = deque(maxlen=MOST_STEPS)
        self._file = None
        if path is not None:
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                self._file = os.fdopen(descriptor, "a")
            except OSError as error:
                raise InvalidInput(f"{path}: {error.strerror}", hint="give the path of a file") from None

    def add(self, time: float, sent: Sent, wanted: int, weighed: Assessment) -> None:
        """Count a step and keep of it what the level allows."""
        totals = self.totals
        totals.requests += 1
        totals.private += sent.private
        totals.messages += sent.cost
        totals.everything += sent.n
        totals.lower += weighed.lower or 0.0
        totals.bits += weighed.bits or 0.0
        totals.naive += weighed.naive or 0.0
        totals.unweighed += weighed.bits is None
        if self.level == "counters":
            return
        step = Step(time, sent, wanted if self.level == "full" else None, weighed)
        self._steps.append(step)
        self._write(json.dumps(step.line(self.level)) + "\n")

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:  # a full disk; a log with a hole in it would mislead, one that ends does not
            log.warning("the log of what the server saw ends here: %s", error.strerror)
            self.close()

    def lines(self) -> Iterator[str]:
        """The log as JSON lines; at the level of counters, one line of totals."""
        if self.level == "counters":
            yield json.dumps(asdict(self.totals)) + "\n"
        for step in list(self._steps):
            yield json.dumps(step.line(self.level)) + "\n"

    def latest(self, count: int) -> list[dict[str, Any]]:
        """The last steps, for the page."""
        return [step.shown(self.level) for step in list(self._steps)[-count:]]

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
