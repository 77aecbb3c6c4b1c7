"""Attackers who guess a private request X of readers, each alone and all of them stacked.

An attacker is a function from cases to the log-probability of every candidate for X, given the first k queries after X:

    bayes     Bayes' rule with a model of the readers (`observer`)
    logistic  a conditional logit on what the queries show of each candidate
    boosted   boosted trees on (case, candidate) pairs, which see every query by itself (scikit-learn)

What is learnt is learnt from other people: cases are dealt into FOLDS parts by person, and each part is guessed by what
the others taught. So is the stack, a conditional logit that starts from what was known before X and adds attackers with
weights of zero or more:

    p(x | case) ~ prior(x) exp(sum over attackers a of w_a (log p_a(x) - log prior(x)))

Weights shrink to 0, where the stack is the prior: an attacker that is too sure of itself counts for less, one that
knows nothing for nothing. The prior is a stack too: it starts from how often each value is, and adds what attackers
know before the first query.

For naive switching, and for a control, the same attackers are taught again. In the control the queries are those of
another person: whatever attackers seem to learn from these is the error of the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.audit.cases import Case, Sightings, parts_by_person
from onoff.audit.observer import Observer, View
from onoff.model.rows import Floats, Integers

FOLDS = 5
LEAST_PROBABILITY = 1e-12
"""The least probability that an attacker gives to the truth, so that a wrong guess costs a bounded number of bits."""
LIKE_ALL = 5.0
"""Cases like all others that are counted with those of each X."""
CAUTION = 1.0
"""How many standard errors of chance an attacker must gain to be listened to."""
TREES = {"max_iter": 60, "learning_rate": 0.1, "max_leaf_nodes": 8, "min_samples_leaf": 40, "l2_regularization": 5.0}
LOGISTIC, BOOSTED = "logistic", "boosted"
BOOSTED_AFTER = (1, 2, 5, 10)
"""Numbers of queries after which boosted trees are asked; after the last they always are."""


# -- what attackers go by ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Clues:
    """Cases, and what is to be seen of each.

    person: whose case it is. wanted: X. bayes: for each model, log-probabilities of X before any query and after each;
    shape (cases, queries + 1, sources). asked: whether each query after X asks for each source.
    """

    person: Integers
    wanted: Integers
    bayes: Mapping[str, Floats]
    asked: npt.NDArray[np.bool_]

    @cached_property
    def fold(self) -> Integers:
        """The part of each case; those of one person are in one part."""
        return parts_by_person(self.person, FOLDS)

    def of_others(self) -> Clues:
        """The control: each case with the queries of another person's, and what these say by Bayes' rule."""
        order = np.argsort(self.person, kind="stable")
        other = np.empty_like(order)
        other[order] = np.roll(order, len(order) // 2)
        bayes = {name: _normal(logs[:, :1] + logs[other] - logs[other][:, :1]) for name, logs in self.bayes.items()}
        return replace(self, bayes=bayes, asked=self.asked[other])


Watching: TypeAlias = Observer | Callable[[Case], Observer]
"""One observer for all cases, or one for each: who knows what the reader openly asked before."""


def gather(observers: Mapping[str, Watching], seen: Sightings, n: int) -> Clues:
    """The clues about X."""
    asked = np.zeros((len(seen), len(seen[0][0].later), n), dtype=bool)
    for i, (case, channels) in enumerate(seen):
        for j, channel in enumerate(channels[case.asked + 1 :]):
            asked[i, j, list(channel.query)] = True
    return Clues(
        np.array([case.person for case, _ in seen]),
        np.array([case.wanted for case, _ in seen]),
        {name: np.log(posteriors(observer, seen)) for name, observer in observers.items()},
        asked,
    )


def posteriors(watching: Watching, seen: Sightings) -> Floats:
    """The law of X for an observer: once X was sent, and after each query that follows.

    Returns
    -------
    Floats
        Shape (readers, queries after X + 1, sources).
    """
    depth = max((channel.depth for _, channels in seen for channel in channels if channel.of_private), default=0)
    laws: list[list[Floats]] = []
    kept: dict[tuple[tuple[int, ...], ...], View] = {}
    place: tuple[Any, ...] = ()
    for case, channels in seen:
        observer = watching if isinstance(watching, Observer) else watching(case)
        if (observer, case.asked, case.switch) != place:
            place, kept = (observer, case.asked, case.switch), {}
            in_mind = kept_in_mind(case.switch, case.asked, depth)
        view, mine = observer.start, []
        queries: tuple[tuple[int, ...], ...] = ()
        held: tuple[int, ...] = ()
        for t, channel in enumerate(channels):
            queries = (*queries, channel.query)
            now = (*held, t) if t in in_mind[t] else held
            if queries in kept:
                view = kept[queries]
            else:
                view = observer.after(view, channel, private=t in in_mind[t])
                view = view.keeping([place for place, time in enumerate(now) if time in in_mind[t]])
            held = tuple(time for time in now if time in in_mind[t])
            if t <= case.asked + 1 and case.was_private:
                kept[queries] = view
            if t >= case.asked:
                mine.append(view.about(held.index(case.asked), observer.n))
        laws.append(mine)
    return np.asarray(np.maximum(np.array(laws), LEAST_PROBABILITY), dtype=np.float64)


def kept_in_mind(switch: Sequence[bool], asked: int, depth: int) -> list[frozenset[int]]:
    """The private requests that an observer must know the joint law of, after each request.

    That which is asked about, and the last `depth` before each OFF request, among which the session hides.
    """
    private = [t for t, on in enumerate(switch) if on]
    needed: dict[int, int] = {asked: len(switch)}  # until when
    for t, on in enumerate(switch):
        if not on:
            for p in [p for p in private if p < t][-depth:] if depth else ():
                needed[p] = max(t, needed.get(p, 0))
    return [frozenset(p for p, until in needed.items() if p <= t < until) for t in range(len(switch))]


# -- the attackers -------------------------------------------------------------------------------------------

Attacker: TypeAlias = Callable[[Clues, int, Floats], Floats]
"""(clues, k, log-probabilities known before) to log-probabilities after k queries, both by case and source."""


def bayes(name: str) -> Attacker:
    """The attacker by Bayes' rule with the model `name`."""

    def guess(clues: Clues, k: int, prior: Floats) -> Floats:
        logs = clues.bayes[name]
        return logs[:, 0] if k == 0 else _normal(prior + logs[:, k] - logs[:, 0])

    return guess


