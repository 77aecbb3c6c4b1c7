"""The filter for any model: what the queries so far tell about type and context, for every hidden value.

    U        the last `hide` private requests; u over all that is possible
    h        a state (type, context) of the model
    B_u(h)   public: p(h | U = u, queries so far)
    w_u      public: p(U = u | queries so far)

Rows        p(x | u) = sum over h of B_u(h) p(x | h).
OFF         the table couples the rows; given (u, x) it draws q with probability k(q | x, u). Then
            B_u(h') ~ sum over h, x of B_u(h) p(x | h) k(q | x, u) [h' = next(h, x)]. q has the same law for every u, so
            w_u stays; from a table that may leak it becomes w_u p(q | u), and u with p(q | u) = 0 are left out.
ON          everything possible is asked. U takes in x and forgets its oldest request, which is averaged over by w.
            With topics U takes in the topic of x; a part of each topic is asked (`session.topics`), which had
            probability k(q | x, u) too.
TYPE        `TypeFilter`: U is the type, from the first request on and for good. Nothing else stays hidden.

Exact: a query depends on the past through (u, x) and earlier queries only, so its law given earlier queries is the same
for every u. One type, first order and hide = 1 is the paper's filter. Private requests older than the last `hide` can
show through the type, and through contexts longer than the requests since; `onoff audit traces` says how much.

Blind. Where the past was lost, no query for a few sources can be shown to be independent of a private request that is
no longer known: with types, every later request tells something about every earlier one. So everything is
asked until a request is private again, which is then the one that must stay hidden. A model of one type and first order
has no such state: there one request separates all that follows from all that was before.

Where the rows are raced, not tabled, the filter takes the winner of every row as known (see `Winners`).

Rounding. Beliefs are floats, without subtraction, so that the relative error of an entry grows by at most 2**-53 for
each operation behind it; rows are rounded to units once per step. `rounding` counts both, and bounds the joint law of
hidden value and queries, not the rows after queries that are next to impossible (see `Memory`).

A belief is kept for pairs of a hidden value and a context that is possible with it, each with a number for every type
(`Beliefs`): few pairs, many types. In a journal it takes 8 bytes a number, compressed: types x |last query| x |the one
before| numbers for each of the N^hide hidden values at most. For 17 sources and 48 types it was 9 to 24 KB, and 150 KB
once; 2,450 anchors of 50 sources take up to 20 MB. What would be larger than LARGEST_STORED is not kept: after a crash
everything is asked.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from onoff.errors import InvalidModel, UnknownScheme
from onoff.model.contexts import RequestModel
from onoff.model.rows import FLOAT_ERROR, Floats, Integers, Rows, units_of
from onoff.schemes.race import Drawn, Winners
from onoff.session.topics import TopicsDrawn
from onoff.system.kernels import kernel
from onoff.tables.table import QueryTable

MOST_FILTERED_CELLS = 2**24
"""Hidden values times sources of the rows at most."""
LARGEST_STORED = 24 * 2**20
"""Bytes of a state that a journal keeps at most."""
MOST_BELIEF_BYTES = 4 * 2**30
"""Memory that the beliefs may take, with what one step needs besides."""
_HEAD = struct.Struct("<4sIQQQIQ")  # mark, hide, secret_row, rounding, M, requests in u, pairs
_MARK = b"OOF2"
_BLIND_MARK = b"OOB2"


@dataclass(frozen=True, eq=False)
class Beliefs:
    """B_u(z, c) for every u, as numbers for every type of the pairs (u, c) that have any.

    row, context: of each pair, ascending by both. mass: shape (pairs, types). height: how many u. contexts: how many c.
    """

    row: Integers
    context: Integers
    mass: Floats
    height: int
    contexts: int

    @classmethod
    def of(cls, law: Floats, contexts: int) -> Beliefs:
        """The beliefs whose `toarray` is `law`."""
        by_pair = law.reshape(len(law), -1, contexts).transpose(0, 2, 1)
        row, context = np.nonzero(by_pair.any(axis=2))
        return cls(row, context, by_pair[row, context], len(law), contexts)

    def toarray(self) -> Floats:
        """Shape (u, types * contexts)."""
        found = np.zeros((self.height, self.contexts, self.mass.shape[1]))
        found[self.row, self.context] = self.mass
        return found.transpose(0, 2, 1).reshape(self.height, -1)

    def totals(self) -> Floats:
        """The sum over type and context for every u."""
        return np.asarray(np.bincount(self.row, self.mass.sum(axis=1), minlength=self.height), dtype=np.float64)

    def of_rows(self, rows: Integers) -> Beliefs:
        """Those of some u, ascending, numbered anew."""
        place = np.full(self.height, -1)
        place[rows] = np.arange(len(rows))
        some = place[self.row] >= 0
        return Beliefs(place[self.row[some]], self.context[some], self.mass[some], len(rows), self.contexts)

    def mixed(self, model: RequestModel) -> Floats:
        """p(x | u) = sum over z and c of B_u(z, c) p(x | z, c), for every u and x."""
        if model.is_sparse and model.common is None:  # of many contexts, and few types
            from scipy.sparse import csr_matrix

            states = self.context[:, None] + np.arange(self.mass.shape[1]) * self.contexts
            starts = np.searchsorted(self.row, np.arange(self.height + 1)) * self.mass.shape[1]
            shape = (self.height, states.shape[1] * self.contexts)
            return model.mixtures(csr_matrix((self.mass.reshape(-1), states.reshape(-1), starts), shape=shape))
        found = np.zeros((self.height, model.n))
        for context, some in _together(self.context):
            found[self.row[some]] += model.mixed(context, self.mass[some])
        return found

    def stepped(self, model: RequestModel, columns: Integers, chance: Floats, rows: Integers, height: int) -> Beliefs:
        """What follows: sum over z, c of B(z, c) p(x | z, c) chance[pair, x], for each x of `columns`.

        rows: The new row of each pair and x, below `height`.
        """
        context = model.next(self.context[:, None], columns[None])
        pairs, target = np.unique(np.where(chance > 0, rows * self.contexts + context, -1), return_inverse=True)
        target = target.reshape(chance.shape)
        if pairs[0] < 0:
            pairs, target = pairs[1:], target - 1
        size = 8 * model.types * (len(pairs) + len(self.row) + model.n * 2)
        if size > MOST_BELIEF_BYTES:
            raise InvalidModel(
                f"beliefs about {model.types} types take {size / 2**30:.1f} GB",
                hint="hide fewer requests, or take a model with fewer types or a shorter order",
            )
        mass = np.zeros((len(pairs), model.types))
        for number, some in _together(self.context):
            law = np.ascontiguousarray(model.block(number)[columns])
            _add_steps(self.mass, law, chance, target, np.asarray(some), mass)
        there = mass.any(axis=1)
        if not there.all():
            pairs, mass = pairs[there], mass[there]
        return Beliefs(*np.divmod(pairs, self.contexts), mass, height, self.contexts)


def _together(context: Integers) -> list[tuple[int, Integers]]:
    """The places of each number."""
    order = np.argsort(context, kind="stable")
    numbers, first = np.unique(context[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))


@kernel
def _add_steps(mass: Any, law: Any, chance: Any, target: Any, some: Any, found: Any) -> None:
    """found[target[p, j], z] += mass[p, z] law[j, z] chance[p, j], for each p of `some` and each j with a target."""
    types = mass.shape[1]
    for p in some:
        for j in range(law.shape[0]):
            at = target[p, j]
            if at >= 0:
                factor = chance[p, j]
                for z in range(types):
                    found[at, z] += mass[p, z] * law[j, z] * factor


@dataclass(frozen=True)
class ModelFilter:
    """What must stay hidden (secret), and for each of its values the belief about type and context (public).

    us: the hidden values, oldest request first; shape (M, at most `hide`). weights: p(u | queries); shape (M,).
    belief: B_u for every u. label: what of each source is hidden: its topic; None: itself.
    """

    model: RequestModel = field(repr=False)
    us: Integers = field(repr=False, compare=False)
    weights: Floats = field(repr=False, compare=False)
    belief: Beliefs = field(repr=False, compare=False)
    secret_row: int = field(default=0, repr=False)
    hide: int = 1
    rounding: int = 0
    lasting: bool = False
    blind: bool = False
    label: Integers | None = field(default=None, repr=False, compare=False)

    @classmethod
    def start(cls, model: RequestModel, hide: int = 1, context: int = 0, label: Integers | None = None) -> ModelFilter:
        """Nothing is hidden: before the first request, or after open ones that led to `context`."""
        where = np.zeros(1, dtype=np.int64), np.full(1, context, dtype=np.int64)
        belief = Beliefs(*where, model.weights[None], 1, len(model.contexts))
        return cls(model, np.zeros((1, 0), dtype=np.int64), np.ones(1), belief, hide=hide, label=label)

    @classmethod
    def after_everything(
        cls, model: RequestModel, wanted: int, hide: int = 1, label: Integers | None = None
    ) -> ModelFilter:
        """After everything was asked and nothing older is known: a session that starts with a private request."""
        every = np.arange(model.n, dtype=np.int64)
        first = model.block(0) * model.weights
        law = first.sum(axis=1)
        first[law == 0] = model.weights  # impossible first requests tell nothing about the type
        values, index = np.unique(every if label is None else label, return_inverse=True)
        weights = np.bincount(index, np.where(law > 0, law, law[law > 0].min()))
        pairs, place = np.unique(
            index * len(model.contexts) + model.next(np.zeros_like(every), every), return_inverse=True
        )
        mass = np.zeros((len(pairs), model.types))
        np.add.at(mass, place, first)
        belief = Beliefs(*np.divmod(pairs, len(model.contexts)), mass, len(values), len(model.contexts))
        found = cls(model, values[:, None], weights / weights.sum(), belief, int(index[wanted]), hide, label=label)
        return found._normalised(belief, lasting=True)

    # -- the interface of a memory -------------------------------------------------------------------------

    @cached_property
    def rows(self) -> Rows:
        """Worked out when first needed: a query can be sent before the rows of the one after it are known."""
        cells = len(self.us) * self.model.n
        if cells > MOST_FILTERED_CELLS:
            raise InvalidModel(
                f"{len(self.us)} hidden values over {self.model.n} sources take {cells * 16 / 2**30:.1f} GB",
                hint=f"at most {MOST_FILTERED_CELLS} cells are kept: hide fewer requests, or take fewer sources",
            )
        law = self.belief.mixed(self.model)
        reached = np.flatnonzero(law.any(axis=0))
        return Rows.from_integers(units_of(law[:, reached]), self.model.n, reached)

    @cached_property
    def key(self) -> Hashable | None:
        rows = self.rows
        parts = (rows.columns, rows.weights, rows.group)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).digest()

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> ModelFilter:
        if self.blind:
            return self.afresh(wanted) if private else self
        if private:
            return self._hiding(query, wanted, table)
        return self._going_on(query, table)

    def _going_on(self, query: tuple[int, ...], table: Drawn | TopicsDrawn | None) -> ModelFilter:
        """The state after a query, where U stays what it is."""
        columns = np.array(query, dtype=np.int64)
        row = self.belief.row
        # Without a table the query does not depend on what was wanted, or is the wanted source alone.
        chance = np.ones((len(self.us), len(columns))) if table is None else self._kernel(query, table)
        belief = self.belief.stepped(self.model, columns, chance[row], row[:, None], len(self.us))
        if isinstance(table, QueryTable) and table.limit is not None:
            return self._told(belief)
        return self._normalised(belief)

    def afresh(self, wanted: int) -> ModelFilter:
        return ModelFilter.after_everything(self.model, wanted, self.hide, self.label)

    def again(self, wanted: int) -> ModelFilter:
        return self

    def forgotten(self, wanted: int, *, private: bool) -> ModelFilter:
        if private or (self.model.types == 1 and self.model.order <= 1):
            return self.afresh(wanted)
        return replace(ModelFilter.start(self.model, self.hide, label=self.label), blind=True)

    def stored(self) -> bytes:
        """See `restored`; empty where it would be larger than LARGEST_STORED."""
        mark = _BLIND_MARK if self.blind else _MARK
        held = self.belief
        if held.mass.nbytes > LARGEST_STORED:
            return b""
        head = _HEAD.pack(mark, self.hide, self.secret_row, self.rounding, *self.us.shape, len(held.row))
        parts = (self.us, self.weights, held.row, held.context, held.mass)
        kinds = ("<i4", "<f8", "<i4", "<i4", "<f8")
        arrays = (np.ascontiguousarray(part, dtype=kind).tobytes() for part, kind in zip(parts, kinds, strict=True))
        return zlib.compress(head + b"".join(arrays) + self._of_this_session, 1)

    @property
    def _of_this_session(self) -> bytes:
        """What else must be the same where a state is restored."""
        return b"" if self.label is None else hashlib.sha256(self.label.tobytes()).digest()

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> ModelFilter | None:
        try:
            content, end = zlib.decompress(stored), self._of_this_session
            if not content.endswith(end):
                return None  # other topics
            content = content[: len(content) - len(end)]
            mark, hide, secret_row, rounding, m, width, pairs = _HEAD.unpack_from(content)
            types, contexts = self.model.types, len(self.model.contexts)
            sizes = (("<i4", m * width), ("<f8", m), ("<i4", pairs), ("<i4", pairs), ("<f8", pairs * types))
            arrays, at = [], _HEAD.size
            for kind, count in sizes:
                arrays.append(np.frombuffer(content, dtype=kind, count=count, offset=at))
                at += count * np.dtype(kind).itemsize
        except (zlib.error, struct.error, ValueError, MemoryError):
            return None
        if (
            mark not in (_MARK, _BLIND_MARK)
            or hide != self.hide
            or at != len(content)
            or not secret_row < m
            or width > hide
        ):
            return None
        us, weights, row, context, mass = (np.array(part, dtype=part.dtype.newbyteorder("=")) for part in arrays)
        if not (((row >= 0) & (row < m)).all() and ((context >= 0) & (context < contexts)).all()):
            return None  # compiled code follows these
        belief = Beliefs(row.astype(np.int64), context.astype(np.int64), mass.reshape(pairs, types), m, contexts)
        us = us.astype(np.int64).reshape(m, width)
        found = replace(self, us=us, weights=weights, belief=belief, secret_row=secret_row, rounding=rounding)
        return replace(found, lasting=False, blind=mark == _BLIND_MARK)

    # -- how beliefs move ----------------------------------------------------------------------------------

    def _kernel(self, query: tuple[int, ...], table: Drawn | TopicsDrawn | None) -> Floats:
        """k(q | x, u) for every u and each x of the query, up to a factor that does not depend on u and x."""
        if isinstance(table, TopicsDrawn):
            chances = [[table.chance(row, x, query) for x in query] for row in range(self.rows.distinct)]
            return np.array(chances)[self.rows.group]
        if isinstance(table, Winners):
            return np.asarray(table.won(query)[self.rows.group], dtype=np.float64)
        if not isinstance(table, QueryTable):
            raise UnknownScheme("a filter needs a table or a race", hint="use memory 'last-query' with this scheme")
        block = table.block(table.index_of(query))
        at = np.searchsorted(self.rows.columns, query)
        at = np.minimum(at, len(self.rows.columns) - 1)  # an asked source that no row can reach has no mass anyway
        given = np.maximum(self.rows.weights[:, at], 1)
        return np.asarray((block / given)[self.rows.group], dtype=np.float64)

    def _hiding(self, query: tuple[int, ...], wanted: int, table: Drawn | TopicsDrawn | None) -> ModelFilter:
        """U takes in the present request, and forgets its oldest one where it is full."""
        asked = np.array(query, dtype=np.int64)
        known = self.us[:, 1:] if self.us.shape[1] == self.hide else self.us
        rest, group = np.zeros((1, 0), dtype=np.int64), np.zeros(len(known), dtype=np.int64)
        if known.shape[1]:
            rest, group = np.unique(known, axis=0, return_inverse=True)
            group = group.reshape(-1)
        values, index = np.unique(asked if self.label is None else self.label[asked], return_inverse=True)
        held = self.belief
        mixed = replace(held, mass=held.mass * self.weights[held.row][:, None], height=len(rest))
        chance = np.ones((len(known), len(asked))) if table is None else self._kernel(query, table)
        rows = group[held.row][:, None] * len(values) + index
        found = mixed.stepped(self.model, asked, chance[held.row], rows, len(rest) * len(values))
        weights = found.totals()
        truth = int(group[self.secret_row]) * len(values) + int(index[np.searchsorted(asked, wanted)])
        if not weights[truth] > 0:  # impossible under the model, and asked because everything is always asked
            return self.afresh(wanted)
        possible = np.flatnonzero(weights)
        us = np.hstack([np.repeat(rest, len(values), axis=0), np.tile(values, len(rest))[:, None]])[possible]
        secret_row = int(np.searchsorted(possible, truth))
        weights = weights[possible] / weights.sum()
        belief = found.of_rows(possible)
        after = replace(self, us=us, weights=weights, belief=belief, secret_row=secret_row)
        # Sessions that start with everything all come to the same state.
        untouched = self.rounding == 0 and not self.us.size and self.label is None
        return after._normalised(after.belief, lasting=untouched)

    def _told(self, belief: Beliefs) -> ModelFilter:
        """The state after a query that may tell about u: w_u is now w_u p(q | u), and what it rules out is left out."""
        seen = belief.totals()
        left = np.flatnonzero(seen)
        weights = self.weights[left] * seen[left]
        after = replace(
            self,
            us=self.us[left],
            weights=weights / weights.sum(),
            belief=belief.of_rows(left),
            secret_row=int(np.searchsorted(left, self.secret_row)),
        )
        return after._normalised(after.belief)

    def _normalised(self, belief: Beliefs, *, lasting: bool = False) -> ModelFilter:
        """The state with this belief: every row scaled to sum 1, and the rounding of it all counted."""
        mass = belief.mass / belief.totals()[belief.row][:, None]
        # Sums of at most so many terms for steps, columns and totals, and a few products and quotients.
        terms = self.model.types * int(np.bincount(belief.row).max())
        counted = FLOAT_ERROR * (3 * terms + self.model.n + 8) + self.model.n
        return replace(self, belief=replace(belief, mass=mass), rounding=self.rounding + counted, lasting=lasting)


@dataclass(frozen=True)
class TypeFilter(ModelFilter):
    """Who the person is stays hidden, and nothing else: the next query has the same law for every type."""

    lifelong = True

    @classmethod
    def of_types(cls, model: RequestModel, person: int) -> TypeFilter:
        """Before the first request of a person of that type (secret)."""
        z = np.arange(model.types, dtype=np.int64)
        belief = Beliefs(z, np.zeros_like(z), np.eye(model.types), model.types, len(model.contexts))
        return cls(model, z[:, None], model.weights, belief, person)

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> ModelFilter:
        return self if self.blind else self._going_on(query, table)

    def afresh(self, wanted: int) -> ModelFilter:
        return self.after(tuple(range(self.model.n)), wanted, private=False, table=None)

    def forgotten(self, wanted: int, *, private: bool) -> ModelFilter:
        return replace(self, blind=True)  # for good: no request renews what hides a type

    @property
    def _of_this_session(self) -> bytes:
        return b"the type alone"
