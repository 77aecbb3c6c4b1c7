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

In a journal it takes 12 bytes for each entry of the belief, compressed: types x |last query| x |the one before| entries
for each of the N^hide hidden values at most. For 17 sources and 48 types it was 9 to 24 KB, and 150 KB once. What
would be larger than LARGEST_STORED is not kept: after a crash everything is asked.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onoff.errors import InvalidModel, UnknownScheme
from onoff.model.contexts import RequestModel
from onoff.model.rows import UNIT, Floats, Integers, Rows, units_of
from onoff.schemes.race import Drawn, Winners
from onoff.tables.table import QueryTable

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MOST_FILTERED_CELLS = 2**24
"""Hidden values times sources of the rows at most."""
LARGEST_STORED = 16 * 2**20
"""Bytes of a state that a journal keeps at most."""
_HEAD = struct.Struct("<4sIQQQIQ")  # mark, hide, secret_row, rounding, M, requests in u, entries
_MARK = b"OOF1"
_BLIND_MARK = b"OOB1"
FLOAT_ERROR = UNIT >> 53
"""The relative error of one operation on floats, in units."""


@dataclass(frozen=True)
class ModelFilter:
    """What must stay hidden (secret), and for each of its values the belief about type and context (public).

    us: the hidden values, oldest request first; shape (M, at most `hide`). weights: p(u | queries); shape (M,).
    belief: sparse, row u is B_u over the states type * contexts + context.
    """

    model: RequestModel = field(repr=False)
    us: Integers = field(repr=False, compare=False)
    weights: Floats = field(repr=False, compare=False)
    belief: csr_matrix = field(repr=False, compare=False)
    secret_row: int = field(default=0, repr=False)
    hide: int = 1
    rounding: int = 0
    lasting: bool = False
    blind: bool = False

    @classmethod
    def start(cls, model: RequestModel, hide: int = 1, context: int = 0) -> ModelFilter:
        """Nothing is hidden: before the first request, or after open ones that led to `context`."""
        states = np.arange(model.types, dtype=np.int64) * len(model.contexts) + context
        belief = _csr(model.weights, np.zeros(model.types, dtype=np.int64), states, 1, model)
        return cls(model, np.zeros((1, 0), dtype=np.int64), np.ones(1), belief, hide=hide)

    @classmethod
    def after_everything(cls, model: RequestModel, wanted: int, hide: int = 1) -> ModelFilter:
        """After everything was asked and nothing older is known: a session that starts with a private request."""
        every = np.arange(model.n, dtype=np.int64)
        first = np.stack([weight * model.law(z, 0) for z, weight in enumerate(model.weights.tolist())])
        law = first.sum(axis=0)
        first[:, law == 0] = model.weights[:, None]  # impossible first requests tell nothing about the type
        weights = np.where(law > 0, law, law[law > 0].min())
        states = np.arange(model.types)[:, None] * len(model.contexts) + model.next(np.zeros_like(every), every)
        z, x = np.nonzero(first)
        belief = _csr(first[z, x], x, states[z, x], model.n, model)
        found = cls(model, every[:, None], weights / weights.sum(), belief, wanted, hide)
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
        law = self.model.mixtures(self.belief)
        reached = np.flatnonzero(law.any(axis=0))
        return Rows.from_integers(units_of(law[:, reached]), self.model.n, reached)

    @cached_property
    def key(self) -> Hashable | None:
        rows = self.rows
        parts = (rows.columns, rows.weights, rows.group)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).digest()

    def after(self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | None) -> ModelFilter:
        if self.blind:
            return self.afresh(wanted) if private else self
        if private:
            return self._hiding(np.array(query, dtype=np.int64), wanted)
        columns = np.array(query, dtype=np.int64)
        tails = _Tails.of(self.belief, self.model)
        mass = self.model.mixtures(tails.belief, columns)
        if table is not None:  # else the query does not depend on what was wanted, or is the wanted source alone
            mass *= self._kernel(query, table)[tails.row]
        belief = _csr(*tails.stepped(mass, columns, tails.row[:, None]), len(self.us), self.model)
        if isinstance(table, QueryTable) and table.limit is not None:
            return self._told(belief)
        return self._normalised(belief)

    def afresh(self, wanted: int) -> ModelFilter:
        return ModelFilter.after_everything(self.model, wanted, self.hide)

    def again(self, wanted: int) -> ModelFilter:
        return self

    def forgotten(self, wanted: int, *, private: bool) -> ModelFilter:
        if private or (self.model.types == 1 and self.model.order <= 1):
            return self.afresh(wanted)
        return replace(ModelFilter.start(self.model, self.hide), blind=True)

    def stored(self) -> bytes:
        """See `restored`; empty where it would be larger than LARGEST_STORED."""
        mark = _BLIND_MARK if self.blind else _MARK
        head = _HEAD.pack(mark, self.hide, self.secret_row, self.rounding, *self.us.shape, self.belief.nnz)
        parts = (self.us, self.weights, self.belief.indptr, self.belief.indices, self.belief.data)
        kinds = ("<i4", "<f8", "<i8", "<i8", "<f8")
        arrays = (np.ascontiguousarray(part, dtype=kind).tobytes() for part, kind in zip(parts, kinds, strict=True))
        packed = zlib.compress(head + b"".join(arrays), 1)
        return packed if len(packed) <= LARGEST_STORED else b""

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> ModelFilter | None:
        try:
            content = zlib.decompress(stored)
            mark, hide, secret_row, rounding, m, width, entries = _HEAD.unpack_from(content)
            sizes = (("<i4", m * width), ("<f8", m), ("<i8", m + 1), ("<i8", entries), ("<f8", entries))
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
        us, weights, indptr, indices, data = (np.array(part, dtype=part.dtype.newbyteorder("=")) for part in arrays)
        from scipy.sparse import csr_matrix

        try:
            belief = csr_matrix((data, indices, indptr), shape=(m, self.belief.shape[1]))
            belief.check_format(full_check=True)  # before compiled code follows the indices
        except ValueError:
            return None
        us = us.astype(np.int64).reshape(m, width)
        return ModelFilter(self.model, us, weights, belief, secret_row, hide, rounding, blind=mark == _BLIND_MARK)

    # -- how beliefs move ----------------------------------------------------------------------------------

    def _kernel(self, query: tuple[int, ...], table: Drawn | None) -> Floats:
        """k(q | x, u) for every u and each x of the query, up to a factor that does not depend on u and x."""
        if isinstance(table, Winners):
            return np.asarray(table.won(query)[self.rows.group], dtype=np.float64)
        if not isinstance(table, QueryTable):
            raise UnknownScheme("a filter needs a table or a race", hint="use memory 'last-query' with this scheme")
        block = table.block(table.index_of(query))
        at = np.searchsorted(self.rows.columns, query)
        at = np.minimum(at, len(self.rows.columns) - 1)  # an asked source that no row can reach has no mass anyway
        given = np.maximum(self.rows.weights[:, at], 1)
        return np.asarray((block / given)[self.rows.group], dtype=np.float64)

    def _hiding(self, asked: Integers, wanted: int) -> ModelFilter:
        """U takes in the present request, and forgets its oldest one where it is full."""
        known = self.us[:, 1:] if self.us.shape[1] == self.hide else self.us
        rest, group = np.zeros((1, 0), dtype=np.int64), np.zeros(len(known), dtype=np.int64)
        if known.shape[1]:
            rest, group = np.unique(known, axis=0, return_inverse=True)
            group = group.reshape(-1)
        mixed = _csr(self.weights, group, np.arange(len(group)), len(rest), len(group)) @ self.belief
        tails = _Tails.of(mixed, self.model)
        mass = self.model.mixtures(tails.belief, asked)
        row = tails.row[:, None] * len(asked) + np.arange(len(asked))
        found = _csr(*tails.stepped(mass, asked, row), len(rest) * len(asked), self.model)
        weights = np.asarray(found.sum(axis=1)).reshape(-1)
        truth = int(group[self.secret_row]) * len(asked) + int(np.searchsorted(asked, wanted))
        if not weights[truth] > 0:  # impossible under the model, and asked because everything is always asked
            return self.afresh(wanted)
        possible = np.flatnonzero(weights)
        us = np.hstack([np.repeat(rest, len(asked), axis=0), np.tile(asked, len(rest))[:, None]])[possible]
        secret_row = int(np.searchsorted(possible, truth))
        weights = weights[possible] / weights.sum()
        after = ModelFilter(self.model, us, weights, found[possible], secret_row, self.hide, self.rounding)
        untouched = self.rounding == 0 and not self.us.size  # sessions that start with ON all come to the same state
        return after._normalised(after.belief, lasting=untouched)

    def _told(self, belief: csr_matrix) -> ModelFilter:
        """The state after a query that may tell about u: w_u is now w_u p(q | u), and what it rules out is left out."""
        seen = np.asarray(belief.sum(axis=1)).reshape(-1)
        left = np.flatnonzero(seen)
        weights = self.weights[left] * seen[left]
        after = replace(
            self,
            us=self.us[left],
            weights=weights / weights.sum(),
            belief=belief[left],
            secret_row=int(np.searchsorted(left, self.secret_row)),
        )
        return after._normalised(after.belief)

    def _normalised(self, belief: csr_matrix, *, lasting: bool = False) -> ModelFilter:
        """The state with this belief: every row scaled to sum 1, and the rounding of it all counted."""
        totals = np.asarray(belief.sum(axis=1)).reshape(-1)
        sizes = np.diff(belief.indptr)
        belief.data /= np.repeat(totals, sizes)
        # Sums of at most so many terms for tails, columns and totals, and a few products and quotients.
        counted = FLOAT_ERROR * (3 * int(sizes.max()) + self.model.n + 8) + self.model.n
        return replace(self, belief=belief, rounding=self.rounding + counted, lasting=lasting)


