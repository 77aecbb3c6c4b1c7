"""Where the messages are kept: the protocol that every store follows.

A store holds the catalogue, the latest message of each source, the publishers, and for each session the last
step it has sent. It knows names, bytes and numbers; it knows nothing of frames, HTTP or chains.

Invariants, checked by one contract test over all stores:

- A publish that returned is durable as far as `promise()` says, and every later `latest()` shows it or a newer one.
- The versions of a source ascend by one.
- The **stamp** of the store changes with every publish and every change of the catalogue, and `admit` returns it:
  a server whose copy has that stamp answers from its copy. Equal stamps mean equal content.
- The **edition** (`wire.changes`) changes with every publish, in the same transaction; a change of the catalogue and a
  restore begin a new life. `latest` gives messages, edition and digest of one moment.
- `admit` is atomic over all processes: of two different byte strings for one (session, step) one is refused.

A method that cannot reach its data raises `StoreUnavailable`; asking again later is then right.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import mmap
import os
import secrets
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from onoff.errors import InvalidInput, InvalidWire, StoreUnavailable
from onoff.system import files
from onoff.wire import FRAME_OVERHEAD, LIFE_BYTES, MAX_ANSWER, Catalogue, Edition, WireMessage

_T = TypeVar("_T")

PROBE_SECONDS = 1.0  # for which a successful trial write is taken to hold


def readable(read: Callable[[], _T]) -> _T:
    """The result of `read`; malformed values raise StoreUnavailable."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:  # InvalidWire is a ValueError
        raise StoreUnavailable(
            f"the store holds values that cannot be read: {error}",
            hint="is it used by something else, or damaged? `onoff serve --restore` puts a backup into a new one",
        ) from error


class Stamp(NamedTuple):
    """When the store was last changed: the number of its edition, and which life of the store it counts in."""

    life: bytes = b""
    changes: int = -1


class LastStep(NamedTuple):
    """The last step that a session has sent, and the SHA-256 of its bytes."""

    step: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Latest:
    """The messages, by name, that changed after some stamp; all that there are if `whole`.

    `changed` has for each of them the number of the edition in which it was published.
    """

    stamp: Stamp
    catalogue: Catalogue
    messages: Mapping[str, WireMessage]
    whole: bool
    edition: Edition
    changed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who may publish: the SHA-256 of the token, never the token; the sources it may write, or any if none."""

    name: str
    digest: bytes
    sources: tuple[str, ...] = ()

    def may_write(self, source: str) -> bool:
        return not self.sources or source in self.sources


@dataclass(frozen=True, slots=True)
class Promise:
    """What an acknowledged publish survives."""

    kind: str
    durable: bool
    says: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a query would be answered and a publish kept now; `reason` says why not."""

    answers: bool = True
    keeps: bool = True
    reason: str = ""


class Probing:
    """Checks by a probe whether a store is ready; a good result is taken to hold for some seconds."""

    def __init__(self, probe: Callable[[], Awaitable[Readiness]]) -> None:
        self.seconds = PROBE_SECONDS
        self._probe = probe
        self._found_ready = -math.inf

    async def __call__(self) -> Readiness:
        now = time.monotonic()
        if now - self._found_ready < self.seconds:
            return Readiness()
        outcome = await self._probe()
        if outcome == Readiness():
            self._found_ready = now
        return outcome


@dataclass(frozen=True, slots=True)
class Adoption:
    """What a following server takes over from its leader, all at once: an edition and how to get there.

    `messages` are those that changed since, by name; all that there are if `whole`.
    """

    leader: str
    edition: Edition
    catalogue: Catalogue
    messages: Mapping[str, WireMessage]
    whole: bool


