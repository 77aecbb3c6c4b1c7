"""What real readers give away: their requests through shipped sessions, and attackers who guess.

The exact audit proves that queries tell nothing about private requests *if* requests follow the session's model. Real
ones follow no model. Here the requests of real readers, held out from what the model was learnt on, go through real
sessions, and attackers guess one private request X of each reader from the queries after it. X is at a random place of
the reader's visit, and then come k OFF requests; what comes before X (`before`) is one of

    private    all of the visit: everything was asked, so nothing was seen
    open       all of the visit, request by request: the server knows it
    nothing    X is the first request of the visit

Attackers (`guesses`) know the scheme, the switch and how other readers behave, each by a way of its own; a stack puts
them together. For each k:

    bits     mean over cases of log2 p(x | queries) - log2 p(x | what was known before), x being the truth: what the
             stack's probabilities gained. A lower bound on I(X ; queries), and honest: a wrong attacker loses bits
    top1     how much more often its best guess is right than before
    naive    the same for naive switching, by the same attackers
    control  the same with the queries of another person: 0, but for the error
    exact    for k = 1 and 2, and X at one place: the joint law of the requests themselves, counted on other readers, no
             model at all; exact in the mean over the session's random choices

What is known of a person before (`history`) is one of

    none     nothing, or what `before` says
    open     FEWEST_KNOWN or more open requests, which end right before X: server, session and attackers know them
    sets     earlier requests went through the same session, the first of them private, and the server saw the sets

Naive switching knows the same of each person, and is judged by the same attackers. `difference` is bits less naive
bits, paired, and a model that is not below naive switching fails.

Not the last private request alone: `pattern` judges every private request of a pattern such as ON OFF*3 ON OFF*3, each
by all that follows it. `sensitive` asks of single sources "was it this one?": the chance that a case of which it is
true looks more like it than one of which it is not (AUC, 0.5 is a blind guess). `membership` asks whether a person was
among those that the model was learnt from: the same chance, where each person is scored by how much better the model
knows them than the attackers' own.

Errors are standard errors, by person. `before_bits` is what was known of X before it was sent, over how often each
value is: what open requests before it tell, which no scheme can take back. `empirical_bound` is a lower bound on the
messages of OFF request k for any scheme that hides X, counted from how often it followed each X; None where open
requests before X are known, on which it would depend.

Readers with a request that the session's model calls impossible are counted and left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onoff.audit.cases import (
    USUAL_CONSTANTS,
    Before,
    Case,
    Sightings,
    about_request,
    choose_cases,
    choose_known_cases,
    choose_pattern_cases,
    empirical_bounds,
    exact_gains,
    knows_the_person,
    knows_the_type,
    naive_channels,
    parts_by_person,
    send_cases,
    starts_of,
)
from onoff.audit.guesses import (
    Clues,
    Judgement,
    Watching,
    area,
    area_error,
    attackers_of,
    bits_of,
    counted,
    difference,
    gather,
    known_before,
    let_guess,
    mean_by_person,
)
from onoff.audit.observer import MOST_PROBABILITIES, Observer, ReaderModel
from onoff.errors import InvalidInput
from onoff.model.chain import LARGEST_FILE
from onoff.model.contexts import Model, RequestModel
from onoff.model.people import average_chain, choose_constants, constants_of
from onoff.model.rows import Floats
from onoff.schemes import find_scheme
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.session.session import Entropy, SystemEntropy
from onoff.system.files import atomic_write, read_limited

FEWEST_CASES, FEWEST_PEOPLE = 200, 50
FEWEST_OF_A_SOURCE = 10
"""Cases of a source, and of others, that are needed to ask whether it was this one."""
MOST_MEMBERS = 1000
"""People of each kind whose membership is asked about."""
MOST_LEARNT = 60_000
"""Readers that attackers learn from at most."""
TABLE_SECONDS = 0.5
"""Processor time for a table at most; sessions of a client may take longer, and look ahead."""
KnownBefore = Literal["none", "open", "sets"]


@dataclass(frozen=True)
class TraceStep:
    """What is known after k OFF requests.

    difference: bits less naive bits, paired: case by case. attackers: the bits of each of them alone; the rest as in
    the module.
    """

    k: int
    cost: float
    bits: float
    stderr: float
    top1: float
    naive_bits: float
    naive_stderr: float
    naive_top1: float
    difference: float
    difference_stderr: float
    control_bits: float
    control_stderr: float
    empirical_bound: float | None
    exact_bits: float | None
    attackers: Mapping[str, float]


@dataclass(frozen=True)
class PatternStep:
    """What all that follows tells about one private request of a pattern. request: its place, from 1."""

    request: int
    bits: float
    stderr: float
    top1: float
    naive_bits: float
    difference: float
    difference_stderr: float
    control_bits: float
    control_stderr: float


@dataclass(frozen=True)
class SourceStep:
    """How well cases whose X is one source are told from others, as an area under the curve."""

    source: str
    cases: int
    before: float
    after: float
    stderr: float
    naive: float


@dataclass(frozen=True)
class Membership:
    """How well people that the model was learnt from are told from others, as an area under the curve."""

    people: int
    area: float
    stderr: float


@dataclass(frozen=True)
class TraceAudit:
    """The outcome.

    users, cases: people, and private requests of theirs. impossible: cases that were left out. prior_bits, prior_top1:
    what was unknown of X before, and how often the best guess was right. missing: attackers that are not installed.
    """

    users: int
    cases: int
    impossible: int
    before: str
    prior_bits: float
    prior_top1: float
    before_bits: float
    before_stderr: float
    missing: tuple[str, ...]
    steps: tuple[TraceStep, ...]
    history: KnownBefore = "none"
    sensitive: tuple[SourceStep, ...] = ()
    pattern: tuple[PatternStep, ...] = ()
    membership: Membership | None = None
    everything: int = 0
    """Messages that asking for everything would have taken instead of the OFF requests."""

    @property
    def below_naive(self) -> bool:
        """Whether less was given away than by naive switching, after all OFF requests."""
        return self.steps[-1].difference < 0

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
            f"{100 * (base + last.naive_top1):.0f} with naive switching), and give away {last.bits:z.3f} ± "
            f"{last.stderr:.3f} of {self.prior_bits:z.2f} bits (naive: {last.naive_bits:z.2f}; paired difference "
            f"{last.difference:+z.3f} ± {last.difference_stderr:.3f}), at {self.cost:.1f} "
            f"messages{least}. With another person's requests the attackers gain {last.control_bits:z.3f} ± "
            f"{last.control_stderr:.3f} bits."
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "cost": self.cost, "leak": self.leak, "below_naive": self.below_naive}


def audit_traces(
    start: Session,
    cases: Sequence[Case],
    attackers: Mapping[str, ReaderModel | Callable[[Case], Observer]],
    *,
    users: int,
    history: KnownBefore = "none",
    sensitive: Sequence[str] = (),
    with_counted: bool = True,
    begin: Callable[[Case], Session] | None = None,
    entropy: Callable[[], Entropy] = SystemEntropy,
    progress: Callable[[int], None] = lambda done: None,
) -> TraceAudit:
    """Send real requests through sessions and let attackers guess a private one.

    start: A session before its first request; every reader gets a twin of it.
    cases: Of readers held out from what the model and the attackers were learnt on. All of them are counted for what is
    counted; the first `users` are sent through sessions.
    attackers: Models of the readers that Bayes attackers know, by name, at least one; or who watches each reader.
    sensitive: Names of sources that are asked about one by one.
    begin: The session of each reader, where it depends on what is known of the reader before.

    Raises
    ------
    InvalidInput
        For too few readers, and schemes that keep no tables.
    """
    trial = _Trial.of(start, cases[:users], attackers, entropy, progress, begin)
    n, after, seen = start.model.n, len(cases[0].later), trial.seen
    ours, naive, control = trial.judged(seen)
    shown = cases[0].asked > 0 and not cases[0].switch[0]
    limits = None if shown or history != "none" else empirical_bounds(cases, n)
    exact = exact_gains(start, cases) if with_counted and history == "none" else []
    steps = tuple(
        TraceStep(
            k,
            float(np.mean([len(channels[case.asked + k].query) for case, channels in seen])),
            *ours.gain(k),
            ours.top1(k),
            *naive.gain(k),
            naive.top1(k),
            *difference(ours, naive, k),
            *control.gain(k),
            empirical_bound=None if limits is None else limits[k - 1],
            exact_bits=exact[k - 1] if k <= len(exact) else None,
            attackers=ours.alone[k - 1],
        )
        for k in range(1, after + 1)
    )
    told_before = bits_of(trial.prior, trial.clues.wanted)
    return TraceAudit(
        len(np.unique(trial.clues.person)),
        len(seen),
        trial.impossible,
        "open" if shown else "private" if cases[0].asked else "nothing",
        float(-told_before.mean()),
        float(ours.right[:, 0].mean()),
        *mean_by_person(told_before - bits_of(counted(trial.clues), trial.clues.wanted), trial.clues.person),
        trial.missing,
        steps,
        history,
        tuple(_of_source(name, start.model.index(name), trial, ours, naive) for name in sensitive),
        everything=n * after,
    )


def audit_pattern(
    start: Session,
    cases: Sequence[Case],
    attackers: Mapping[str, ReaderModel | Callable[[Case], Observer]],
    *,
    entropy: Callable[[], Entropy] = SystemEntropy,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[PatternStep, ...]:
    """Every private request of a pattern, each judged by all queries after it; see `choose_pattern_cases`."""
    trial = _Trial.of(start, cases, attackers, entropy, progress, None)
    found = []
    for number, asked in enumerate([t for t, on in enumerate(cases[0].switch) if on and t + 1 < len(cases[0].switch)]):
        seen = [(about_request(case, asked), channels) for case, channels in trial.seen]
        ours, naive, control = trial.judged(seen, only_last=True)
        last = ours.bits.shape[1]
        gains = (*ours.gain(last), ours.top1(last), naive.gain(last)[0], *difference(ours, naive, last))
        found.append(PatternStep(number + 1, *gains, *control.gain(last)))
    return tuple(found)


def audit_visits(
    model: Model,
    visits: Sequence[tuple[int, Sequence[int]]],
    *,
    after: int = 10,
    before: Before = "private",
    history: KnownBefore = "none",
    users: int = 2000,
    types: int = 24,
    attackers: Mapping[str, RequestModel] | None = None,
    scheme: str = "greedy",
    memory: Any = None,
    hide: int = 1,
    leak: float = 0.0,
    seed: int = 0,
    pattern: Sequence[bool] = (),
    sensitive: Sequence[str] = (),
    members: Sequence[Sequence[int]] = (),
    progress: Any = None,
) -> TraceAudit:
    """The audit of sessions of a model by people it was not learnt from: half of them teach, the others are guessed.

    visits: The person and the requests of each, those of one person in order.
    attackers: Models that attackers know, instead of one with `types` types that half of the people teach; everybody is
    guessed then. The session's model, which is public, they know in any case.
    history: With "open" sessions know it too where the model says how to make a person's own law of it.
    pattern: Where given, every private request of it is judged too.
    members: Where given, whether these people, of whom the model was learnt, can be told from others.
    progress: As `onoff.cli.output.progress` gives it.

    Raises InvalidInput where there are too few people.
    """
    rng = np.random.default_rng(seed)
    say = _Silent() if progress is None else progress
    halves = parts_by_person([person for person, _ in visits], 2)
    learnt = [visit for half, (_, visit) in zip(halves, visits, strict=True) if half == 0]
    judged = [visit for half, visit in zip(halves, visits, strict=True) if half == 1 or attackers is not None]
    if history == "none":
        cases = choose_cases(judged, after, before, rng, users)
    else:
        cases = choose_known_cases(judged, after, rng, users, sets=history == "sets")
    known = {f"{types} types": _learnt_from(learnt, model, types, seed)} if attackers is None else dict(attackers)
    own_types = next(iter(known.values()))
    whole = model if isinstance(model, RequestModel) else RequestModel.of(model)
    if whole.types * len(whole.contexts) * whole.n <= MOST_PROBABILITIES:
        known["the session's model"] = whole
    watching: Mapping[str, RequestModel | Callable[[Case], Observer]] = known
    begin = None
    options = table_options(scheme)
    if history == "open":
        own = constants_of(model)
        alone = own is not None and own["alone"]
        base = average_chain(model) if alone and isinstance(model, RequestModel) else model
        constants = (choose_constants(base, learnt) if attackers is None else None) or own or USUAL_CONSTANTS
        watching = {
            **{name: knows_the_type(one) for name, one in known.items()},
            "own law": knows_the_person(base, constants, seed),
        }
        begin = None if own is None else starts_of(base, own, rng, scheme, hide=hide, leak=leak, **options)
    start = Session(model, scheme, memory, hide=hide, leak=leak, **options)
    say.now("readers", min(users, len(cases)))
    how: dict[str, Any] = {"entropy": lambda: SeededEntropy(rng), "progress": say}
    audit = audit_traces(
        start, cases, watching, users=users, history=history, sensitive=sensitive, begin=begin, **how
    )  # fmt: skip
    if pattern:
        some = choose_pattern_cases(judged, pattern, users)
        say.now("readers of the pattern", len(some))
        audit = replace(audit, pattern=audit_pattern(start, some, known, **how))
    if members:
        others = [visit for _, visit in judged][:MOST_MEMBERS]
        audit = replace(audit, membership=membership_of(model, own_types, members[:MOST_MEMBERS], others))
    return audit


class _Silent:
    """Says nothing of how far it is."""

    def now(self, doing: str, total: int | None = None) -> None:
        pass

    def __call__(self, done: int) -> None:
        pass


def table_options(scheme: str) -> dict[str, Any]:
    """Options for fast tables: as private, and a little more expensive."""
    record = find_scheme(scheme)
    hurried: dict[str, Any] = {"look_ahead": False} if record.looks_ahead else {}
    return {**hurried, "budget": TABLE_SECONDS} if "budget" in record.options else hurried


def _learnt_from(visits: Sequence[Sequence[int]], model: Model, types: int, seed: int) -> RequestModel:
    """The attacker's own model: what the readers who are not judged do, two requests back and by type of person."""
    if len(visits) < FEWEST_PEOPLE:
        raise InvalidInput(
            f"{len(visits)} visits with enough requests are too few for an attacker to learn from",
            hint=f"at least {2 * FEWEST_PEOPLE} in all; fewer --after need shorter visits, --attacker needs none",
        )
    named = [[model.names[x] for x in visit] for visit in visits[:MOST_LEARNT]]
    return RequestModel.fit(named, model.names, order=2, types=min(types, len(visits) // 10), seed=seed)


@dataclass(eq=False)
class _Trial:
    """Cases whose requests were sent, and those who watched. clues, prior: of what was judged last."""

    seen: Sightings
    observers: Mapping[str, Watching]
    n: int
    impossible: int
    missing: tuple[str, ...] = ()
    clues: Clues = field(init=False)
    prior: Floats = field(init=False)

    @classmethod
    def of(
        cls,
        start: Session,
        cases: Sequence[Case],
        attackers: Mapping[str, ReaderModel | Callable[[Case], Observer]],
        entropy: Callable[[], Entropy],
        progress: Callable[[int], None],
        begin: Callable[[Case], Session] | None,
    ) -> _Trial:
        sending = sorted(cases, key=lambda case: case.asked)
        check_enough(len(sending), len({case.person for case in sending}))
        seen = send_cases(start, sending, entropy, progress, begin)
        observers = {name: one if callable(one) else Observer(one) for name, one in attackers.items()}
        return cls(seen, observers, start.model.n, len(sending) - len(seen))

    def judged(self, seen: Sightings, *, only_last: bool = False) -> tuple[Judgement, Judgement, Judgement]:
        """What the queries tell, what those of naive switching tell, and what another person's seem to tell."""
        guessers, self.missing = attackers_of(self.observers)
        self.clues = gather(self.observers, seen, self.n)
        self.prior = known_before(self.clues, guessers)
        naive = [(case, naive_channels(case, channels, self.n)) for case, channels in seen]
        ours, theirs, control = (
            let_guess(some, guessers, self.prior, only_last=only_last)
            for some in (self.clues, gather(self.observers, naive, self.n), self.clues.of_others())
        )
        return ours, theirs, control


def _of_source(name: str, source: int, trial: _Trial, ours: Judgement, naive: Judgement) -> SourceStep:
    truth, person = trial.clues.wanted == source, trial.clues.person
    if not FEWEST_OF_A_SOURCE <= truth.sum() <= len(truth) - FEWEST_OF_A_SOURCE:
        raise InvalidInput(
            f"{name}: {truth.sum()} of {len(truth)} private requests are too few, or too many, to judge by",
            hint=f"at least {FEWEST_OF_A_SOURCE} of it and of others; more --users",
        )
    before, after, theirs = (laws[:, source] for laws in (trial.prior, ours.laws, naive.laws))
    return SourceStep(
        name, int(truth.sum()), area(before, truth), area(after, truth), area_error(after, truth, person),
        area(theirs, truth),
    )  # fmt: skip


def membership_of(
    model: Model, own: RequestModel, members: Sequence[Sequence[int]], others: Sequence[Sequence[int]]
) -> Membership:
    """How well those that the model was learnt from are told from others; `own` was learnt from neither."""
    whole = RequestModel.of(model) if not isinstance(model, RequestModel) else model
    listed = [*members, *others]
    check_enough(FEWEST_CASES, min(len(members), len(others)))
    scores = np.array([(bits_for(own, visit) - bits_for(whole, visit)) / len(visit) for visit in listed])
    truth = np.arange(len(listed)) < len(members)
    return Membership(len(listed), area(scores, truth), area_error(scores, truth, np.arange(len(listed))))


def bits_for(model: RequestModel, requests: Sequence[int]) -> float:
    """The bits that a person's requests take under a model."""
    logs, context = np.log(model.weights), 0
    for x in requests:
        with np.errstate(divide="ignore"):
            logs = logs + np.log([model.law(z, context)[x] for z in range(model.types)])
        context = int(model.next(context, x))
    return float(-np.logaddexp.reduce(logs) / math.log(2))


def check_enough(cases: int, people: int) -> None:
    """Raise InvalidInput where there is too little to judge by."""
    if cases < FEWEST_CASES or people < FEWEST_PEOPLE:
        raise InvalidInput(
            f"{cases} private requests of {people} readers are too few to judge",
            hint=f"at least {FEWEST_CASES} of {FEWEST_PEOPLE}; fewer requests after the private one need less",
        )


# -- what a file keeps of it ----------------------------------------------------------------------------------


def summary(audit: TraceAudit, trace: str) -> dict[str, Any]:
    """What is kept of an audit: the last step."""
    last = audit.steps[-1]
    return {
        "trace": trace,
        "users": audit.users,
        "before": audit.before,
        "after": last.k,
        "bits": last.bits,
        "stderr": last.stderr,
        "top1": last.top1,
        "prior_bits": audit.prior_bits,
        "prior_top1": audit.prior_top1,
        "before_bits": audit.before_bits,
        "naive_bits": last.naive_bits,
        "naive_top1": last.naive_top1,
        "history": audit.history,
        "difference": last.difference,
        "difference_stderr": last.difference_stderr,
        "control_bits": last.control_bits,
        "control_stderr": last.control_stderr,
        "cost": audit.cost,
        "everything": audit.everything,
    }


def with_measured(about: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says once this was measured: the latest audit, and that of each kind of history."""
    audits = {**about.get("audits", {}), measured.get("history", "none"): dict(measured)}
    return {**about, "measured": dict(measured), "audits": audits}


def save_measured(path: Path, measured: Mapping[str, Any]) -> None:
    """Put a summary into the file of the model. Raises InvalidInput where the file has no place for it."""
    if path.suffix.lower() == ".npz":
        model = RequestModel.load(path)
        RequestModel(**{**model.parts(), "about": with_measured(model.about, measured)}).save(path)
        return
    try:
        document = json.loads(read_limited(path, LARGEST_FILE).decode("utf-8-sig"))
        document["about"] = with_measured(document.get("about") or {}, measured)
    except (UnicodeDecodeError, json.JSONDecodeError, TypeError, AttributeError):
        raise InvalidInput(f"{path}: this format cannot hold measurements", hint="use a .json or .npz model") from None
    with atomic_write(path) as file:
        file.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
