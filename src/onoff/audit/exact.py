"""The exact audit: every request path and every random branch of the real session, with exact probabilities.

Setting
    X_t        the request at time t, F_t the privacy status, B_t = {i <= t : F_i = ON}
    Q_t        the query the server sees, Q_[t] = (Q_0, ..., Q_t)
    the law    of X is the model's, in units, as the session uses it: a chain, or types of people with contexts

For every step t the audit enumerates the joint law of (X_{B_t}, Q_[t]) and gives

    bits   I(X_{B_t} ; Q_t | Q_[t-1])   what step t adds for the server: the paper's privacy, which must be zero. The
                                        filter of a model promises it for the last `hide` private requests only; B_t is
                                        then these, and `all_bits` says what step t adds about all private requests.
                                        With topics X_i is the topic of request i
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
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from onoff.errors import InvalidInput, PrivacyBreach
from onoff.information import mutual_information
from onoff.model.certificate import units_of_bits
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel
from onoff.model.notebook import html_table
from onoff.model.rows import UNIT, Floats, to_units
from onoff.session import Query, Session
from onoff.session.budget import Budgeted, lifelong, odometer_bits, without_budget
from onoff.session.filter import ModelFilter, TypeFilter
from onoff.session.memories import LastQueries, LastQuery
from onoff.session.session import Entropy, Hide

# --------------------------------------------------------------------------------------------------------------------
# Randomness that an audit controls: a script of choices, and an enumeration of every branch with its probability.


Outcome = TypeVar("Outcome")


class ScriptedEntropy:
    """Replays given choices: the i-th call of `choose` returns the i-th of them."""

    def __init__(self, choices: Iterable[int]) -> None:
        self._choices = iter(choices)

    def choose(self, weights: Sequence[int]) -> int:
        index = next(self._choices)
        if not 0 <= index < len(weights) or weights[index] <= 0:
            raise ValueError(f"scripted choice {index} has no weight among {list(weights)}")
        return index

    def uniforms(self, count: int) -> Floats:
        raise TypeError("a script chooses among weights only")


class EnumeratingEntropy:
    """One branch of an enumeration: replays a prefix of choices, then takes the first possible one.

    `enumerate_branches` drives it through every branch.
    """

    def __init__(self, prefix: Sequence[int] = ()) -> None:
        self._prefix = tuple(prefix)
        self.taken: list[int] = []
        self.weights: list[Sequence[int]] = []

    def choose(self, weights: Sequence[int]) -> int:
        depth = len(self.taken)
        if depth < len(self._prefix):
            index = self._prefix[depth]
        else:
            index = _next_possible(weights, 0)
        self.taken.append(index)
        self.weights.append([int(weight) for weight in weights])
        return index

    def uniforms(self, count: int) -> Floats:
        raise InvalidInput("a scheme without a table cannot be audited exactly", hint="audit a scheme that has a table")

    @property
    def probability(self) -> Fraction:
        """The exact probability of the branch taken."""
        product = Fraction(1)
        for index, weights in zip(self.taken, self.weights, strict=True):
            product *= Fraction(weights[index], sum(weights))
        return product


def enumerate_branches(run: Callable[[Entropy], Outcome]) -> Iterator[tuple[Fraction, Outcome]]:
    """Every outcome of `run(entropy)` with its exact probability; `run` is called once per branch.

    >>> sorted((str(p), i) for p, i in enumerate_branches(lambda entropy: entropy.choose([1, 0, 2])))
    [('1/3', 0), ('2/3', 2)]
    """
    prefix: list[int] | None = []
    while prefix is not None:
        branch = EnumeratingEntropy(prefix)
        outcome = run(branch)
        yield branch.probability, outcome
        prefix = _following(branch)


def _following(branch: EnumeratingEntropy) -> list[int] | None:
    """The next branch in order: the last choice that has a later possible alternative takes it."""
    for depth in reversed(range(len(branch.taken))):
        after = _next_possible(branch.weights[depth], branch.taken[depth] + 1)
        if after < len(branch.weights[depth]):
            return [*branch.taken[:depth], after]
    return None


def _next_possible(weights: Sequence[int], start: int) -> int:
    index = start
    while index < len(weights) and weights[index] <= 0:
        index += 1
    return index


# --------------------------------------------------------------------------------------------------------------------
# Worlds: every request path and every random branch of a session, with exact probabilities.
#
# A world is what can be told apart so far: the private requests, the state of the person (the last request, or type
# and
# context of a richer model), what the server saw, and the session's own state. Worlds that agree on these go on
# alike and
# are one. A step takes every world to its successors: the model says which request comes next, `enumerate_branches`
# which
# choices the session makes for it.
#
# Probabilities are integers over one denominator for all worlds of a step, so adding and comparing them is exact;
# the
# denominator of the next step is this one times that of the moves (the chain's units, mostly, because a draw from a
# table
# given what is wanted turns the probability of wanting it into the table's own integers).
#
# What is driven need not be a session: anything with a state, `request` and `fork` will do, and what the server
# sees of
# a request may be any value (sets of sources, or all bytes on a socket). Time and space grow with the number of
# worlds.


MOST_WORLDS = 2_000_000
"""Worlds that are enumerated at most."""


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


class SeenHistory:
    """What the server saw, step by step: one object for each history, however many worlds share it."""

    __slots__ = ("_after", "before", "seen")

    def __init__(self, before: SeenHistory | None = None, seen: Any = None) -> None:
        self.before, self.seen = before, seen
        self._after: dict[int, SeenHistory] = {}

    def then(self, number: int, seen: Any) -> SeenHistory:
        """This history with one more observation; `number` identifies it, and is quicker to look up."""
        if number not in self._after:
            self._after[number] = SeenHistory(self, seen)
        return self._after[number]

    @property
    def all_seen(self) -> list[Any]:
        """What was seen, in order."""
        return [] if self.before is None else [*self.before.all_seen, self.seen]


class World(NamedTuple):
    """person: see `_next_requests`; None before the first request. state: the number of the session's, see `Worlds`."""

    private_sources: tuple[int, ...]
    person: Hashable
    history: SeenHistory
    state: int


