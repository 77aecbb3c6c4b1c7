"""The readers of an audit of traces: their requests, the switch, and how their queries were drawn by real sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from onoff.audit.observer import Channel, channel_of, remembered
from onoff.model.rows import Integers
from onoff.session import Session
from onoff.session.session import Entropy

Before = Literal["private", "open", "nothing"]
"""What comes before the private request X that is asked about; see `audit.traces`."""
MOST_BEFORE = 20
"""Requests before X at most."""


@dataclass(frozen=True)
class Case:
    """Requests of one reader, from the first of the visit to the last that is sent. asked: the place of X.

    history: what the reader openly asked before all these, as far as the server and the session know it.
    """

    requests: tuple[int, ...]
    asked: int
    person: int
    history: tuple[int, ...] = ()

    @property
    def wanted(self) -> int:
        """X."""
        return self.requests[self.asked]

    @property
    def later(self) -> tuple[int, ...]:
        """The OFF requests after X."""
        return self.requests[self.asked + 1 :]

    def private(self, before: Before) -> list[bool]:
        """The switch over time."""
        return [t == self.asked or (before == "private" and t < self.asked) for t in range(len(self.requests))]


def choose_cases(
    visits: Iterable[tuple[int, Sequence[int]]], after: int, before: Before, rng: np.random.Generator, enough: int = 0
) -> list[Case]:
    """One case from every visit that is long enough, its private request at a random place.

    visits: The person and the requests of each.
    enough: Where there are fewer cases than this, long visits are cut into pieces, which are taken for visits: first
    one more from each visit, then another, and so on.
    """
    first = 0 if before == "nothing" else 1
    left = [(person, tuple(int(x) for x in visit)) for person, visit in visits]
    cases: list[Case] = []
    while left:
        rest = []
        for person, visit in left:
            last = len(visit) - after - 1
            if last >= first:
                asked = int(rng.integers(first, min(last, MOST_BEFORE) + 1)) if first else 0
                cases.append(Case(visit[: asked + after + 1], asked, person))
                rest.append((person, visit[asked + after + 1 :]))
        left = rest if first and len(cases) < enough else []
    return cases


def parts_by_person(person: npt.ArrayLike, parts: int) -> Integers:
    """The part of each case, by turns; those of one person are in one part."""
    return np.asarray(np.unique(person, return_inverse=True)[1] % parts, dtype=np.int64)


Sightings = Sequence[tuple[Case, Sequence[Channel]]]
"""Readers by place of X, each with how its queries were drawn."""


def send_cases(
    start: Session,
    cases: Sequence[Case],
    before: Before,
    entropy: Callable[[], Entropy],
    progress: Callable[[int], None],
    begin: Callable[[Case], Session] | None = None,
) -> Sightings:
    """Send the requests of readers; those with impossible requests are left out.

    start: A session before its first request; every reader gets a twin. begin: the session of each reader instead.
    """
    found: list[tuple[Case, Sequence[Channel]]] = []
    standing = PrivateStarts(start) if before == "private" else None
    for done, case in enumerate(cases):
        channels: list[Channel] = []
        session = (start if begin is None else begin(case)).fork(entropy())
        if standing is not None:
            session, channels = standing.before(case, entropy())
        statuses = case.private(before)
        for x, private in list(zip(case.requests, statuses, strict=True))[len(channels) :]:
            memory = session.memory
            query = session.request(x, private=private)
            if query.note is not None:
                break
            channels.append(channel_of(session, memory, query, private=private))
        else:
            found.append((case, channels))
        progress(done + 1)
    return found


class PrivateStarts:
    """Sessions that have made some private requests already.

    After a private request, what a session knows of those before is public, but for as many as it hides; so the last
    ones must be the reader's own, and the others may be those of any reader.
    """

    def __init__(self, start: Session) -> None:
        self._sessions = [start]
        self._channels: list[Channel] = []

    def before(self, case: Case, entropy: Entropy) -> tuple[Session, list[Channel]]:
        """A session before the reader's own last private requests, and how its queries so far were drawn."""
        own = remembered(self._sessions[0].memory)
        others = max(0, case.asked + 1 - own)
        while len(self._sessions) <= others:
            session = self._sessions[-1].fork(entropy)
            memory = session.memory
            query = session.request(case.requests[len(self._sessions) - 1], private=True)
            self._channels.append(channel_of(session, memory, query, private=True))
            self._sessions.append(session)
        return self._sessions[others].fork(entropy), self._channels[:others]


def naive_channels(case: Case, before: Before, n: int) -> list[Channel]:
    """How naive switching draws: everything while ON, the request itself while OFF."""
    statuses = case.private(before)
    return [Channel(tuple(range(n)) if on else (x,)) for x, on in zip(case.requests, statuses, strict=True)]
