"""From the bytes of a query to the bytes of its answer.

An answer is the asked frames of the shelf in order, without those that the query's tags say are known; it is a function
of the query and of what was published, and of nothing else. In particular the reply does not depend on the client, and
nothing is stored of a query but the digest of its bytes for its session (to refuse a second, different query for the
same step).

Each frame is compressed on its own, once, when it is first asked for. A deflate stream that was flushed in full can be
followed by any other, so a compressed reply is a gzip head, the compressed pieces of its frames and a checksum: no
frame is compressed twice, where `gzip.compress` would take 7 ms for 120 feeds whenever one of them changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import zlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from onoff import wire
from onoff.errors import InvalidWire, StoreUnavailable
from onoff.server.store import LastStep, Latest, Stamp, Store, readable
from onoff.wire import (
    NOTHING,
    QUERY_HEAD_BYTES,
    TAG_BYTES,
    Catalogue,
    Edition,
    Problem,
    WireMessage,
    encode_frame,
    frame_tag,
    strip_padding,
)

INLINE_BYTES = 256 * 1024  # more than this is compressed in a thread, so that queries do not wait
LEVEL = 6

_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no system: equal content has equal bytes
_GZIP_TRAILER = struct.Struct("<II")
_STORED = struct.Struct("<BHH")  # a block of deflate that holds bytes as they are


@dataclass(slots=True)
class Shelved:
    """A frame at its own length, its tag, and its compressed form once it was asked for."""

    frame: bytes
    tag: bytes = field(init=False)
    packed: bytes = b""

    def __post_init__(self) -> None:
        self.tag = frame_tag(self.frame)


def deflate(data: bytes) -> bytes:
    """`data` as a piece of a deflate stream that can be concatenated with other such pieces."""
    packing = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush(zlib.Z_FULL_FLUSH)


def compress_now(pieces: Sequence[Shelved]) -> None:
    """Compress what is not yet."""
    for piece in pieces:
        piece.packed = piece.packed or deflate(piece.frame)


async def compress(pieces: Sequence[Shelved]) -> None:
    """Compress what is not yet: at once, or in a thread where that would hold up others."""
    left = [piece for piece in pieces if not piece.packed]
    if sum(len(piece.frame) for piece in left) <= INLINE_BYTES:
        compress_now(left)
    else:
        await asyncio.sleep(0)  # so that `now` gives up before the thread begins
        await asyncio.to_thread(compress_now, left)


def gzip_parts(head: bytes, pieces: Sequence[Shelved], trailer: bytes) -> list[bytes]:
    """The gzip of a head, frames that are compressed, and a trailer; head and trailer stay as they are."""
    crc, size = zlib.crc32(head), len(head) + len(trailer)
    for piece in pieces:
        crc = zlib.crc32(piece.frame, crc)
        size += len(piece.frame)
    end = _GZIP_TRAILER.pack(zlib.crc32(trailer, crc), size & 0xFFFFFFFF)
    begin = _GZIP_HEAD + (_stored(head, 0) if head else b"")
    return [begin, *(piece.packed for piece in pieces), _stored(trailer, 1) + end]


def _stored(data: bytes, last: int) -> bytes:
    return _STORED.pack(last, len(data), ~len(data) & 0xFFFF) + data


class Shelf:
    """For each source of one catalogue the frame of its latest message, ready to send, as of one stamp of the store."""

    def __init__(self) -> None:
        self.stamp = Stamp()
        self.catalogue = Catalogue(())
        self.epoch = self.catalogue.epoch
        self.frames: list[bytes] = []  # as answers have them, which may be padded
        self.pieces: list[Shelved] = []
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
            self.pieces = [self._piece(frame) for frame in self.frames]
            self.changed = [latest.changed.get(name, 0) for name in self.catalogue.names]
        else:
            for name, message in latest.messages.items():
                source = self.catalogue.index[name]
                self.frames[source] = frame = self._frame(source, message)
                self.pieces[source] = self._piece(frame)
                self.changed[source] = latest.changed[name]
        self.stamp, self.edition = latest.stamp, latest.edition
        if self.watcher is not None:
            self.watcher(latest)

    def _frame(self, source: int, message: WireMessage) -> bytes:
        known = self.catalogue
        return readable(
            lambda: encode_frame(source, message, epoch=self.epoch, frame_size=known.frame_size, limit=known.limit)
        )

    def _piece(self, frame: bytes) -> Shelved:
        return Shelved(frame if self.catalogue.frame_size is None else strip_padding(frame, epoch=self.epoch))


class Answer(NamedTuple):
    """The parts of an answer in order, how many frames are in it, and how it is encoded: not at all, or by gzip."""

    parts: list[bytes]
    frames: int
    encoding: str = ""


class Selection(NamedTuple):
    """What a query asks for that it does not know, and the end of its answer."""

    pieces: list[Shelved]
    trailer: bytes


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

    async def answer(self, body: bytes, *, gzip: bool = False) -> Answer | Problem:
        """The answer to the query in `body`, or why it is refused. Waits for nothing but the store.

        gzip: Whether the client takes a compressed answer; it gets one if that is shorter.
        """
        shelf = self.shelf
        try:
            epoch, session, step = wire.decode_query_head(body)
            if epoch != shelf.epoch:
                await shelf.refresh(self.store)
                if epoch != shelf.epoch:
                    return epoch_changed(shelf.epoch)
            found = self._select(body)
            stamp, conflict = await self.store.admit(session, step, hashlib.sha256(body).digest())
            if conflict is not None:
                return step_conflict(conflict)
            if stamp != shelf.stamp:
                await shelf.refresh(self.store, stamp)
                if epoch != shelf.epoch:
                    return epoch_changed(shelf.epoch)
                found = self._select(body)
            return found if isinstance(found, Answer) else await _answer(found, gzip)
        except InvalidWire as error:
            return invalid(error)
        except StoreUnavailable as error:
            return unavailable(error)

    def _select(self, body: bytes) -> Answer | Selection:
        """What a query asks for. Raises InvalidWire where it is not in its one form."""
        shelf = self.shelf
        if shelf.catalogue.frame_size is not None:  # nothing is left out or compressed: that would show in the length
            frames = wire.select(body[QUERY_HEAD_BYTES:], shelf.frames)
            return Answer(frames, len(frames))
        end = wire.query_length(len(shelf.pieces))
        pieces = wire.select(body[QUERY_HEAD_BYTES:end], shelf.pieces)
        known = wire.check_known(body[end:], len(pieces))
        if not known:
            return Selection(pieces, b"")
        tags = b"".join([piece.tag for piece in pieces])
        if known == tags:
            pieces = []
        else:
            places = range(0, len(tags), TAG_BYTES)
            pieces = [
                piece for at, piece in zip(places, pieces, strict=True) if known[at : at + TAG_BYTES] != piece.tag
            ]
        return Selection(pieces, wire.encode_trailer(tags, epoch=shelf.epoch))


async def _answer(asked: Selection, gzip: bool) -> Answer:
    pieces, trailer = asked
    if gzip and pieces:
        await compress(pieces)
        packed = gzip_parts(b"", pieces, trailer)
        if sum(map(len, packed)) < sum(len(piece.frame) for piece in pieces) + len(trailer):
            return Answer(packed, len(pieces), "gzip")
    parts = [piece.frame for piece in pieces]
    return Answer([*parts, trailer] if trailer else parts, len(pieces))
