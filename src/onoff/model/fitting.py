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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidModel
from onoff.model.context_tree import ContextTree
from onoff.model.rows import Floats, Integers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


# --------------------------------------------------------------------------------------------------------------------
# Requests laid end to end, as models are fitted to them: who asked, what, and in which context.
#
# A *token* is one request to be explained: its person, its source and the requests before it. Tokens that share
# person,
# context and source are counted, which is all that fitting needs:
#
#     features   the different (context, source) pairs, parents included: (parent of c, x) for every (c, x)
#     counts     how often each person made each of them, sparse


MOST_CONTEXTS = 200_000
"""Contexts of a learnt model at most."""
LEAST_SEEN = 5
"""Requests that were made in a context before it counts as one of its own."""
BYTES_PER_CONTEXT = 1000
"""Memory that a context takes while a model is fitted, roughly."""


@dataclass(frozen=True)
class RequestTokens:
    """Requests of many people.

    sources: laid end to end. people: whose each is, numbered from 0. place: where in its run, from 0: so many before it
    are its past. told: whether it is to be explained, or only says what came before.
    """

    sources: Integers
    people: Integers
    place: Integers
    told: npt.NDArray[np.bool_]
    n: int

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]], n: int) -> RequestTokens:
        """The tokens of whole sequences, one for each person."""
        listed = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
        lengths = np.array([len(sequence) for sequence in listed], dtype=np.int64)
        sources = np.concatenate([*listed, np.zeros(0, dtype=np.int64)])
        place = np.arange(len(sources)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        people = np.repeat(np.arange(len(listed)), lengths)
        return cls(sources, people, place, np.ones(len(sources), dtype=bool), n)

    @cached_property
    def requests(self) -> Integers:
        """How many requests of each person are to be explained."""
        return np.bincount(self.people[self.told], minlength=int(self.people.max(initial=-1)) + 1)

    def of_people(self, chosen: npt.NDArray[np.bool_]) -> RequestTokens:
        """The tokens of some people, who are numbered anew."""
        mine = chosen[self.people]
        number = np.cumsum(chosen) - 1
        return RequestTokens(self.sources[mine], number[self.people[mine]], self.place[mine], self.told[mine], self.n)

    # -- contexts ------------------------------------------------------------------------------------------

    def tree(self, order: int) -> ContextTree:
        """The contexts that were seen often enough: all single sources, and longer ones from LEAST_SEEN on.

        Raises InvalidModel where they are too many.
        """
        contexts: list[tuple[int, ...]] = [(), *((x,) for x in range(self.n))] if order else [()]
        tree = ContextTree(contexts, self.n, order)
        for length in range(2, order + 1):
            number = self._contexts(tree, length - 1)
            # The context before, and the source after it, which may become a longer context for the request after that.
            follows = np.flatnonzero(self.told[1:] & (self.place[1:] >= length) & (number[:-1] >= 0))
            longer = number[follows] * self.n + self.sources[follows]
            keys, seen = np.unique(longer[_length(tree, number[follows]) == length - 1], return_counts=True)
            keys = keys[seen >= LEAST_SEEN]
            count = len(contexts) + len(keys)
            if count > MOST_CONTEXTS:
                raise InvalidModel(
                    f"order {order} over {self.n} sources: {count:,} contexts were seen {LEAST_SEEN} times or more and "
                    f"take about {count * BYTES_PER_CONTEXT / 2**30:.1f} GB",
                    hint=f"at most {MOST_CONTEXTS:,} fit: --order {length - 1}, or put rare sources together: "
                    "--merge-rare",
                )
            before, last = np.divmod(keys, self.n)
            contexts += [(*tree.contexts[c], x) for c, x in zip(before.tolist(), last.tolist(), strict=True)]
            tree = ContextTree(contexts, self.n, order)
        return tree

    def _contexts(self, tree: ContextTree, longest: int) -> Integers:
        """The context of every request: of its last `longest` predecessors, the longest suffix that is one."""
        at = np.zeros(len(self.sources), dtype=np.int64)
        found = at.copy()
        before = np.concatenate([[0], self.sources[:-1]])
        for length in range(1, longest + 1):
            # A context of this length ends right before a request if one shorter ended before its predecessor.
            at = tree.extended(np.concatenate([[-1], at[:-1]]), before)
            at[self.place < length] = -1
            found = np.where(at >= 0, at, found)
        return found

    def in_contexts(self, tree: ContextTree) -> tuple[Integers, Integers, Integers]:
        """Person, context and source of every token that is to be explained."""
        context = self._contexts(tree, tree.order)[self.told]
        return self.people[self.told], context, self.sources[self.told]


@dataclass(frozen=True)
class Features:
    """The (context, source) pairs of some tokens, closed under taking the parent, and who made them how often.

    keys: context * n + source, ascending. parent: the place of (parent of the context, source); -1 for the context ().
    length: of the context. counts: people x features, each token at its own context only.
    """

    tree: ContextTree
    keys: Integers
    parent: Integers
    length: Integers
    counts: csr_matrix

    @classmethod
    def of(cls, tokens: RequestTokens, tree: ContextTree) -> Features:
        people, context, source = tokens.in_contexts(tree)
        key = context * tree.n + source
        every = [np.arange(tree.n), np.unique(key)]  # () has all sources
        for _ in range(tree.order):
            above, x = np.divmod(every[-1], tree.n)
            every.append(np.unique(tree.parent[above] * tree.n + x))
        keys = np.unique(np.concatenate(every))
        contexts, sources = np.divmod(keys, tree.n)
        parent = np.searchsorted(keys, tree.parent[contexts] * tree.n + sources)
        parent[contexts == 0] = -1
        from scipy.sparse import coo_matrix

        height = int(tokens.people.max(initial=-1)) + 1
        entries = (np.ones(len(key)), (people, np.searchsorted(keys, key)))
        counts = coo_matrix(entries, shape=(height, len(keys))).tocsr()
        return cls(tree, keys, parent, _length(tree, contexts), counts)

    @property
    def contexts(self) -> Integers:
        """The context of each feature."""
        return self.keys // self.tree.n

    @cached_property
    def _by_context(self) -> csr_matrix:
        """contexts x features, 1 where a feature is of a context."""
        from scipy.sparse import csr_matrix

        starts = np.searchsorted(self.contexts, np.arange(len(self.tree.contexts) + 1))
        ones = np.ones(len(self.keys))
        return csr_matrix((ones, np.arange(len(self.keys)), starts), shape=(len(starts) - 1, len(self.keys)))

    def totals(self, counts: Floats) -> Floats:
        """The sum of counts (types, features) over the sources of each context: (types, contexts)."""
        return np.asarray((self._by_context @ counts.T).T)

    def with_longer(self, counts: Floats) -> Floats:
        """Counts (types, features) with those of longer contexts added to their parents; () keeps its own."""
        found = counts.copy()
        for length in range(self.tree.order, 1, -1):
            at = np.flatnonzero(self.length == length)
            for row in found:
                row += np.bincount(self.parent[at], row[at], minlength=len(row))
        return found


def bits_per_request(logs: Floats, tokens: RequestTokens) -> tuple[float, float]:
    """The bits per request that people take, from the log likelihood of each, and the standard error, by person."""
    requests = tokens.requests
    bits = -logs[: len(requests)] / np.log(2)
    mean = float(bits.sum() / requests.sum())
    spread = float(((bits - mean * requests) ** 2).sum())
    return mean, float(np.sqrt(spread * len(requests) / max(1, len(requests) - 1)) / requests.sum())


def numbered(
    sequences: Iterable[Iterable[Any]], names: Sequence[str] | None
) -> tuple[list[list[int]], list[str] | None, int]:
    """Sequences of names or numbers as numbers, with the names of the sources and how many there are."""
    listed = [list(sequence) for sequence in sequences]
    seen = {source for sequence in listed for source in sequence}
    if not seen:
        raise InvalidModel("no requests to learn from", hint="give at least one sequence of sources")
    if all(isinstance(source, int | np.integer) for source in seen):
        n = max(seen) + 1 if names is None else len(names)
        if min(seen) < 0 or max(seen) >= n:
            raise InvalidModel(f"a source number outside 0 to {n - 1}", hint="name every source, or give no names")
        return [[int(x) for x in sequence] for sequence in listed], None if names is None else list(names), n
    labels = sorted(map(str, seen)) if names is None else list(names)
    position = {name: x for x, name in enumerate(labels)}
    try:
        return [[position[str(source)] for source in sequence] for sequence in listed], labels, len(labels)
    except KeyError:
        raise InvalidModel(
            "a sequence holds a source that is not among the names", hint="name every source, or give no names"
        ) from None


def _length(tree: ContextTree, contexts: Integers) -> Integers:
    lengths = np.array([len(context) for context in tree.contexts], dtype=np.int64)
    return lengths[contexts]


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

    def logs(self, tokens: RequestTokens) -> Floats:
        """The log likelihood of the requests of each of other people."""
        return self._likely(tokens)[0]

    def shares(self, tokens: RequestTokens) -> Floats:
        """How likely each of other people is of each type."""
        return self._likely(tokens)[1]

    def _likely(self, tokens: RequestTokens) -> tuple[Floats, Floats]:
        people, context, source = tokens.in_contexts(self.tree)
        keys, which = np.unique(context * self.tree.n + source, return_inverse=True)
        from scipy.sparse import coo_matrix

        logs = np.log(self.law_of(*np.divmod(keys, self.tree.n)))
        counts = coo_matrix((np.ones(len(which)), (people, which)), shape=(int(people.max()) + 1, len(keys))).tocsr()
        return _likelihood(counts @ logs.T, self.weights)

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
    shrink: float = 1.0,
    start: Floats | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Fitted:
    """The model of that order and number of types.

    shrink: How many times more than usual laws are shrunk: for few people. start: How likely each person is of each
    type, to begin with; drawn by `seed` unless given.
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
    own, backoff = _population(features, everyone, shrink)
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
    return _expect_and_maximise(features, own, backoff, types, shrink, seed, start, progress)


def _population(features: Features, counts: Floats, shrink: float) -> tuple[Floats, Floats]:
    seen = features.with_longer(counts)
    totals = features.totals(seen)
    to_parent = shrink * TO_PARENT
    own = seen / (totals + to_parent)[:, features.contexts]
    own[:, features.contexts == 0] += to_parent / (features.tree.n * (totals[:, :1] + to_parent))
    backoff = to_parent / (totals + to_parent)
    backoff[:, 0] = 0
    return own, backoff


def _expect_and_maximise(
    features: Features,
    own: Floats,
    backoff: Floats,
    types: int,
    shrink: float,
    seed: int,
    start: Floats | None,
    progress: Callable[[int, float], None] | None,
) -> Fitted:
    used = np.flatnonzero(np.diff(features.counts.tocsc().indptr))
    counts = features.counts[:, used].tocsr()
    by_feature = counts.T.tocsr()
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(types, 0.1), size=counts.shape[0]) if start is None else start
    requests, before = counts.sum(), np.inf
    for round_ in range(MOST_ROUNDS):
        weights = shares.mean(axis=0)
        kept = weights >= LEAST_WEIGHT
        shares, weights = shares[:, kept], weights[kept] / weights[kept].sum()
        expected = np.zeros((len(weights), len(features.keys)))
        expected[:, used] = (by_feature @ shares).T
        fitted = _types(features, expected, own, backoff, weights, shrink)
        logs = np.log(_laws(features, fitted)[:, used])
        found, shares = _likelihood(counts @ logs.T, weights)
        bits = -float(found.sum()) / requests / np.log(2)
        if progress is not None:
            progress(round_, bits)
        if before - bits < FIT_TOLERANCE:
            break
        before = bits
    return fitted


def _types(
    features: Features, expected: Floats, own: Floats, backoff: Floats, weights: Floats, shrink: float
) -> Fitted:
    to_parent, to_population = shrink * TO_PARENT, shrink * TO_POPULATION
    seen = features.with_longer(expected)
    totals = features.totals(seen)
    root = np.arange(totals.shape[1]) == 0
    whole = totals + to_population + np.where(root, 0, to_parent)
    parts = (seen + to_population * own) / whole[:, features.contexts]
    return Fitted(features, parts, np.where(root, 0, to_parent + to_population * backoff) / whole, weights)


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
