"""The exact audit: every request path and every random branch of the real session, with exact probabilities.

Setting
    X_t        the request at time t, F_t the privacy status, B_t = {i <= t : F_i = ON}
    Q_t        the query the server sees, Q_[t] = (Q_0, ..., Q_t)
    the law    of X is the chain's own integers (rows of units), as the session uses them

For every step t the audit enumerates the joint law of (X_{B_t}, Q_[t]) and gives

    bits   I(X_{B_t} ; Q_t | Q_[t-1])   what step t adds for the server: the paper's privacy, which must be zero
    joint  I(X_{B_t} ; Q_[t])           what it knows in all; earlier open requests may have told it something, which
                                        no causal scheme can prevent

Whether `bits` is zero is decided by equality of rationals, for each history h of queries:

    P(b, q | h) == P(b | h) P(q | h)    for all values b of X_{B_t} and all queries q.

The number of bits is a float for people to read; it is exactly 0.0 when the equalities hold. The paper's filter
rounds its rows, so for it the largest deviation is reported and held against ROUNDING_LIMIT instead.

Worlds that agree on (X_{B_t}, X_t, Q_[t]) and on the session's own state go on alike and are merged; time and space
grow with their number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, Self

from onoff.chain import MarkovChain
from onoff.entropy import Entropy, SystemEntropy, enumerate_branches
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.rows import UNIT
from onoff.session import Query, Session

ROUNDING_LIMIT = Fraction(1, 2**40)
"""How far the paper's filter may be from independence by rounding alone."""
MOST_WORLDS = 2_000_000
"""Worlds that are enumerated at most."""

Set = tuple[int, ...]
World = tuple[Set, int, tuple[Set, ...], Hashable]
"""The private requests so far, the present request, the queries seen, and the session's own state."""


class Auditable(Protocol):
    """What the audit drives: a session, or a deliberately broken twin of one."""

    @property
    def state(self) -> Hashable: ...
    def request(self, source: int | str, *, private: bool) -> Query: ...
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
    """

    t: int
    private: bool
    bits: float
    joint: float
    cost: float
    deviation: Fraction
    worlds: int
    undecodable: bool


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
    steps, breach = _enumerate(chain, pattern, start, tolerance)
    naive = steps if scheme == "naive" else _enumerate(chain, pattern, NaiveSession(chain), tolerance)[0]
    return ExactAudit(tuple(steps), tuple(s.bits for s in naive), tolerance, breach)


def _enumerate(
    chain: MarkovChain, pattern: tuple[bool, ...], start: Auditable, tolerance: Fraction
) -> tuple[list[AuditStep], str | None]:
    worlds: dict[World | None, tuple[Fraction, Auditable]] = {None: (Fraction(1), start)}
    steps: list[AuditStep] = []
    breach: str | None = None
    for t, private in enumerate(pattern):
        worlds, undecodable = _advance(chain, worlds, private)
        step, fault = _judge(t, private, worlds, undecodable, tolerance)
        steps.append(step)
        breach = breach or fault
    return steps, breach


def _advance(
    chain: MarkovChain, worlds: Mapping[World | None, tuple[Fraction, Auditable]], private: bool
) -> tuple[dict[World | None, tuple[Fraction, Auditable]], bool]:
    """Every world after one more request, and whether some request was not in its own query."""
    after: dict[World | None, tuple[Fraction, Auditable]] = {}
    undecodable = False
    for world, (weight, session) in worlds.items():
        hidden, seen = ((), ()) if world is None else (world[0], world[2])
        for x, chance in _next_requests(chain, world):
            for branch, (query, twin) in enumerate_branches(_one_request(session, x, private)):
                undecodable |= x not in query
                key = ((*hidden, x) if private else hidden, x, (*seen, query.sources), twin.state)
                known = after[key][0] if key in after else Fraction(0)
                after[key] = known + weight * chance * branch, twin
        if len(after) > MOST_WORLDS:
            raise InvalidInput(f"more than {MOST_WORLDS} worlds", hint="audit fewer sources or a shorter pattern")
    return after, undecodable


def _next_requests(chain: MarkovChain, world: World | None) -> list[tuple[int, Fraction]]:
    if world is None:
        rows = chain.initial_rows()
        return [(x, Fraction(w, UNIT)) for x, w in zip(rows.columns.tolist(), rows.weights[0].tolist(), strict=True)]
    sources, units = chain.row_units(world[1])
    return [(x, Fraction(w, UNIT)) for x, w in zip(sources.tolist(), units.tolist(), strict=True)]


def _one_request(session: Auditable, x: int, private: bool) -> Callable[[Entropy], tuple[Query, Auditable]]:
    def run(entropy: Entropy) -> tuple[Query, Auditable]:
        twin = session.fork(entropy)
        return twin.request(x, private=private), twin

    return run


def _judge(
    t: int,
    private: bool,
    worlds: Mapping[World | None, tuple[Fraction, Auditable]],
    undecodable: bool,
    tolerance: Fraction,
) -> tuple[AuditStep, str | None]:
    law: dict[tuple[Set, tuple[Set, ...]], Fraction] = defaultdict(Fraction)
    cost = Fraction(0)
    for world, (weight, _) in worlds.items():
        if world is not None:
            law[world[0], world[2]] += weight
            cost += weight * len(world[2][-1])
    by_history: dict[tuple[Set, ...], dict[tuple[Set, Set], Fraction]] = defaultdict(dict)
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
    )
    return step, breach


def _marginals(joint: Mapping[tuple[Set, Any], Fraction]) -> tuple[dict[Set, Fraction], dict[Any, Fraction], Fraction]:
    left: dict[Set, Fraction] = defaultdict(Fraction)
    right: dict[Any, Fraction] = defaultdict(Fraction)
    for (b, q), weight in joint.items():
        left[b] += weight
        right[q] += weight
    return left, right, sum(left.values(), Fraction(0))


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
