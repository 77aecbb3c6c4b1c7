"""The statistical audit: many sessions with real randomness, tests of independence, and a trained attacker.

It judges what cannot be enumerated: a whole installation, over HTTP. A trial is one session: the private requests X_B,
and what the server saw at each step. The number of trials is fixed in advance; there is no optional stopping.

Tests. For every step t and every private time i <= t one G-test of independence between X_i and what was seen at t,
*within* each history of what was seen before, and where there are several private times one for all of them together:

    G = 2 * sum over histories, values, sightings of  count * ln(count / expected),

with rare values and sightings of a history put together until every expected count is at least LEAST_EXPECTED, and
Williams's correction; degrees of freedom add up. Histories too rare for any table add nothing. One attacker for each
private time comes on top (see `attack`). The total error probability ALPHA is split evenly over all looks: a true
client fails a whole audit with probability at most ALPHA, up to the approximation of the law of G.

What a pass means. A test that finds nothing proves nothing. So every look tells the smallest leak that it would have
found with probability 1 - BETA: with noncentrality 2 n ln(2) bits, for the n trials in histories that count. The
audit reports the largest of these, and the attacker's advantage with an upper confidence bound; never "no leak".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onoff.errors import InvalidInput
from onoff.information import contingency, independence_g, p_value, pooled, smallest_leak
from onoff.model.contexts import Model
from onoff.model.rows import Floats, Integers
from onoff.session import Session
from onoff.session.session import SystemEntropy

ALPHA = 1e-6
BETA = 1e-6
FEWEST_SESSIONS = 100

MakeRequest = Callable[[int, bool], Hashable]
"""Makes one request and returns what the server saw of it."""
NewUser = Callable[[], AbstractContextManager[MakeRequest]]
"""A fresh user, from the first request on."""


@dataclass(frozen=True)
class Trial:
    """One session: its private requests in order, and what the server saw at each step."""

    private_sources: tuple[int, ...]
    seen: tuple[Hashable, ...]


@dataclass(frozen=True)
class Look:
    """One test. about: the private time it asks about, None for all up to t together.

    used: share of the trials in histories with a table. smallest: bits that it would have found; None where what was
    seen never varied within a history, so that in these trials it told nothing.
    """

    t: int
    about: int | None
    p: float
    used: float
    smallest: float | None

    def as_dict(self) -> dict[str, Any]:
        shown = self.smallest if self.smallest is None or math.isfinite(self.smallest) else None
        return {**asdict(self), "smallest": shown}


@dataclass(frozen=True)
class SampledAudit:
    """The outcome. level: the error probability of each look; smallest: the largest `smallest` of all looks."""

    sessions: int
    alpha: float
    level: float
    looks: tuple[Look, ...]
    attacks: tuple[Attack, ...]

    @property
    def smallest(self) -> float:
        return max((look.smallest for look in self.looks if look.smallest is not None), default=math.inf)

    @property
    def breach(self) -> str | None:
        """The first look that failed, in words."""
        for look in self.looks:
            if look.p < self.level:
                what = "the private requests" if look.about is None else f"the private request of step {look.about}"
                return f"step {look.t}: what the server sees depends on {what} (p = {look.p:.2g})"
        for one in self.attacks:
            if one.proven > 0:
                return (
                    f"step {one.about}: a trained attacker guesses this private request right {one.advantage:.2%} more "
                    f"often than from the steps before it (at least {one.proven:.2%})"
                )
        return None

    @property
    def passed(self) -> bool:
        return self.breach is None

    def as_dict(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "alpha": self.alpha,
            "looks": [look.as_dict() for look in self.looks],
            "attacks": [one.as_dict() for one in self.attacks],
            "smallest": self.smallest if math.isfinite(self.smallest) else None,
            "breach": self.breach,
        }


def collect(
    chain: Model,
    pattern: tuple[bool, ...],
    user: NewUser,
    sessions: int,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Trial]:
    """`sessions` trials of requests that follow the chain, each by a fresh user."""
    rng, trials = np.random.default_rng(), []
    for done in range(sessions):
        path = chain.sample(len(pattern), rng).tolist()
        with user() as ask:
            seen = tuple(ask(x, private) for x, private in zip(path, pattern, strict=True))
        trials.append(Trial(tuple(x for x, private in zip(path, pattern, strict=True) if private), seen))
        progress(done + 1)
    return trials


def session_user(start: Session) -> NewUser:
    """Users of a session, or of a broken twin of one, with real randomness and no wire."""

    @contextmanager
    def user() -> Iterator[MakeRequest]:
        session = start.fork(SystemEntropy())
        yield lambda x, private: session.request(x, private=private).sources

    return user


def judge_trials(
    trials: Sequence[Trial], pattern: tuple[bool, ...], *, alpha: float = ALPHA, times: Floats | None = None
) -> SampledAudit:
    """The verdict on trials. times: seconds that each step took, shape (trials, steps), for the attacker alone."""
    if len(trials) < FEWEST_SESSIONS:
        raise InvalidInput(f"{len(trials)} sessions are too few to judge", hint=f"at least {FEWEST_SESSIONS}")
    private = [t for t, status in enumerate(pattern) if status]
    questions = [(t, i) for t in range(len(pattern)) for i in _questions(private, t)]
    level = alpha / max(1, len(questions) + len(private))
    looks = tuple(_look(trials, t, i, private, level) for t, i in questions)
    wanted = np.array([trial.private_sources for trial in trials], dtype=np.int64).reshape(len(trials), len(private))
    seen = [trial.seen for trial in trials]
    attacks = tuple(attack(wanted[:, k], seen, i, level, times) for k, i in enumerate(private))
    return SampledAudit(len(trials), alpha, level, looks, attacks)


def _questions(private: Sequence[int], t: int) -> list[int | None]:
    """Which private times step t is asked about: each one so far, and all together where there are several."""
    so_far: list[int | None] = [i for i in private if i <= t]
    return [*so_far, None] if len(so_far) > 1 else so_far


def _look(trials: Sequence[Trial], t: int, about: int | None, private: Sequence[int], level: float) -> Look:
    first = sum(i <= t for i in private)
    by_history: dict[Hashable, Counter[tuple[Hashable, Hashable]]] = defaultdict(Counter)
    for trial in trials:
        wanted = trial.private_sources
        value: Hashable = wanted[:first] if about is None else wanted[private.index(about)]
        by_history[trial.seen[:t]][value, trial.seen[t]] += 1
    total, freedom, used, varied = 0.0, 0, 0, False
    for counts in by_history.values():
        whole = contingency(counts)
        varied |= whole.shape[1] > 1
        table = pooled(whole)
        statistic, degrees = independence_g(table)
        total, freedom = total + statistic, freedom + degrees
        used += int(table.sum()) if degrees else 0
    found = smallest_leak(freedom, used, level, BETA) if varied else None
    return Look(t, about, p_value(total, freedom), used / len(trials), found)


# -- a trained attacker ---------------------------------------------------------------------------------------
#
# It guesses a private request from all that the server saw, and how much better than before it. For the private request
# X_i two guessers are trained on one half of the sessions and tested on the other:
#
#     before    the commonest value of X_i for the history seen before step i (known in any case)
#     after     multinomial logistic regression on everything seen in the session: what was seen at each step and at
#               each pair of steps as indicators, the guess `before`, and how long each step took where that is known
#
# On the tested half, W sessions are guessed right only by `after`, L only by `before`; the advantage is (W - L) / n, an
# estimate of s (2 h - 1): s is how often exactly one of them is right, h how often that one is `after`. W of W + L
# bounds h and W + L of n bounds s, both after Clopper and Pearson, h with nearly all of the error probability, for it
# is h that decides the sign. `upper` holds with CONFIDENCE, and `proven`, a lower bound at the level of the whole
# audit, must not exceed zero. A poor attacker proves nothing; the regression sees what no single test asks about.

CONFIDENCE = 0.999
MOST_INDICATORS = 60
"""Values of one sighting that get an indicator of their own; the rest share one."""
SPENT_ON_S = 0.1
"""The part of the error probability of a bound on the advantage that is spent on s."""
PENALTY = 1e-2
"""Of squared coefficients, against fitting noise."""
ROUNDS = 60


@dataclass(frozen=True)
class Attack:
    """What the attacker achieved against one private request. advantage, upper, proven: see above."""

    about: int
    before: float
    after: float
    advantage: float
    upper: float
    proven: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def attack(
    wanted: Integers, seen: Sequence[tuple[Hashable, ...]], about: int, level: float, times: Floats | None = None
) -> Attack:
    """The attack on the private request `wanted` of step `about`; the first half of the sessions is for training."""
    half = len(wanted) // 2
    train, test = np.arange(half), np.arange(half, len(wanted))
    guesses = _before(wanted, [sightings[:about] for sightings in seen], half)
    features = _features(seen, guesses, times, half)
    after = _regress(features[train], wanted[train], features[test])
    right_before, right_after = guesses[test] == wanted[test], after == wanted[test]
    wins, losses, n = int((right_after & ~right_before).sum()), int((right_before & ~right_after).sum()), len(test)
    upper, proven = advantage_bounds(wins, losses, n, 1 - CONFIDENCE, level)
    advantage = (wins - losses) / n
    return Attack(about, float(right_before.mean()), float(right_after.mean()), advantage, upper, proven)


def advantage_bounds(wins: int, losses: int, n: int, miss: float, level: float) -> tuple[float, float]:
    """An upper bound that fails with probability `miss`, and a lower bound that fails with probability `level`.

    wins, losses: Sessions that only the guess after, or only the guess before, got right.
    """
    return _advantage_at_most(wins, losses, n, miss), -_advantage_at_most(losses, wins, n, level)


def _advantage_at_most(wins: int, losses: int, n: int, miss: float) -> float:
    apart, spent = wins + losses, SPENT_ON_S * miss
    h = at_most(wins, apart, miss - spent)
    s = at_most(apart, n, spent / 2) if h > 0.5 else at_least(apart, n, spent / 2)
    return s * (2 * h - 1)


def at_most(count: int, n: int, miss: float) -> float:
    """Clopper and Pearson's upper bound on a probability, from `count` of `n`."""
    from scipy.stats import beta

    return 1.0 if count == n else float(beta.isf(miss, count + 1, n - count))


