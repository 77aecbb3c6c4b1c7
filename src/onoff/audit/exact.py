"""The exact audit: every request path and every random branch of the real session, with exact probabilities.

Setting
    X_t        the request at time t, F_t the privacy status, B_t = {i <= t : F_i = ON}
    Q_t        the query the server sees, Q_[t] = (Q_0, ..., Q_t)
    the law    of X is the chain's own integers (rows of units), as the session uses them

For every step t the audit enumerates the joint law of (X_{B_t}, Q_[t]) and gives

    bits   I(X_{B_t} ; Q_t | Q_[t-1])   what step t adds for the server: the paper's privacy, which must be zero
    joint  I(X_{B_t} ; Q_[t])           what it knows in all; earlier open requests may have told it something, which
                                        no causal scheme can prevent
    guess  E max_b P(X_{B_t} = b | Q_[t])    how often its best guess of all private requests is right, and what that
                                        was before Q_t was seen; the difference is the guessing advantage

Whether `bits` is zero is decided by equality of rationals, for each history h of queries:

    P(b, q | h) == P(b | h) P(q | h)    for all values b of X_{B_t} and all queries q.

The number of bits is a float for people to read; it is exactly 0.0 when the equalities hold. The paper's filter
rounds its rows, so for it the largest deviation is reported and held against ROUNDING_LIMIT instead.

Worlds that agree on (X_{B_t}, X_t, Q_[t]) and on the session's own state go on alike and are merged; time and space
grow with their number. What is driven need not be a session: anything with a state, `request` and `fork` will do,
and what the server sees of a request may be any value (sets of sources, or all bytes on a socket).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, Self

from onoff.chain import MarkovChain
from onoff.entropy import Entropy, SystemEntropy, enumerate_branches
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.memory import LastQuery
from onoff.rows import UNIT
from onoff.session import Query, Session

ROUNDING_LIMIT = Fraction(1, 2**40)
"""How far the paper's filter may be from independence by rounding alone."""
MOST_WORLDS = 2_000_000
"""Worlds that are enumerated at most."""

Set = tuple[int, ...]
Seen = Any
"""What the server sees of one request: a hashable value, for a session the tuple of sources."""
World = tuple[Set, int, tuple[Seen, ...], Hashable]
"""The private requests so far, the present request, what was seen, and the session's own state."""


class Observation(Protocol):
    """What one request showed the server, how many messages it took, and whether it holds the wanted source."""

    @property
    def sources(self) -> Hashable: ...
    def __len__(self) -> int: ...
    def __contains__(self, source: object) -> bool: ...


class Auditable(Protocol):
    """What the audit drives: a session, the shipped client, or a deliberately broken twin of one.

    state: with what was seen so far it decides all that follows; where an attribute `self_contained` is true, it does
    so alone, and worlds that differ only in what was seen are driven once.
    """

    @property
    def state(self) -> Hashable: ...
    def request(self, source: int | str, *, private: bool) -> Observation: ...
    def fork(self, entropy: Entropy) -> Self: ...


class NaiveSession:
    """The tempting mistake: everything while ON, the plain request while OFF. For audits only."""

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        self.state = None

    def request(self, source: int | str, *, private: bool) -> Query:
        x = self.chain.index(source)
        return Query(tuple(range(self.chain.n)) if private else (x,), self.chain.n)

    def fork(self, entropy: Entropy) -> Self:
        return self


@dataclass(frozen=True)
class AuditStep:
    """One step of an audit.

    deviation: the largest |P(b,q|h) - P(b|h) P(q|h)|, exactly; zero means private.
    guess_before, guess: how often the best guess of all private requests is right before and after the step's query.
    """

    t: int
    private: bool
    bits: float
    joint: float
    cost: float
    deviation: Fraction
    worlds: int
    undecodable: bool
    guess_before: float
    guess: float

    @property
    def advantage(self) -> float:
        """By how much seeing this step's query makes the best guess right more often."""
        return self.guess - self.guess_before


