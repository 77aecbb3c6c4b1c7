"""Attackers who guess a private request of readers: their laws of it after each query, and how good those are.

Bayes    the rule of Bayes with a model of the readers (`observer`)
trained  a choice model (`attacker`) that starts from the laws of a Bayes attacker and adds what the queries
         themselves show; trained on other readers (FOLDS-fold)
boosted  boosted trees (`boosting`) that start from the same laws and see more: each query by itself, and how often
         readers with each X asked for what these readers ask for; trained on other readers too
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onoff.audit.attacker import choice_law, fit_choice
from onoff.audit.boosting import boost
from onoff.audit.cases import Before, Sightings
from onoff.audit.observer import Observer, View
from onoff.model.rows import Floats, Integers

FOLDS = 5
PRIOR_READERS = 5.0
"""Readers like all others that are counted with those of each X."""
LEAST_PROBABILITY = 1e-12
"""The least probability that an attacker gives to the truth, so that a wrong guess costs a bounded number of bits."""


def posteriors(observer: Observer, seen: Sightings, before: Before, back: int = 0) -> Floats:
    """The law of a private request for an observer: before, and after each query that follows X.

    Returns
    -------
    Floats
        Shape (readers, OFF requests + 1, sources); the first of each reader is what was known once X was sent.
    """
    depth = max(1 + back, *(channel.depth for channel in seen[0][1] if channel.of_private), 0)
    laws: list[list[Floats]] = []
    kept: dict[tuple[tuple[int, ...], ...], View] = {}
    place = -1
    for case, channels in seen:
        if case.asked != place:
            place, kept = case.asked, {}
        tracked = [t for t, on in enumerate(case.private(before)) if on][-depth:]
        view, mine = observer.start, []
        history: tuple[tuple[int, ...], ...] = ()
        for t, channel in enumerate(channels):
            history = (*history, channel.query)
            view = kept[history] if history in kept else observer.after(view, channel, private=t in tracked)
            if t <= case.asked + 1 and (before == "private" or t > case.asked):
                kept[history] = view
            if t >= case.asked:
                mine.append(view.about(tracked.index(case.asked - back), observer.n))
        laws.append(mine)
    return np.asarray(np.maximum(np.array(laws), LEAST_PROBABILITY), dtype=np.float64)


@dataclass(frozen=True)
class Evaluation:
    """How well laws of a value fit the truth, for each number of queries seen (0: before any).

    bits: the gain over no query, in bits; stderr: its standard error. top1: how often the best guess is right.
    unknown: bits that are unknown before any query.
    """

    laws: Floats
    unknown: float
    bits: tuple[float, ...]
    stderr: tuple[float, ...]
    top1: tuple[float, ...]


def evaluate(laws: Floats, wanted: Integers) -> Evaluation:
    """Compare laws, shape (readers, steps, values), with the true values."""
    scores = np.log2(laws[np.arange(len(wanted)), :, wanted])
    gains = scores - scores[:, :1]
    right = laws.argmax(axis=2) == wanted[:, None]
    return Evaluation(
        laws,
        float(-scores[:, 0].mean()),
        tuple(gains.mean(axis=0).tolist()),
        tuple((gains.std(axis=0, ddof=1) / math.sqrt(len(gains))).tolist()),
        tuple(right.mean(axis=0).tolist()),
    )


def trained_at(after: int) -> list[int]:
    """For how many queries seen a choice model is trained: 0, 1, 2, 5, 10 and all."""
    return sorted({0, after, *(k for k in (1, 2, 5, 10) if k <= after)})


def _features(laws: Floats, seen: Sightings, k: int) -> Floats:
    """What a choice model knows of each value x of X after k queries, shape (readers, values, features).

    Its logarithm of probability by the Bayes attacker; how much of all, of the first and of the last query x was;
    whether it was in all of them; and an indicator for each value.
    """
    n = laws.shape[2]
    share = _shares(seen, k, n)
    by_value = [np.log(laws[:, k]), share.sum(axis=1), share[:, 0], share[:, -1], (share > 0).all(axis=1)]
    every = np.broadcast_to(np.eye(n), (len(seen), n, n))
    return np.concatenate([np.stack(by_value, axis=2), every], axis=2)


def _shares(seen: Sightings, k: int, n: int) -> Floats:
    """1 / |q| for the sources of each of the first k queries, shape (readers, max(k, 1), sources)."""
    share = np.zeros((len(seen), max(k, 1), n))
    for i, (case, channels) in enumerate(seen):
        for j, channel in enumerate(channels[case.asked + 1 : case.asked + 1 + k]):
            share[i, j, list(channel.query)] = 1 / len(channel.query)
    return share


def trained_laws(laws: Floats, seen: Sightings, wanted: Integers) -> Floats:
    """The laws of choice models that start from given laws, each trained on the readers of the other folds.

    Only for some numbers of queries; for the others the given laws are returned.
    """
    found, fold = laws.copy(), np.arange(len(wanted)) % FOLDS
    for k in trained_at(laws.shape[1] - 1):
        features, start = _features(laws, seen, k), np.log(laws[:, k])
        for out in range(FOLDS):
            learn, test = fold != out, fold == out
            found[test, k] = choice_law(
                features[test], start[test], fit_choice(features[learn], wanted[learn], start[learn])
            )
    return found


def _affinity(asked: Floats, wanted: Integers, learn: Integers) -> Floats:
    """How well each query fits each x: log p(query | X = x) - log p(query), its sources as if they were independent.

    asked: shape (readers, queries, sources), 1 where a source is asked for. Counted on the readers `learn`; those are
    dealt into FOLDS parts, and each part is judged by the others, as if it were new. Shape (readers, queries, values).
    """
    found = np.empty_like(asked)
    part = np.full(len(wanted), -1)
    part[learn] = np.arange(len(learn)) % FOLDS
    for out in range(-1, FOLDS):
        known, judged = learn[part[learn] != out], part == out
        chance = (asked[known].sum(axis=0) + 0.5) / (len(known) + 1)
        for x in range(asked.shape[2]):
            mine = known[wanted[known] == x]
            p = (asked[mine].sum(axis=0) + PRIOR_READERS * chance) / (len(mine) + PRIOR_READERS)
            odds = np.where(asked[judged] > 0, np.log(p / chance), np.log((1 - p) / (1 - chance)))
            found[judged, :, x] = odds.sum(axis=2)
    return found


def boosted_laws(laws: Floats, seen: Sightings, wanted: Integers) -> Floats:
    """The laws of boosted trees that start from given laws, each trained on the readers of the other folds.

    Features of a value x: the logarithms of its probability before and after; its share of each query and of all; in
    how many queries it was; how well each query and all of them fit it (`_affinity`); the mean size of the queries; x
    itself. Only for some numbers of queries, as `trained_laws`.
    """
    found, fold = laws.copy(), np.arange(len(wanted)) % FOLDS
    n = laws.shape[2]
    for k in trained_at(laws.shape[1] - 1)[1:]:
        share, start = _shares(seen, k, n), np.log(laws[:, k])
        asked = (share > 0).astype(np.float64)
        sizes = np.broadcast_to(asked.sum(axis=2).mean(axis=1)[:, None], start.shape)
        known = [np.log(laws[:, 0]), start, share.sum(axis=1), asked.sum(axis=1), sizes]
        known.append(np.broadcast_to(np.arange(n), start.shape))
        for out in range(FOLDS):
            learn, test = np.flatnonzero(fold != out), np.flatnonzero(fold == out)
            fits = _affinity(asked, wanted, learn)
            by_query = [np.moveaxis(part, 1, 2) for part in (share, fits)]
            features = np.concatenate([np.stack([*known, fits.sum(axis=1)], axis=2), *by_query], axis=2)
            model = boost(features[learn], wanted[learn], start[learn])
            found[test, k] = model.law(features[test], start[test])
    return np.maximum(found, LEAST_PROBABILITY)
