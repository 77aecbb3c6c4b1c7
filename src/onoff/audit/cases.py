"""The readers of an audit of traces: their requests, the switch, and how real sessions drew their queries.

Also what counting their requests tells without a model. A reader's history, where the server knows one, is what was
openly asked before (`Case.history`), or requests at the head of the case that went through the same session, of which
the server saw sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onoff.audit.observer import Channel, Observer, channel_of, hidden_values, remembered
from onoff.errors import InvalidInput
from onoff.information import table_chances
from onoff.model.contexts import Model, RequestModel
from onoff.model.people import FEWEST_KNOWN, MOST_OPEN, OpenHistory, own_law, types_given
from onoff.model.rows import Floats, Integers
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.session.session import Entropy, Memory, SystemEntropy
from onoff.tables.table import QueryTable

Before = Literal["private", "open", "nothing"]
"""What comes before the private request X that is asked about; see `audit.traces`."""
MOST_BEFORE = 20
"""Requests before X at most."""
SETS_KNOWN = 20
"""Requests before X that went through the session, where earlier sets are known."""
USUAL_CONSTANTS = {"cap": 30.0, "weight": 0.88, "trust": 15.0}
"""Of an attacker who has nobody to choose them by."""
MOST_SOURCES_COUNTED = 64
"""Sources up to which joint laws of three requests are counted."""
CASES_COUNTED = 5
"""Cases for each pair of sources that are needed for that."""


# -- who is asked about --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Requests of one reader, from the first that the session sends to the last. asked: the place of X.

    switch: whether each is private. history: what the reader openly asked before all these, as far as the server and
    the session know it.
    """

    requests: tuple[int, ...]
    switch: tuple[bool, ...]
    asked: int
    person: int
    history: tuple[int, ...] = ()

    @property
    def wanted(self) -> int:
        """X."""
        return self.requests[self.asked]

    @property
    def later(self) -> tuple[int, ...]:
        """The requests after X."""
        return self.requests[self.asked + 1 :]

    @property
    def was_private(self) -> bool:
        """Whether everything up to X is private."""
        return all(self.switch[: self.asked + 1])


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
                switch = (*[before == "private"] * asked, True, *[False] * after)
                cases.append(Case(visit[: asked + after + 1], switch, asked, person))
                rest.append((person, visit[asked + after + 1 :]))
        left = rest if first and len(cases) < enough else []
    return cases


def choose_known_cases(
    visits: Iterable[tuple[int, Sequence[int]]],
    after: int,
    rng: np.random.Generator,
    enough: int,
    *,
    sets: bool = False,
) -> list[Case]:
    """Cases of people of whom FEWEST_KNOWN open requests or more are known: all before X, up to as many as are kept.

    visits: The person and the requests of each, those of one person in order. From each person one case at a random
    place, then another, until there are enough; X and what follows do not overlap.
    sets: The SETS_KNOWN requests before X went through the session instead, the first of them private.
    """
    whole: dict[int, list[int]] = {}
    for person, visit in visits:
        whole.setdefault(person, []).extend(int(x) for x in visit)
    earlier = SETS_KNOWN if sets else FEWEST_KNOWN
    free = {
        person: rng.permutation(np.arange(earlier, len(past) - after, after + 1)).tolist()
        for person, past in whole.items()
    }
    cases: list[Case] = []
    while len(cases) < enough and any(free.values()):
        for person, places in free.items():
            if not places:
                continue
            at, past, off = places.pop(), whole[person], (False,) * after
            if sets:
                switch = (True, *[False] * (SETS_KNOWN - 1), True, *off)
                cases.append(Case(tuple(past[at - SETS_KNOWN : at + after + 1]), switch, SETS_KNOWN, person))
            else:
                openly = tuple(past[max(0, at - MOST_OPEN) : at])
                cases.append(Case(tuple(past[at : at + after + 1]), (True, *off), 0, person, openly))
    return cases


