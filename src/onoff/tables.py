"""Tables: the query tables of one chain, built once and kept by the set they belong to.

A table depends on the chain and on the last query, both public, so it can be built before the request that needs
it and used again whenever the same set comes back. The least recently used ones are let go beyond a limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

from onoff.chain import MarkovChain
from onoff.memory import Memory
from onoff.schemes import design, known
from onoff.table import QuerySource

LIMIT_BYTES = 256 * 2**20
"""How much memory the kept tables of one chain may take."""


class Tables:
    """The tables of `chain` under `scheme`, least recently used first."""

    def __init__(self, chain: MarkovChain, scheme: str, *, limit_bytes: int = LIMIT_BYTES, **options: Any) -> None:
        self.chain = chain
        self.scheme = known(scheme)
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
        table = design(memory.rows, self.scheme, **self.options)
        if key is not None:
            self._keep(key, table)
        return table

    def has(self, memory: Memory) -> bool:
        """Whether that table is at hand."""
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
