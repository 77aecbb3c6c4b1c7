"""What all workers of one machine share beside the messages: the last step of each session, and a bell.

The file has a fixed size. Its first page holds the **bell**, a number that changes whenever a worker has changed
the messages; looking at it is a thousand times cheaper than a query. The rest is a hash table of buckets, each of
eight slots of 64 bytes:

    session 16 | step 8 | sha256 32 | last seen 8 (milliseconds; 0 is empty)

A session lives in the bucket its first bytes name. A new session in a full bucket takes the slot that was seen
longest ago, so memory is bounded whatever is sent; a forgotten session starts afresh. A bucket is locked (a
record lock on its bytes) while it is read and written, so all processes agree. The content outlives the
processes, not a power cut: it is there to notice a client that was rolled back or copied.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path

from onoff.server.store import LastStep

_SLOT = struct.Struct(">16sQ32sQ")
_SLOTS = 8
_SEEN = struct.Struct(">" + "56xQ" * _SLOTS)
_BUCKET_BYTES = _SLOT.size * _SLOTS
_BELL_BYTES = 8
_FIRST_BUCKET = 4096
BUCKETS = 1 << 15  # 262144 sessions in 16 MiB


class StepTable:
    """`admit` steps, one slot per session; `ring` and look at the `bell`."""

    def __init__(self, path: str | Path, *, buckets: int = BUCKETS) -> None:
        self._buckets = buckets
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _FIRST_BUCKET + buckets * _BUCKET_BYTES
        os.ftruncate(self._file, size)
        self._map = mmap.mmap(self._file, size)

    @property
    def bell(self) -> bytes:
        return self._map[:_BELL_BYTES]

    def ring(self) -> None:
        """Change the bell, for all processes."""
        self._map[:_BELL_BYTES] = os.urandom(_BELL_BYTES)

    def admit(self, session: bytes, step: int, digest: bytes) -> LastStep | None:
        """None if the step may be answered, and it is then the last; else the last that stands against it."""
        start = self._bucket_of(session)
        fcntl.lockf(self._file, fcntl.LOCK_EX, _BUCKET_BYTES, start)
        try:
            bucket = self._map[start : start + _BUCKET_BYTES]
            offset = _find(session, bucket)
            sent = step.to_bytes(8) + digest
            if offset is None:
                seen = _SEEN.unpack(bucket)
                offset = seen.index(min(seen)) * _SLOT.size
            else:
                last = bucket[offset + 16 : offset + 56]
                if last != sent and last[:8] >= sent[:8]:  # big-endian: bytes compare as the steps do
                    return LastStep(int.from_bytes(last[:8]), last[8:])
            at = start + offset
            self._map[at : at + _SLOT.size] = session + sent + (time.time_ns() // 1_000_000).to_bytes(8)
            return None
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _BUCKET_BYTES, start)

    def last(self, session: bytes) -> LastStep | None:
        """The last step of the session, unless it is unknown or forgotten."""
        start = self._bucket_of(session)
        fcntl.lockf(self._file, fcntl.LOCK_EX, _BUCKET_BYTES, start)
        try:
            bucket = self._map[start : start + _BUCKET_BYTES]
            offset = _find(session, bucket)
            return None if offset is None else LastStep(*_SLOT.unpack_from(bucket, offset)[1:3])
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _BUCKET_BYTES, start)

    def _bucket_of(self, session: bytes) -> int:
        return _FIRST_BUCKET + int.from_bytes(session[:4]) % self._buckets * _BUCKET_BYTES

    def close(self) -> None:
        self._map.close()
        os.close(self._file)


def _find(session: bytes, bucket: bytes) -> int | None:
    """Where in its bucket the session is."""
    offset = bucket.find(session)
    while offset >= 0:
        end = offset + _SLOT.size
        if offset % _SLOT.size == 0 and bucket[end - 8 : end] != bytes(8):
            return offset
        offset = bucket.find(session, offset + 1)
    return None