def choose_pattern_cases(
    visits: Iterable[tuple[int, Sequence[int]]], pattern: Sequence[bool], enough: int
) -> list[Case]:
    """Visits that are long enough, the switch as in the pattern, which begins with ON: about its first private request.

    Where there are fewer than enough, long visits are cut into pieces: one of each visit, then a second, and so on.
    """
    if not pattern or not pattern[0]:
        raise InvalidInput("a pattern that begins with OFF", hint="for example 'ON OFF*3 ON OFF*3'")
    left = [(person, tuple(int(x) for x in visit)) for person, visit in visits]
    length = len(pattern)
    cases: list[Case] = []
    while left and len(cases) < enough:
        left = [(person, visit) for person, visit in left if len(visit) >= length]
        cases += [Case(visit[:length], tuple(pattern), 0, person) for person, visit in left]
        left = [(person, visit[length:]) for person, visit in left]
    return cases[:enough]


def about_request(case: Case, asked: int) -> Case:
    """The same requests, asked about another private one."""
    return replace(case, asked=asked)


def parts_by_person(person: npt.ArrayLike, parts: int) -> Integers:
    """The part of each case, by turns; those of one person are in one part."""
    return np.asarray(np.unique(person, return_inverse=True)[1] % parts, dtype=np.int64)


# -- how their queries are drawn -----------------------------------------------------------------------------

Sightings = Sequence[tuple[Case, Sequence[Channel]]]
"""Readers by place of X, each with how its queries were drawn."""


def send_cases(
    start: Session,
    cases: Sequence[Case],
    entropy: Callable[[], Entropy],
    progress: Callable[[int], None],
    begin: Callable[[Case], Session] | None = None,
) -> Sightings:
    """Send the requests of readers; those with impossible requests are left out.

    start: A session before its first request; every reader gets a twin. begin: the session of each reader instead.
    """
    found: list[tuple[Case, Sequence[Channel]]] = []
    standing = PrivateStarts(start)
    for done, case in enumerate(cases):
        channels: list[Channel] = []
        if begin is not None:
            session = begin(case).fork(entropy())
        elif case.was_private:
            session, channels = standing.before(case, entropy())
        else:
            session = start.fork(entropy())
        for x, private in list(zip(case.requests, case.switch, strict=True))[len(channels) :]:
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


def naive_channels(case: Case, channels: Sequence[Channel], n: int) -> list[Channel]:
    """How naive switching draws after X: everything while ON, the request itself while OFF; before, as it was."""
    rest = zip(case.later, case.switch[case.asked + 1 :], strict=True)
    return [*channels[: case.asked + 1], *(Channel(tuple(range(n)) if on else (x,)) for x, on in rest)]


# -- who knows what they asked before ------------------------------------------------------------------------


def starts_of(
    model: Model, constants: Mapping[str, float], rng: np.random.Generator, scheme: str, **options: Any
) -> Callable[[Case], Session]:
    """Sessions that know what their person openly asked."""

    def begin(case: Case) -> Session:
        law = _person_law(model, case, constants, SeededEntropy(rng))
        return Session(law, scheme, history=_history(model, case), **options)

    return begin


def knows_the_person(model: Model, constants: Mapping[str, float], seed: int) -> Callable[[Case], Observer]:
    """An attacker who believes that each reader follows an own law; its particles are not the session's."""

    def watch(case: Case) -> Observer:
        own = SeededEntropy(np.random.default_rng([seed, 1, case.person, *case.requests]))
        law = _person_law(model, case, constants, own)
        return Observer(law, law.context_of(case.history))

    return watch


def knows_the_type(model: RequestModel) -> Callable[[Case], Observer]:
    """An attacker who has told the type of each reader by the history."""
    observer = Observer(model)

    def watch(case: Case) -> Observer:
        return observer.knowing(types_given(model, _history(model, case)), model.context_of(case.history))

    return watch


def _person_law(model: Model, case: Case, constants: Mapping[str, float], entropy: Entropy) -> RequestModel:
    chosen: dict[str, Any] = {key: constants[key] for key in ("cap", "weight", "trust", "alone") if key in constants}
    return own_law(model, _history(model, case), **chosen, entropy=entropy)


def _history(model: Model, case: Case) -> OpenHistory:
    return OpenHistory("audit", model.n, case.history)


# -- by counting alone ---------------------------------------------------------------------------------------