_Branch = tuple[Fraction, tuple[Observation, Auditable]]
"""One way in which a session makes a request: how likely, what is seen, and the session after it."""


@dataclass
class _Move:
    """A request that can come next and one way in which the session makes it; units: its probability on a scale."""

    probability: Fraction
    source: int
    person: Hashable
    observed: Observation
    session: Auditable
    seen: int
    state: int
    units: int = 0


@dataclass(frozen=True)
class Worlds:
    """The worlds that can be at one step, each with its probability over `denominator` and a session in that state.

    What all steps share: `numbers` of what was seen and of states of sessions, as they are met, so that equal values
    have equal numbers; and what a session was found to do at a place with a request, so that it is driven there once.
    """

    model: Model
    held: dict[World, tuple[int, Auditable]]
    denominator: int = 1
    numbers: dict[Hashable, int] = field(default_factory=dict)
    driven: dict[tuple[Hashable, int, bool], list[_Branch]] = field(default_factory=dict)

    @classmethod
    def before_the_first_request(cls, model: Model, start: Auditable | Sequence[Auditable]) -> Worlds:
        """start: a session; or one for each type of people, which it knows."""
        if not isinstance(start, Sequence):
            return cls(model, {World((), None, SeenHistory(), -1): (1, start)})
        weights = to_units(model.weights.tolist()).tolist() if isinstance(model, RequestModel) else [UNIT]
        before = SeenHistory()
        held = {World((), (z, 0), before, -1 - z): (weights[z], one) for z, one in enumerate(start) if weights[z]}
        return cls(model, held, UNIT)

    def __len__(self) -> int:
        return len(self.held)

    def after(self, *, private: bool) -> tuple[Worlds, Fraction, bool]:
        """The worlds after one more request, its mean cost, and whether some request was not in its own query."""
        moves, scale = self._moves(private)
        held: dict[World, tuple[int, Auditable]] = {}
        cost, undecodable = 0, False
        for world, (weight, session) in self.held.items():
            for move in moves[_place(world, session), world.person]:
                private_sources = (*world.private_sources, move.source) if private else world.private_sources
                history = world.history.then(2 * move.seen + private, move.observed.sources)  # the switch is seen too
                key = World(private_sources, move.person, history, move.state)
                share = weight * move.units
                held[key] = (held[key][0] if key in held else 0) + share, move.session
                cost += share * len(move.observed)
                undecodable = undecodable or move.source not in move.observed
            if len(held) > MOST_WORLDS:
                raise InvalidInput(f"more than {MOST_WORLDS} worlds", hint="audit fewer sources or a shorter pattern")
        after = Worlds(self.model, held, self.denominator * scale, self.numbers, self.driven)
        return after, Fraction(cost, after.denominator), undecodable

    def _moves(self, private: bool) -> tuple[dict[tuple[Hashable, Hashable], list[_Move]], int]:
        """What can come next, by place and state of the person, and the common denominator of its probabilities."""
        moves: dict[tuple[Hashable, Hashable], list[_Move]] = {}
        for world, (_, session) in self.held.items():
            place = _place(world, session)
            if (place, world.person) in moves:
                continue
            found = moves[place, world.person] = []
            for x, wanted, person in _next_requests(self.model, world.person):
                if (place, x, private) not in self.driven:
                    self.driven[place, x, private] = list(enumerate_branches(_one_request(session, x, private)))
                for chance, (observed, twin) in self.driven[place, x, private]:
                    probability = chance * wanted
                    seen, state = self._number(observed.sources), self._number(twin.state)
                    found.append(_Move(probability, x, person, observed, twin, seen, state))
        scale = math.lcm(*(move.probability.denominator for found in moves.values() for move in found))
        for found in moves.values():
            for move in found:
                move.units = move.probability.numerator * (scale // move.probability.denominator)
        return moves, scale

    def _number(self, value: Hashable) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


def _place(world: World, session: Auditable) -> Hashable:
    """A value such that two sessions with the same one answer the same request alike."""
    alone = type(session) is Session and isinstance(without_budget(session.memory), LastQuery | LastQueries)
    if alone or getattr(session, "self_contained", False):
        return world.state  # holds all there is; a twin, or a filter, may depend on what was seen
    return world.state, world.history


def _next_requests(model: Model, person: Any) -> Iterator[tuple[int, Fraction, Hashable]]:
    """What a person can want next, with its probability, and the state of the person after it.

    The state is the last request for a chain, (type, context) for a richer model, None before the first request. Laws
    are rounded to units, as sessions do.
    """
    if isinstance(model, MarkovChain):
        if person is None:
            rows = model.initial_rows()
            sources, units = rows.columns, rows.weights[0]
        else:
            sources, units = model.row_units(person)
        for x, unit in zip(sources.tolist(), units.tolist(), strict=True):
            yield x, Fraction(unit, UNIT), x
        return
    states = [person] if person is not None else [(z, 0) for z in range(model.types)]
    weights = [UNIT] if person is not None else to_units(model.weights.tolist()).tolist()
    for (z, context), weight in zip(states, weights, strict=True):
        for x, unit in enumerate(to_units(model.law(z, context).tolist()).tolist()):
            if unit and weight:
                yield x, Fraction(weight, UNIT) * Fraction(unit, UNIT), (z, model.next(context, x))


def _one_request(session: Auditable, x: int, private: bool) -> Callable[[Entropy], tuple[Observation, Auditable]]:
    def run(entropy: Entropy) -> tuple[Observation, Auditable]:
        twin = session.fork(entropy)
        return twin.request(x, private=private), twin

    return run


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
        """The attacker's gain in accuracy: how much likelier the best guess is right after seeing this step's query."""
        return self.guess - self.guess_before


@dataclass(frozen=True)
class ExactAudit:
    """The outcome of an exact audit; `leak` is the sum of the bits of all steps, exactly 0 when private."""

    steps: tuple[AuditStep, ...]
    naive: tuple[float, ...] = ()
    tolerance: Fraction = Fraction(0)
    breach: str | None = field(default=None)
    budget: BudgetAudit | None = None

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

    def _repr_html_(self) -> str:
        """Each step with what it cost and told, beside naive switching."""
        told = self.as_dict()
        lines = [
            [s["t"], "ON" if s["private"] else "OFF", float(s["cost"]), float(s["bits"]), f"{s['guess']:.1%}", naive]
            for s, naive in zip(told["steps"], self.naive or [""] * len(self.steps), strict=True)
        ]
        head = ["step", "switch", "messages", "bits told", "best guess is right", "naive switching: bits told"]
        verdict = "private: exactly 0 bits" if self.private else f"not private: {self.leak:.4g} bits"
        return html_table(f"Exact audit, {verdict}", head, lines, self.breach or "")

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
            "budget": None if self.budget is None else self.budget.as_dict(),
        }