def at_least(count: int, n: int, miss: float) -> float:
    """Clopper and Pearson's lower bound on a probability, from `count` of `n`."""
    return 1 - at_most(n - count, n, miss)


def _before(wanted: Integers, histories: Sequence[Hashable], half: int) -> Integers:
    """The commonest training value for each history; for one never seen, the commonest of all."""
    overall = Counter(wanted[:half].tolist()).most_common(1)[0][0]
    known: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for value, history in zip(wanted[:half].tolist(), histories, strict=False):
        known[history][value] += 1
    best = {history: counts.most_common(1)[0][0] for history, counts in known.items()}
    return np.array([best.get(history, overall) for history in histories], dtype=np.int64)


def _features(seen: Sequence[tuple[Hashable, ...]], guesses: Integers, times: Floats | None, half: int) -> Floats:
    steps = len(seen[0])
    columns: list[Sequence[Hashable]] = [guesses.tolist()]
    columns += [[sightings[t] for sightings in seen] for t in range(steps)]
    columns += [[sightings[t - 1 : t + 1] for sightings in seen] for t in range(1, steps)]
    parts = [_indicators(column, half) for column in columns]
    if times is not None:
        spread = times[:half].std(axis=0)
        parts.append((times - times[:half].mean(axis=0)) / np.where(spread > 0, spread, 1))
    parts.append(np.ones((len(seen), 1)))
    return np.concatenate(parts, axis=1)


