"""From the bytes of a query to the bytes of its answer.

An answer is the asked frames of the shelf in order; it is a function of the query's set and of what was published, and
of nothing else. In particular the reply does not depend on the client, and nothing is stored of a query but the
digest of its bytes for its session (to refuse a second, different query for the same step).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.store import LastStep, Latest, LocalStore, Stamp, Store, readable
from onoff.wire import (
    ANSWER_HEADERS,
    EPOCH_CHANGED,
    NOTHING,
    QUERY_HEAD_BYTES,
    Catalogue,
    Edition,
    Problem,
    WireMessage,
    encode_frame,
)

# --------------------------------------------------------------------------------------------------------------------
# The shelf: for each source the frame of its latest message, ready to send, as of one stamp of the store.


class Shelf:
    """The frames of one catalogue, as of one stamp."""

    def __init__(self) -> None:
        self.stamp = Stamp()
        self.catalogue = Catalogue(())
        self.epoch = self.catalogue.epoch
        self.frames: list[bytes] = []
        self.changed: list[int] = []  # the edition of each source's latest message; 0 if it has none
        self.edition: Edition | None = None
        self.watcher: Callable[[Latest], None] | None = None  # called with everything that is taken
        self._refreshing = asyncio.Lock()

    async def refresh(self, store: Store, wanted: Stamp | None = None) -> None:
        """Bring the frames up to the store's latest messages, unless they are as new as `wanted`."""
        async with self._refreshing:
            if wanted is None or wanted.life != self.stamp.life or wanted.changes > self.stamp.changes:
                latest = await store.latest(self.stamp)
                if latest.catalogue != self.catalogue and not latest.whole:
                    latest = await store.latest(Stamp())
                self.take(latest)

    def refresh_sync(self, local: LocalStore | None) -> bool:
        """Bring the frames up to the store without waiting; False if that cannot be done: use `refresh`.

        A store on another machine cannot be asked without waiting, and a changed catalogue needs all messages.
        """
        if local is None:
            return False
        latest = local.changed_since(self.stamp)
        if latest is not None:
            if latest.catalogue != self.catalogue:
                return False
            self.take(latest)
        return True

    def take(self, latest: Latest) -> None:
        """Take in what changed since the stamp of the shelf; everything where the catalogue changed."""
        if latest.whole:
            self.catalogue, self.epoch = latest.catalogue, latest.catalogue.epoch
            self.frames = [
                self._frame(source, latest.messages.get(name, NOTHING))
                for source, name in enumerate(self.catalogue.names)
            ]
            self.changed = [latest.changed.get(name, 0) for name in self.catalogue.names]
        else:
            for name, message in latest.messages.items():
                source = self.catalogue.index[name]
                self.frames[source] = self._frame(source, message)
                self.changed[source] = latest.changed[name]
        self.stamp, self.edition = latest.stamp, latest.edition
        if self.watcher is not None:
            self.watcher(latest)

    def _frame(self, source: int, message: WireMessage) -> bytes:
        known = self.catalogue
        return readable(
            lambda: encode_frame(source, message, epoch=self.epoch, frame_size=known.frame_size, limit=known.limit)
        )


# --------------------------------------------------------------------------------------------------------------------
# The verdict on a query, given what is on the shelf: one synchronous function for all paths.
#
# Order of judgement: form of the head, epoch, form of the bitmap, step. What is refused before its step is looked
# at
# leaves no trace in the store.


Answer = list[bytes]  # its frames, at least one


Admit = Callable[[bytes, int, bytes], LastStep | None]  # session, step, digest: the conflicting step, if any


def judge(body: bytes, shelf: Shelf, admit: Admit) -> Answer | Problem:
    """The frames that the query in `body` asks for; or why it is refused."""
    try:
        epoch, session, step = wire.decode_query_head(body)
        if epoch != shelf.epoch:
            return epoch_changed(shelf.epoch)
        frames = wire.select(body[QUERY_HEAD_BYTES:], shelf.frames)
    except InvalidWire as error:
        return invalid(error)
    conflict = admit(session, step, hashlib.sha256(body).digest())
    return frames if conflict is None else step_conflict(conflict)


def invalid(error: InvalidWire) -> Problem:
    return Problem(400, error.message, error.hint or "")


def epoch_changed(epoch: int) -> Problem:
    return Problem(
        409,
        "the catalogue is not the one of the query",
        "fetch /v1/catalogue and start a new session",
        wire.EPOCH_CHANGED,
        epoch=epoch,
    )


def step_conflict(last: LastStep) -> Problem:
    return Problem(
        409,
        "this session has already sent another query for this step, or a later step",
        "start a new session and ask for everything",
        wire.STEP_CONFLICT,
        step=last.step,
        sha256=last.digest.hex(),
    )


def unavailable(error: StoreUnavailable) -> Problem:
    del error  # its text may name files and hosts, which must not reach the client
    return Problem(503, "the store of messages does not answer", "send the same request again in a moment")


def edition_gone(newest: int) -> Problem:
    """The refusal of what is asked of an edition that is not held."""
    return Problem(
        409,
        "the edition of the query is not held",
        "see /v1/edition of all servers and ask the same of another edition",
        wire.EDITION_GONE,
        edition=newest,
    )


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
