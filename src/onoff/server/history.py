"""The last editions: the frames of the newest one, and for each older one those that it had and the next had not.

An edition is one publish. Between two looks at the store several may have come. Of these an edition is known as long
as the changes that are seen count up to it one by one; where a number is missing, its source has changed again since,
and what it said in between is gone.

The editions of the last minute are held, and at least 64; no more than 64 once their frames take `MAX_BYTES`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onoff.server.shelf import Shelf
from onoff.server.store import Latest
from onoff.wire import Edition, strip_padding

MIN_EDITIONS = 64
RATE_SECONDS = 60.0
MAX_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class _Past:
    """An edition that is not the newest any more."""

    number: int
    digest: bytes | None  # None: not known yet
    width: int
    frames: dict[int, bytes]  # that the next known edition has not
    until: float  # when it was superseded
    size: int


@dataclass(frozen=True, slots=True)
class Found:
    """An edition that is held: its longest frame, and its frames where they are not those of the newest edition."""

    number: int
    digest: bytes | None
    width: int
    past: Mapping[int, bytes]


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
        self._past: deque[_Past] = deque()
        self._bytes = 0
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
            return Found(number, newest.digest, self.width, {})
        past: dict[int, bytes] = {}
        for edition in reversed(self._past):
            past.update(edition.frames)
            if edition.number == number:
                return Found(number, edition.digest, edition.width, past)
            if edition.number < number:
                return None
        return None

    def learn_digest(self, number: int, digest: bytes) -> None:
        """Remember the digest of an edition that was seen only in passing."""
        for edition in self._past:
            if edition.number == number:
                edition.digest = digest

    def _begin(self) -> None:
        """Start from what is on the shelf."""
        shelf = self._shelf
        self.frames = [self._own_length(frame) for frame in shelf.frames]
        self._lengths = Counter(map(len, self.frames))
        self.width = max(self._lengths, default=0)
        self._edition = shelf.edition
        self._past.clear()
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
        width = self.width
        frames = {source: self.frames[source] for source in changed}
        size = sum(map(len, frames.values()))
        self._past.append(_Past(number, digest, width, frames, self._clock(), size))
        self._bytes += size
        for source, old in frames.items():
            new = self._own_length(self._shelf.frames[source])
            self._lengths[len(new)] += 1
            self._lengths[len(old)] -= 1
            if not self._lengths[len(old)]:
                del self._lengths[len(old)]
            self.frames[source] = self.changed[source] = new
        self.width = max(self._lengths, default=0)

    def _forget(self) -> None:
        """Drop the editions that need not be held any more."""
        now = self._clock()
        while len(self._past) > MIN_EDITIONS and (now - self._past[0].until > RATE_SECONDS or self._bytes > MAX_BYTES):
            self._bytes -= self._past.popleft().size
