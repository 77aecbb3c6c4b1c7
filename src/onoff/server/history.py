"""The last editions: the frames of the newest one, and of each source those that older editions had.

An edition is one publish. Between two looks at the store several may have come. Of these an edition is known as long
as the changes that are seen count up to it one by one; where a number is missing, its source has changed again since,
and what it said in between is gone.

The editions of the last minute are held, and at least 64; no more than 64 once their frames take `MAX_BYTES`. Finding
one takes a search for each source that changed since, however many editions there were.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onoff.server.shelf import Shelf
from onoff.server.store import Latest
from onoff.wire import DIGEST_BYTES, Edition, FrameDigests, frame_digest, strip_padding

MIN_EDITIONS = 64
RATE_SECONDS = 60.0
MAX_BYTES = 256 * 1024 * 1024


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
    """The last editions of one life of a store, all frames at their own length."""

    def __init__(self, shelf: Shelf, clock: Callable[[], float] = time.monotonic) -> None:
        self._shelf = shelf
        self._clock = clock
        self.frames: list[bytes] = []  # of the newest edition
        self.life = 0  # counts whenever all frames are others
        self.changed: dict[int, bytes] = {}  # frames that are new since the matrix was last brought up to date
        self._edition: Edition | None = None
        self._lengths: Counter[int] = Counter()
        self.width = 0  # bytes of the longest frame of the newest edition
        self._past: dict[int, _Past] = {}  # by number, which ascend
        self._superseded: dict[int, _Superseded] = {}  # by source, the one that changed last at the end
        self._changed_at: dict[int, int] = {}  # the last known edition before each of them changed
        self._bytes = 0
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
        self.frames = [self._own_length(frame) for frame in shelf.frames]
        self._lengths = Counter(map(len, self.frames))
        self.width = max(self._lengths, default=0)
        self._edition = shelf.edition
        self._digests = None
        self._past.clear()
        self._superseded.clear()
        self._changed_at.clear()
        self._bytes = 0
        self.changed = {}
        self.life += 1

    def _own_length(self, frame: bytes) -> bytes:
        shelf = self._shelf
        return frame if shelf.catalogue.frame_size is None else strip_padding(frame, epoch=shelf.epoch)

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
            old, new = self.frames[source], self._own_length(self._shelf.frames[source])
            kept = self._superseded.pop(source, None) or _Superseded()
            kept.add(number, old)
            self._superseded[source] = kept  # at the end
            self._changed_at[source] = number
            self._bytes += len(old)
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
        while len(self._past) > MIN_EDITIONS:
            number, oldest = next(iter(self._past.items()))
            if now - oldest.until <= RATE_SECONDS and self._bytes <= MAX_BYTES:
                return
            del self._past[number]
            for source in oldest.changed:
                size, last = self._superseded[source].drop_oldest()
                self._bytes -= size
                if last:
                    del self._superseded[source], self._changed_at[source]
