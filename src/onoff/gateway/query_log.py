"""What the server saw, kept at the level of detail that the user chose; in memory, unless a file is named.

    full      every step: when, ON or OFF, which set, its cost. Only the page shows the wanted source.
    costs     the same without sets, and without what was wanted
    counters  totals only

As JSON lines: {"step", "private", "sources", "cost", "time", "session"}, sources as numbers of the chain; `onoff audit
log` reads them. What was wanted is in no line. A step that could not be sent, because no server answered, has `"sent":
false` and counts in no total; its line is written together with that of the next step, unless it is sent before.

With several servers `"servers"` says how many, and `"sources"` is the set that the request was hidden in, which none of
them sees. What each of them saw is on the page only: all of it together tells what was wanted.

`"mirror": true`: since the step before something was read from the mirror, so the step was drawn as after everything.

Each line is appended to the file, if there is one, at once; only its owner may read it. If a write fails, the log ends
there with a warning, and requests go on. Totals count everything that was sent since the gateway was started.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from onoff.client import Client, Sent
from onoff.errors import InvalidInput
from onoff.gateway.evidence import Assessment, Evidence, ModelEvidence, assess_sums
from onoff.gateway.jobs import Job, Step
from onoff.model.chain import MarkovChain
from onoff.session.filter import ModelFilter

log = logging.getLogger("onoff.gateway")

Level = Literal["full", "costs", "counters"]
LEVELS: Final[tuple[str, ...]] = get_args(Level)
MOST_KEPT_STEPS: Final = 10_000
MOST_DRAWN_SOURCES: Final = 64
"""Sources that the page draws one by one; of more, it draws bands."""
BANDS: Final = 24


@dataclass
class Totals:
    """Sums over all steps that were sent. everything: the cost of always asking for everything."""

    requests: int = 0
    private: int = 0
    messages: float = 0
    everything: int = 0
    lower: float = 0.0
    bits: float = 0.0
    naive: float = 0.0
    unweighed: int = 0
    unsent: int = 0


@dataclass(slots=True)
class SeenStep:
    """One step: what the server saw of it, and what it did not see. `wanted` is secret; `weighed` comes later."""

    time: float
    sent: Sent
    left: bool
    wanted: int | None
    after_reading: bool = False
    weighed: Assessment | None = None
    written: bool = False

    def line(self, level: str) -> dict[str, Any]:
        """What the server saw."""
        seen: dict[str, Any] = {"step": self.sent.step, "private": self.sent.private}
        if level == "full":
            seen["sources"] = list(self.sent.sources)
        moment = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {**seen, "cost": self.sent.cost, "time": moment, "session": self.sent.session}
        if self.after_reading:
            line["mirror"] = True
        if self.sent.vectors:
            line["servers"] = len(self.sent.vectors)
        return line if self.left else {**line, "sent": False}

    def shown(self, level: str, views: Views | None = None) -> dict[str, Any]:
        """The same with what is known only here, for the page; many sources are summed up in bands.

        `views` gives what each of several servers saw: lists of entries, or bands of what is not 0; `together` is the
        source that all of it together points to.
        """
        weighed = self.weighed  # once: another thread weighs
        line = {
            **self.line(level),
            **asdict(weighed or Assessment()),
            "time": self.time,
            "left": self.left,
            "weighed": weighed is not None,
        }
        line["note"] = self.sent.note
        if level != "full":
            return line
        if views is not None and self.sent.vectors:
            seen = views(self.sent)
            line["views"] = [_view(entries) for entries in seen]
            line["together"] = told_together(seen)
        if self.sent.n > MOST_DRAWN_SOURCES:
            del line["sources"]
            line["bands"] = bands(self.sent.sources, self.sent.n)
        return {**line, "wanted": self.wanted}


Views = Callable[[Sent], list[list[int]]]


def told_together(seen: list[list[int]]) -> int | None:
    """The one source at which the vectors of the servers differ: what they learn by comparing them."""
    differing = [source for source, entries in enumerate(zip(*seen, strict=True)) if len(set(entries)) > 1]
    return differing[0] if len(differing) == 1 else None


def _view(entries: list[int]) -> dict[str, list[int] | list[float]]:
    """What one server saw, as the page draws it."""
    asked = tuple(source for source, entry in enumerate(entries) if entry)
    return {"bands": bands(asked, len(entries))} if len(entries) > MOST_DRAWN_SOURCES else {"entries": entries}


def bands(sources: tuple[int, ...], n: int) -> list[float]:
    """The share that was asked for of each of `BANDS` runs of consecutive sources."""
    edges = np.linspace(0, n, BANDS + 1).astype(int)
    counts = np.histogram(sources, bins=edges)[0]
    shares: list[float] = np.round(counts / np.diff(edges), 4).tolist()
    return shares


class SeenLog:
    """The steps of one gateway. Threads may share it."""

    def __init__(self, level: str = "full", path: Path | None = None) -> None:
        if level not in LEVELS:
            raise InvalidInput(f"no log level {level!r}", hint=f"use {', '.join(LEVELS)}")
        self.level = level
        self.totals = Totals()
        self._lock = threading.Lock()
        self._steps: deque[SeenStep] = deque(maxlen=MOST_KEPT_STEPS if level != "counters" else 1)
        self._file = None
        if path is not None:
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                self._file = os.fdopen(descriptor, "a")
            except OSError as error:
                raise InvalidInput(f"{path}: {error.strerror}", hint="give the path of a file") from None

    def add(self, step: Step, wanted: int, *, after_reading: bool = False) -> bool:
        """Log a step, or that a step logged before was sent. Returns whether it has still to be weighed.

        step, wanted: The step, and the number of the source that was wanted, which is secret.
        """
        with self._lock:
            known = self._find(step.sent)
            if known is None:
                if self._steps:
                    self._settle(self._steps[-1])
                kept = wanted if self.level == "full" else None
                known = SeenStep(step.time, step.sent, step.left, kept, after_reading)
                self._steps.append(known)
                self.totals.unsent += not step.left
                if step.left:
                    self._count(known)
            elif step.left and not known.left:
                known.left = True
                self.totals.unsent -= 1
                self._count(known)
                self._sum(known)
            return known.weighed is None

    def weigh(self, sent: Sent, weighed: Assessment) -> None:
        """Add what a step told the server."""
        with self._lock:
            known = self._find(sent)
            if known is not None:
                known.weighed = weighed
                self._sum(known)

    def _find(self, sent: Sent) -> SeenStep | None:
        for step in reversed(self._steps):
            if (step.sent.session, step.sent.step) == (sent.session, sent.step):
                return step
        return None

    def _count(self, step: SeenStep) -> None:
        totals, sent = self.totals, step.sent
        totals.requests += 1
        totals.private += sent.private
        totals.messages += sent.cost
        totals.everything += sent.n
        self._settle(step)

    def _sum(self, step: SeenStep) -> None:
        totals, weighed = self.totals, step.weighed
        if weighed is None or not step.left:
            return
        totals.lower += weighed.lower or 0.0
        totals.bits += weighed.bits or 0.0
        totals.naive += weighed.naive or 0.0
        totals.unweighed += weighed.bits is None

    def _settle(self, step: SeenStep) -> None:
        """Write the line of a step, once."""
        if not step.written and self.level != "counters":
            step.written = True
            self._write(json.dumps(step.line(self.level)) + "\n")

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:  # such as a full disk; better end the log than leave a gap in it
            log.warning("the log of what the server saw ends here: %s", error.strerror)
            self._end_file()

    def lines(self) -> Iterator[str]:
        """The log as JSON lines; at the level of counters, one line of totals."""
        if self.level == "counters":
            yield json.dumps(asdict(self.totals)) + "\n"
            return
        for step in list(self._steps):
            yield json.dumps(step.line(self.level)) + "\n"

    def latest(self, count: int, views: Views | None = None) -> list[dict[str, Any]]:
        """The last steps, for the page; see `SeenStep.shown`."""
        if self.level == "counters":
            return []
        return [step.shown(self.level, views) for step in list(self._steps)[-count:]]

    def close(self) -> None:
        with self._lock:
            if self._steps:
                self._settle(self._steps[-1])
            self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


# --------------------------------------------------------------------------------------------------------------------
# Weighing: what each step told the server, computed after the message was delivered, and the log of steps.


class Weighing:
    """Logs the steps of each job at once, and weighs them later.

    Parameters
    ----------
    seen
        The log.
    client
        Whose steps these are; None where there is no model, by which they could be weighed.
    """

    def __init__(self, seen: SeenLog, client: Client | None) -> None:
        self._seen = seen
        last = None if client is None else client.status()["last"]
        self.evidence = None if client is None else _evidence_for(client, last)
        self._read_here = last is not None and bool(last["mirror"])
        self._unweighed: list[Sent] = []

    def note(self, job: Job) -> None:
        """Log the steps of a job. Called before its message is delivered."""
        self._unweighed = [step.sent for step in job.steps if self._note(step, job.wanted)]

    def weigh(self, job: Job) -> None:
        """Compute what the steps noted last told the server."""
        for sent in self._unweighed:
            weighed = self._assess(sent, job.wanted)
            if not sent.mirror:
                self._seen.weigh(sent, weighed)
        self._unweighed = []

    @property
    def posterior(self) -> dict[str, Any] | None:
        """What the server can believe now, for the page; None where the log keeps less than everything."""
        return self.evidence.posterior if self.evidence is not None and self._seen.level == "full" else None

    def _note(self, step: Step, wanted: int) -> bool:
        """Log a step that the server sees, and remember that the mirror was read. Returns whether to weigh it."""
        if step.sent.mirror:
            self._read_here = True
            return True
        after, self._read_here = self._read_here, False
        return self._seen.add(step, wanted, after_reading=after)

    def _assess(self, sent: Sent, wanted: int) -> Assessment:
        if wanted >= sent.n and isinstance(self.evidence, ModelEvidence):
            return Assessment()  # read outside the model, whose filter stays as it was
        try:
            if sent.vectors:
                return assess_sums(sent, wanted, self.evidence)
            return Assessment() if self.evidence is None else self.evidence.add(sent, wanted)
        except Exception as error:  # an error in what is only displayed must not stop requests
            log.warning("a step could not be weighed: %s", type(error).__name__)
            return Assessment()


def _evidence_for(client: Client, last: dict[str, Any] | None) -> Evidence | ModelEvidence:
    """Evidence for the client's model, which goes on from the last step of its journal."""
    before = None if last is None else (last["session"], last["step"], tuple(last["sources"]))
    if isinstance(client.chain, MarkovChain):
        return Evidence(client.chain, client.tables, before)
    memory = client.core.session.memory
    return ModelEvidence(client.chain, client.tables, memory.hide if isinstance(memory, ModelFilter) else 1)