def logistic(clues: Clues, k: int, prior: Floats) -> Floats:
    """The attacker by conditional logit.

    Features of a candidate: how well the queries fit it, by each model and as counted on others; whether it is in each
    query, and in all; its share of them.
    """

    def learnt(learn: Integers, test: Integers) -> Floats:
        share = _shares(clues.asked[:, :k])
        inside = (share > 0).astype(np.float64)
        features = [logs[:, k] - logs[:, 0] for logs in clues.bayes.values()]
        features += [_affinity(clues, k, learn).sum(axis=1), share.sum(axis=1), inside.prod(axis=1)]
        x = np.stack([*features, *np.moveaxis(inside, 1, 0)], axis=2)
        x /= np.maximum(x[learn].std(axis=(0, 1)), 1e-9)
        w = fit_choice(x[learn], clues.wanted[learn], prior[learn])
        return _normal(prior[test] + x[test] @ w)

    return _by_others(clues, learnt)


def boosted(clues: Clues, k: int, prior: Floats) -> Floats:
    """The attacker by boosted trees: how likely is it that this candidate, with these features, is X?

    Features of a candidate: its log-probability before, how well the queries fit it (by each model; as counted on
    others, each and all), its share of each and of all, in how many it was; the mean size of the queries; its number.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    shape = prior.shape
    asked = clues.asked[:, :k]
    known = [prior, np.broadcast_to(np.arange(shape[1]), shape)]
    known += [logs[:, k] - logs[:, 0] if k else logs[:, 0] for logs in clues.bayes.values()]
    if k:
        share = _shares(asked)
        known += [share.sum(axis=1), asked.sum(axis=1), *np.moveaxis(share, 1, 0)]
        known.append(np.broadcast_to(asked.sum(axis=2).mean(axis=1)[:, None], shape))

    def learnt(learn: Integers, test: Integers) -> Floats:
        fits = _affinity(clues, k, learn)
        features = np.stack([*known, fits.sum(axis=1), *np.moveaxis(fits, 1, 0)], axis=2)
        right = clues.wanted[learn, None] == np.arange(shape[1])
        trees = HistGradientBoostingClassifier(**TREES, early_stopping=False, random_state=0)
        with threadpool_limits(
            1
        ):  # these trees are small: threads would wait for each other, on a busy machine for long
            trees.fit(features[learn].reshape(-1, features.shape[2]), right.ravel())
            chance = trees.predict_proba(features[test].reshape(-1, features.shape[2]))[:, 1]
        return _normal(np.log(np.maximum(chance, LEAST_PROBABILITY)).reshape(len(test), -1))

    return _by_others(clues, learnt)


def attackers_of(models: Iterable[str]) -> tuple[dict[str, Attacker], tuple[str, ...]]:
    """All attackers, of which some are by Bayes' rule with given models, and the names of those not installed."""
    found = {**{name: bayes(name) for name in models}, LOGISTIC: logistic}
    if find_spec("sklearn") is None:
        return found, (BOOSTED,)
    return {**found, BOOSTED: boosted}, ()


