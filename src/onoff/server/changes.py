"""Changes since an edition, made from the frames on the shelf: nothing is encoded or compressed twice.

Replies for the newest edition are kept by span until it changes.

A reply depends on the span and on what was published, and on nothing else: not on the client, nor on the time.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onoff.server.answers import INLINE_BYTES, Shelf, Shelved, compress, compress_now, gzip_parts
from onoff.server.store import Latest, Store
from onoff.wire import (
    DIGEST_BYTES,
    Edition,
    EditionReport,
    FrameDigests,
    Since,
    WantedDigests,
    encode_changes_head,
    encode_changes_trailer,
    encode_digests,
    frame_digest,
)

MIN_EDITIONS = 64


@dataclass(slots=True)
class _Past:
    """An edition that is not the newest any more."""

    digest: bytes | None  # None: not known yet
    width: int
    changed: Sequence[int]  # the sources whose frames the next known edition has not
    until: float  # when it was superseded


class _Superseded:
    """The frames that a source had, oldest first, each with the last known edition that had it."""

    __slots__ = ("_frames", "_gone", "_last")

    def __init__(self) -> None:
        self._last: list[int] = []
        self._frames: list[bytes] = []
        self._gone = 0  # of them, from the first on, which are let go of

    def add(self, last: int, frame: bytes) -> None:
        self._last.append(last)
        self._frames.append(frame)

    def at(self, number: int) -> bytes:
        """The frame that an edition had; it had one of these."""
        return self._frames[bisect_left(self._last, number, self._gone)]

    def drop_oldest(self) -> tuple[int, bool]:
        """The bytes of the oldest frame, which is let go of, and whether it was the last one."""
        size = len(self._frames[self._gone])
        self._frames[self._gone] = b""
        self._gone += 1
        if 2 * self._gone > len(self._frames):  # at times, so that it costs next to nothing
            del self._frames[: self._gone], self._last[: self._gone]
            self._gone = 0
        return size, not self._frames


@dataclass(frozen=True, slots=True)
class Found:
    """An edition that is held, and the bytes of its longest frame."""

    number: int
    digest: bytes | None
    width: int


class History:
    """The last editions of one life of a store, all frames at their own length.

    An edition is one publish. Between two looks at the store several may have come. Of these an edition is known as
    long as the changes that are seen count up to it one by one; where a number is missing, its source has changed again
    since, and what it said in between is gone. The editions of the last `seconds` are held, and `least` at least; no
    more than these once their frames take `most_bytes`.
    """

    def __init__(
        self,
        shelf: Shelf,
        clock: Callable[[], float] = time.monotonic,
        *,
        least: int = MIN_EDITIONS,
        seconds: float = 60.0,  # in which a reader asks again of an edition that it learnt of
        most_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self._least, self._seconds, self._most_bytes = least, seconds, most_bytes
        self.bytes = 0  # of frames of editions before the newest
        self.frames: list[bytes] = []  # of the newest edition
        self.life = 0  # counts whenever all frames are others
        self.changed: dict[int, bytes] = {}  # frames that are new since the matrix was last brought up to date
        self._edition: Edition | None = None
        self._lengths: Counter[int] = Counter()
        self.width = 0  # bytes of the longest frame of the newest edition
        self._past: dict[int, _Past] = {}  # by number, which ascend
        self._superseded: dict[int, _Superseded] = {}  # by source, the one that changed last at the end
        self._changed_at: dict[int, int] = {}  # the last known edition before each of them changed
        self._digests: bytearray | None = None  # of the frames of the newest edition, once they were asked for
        if shelf.edition is not None:
            self._begin()
        shelf.watcher = self._take

    @property
    def newest(self) -> Edition:
        assert self._edition is not None
        return self._edition

    def find(self, number: int) -> Found | None:
        """An edition, if it is held."""
        newest = self.newest
        if number == newest.number:
            return Found(number, newest.digest, self.width)
        edition = self._past.get(number)
        return None if edition is None else Found(number, edition.digest, edition.width)

    def past(self, number: int) -> Mapping[int, bytes]:
        """The frames of an edition that is held, where they are not those of the newest edition."""
        past: dict[int, bytes] = {}
        for source, frames in reversed(self._superseded.items()):
            if self._changed_at[source] < number:
                break  # like all further ones, it has not changed since
            past[source] = frames.at(number)
        return past

    def learn_digest(self, number: int, digest: bytes) -> None:
        """Remember the digest of an edition that was seen only in passing."""
        if number in self._past:
            self._past[number].digest = digest

    def digests(self, found: Found) -> FrameDigests:
        """The digests of all frames of an edition whose own digest is known."""
        newest = self.newest
        assert found.digest is not None
        if self._digests is None:
            self._digests = bytearray(b"".join(map(frame_digest, self.frames)))
        digests = bytearray(self._digests)
        for source, frame in self.past(found.number).items():
            digests[source * DIGEST_BYTES : (source + 1) * DIGEST_BYTES] = frame_digest(frame)
        edition = Edition(newest.epoch, newest.life, found.number, found.digest)
        return FrameDigests(edition, found.width, bytes(digests))

    def _begin(self) -> None:
        """Start from what is on the shelf."""
        shelf = self._shelf
        self.frames = [piece.frame for piece in shelf.pieces]
        self._lengths = Counter(map(len, self.frames))
        self.width = max(self._lengths, default=0)
        self._edition = shelf.edition
        self._digests = None
        self._past.clear()
        self._superseded.clear()
        self._changed_at.clear()
        self.bytes = 0
        self.changed = {}
        self.life += 1

    def _take(self, latest: Latest) -> None:
        """Follow the shelf, which has just taken in what changed."""
        before, after = self._edition, latest.edition
        if latest.whole or before is None or after.life != before.life:
            self._begin()
            return
        if after == before:
            return
        shelf = self._shelf
        changes = deque(sorted((number, shelf.catalogue.index[name]) for name, number in latest.changed.items()))
        number: int = before.number
        digest: bytes | None = before.digest
        while changes and changes[0][0] == number + 1 < after.number:
            published, source = changes.popleft()
            self._supersede(number, digest, [source])
            number, digest = published, None
        self._supersede(number, digest, [source for _, source in changes])
        self._edition = after
        self._forget()

    def _supersede(self, number: int, digest: bytes | None, changed: Sequence[int]) -> None:
        """Keep an edition, and put in what the next one changed."""
        self._past[number] = _Past(digest, self.width, changed, self._clock())
        for source in changed:
            old, new = self.frames[source], self._shelf.pieces[source].frame
            kept = self._superseded.pop(source, None) or _Superseded()
            kept.add(number, old)
            self._superseded[source] = kept  # at the end
            self._changed_at[source] = number
            self.bytes += len(old)
            self._lengths[len(new)] += 1
            self._lengths[len(old)] -= 1
            if not self._lengths[len(old)]:
                del self._lengths[len(old)]
            self.frames[source] = self.changed[source] = new
            if self._digests is not None:
                self._digests[source * DIGEST_BYTES : (source + 1) * DIGEST_BYTES] = frame_digest(new)
        self.width = max(self._lengths, default=0)

    def _forget(self) -> None:
        """Drop the editions that need not be held any more."""
        now = self._clock()
        while len(self._past) > self._least:
            number, oldest = next(iter(self._past.items()))
            if now - oldest.until <= self._seconds and self.bytes <= self._most_bytes:
                return
            del self._past[number]
            for source in oldest.changed:
                size, last = self._superseded[source].drop_oldest()
                self.bytes -= size
                if last:
                    del self._superseded[source], self._changed_at[source]


JOINED_BYTES = 1024 * 1024  # up to here a reply is kept in one piece; a longer one is sent as it is read
KEPT_REPLIES = 32
KEPT_VERDICTS = 1024


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
        self._replies: dict[tuple[int, bool], ChangesReply] = {}
        self._digests: dict[tuple[int, int], bytes] = {}  # replies with digests, by since and edition
        self._edition: Edition | None = None  # of which the replies are
        self._verdicts: dict[Since, bool] = {}
        self._packing = asyncio.Lock()

    async def edition(self) -> EditionReport:
        """The newest edition, how much changes in an hour, and the longest frame."""
        await self._shelf.refresh(self._store)
        edition = self._take_edition()
        longest = self._history.width
        return EditionReport(edition, await self._store.changed_per_hour(), longest)

    async def digests(self, wanted: WantedDigests) -> bytes | int:
        """The digests that changed since, or all; the number of the newest edition if the wanted one is not held.

        Of an edition before the newest come those that changed after it as well, as they were. Raises StoreUnavailable
        if the store does not answer.
        """
        since, history = wanted.since, self._history
        while True:  # each time around the edition may be a newer one
            await self._shelf.refresh(self._store)
            newest = self._take_edition()
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

        gzip: whether it takes a compressed reply; it gets one if that is shorter. Raises StoreUnavailable.
        """
        while True:  # each time around the edition may be a newer one
            await self._shelf.refresh(self._store)
            edition = self._take_edition()
            known = self._knows(edition, since)
            if known is None:
                await self._look_up(edition, since)
                continue
            number = since.number if known else 0
            reply = self._made(edition, number, gzip)
            if reply is not None:
                return reply
            async with self._packing:  # of several concurrent requests only one compresses
                await compress(self._changed_after(number))

    def _take_edition(self) -> Edition:
        """The edition on the shelf; replies of an older one are forgotten."""
        edition = self._shelf.edition
        assert edition is not None
        if edition is not self._edition and edition != self._edition:
            if self._edition is None or edition.life != self._edition.life:
                self._verdicts.clear()
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

    def _changed_after(self, number: int) -> list[Shelved]:
        shelf = self._shelf
        return [piece for piece, changed in zip(shelf.pieces, shelf.changed, strict=True) if changed > number]

    def _made(self, edition: Edition, since: int, gzip: bool) -> ChangesReply | None:
        """The reply, kept or made now; None if too much is to be compressed for it first."""
        reply = self._replies.get((since, gzip))
        if reply is None:
            pieces = self._changed_after(since)
            if gzip and sum(len(piece.frame) for piece in pieces if not piece.packed) > INLINE_BYTES:
                return None
            reply = _shortest(edition, since, pieces, gzip)
            if reply.length <= JOINED_BYTES:
                reply = ChangesReply((b"".join(reply.parts),), reply.length, reply.encoding)
            if len(self._replies) >= KEPT_REPLIES:
                del self._replies[next(iter(self._replies))]
            self._replies[since, gzip] = reply
        return reply


def _shortest(edition: Edition, since: int, pieces: Sequence[Shelved], gzip: bool) -> ChangesReply:
    """The reply as it is; the compressed one where that may be given and is shorter."""
    frames = [piece.frame for piece in pieces]
    head, trailer = encode_changes_head(edition, since), encode_changes_trailer(edition, since, frames)
    parts = [head, *frames, trailer]
    plain = ChangesReply(parts, sum(map(len, parts)), "")
    if not gzip:
        return plain
    compress_now(pieces)
    packed = gzip_parts(head, pieces, trailer)
    length = sum(map(len, packed))
    return ChangesReply(packed, length, "gzip") if length < plain.length else plain
