"""QueryTable: the masses p(q, x | u) of "ask q, want x, while the hidden value is u".

A table is *private* when p(q | u) is the same for every u, and *decodable* when x is in q wherever the mass is
positive. Both are identities between integers:

    sum over x of p(q, x | u)  ==  mass[q]      for every query q and every u     (privacy)
    sum over q of p(q, x | u)  ==  p(x | u)     for every source x and every u    (the rows are met)
    x not in q  =>  p(q, x | u) not stored                                        (decodability)

Every construction, the paper's Algorithm 1 included, is a function from rows to such a table, and nothing
else in the system knows which construction was used.

With a `LeakLimit` these take the place of the first, and the cost is an average over u by the limit's weights:

    p(q | u)  <=  mass[q]  ==  max over u of p(q | u),    sum of mass <= limit.leak,    max <= min * limit.ratio

Layout. Queries are kept as CSR: query k asks for `items[offsets[k]:offsets[k+1]]`, ascending. The j-th stored
item is a *slot*. The masses are a sparse matrix over (distinct row, slot), again CSR: row r holds `weights[c]` at
slot `slots[c]` for c in `starts[r]:starts[r+1]`, slots ascending. Everything is in units of 1/UNIT. The format
of `as_dict()` never changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onoff.errors import InvalidTable, PrivacyBreach
from onoff.model.certificate import WEIGHTS, Certificate, LeakLimit
from onoff.model.checker import check_certificate, check_limit
from onoff.model.rows import UNIT, Floats, Integers, Rows, exact_sum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from onoff.session.session import Entropy

OPTIMAL_GAP = 1e-6
"""`optimal` means that cost and lower bound meet to this relative gap."""


class QuerySource(Protocol):
    """What a session draws queries from: a table, or a construction that needs none."""

    @property
    def cost(self) -> float:
        """The expected number of messages downloaded."""
        ...

    @property
    def lower_bound(self) -> float | None:
        """A proven lower bound on the cost of every private, decodable choice of queries, where one is known."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory held."""
        ...

    def draw(self, u: int, x: int, entropy: Entropy) -> tuple[int, ...]:
        """A query for x, drawn given that the hidden value is u."""
        ...


