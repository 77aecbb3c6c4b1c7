"""Fitting a model of a given order and number of types: shrunk counts, and EM over people.

Population   p(x | c) = (n_cx + K p(x | parent of c)) / (n_c + K), for () with the uniform law instead of a parent
Types        p_z(x | c) = (n_zcx + A p_z(x | parent) + B p(x | c)) / (n_zc + A + B), n_zcx counted with the
             responsibilities r_z of whole people
EM           r_z of a person ~ weight_z * product of p_z over all requests; weight_z = mean of r_z. Until it gains less
             than TOLERANCE bits per request.

Each law is its own part plus a share left to the parent: p = own + backoff * p(parent). Of the B part, what the
population itself leaves to its parent goes to the type's parent. So only what was seen takes memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onoff.errors import InvalidModel
from onoff.model.context_tree import ContextTree
from onoff.model.rows import Floats, Integers
from onoff.model.tokens import Features, RequestTokens

TO_PARENT = 8.0
"""K and A: requests that the shorter context is worth."""
TO_POPULATION = 32.0
"""B: requests of a type that the population is worth."""
FIT_TOLERANCE = 1e-5
MOST_ROUNDS = 200
LEAST_WEIGHT = 1e-6
"""A type that fewer people belong to is left out."""
ARRAYS_PER_TYPE = 5
"""Numbers for each type and pair of a context and a source that fitting keeps at a time."""
MOST_FITTED_BYTES = 4 * 2**30
"""Memory that the types may take while they are fitted."""
MOST_DENSE_ENTRIES = 2**23
"""Entries of laws up to which they are written out; beyond, they stay as own part and share."""


@dataclass(frozen=True)
class Fitted:
    """A model as it was fitted: own parts (types, features), shares left to parents (types, contexts), weights."""

    features: Features
    own: Floats
    backoff: Floats
    weights: Floats

    @property
    def tree(self) -> ContextTree:
        """The contexts."""
        return self.features.tree

    def law_of(self, context: Integers, source: Integers) -> Floats:
        """p(x | z, c) for every type and each (context, source): shape (types, how many)."""
        tree, keys = self.tree, self.features.keys
        found = np.zeros((len(self.weights), len(context)))
        share = np.ones_like(found)
        at = context.copy()
        for _ in range(tree.order + 1):
            key = at * tree.n + source
            place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
            found += share * np.where(keys[place] == key, self.own[:, place], 0)
            share *= self.backoff[:, at]
            at = tree.parent[at]
        return found

    def bits(self, tokens: RequestTokens) -> float:
        """Bits per request that the requests of other people take."""
        people, context, source = tokens.in_contexts(self.tree)
        keys, which = np.unique(context * self.tree.n + source, return_inverse=True)
        from scipy.sparse import coo_matrix

        logs = np.log(self.law_of(*np.divmod(keys, self.tree.n)))
        counts = coo_matrix((np.ones(len(which)), (people, which)), shape=(int(people.max()) + 1, len(keys))).tocsr()
        counts = counts[np.unique(people)]
        return -float(_likelihood(counts @ logs.T, self.weights)[0].sum()) / len(people) / float(np.log(2))

    def arguments(self) -> dict[str, Any]:
        """Laws, contexts and weights as RequestModel takes them."""
        types, contexts, n = len(self.weights), len(self.tree.contexts), self.tree.n
        found: dict[str, Any] = {"contexts": self.tree.contexts, "weights": self.weights, "order": self.tree.order}
        if types * contexts * n <= MOST_DENSE_ENTRIES:
            every = np.indices((contexts, n)).reshape(2, -1)
            laws = self.law_of(every[0], every[1]).reshape(types, contexts, n)
            return {**found, "laws": laws / laws.sum(axis=2, keepdims=True)}
        from scipy.sparse import csr_matrix

        row, source = np.divmod(self.features.keys, n)
        rows = (np.arange(types)[:, None] * contexts + row).reshape(-1)
        own = csr_matrix((self.own.reshape(-1), (rows, np.tile(source, types))), shape=(types * contexts, n))
        return {**found, "laws": own, "backoff": self.backoff}


def fit(
    tokens: RequestTokens,
    order: int,
    types: int,
    *,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Fitted:
    """The model of that order and number of types.

    progress: Called after every round of EM with its number and the bits per request.

    Raises
    ------
    InvalidModel
        Where there are fewer people than types, or more contexts or types than fit in memory.
    """
    if types < 1 or order < 0:
        raise InvalidModel(f"order {order}, {types} types", hint="an order from 0 up, and at least one type")
    people = int((tokens.requests > 0).sum())
    if people < types:
        raise InvalidModel(f"{types} types of only {people} people", hint="ask for fewer types, or give more people")
    features = Features.of(tokens, tokens.tree(order))
    everyone = np.asarray(features.counts.sum(axis=0), dtype=np.float64).reshape(1, -1)
    own, backoff = _population(features, everyone)
    if types == 1:
        return Fitted(features, own, backoff, np.ones(1))
    each = 8 * (ARRAYS_PER_TYPE * len(features.keys) + 3 * features.counts.shape[0])
    if types * each > MOST_FITTED_BYTES:
        raise InvalidModel(
            f"{types} types of order {order} over {tokens.n} sources: {len(features.keys):,} pairs of a context and a "
            f"source were seen, which takes about {types * each / 2**30:.1f} GB",
            hint=f"{MOST_FITTED_BYTES / 2**30:.0f} GB are used at most: --types {max(1, MOST_FITTED_BYTES // each)}, a "
            "smaller --order, or put rare sources together: --merge-rare",
        )
    return _expect_and_maximise(features, own, backoff, types, np.random.default_rng(seed), progress)


def _population(features: Features, counts: Floats) -> tuple[Floats, Floats]:
    seen = features.with_longer(counts)
    totals = features.totals(seen)
    own = seen / (totals + TO_PARENT)[:, features.contexts]
    own[:, features.contexts == 0] += TO_PARENT / (features.tree.n * (totals[:, :1] + TO_PARENT))
    backoff = TO_PARENT / (totals + TO_PARENT)
    backoff[:, 0] = 0
    return own, backoff


def _expect_and_maximise(
    features: Features,
    own: Floats,
    backoff: Floats,
    types: int,
    rng: np.random.Generator,
    progress: Callable[[int, float], None] | None,
) -> Fitted:
    used = np.flatnonzero(np.diff(features.counts.tocsc().indptr))
    counts = features.counts[:, used].tocsr()
    by_feature = counts.T.tocsr()
    shares = rng.dirichlet(np.full(types, 0.1), size=counts.shape[0])
    requests, before = counts.sum(), np.inf
    for round_ in range(MOST_ROUNDS):
        weights = shares.mean(axis=0)
        kept = weights >= LEAST_WEIGHT
        shares, weights = shares[:, kept], weights[kept] / weights[kept].sum()
        expected = np.zeros((len(weights), len(features.keys)))
        expected[:, used] = (by_feature @ shares).T
        fitted = _types(features, expected, own, backoff, weights)
        logs = np.log(_laws(features, fitted)[:, used])
        found, shares = _likelihood(counts @ logs.T, weights)
        bits = -float(found.sum()) / requests / np.log(2)
        if progress is not None:
            progress(round_, bits)
        if before - bits < FIT_TOLERANCE:
            break
        before = bits
    return fitted


def _types(features: Features, expected: Floats, own: Floats, backoff: Floats, weights: Floats) -> Fitted:
    seen = features.with_longer(expected)
    totals = features.totals(seen)
    root = np.arange(totals.shape[1]) == 0
    whole = totals + TO_POPULATION + np.where(root, 0, TO_PARENT)
    parts = (seen + TO_POPULATION * own) / whole[:, features.contexts]
    return Fitted(features, parts, np.where(root, 0, TO_PARENT + TO_POPULATION * backoff) / whole, weights)


def _laws(features: Features, fitted: Fitted) -> Floats:
    """p of every feature: own part, and the share left to the parent, short contexts first."""
    laws = fitted.own.copy()
    for length in range(1, features.tree.order + 1):
        at = np.flatnonzero(features.length == length)
        laws[:, at] += fitted.backoff[:, features.contexts[at]] * laws[:, features.parent[at]]
    return laws


def _likelihood(logs: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The log likelihood of every person, and the posterior of the types; logs: people x types."""
    joint = logs + np.log(weights)
    most = joint.max(axis=1, keepdims=True)
    shares = np.exp(joint - most)
    total = shares.sum(axis=1, keepdims=True)
    return (most + np.log(total)).reshape(-1), shares / total
