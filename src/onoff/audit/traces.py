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
    boosted  boosted trees (`boosting`) on top of the same posterior, which see every query by itself and how it fits
             each X; trained on other readers too
    exact    for k = 1 and 2, and X at one place: the joint law of the requests themselves, counted on other readers, no
             model at all; exact in the mean over the session's random choices

Beside them stand naive switching, judged by the first Bayes attacker, and `empirical_bound`: a lower bound on the
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
from onoff.audit.guesses import boosted_laws, evaluate, posteriors, trained_at, trained_laws
from onoff.audit.observer import Observer, ReaderModel
from onoff.errors import InvalidInput
from onoff.session import Session
from onoff.session.entropy import Entropy, SystemEntropy

TRAINED, BOOSTED = "trained", "boosted"
FEWEST_READERS = 200


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

    start: A session before its first request; every reader gets a twin of it.
    cases: Readers held out from what the model and the attackers were learnt on. All of them are counted for what is
    counted; the first `users` are sent through sessions.
    attackers: Models of the readers that Bayes attackers know, by name, at least one; the first is the main one.
    users, older_users: How many readers are sent, and of how many the private request before X is asked about too
    (`before` is "private" only).

    Raises
    ------
    InvalidInput
        For too few readers, and schemes that keep no tables.
    """
    if min(users, len(cases)) < FEWEST_READERS:
        few = f"{min(users, len(cases))} readers with enough requests are too few to judge"
        raise InvalidInput(few, hint=f"at least {FEWEST_READERS}; fewer requests after the private one need less")
    n, after = start.model.n, len(cases[0].later)
    seen = send_cases(start, sorted(cases[:users], key=lambda case: case.asked), before, entropy, progress)
    sent = [case for case, _ in seen]
    wanted = np.array([case.wanted for case in sent])
    observers = {name: Observer(model) for name, model in attackers.items()}
    main = next(iter(observers.values()))
    found = {name: evaluate(posteriors(one, seen, before), wanted) for name, one in observers.items()}
    first = next(iter(found.values()))
    found[TRAINED] = evaluate(trained_laws(first.laws, seen, wanted), wanted)
    found[BOOSTED] = evaluate(boosted_laws(first.laws, seen, wanted), wanted)
    naive = evaluate(posteriors(main, [(case, naive_channels(case, before, n)) for case in sent], before), wanted)
    limits = None if before == "open" else empirical_bounds(cases, n)
    exact = exact_gains(start, cases, before) if counted else []
    steps = []
    for k in range(1, after + 1):
        here = {name: one for name, one in found.items() if name not in (TRAINED, BOOSTED) or k in trained_at(after)}
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