def _indicators(column: Sequence[Hashable], half: int) -> Floats:
    common = [value for value, _ in Counter(column[:half]).most_common(MOST_INDICATORS)]
    place = {value: at for at, value in enumerate(common)}
    table = np.zeros((len(column), len(common) + 1))
    table[np.arange(len(column)), [place.get(value, len(common)) for value in column]] = 1
    return table


def _regress(features: Floats, targets: Integers, unknown: Floats) -> Integers:
    """Multinomial logistic regression by L-BFGS; the most likely value for every row of `unknown`."""
    from scipy.optimize import minimize

    values, labels = np.unique(targets, return_inverse=True)
    # sessions with equal features are one row with counts, which makes many sessions cheap
    rows, at = np.unique(features, axis=0, return_inverse=True)
    counts = np.zeros((len(rows), len(values)))
    np.add.at(counts, (at.reshape(-1), labels), 1)
    totals, shape = counts.sum(axis=1, keepdims=True), (features.shape[1], len(values))

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        scores = rows @ weights
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        gradient = rows.T @ (totals * np.exp(logs) - counts) / len(targets) + PENALTY * weights
        value = -(counts * logs).sum() / len(targets) + PENALTY / 2 * (weights**2).sum()
        return float(value), gradient.reshape(-1)

    found = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS})
    return np.asarray(values[np.argmax(unknown @ found.x.reshape(shape), axis=1)], dtype=np.int64)
