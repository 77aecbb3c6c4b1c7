"""Following a leader: a server that holds the same editions as another, under the same numbers and digests.

Every `FOLLOW_SECONDS` the leader is asked for what changed since the edition that the store has, and all of it is put
into the store in one transaction. It survives kills and restarts on either side.

The leader is not trusted: its history must continue what it gave before:

- an edition that it gave is known to it, unless it is older than the digests that servers keep;
- as many editions passed as the versions of the changed sources went up;
- where each of up to `MAX_ORDERS` changed sources went up by one, the digest follows from the last in some order of
  these publishes, and with one change there is only one.

If not, the follower stops following for good, says so in its log and counts, and goes on serving what it has. A new
life (the leader was restored, or its catalogue changed) is another history: it is taken over completely, and logged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping
from itertools import permutations

from onoff.errors import InvalidInput, InvalidWire, ServerUnreachable, StoreUnavailable
from onoff.server.http import Count, Metrics
from onoff.server.store import KEPT_DIGESTS, Adoption, Stamp, Store, in_thread
from onoff.system.logs import Condition
from onoff.upstream.transport import Connection, Deadline, Failure, Http, Request
from onoff.wire import (
    CATALOGUE_HEADERS,
    CATALOGUE_PATH,
    CHANGES_HEADERS,
    MAX_ANSWER,
    MAX_CATALOGUE,
    Catalogue,
    ChangesDecoder,
    Edition,
    Unpacker,
    WireMessage,
    changes_target,
    decode_catalogue,
    next_digest,
)

log = logging.getLogger("onoff.server")

FOLLOW_SECONDS = 0.25
FOLLOW_RETRY_SECONDS = (0.25, 0.5, 1.0)  # after failures in a row; the last for all further ones
LEADER_SECONDS = 60.0
MAX_ORDERS = 6
MAX_CHANGES = MAX_ANSWER + 64 * 1024  # bytes of a reply; the decoder allows MAX_ANSWER bytes of frames


class BrokenHistory(Exception):
    """The leader's history does not continue what it gave before."""


def check_goes_on(catalogue: Catalogue, have: Edition, step: Adoption, versions: Mapping[str, int]) -> None:
    """Raise BrokenHistory for a step that does not continue the edition `have`, whose versions are `versions`."""
    edition, messages = step.edition, step.messages
    if edition.life != have.life:
        return
    passed = edition.number - have.number
    if step.whole:
        if passed < KEPT_DIGESTS:
            raise BrokenHistory(f"it denies edition {have.number}, which it gave")
        return
    risen = {name: message.version - versions.get(name, 0) for name, message in messages.items()}
    if any(rise < 1 for rise in risen.values()) or sum(risen.values()) != passed:
        raise BrokenHistory(f"{passed} editions after {have.number} do not match the versions of their messages")
    if passed == len(risen) <= MAX_ORDERS and not _chains(catalogue, have, edition, messages):
        raise BrokenHistory(f"the digest of edition {edition.number} does not follow from that of {have.number}")


def _chains(catalogue: Catalogue, have: Edition, edition: Edition, messages: Mapping[str, WireMessage]) -> bool:
    for order in permutations(messages.items()):
        digest = have.digest
        for name, message in order:
            digest = next_digest(digest, catalogue.index[name], message)
        if digest == edition.digest:
            return True
    return False