class Store(Protocol):
    """What a message server needs of its store."""

    @property
    def never_waits(self) -> bool:
        """Whether all that reads, and `admit`, is done when its coroutine first stops: nothing is waited for."""
        ...

    async def catalogue(self) -> Catalogue: ...
    async def replace_catalogue(self, new: Catalogue, *, expected: Catalogue) -> bool:
        """Put `new` in place of `expected`; False if another came between. Messages of dropped names go."""
        ...

    async def publish(self, name: str, media_type: str, body: bytes, published: int) -> WireMessage:
        """Make this the latest message of a source, and the next edition of the store.

        Raises UnknownSource if the catalogue has no such name, InvalidWire if the message is too long, or would make an
        answer with all sources too long, StoreFull if there is no room; nothing was written.

        name: The source.
        media_type: As `wire.check_media_type` allows.
        body: At most as many bytes as the catalogue's limit.
        published: Milliseconds since 1970.
        """
        ...

    async def latest(self, after: Stamp) -> Latest:
        """The messages that changed after the stamp, and the edition they lead to, all of one moment."""
        ...

    async def admit(self, session: bytes, step: int, digest: bytes) -> tuple[Stamp, LastStep | None]:
        """The stamp now, and the last step of the session if it conflicts; if None, this step is admitted.

        A step must be later than the last of its session, or have the same bytes.

        session: The id of the session, 16 bytes.
        step: The number of the query in its session.
        digest: The SHA-256 of the query's bytes.
        """
        ...

    async def last_step(self, session: bytes) -> LastStep | None:
        """The last step of a session; None if it is unknown or forgotten."""
        ...

    async def publishers(self) -> Sequence[Publisher]: ...
    async def add_publisher(self, publisher: Publisher) -> None: ...
    async def feed_names(self) -> Mapping[str, str]:
        """The names of feeds by their addresses, whether they are still polled or not."""
        ...

    async def replace_feed_names(self, names: Mapping[str, str]) -> None:
        """Keep these names of feeds, by their addresses, and no others."""
        ...

    async def promise(self) -> Promise: ...
    async def readiness(self) -> Readiness:
        """Try it: whether a query would be answered and a publish kept."""
        ...

    async def digest_of(self, number: int) -> bytes | None:
        """The digest of an edition of this life; None if it is unknown or too long ago."""
        ...

    async def changed_per_hour(self) -> int:
        """The bytes of frames that were published in an hour, as a mean over the last day."""
        ...

    async def restore(self, catalogue: Catalogue, messages: Mapping[str, WireMessage]) -> None:
        """Replace all content, versions included, and begin a new life."""
        ...

    async def leader(self) -> str | None:
        """The address of the server that this store is a copy of; None if it is no copy."""
        ...

    async def adopt(self, step: Adoption, *, expected: Edition) -> bool:
        """Become a copy of a leader's edition; False, and nothing done, if the edition is not `expected` any more."""
        ...

    async def close(self) -> None: ...


def check_fits(catalogue: Catalogue, sizes: Mapping[str, int]) -> None:
    """Raise InvalidInput for a catalogue whose limits are too small for the messages that it keeps."""
    total = sum(FRAME_OVERHEAD + sizes.get(name, 0) for name in catalogue.names)
    if total > MAX_ANSWER:
        raise InvalidInput(
            f"all messages together would make an answer of {total} bytes",
            hint=f"at most {MAX_ANSWER}: publish shorter messages, or take sources out",
        )
    for name in catalogue.names:
        if sizes.get(name, 0) > catalogue.limit:
            raise InvalidInput(
                f"the message of {name!r} has {sizes[name]} bytes, the limit is {catalogue.limit}",
                hint="use larger frames or a higher limit, or publish a shorter message first",
            )