def empirical_bounds(cases: Sequence[Case], n: int) -> list[float]:
    """A lower bound on the messages of each OFF request, from how often it followed each private one.

    Any scheme that hides X asks for the sum over sources x of the largest p(x | X = u) at least. Which u that is for
    each x is found on one half of the readers, its p counted on the other, both ways: chance makes it smaller only.
    """
    wanted, later = np.array([case.wanted for case in cases]), np.array([case.later for case in cases])
    half = parts_by_person([case.person for case in cases], 2)
    found = []
    for following in later.T:
        counts = np.zeros((2, n, n))
        np.add.at(counts, (half, wanted, following), 1)
        rows = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
        sums = [rows[other, rows[one].argmax(axis=0), np.arange(n)].sum() for one, other in ((0, 1), (1, 0))]
        found.append(max(1.0, float(np.mean(sums))))
    return found


def exact_gains(start: Session, cases: Sequence[Case]) -> list[float]:
    """Bits after one and two queries, by the law of the requests as counted on other readers.

    X is the first request of the visit or, where it is preceded by private ones, the second. The law of (X, next, next
    but one) is counted on one half of the readers and judged on the other, both ways; the mean over the session's
    random choices is exact. Empty where requests before X were open, where a query hides more than one request, for
    many sources and for few cases.
    """
    n, place = start.model.n, min(1, max(case.asked for case in cases))
    few = len(cases) < CASES_COUNTED * n * n or n > MOST_SOURCES_COUNTED
    if few or not all(case.was_private for case in cases) or remembered(start.memory) > 1:
        return []
    session, after = start.fork(SystemEntropy()), min(2, len(cases[0].later))
    for x in cases[0].requests[: place + 1]:
        session.request(x, private=True)
    counts = np.zeros((2, n, n, n))  # by half, X, next request, next but one
    for half, case in zip(parts_by_person([case.person for case in cases], 2), cases, strict=True):
        counts[half, case.requests[place], case.requests[place + 1], case.requests[place + after]] += 1
    gains = np.zeros((after, 2, n, n, n))
    memory = session.memory
    table = session.tables.of(memory)
    if not isinstance(table, QueryTable):
        return []
    for query, first in zip(table.queries, _by_source(memory, table, n), strict=True):
        drawn = first[:, :, None]  # of (X, next)
        known = np.einsum("habc,ab->habc", counts, first)
        gains[0] += drawn * _gain(counts, known.sum(axis=(2, 3))[..., None])[:, :, 0, None, None]
        if after > 1:
            following = memory.after(query, query[0], private=False, table=table)
            gains[1] += drawn * _second(session, following, counts, known)
    return [float((gain * counts[::-1]).sum() / counts.sum()) for gain in gains]


def _second(session: Session, memory: Memory, counts: Floats, known: Floats) -> Floats:
    """The mean gain over the second query, shape (half, X, next, next but one), by laws `known` after the first."""
    n = session.model.n
    table = session.tables.of(memory) if memory.rows.distinct > 1 else None
    chances = _by_source(memory, table, n)  # of (query, hidden, wanted)
    if hidden_values(memory)[1]:
        joint = np.einsum("hac,qac->haq", known.sum(axis=2), chances)
        return np.asarray(np.einsum("qac,haq->hac", chances, _gain(counts, joint))[:, :, None])
    joint = np.einsum("habc,qbc->haq", known, chances, optimize=True)
    return np.asarray(np.einsum("qbc,haq->habc", chances, _gain(counts, joint), optimize=True))


def _by_source(memory: Memory, table: Any, n: int) -> Floats:
    """p(q | u, x) for every query and all sources u and x; where nothing is hidden, queries are single sources."""
    if table is None:
        return np.repeat(np.eye(n)[:, None], n, axis=1)
    rows, _ = hidden_values(memory)
    chances = np.zeros((len(table), n, n))
    chances[:, [u[-1] for u in rows]] = table_chances(table)[:, list(rows.values())]
    return chances


def _gain(counts: Floats, joint: Floats) -> Floats:
    """log2 p(X | query) - log2 p(X) by the counts of each half, shape (half, X, queries); one unit of prior is added.

    joint: how often X and each query came together.
    """
    prior = counts.sum(axis=(2, 3))[..., None] + 1.0
    prior /= prior.sum(axis=1, keepdims=True)
    posterior = (joint + prior) / (joint.sum(axis=1, keepdims=True) + 1)
    return np.asarray(np.log2(posterior / prior))