@dataclass(frozen=True)
class _Tails:
    """Beliefs summed over what the next context does not depend on: entries by (row, type, tail of the context)."""

    belief: csr_matrix
    row: Integers
    type_: Integers
    tail: Integers
    model: RequestModel

    @classmethod
    def of(cls, belief: csr_matrix, model: RequestModel) -> _Tails:
        contexts = len(model.contexts)
        row = np.repeat(np.arange(belief.shape[0], dtype=np.int64), np.diff(belief.indptr))
        type_, context = np.divmod(belief.indices.astype(np.int64), contexts)
        key = (row * model.types + type_) * contexts + model.tree.tail[context]
        order = np.argsort(key, kind="stable")
        listed = key[order]
        first = np.flatnonzero(np.diff(listed, prepend=-1))
        starts = np.append(first, len(listed))
        above, tail = np.divmod(listed[first], contexts)
        of_row, of_type = np.divmod(above, model.types)
        from scipy.sparse import csr_matrix

        shape = (len(first), belief.shape[1])
        grouped = csr_matrix((belief.data[order], belief.indices[order], starts), shape=shape)
        return cls(grouped, of_row, of_type, tail, model)

    def stepped(self, mass: Floats, columns: Integers, row: Integers) -> tuple[Floats, Integers, Integers]:
        """Values, rows and states of what follows: entry (i, j) of `mass` is for tail i and the source columns[j]."""
        state = self.type_[:, None] * len(self.model.contexts) + self.model.next(self.tail[:, None], columns[None])
        there = mass > 0
        return mass[there], np.broadcast_to(row, mass.shape)[there], state[there]


def _csr(
    values: Floats, rows: npt.NDArray[Any], columns: npt.NDArray[Any], height: int, width: RequestModel | int
) -> csr_matrix:
    """A sparse matrix of these entries; those at the same place are added up."""
    from scipy.sparse import coo_matrix

    across = width if isinstance(width, int) else width.types * len(width.contexts)
    return coo_matrix((values, (rows, columns)), shape=(height, across)).tocsr()
