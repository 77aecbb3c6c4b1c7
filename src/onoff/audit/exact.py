"""The exact audit: every request path and every random branch of the real session, with exact probabilities.

Setting
    X_t        the request at time t, F_t the privacy status, B_t = {i <= t : F_i = ON}
    Q_t        the query the server sees, Q_[t] = (Q_0, ..., Q_t)
    the law    of X is the model's, in units, as the session uses it: a chain, or types of people with contexts

For every step t the audit enumerates the joint law of (X_{B_t}, Q_[t]) and gives

    bits   I(X_{B_t} ; Q_t | Q_[t-1])   what step t adds for the server: the paper's privacy, which must be zero. The
                                        filter of a model promises it for the last `hide` private requests only; B_t is
                                        then these, and `all_bits` says what step t adds about all private requests
    joint  I(X_{B_t} ; Q_[t])           what it knows in all; earlier open requests may have told it something, which
                                        no causal scheme can prevent
    guess  E max_b P(X_{B_t} = b | Q_[t])    how often its best guess of all private requests is right, and what that
                                        was before Q_t was seen; the difference is the guessing advantage

Whether `bits` is zero is decided by equality of rationals, for each history h of queries:

    P(b, q | h) == P(b | h) P(q | h)    for all values b of X_{B_t} and all queries q.

The number of bits is a float for people to read; it is exactly 0.0 when the equalities hold. Filters round their rows,
so for them the largest deviation is reported and held against a limit: what the filter of a model counted itself, twice
because two laws are compared, and ROUNDING_LIMIT for the paper's.

How the law is enumerated is told in `worlds`; its time and space grow with the number of worlds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, Self

from onoff.audit.worlds import MOST_WORLDS, Auditable, SeenHistory, Worlds
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.information import mutual_information
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model
from onoff.model.rows import UNIT
from onoff.session import Query, Session
from onoff.session.entropy import Entropy, SystemEntropy
from onoff.session.filter import ModelFilter

ROUNDING_LIMIT = Fraction(1, 2**40)
"""How far the paper's filter may be from independence by rounding alone."""

NOISE = 1e-12
"""Bits that are no more than the rounding of a sum of floats."""

HOPELESS = 1000
"""How many times too many worlds must be foreseen before an audit gives up early."""

ENOUGH_TO_TELL = 10_000
"""Worlds from which their growth is taken for lasting."""

HiddenRequests = tuple[int, ...]
Joint = Mapping[tuple[HiddenRequests, SeenHistory], int]
"""Weights of private requests b and what was seen q, over some denominator."""


class NaiveSession:
    """Naive switching: everything while ON, the plain request while OFF. For audits only."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.state = None

    def request(self, source: int | str, *, private: bool) -> Query:
        x = self.model.index(source)
        return Query(tuple(range(self.model.n)) if private else (x,), self.model.n)

    def fork(self, entropy: Entropy) -> Self:
        return self


@dataclass(frozen=True)
class AuditStep:
    """One step of an audit.

    deviation: the largest |P(b,q|h) - P(b|h) P(q|h)|, exactly; zero means private.
    guess_before, guess: how often the best guess of these private requests is right before and after the step's query.
    all_bits: what the step adds about all private requests, where fewer are promised.
    rounding: the limit that `deviation` is held against.
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
    all_bits: float = 0.0
    rounding: Fraction = Fraction(0)

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
                "all_bits": s.all_bits if s.all_bits > NOISE else 0,
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
    model: Model,
    scheme: str,
    pattern: tuple[bool, ...],
    memory: str | None = None,
    *,
    hide: int = 1,
    everything: bool = False,
    session: Callable[[], Auditable] | None = None,
    progress: Callable[[str], None] = lambda told: None,
    **options: Any,
) -> ExactAudit:
    """Audit a session on every request path of a model, and for every random choice of the session.

    session: Makes what is audited instead, such as a broken twin of a session.
    progress: Called at every step with how far it is, and how many worlds there will be.

    Raises
    ------
    InvalidInput
        Where there are too many worlds; as soon as their growth shows it.
    """
    if session is not None:
        start: Auditable = session()
    elif scheme == "naive":
        start = NaiveSession(model)
    else:
        start = Session(model, scheme, memory, hide=hide, everything=everything, entropy=SystemEntropy(), **options)  # type: ignore[arg-type]
    tolerance = Fraction(0)
    if memory == "bayes-filter" and isinstance(model, MarkovChain) and scheme != "naive":
        tolerance = ROUNDING_LIMIT
    steps, breach = _follow(model, pattern, start, tolerance, progress)
    naive = steps if scheme == "naive" else _follow(model, pattern, NaiveSession(model), Fraction(0))[0]
    tolerance = max(tolerance, *(step.rounding for step in steps))
    return ExactAudit(tuple(steps), tuple(s.bits for s in naive), tolerance, breach)


