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

import hashlib
import struct
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from onoff.errors import InvalidInput, StoreUnavailable
from onoff.wire import FRAME_OVERHEAD, MAX_ANSWER, Catalogue, Edition, WireMessage

_T = TypeVar("_T")

PROBE_SECONDS = 1.0  # seconds for which a successful trial write is taken to hold


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


class Admission(NamedTuple):
    """The verdict on a step: admitted if `conflict` is None."""

    stamp: Stamp
    conflict: LastStep | None


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
    """Checks by a probe whether a store is ready; a good result is cached for PROBE_SECONDS."""

    def __init__(self, probe: Callable[[], Awaitable[Readiness]]) -> None:
        self._probe = probe
        self._found_ready = -PROBE_SECONDS

    async def __call__(self) -> Readiness:
        now = time.monotonic()
        if now - self._found_ready < PROBE_SECONDS:
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


class LocalStore(Protocol):
    """A store on this machine, with synchronous forms of some methods."""

    def changed_since(self, after: Stamp) -> Latest | None:
        """What changed after the stamp; None if nothing did."""
        ...

    def admit_sync(self, session: bytes, step: int, digest: bytes) -> LastStep | None:
        """The step that conflicts with this one; None if it is admitted."""
        ...


class Store(Protocol):
    """What a message server needs of its store."""

    @property
    def local(self) -> LocalStore | None: ...

    async def catalogue(self) -> Catalogue: ...
    async def replace_catalogue(self, new: Catalogue, *, expected: Catalogue) -> bool:
        """Put `new` in place of `expected`; False if another came between. Messages of dropped names go."""
        ...

    async def publish(self, name: str, media_type: str, body: bytes, published: int) -> WireMessage:
        """Make this the latest message of a source, and the next edition of the store.

        Parameters
        ----------
        name
            The source.
        media_type
            As `wire.check_media_type` allows.
        body
            At most as many bytes as the catalogue's limit.
        published
            Milliseconds since 1970.

        Raises
        ------
        UnknownSource
            If the catalogue has no such name.
        InvalidWire
            If the message is too long, or would make an answer with all sources too long.
        StoreFull
            If there is no room; nothing was written.
        """
        ...

    async def latest(self, after: Stamp) -> Latest:
        """The messages that changed after the stamp, and the edition they lead to, all of one moment."""
        ...

    async def admit(self, session: bytes, step: int, digest: bytes) -> Admission:
        """The verdict on a step: it must be later than the last of its session, or have the same bytes.

        Parameters
        ----------
        session
            The id of the session, 16 bytes.
        step
            The number of the query in its session.
        digest
            The SHA-256 of the query's bytes.
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
