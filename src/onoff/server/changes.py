"""Changes since an edition, made from the frames on the shelf: nothing is encoded or compressed twice.

Each frame is compressed on its own, once, when it is first asked for. A deflate stream that was flushed in full can be
followed by any other, so a compressed reply to any span is a gzip head, the compressed pieces of the changed frames and
a checksum: no frame is compressed twice. Replies for the newest edition are kept by span until it changes.

A reply depends on the span and on what was published, and on nothing else: not on the client, nor on the time.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from onoff.server.history import History
from onoff.server.shelf import Shelf
from onoff.server.store import Store
from onoff.wire import (
    Edition,
    EditionReport,
    Since,
    WantedDigests,
    encode_changes_head,
    encode_changes_trailer,
    encode_digests,
    strip_padding,
)

INLINE_BYTES = 256 * 1024  # more than this is compressed in a thread, so that queries do not wait
JOINED_BYTES = 1024 * 1024  # up to here a reply is kept in one piece; a longer one is sent as it is read
KEPT_REPLIES = 32
KEPT_VERDICTS = 1024
LEVEL = 6

_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no system: equal content has equal bytes
_GZIP_END = b"\x03\0"  # an empty last block
_GZIP_TRAILER = struct.Struct("<II")


@dataclass(slots=True)
class _Piece:
    """The frame of a source for `changes`, and its compressed form once it was asked for."""

    shelved: bytes  # the frame on the shelf that it was made from
    frame: bytes
    packed: bytes = b""


@dataclass(frozen=True, slots=True)
class ChangesReply:
    """The parts of a reply in order; `encoding` is empty or gzip."""

    parts: Sequence[bytes]
    length: int
    encoding: str


class ChangesBuilder:
    """Replies to readers of a store, from a shelf that is never older than the store."""

    def __init__(self, store: Store, shelf: Shelf, history: History | None = None) -> None:
        self._store = store
        self._shelf = shelf
        self._history = history or History(shelf)
        self._pieces: dict[int, _Piece] = {}
        self._replies: dict[tuple[int, bool], ChangesReply] = {}
        self._digests: dict[tuple[int, int], bytes] = {}  # replies with digests, by since and edition
        self._edition: Edition | None = None  # of which the replies are
        self._verdicts: dict[Since, bool] = {}
        self._packing = asyncio.Lock()

    async def edition(self) -> EditionReport:
        """The newest edition, how much changes in an hour, and the longest frame."""
        edition = await self._refresh()
        longest = self._history.width
        return EditionReport(edition, await self._store.changed_per_hour(), longest)

    async def digests(self, wanted: WantedDigests) -> bytes | int:
        """The digests that changed since, or all; the number of the newest edition if the wanted one is not held.

        Of an edition before the newest come those that changed after it as well, as they were.

        Raises
        ------
        StoreUnavailable
            If the store does not answer.
        """
        since, history = wanted.since, self._history
        while True:  # each time around the edition may be a newer one
            newest = await self._refresh()
            known = self._knows(newest, since)
            if known is None:
                await self._look_up(newest, since)
                continue
            found = history.find(newest.number if wanted.edition is None else wanted.edition)
            if found is not None and found.digest is None:
                digest = await self._store.digest_of(found.number)
                if digest is not None:
                    history.learn_digest(found.number, digest)
                    continue
                found = None
            if found is None:
                return newest.number
            start = since.number if known and since.number <= found.number else 0
            reply = self._digests.get((start, found.number))
            if reply is None:
                changed = [source for source, at in enumerate(self._shelf.changed) if at > start]
                reply = encode_digests(history.digests(found), start, changed)
                if len(self._digests) >= KEPT_REPLIES:
                    del self._digests[next(iter(self._digests))]
                self._digests[start, found.number] = reply
            return reply

    async def reply(self, since: Since, *, gzip: bool) -> ChangesReply:
        """All that changed since, or everything if the store does not know that edition.

        gzip: Whether it takes a compressed reply; it gets one if that is shorter.

        Raises
        ------
        StoreUnavailable
            If the store does not answer.
        """
        while True:  # each time around the edition may be a newer one
            edition = await self._refresh()
            known = self._knows(edition, since)
            if known is None:
                await self._look_up(edition, since)
                continue
            number = since.number if known else 0
            reply = self._made(edition, number, gzip)
            if reply is not None:
                return reply
            await self._pack(self._changed_after(number))

    def reply_now(self, since: Since, *, gzip: bool) -> ChangesReply | None:
        """The same where it needs no waiting and little work, and is short enough to be written at once; else None."""
        if not self._shelf.refresh_sync(self._store.local):
            return None
        edition = self._take_edition()
        known = self._knows(edition, since)
        reply = None if known is None else self._made(edition, since.number if known else 0, gzip)
        return reply if reply is not None and reply.length <= JOINED_BYTES else None

    async def _refresh(self) -> Edition:
        """Bring the shelf up to the store."""
        if not self._shelf.refresh_sync(self._store.local):
            await self._shelf.refresh(self._store)
        return self._take_edition()

    def _take_edition(self) -> Edition:
        """The edition on the shelf; replies of an older one are forgotten."""
        edition = self._shelf.edition
        assert edition is not None
        if edition is not self._edition and edition != self._edition:
            if self._edition is None or edition.life != self._edition.life:
                self._verdicts.clear()
                self._pieces.clear()
            self._replies.clear()
            self._digests.clear()
            self._edition = edition
        return edition

    def _knows(self, edition: Edition, since: Since) -> bool | None:
        """Whether the edition of the reader is known in this life; None: the store has to be asked."""
        if since.number == 0 or since.number > edition.number or since.life not in {None, edition.life}:
            return False
        if since.digest is None:
            return True
        if since.number == edition.number:
            return since.digest == edition.digest
        return self._verdicts.get(since)

    async def _look_up(self, edition: Edition, since: Since) -> None:
        digest = await self._store.digest_of(since.number)
        if edition.life == self._take_edition().life:
            if len(self._verdicts) >= KEPT_VERDICTS:
                self._verdicts.clear()
            self._verdicts[since] = digest == since.digest

    def _changed_after(self, number: int) -> list[_Piece]:
        shelf = self._shelf
        found = []
        for source, changed in enumerate(shelf.changed):
            if changed > number:
                piece, shelved = self._pieces.get(source), shelf.frames[source]
                if piece is None or piece.shelved is not shelved:
                    frame = shelved if shelf.catalogue.frame_size is None else strip_padding(shelved, epoch=shelf.epoch)
                    piece = self._pieces[source] = _Piece(shelved, frame)
                found.append(piece)
        return found

    def _made(self, edition: Edition, since: int, gzip: bool) -> ChangesReply | None:
        """The reply, kept or made now; None if too much is to be compressed for it first."""
        reply = self._replies.get((since, gzip))
        if reply is None:
            pieces = self._changed_after(since)
            if gzip:
                left = [piece for piece in pieces if not piece.packed]
                if sum(len(piece.frame) for piece in left) > INLINE_BYTES:
                    return None
                _compress(left)
            packed = self._compressed(edition, since, pieces) if gzip else None
            reply = self._plain(edition, since, pieces, packed)
            if reply.length <= JOINED_BYTES:
                reply = ChangesReply((b"".join(reply.parts),), reply.length, reply.encoding)
            if len(self._replies) >= KEPT_REPLIES:
                del self._replies[next(iter(self._replies))]
            self._replies[since, gzip] = reply
        return reply

    async def _pack(self, pieces: Sequence[_Piece]) -> None:
        """Compress in a thread what is not yet."""
        async with self._packing:  # of several concurrent requests only one compresses
            await asyncio.to_thread(_compress, [piece for piece in pieces if not piece.packed])

    def _compressed(self, edition: Edition, since: int, pieces: Sequence[_Piece]) -> ChangesReply:
        frames = [piece.frame for piece in pieces]
        head, trailer = encode_changes_head(edition, since), encode_changes_trailer(edition, since, frames)
        crc = zlib.crc32(head)
        for frame in frames:
            crc = zlib.crc32(frame, crc)
        size = len(head) + sum(map(len, frames)) + len(trailer)
        end = _GZIP_END + _GZIP_TRAILER.pack(zlib.crc32(trailer, crc), size & 0xFFFFFFFF)
        parts = [_GZIP_HEAD + _deflate(head), *(piece.packed for piece in pieces), _deflate(trailer) + end]
        return ChangesReply(parts, sum(map(len, parts)), "gzip")

    def _plain(
        self, edition: Edition, since: int, pieces: Sequence[_Piece], packed: ChangesReply | None
    ) -> ChangesReply:
        """The reply as it is, unless the compressed one is shorter."""
        frames = [piece.frame for piece in pieces]
        parts = [encode_changes_head(edition, since), *frames, encode_changes_trailer(edition, since, frames)]
        plain = ChangesReply(parts, sum(map(len, parts)), "")
        return plain if packed is None or plain.length <= packed.length else packed


def _deflate(data: bytes) -> bytes:
    """`data` as a piece of a deflate stream that can be concatenated with other such pieces."""
    packing = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush(zlib.Z_FULL_FLUSH)


def _compress(pieces: Sequence[_Piece]) -> None:
    for piece in pieces:
        piece.packed = _deflate(piece.frame)