def token_digest(token: str) -> bytes:
    """The digest of a token that is stored. A token has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(token.encode()).digest()


KEPT_DIGESTS = 1 << 16  # a reader whose edition is older than so many changes gets everything
HOURS = 24  # over which change is averaged


def new_life() -> bytes:
    """The random id of a new history."""
    return secrets.token_bytes(LIFE_BYTES)


def current_hour() -> int:
    """Hours since 1970."""
    return int(time.time() // 3600)


def changed_per_hour(hours: Mapping[int, int], born: int) -> int:
    """The mean of the bytes that changed in an hour, over the last day or the age of the store.

    hours: Bytes by hour since 1970; hours without a change may be left out.
    """
    now = current_hour()
    span = max(1, min(HOURS, now - born + 1))
    return sum(size for hour, size in hours.items() if now - span < hour <= now) // span


def may_overflow(catalogue: Catalogue) -> bool:
    """Whether messages within the limit can make an answer longer than `MAX_ANSWER`."""
    return catalogue.frame_size is None and catalogue.n * (FRAME_OVERHEAD + catalogue.limit) > MAX_ANSWER


def check_message(catalogue: Catalogue, body: bytes) -> None:
    """Refuse a message that is longer than the catalogue allows."""
    if len(body) > catalogue.limit:
        raise InvalidWire(f"a message of {len(body)} bytes", hint=f"at most {catalogue.limit} bytes")


def check_total(catalogue: Catalogue, others: int, body: bytes) -> None:
    """Refuse a message that would make an answer with all sources too long.

    Raises InvalidWire if the answer would be longer than `MAX_ANSWER`.
    """
    total = catalogue.n * FRAME_OVERHEAD + others + len(body)
    if total > MAX_ANSWER:
        raise InvalidWire(
            f"all messages together would make an answer of {total} bytes",
            hint=f"at most {MAX_ANSWER}: publish shorter messages, or take sources out",
        )


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
    """What all workers of one machine share beside the messages: the last step of each session, and a generation.

    The file has a fixed size. Its first page holds the **generation**, random bytes that change whenever a worker has
    changed the messages; comparing them is a thousand times cheaper than a query. The rest is a hash table of buckets
    of eight slots:

        session 16 | step 8 | sha256 32 | last seen 8 (milliseconds; 0 is empty)

    A session lives in the bucket its first bytes name. A new session in a full bucket takes the slot that was seen
    longest ago, so memory is bounded; a forgotten session starts afresh. The content survives the processes, not a
    power failure: it serves to detect a client that was rolled back or copied.

    Processes are synchronized by a lock of the whole file (flock), shared for life or exclusive until the end of this
    iteration of the event loop, and by a lock of the bucket (a record lock), which only those take that share the file:
    so a single process takes one lock for each iteration, not for each query. A second process sets a byte, the request
    to share, which is read before the file is locked again; from then on both share.

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
        self._file = files.open_private(path, os.O_RDWR | os.O_CREAT)
        size = _FIRST_BUCKET + buckets * _BUCKET_BYTES
        try:
            # Allocated now: a write to an unallocated page on a full disk would end the process (SIGBUS).
            files.allocate(self._file, size)
            self._map = mmap.mmap(self._file, size)
            if files.ONE_PROCESS:
                self._alone = files.lock_alone(self._file)
                if not self._alone:
                    raise StoreUnavailable(f"{path}: in use by another server", hint="this system allows one a store")
        except (OSError, StoreUnavailable):
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
        files.lock_range(self._file, start, _BUCKET_BYTES)
        try:
            return work()
        finally:
            files.unlock_range(self._file, start, _BUCKET_BYTES)

    def _lock_for_iteration(self) -> bool:
        """Whether this process now holds the file exclusively, until the end of this iteration."""
        if self._at_end_of_iteration is None or self._map[_SHARE_REQUEST] or not files.lock_alone(self._file):
            return False
        self._alone = True
        self._at_end_of_iteration(self._end_iteration)
        return True

    def _end_iteration(self) -> None:
        if self._alone:
            self._alone = False
            files.unlock(self._file)

    def _share(self) -> None:
        """Share the file from now on; a process that holds it exclusively is asked to share."""
        deadline = time.monotonic() + SHARE_SECONDS
        while not files.lock_shared(self._file):
            self._map[_SHARE_REQUEST] = 1
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    "another server holds the table of steps and does not go on",
                    hint="is a server on the same store stopped or stuck?",
                )
            time.sleep(0.001)
        self._map[_SHARE_REQUEST] = 0
        self._sharing = True

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


def settle(done: asyncio.Future[Any], outcome: Any) -> None:
    """Set the result of `done`, or the exception if `outcome` is one; do nothing if it is already done or cancelled."""
    if done.done():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


async def in_thread(work: Callable[[], _T]) -> _T:
    """What `work` gives, in a daemon thread: whoever is cancelled leaves it behind, and so does the process at its end.

    A thread of the event loop's pool would be waited for.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        outcome: _T | Exception
        try:
            outcome = work()
        except Exception as error:
            outcome = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, done, outcome)

    threading.Thread(target=run, name="onoff-waiting", daemon=True).start()
    return await done