def _by_others(clues: Clues, learnt: Callable[[Integers, Integers], Floats]) -> Floats:
    """For each part what `learnt` (from the others, for this one) returns."""
    found = np.empty((len(clues.wanted), clues.asked.shape[2]))
    for out in range(FOLDS):
        test = np.flatnonzero(clues.fold == out)
        found[test] = learnt(np.flatnonzero(clues.fold != out), test)
    return found


def _shares(asked: npt.NDArray[np.bool_]) -> Floats:
    """1 / |q| for the sources of each query."""
    return np.asarray(asked / np.maximum(asked.sum(axis=2, keepdims=True), 1), dtype=np.float64)


def _affinity(clues: Clues, k: int, learn: Integers) -> Floats:
    """How well each query fits each x: log p(query | X = x) - log p(query), its sources as if they were independent.

    Counted on the cases `learn`; each part of them is judged by the other parts, as if it were new. Shape (cases,
    queries, values).
    """
    asked = clues.asked[:, :k].astype(np.float64)
    found = np.empty_like(asked)
    inside = np.full(len(asked), -1)
    inside[learn] = clues.fold[learn]
    for out in np.unique(inside):
        known, judged = learn[inside[learn] != out], inside == out
        chosen = np.eye(asked.shape[2])[clues.wanted[known]]
        chance = (asked[known].sum(axis=0) + 0.5) / (len(known) + 1)
        together = np.einsum("cx,cqs->xqs", chosen, asked[known])
        p = (together + LIKE_ALL * chance) / (chosen.sum(axis=0)[:, None, None] + LIKE_ALL)
        yes, no = np.log(p / chance), np.log((1 - p) / (1 - chance))
        found[judged] = np.einsum("cqs,xqs->cqx", asked[judged], yes - no) + no.sum(axis=2).T
    return found


# -- conditional logit ---------------------------------------------------------------------------------------


def fit_choice(features: Floats, chosen: Integers, start: Floats, *, cautious: bool = False) -> Floats:
    """The weights w of the choice model p(x | case) ~ exp(start[case, x] + features[case, x] . w).

    The most likely ones if each was normal around 0, with variance 1, before anything was known. cautious: they are not
    negative, and not above 0 unless that gains more than CAUTION standard errors of what chance would gain.
    """
    from scipy.optimize import minimize

    case = np.arange(len(chosen))
    there = features[case, chosen].sum(axis=0)
    p = np.exp(start)[..., None]
    spread = ((p * features**2).sum(axis=1) - (p * features).sum(axis=1) ** 2).sum(axis=0)
    toll = CAUTION * np.sqrt(np.maximum(spread, 0)) if cautious else np.zeros(len(spread))

    def loss(w: Floats) -> tuple[float, Floats]:
        logs = _normal(start + features @ w)
        expected = np.einsum("ix,ixf->f", np.exp(logs), features)
        value = -logs[case, chosen].sum() + (w**2).sum() / 2 + toll @ w
        return float(value / len(case)), (expected - there + w + toll) / len(case)

    bounds = [(0, None)] * len(toll) if cautious else None
    return np.asarray(
        minimize(loss, np.zeros(len(toll)), jac=True, method="L-BFGS-B", bounds=bounds).x, dtype=np.float64
    )


def _normal(scores: Floats) -> Floats:
    """Log-probabilities from scores, over the last axis."""
    top = scores.max(axis=-1, keepdims=True)
    return np.asarray(scores - top - np.log(np.exp(scores - top).sum(axis=-1, keepdims=True)), dtype=np.float64)


# -- the stack -----------------------------------------------------------------------------------------------


def stack(clues: Clues, laws: Sequence[Floats], prior: Floats) -> Floats:
    """Log-probabilities of attackers put together, by weights that other people taught; see the module."""
    added = np.stack([logs - prior for logs in laws], axis=2)

    def learnt(learn: Integers, test: Integers) -> Floats:
        w = fit_choice(added[learn], clues.wanted[learn], prior[learn], cautious=True)
        return _normal(prior[test] + added[test] @ w)

    return _by_others(clues, learnt)


def counted(clues: Clues) -> Floats:
    """How often each value is among other people, as log-probabilities."""
    n = clues.asked.shape[2]

    def learnt(learn: Integers, test: Integers) -> Floats:
        counts = np.bincount(clues.wanted[learn], minlength=n) + 0.5
        return np.broadcast_to(np.log(counts / counts.sum()), (len(test), n))

    return _by_others(clues, learnt)