def audit_exact(
    model: Model,
    scheme: str,
    pattern: tuple[bool, ...],
    memory: str | None = None,
    *,
    hide: Hide = 1,
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
        start: Auditable | Sequence[Auditable] = session()
    elif scheme == "naive":
        start = NaiveSession(model)
    else:
        start = users_of(model, scheme, memory, hide=hide, everything=everything, **options)
    tolerance = Fraction(0)
    if memory == "bayes-filter" and isinstance(model, MarkovChain) and scheme != "naive":
        tolerance = ROUNDING_LIMIT
    steps, breach = _follow(model, pattern, start, tolerance, progress)
    naive = steps if scheme == "naive" else _follow(model, pattern, NaiveSession(model), Fraction(0))[0]
    tolerance = max(tolerance, *(step.rounding for step in steps))
    return ExactAudit(tuple(steps), tuple(s.bits for s in naive), tolerance, breach)


def users_of(
    model: Model, scheme: str, memory: str | None = None, *, hide: Hide = 1, **options: Any
) -> Auditable | Sequence[Auditable]:
    """A session to audit; where the person is hidden one of each type, which knows it."""
    if not isinstance(hide, str) or isinstance(model, MarkovChain):
        return Session(model, scheme, memory, hide=hide, **options)  # type: ignore[arg-type]
    return [Session(model, scheme, memory, hide=hide, person=z, **options) for z in range(model.types)]  # type: ignore[arg-type]


def audit_patterns(
    model: Model, start: Auditable | Sequence[Auditable], longest: int, tolerance: Fraction = Fraction(0)
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
    start: Auditable | Sequence[Auditable],
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
    memory = without_budget(getattr(session, "memory", None))
    return memory.hide if type(memory) is ModelFilter else None


def _hidden(world: World, session: Auditable, promised: int | None) -> HiddenRequests:
    """What must stay hidden: private requests or their topics, and the type of the person where that is hidden."""
    memory, topics = without_budget(getattr(session, "memory", None)), getattr(session, "topics", None)
    type_: Any = (world.person[0],) if lifelong(memory) and isinstance(world.person, tuple) else ()
    if isinstance(memory, TypeFilter):
        return tuple(type_)
    wanted = world.private_sources if promised is None else world.private_sources[-promised:]
    return (*type_, *(wanted if topics is None else (topics.of[x] for x in wanted)))


def _rounding(session: Auditable) -> Fraction:
    """How far a session may be from independence by the rounding that it counted."""
    memory = without_budget(getattr(session, "memory", None))
    return Fraction(2 * memory.rounding, UNIT) if isinstance(memory, ModelFilter) else Fraction(0)


def _laws(
    worlds: Worlds, promised: int | None
) -> tuple[
    dict[tuple[HiddenRequests, SeenHistory], int],
    dict[SeenHistory | None, dict[tuple[HiddenRequests, SeenHistory], int]],
]:
    """The law of the last `promised` private requests (None: all) and what was seen; the same by the history before."""
    law: dict[tuple[HiddenRequests, SeenHistory], int] = defaultdict(int)
    for world, (weight, session) in worlds.held.items():
        law[_hidden(world, session, promised), world.history] += weight
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


# --------------------------------------------------------------------------------------------------------------------
# Sessions with a budget: what is told about each private request, against its odometer.
#
# Let h be a history, tau a private request before it, and g the history just after tau. What the queries since tell
# about x_tau at most is the sum over h after g of max over x of P(h | x_tau = x, g). Sums of the largest factors bound
# it step by step, so with s(h) the odometer of tau at h, in every g
#
#     sum over h after g of max over x of P(h | x_tau = x, g) / s(h)  <=  1
#
# which is decided by rationals. It says that the leak found is at most the largest odometer.


FILTERED = Fraction(1, 10**9)
"""How much the rounding of a filter of types may add."""


@dataclass(frozen=True)
class ToldAbout:
    """What the queries since one private request tell about it at most: found, and by its odometer, in units."""

    t: int
    found: Fraction
    odometer: int

    def as_dict(self) -> dict[str, Any]:
        """In bits."""
        return {"t": self.t, "found": math.log2(self.found), "odometer": odometer_bits(self.odometer)}


@dataclass(frozen=True)
class BudgetAudit:
    """What every private request of a pattern was told about at its end; `breach` says where more was than counted.

    person: the same for the type of the person, where that is hidden.
    """

    told: tuple[ToldAbout, ...]
    cost: float
    breach: str | None
    person: ToldAbout | None = None

    def as_dict(self) -> dict[str, Any]:
        """Bits: found at most about each private request, and by its odometer."""
        return {
            "told": [one.as_dict() for one in self.told],
            "person": None if self.person is None else self.person.as_dict(),
        }

    def require_kept(self) -> None:
        """Raise PrivacyBreach where more was told than the odometer says, or more than the budget."""
        if self.breach is not None:
            raise PrivacyBreach(self.breach)


def audit_budget(
    model: Model, start: Auditable | Sequence[Auditable], pattern: tuple[bool, ...], bits: float
) -> BudgetAudit:
    """Audit a session that may tell so many bits about each private request, at the end of a pattern.

    The last private request must not have more than the budget on its odometer.
    """
    budget = units_of_bits(bits, "leak") if bits else UNIT
    worlds, total, breach = Worlds.before_the_first_request(model, start), Fraction(0), None
    for t, private in enumerate(pattern):
        worlds, cost, undecodable = worlds.after(private=private)
        total += cost
        if undecodable and breach is None:
            breach = f"step {t}: a query did not contain the source that was wanted"
    times = [t for t, private in enumerate(pattern) if private]
    odometers: dict[SeenHistory, tuple[int, ...]] = {}
    for world, (_, session) in worlds.held.items():
        memory = getattr(session, "memory", None)
        known = memory.spent if isinstance(memory, Budgeted) else (UNIT,) * len(times)
        known = known * max(len(times), 1) if lifelong(memory) else known  # one for life
        spent = (*known, *[budget] * (len(times) - len(known)))  # of requests before a loss it knows no more than that
        if odometers.setdefault(world.history, spent) != spent:
            breach = breach or "the odometer depends on what is hidden"
    told, person = [], None
    if isinstance(start, Sequence):
        found, largest, excess = _told_about(worlds, _type_of, len(pattern), odometers, 0)
        person = ToldAbout(0, found, largest)
        if excess > 1 + FILTERED and breach is None:
            breach = f"the person is told about {float(excess):.6g} times as much as the odometer says"
    if isinstance(start, Sequence) and isinstance(without_budget(getattr(start[0], "memory", None)), TypeFilter):
        return BudgetAudit((), float(total), breach, person)
    for place, t in enumerate(times):
        wanted = partial(_wanted_at, place)
        found, largest, excess = _told_about(worlds, wanted, len(pattern) - 1 - t, odometers, len(times) - 1 - place)
        told.append(ToldAbout(t, found, largest))
        if excess > 1 and breach is None:
            breach = f"the request at step {t} is told about {float(excess):.6g} times as much as its odometer says"
    if told and told[-1].odometer > budget and breach is None:
        breach = f"the odometer of the request at step {told[-1].t} is beyond the budget"
    return BudgetAudit(tuple(told), float(total), breach, person)


def _wanted_at(place: int, world: World) -> int:
    return world.private_sources[place]


def _type_of(world: World) -> int:
    return int(world.person[0])  # type: ignore[index]


def _told_about(
    worlds: Worlds,
    hidden: Callable[[World], int],
    since: int,
    odometers: Mapping[SeenHistory, tuple[int, ...]],
    newer: int,
) -> tuple[Fraction, int, Fraction]:
    """For what is hidden: the largest leak found over what was seen before, odometer, and ratio of the two."""
    joint: dict[SeenHistory, dict[SeenHistory, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for world, (weight, _) in worlds.held.items():
        before = world.history
        for _ in range(since):
            before = before.before or before
        row, x = joint[before][world.history], hidden(world)
        row[x] = row.get(x, 0) + weight
    found, largest, excess = Fraction(0), UNIT, Fraction(0)
    for after in joint.values():
        prior: dict[int, int] = defaultdict(int)
        for row in after.values():
            for x, weight in row.items():
                prior[x] += weight
        leak, ratio = Fraction(0), Fraction(0)
        for history, row in after.items():
            most = max(Fraction(weight, prior[x]) for x, weight in row.items())
            leak += most
            ratio += most * UNIT / odometers[history][newer]
            largest = max(largest, odometers[history][newer])
        found, excess = max(found, leak), max(excess, ratio)
    return found, largest, excess
