"""Requests laid end to end, as models are fitted to them: who asked, what, and in which context.

A *token* is one request to be explained: its person, its source and the requests before it. Tokens that share person,
context and source are counted, which is all that fitting needs:

    features   the different (context, source) pairs, parents included: (parent of c, x) for every (c, x)
    counts     how often each person made each of them, sparse
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
