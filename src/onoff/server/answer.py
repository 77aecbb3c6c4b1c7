"""From the bytes of a query to the bytes of its answer.

The server keeps a **shelf**: for each source the frame of its latest message, ready to send. An answer is the
asked frames in order; it is a function of the query's set and of what was published, and of nothing else. In
particular the reply to a step is the same whoever asks, and nothing is remembered of a query but the digest of
its bytes for its session (to refuse a second, different query for the same step).

Order of judgement: form of the head, epoch, form of the bitmap, step. A query that is refused for its form or
epoch leaves no trace in the store.
"""

from __future__ import annotations

import asyncio
import hashlib

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.store import LastStep, Latest, Stamp, Store
from onoff.wire import ANSWER_HEADERS, NOTHING, QUERY_HEAD_BYTES, Catalogue, Edition, Problem, encode_frame

RETRY_SECONDS = 1

Answer = list[bytes]  # its frames, at least one


class Shelf:
    """The frames of one catalogue, as of one stamp."""

    def __init__(self) -> None:
        self.stamp = Stamp()
        self.catalogue = Catalogue(())
        self.epoch = self.catalogue.epoch
        self.frames: list[bytes] = []
        self.changed: list[int] = []  # the edition of each source's latest message; 0 if it has none
        self.edition: Edition | None = None
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
        """Put in what changed since our stamp: all of it if the catalogue did."""
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

    def _frame(self, source: int, message: wire.Message) -> bytes:
        known = self.catalogue
        return encode_frame(source, message, epoch=self.epoch, frame_size=known.frame_size, limit=known.limit)


class Answerer:
    """Answers queries from a shelf that is never older than the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.shelf = Shelf()

    def answer_now(self, body: bytes) -> Answer | None:
        """The answer, if there is nothing to refuse, refresh or wait for; else None, and `answer` must judge."""
        shelf, nearby = self.shelf, self.store.nearby
        if nearby is None:
            return None
        try:
            news = nearby.news_now(shelf.stamp)
            if news is not None:
                if news.catalogue != shelf.catalogue:
                    return None
                shelf.take(news)
            epoch, session, step = wire.decode_query_head(body)
            if epoch != shelf.epoch:
                return None
            frames = wire.select(body[QUERY_HEAD_BYTES:], shelf.frames)
            if nearby.admit_now(session, step, hashlib.sha256(body).digest()) is not None:
                return None
        except (InvalidWire, StoreUnavailable):
            return None
        return frames

    async def answer(self, body: bytes) -> Answer | Problem:
        """The answer to the query in `body`, or why there is none."""
        shelf = self.shelf
        try:
            head = wire.decode_query_head(body)
            if head.epoch != shelf.epoch:
                await shelf.refresh(self.store)
                if head.epoch != shelf.epoch:
                    return epoch_changed(shelf.epoch)
            sources = wire.decode_bitmap(body[QUERY_HEAD_BYTES:], shelf.catalogue.n)
            digest = hashlib.sha256(body).digest()
            stamp, conflict = await self.store.admit(head.session, head.step, digest)
            if conflict is not None:
                return step_conflict(conflict)
            if stamp != shelf.stamp:
                await shelf.refresh(self.store, stamp)
            if head.epoch != shelf.epoch:
                return epoch_changed(shelf.epoch)
        except InvalidWire as error:
            return Problem(400, error.message, error.hint or "")
        except StoreUnavailable as error:
            return unavailable(error)
        return [shelf.frames[source] for source in sources]


def answer_headers(length: int) -> list[tuple[bytes, bytes]]:
    """The headers of every answer of that length, in their fixed order."""
    fixed = [(name.encode(), value.encode()) for name, value in ANSWER_HEADERS]
    return [*fixed, (b"content-length", b"%d" % length)]


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
    del error  # its text may name files and hosts, which are no business of the asker
    return Problem(503, "the store of messages does not answer", "send the same request again in a moment")