@dataclass(frozen=True, eq=False)
class Judgement:
    """How much attackers gained over what was known before, case by case.

    bits: log2 p(x | queries) - log2 p(x | known before) of the stack, x being the truth; shape (cases, queries). alone:
    for each number of queries the same of each attacker that was asked, in the mean. right: whether the best guess is
    right, before any query and after each; shape (cases, queries + 1).
    """

    person: Integers
    bits: Floats
    alone: Sequence[Mapping[str, float]]
    right: npt.NDArray[np.bool_]
    laws: Floats
    """Log-probabilities after all queries, shape (cases, sources)."""

    def gain(self, k: int) -> tuple[float, float]:
        """The mean of the bits after k queries, and its standard error.

        A weight that is estimated from n cases loses about 1 / (2 n) nats; what the stack's may have lost is counted.
        """
        mean, error = mean_by_person(self.bits[:, k - 1], self.person)
        return mean, math.hypot(error, len(self.alone[k - 1]) / (2 * len(self.bits) * math.log(2)))

    def top1(self, k: int) -> float:
        """How much more often the best guess is right after k queries."""
        return float(self.right[:, k].mean() - self.right[:, 0].mean())


def difference(ours: Judgement, theirs: Judgement, k: int) -> tuple[float, float]:
    """How much more the first gained than the second after k queries, case by case, and its standard error."""
    return mean_by_person(ours.bits[:, k - 1] - theirs.bits[:, k - 1], ours.person)


def mean_by_person(values: Floats, person: Integers) -> tuple[float, float]:
    """The mean over cases and its standard error, where cases of one person may be alike."""
    mean = float(values.mean())
    off = np.bincount(np.unique(person, return_inverse=True)[1], values - mean)
    return mean, float(math.sqrt((off**2).sum() * len(off) / max(1, len(off) - 1)) / len(values))


def bits_of(logs: Floats, wanted: Integers) -> Floats:
    """log2 of the probability of the truth, for each case."""
    return np.asarray(logs[np.arange(len(wanted)), wanted] / math.log(2), dtype=np.float64)


def known_before(clues: Clues, attackers: Mapping[str, Attacker]) -> Floats:
    """The prior: how often each value is, and what attackers know before the first query."""
    start = counted(clues)
    return stack(clues, [one(clues, 0, start) for name, one in attackers.items() if name != LOGISTIC], start)


def let_guess(clues: Clues, attackers: Mapping[str, Attacker], prior: Floats, *, only_last: bool = False) -> Judgement:
    """Let attackers guess after every number of queries; boosted trees, which take longest, after some only.

    only_last: Guess after all queries only.
    """
    wanted, before = clues.wanted, bits_of(prior, clues.wanted)
    after = clues.asked.shape[1]
    bits, right, alone, together = [], [prior.argmax(axis=1) == wanted], [], prior
    for k in range(after if only_last else 1, after + 1):
        some = [name for name in attackers if name != BOOSTED or k in (*BOOSTED_AFTER, after)]
        laws = {name: attackers[name](clues, k, prior) for name in some}
        alone.append({name: float((bits_of(logs, wanted) - before).mean()) for name, logs in laws.items()})
        together = stack(clues, list(laws.values()), prior)
        bits.append(bits_of(together, wanted) - before)
        right.append(together.argmax(axis=1) == wanted)
    return Judgement(clues.person, np.stack(bits, axis=1), alone, np.stack(right, axis=1), together)


# -- one source ----------------------------------------------------------------------------------------------


def area(scores: Floats, truth: npt.NDArray[np.bool_]) -> float:
    """The chance that a case of which it is true scores higher than one of which it is not: the area under the curve.

    >>> area(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True]))
    0.875
    """
    from scipy.stats import rankdata

    yes = int(truth.sum())
    return float((rankdata(scores)[truth].sum() - yes * (yes + 1) / 2) / (yes * (len(truth) - yes)))


def area_error(scores: Floats, truth: npt.NDArray[np.bool_], person: Integers) -> float:
    """The standard error of `area`, by people left out one part of FOLDS * 4 at a time (the jackknife)."""
    part = parts_by_person(person, FOLDS * 4)
    kept = [part != out for out in np.unique(part)]
    found = [area(scores[some], truth[some]) for some in kept if 0 < truth[some].sum() < some.sum()]
    return float(np.std(found) * math.sqrt(len(found) - 1)) if len(found) > 1 else math.nan
