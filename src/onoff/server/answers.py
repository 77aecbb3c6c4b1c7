"""From the bytes of a query to the bytes of its answer.

An answer is the asked frames of the shelf in order; it is a function of the query's set and of what was published, and
of nothing else. In particular the reply does not depend on the client, and nothing is stored of a query but the
digest of its bytes for its session (to refuse a second, different query for the same step).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.store import LastStep, Latest, Stamp, Store, readable
from onoff.wire import (
    NOTHING,
    QUERY_HEAD_BYTES,
    Catalogue,
    Edition,
    Problem,
    WireMessage,
    encode_frame,
)


class Shelf:
    """For each source of one catalogue the frame of its latest message, ready to send, as of one stamp of the store."""

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


Answer = list[bytes]  # its frames, at least one

_T = TypeVar("_T")


def now(work: Coroutine[Any, Any, _T]) -> _T | None:
    """What `work` gives, if it never waits; else None, and it goes no further than to where it would have waited."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("_T", done.value)
    work.close()
    return None


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


class Answerer:
    """Answers queries from a shelf that is never older than the store.

    Order of judgement: form of the head, epoch, form of the bitmap, step. What is refused before its step is looked at
    leaves no trace in the store.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.shelf = Shelf()

    async def answer(self, body: bytes) -> Answer | Problem:
        """The frames that the query in `body` asks for, or why it is refused. Waits for nothing but the store."""
        shelf = self.shelf
        try:
            epoch, session, step = wire.decode_query_head(body)
            if epoch != shelf.epoch:
                await shelf.refresh(self.store)
                if epoch != shelf.epoch:
                    return epoch_changed(shelf.epoch)
            frames = wire.select(body[QUERY_HEAD_BYTES:], shelf.frames)
            stamp, conflict = await self.store.admit(session, step, hashlib.sha256(body).digest())
            if conflict is not None:
                return step_conflict(conflict)
            if stamp != shelf.stamp:
                await shelf.refresh(self.store, stamp)
                if epoch != shelf.epoch:
                    return epoch_changed(shelf.epoch)
                frames = wire.select(body[QUERY_HEAD_BYTES:], shelf.frames)
            return frames
        except InvalidWire as error:
            return invalid(error)
        except StoreUnavailable as error:
            return unavailable(error)
