"""The integer identities of every table that simulated sessions meet: the audit for chains too large to enumerate.

A step of a session is private exactly when the table it draws from is: p(q | u) equal for every u, the rows met, every
wanted source in its query (`QueryTable.verify`, equality of integers). Whether the rows of that table are the right
ones is checked too: for the memory `last-query` they must be the chain's own rows of the sources in the query before.
Sessions are simulated with real randomness on requests that follow the chain; every table they meet is verified once,
and every query is held against its table. Tables that no session met are not covered: the count of sessions is part
of the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onoff.errors import InvalidInput, OnOffError
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.memories import LastQuery
from onoff.session.session import SystemEntropy
from onoff.tables.table import QueryTable


@dataclass(frozen=True)
class IdentitiesAudit:
    """What was met: sessions, requests, tables, and the largest table; breach names the first failure."""

    sessions: int
    requests: int
    tables: int
    cells: int
    largest: int
    breach: str | None = None

    @property
    def private(self) -> bool:
        return self.breach is None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def audit_identities(
    chain: MarkovChain,
    scheme: str,
    pattern: tuple[bool, ...],
    sessions: int,
    *,
    session: Callable[[], Session] | None = None,
    progress: Callable[[int], None] = lambda done: None,
    **options: Any,
) -> IdentitiesAudit:
    """Verify every table met in `sessions` simulated sessions of `pattern`, with the memory `last-query`.

    session: Makes the session that is audited; of the chain and the scheme unless given.
    """
    start = Session(chain, scheme, **options) if session is None else session()
    rng = np.random.default_rng()  # requests, not queries: those draw from the operating system
    seen: set[tuple[int, ...]] = set()
    requests = cells = largest = 0
    for done in range(sessions):
        user = start.fork(SystemEntropy())
        for t, (x, private) in enumerate(zip(chain.sample(len(pattern), rng).tolist(), pattern, strict=True)):
            before = user.memory
            if not isinstance(before, LastQuery):
                raise InvalidInput("this memory has no tables that recur", hint="use the memory 'last-query'")
            query = user.request(x, private=private)
            requests += 1
            breach = None
            if x not in query:
                breach = "the query did not contain the source that was wanted"
            elif private and not set(before.rows.columns.tolist()) <= set(query.sources):
                breach = f"ON, but only {len(query)} of {len(before.rows.columns)} possible sources were asked"
            elif not private and before.last is not None and before.rows.distinct > 1:
                table = user.tables.of(before)
                if not isinstance(table, QueryTable):
                    raise InvalidInput("this scheme keeps no table to verify", hint="use greedy or optimal")
                if before.last not in seen:
                    seen.add(before.last)
                    cells, largest = cells + len(table.weights), max(largest, len(table))
                    breach = _fault(chain, before.last, table)
                if breach is None and query.sources not in table.queries and not query.everything:
                    breach = f"query {query.sources} is not in the table of {before.last}"
            if breach is not None:
                return IdentitiesAudit(done + 1, requests, len(seen), cells, largest, f"step {t}: {breach}")
        progress(done + 1)
    return IdentitiesAudit(sessions, requests, len(seen), cells, largest)


def _fault(chain: MarkovChain, last: tuple[int, ...], table: QueryTable) -> str | None:
    """What is wrong with the table of `last`, or None."""
    rows = chain.rows(last)
    if not (
        np.array_equal(rows.columns, table.rows.columns)
        and np.array_equal(rows.weights, table.rows.weights)
        and np.array_equal(rows.group, table.rows.group)
    ):
        return f"the table of {last} is not built from the chain's rows of that set"
    try:
        table.verify()
    except OnOffError as error:
        return f"the table of {last}: {error.message}"
    return None
