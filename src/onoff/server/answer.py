"""From the bytes of a query to the bytes of its answer.

An answer is the asked frames of the shelf in order; it is a function of the query's set and of what was published, and
of nothing else. In particular the reply does not depend on the client, and nothing is stored of a query but the
digest of its bytes for its session (to refuse a second, different query for the same step).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onoff.errors import StoreUnavailable
from onoff.server.judge import Answer, judge, step_conflict, unavailable
from onoff.server.shelf import Shelf
from onoff.server.store import Store
from onoff.wire import ANSWER_HEADERS, EPOCH_CHANGED, Problem

RETRY_SECONDS = 1


class Answerer:
    """Answers queries from a shelf that is never older than the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.shelf = Shelf()
        self._local = store.local

    def answer_now(self, body: bytes) -> Answer | Problem | None:
        """The answer, or the refusal; None where the store has to be waited for: use `answer`."""
        local, shelf = self._local, self.shelf
        try:
            if not shelf.refresh_sync(local) or local is None:
                return None
            return judge(body, shelf, local.admit_sync)
        except StoreUnavailable as error:
            return unavailable(error)

    async def answer(self, body: bytes) -> Answer | Problem:
        """The answer to the query in `body`, or the refusal."""
        shelf = self.shelf
        noted: list[tuple[bytes, int, bytes]] = []

        def note(*step: Any) -> None:
            """Keep the step of a query until the store can be asked for it."""
            noted.append(step)

        try:
            outcome = self.answer_now(body)
            if outcome is None and self._local is not None:  # the catalogue changed
                await shelf.refresh(self.store)
                outcome = self.answer_now(body)
            if outcome is not None:
                return outcome
            outcome = judge(body, shelf, note)
            if isinstance(outcome, Problem) and outcome.type == EPOCH_CHANGED:
                await shelf.refresh(self.store)
                outcome = judge(body, shelf, note)
            if isinstance(outcome, Problem):
                return outcome
            stamp, conflict = await self.store.admit(*noted[-1])
            if conflict is not None:
                return step_conflict(conflict)
            if stamp != shelf.stamp:
                await shelf.refresh(self.store, stamp)
            return judge(body, shelf, note)
        except StoreUnavailable as error:
            return unavailable(error)


def answer_headers(length: int, fixed: Sequence[tuple[str, str]] = ANSWER_HEADERS) -> list[tuple[bytes, bytes]]:
    """The headers of every answer of that length, in their fixed order."""
    named = [(name.encode(), value.encode()) for name, value in fixed]
    return [*named, (b"content-length", b"%d" % length)]