@dataclass(frozen=True)
class ExactAudit:
    """The outcome of an exact audit; `leak` is the sum of the bits of all steps, exactly 0 when private."""

    steps: tuple[AuditStep, ...]
    naive: tuple[float, ...] = ()
    tolerance: Fraction = Fraction(0)
    breach: str | None = field(default=None)

    @property
    def leak(self) -> float:
        return math.fsum(step.bits for step in self.steps if step.deviation > self.tolerance)

    @property
    def rounding(self) -> float:
        """The largest deviation from independence that was put down to rounding."""
        return float(max((s.deviation for s in self.steps if s.deviation <= self.tolerance), default=0))

    @property
    def private(self) -> bool:
        return self.breach is None

    def require_private(self) -> None:
        """Raise PrivacyBreach naming the failing step, history and query, if there is one."""
        if self.breach is not None:
            raise PrivacyBreach(self.breach)

    def as_dict(self) -> dict[str, Any]:
        steps = [
            {
                "t": s.t,
                "private": s.private,
                "bits": s.bits if s.deviation > self.tolerance else 0,
                "joint": s.joint,
                "cost": s.cost,
                "worlds": s.worlds,
                "guess_before": s.guess_before,
                "guess": s.guess,
            }
            for s in self.steps
        ]
        return {
            "steps": steps,
            "leak": self.leak or 0,
            "rounding": self.rounding,
            "naive": list(self.naive),
            "breach": self.breach,
        }


def audit_exact(
    chain: MarkovChain,
    scheme: str,
    pattern: tuple[bool, ...],
    memory: str = "last-query",
    *,
    everything: bool = False,
    session: Callable[[], Auditable] | None = None,
    **options: Any,
) -> ExactAudit:
    """Audit `scheme` (or "naive", or whatever `session()` makes) on every request path of `chain` under `pattern`."""
    if session is not None:
        start: Auditable = session()
    elif scheme == "naive":
        start = NaiveSession(chain)
    else:
        start = Session(chain, scheme, memory, everything=everything, entropy=SystemEntropy(), **options)  # type: ignore[arg-type]
    tolerance = ROUNDING_LIMIT if memory == "bayes-filter" and scheme != "naive" else Fraction(0)
    steps, breach = _follow(chain, pattern, start, tolerance)
    naive = steps if scheme == "naive" else _follow(chain, pattern, NaiveSession(chain), tolerance)[0]
    return ExactAudit(tuple(steps), tuple(s.bits for s in naive), tolerance, breach)


def audit_patterns(
    chain: MarkovChain, start: Auditable, longest: int, tolerance: Fraction = Fraction(0)
) -> Iterator[tuple[tuple[bool, ...], AuditStep, str | None]]:
    """The last step of every pattern that starts with ON and has at most `longest` steps, and its breach if any.

    Patterns share their beginnings, so each is enumerated from where its own beginning ended.
    """
    beginnings: list[tuple[tuple[bool, ...], Worlds]] = [((), _before_the_first_request(start))]
    while beginnings:
        pattern, worlds = beginnings.pop()
        for private in (True, False) if pattern else (True,):
            longer = (*pattern, private)
            after, cost, undecodable = _advance(chain, worlds, private)
            yield longer, *_judge(len(pattern), private, after, cost, undecodable, tolerance)
            if len(longer) < longest:
                beginnings.append((longer, after))


Worlds = dict[World | None, tuple[Fraction, Auditable]]
"""The worlds that can be, with their probabilities, each with a session that stands there."""


def _before_the_first_request(start: Auditable) -> Worlds:
    return {None: (Fraction(1), start)}


def _follow(
    chain: MarkovChain, pattern: tuple[bool, ...], start: Auditable, tolerance: Fraction
) -> tuple[list[AuditStep], str | None]:
    worlds = _before_the_first_request(start)
    steps: list[AuditStep] = []
    breach: str | None = None
    for t, private in enumerate(pattern):
        worlds, cost, undecodable = _advance(chain, worlds, private)
        step, fault = _judge(t, private, worlds, cost, undecodable, tolerance)
        steps.append(step)
        breach = breach or fault
    return steps, breach


def _advance(chain: MarkovChain, worlds: Worlds, private: bool) -> tuple[Worlds, Fraction, bool]:
    """Every world after one more request, its mean cost, and whether some request was not in its own query."""
    after: Worlds = {}
    cost, undecodable = Fraction(0), False
    outcomes: dict[Hashable, list[tuple[Fraction, Observation, Auditable]]] = {}
    for world, (weight, session) in worlds.items():
        hidden, seen = ((), ()) if world is None else (world[0], world[2])
        for x, chance in _next_requests(chain, world):
            place = _decides_all(session, seen), x
            if place not in outcomes:
                branches = enumerate_branches(_one_request(session, x, private))
                outcomes[place] = [(branch, query, twin) for branch, (query, twin) in branches]
            for branch, query, twin in outcomes[place]:
                undecodable |= x not in query
                key = ((*hidden, x) if private else hidden, x, (*seen, query.sources), twin.state)
                known = after[key][0] if key in after else Fraction(0)
                probability = weight * chance * branch
                after[key] = known + probability, twin
                cost += probability * len(query)
        if len(after) > MOST_WORLDS:
            raise InvalidInput(f"more than {MOST_WORLDS} worlds", hint="audit fewer sources or a shorter pattern")
    return after, cost, undecodable


