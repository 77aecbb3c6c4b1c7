"""What real readers give away: their requests through shipped sessions, and attackers who guess.

The exact audit proves that queries tell nothing about private requests *if* requests follow the session's model. Real
ones follow no model. Here the requests of real readers, held out from what the model was learnt on, go through real
sessions, and attackers guess one private request X of each reader from the queries after it. X is at a random place of
the reader's visit, and then come k OFF requests; what comes before X (`before`) is one of

    private    all of the visit: everything was asked, so nothing was seen
    open       all of the visit, request by request: the server knows it
    nothing    X is the first request of the visit

Attackers know the scheme, the switch and how other readers behave. For each k:

    bits     mean over readers of log2 p(x | queries) - log2 p(x | what was known before X), x being the truth: what the
             attacker's probabilities gained. A lower bound on I(X ; queries), and honest: a wrong attacker loses bits.
             The best attacker's is reported, with its standard error
    top1     how much more often its best guess is right than before

    bayes    Bayes' rule with a given model of the readers, which may know more than the session's (`observer`)
    trained  a choice model (`attacker`) that starts from the posterior of the first Bayes attacker and adds what the
             queries themselves show; trained on other readers (FOLDS-fold)
    exact    for k = 1 and 2, and X at one place: the joint law of the requests themselves, counted on other readers, no
             model at all; exact in the mean over the session's random choices

Beside them stand naive switching, judged by the first Bayes attacker, and `empirical_bound`: a lower bound on the
messages of OFF request k for whoever hides X, from how often it followed each X, again without a model; None where open
requests before X are known, on which it would depend.

Readers with a request that the session's model calls impossible are counted and left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from onoff.audit.attacker import choice_law, fit_choice
from onoff.audit.observer import Channel, Observer, ReaderModel, View, channel_of, hidden_values, remembered
from onoff.errors import InvalidInput
from onoff.information import table_chances
from onoff.model.rows import Floats, Integers
from onoff.session import Session
from onoff.session.entropy import Entropy, SystemEntropy
from onoff.session.memory import Memory
from onoff.tables.table import QueryTable

Before = Literal["private", "open", "nothing"]
TRAINED = "trained"
FOLDS = 5
FEWEST_READERS = 200
MOST_BEFORE = 20
"""Requests before X at most."""
MOST_SOURCES_COUNTED = 64
"""Sources up to which joint laws of three requests are counted."""
LEAST_PROBABILITY = 1e-12
"""What an attacker gives at least to the truth: it may be wrong, but not without end."""


@dataclass(frozen=True)
class Case:
    """The requests of one reader, from the first of the visit to the last that is sent. asked: the place of X."""

    requests: tuple[int, ...]
    asked: int

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


def choose_cases(visits: Sequence[Sequence[int]], after: int, before: Before, rng: np.random.Generator) -> list[Case]:
    """One case from every visit that is long enough, its private request at a random place."""
    first = 0 if before == "nothing" else 1
    cases = []
    for visit in visits:
        last = len(visit) - after - 1
        if last >= first:
            asked = int(rng.integers(first, min(last, MOST_BEFORE) + 1)) if first else 0
            cases.append(Case(tuple(int(x) for x in visit[: asked + after + 1]), asked))
    return cases


@dataclass(frozen=True)
class TraceStep:
    """What is known after k OFF requests. attackers: the bits of each of them; the rest as in the module."""

    k: int
    cost: float
    bits: float
    stderr: float
    top1: float
    naive_bits: float
    naive_top1: float
    empirical_bound: float | None
    exact_bits: float | None
    attackers: Mapping[str, float]


@dataclass(frozen=True)
class OlderStep:
    """What is known after k OFF requests about the private request before X."""

    k: int
    bits: float
    stderr: float
    top1: float


@dataclass(frozen=True)
class TraceAudit:
    """The outcome. prior_bits, prior_top1: what was unknown of X before, and how often the best guess was right."""

    users: int
    impossible: int
    before: str
    prior_bits: float
    prior_top1: float
    steps: tuple[TraceStep, ...]
    older: tuple[OlderStep, ...] = ()
    older_users: int = 0

    @property
    def leak(self) -> float:
        """The most that any number of OFF requests gave away, in bits."""
        return max(0.0, *(step.bits for step in self.steps))

    @property
    def cost(self) -> float:
        """Messages of all OFF requests together."""
        return math.fsum(step.cost for step in self.steps)

    @property
    def bound(self) -> float | None:
        """A lower bound on `cost` for any scheme, from what was counted; None where there is none."""
        limits = [step.empirical_bound for step in self.steps if step.empirical_bound is not None]
        return math.fsum(limits) if len(limits) == len(self.steps) else None

    def in_words(self) -> str:
        """What it means for a person."""
        last, base = self.steps[-1], self.prior_top1
        least = "" if self.bound is None else f", where no scheme can do it below {self.bound:.1f}"
        return (
            f"If people behave like this trace, {last.k} open requests after a private one let the server guess it "
            f"{100 * (base + last.top1):.0f} times in 100 ({100 * base:.0f} before, "
            f"{100 * (base + last.naive_top1):.0f} with naive switching), and give away {last.bits:.3f} ± "
            f"{last.stderr:.3f} of {self.prior_bits:.2f} bits (naive: {last.naive_bits:.2f}), at {self.cost:.1f} "
            f"messages{least}."
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "users": self.users,
            "impossible": self.impossible,
            "before": self.before,
            "prior_bits": self.prior_bits,
            "prior_top1": self.prior_top1,
            "steps": [asdict(step) for step in self.steps],
            "older": [asdict(step) for step in self.older],
            "older_users": self.older_users,
            "cost": self.cost,
            "leak": self.leak,
        }


def audit_traces(
    start: Session,
    cases: Sequence[Case],
    attackers: Mapping[str, ReaderModel],
    before: Before,
    *,
    users: int,
    older_users: int = 0,
    counted: bool = True,
    entropy: Callable[[], Entropy] = SystemEntropy,
    progress: Callable[[int], None] = lambda done: None,
) -> TraceAudit:
    """Send real requests through sessions and let attackers guess a private one.

    Parameters
    ----------
    start
        A session before its first request; every reader gets a twin of it.
    cases
        Readers held out from what the model and the attackers were learnt on. All of them are counted for what is
        counted; the first `users` are sent through sessions.
    attackers
        Models of the readers that Bayes attackers know, by name, at least one; the first is the main one.
    before
        What comes before the private request.
    users, older_users
        How many readers are sent, and of how many the private request before X is asked about too (`before` is
        "private" only).
    counted
        Judge one and two queries by counting too.
    entropy
        Makes the source of randomness of each session.
    progress
        Told how many readers are done.

    Raises
    ------
    InvalidInput
        For too few readers, and schemes that keep no tables.
    """
    if min(users, len(cases)) < FEWEST_READERS:
        few = f"{min(users, len(cases))} readers with enough requests are too few to judge"
        raise InvalidInput(few, hint=f"at least {FEWEST_READERS}; fewer requests after the private one need less")
    n, after = start.model.n, len(cases[0].later)
    seen = _send(start, sorted(cases[:users], key=lambda case: case.asked), before, entropy, progress)
    sent = [case for case, _ in seen]
    wanted = np.array([case.wanted for case in sent])
    observers = {name: Observer(model) for name, model in attackers.items()}
    main = next(iter(observers.values()))
    found = {name: evaluate(posteriors(one, seen, before), wanted) for name, one in observers.items()}
    first = next(iter(found.values()))
    found[TRAINED] = evaluate(_trained(first.laws, seen, wanted), wanted)
    naive = evaluate(posteriors(main, [(case, _plain(case, before, n)) for case in sent], before), wanted)
    limits = None if before == "open" else empirical_bounds(cases, n)
    exact = exact_gains(start, cases, before) if counted else []
    steps = []
    for k in range(1, after + 1):
        here = {name: one for name, one in found.items() if name != TRAINED or k in _trained_at(after)}
        best = max(here.values(), key=lambda one: one.bits[k])
        steps.append(
            TraceStep(
                k,
                cost=float(np.mean([len(channels[case.asked + k].query) for case, channels in seen])),
                bits=best.bits[k],
                stderr=best.stderr[k],
                top1=max(one.top1[k] - one.top1[0] for one in here.values()),
                naive_bits=naive.bits[k],
                naive_top1=naive.top1[k] - naive.top1[0],
                empirical_bound=None if limits is None else limits[k - 1],
                exact_bits=exact[k - 1] if k <= len(exact) else None,
                attackers={name: one.bits[k] for name, one in here.items()},
            )
        )
    impossible = min(users, len(cases)) - len(sent)
    audit = TraceAudit(len(sent), impossible, before, first.unknown, first.top1[0], tuple(steps))
    if before != "private" or older_users == 0:
        return audit
    some = seen[:: max(1, len(seen) // older_users)]
    truth = np.array([case.requests[case.asked - 1] for case, _ in some])
    one = evaluate(posteriors(main, some, before, back=1), truth)
    older = [OlderStep(k, one.bits[k], one.stderr[k], one.top1[k] - one.top1[0]) for k in range(1, after + 1)]
    return replace(audit, older=tuple(older), older_users=len(some))


# -- sessions ------------------------------------------------------------------------------------------------

Sightings = Sequence[tuple[Case, Sequence[Channel]]]
"""Readers by place of X, each with how its queries were drawn."""


def _send(
    start: Session,
    cases: Sequence[Case],
    before: Before,
    entropy: Callable[[], Entropy],
    progress: Callable[[int], None],
) -> Sightings:
    """Send the requests of readers; those with impossible requests are left out."""
    found: list[tuple[Case, Sequence[Channel]]] = []
    standing = PrivateStarts(start) if before == "private" else None
    for done, case in enumerate(cases):
        channels: list[Channel] = []
        session = start.fork(entropy())
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
    ones must be the reader's own, and the others may be anybody's.
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


def _plain(case: Case, before: Before, n: int) -> list[Channel]:
    """How naive switching draws: everything while ON, the request itself while OFF."""
    statuses = case.private(before)
    return [Channel(tuple(range(n)) if on else (x,)) for x, on in zip(case.requests, statuses, strict=True)]


# -- attackers -----------------------------------------------------------------------------------------------


def posteriors(observer: Observer, seen: Sightings, before: Before, back: int = 0) -> Floats:
    """The law of a private request for an observer: before, and after each query that follows X.

    Parameters
    ----------
    observer
        Whose laws.
    seen
        How the queries of each reader were drawn.
    before
        What came before X.
    back
        Which private request: X, or the one so many before it.

    Returns
    -------
    Floats
        Shape (readers, OFF requests + 1, sources); the first of each reader is what was known once X was sent.
    """
    depth = max(1 + back, *(channel.depth for channel in seen[0][1] if channel.of_private), 0)
    laws: list[list[Floats]] = []
    kept: dict[tuple[tuple[int, ...], ...], View] = {}
    place = -1
    for case, channels in seen:
        if case.asked != place:
            place, kept = case.asked, {}
        tracked = [t for t, on in enumerate(case.private(before)) if on][-depth:]
        view, mine = observer.start, []
        history: tuple[tuple[int, ...], ...] = ()
        for t, channel in enumerate(channels):
            history = (*history, channel.query)
            view = kept[history] if history in kept else observer.after(view, channel, private=t in tracked)
            if t <= case.asked + 1 and (before == "private" or t > case.asked):
                kept[history] = view
            if t >= case.asked:
                mine.append(view.about(tracked.index(case.asked - back), observer.n))
        laws.append(mine)
    return np.asarray(np.maximum(np.array(laws), LEAST_PROBABILITY), dtype=np.float64)


@dataclass(frozen=True)
class Evaluation:
    """How well laws of a value fit the truth, for each number of queries seen (0: before any).

    bits: the gain over no query, in bits; stderr: its standard error. top1: how often the best guess is right.
    unknown: bits that are unknown before any query.
    """

    laws: Floats
    unknown: float
    bits: tuple[float, ...]
    stderr: tuple[float, ...]
    top1: tuple[float, ...]


def evaluate(laws: Floats, wanted: Integers) -> Evaluation:
    """Hold laws, shape (readers, steps, values), against the true values."""
    scores = np.log2(laws[np.arange(len(wanted)), :, wanted])
    gains = scores - scores[:, :1]
    right = laws.argmax(axis=2) == wanted[:, None]
    return Evaluation(
        laws,
        float(-scores[:, 0].mean()),
        tuple(gains.mean(axis=0).tolist()),
        tuple((gains.std(axis=0, ddof=1) / math.sqrt(len(gains))).tolist()),
        tuple(right.mean(axis=0).tolist()),
    )


def _trained_at(after: int) -> list[int]:
    """For how many queries seen a choice model is trained: 0, 1, 2, 5, 10 and all."""
    return sorted({0, after, *(k for k in (1, 2, 5, 10) if k <= after)})


def _features(laws: Floats, seen: Sightings, k: int) -> Floats:
    """What a choice model knows of each value x of X after k queries, shape (readers, values, features).

    Its logarithm of probability by the Bayes attacker; how much of all, of the first and of the last query x was;
    whether it was in all of them; and an indicator for each value.
    """
    n = laws.shape[2]
    share = np.zeros((len(seen), max(k, 1), n))
    for i, (case, channels) in enumerate(seen):
        for j, channel in enumerate(channels[case.asked + 1 : case.asked + 1 + k]):
            share[i, j, list(channel.query)] = 1 / len(channel.query)
    by_value = [np.log(laws[:, k]), share.sum(axis=1), share[:, 0], share[:, -1], (share > 0).all(axis=1)]
    every = np.broadcast_to(np.eye(n), (len(seen), n, n))
    return np.concatenate([np.stack(by_value, axis=2), every], axis=2)


def _trained(laws: Floats, seen: Sightings, wanted: Integers) -> Floats:
    """The laws of choice models that start from given laws, each trained on the readers of the other folds.

    Only for some numbers of queries; for the others the given laws are returned.
    """
    found, fold = laws.copy(), np.arange(len(wanted)) % FOLDS
    for k in _trained_at(laws.shape[1] - 1):
        features, start = _features(laws, seen, k), np.log(laws[:, k])
        for out in range(FOLDS):
            learn, test = fold != out, fold == out
            found[test, k] = choice_law(
                features[test], start[test], fit_choice(features[learn], wanted[learn], start[learn])
            )
    return found


# -- by counting ---------------------------------------------------------------------------------------------


def empirical_bounds(cases: Sequence[Case], n: int) -> list[float]:
    """A lower bound on the messages of each OFF request, from how often it followed each private one.

    Any scheme that hides X asks for the sum over sources x of the largest p(x | X = u) at least. Which u that is for
    each x is found on one half of the readers, its p counted on the other, both ways: chance makes it smaller only.
    """
    wanted, later = np.array([case.wanted for case in cases]), np.array([case.later for case in cases])
    half = np.arange(len(cases)) % 2
    found = []
    for following in later.T:
        counts = np.zeros((2, n, n))
        np.add.at(counts, (half, wanted, following), 1)
        rows = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
        sums = [rows[other, rows[one].argmax(axis=0), np.arange(n)].sum() for one, other in ((0, 1), (1, 0))]
        found.append(max(1.0, float(np.mean(sums))))
    return found


def exact_gains(start: Session, cases: Sequence[Case], before: Before) -> list[float]:
    """Bits after one and two queries, by the law of the requests as counted on other readers.

    X is the first request of the visit or, where it is preceded by private ones, the second. The law of (X, next, next
    but one) is counted on one half of the readers and judged on the other, both ways; the mean over the session's
    random choices is exact. Empty where requests before X were open, where a query hides more than one request, and
    for many sources.
    """
    n, place = start.model.n, 1 if before == "private" else 0
    if before == "open" or n > MOST_SOURCES_COUNTED or remembered(start.memory) > 1:
        return []
    session, after = start.fork(SystemEntropy()), min(2, len(cases[0].later))
    for x in cases[0].requests[: place + 1]:
        session.request(x, private=True)
    counts = np.zeros((2, n, n, n))  # by half, X, next request, next but one
    for i, case in enumerate(cases):
        counts[i % 2, case.requests[place], case.requests[place + 1], case.requests[place + after]] += 1
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
