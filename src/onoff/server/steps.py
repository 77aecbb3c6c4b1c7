"""What all workers of one machine share beside the messages: the last step of each session, and a generation.

The file has a fixed size. Its first page holds the **generation**, random bytes that change whenever a worker has
changed the messages; comparing them is a thousand times cheaper than a query. The rest is a hash table of buckets,
each of eight slots of 64 bytes:

    session 16 | step 8 | sha256 32 | last seen 8 (milliseconds; 0 is empty)

A session lives in the bucket its first bytes name. A new session in a full bucket takes the slot that was seen
longest ago, so memory is bounded; a forgotten session starts afresh. The content survives the processes, not a
power failure: it serves to detect a client that was rolled back or copied.

Processes are synchronized by two locks, of which the first decides whether the second is needed:

- of the whole file (flock): shared, for life; or exclusive, until the end of this iteration of the event loop;
- of the bucket (a record lock): taken by processes that share the file, not by one that holds it exclusively.

So a single process takes one lock for each iteration, not for each query. A second process sets a byte, the **request
to share**, which is read before the file is locked again; from then on both share.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from onoff.errors import StoreUnavailable
from onoff.server.store import LastStep

_SLOT = struct.Struct(">16sQ32sQ")
SLOT_BYTES = _SLOT.size
SLOTS = 8
_SEEN = struct.Struct(">" + "56xQ" * SLOTS)
_BUCKET_BYTES = SLOT_BYTES * SLOTS
_GENERATION_BYTES = 8
_SHARE_REQUEST = 8
_FIRST_BUCKET = 4096
BUCKETS = 1 << 15  # 262144 sessions in 16 MiB
SHARE_SECONDS = 2.0  # within which a process must let another in; an iteration takes milliseconds


class StepTable:
    """`admit` steps, one slot per session; compare and change the `generation`.

    `at_end_of_iteration` calls what it is given when the event loop has done what is ready now; without it the table is
    always shared.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        buckets: int = BUCKETS,
        at_end_of_iteration: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._buckets = buckets
        self._at_end_of_iteration = at_end_of_iteration
        self._alone = self._sharing = False  # what we have of the whole file
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _FIRST_BUCKET + buckets * _BUCKET_BYTES
        try:
            # Allocated now: a write to an unallocated page on a full disk would end the process (SIGBUS).
            os.posix_fallocate(self._file, 0, size)
            self._map = mmap.mmap(self._file, size)
        except OSError:
            os.close(self._file)
            raise

    @property
    def generation(self) -> bytes:
        return self._map[:_GENERATION_BYTES]

    def change_generation(self) -> None:
        """Tell all processes that the messages changed."""
        self._map[:_GENERATION_BYTES] = os.urandom(_GENERATION_BYTES)

    def admit(self, session: bytes, step: int, digest: bytes) -> LastStep | None:
        """None if the step is admitted, which makes it the last one; else the last step that conflicts with it."""
        if self._alone:
            return self._admit(session, step, digest)
        return self._locked(session, lambda: self._admit(session, step, digest))

    def _admit(self, session: bytes, step: int, digest: bytes) -> LastStep | None:
        start = self._bucket_of(session)
        bucket = self._map[start : start + _BUCKET_BYTES]
        sent = step.to_bytes(8) + digest
        offset = find_slot(session, bucket)
        if offset is None:
            seen = _SEEN.unpack(bucket)
            offset = seen.index(min(seen)) * SLOT_BYTES
        else:
            last = bucket[offset + 16 : offset + 56]
            if last != sent and last[:8] >= sent[:8]:  # big-endian: bytes compare as the steps do
                return LastStep(int.from_bytes(last[:8]), last[8:])
        at = start + offset
        self._map[at : at + SLOT_BYTES] = session + sent + (time.time_ns() // 1_000_000).to_bytes(8)
        return None

    def last(self, session: bytes) -> LastStep | None:
        """The last step of the session, unless it is unknown or forgotten."""
        return self._locked(session, lambda: self._last(session))

    def _last(self, session: bytes) -> LastStep | None:
        start = self._bucket_of(session)
        bucket = self._map[start : start + _BUCKET_BYTES]
        offset = find_slot(session, bucket)
        return None if offset is None else LastStep(*_SLOT.unpack_from(bucket, offset)[1:3])

    def _bucket_of(self, session: bytes) -> int:
        return _FIRST_BUCKET + bucket_number(session, self._buckets) * _BUCKET_BYTES

    # Locks.

    def _locked(self, session: bytes, work: Callable[[], LastStep | None]) -> LastStep | None:
        """The result of `work`, done while the session's bucket is locked."""
        if not self._sharing:
            if self._alone or self._lock_for_iteration():
                return work()
            self._share()
        start = self._bucket_of(session)
        fcntl.lockf(self._file, fcntl.LOCK_EX, _BUCKET_BYTES, start)
        try:
            return work()
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _BUCKET_BYTES, start)

    def _lock_for_iteration(self) -> bool:
        """Whether this process now holds the file exclusively, until the end of this iteration."""
        if self._at_end_of_iteration is None or self._map[_SHARE_REQUEST] or not self._try_lock(fcntl.LOCK_EX):
            return False
        self._alone = True
        self._at_end_of_iteration(self._end_iteration)
        return True

    def _end_iteration(self) -> None:
        if self._alone:
            self._alone = False
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _share(self) -> None:
        """Share the file from now on; a process that holds it exclusively is asked to share."""
        deadline = time.monotonic() + SHARE_SECONDS
        while not self._try_lock(fcntl.LOCK_SH):
            self._map[_SHARE_REQUEST] = 1
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    "another server holds the table of steps and does not go on",
                    hint="is a server on the same store stopped or stuck?",
                )
            time.sleep(0.001)
        self._map[_SHARE_REQUEST] = 0
        self._sharing = True

    def _try_lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._alone = False
        self._map.close()
        os.close(self._file)


def bucket_number(session: bytes, buckets: int) -> int:
    """The bucket in which a session lives."""
    return int.from_bytes(session[:4]) % buckets


def find_slot(session: bytes, bucket: bytes) -> int | None:
    """Where in its bucket the session is."""
    offset = bucket.find(session)
    while offset >= 0:
        end = offset + SLOT_BYTES
        if offset % SLOT_BYTES == 0 and bucket[end - 8 : end] != bytes(8):
            return offset
        offset = bucket.find(session, offset + 1)
    return None