@dataclass(frozen=True, eq=False)
class QueryTable:
    """A private, decodable table of queries for `rows`, exact in integers.

    certificate: the proof of a lower bound on the cost of every table for these rows, where there is one.
    limit: how much the table may tell about u; None: nothing.
    scheme: the name of the construction, for reports only.
    names: those of all sources, where the rows came from a model that has them; for people only.
    details: figures of the construction (rounds, seconds, ...).

    >>> from onoff.schemes import design
    >>> table = design([[0.75, 0.25], [0.25, 0.75]], "greedy")
    >>> table.queries, table.cost, table.optimal
    ([(0,), (1,), (0, 1)], 1.5, True)
    >>> table.verify()
    """

    rows: Rows
    offsets: Integers
    items: Integers
    mass: Integers
    starts: Integers
    slots: Integers
    weights: Integers
    certificate: Certificate | None = None
    scheme: str = ""
    names: tuple[str, ...] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    limit: LeakLimit | None = None

    # -- building ------------------------------------------------------------------------------------------

    @classmethod
    def from_cells(
        cls,
        rows: Rows,
        queries: Sequence[Sequence[int]],
        cells: Iterable[tuple[int, int, int, int]],
        **labels: Any,
    ) -> QueryTable:
        """A table from cells (query index, distinct row, source, weight); equal queries and cells are added up.

        Parameters
        ----------
        rows
            What the table is for.
        queries
            Sets of sources.
        cells
            Query index, distinct row, source, weight.
        """
        listed = np.array([cell for cell in cells if cell[3] > 0], dtype=np.int64).reshape(-1, 4)
        return cls.from_arrays(rows, queries, listed[:, 0], listed[:, 1], listed[:, 2], listed[:, 3], **labels)

    @classmethod
    def from_arrays(
        cls,
        rows: Rows,
        queries: Sequence[Sequence[int]],
        query: Integers,
        row: Integers,
        source: Integers,
        weight: Integers,
        **labels: Any,
    ) -> QueryTable:
        """The same from parallel arrays. Queries are sets: sorted, merged where equal, dropped where empty of mass.

        Raises InvalidTable where a cell wants a source that its query does not ask for.

        Parameters
        ----------
        rows
            What the table is for.
        queries
            Sets of sources.
        query, row, source, weight
            Of each cell.
        """
        sets = {k: tuple(sorted({int(x) for x in queries[k]})) for k in np.unique(query).tolist()}
        kept = sorted(set(sets.values()), key=lambda q: (len(q), q))
        place = {q: at for at, q in enumerate(kept)}
        renamed = np.zeros(max(len(queries), 1), dtype=np.int64)
        for k, q in sets.items():
            renamed[k] = place[q]
        sizes = np.array([len(q) for q in kept], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        items = np.array([x for q in kept for x in q], dtype=np.int64)
        return cls.from_csr(rows, offsets, items, renamed[query], row, source, weight, **labels)

    @classmethod
    def from_csr(
        cls,
        rows: Rows,
        offsets: Integers,
        items: Integers,
        query: Integers,
        row: Integers,
        source: Integers,
        weight: Integers,
        **labels: Any,
    ) -> QueryTable:
        """The same where the queries are already distinct, ascending and in CSR form; every one must get mass.

        Parameters
        ----------
        rows
            What the table is for.
        offsets, items
            The queries in CSR form.
        query, row, source, weight
            Of each cell.
        """
        from scipy.sparse import coo_array

        # A slot is found by searching (query, source) among the stored (query, item) pairs, which are ascending.
        owner = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
        keys = owner * rows.n + items
        wanted = query * rows.n + source
        slot = np.searchsorted(keys, wanted)
        missing = (slot >= len(keys)) | (keys[np.minimum(slot, len(keys) - 1)] != wanted)
        if missing.any():
            at = int(np.argmax(missing))
            raise InvalidTable(f"query {int(query[at])} holds mass for source {int(source[at])} without asking for it")
        cells = coo_array((weight, (row, slot)), shape=(rows.distinct, len(items))).tocsr()  # adds up what is equal
        starts, slots = cells.indptr.astype(np.int64), cells.indices.astype(np.int64)
        table = cls(rows, offsets, items, np.zeros(0, dtype=np.int64), starts, slots, cells.data, **labels)
        return replace(table, mass=table.mass_seen_by(0) if table.limit is None else table.largest_masses)

    def labelled(self, **labels: Any) -> QueryTable:
        """The same table with other labels (scheme, certificate, details)."""
        return replace(self, **labels)

    # -- reading -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.mass)

    def query(self, k: int) -> tuple[int, ...]:
        """The sources of query k, ascending."""
        return tuple(self.items[self.offsets[k] : self.offsets[k + 1]].tolist())

    @cached_property
    def queries(self) -> list[tuple[int, ...]]:
        """Every query, by size and then in order of its sources."""
        return [self.query(k) for k in range(len(self))]

    @property
    def sizes(self) -> Integers:
        """The number of sources of each query."""
        return np.diff(self.offsets)

    @cached_property
    def exact_cost(self) -> Fraction:
        """E|Q|, the expected number of messages downloaded, exactly."""
        if self.limit is not None:
            return Fraction(sum(map(mul, self.limit.weights, self._row_costs)), UNIT * WEIGHTS)
        return Fraction(sum(map(mul, self.mass.tolist(), self.sizes.tolist())), UNIT)

    @property
    def cost(self) -> float:
        """E|Q|, the expected number of messages downloaded: the paper's 1/R."""
        return float(self.exact_cost)

    @property
    def worst_cost(self) -> float:
        """The largest expected number of messages downloaded over u; without leakage it is the same for every u."""
        return max(self._row_costs) / UNIT

    @cached_property
    def _row_costs(self) -> list[int]:
        """The expected number of messages for each distinct row, in units."""
        sizes = self.sizes.tolist()
        return [sum(map(mul, self.mass_seen_by(r).tolist(), sizes)) for r in range(self.rows.distinct)]

    @cached_property
    def mean_masses(self) -> Floats:
        """p(q) for every query, over u by the weights of the limit; without one it is the same for every u."""
        if self.limit is None:
            return self.mass / UNIT
        of_rows = zip(self.limit.weights, range(self.rows.distinct), strict=True)
        each = [weight / WEIGHTS * self.mass_seen_by(r) / UNIT for weight, r in of_rows]
        return np.asarray(np.sum(each, axis=0), dtype=np.float64)

    @property
    def leak(self) -> float:
        """Bits of maximal leakage: log2 of the sum over q of max over u of p(q | u)."""
        return math.log2(exact_sum(self.mass, axis=0)[0] / UNIT)

    @property
    def rate(self) -> float:
        """The paper's download rate R = 1/E|Q|."""
        return 1 / self.cost

    @property
    def nbytes(self) -> int:
        """Memory that the arrays of the table take."""
        arrays = (self.offsets, self.items, self.mass, self.starts, self.slots, self.weights, self.rows.weights)
        return sum(array.nbytes for array in arrays)

    @cached_property
    def proven_bound(self) -> Fraction | None:
        """The lower bound that the certificate proves, as the checker finds it; None without a certificate.

        Raises InvalidTable where the certificate proves nothing, or is for another limit.
        """
        if self.certificate is not None and getattr(self.certificate, "limit", None) != self.limit:
            raise InvalidTable("the certificate is for another limit of leakage than the table")
        return None if self.certificate is None else check_certificate(self.rows, self.certificate)

    @property
    def lower_bound(self) -> float | None:
        """`proven_bound` as a float."""
        return None if self.proven_bound is None else float(self.proven_bound)

    @property
    def gap(self) -> float | None:
        """How far the cost may be from the least possible, relative to the lower bound; None where none is proved.

        A certificate may prove 0 or less, which says nothing: a query asks for one source at least.
        """
        bound = self.proven_bound
        return None if bound is None or bound <= 0 else float(self.exact_cost / bound - 1)

    @property
    def optimal(self) -> bool:
        """Whether cost and proven lower bound meet (to OPTIMAL_GAP)."""
        return self.gap is not None and self.gap <= OPTIMAL_GAP

    def draw(self, u: int, x: int, entropy: Entropy) -> tuple[int, ...]:
        """A query, drawn given that the hidden value is u (an original row) and that x is wanted.

        Raises InvalidTable where the rows say that x cannot be wanted given u.

        Parameters
        ----------
        u
            The hidden value, an original row.
        x
            The source that is wanted.
        entropy
            Where randomness comes from.
        """
        k, _ = self.choose(u, x, entropy)
        return self.query(k)

    def choose(self, u: int, x: int, entropy: Entropy) -> tuple[int, int]:
        """As `draw`, but the index of the query and its weight p(q, x | u).

        Parameters
        ----------
        u, x, entropy
            As for `draw`.
        """
        queries, weights = self.options(u, x)
        if not len(queries):
            raise InvalidTable("the wanted source has probability zero under the chain")
        at = entropy.choose(weights)
        return queries[at], weights[at]

    def options(self, u: int, x: int) -> tuple[list[int], list[int]]:
        """The queries that may be asked when x is wanted and u hidden, with the weights p(q, x | u)."""
        r = int(self.rows.group[u])
        cells = slice(int(self.starts[r]), int(self.starts[r + 1]))
        here = self.items[self.slots[cells]] == x
        slots = self.slots[cells][here]
        queries = np.searchsorted(self.offsets, slots, side="right") - 1
        return queries.tolist(), self.weights[cells][here].tolist()

    def posterior(self, query: Iterable[int]) -> Floats:
        """p(x | q, u) for each original u and each source x of `query`, in ascending order: shape (M, size of q).

        What the server can believe of the present request, were it told u.
        """
        k = self.index_of(query)
        block = self.block(k)
        seen = np.maximum(block.sum(axis=1, keepdims=True), 1)  # a row that cannot ask q: zeros
        return np.asarray((block / seen)[self.rows.group], dtype=np.float64)

    def index_of(self, query: Iterable[int]) -> int:
        """The number of a query given by its sources."""
        wanted = tuple(sorted(query))
        if wanted not in self._index:
            raise InvalidTable(f"{set(wanted)} is not a query of this table")
        return self._index[wanted]

    @cached_property
    def _index(self) -> dict[tuple[int, ...], int]:
        return {q: k for k, q in enumerate(self.queries)}

    def block(self, k: int) -> Integers:
        """p(q_k, x | r) for every distinct row r and each source x of query k."""
        first, last = int(self.offsets[k]), int(self.offsets[k + 1])
        block = np.zeros((self.rows.distinct, last - first), dtype=np.int64)
        for r in range(self.rows.distinct):
            lo, hi = int(self.starts[r]), int(self.starts[r + 1])
            a = lo + int(np.searchsorted(self.slots[lo:hi], first))
            b = lo + int(np.searchsorted(self.slots[lo:hi], last))
            block[r, self.slots[a:b] - first] = self.weights[a:b]
        return block

    # -- checking ------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Check every identity by integer equality; return None or raise.

        Raises InvalidTable for sums, signs, order or sources that are wrong, PrivacyBreach where p(q|u) depends on u
        (by more than the limit, where there is one).
        """
        self._verify_shape()
        for r in range(self.rows.distinct):
            lo, hi = int(self.starts[r]), int(self.starts[r + 1])
            (held,) = exact_sum(self.weights[lo:hi], axis=0)
            if held != UNIT:  # first: from here on no sum of parts of a row can overflow
                raise InvalidTable(f"row {r} holds {held} units, not {UNIT}")
            seen = self.mass_seen_by(r)
            if self.limit is None and not np.array_equal(seen, self.mass):
                k = int(np.argmax(seen != self.mass))
                u = int(np.argmax(self.rows.group == r))
                raise PrivacyBreach(
                    f"query {self.query(k)} has mass {int(seen[k])} when u = {u} and {int(self.mass[k])} otherwise"
                )
            spent = np.zeros(len(self.rows.columns), dtype=np.int64)
            at = np.searchsorted(self.rows.columns, self.items[self.slots[lo:hi]])
            np.add.at(spent, at, self.weights[lo:hi])
            if not np.array_equal(spent, self.rows.weights[r]):
                c = int(np.argmax(spent != self.rows.weights[r]))
                raise InvalidTable(
                    f"source {int(self.rows.columns[c])} gets {int(spent[c])} units in row {r}, "
                    f"not {int(self.rows.weights[r, c])}"
                )
        if self.limit is not None:
            self._verify_limit(self.limit)

    def _verify_limit(self, limit: LeakLimit) -> None:
        check_limit(self.rows, limit)
        if not np.array_equal(self.largest_masses, self.mass):
            k = int(np.argmax(self.largest_masses != self.mass))
            raise InvalidTable(f"query {self.query(k)} has mass {int(self.mass[k])}, not its largest over u")
        (told,) = exact_sum(self.mass, axis=0)
        if limit.leak is not None and told > limit.leak:
            raise PrivacyBreach(
                f"the largest masses of the queries sum to {told} units, above the {limit.leak} allowed"
            )
        if limit.ratio is not None:
            least = np.min([self.mass_seen_by(r) for r in range(self.rows.distinct)], axis=0).tolist()
            for k, (low, high) in enumerate(zip(least, self.mass.tolist(), strict=True)):
                if high * UNIT > low * limit.ratio:
                    raise PrivacyBreach(f"query {self.query(k)} has mass {low} for one u and {high} for another")

    def _verify_shape(self) -> None:
        if len(self.offsets) != len(self.mass) + 1 or self.offsets[0] != 0 or self.offsets[-1] != len(self.items):
            raise InvalidTable("the offsets do not fit the queries")
        if (np.diff(self.offsets) <= 0).any():
            raise InvalidTable("a query asks for nothing")
        inside = np.ones(len(self.items), dtype=bool)
        inside[self.offsets[:-1]] = False
        if (np.diff(self.items)[inside[1:]] <= 0).any():
            raise InvalidTable("the sources of a query are not in ascending order")
        if len(self._index) != len(self.mass):
            raise InvalidTable("two queries are the same set")
        # Indices are checked before they are used: numpy counts negative ones from the end.
        if ((self.items < 0) | (self.items >= self.rows.n)).any():
            raise InvalidTable("a query asks for a source that is no such source")
        ends = (len(self.starts), int(self.starts[0]), int(self.starts[-1]), len(self.weights))
        if ends != (self.rows.distinct + 1, 0, len(self.slots), len(self.slots)) or (np.diff(self.starts) < 0).any():
            raise InvalidTable("the cells do not fit the rows")
        if ((self.slots < 0) | (self.slots >= len(self.items))).any():
            raise InvalidTable("mass outside every query")
        if not np.isin(self.items[self.slots], self.rows.columns).all():
            raise InvalidTable("mass on a source that no row can reach")
        if (self.weights <= 0).any() or (self.mass <= 0).any():
            raise InvalidTable("a stored mass is not positive")
        if self.limit is None and exact_sum(self.mass, axis=0) != [UNIT]:
            raise InvalidTable("the masses do not sum to one")
        same_row = np.ones(max(len(self.slots) - 1, 0), dtype=bool)
        inner = self.starts[1:-1]
        same_row[inner[(inner > 0) & (inner < len(self.slots))] - 1] = False
        if (np.diff(self.slots)[same_row] <= 0).any():
            raise InvalidTable("the slots of a row are not in ascending order")

    def mass_seen_by(self, r: int) -> Integers:
        """p(q | u) for every query, as distinct row r sees it."""
        lo, hi = int(self.starts[r]), int(self.starts[r + 1])
        owner = np.searchsorted(self.offsets, self.slots[lo:hi], side="right") - 1
        seen = np.zeros(len(self.offsets) - 1, dtype=np.int64)
        np.add.at(seen, owner, self.weights[lo:hi])
        return seen

    @cached_property
    def largest_masses(self) -> Integers:
        """max over u of p(q | u) for every query."""
        largest = self.mass_seen_by(0)
        for r in range(1, self.rows.distinct):
            np.maximum(largest, self.mass_seen_by(r), out=largest)
        return largest

    # -- showing -------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """`{"unit", "queries", "mass", "joint"}`; joint[k][u][i] is for the i-th source of query k and original u.

        A table with a limit also has "leak", in bits, and "limit": its `leak` and `ratio` in units, null for none.
        """
        joint = []
        for k in range(len(self)):
            block = self.block(k)
            joint.append([block[r].tolist() for r in self.rows.group])
        shown = {
            "unit": UNIT,
            "queries": [list(q) for q in self.queries],
            "mass": self.mass.tolist(),
            "joint": joint,
        }
        if self.limit is None:
            return shown
        return {**shown, "leak": self.leak, "limit": {"leak": self.limit.leak, "ratio": self.limit.ratio}}

    def __str__(self) -> str:
        from onoff.tables.show import table_text

        return table_text(self)

    def __repr__(self) -> str:
        bound = "" if self.certificate is None else f", lower_bound={self.lower_bound:.6g}"
        scheme = f" {self.scheme}" if self.scheme else ""
        return f"<QueryTable{scheme}: {len(self)} queries, cost={self.cost:.6g}{bound}>"

    def _repr_html_(self) -> str:
        from onoff.tables.show import table_html

        return table_html(self)

    def plot(self) -> Figure:
        """What is asked how often, and what it costs beside its bounds: a matplotlib figure."""
        from onoff.tables.show import table_figure

        return table_figure(self)
