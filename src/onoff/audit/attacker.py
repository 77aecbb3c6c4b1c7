"""A trained attacker: guesses a private request from all that the server saw, and how much better than before it.

For the private request X_i two guessers are trained on one half of the sessions and tested on the other:

    before    the commonest value of X_i for the history seen before step i (known in any case)
    after     multinomial logistic regression on everything seen in the session: what was seen at each step and at each
              pair of steps as indicators, the guess `before`, and how long each step took where that is known

On the tested half, W sessions are guessed right only by `after`, L only by `before`; the advantage is (W - L) / n, an
estimate of s (2 h - 1): s is how often exactly one of them is right, h how often that one is `after`. W of W + L bounds
h and W + L of n bounds s, both after Clopper and Pearson, h with nearly all of the error probability, for it is h that
decides the sign. `upper` holds with CONFIDENCE, and `proven`, a lower bound at the level of the whole audit, must not
exceed zero. A poor attacker proves nothing; the regression is there because it sees what no single test asks about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onoff.model.rows import Floats, Integers

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
    """What the attacker achieved against one private request. advantage, upper, proven: see the module."""

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
