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

With a history (`Case.history`), X is the first request after what the person openly asked before, which server, session
and attackers know; naive switching is judged by the same attackers. `difference` is bits less naive bits, paired.

Errors are standard errors, by person. `before_bits` is what was known of X before it was sent, over how often each
value is: what open requests before it tell, which no scheme can take back. `empirical_bound` is a lower bound on the
messages of OFF request k for any scheme that hides X, counted from how often it followed each X; None where open
requests before X are known, on which it would depend.

Readers with a request that the session's model calls impossible are counted and left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from onoff.audit.cases import Before, Case, naive_channels, send_cases
from onoff.audit.counted import empirical_bounds, exact_gains
from onoff.audit.guesses import (
    attackers_of,
    bits_of,
    counted,
    difference,
    gather,
    known_before,
    let_guess,
    mean_by_person,
)
from onoff.audit.observer import Observer, ReaderModel
from onoff.errors import InvalidInput
from onoff.session import Session
from onoff.session.session import Entropy, SystemEntropy

FEWEST_CASES, FEWEST_PEOPLE = 200, 50


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
class OlderStep:
    """What is known after k OFF requests about the private request before X."""

    k: int
    bits: float
    stderr: float
    top1: float
    control_bits: float
    control_stderr: float
    attackers: Mapping[str, float]


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
    older: tuple[OlderStep, ...] = ()
    older_users: int = 0
    history: str = "none"
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
    before: Before,
    *,
    users: int,
    older_users: int = 0,
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
    users, older_users: How many cases are sent, and of how many the private request before X is asked about too
    (`before` is "private" only).
    begin: The session of each reader, where it depends on what is known of the reader before.

    Raises
    ------
    InvalidInput
        For too few readers, and schemes that keep no tables.
    """
    sending = sorted(cases[:users], key=lambda case: case.asked)
    check_enough(len(sending), len({case.person for case in sending}))
    n, after = start.model.n, len(cases[0].later)
    known = any(case.history for case in cases)
    seen = send_cases(start, sending, before, entropy, progress, begin)
    observers = {name: one if callable(one) else Observer(one) for name, one in attackers.items()}
    clues = gather(observers, seen, before, n)
    guessers, missing = attackers_of(observers)
    prior = known_before(clues, guessers)
    naive_seen = [(case, naive_channels(case, before, n)) for case, _ in seen]
    ours, naive, control = (
        let_guess(some, guessers, prior)
        for some in (clues, gather(observers, naive_seen, before, n), clues.of_others())
    )
    limits = None if before == "open" or known else empirical_bounds(cases, n)
    exact = exact_gains(start, cases, before) if with_counted and not known else []
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
    told_before = bits_of(prior, clues.wanted)
    audit = TraceAudit(
        len(np.unique(clues.person)),
        len(seen),
        len(sending) - len(seen),
        before,
        float(-told_before.mean()),
        float(ours.right[:, 0].mean()),
        *mean_by_person(told_before - bits_of(counted(clues), clues.wanted), clues.person),
        missing,
        steps,
        history="open" if known else "none",
        everything=n * after,
    )
    if before != "private" or older_users == 0:
        return audit
    some = seen[:: max(1, len(seen) // older_users)]
    older = gather(observers, some, before, n, back=1)
    prior = known_before(older, guessers)
    ours, control = (let_guess(each, guessers, prior) for each in (older, older.of_others()))
    told = tuple(
        OlderStep(k, *ours.gain(k), ours.top1(k), *control.gain(k), ours.alone[k - 1]) for k in range(1, after + 1)
    )
    return replace(audit, older=told, older_users=len(some))


def check_enough(cases: int, people: int) -> None:
    """Raise InvalidInput where there is too little to judge by."""
    if cases < FEWEST_CASES or people < FEWEST_PEOPLE:
        raise InvalidInput(
            f"{cases} private requests of {people} readers are too few to judge",
            hint=f"at least {FEWEST_CASES} of {FEWEST_PEOPLE}; fewer requests after the private one need less",
        )
