"""Anchor types: where somebody lives, as all pairs of a home and a work; and people who were seen, as types.

Types of people (`fitting`) describe how people read; they cannot say where each of many people goes again and again. An
anchor type is a pair of sources, h and w:

    p(x | h, w, last) = (1 - l) P(x | last) + l (a [x = h] + (1 - a) [x = w])

P is the population, first order; l and a are numbers for each of three cases: `last` is h, is w, is another source (or
there was none). These six, P and the weights of all N (N - 1) pairs are fitted by EM over people. The weights are
shrunk to a product of a weight of h and one of w, so that no pair is impossible.

The likelihood of a person's requests under all pairs at once is a sum of a term for h, one for w and one for the two
together, so that a round of EM takes N^2 operations a person, not N^2 for each request.

With people as types, each person who was seen is a type of their own besides: counts shrunk to where that person goes,
and to P. What one type mixes with P is sparse, so that 22,350 pairs of 150 sources are kept in 100 MB (`common` laws).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onoff.errors import InvalidModel
from onoff.model.context_tree import all_contexts
from onoff.model.fitting import FIT_TOLERANCE, TO_PARENT, RequestTokens
from onoff.model.rows import Floats

OTHER, HOME, WORK = range(3)
"""What the last request was; and what the present one is: neither, h, or w."""
MOST_ANCHOR_ROUNDS = 40
PRIOR_PEOPLE = 0.5
"""People, as a share of those seen, that the product prior of the weights is worth."""
MOST_COUNTED = 4_000_000
"""Numbers of a batch of people that are worked on at a time."""
MOST_PEOPLE_AS_TYPES = 600
"""Of more people, those with the most requests."""
OWN_TRUST, OWN_WEIGHT, OWN_HALF = 15.0, 0.88, 3.0
"""Of a person as a type: requests that "where the person goes" is worth, and the share of what is the person's own."""
LEAST_REQUESTS_AS_TYPE = 20
MOST_ANCHOR_BYTES = 8 * 2**30
"""Memory that a session of the model may take, estimated."""


