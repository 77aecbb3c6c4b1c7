"""A budget of leakage for each private request, and the odometer of what was spent of it.

    B          the budget: 2^bits, in units, rounded down
    odometers  for each private request, newest first: the product of what the tables since it may have told, each the
               sum over q of max over u of p(q | u), in units, rounded up

If for every history the sum over q of max over u of p(q_t | u, history) is at most 2^(b_t), with b_t fixed before q_t
is drawn, then over a run the maximal leakage about u is at most the sum of the b_t: the largest p(q_1 ... q_t | u) over
u is at most the product of the largest factors. So an odometer never counts too little. Where beliefs are rounded it
also counts what the rounding may have told.

Where the person is hidden (`lifelong`), who that is is one secret for life: there is one odometer, from the first
request on, and nothing renews it.

All of it is spent at the first open request after a private one; the tables after it tell nothing. A later private
request has a budget of its own; what is spent on it counts for the earlier ones too. Nothing but a private request that
is asked as such renews a budget: after a doubt all of it counts as spent. The odometer is for each private request
apart; what is told about two of them together it does not bound.

`Budgeted` is a memory around another one. What it adds is public, and part of what a journal stores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onoff.errors import InvalidInput
from onoff.model.certificate import LeakLimit, units_of_bits
from onoff.model.rows import UNIT, Rows, SparseRows
from onoff.schemes.race import Drawn
from onoff.session.filter import ModelFilter
from onoff.session.memories import BayesFilter
from onoff.session.topics import TopicsDrawn
from onoff.tables.table import QueryTable

if TYPE_CHECKING:
    from onoff.session.session import Memory

MARK = b"OOL1"
"""How what is stored begins."""
MOST_ODOMETERS = 64
"""Private requests whose odometers are kept."""
FOR_ROUNDING = 1e-9
"""Bits of a budget that a filter keeps for what rounding may tell."""


@dataclass(frozen=True)
class Budgeted:
    """A memory whose tables may tell `bits` about each private request."""

    inner: Memory
    bits: float
    odometers: tuple[int, ...] = ()

    @classmethod
    def start(cls, inner: Memory, bits: float) -> Budgeted:
        """Before the first request. Raises InvalidInput for a budget that is none, or smaller than rounding."""
        units_of_bits(bits, "leak")
        if bits <= FOR_ROUNDING and isinstance(inner, BayesFilter | ModelFilter):
            raise InvalidInput(f"leak = {bits}: less than rounding tells", hint=f"more than {FOR_ROUNDING} bits")
        return cls(inner, bits, (UNIT,) if lifelong(inner) else ())

    # -- what is spent -------------------------------------------------------------------------------------

    @property
    def spent(self) -> tuple[int, ...]:
        """For each private request, newest first, what the queries since may have told, in units; UNIT is nothing."""
        told = UNIT + 2 * self.rows.m * self.inner.rounding
        return tuple(-(-spent * told // UNIT) for spent in self.odometers)

    @property
    def whole(self) -> int:
        """The budget, in units."""
        return units_of_bits(self.bits, "leak")

    @cached_property
    def limit(self) -> LeakLimit | None:
        """What the next table may tell; None: nothing."""
        hidden = self.inner.hide if isinstance(self.inner, ModelFilter) else 1
        if not self.odometers or any(spent > UNIT for spent in self.odometers[:hidden]):
            return None
        rows = self.inner.rows
        if not isinstance(rows, Rows):
            raise InvalidInput(f"a budget of leakage among {rows.m} sources", hint="use fewer sources, or none: leak=0")
        bits = self.bits - FOR_ROUNDING if isinstance(self.inner, BayesFilter | ModelFilter) else self.bits
        weights = self.inner.weights if isinstance(self.inner, ModelFilter) else None
        return LeakLimit.of(rows, bits, weights=weights)

    # -- the interface of a memory -------------------------------------------------------------------------

    @property
    def rows(self) -> Rows | SparseRows:
        return self.inner.rows

    @property
    def secret_row(self) -> int:
        return self.inner.secret_row

    @property
    def key(self) -> Hashable | None:
        return self.inner.key

    @property
    def lasting(self) -> bool:
        return self.inner.lasting

    @property
    def rounding(self) -> int:
        return self.inner.rounding

    @property
    def blind(self) -> bool:
        return self.inner.blind

    def after(
        self, query: tuple[int, ...], wanted: int, *, private: bool, table: Drawn | TopicsDrawn | None
    ) -> Budgeted:
        inner = self.inner.after(query, wanted, private=private, table=table)
        if private and not lifelong(inner):
            return replace(self, inner=inner, odometers=(UNIT, *self.odometers)[:MOST_ODOMETERS])
        if not isinstance(table, QueryTable) or table.limit is None:
            return replace(self, inner=inner)
        told = sum(table.mass.tolist())
        return replace(self, inner=inner, odometers=tuple(-(-spent * told // UNIT) for spent in self.odometers))

    def afresh(self, wanted: int) -> Budgeted:
        return replace(self, inner=self.inner.afresh(wanted))  # `wanted` may be open: no budget is renewed

    def again(self, wanted: int) -> Budgeted:
        return replace(self, inner=self.inner.again(wanted))

    def forgotten(self, wanted: int, *, private: bool) -> Budgeted:
        # All of it may have been spent by what was lost.
        spent = tuple(max(each, self.whole) for each in self.odometers) or (self.whole,)
        return replace(self, inner=self.inner.forgotten(wanted, private=private), odometers=spent)

    def stored(self) -> bytes:
        head = json.dumps({"bits": self.bits, "odometers": self.odometers}).encode()
        return MARK + len(head).to_bytes(4, "little") + head + self.inner.stored()

    def restored(self, asked: tuple[int, ...], wanted: int, stored: bytes) -> Budgeted | None:
        if not stored.startswith(MARK):  # of a session without a budget: what is hidden from then is told no more
            inner = self.inner.restored(asked, wanted, stored)
            return None if inner is None else replace(self, inner=inner, odometers=(self.whole,))
        begin = len(MARK) + 4
        size = begin + int.from_bytes(stored[len(MARK) : begin], "little")
        try:
            head = json.loads(stored[begin:size])
            bits, odometers = head["bits"], tuple(head["odometers"])
        except (ValueError, TypeError, KeyError):
            return None
        sound = all(type(spent) is int and spent >= UNIT for spent in odometers) and len(odometers) <= MOST_ODOMETERS
        inner = self.inner.restored(asked, wanted, stored[size:])
        if not sound or inner is None or not isinstance(bits, int | float):
            return None
        found = replace(self, inner=inner, odometers=odometers)
        if bits == self.bits:
            return found
        # Another budget than before: what was hidden under the old one is told no more.
        return replace(found, odometers=tuple(max(each, self.whole) for each in odometers))


def renewed(memory: Memory) -> Memory:
    """The state with a budget for the private request that was just asked as such, whatever was lost before it."""
    if not isinstance(memory, Budgeted) or lifelong(memory):
        return memory
    return replace(memory, odometers=(UNIT, *memory.odometers)[:MOST_ODOMETERS])


def lifelong(memory: Any) -> bool:
    """Whether who the person is is hidden, which no private request renews."""
    return bool(getattr(without_budget(memory), "lifelong", False))


def without_budget(memory: Any) -> Any:
    """The memory inside, where it has a budget."""
    return memory.inner if isinstance(memory, Budgeted) else memory


def in_words(bits: float) -> str:
    """What so much leakage means for a person.

    >>> in_words(0.5)
    "0.5 bits: on average the server's best guess may become 1.41 times as likely."
    """
    return f"{bits:.3g} bits: on average the server's best guess may become {2**bits:.3g} times as likely."


def odometer_bits(units: int) -> float:
    """log2 of so many units, not less than it is."""
    bits = math.log2(units) - math.log2(UNIT)
    return bits if bits == 0 else math.nextafter(bits, math.inf)
