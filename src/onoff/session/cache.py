"""TableCache: the query tables of one chain or model, built once and kept by the public state they belong to.

A table depends on the model and on the queries so far, all public, so it can be built before the request that needs
it and used again whenever the same state comes back. The least recently used ones are evicted beyond a limit.

The table after "everything", which every private request leads to and which takes longest, is kept on disk as well
where a directory is given. Schemes that can choose among optimal tables are told the chain, so that they prefer queries
with cheap successors; `look_ahead=False` turns that off.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model
from onoff.model.rows import Rows, SparseRows
from onoff.schemes import design, find_scheme
from onoff.session.memory import Memory
from onoff.tables.files import load_table, save_table, table_path
from onoff.tables.table import QuerySource, QueryTable

LIMIT_BYTES = 256 * 2**20
"""How much memory the kept tables of one chain may take."""
MOST_TO_LOOK_AT = 300
"""Sources of a chain up to which they are told its rows."""


class TableCache:
    """The tables of `model` under `scheme`, least recently used first."""

    def __init__(
        self,
        model: Model,
        scheme: str,
        *,
        limit_bytes: int = LIMIT_BYTES,
        store: Path | None = None,
        look_ahead: bool = True,
        **options: Any,
    ) -> None:
        self.model = model
        self.store = store
        self.scheme = find_scheme(scheme).name
        self.look_ahead = look_ahead and find_scheme(scheme).looks_ahead and self._looks_ahead
        self.options = options
        self.limit_bytes = limit_bytes
        self._kept: OrderedDict[Hashable, QuerySource] = OrderedDict()
        self._held = 0
        self._lock = Lock()

    def of(self, memory: Memory) -> QuerySource:
        """The table for the rows of `memory`."""
        key = memory.key
        with self._lock:
            if key is not None and key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        table = self._stored(memory.rows) if memory.lasting else self._build(memory.rows, lasting=False)
        if key is not None:
            self._keep(key, table)
        return table

    def budget(self, *, lasting: bool) -> float | None:
        """Seconds of processor time for a table; None where the scheme does not search.

        lasting: the table after everything, which is kept on disk; for any other one a request is waiting.
        """
        scheme = find_scheme(self.scheme)
        usual = scheme.budget if lasting or scheme.session_budget is None else scheme.session_budget
        return self.options.get("budget", usual)

    def _build(self, rows: Rows | SparseRows, *, lasting: bool = True) -> QuerySource:
        options = dict(self.options)
        budget = self.budget(lasting=lasting)
        if budget is not None:
            options["budget"] = budget
        if self.look_ahead:
            options["future"] = self._future
        return design(rows, self.scheme, **options)

    def _stored(self, rows: Rows | SparseRows) -> QuerySource:
        """The table after everything: from disk where it is there, else built, and kept there."""
        if self.store is None or not isinstance(rows, Rows):
            return self._build(rows)
        made = {**self.options, "look_ahead": self.look_ahead}
        path = table_path(self.store, self.model.digest(), self.scheme, made)
        found = load_table(path, rows)
        if found is not None:
            return found
        table = self._build(rows)
        if isinstance(table, QueryTable):
            save_table(path, table)
        return table

    @property
    def _looks_ahead(self) -> bool:
        """Whether the rows that can come next are known: those of a chain of moderate size."""
        model = self.model
        return isinstance(model, MarkovChain) and not model.is_sparse and model.n <= MOST_TO_LOOK_AT

    @cached_property
    def _future(self) -> Rows:
        if not isinstance(self.model, MarkovChain):
            raise RuntimeError("only a chain is looked ahead in")
        return self.model.rows()

    def has(self, memory: Memory) -> bool:
        """Whether that table is in the cache."""
        with self._lock:
            return memory.key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def _keep(self, key: Hashable, table: QuerySource) -> None:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = table
                self._held += table.nbytes
            while self._held > self.limit_bytes and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._held -= dropped.nbytes