def check_anchors_fit(n: int, people: int = 0) -> int:
    """Bytes that a session of all anchors takes, roughly. Raises InvalidModel where they do not fit."""
    types = n * (n - 1) + min(people, MOST_PEOPLE_AS_TYPES)
    laws = types * (n + 1) * 80
    beliefs = 8 * types * n * max(2, n // 2)  # sets of up to half of all sources
    if laws + 2 * beliefs > MOST_ANCHOR_BYTES:
        raise InvalidModel(
            f"{types:,} anchor types of {n} sources take about {(laws + 2 * beliefs) / 2**30:.1f} GB, and a request "
            f"about {types * n * (n / 2) ** 2 * 1e-9:.0f} s",
            hint=f"{MOST_ANCHOR_BYTES / 2**30:.0f} GB are used at most: put rare sources together (--merge-rare)",
        )
    return laws + beliefs


@dataclass(frozen=True)
class Anchored:
    """All anchors as they were fitted, with people as types besides, or none.

    population: P, a row for each last request, the first for none; shape (N + 1, N). mixing: l of each case; homeward:
    a of each. weights: of the pairs, shape (N, N). people: counts of those who are types, shape (people, N + 1, N).
    share: the weight of people together.
    """

    population: Floats
    mixing: Floats
    homeward: Floats
    weights: Floats
    people: Floats
    share: float = 0.0

    @property
    def types(self) -> int:
        """How many types there are."""
        return int((self.weights > 0).sum()) + len(self.people)

    def logs(self, tokens: RequestTokens) -> Floats:
        """The log likelihood of the requests of each of other people."""
        found: list[Floats] = []
        n = self.population.shape[1]
        own = _person_laws(self.people, self.population) if len(self.people) else None
        for counts in _batches(tokens, n):
            joint = _likelihoods(counts, self._logs()) + _log(self.weights * (1 - self.share))
            joint = joint.reshape(len(counts), -1)
            if own is not None:
                theirs = counts.reshape(len(counts), -1) @ np.log(own.reshape(len(own), -1)).T
                joint = np.hstack([joint, theirs + np.log(self.share / len(own))])
            most = joint.max(axis=1, keepdims=True)
            found.append(most[:, 0] + np.log(np.exp(joint - most).sum(axis=1)))
        return np.concatenate(found)

    def _logs(self) -> Floats:
        return _log(_laws(self.population, self.mixing, self.homeward))

    def arguments(self) -> dict[str, Any]:
        """Laws, contexts and weights as RequestModel takes them."""
        from scipy.sparse import csr_matrix, vstack

        n = self.population.shape[1]
        home, work = np.nonzero(self.weights > 0)
        last = np.arange(-1, n)
        case = np.where(last == home[:, None], HOME, np.where(last == work[:, None], WORK, OTHER))
        mixing, homeward = self.mixing[case], self.homeward[case]
        states = case.size
        places = np.stack(np.broadcast_arrays(home[:, None], work[:, None]), axis=2)
        values = np.stack([mixing * homeward, mixing * (1 - homeward)], axis=2)
        places, values = (np.array(np.broadcast_to(a, (len(home), n + 1, 2))).reshape(-1) for a in (places, values))
        own = csr_matrix((values, places, np.arange(0, 2 * states + 1, 2)), shape=(states, n))
        own.sort_indices()
        shares, weights = 1 - mixing, self.weights[home, work] * (1 - self.share)
        if len(self.people):
            parts, left = _person_parts(self.people)
            own = vstack([own, csr_matrix(parts.reshape(-1, n))]).tocsr()
            shares = np.vstack([shares, left])
            weights = np.append(weights, np.full(len(parts), self.share / len(parts)))
        found = {"contexts": all_contexts(n, 1), "weights": weights / weights.sum(), "order": 1}
        return {**found, "laws": own, "backoff": shares, "common": self.population}


def fit_anchors(tokens: RequestTokens, *, share: float = 0.0) -> Anchored:
    """Fit all anchors to people, by EM.

    share: The weight of people as types, besides; 0 for none.

    Raises
    ------
    InvalidModel
        Where all anchors of so many sources do not fit.
    """
    n = tokens.n
    people = int((tokens.requests > 0).sum())
    check_anchors_fit(n, people if share else 0)
    everyone = sum(counts.sum(axis=0) for counts in _batches(tokens, n)) + np.zeros((n + 1, n))
    population = _shrunk(everyone)
    mixing, homeward = np.array([0.3, 0.5, 0.5]), np.array([0.5, 0.7, 0.3])
    weights = _with_prior(np.zeros((n, n)), np.full((n, n), 1.0))
    before = np.inf
    for _ in range(MOST_ANCHOR_ROUNDS):
        laws = _laws(population, mixing, homeward)
        likely, assigned, requests, shares = _expected(tokens, laws, weights)
        bits = -likely / max(1, int(tokens.told.sum())) / float(np.log(2))
        alone = np.stack([population * (1 - mixed) for mixed in mixing])
        explained = assigned * (1 - alone[:, None] / np.maximum(laws[:, 1:], 1e-300))
        by_case = explained.sum(axis=(2, 3))
        mixing = (by_case.sum(axis=1) + 0.5) / (requests + 1)
        homeward = (by_case[:, 0] + 0.5) / (by_case.sum(axis=1) + 1)
        population = _shrunk(everyone - explained.sum(axis=(0, 1)))
        weights = _with_prior(shares, shares)
        if before - bits < FIT_TOLERANCE:
            break
        before = bits
    kept = _people_as_types(tokens, n) if share else np.zeros((0, n + 1, n))
    return Anchored(population, mixing, homeward, weights, kept, share if len(kept) else 0.0)


# -- parts -----------------------------------------------------------------------------------------------------


def _batches(tokens: RequestTokens, n: int) -> Iterator[Floats]:
    """How often each of some people asked for x after `last` (first row: after nothing); shape (people, N + 1, N)."""
    people = tokens.people[tokens.told]
    before = np.concatenate([[0], tokens.sources[:-1] + 1])
    last = np.where(tokens.place == 0, 0, before)[tokens.told]
    source = tokens.sources[tokens.told]
    order = np.argsort(people, kind="stable")
    people, last, source = people[order], last[order], source[order]
    step = max(1, MOST_COUNTED // ((n + 1) * n))
    for first in range(0, int(people.max(initial=-1)) + 1, step):
        lo, hi = np.searchsorted(people, [first, first + step])
        size = min(step, int(people.max()) + 1 - first)
        counts = np.zeros((size, n + 1, n))
        np.add.at(counts, (people[lo:hi] - first, last[lo:hi], source[lo:hi]), 1)
        yield counts


def _shrunk(counts: Floats) -> Floats:
    """P: the rows of counts, shrunk to how often each source is asked for at all."""
    usual = counts.sum(axis=0) + 1.0
    usual /= usual.sum()
    return np.asarray((counts + TO_PARENT * usual) / (counts.sum(axis=1, keepdims=True) + TO_PARENT))


def _laws(population: Floats, mixing: Floats, homeward: Floats) -> Floats:
    """p by what the last request was, and what the present one is; shape (3, 3, N + 1, N)."""
    extra = np.stack([np.zeros(3), mixing * homeward, mixing * (1 - homeward)], axis=1)
    return np.asarray((1 - mixing)[:, None, None, None] * population + extra[:, :, None, None])


def _log(laws: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(laws))


def _likelihoods(counts: Floats, logs: Floats) -> Floats:
    """log p(requests of a person | h, w) for all pairs; shape (people, h, w). Of h = w nothing is meant."""
    plain = logs[OTHER, 0]
    extra = logs - plain
    inner = counts[:, 1:]
    found = np.einsum("icx,cx->i", counts, plain, optimize=True)[:, None, None]
    itself = np.einsum("ixx->ix", inner)

    def alone(kind: int) -> Floats:
        """What h (or w) adds by itself: requests of it from elsewhere, any after it, and it again."""
        to, of = extra[OTHER, kind], extra[kind, 0, 1:]
        found = np.einsum("icx,cx->ix", counts, to, optimize=True) + np.einsum("icx,cx->ic", inner, of, optimize=True)
        again = np.diagonal(extra[kind, kind, 1:]) - np.diagonal(to[1:]) - np.diagonal(of)
        return np.asarray(found + itself * again)

    there = (extra[HOME, WORK] - extra[HOME, 0] - extra[OTHER, WORK])[1:]
    back = (extra[WORK, HOME] - extra[WORK, 0] - extra[OTHER, HOME])[1:]
    both = inner * there + (inner * back).transpose(0, 2, 1)
    return np.asarray(found + alone(HOME)[:, :, None] + alone(WORK)[:, None, :] + both)


def _expected(tokens: RequestTokens, laws: Floats, weights: Floats) -> tuple[float, Floats, Floats, Floats]:
    """The E step: the log likelihood; requests of h and w by case (3, 2, N + 1, N); requests by case; weights."""
    n = tokens.n
    likely, assigned, by_case, shares = 0.0, np.zeros((3, 2, n + 1, n)), np.zeros(3), np.zeros((n, n))
    logs, prior = _log(laws), _log(weights)
    every = np.arange(n)
    for counts in _batches(tokens, n):
        joint = _likelihoods(counts, logs) + prior
        most = joint.max(axis=(1, 2), keepdims=True)
        r = np.exp(joint - most)
        total = r.sum(axis=(1, 2), keepdims=True)
        r /= total
        there = counts.any(axis=(1, 2))
        likely += float((most + np.log(total)).reshape(-1)[there].sum())
        shares += r[there].sum(axis=0)
        home, work, inner = r.sum(axis=2), r.sum(axis=1), counts[:, 1:]
        ahead = np.einsum("icx,icx->cx", inner, r)
        back = np.einsum("icx,ixc->cx", inner, r)
        for kind, mine, less in ((0, home, back), (1, work, ahead)):
            whole = np.einsum("icx,ix->cx", counts, mine)
            assigned[1 + kind, kind, 1 + every, every] += whole[1 + every, every]
            whole[1 + every, every] = 0
            less = less.copy()
            less[every, every] = 0
            whole[1:] -= less
            assigned[OTHER, kind] += np.maximum(whole, 0)
        ahead[every, every] = back[every, every] = 0
        assigned[HOME, 1, 1:] += ahead
        assigned[WORK, 0, 1:] += back
        left = inner.sum(axis=2)
        at_home, at_work = float((left * home).sum()), float((left * work).sum())
        by_case += np.array([counts.sum() - at_home - at_work, at_home, at_work])
    return likely, assigned, by_case, shares


def _with_prior(shares: Floats, marginals: Floats) -> Floats:
    """Weights of pairs, shrunk to the product of the weights of h and w; none where h = w."""
    people = max(1.0, float(shares.sum()))
    home, work = marginals.sum(axis=1) + 1, marginals.sum(axis=0) + 1
    product = np.outer(home / home.sum(), work / work.sum())
    np.fill_diagonal(product, 0)
    found = shares + PRIOR_PEOPLE * people * product / product.sum()
    np.fill_diagonal(found, 0)
    return np.asarray(found / found.sum())


# -- people as types -------------------------------------------------------------------------------------------


def _people_as_types(tokens: RequestTokens, n: int) -> Floats:
    chosen = np.argsort(-tokens.requests, kind="stable")[:MOST_PEOPLE_AS_TYPES]
    chosen = np.sort(chosen[tokens.requests[chosen] >= LEAST_REQUESTS_AS_TYPE])
    if not len(chosen):
        return np.zeros((0, n + 1, n))
    some = np.zeros(len(tokens.requests), dtype=bool)
    some[chosen] = True
    return np.concatenate(list(_batches(tokens.of_people(some), n)))


def _person_parts(counts: Floats) -> tuple[Floats, Floats]:
    """Of people as types: their own parts, and the share that each row leaves to the population."""
    single = counts.sum(axis=1)
    h = single.sum(axis=1)[:, None]
    own = OWN_WEIGHT * h / (h + OWN_HALF)
    left = counts.sum(axis=2) + OWN_TRUST
    goes = OWN_TRUST * single / (h + 1)
    parts = own[:, :, None] * (counts + goes[:, None, :]) / left[:, :, None]
    return parts, 1 - own + own * OWN_TRUST / (h + 1) / left


def _person_laws(counts: Floats, population: Floats) -> Floats:
    parts, left = _person_parts(counts)
    return np.asarray(parts + left[:, :, None] * population)