def audit_patterns(
    model: Model, start: Auditable, longest: int, tolerance: Fraction = Fraction(0)
) -> Iterator[tuple[tuple[bool, ...], AuditStep, str | None]]:
    """The last step of every pattern that starts with ON and has at most `longest` steps, and its breach if any.

    Patterns share their beginnings, so each is enumerated from where its own beginning ended.
    """
    beginnings: list[tuple[tuple[bool, ...], Worlds]] = [((), Worlds.before_the_first_request(model, start))]
    while beginnings:
        pattern, worlds = beginnings.pop()
        for private in (True, False) if pattern else (True,):
            longer = (*pattern, private)
            after, cost, undecodable = worlds.after(private=private)
            yield longer, *_judge(len(pattern), private, after, cost, undecodable, tolerance)
            if len(longer) < longest:
                beginnings.append((longer, after))


def _follow(
    model: Model,
    pattern: tuple[bool, ...],
    start: Auditable,
    tolerance: Fraction,
    progress: Callable[[str], None] = lambda told: None,
) -> tuple[list[AuditStep], str | None]:
    worlds = Worlds.before_the_first_request(model, start)
    steps: list[AuditStep] = []
    breach: str | None = None
    for t, private in enumerate(pattern):
        worlds, cost, undecodable = worlds.after(private=private)
        step, fault = _judge(t, private, worlds, cost, undecodable, tolerance)
        steps.append(step)
        breach = breach or fault
        in_the_end = _foreseen([step.worlds for step in steps], len(pattern))
        progress(f"step {t + 1} of {len(pattern)}: {len(worlds)} worlds, about {in_the_end:.2g} in the end")
    return steps, breach


def _foreseen(counts: Sequence[int], length: int) -> float:
    """The number of worlds after `length` steps, if it goes on to grow as it did in the last two of `counts`.

    Raises InvalidInput where that is hopeless. Growth can slow down (to that of a power of the steps, where a chain
    comes to rest), so only many worlds tell, and only far too many in the end.
    """
    last = counts[-3:]
    growth = min((after / before for before, after in pairwise(last)), default=1.0)
    digits = math.log10(last[-1]) + (length - len(counts)) * math.log10(max(growth, 1.0))
    if last[-1] >= ENOUGH_TO_TELL and digits > math.log10(HOPELESS * MOST_WORLDS):
        most = len(counts) + int(math.log(MOST_WORLDS / last[-1], growth))
        raise InvalidInput(
            f"{length} steps make about 10^{digits:.0f} worlds, {growth:.2g} times as many at each step; "
            f"{MOST_WORLDS:,} are followed at most",
            hint=f"audit about {most} steps or fewer sources; `--sessions` checks what simulated sessions meet",
        )
    return math.pow(10, min(digits, 300))


def _named(seen: Any, names: Sequence[str]) -> str:
    """What was seen at one step, with the names of its sources where it is a query."""
    if isinstance(seen, tuple) and all(isinstance(x, int) for x in seen):
        return "{" + ", ".join(names[x] for x in seen) + "}"
    return str(seen)