class Follower:
    """Keeps a store a copy of a leader's."""

    def __init__(self, store: Store, leader: str, metrics: Metrics) -> None:
        self._store = store
        self._leader = leader.rstrip("/")
        self._prefix = Http(leader).prefix
        self._connection = Connection(Http(leader).origin)
        self._exchanging = threading.Lock()  # held by whichever thread uses the connection
        self._metrics = metrics
        self._catalogue = Catalogue(())
        self._have: Edition | None = None
        self._versions: dict[str, int] = {}
        self.broken: str | None = None  # why it does not follow any more

    async def run(self) -> None:
        """Follow until cancelled, or until the leader's history breaks."""
        failures = 0
        following = Condition(log)
        try:
            while self.broken is None:
                try:
                    await self.catch_up()
                    following.works("the leader %s answers again", self._leader)
                    failures = 0
                    await asyncio.sleep(FOLLOW_SECONDS)
                except (ServerUnreachable, StoreUnavailable, InvalidWire) as error:
                    self._metrics.add(Count.FOLLOW_FAILURES)
                    following.fails("cannot follow %s for now: %s", self._leader, error)
                    if isinstance(error, StoreUnavailable):
                        self._have = None  # read it again: what was written is unknown
                    await asyncio.sleep(FOLLOW_RETRY_SECONDS[min(failures, len(FOLLOW_RETRY_SECONDS) - 1)])
                    failures += 1
                except BrokenHistory as error:
                    self._metrics.add(Count.FOLLOW_FAILURES)
                    self.broken = str(error)
                    log.error("no longer following %s: %s; serving what there is", self._leader, error)
        finally:
            threading.Thread(target=self.close, daemon=True).start()  # an exchange may still be under way

    def close(self) -> None:
        """Close the connection, once nothing uses it."""
        with self._exchanging:
            self._connection.close()

    async def catch_up(self) -> bool:
        """Bring the store up to the leader's newest edition; whether anything changed.

        Raises ServerUnreachable if the leader does not answer as a message server does, BrokenHistory if what it gives
        does not go on from what it gave.
        """
        if self._have is None:
            latest = await self._store.latest(Stamp())
            self._have, self._catalogue = latest.edition, latest.catalogue
            self._versions = {name: message.version for name, message in latest.messages.items()}
        have, known = self._have, self._catalogue
        try:
            step = await in_thread(lambda: self._ask(known, have))
        except _OtherCatalogue:
            known = other = await in_thread(self._fetch_catalogue)
            step = await in_thread(lambda: self._ask(other, None))
        check_goes_on(known, have, step, self._versions)
        if step.edition == have and not step.messages and await self._store.leader() == self._leader:
            return False
        if step.edition.life != have.life and self._versions:
            log.info("%s has begun a new history; taking it over", self._leader)
        if not await self._store.adopt(step, expected=have):
            self._have = None  # another process wrote to the store
            return False
        self._have, self._catalogue = step.edition, step.catalogue
        if step.whole:
            self._versions.clear()
        self._versions.update((name, message.version) for name, message in step.messages.items())
        return True

    # In a thread.

    def _ask(self, known: Catalogue, have: Edition | None) -> Adoption:
        decoder = ChangesDecoder(known, have)
        messages: dict[str, WireMessage] = {}
        try:
            for piece in self._get(changes_target(have), CHANGES_HEADERS, MAX_CHANGES):
                messages.update((known.names[source], message) for source, message in decoder.feed(piece))
            edition = decoder.finish()
        except InvalidWire:
            if decoder.epoch not in {None, known.epoch}:
                raise _OtherCatalogue from None
            raise
        return Adoption(self._leader, edition, known, messages, decoder.whole)

    def _fetch_catalogue(self) -> Catalogue:
        return decode_catalogue(b"".join(self._get(CATALOGUE_PATH, CATALOGUE_HEADERS, MAX_CATALOGUE)))

    def _get(self, target: str, headers: tuple[tuple[str, str], ...], limit: int) -> Iterator[bytes]:
        """The body of a 200 of at most `limit` bytes, unpacked, piece by piece."""
        request = Request("GET", self._prefix + target, headers, b"", limit)
        with self._exchanging:
            reply = self._connection.exchange(request, Deadline(LEADER_SECONDS))
        if isinstance(reply, Failure):
            raise ServerUnreachable(f"{self._leader} does not answer: {reply.reason}", hint="is it running?")
        if reply.status != 200:
            raise ServerUnreachable(
                f"{self._leader} answers with status {reply.status}", hint="is it a message server?"
            )
        if reply.header("content-encoding") != "gzip":
            yield reply.body
        else:
            unpacker = Unpacker()
            yield from unpacker.feed(reply.body)
            unpacker.finish()


class _OtherCatalogue(Exception):
    """The leader has another catalogue."""


async def check_may_follow(store: Store, leader: str) -> None:
    """Raise InvalidInput for a store that has its own messages: following would replace them."""
    if await store.leader() is None and (await store.latest(Stamp())).messages:
        raise InvalidInput(
            "the store has messages of its own, which following would replace",
            hint=f"give --follow {leader} a new --store",
        )