def _decides_all(session: Auditable, seen: tuple[Seen, ...]) -> Hashable:
    """A value such that two sessions with the same one answer the same request alike."""
    alone = type(session) is Session and isinstance(session.memory, LastQuery)
    if alone or getattr(session, "self_contained", False):
        return session.state  # holds all there is; a twin, or the paper's filter, may depend on what was seen
    return session.state, seen


def _next_requests(chain: MarkovChain, world: World | None) -> list[tuple[int, Fraction]]:
    if world is None:
        rows = chain.initial_rows()
        return [(x, Fraction(w, UNIT)) for x, w in zip(rows.columns.tolist(), rows.weights[0].tolist(), strict=True)]
    sources, units = chain.row_units(world[1])
    return [(x, Fraction(w, UNIT)) for x, w in zip(sources.tolist(), units.tolist(), strict=True)]


def _one_request(session: Auditable, x: int, private: bool) -> Callable[[Entropy], tuple[Observation, Auditable]]:
    def run(entropy: Entropy) -> tuple[Observation, Auditable]:
        twin = session.fork(entropy)
        return twin.request(x, private=private), twin

    return run


def _judge(
    t: int,
    private: bool,
    worlds: Worlds,
    cost: Fraction,
    undecodable: bool,
    tolerance: Fraction,
) -> tuple[AuditStep, str | None]:
    law: dict[tuple[Set, tuple[Seen, ...]], Fraction] = defaultdict(Fraction)
    for world, (weight, _) in worlds.items():
        if world is not None:
            law[world[0], world[2]] += weight
    by_history: dict[tuple[Seen, ...], dict[tuple[Set, Seen], Fraction]] = defaultdict(dict)
    for (hidden, queries), weight in law.items():
        by_history[queries[:-1]][hidden, queries[-1]] = weight
    deviation, breach = Fraction(0), None
    for history, joint in by_history.items():
        worst, query = _largest_deviation(joint)
        deviation = max(deviation, worst)
        if worst > tolerance and breach is None:
            breach = f"step {t}: after the queries {list(history)}, query {query} tells about the private requests"
    if undecodable and breach is None:
        breach = f"step {t}: a query did not contain the source that was wanted"
    step = AuditStep(
        t,
        private,
        bits=math.fsum(_information(joint) for joint in by_history.values()) if deviation else 0.0,
        joint=_information(law) if _largest_deviation(law)[0] else 0.0,
        cost=float(cost),
        deviation=deviation,
        worlds=len(worlds),
        undecodable=undecodable,
        guess_before=float(sum(max(_marginals(joint)[0].values()) for joint in by_history.values())),
        guess=float(sum(_best_guesses(law).values())),
    )
    return step, breach


def _marginals(joint: Mapping[tuple[Set, Any], Fraction]) -> tuple[dict[Set, Fraction], dict[Any, Fraction], Fraction]:
    left: dict[Set, Fraction] = defaultdict(Fraction)
    right: dict[Any, Fraction] = defaultdict(Fraction)
    for (b, q), weight in joint.items():
        left[b] += weight
        right[q] += weight
    return left, right, sum(left.values(), Fraction(0))


def _best_guesses(joint: Mapping[tuple[Set, Any], Fraction]) -> dict[Any, Fraction]:
    """max over b of P(b, q), for every q."""
    best: dict[Any, Fraction] = defaultdict(Fraction)
    for (_, q), weight in joint.items():
        best[q] = max(best[q], weight)
    return best


def _largest_deviation(joint: Mapping[tuple[Set, Any], Fraction]) -> tuple[Fraction, Any]:
    """The largest |P(b,q|h) - P(b|h) P(q|h)| over all b and q, and the q where it is."""
    left, right, total = _marginals(joint)
    worst: tuple[Fraction, Any] = (Fraction(0), None)
    for b, pb in left.items():
        for q, pq in right.items():
            apart = abs(joint.get((b, q), Fraction(0)) / total - pb * pq / total**2)
            if apart > worst[0]:
                worst = (apart, q)
    return worst


def _information(joint: Mapping[tuple[Set, Any], Fraction]) -> float:
    """P(h) I(b ; q | h) in bits, from exact weights that sum to P(h)."""
    left, right, total = _marginals(joint)
    return math.fsum(
        float(weight) * math.log2(weight * total / (left[b] * right[q])) for (b, q), weight in joint.items() if weight
    )