def _judge(
    t: int,
    private: bool,
    worlds: Worlds,
    cost: Fraction,
    undecodable: bool,
    tolerance: Fraction,
) -> tuple[AuditStep, str | None]:
    sessions = [session for _, session in worlds.held.values()]
    promised = min((_promised(session) for session in sessions), key=lambda most: most or math.inf)
    tolerance = max(tolerance, *(_rounding(session) for session in sessions))
    law, by_history = _laws(worlds, promised)
    everything = by_history if promised is None else _laws(worlds, None)[1]
    deviation, breach = Fraction(0), None
    for before, joint in by_history.items():
        worst, told = _largest_deviation(joint)
        deviation = max(deviation, worst)
        if worst > tolerance and breach is None and before is not None and told is not None:
            earlier = ", ".join(_named(seen, worlds.model.names) for seen in before.all_seen) or "nothing"
            query = _named(told.seen, worlds.model.names)
            breach = f"step {t}: after {earlier}, the query {query} tells about the private requests"
    if undecodable and breach is None:
        breach = f"step {t}: a query did not contain the source that was wanted"
    whole = worlds.denominator
    step = AuditStep(
        t,
        private,
        bits=_conditional_information(by_history.values(), whole) if deviation else 0.0,
        joint=mutual_information(law) if _largest_deviation(law)[0] else 0.0,
        cost=float(cost),
        deviation=deviation,
        worlds=len(worlds),
        undecodable=undecodable,
        guess_before=sum(max(_marginals(joint)[0].values()) for joint in by_history.values()) / whole,
        guess=sum(_best_guesses(law).values()) / whole,
        all_bits=_conditional_information(everything.values(), whole) if promised is not None or deviation else 0.0,
        rounding=tolerance,
    )
    return step, breach


def _promised(session: Auditable) -> int | None:
    """How many of the last private requests a session hides; None for all."""
    memory = getattr(session, "memory", None)
    return memory.hide if isinstance(memory, ModelFilter) else None


def _rounding(session: Auditable) -> Fraction:
    """How far a session may be from independence by the rounding that it counted."""
    memory = getattr(session, "memory", None)
    return Fraction(2 * memory.rounding, UNIT) if isinstance(memory, ModelFilter) else Fraction(0)


def _laws(
    worlds: Worlds, promised: int | None
) -> tuple[
    dict[tuple[HiddenRequests, SeenHistory], int],
    dict[SeenHistory | None, dict[tuple[HiddenRequests, SeenHistory], int]],
]:
    """The law of the last `promised` private requests (None: all) and what was seen; the same by the history before."""
    law: dict[tuple[HiddenRequests, SeenHistory], int] = defaultdict(int)
    for world, (weight, _) in worlds.held.items():
        law[world.private_sources if promised is None else world.private_sources[-promised:], world.history] += weight
    by_history: dict[SeenHistory | None, dict[tuple[HiddenRequests, SeenHistory], int]] = defaultdict(dict)
    for (wanted, history), weight in law.items():
        by_history[history.before][wanted, history] = weight
    return law, by_history


def _conditional_information(joints: Iterable[Joint], whole: int) -> float:
    """I(b ; q | h) in bits: the information within each history h, from weights over `whole`."""
    return math.fsum(sum(joint.values()) / whole * mutual_information(joint) for joint in joints)


def _marginals(joint: Joint) -> tuple[dict[HiddenRequests, int], dict[SeenHistory, int], int]:
    left: dict[HiddenRequests, int] = defaultdict(int)
    right: dict[SeenHistory, int] = defaultdict(int)
    for (b, q), weight in joint.items():
        left[b] += weight
        right[q] += weight
    return left, right, sum(left.values())


def _best_guesses(joint: Joint) -> dict[SeenHistory, int]:
    """max over b of P(b, q), for every q."""
    best: dict[SeenHistory, int] = defaultdict(int)
    for (_, q), weight in joint.items():
        best[q] = max(best[q], weight)
    return best


def _largest_deviation(joint: Joint) -> tuple[Fraction, SeenHistory | None]:
    """The largest |P(b,q|h) - P(b|h) P(q|h)| over all b and q, and the q where it is."""
    left, right, total = _marginals(joint)
    worst, told = 0, None
    for b, weight_b in left.items():
        for q, weight_q in right.items():
            apart = abs(joint.get((b, q), 0) * total - weight_b * weight_q)
            if apart > worst:
                worst, told = apart, q
    return Fraction(worst, total**2), told
