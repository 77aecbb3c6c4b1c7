"""From the bytes of a query to the bytes of its answer.

An answer is the asked frames of the shelf in order; it is a function of the query's set and of what was published, and
of nothing else. In particular the reply to a step is the same whoever asks, and nothing is remembered of a query but
the digest of its bytes for its session (to refuse a second, different query for the same step).
"""

from __future__ import annotations

from collections.abc import Sequence

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

    def answer_now(self, body: bytes) -> Answer | Problem | None:
        """The answer, or why there is none; None if it takes waiting: `answer`."""
        local = self.store.local
        try:
            if local is None or not self.shelf.refresh_sync(self.store):
                return None
            asked = judge(body, self.shelf)
            if isinstance(asked, Problem):
                return asked
            conflict = local.admit_sync(asked.session, asked.step, asked.digest)
        except StoreUnavailable as error:
            return unavailable(error)
        return asked.frames if conflict is None else step_conflict(conflict)

    async def answer(self, body: bytes) -> Answer | Problem:
        """The answer to the query in `body`, or why there is none."""
        shelf = self.shelf
        try:
            outcome = self.answer_now(body)
            if outcome is None and self.store.local is not None:  # the catalogue changed
                await shelf.refresh(self.store)
                outcome = self.answer_now(body)
            if outcome is not None:
                return outcome
            asked = judge(body, shelf)
            if isinstance(asked, Problem) and asked.type == EPOCH_CHANGED:
                await shelf.refresh(self.store)
                asked = judge(body, shelf)
            if isinstance(asked, Problem):
                return asked
            stamp, conflict = await self.store.admit(asked.session, asked.step, asked.digest)
            if conflict is not None:
                return step_conflict(conflict)
            if stamp != shelf.stamp:
                await shelf.refresh(self.store, stamp)
            asked = judge(body, shelf)
        except StoreUnavailable as error:
            return unavailable(error)
        return asked if isinstance(asked, Problem) else asked.frames


def answer_headers(length: int, fixed: Sequence[tuple[str, str]] = ANSWER_HEADERS) -> list[tuple[bytes, bytes]]:
    """The headers of every answer of that length, in their fixed order."""
    named = [(name.encode(), value.encode()) for name, value in fixed]
    return [*named, (b"content-length", b"%d" % length)]
