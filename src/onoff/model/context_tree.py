"""ContextTree: which tuples of last requests are told apart, and how one leads to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidModel
from onoff.model.rows import Integers

Context: TypeAlias = tuple[int, ...]
LARGEST_STEPS = 2**23
"""Contexts times sources up to which every step from context to context is kept."""


class ContextTree:
    """Contexts by number, number 0 being ().

    contexts  tuples of sources, oldest request first
    parent    of each, the number of the context without its oldest request; 0 for ()
    prefix    of each, the number of the context without its latest request, which is `last`
    order     the length of the longest context allowed
    """

    def __init__(
        self, contexts: Sequence[Context], n: int, order: int | None = None, shown: Callable[[Context], str] = str
    ) -> None:
        self.contexts = tuple(contexts)
        self.n = n
        lengths = [len(context) for context in self.contexts]
        self.order = max(lengths) if order is None else int(order)
        self._numbers: dict[Context, int] = {}
        for c, context in enumerate(self.contexts):
            if context in self._numbers:
                raise InvalidModel(
                    f"contexts {self._numbers[context]} and {c} are the same", hint="give each of them once"
                )
            if any(not 0 <= x < n for x in context):
                raise InvalidModel(f"context {c} {context} names a source that is none of {n}", hint="count from 0")
            if len(context) > self.order:
                raise InvalidModel(
                    f"context {c} {shown(context)} is longer than the order {self.order}",
                    hint="leave it out, or raise the order",
                )
            self._numbers[context] = c
        if self.contexts[0] != ():
            raise InvalidModel("the first context is not ()", hint="() is the context before the first request")
        self.parent = self._linked([context[1:] for context in self.contexts], "oldest", shown)
        self.prefix = self._linked([context[:-1] for context in self.contexts], "latest", shown)
        self.last: Integers = np.array([context[-1] if context else 0 for context in self.contexts], dtype=np.int64)
        keys = self.prefix * n + self.last
        keys[0] = -1  # () comes after nothing
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        full = np.array(lengths) == self.order
        # What comes next depends on the last order - 1 requests only.
        self.tail: Integers = np.where(full, self.parent, np.arange(len(self.contexts)))

    def _linked(self, wanted: Sequence[Context], which: str, shown: Callable[[Context], str]) -> Integers:
        found = np.zeros(len(wanted), dtype=np.int64)
        for c, context in enumerate(wanted):
            number = self._numbers.get(context)
            if number is None:
                raise InvalidModel(
                    f"context {c} {shown(self.contexts[c])}: without its {which} request, {shown(context)}, it is no "
                    "context",
                    hint=f"add {shown(context)}",
                )
            found[c] = number
        return found

    def number(self, context: Context) -> int | None:
        """The number of a context, None where it is not one."""
        return self._numbers.get(context)

    @property
    def by_length(self) -> list[int]:
        """The numbers of all contexts, short ones first."""
        return sorted(range(len(self.contexts)), key=lambda c: len(self.contexts[c]))

    def next(self, context: Integers, source: npt.NDArray[np.int64] | np.int64) -> Integers:
        """The context after a request: the longest suffix of (context, source) that is one."""
        if self._steps is not None:
            return np.asarray(self._steps[context, source], dtype=np.int64)
        return self._searched(context, source)

    @cached_property
    def _steps(self) -> npt.NDArray[np.int32] | None:
        if len(self.contexts) * self.n > LARGEST_STEPS:
            return None
        every = np.arange(len(self.contexts), dtype=np.int64)[:, None]
        return self._searched(every, np.arange(self.n, dtype=np.int64)[None]).astype(np.int32)

    def _searched(self, context: Integers, source: npt.NDArray[np.int64] | np.int64) -> Integers:
        at, x = np.broadcast_arrays(self.tail[context], source)
        at = at.copy()
        found = np.zeros(at.shape, dtype=np.int64)
        open_ = np.ones(at.shape, dtype=bool)
        for _ in range(self.order):
            key = at * self.n + x
            place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
            hit = open_ & (self._keys[place] == key)
            found[hit] = self._order[place[hit]]
            open_ &= ~hit & (at != 0)
            if not open_.any():
                break
            at = self.parent[at]
        return found

    def extended(self, context: Integers, source: Integers) -> Integers:
        """The number of the context (context, source) itself; -1 where it is not one, or where `context` is -1."""
        key = np.where(context >= 0, context * self.n + source, -2)
        place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.where(self._keys[place] == key, self._order[place], -1)

    def ends_with(self, suffix: int) -> npt.NDArray[np.bool_]:
        """Which contexts are `suffix` or end with it."""
        wanted = len(self.contexts[suffix])
        found = np.arange(len(self.contexts))
        lengths = np.array([len(context) for context in self.contexts])
        while (lengths[found] > wanted).any():
            found = np.where(lengths[found] > wanted, self.parent[found], found)
        return np.asarray(found == suffix)

    def arrays(self) -> tuple[Integers, Integers]:
        """The contexts laid end to end, and where each begins."""
        lengths = [len(context) for context in self.contexts]
        items = np.array([x for context in self.contexts for x in context], dtype=np.int64)
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), items


def all_contexts(n: int, order: int) -> list[Context]:
    """Every tuple of up to `order` sources, short ones first."""
    found: list[Context] = [()]
    layer: list[Context] = [()]
    for _ in range(order):
        layer = [(*context, x) for context in layer for x in range(n)]
        found += layer
    return found


def context_named(context: Context, names: Sequence[str]) -> str:
    """A context for people, oldest request first."""
    return "(" + ", ".join(names[x] for x in context) + ")"
