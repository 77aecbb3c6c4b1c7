"""A store in Valkey or Redis, for any number of server processes on any number of machines.

All keys begin with `{onoff}`, so that a cluster keeps them together:

    {onoff}:catalogue            JSON as on the wire
    {onoff}:sources              set of its names
    {onoff}:changes              number of the edition
    {onoff}:edition              hash: life and digest of the edition; born, the hour in which counting of change began
    {onoff}:digests              hash, number -> digest, of the last editions of this life
    {onoff}:hours                hash, hour since 1970 -> bytes of frames published in it
    {onoff}:versions             hash, name -> version of its latest message
    {onoff}:messages             hash, name -> published 8 | length of media type 1 | media type | body
    {onoff}:changed              sorted set, name -> the edition of its latest publish
    {onoff}:publishers           hash, name -> JSON of digest and sources
    {onoff}:feeds                hash, address of a feed -> name of its source
    {onoff}:steps                hash, bucket -> slots as in `steps`: the last step of up to 262144 sessions

Each method is one script, so versions, editions and steps are atomic over all servers; `valkey_publishing` says how
messages are published. A new session in a full bucket takes the slot that was seen longest ago, so clients cannot fill
the store; a forgotten session starts afresh. What an acknowledged message survives depends on how the store itself
is set to write its log; `promise()` asks it and says so.

A store that was restarted, or replaced by its replica, may have lost its last writes and use their numbers again. So
every connection asks for the run id of the store, and after another run everything is read again.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from valkey.asyncio import BlockingConnectionPool, Valkey
from valkey.exceptions import ConnectionError as ValkeyConnectionError
from valkey.exceptions import OutOfMemoryError, ResponseError, ValkeyError
from valkey.exceptions import TimeoutError as ValkeyTimeoutError

from onoff.errors import InvalidInput, StoreFull, StoreUnavailable
from onoff.server import valkey_scripts as scripts
from onoff.server.editions import (
    changed_per_hour,
    current_hour,
    new_life,
)
from onoff.server.steps import BUCKETS, bucket_number, find_slot
from onoff.server.store import (
    Admission,
    Adoption,
    LastStep,
    Latest,
    Probing,
    Promise,
    Publisher,
    Readiness,
    Stamp,
    check_fits,
    readable,
)
from onoff.server.valkey_publishing import BATCH_BYTES, PublishQueue
from onoff.server.valkey_values import pack_message, pairs, unpack_message
from onoff.wire import (
    FRAME_OVERHEAD,
    Catalogue,
    Edition,
    WireMessage,
    decode_catalogue,
    encode_catalogue,
    first_digest,
)

_PUBLISHERS = "{onoff}:publishers"
_FEEDS = "{onoff}:feeds"
_PROBE = "{onoff}:probed"
_OLD_STEP = b"{onoff}:step:"  # version 0.1 had a key for each session
_LAST = struct.Struct(">Q32s")
_CONNECTIONS = 16
_SECONDS = 5


class ValkeyStore:
    """A store that many servers share."""

    local = None  # every verdict is a round trip

    def __init__(self, client: Any, *, buckets: int = BUCKETS) -> None:
        self._client = client
        self._buckets = buckets
        self._run = b""
        self._known = (b"", Catalogue(()))
        self._publishing = PublishQueue(self._run_script, self._read_state, lambda: self._known[1])
        self._readiness = Probing(self._probe)
        self._scripts = {
            text: client.register_script(text)
            for text in (
                *(scripts.OPEN, scripts.STATE, scripts.PUBLISH, scripts.LATEST, scripts.BODIES),
                *(scripts.ADMIT, scripts.REPLACE, scripts.RESTORE, scripts.ADOPT),
            )
        }

    @classmethod
    async def open(cls, url: str, *, frame_size: int | None = None, limit: int = 0) -> ValkeyStore:
        """Connect; an empty store gets an empty catalogue, one of version 0.1 its first edition.

        Raises
        ------
        StoreUnavailable
            If there is no answer, or the content cannot be read.
        InvalidInput
            If it is not an address.
        """
        store: ValkeyStore

        async def connected(connection: Any) -> None:
            await connection.on_connect()
            await connection.send_command("INFO", "server")
            store._learn_run(await connection.read_response())

        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=_SECONDS,
                socket_timeout=_SECONDS,
                socket_connect_timeout=_SECONDS,
                valkey_connect_func=connected,
            )
            pool.make_connection()  # a setting that it does not know is told here
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"not an address of a store: {error}", hint="such as redis://localhost:6379/0") from None
        store = cls(Valkey.from_pool(pool))
        try:
            await store._begin(Catalogue((), frame_size, limit))
        except BaseException:
            await store.close()
            raise
        return store

    async def _begin(self, empty: Catalogue) -> None:
        begun = 0
        while not begun:  # until the catalogue that was looked at is the one that holds
            text = await self._ask(self._client.get(scripts.STORE_KEYS[0])) or encode_catalogue(empty)
            life = new_life()
            digest = first_digest(self._read_catalogue(text).epoch, life)
            begun = await self._run_script(scripts.OPEN, text, life, digest, current_hour())

    def _learn_run(self, info: bytes) -> None:
        self._run = next((line for line in info.splitlines() if line.startswith(b"run_id:")), b"")

    async def _ask(self, work: Awaitable[Any]) -> Any:
        """The result of `work`; errors of the store become StoreUnavailable or StoreFull."""
        try:
            return await work
        except OutOfMemoryError as error:
            raise StoreFull(f"the store is full: {error}", hint="raise its maxmemory, or make room") from error
        except (ValkeyConnectionError, ValkeyTimeoutError, OSError, TimeoutError) as error:
            raise StoreUnavailable(f"cannot reach the store: {error}", hint="is its server running?") from error
        except ValkeyError as error:
            raise StoreUnavailable(
                f"the store refuses: {error}", hint="is it a replica, read-only, or used by something else?"
            ) from error

    async def _run_script(self, text: str, *args: Any, more_keys: Sequence[bytes] = ()) -> Any:
        return await self._ask(self._scripts[text](keys=[*scripts.STORE_KEYS, *more_keys], args=args))

    def _read_catalogue(self, text: bytes) -> Catalogue:
        if text != self._known[0]:
            self._known = (text, readable(lambda: decode_catalogue(text)))
        return self._known[1]

    def _stamp(self, life: bytes, number: int) -> Stamp:
        return Stamp(self._run + life, number)

    async def catalogue(self) -> Catalogue:
        text = await self._ask(self._client.get(scripts.STORE_KEYS[0]))
        if text is None:
            raise StoreUnavailable("the store has lost its catalogue", hint="start `onoff serve` anew with it")
        return self._read_catalogue(bytes(text))

    async def latest(self, after: Stamp) -> Latest:
        messages: dict[str, WireMessage] = {}
        changed: dict[str, int] = {}
        run, whole = self._run, False
        known, number = after.life.removeprefix(run), after.changes
        while True:  # until all that was read is of the moment of the last script
            if run != self._run:  # the store was restarted
                run, known, number = self._run, b"", -1
            got = await self._run_script(scripts.LATEST, BATCH_BYTES, known, number)
            edition, catalogue, names = self._read_state(got)
            if edition.life != known or number < 0:
                known, whole = edition.life, True
                messages, changed = {}, {}
            found, now = got[5:], got[:2]
            while 2 * len(names) > len(found) and now[1] == known:
                more = await self._run_script(scripts.BODIES, BATCH_BYTES, *list(names)[len(found) // 2 :])
                now = more[:2]
                found += more[2:]
            if now[1] != known or run != self._run:
                continue
            for (name, at), (version, packed) in zip(names.items(), pairs(found), strict=True):
                changed[name.decode()] = at
                messages[name.decode()] = unpack_message(version, packed)
            number = edition.number
            if now == got[:2]:
                return Latest(self._stamp(known, number), catalogue, messages, whole, edition, changed)

    def _read_state(self, got: list[Any]) -> tuple[Edition, Catalogue, dict[bytes, int]]:
        def read() -> tuple[Edition, Catalogue, dict[bytes, int]]:
            catalogue = self._read_catalogue(got[3])
            edition = Edition(catalogue.epoch, got[1], int(got[0]), got[2])
            return edition, catalogue, {name: int(at) for name, at in pairs(got[4])}

        return readable(read)

    async def admit(self, session: bytes, step: int, digest: bytes) -> Admission:
        number, life, *held = await self._run_script(
            scripts.ADMIT,
            session,
            bucket_number(session, self._buckets),
            _LAST.pack(step, digest),
            time.time_ns() // 1_000_000,
            more_keys=[_OLD_STEP + session.hex().encode()],
        )
        conflict = readable(lambda: LastStep(*_LAST.unpack(held[0]))) if held else None
        return Admission(self._stamp(life, readable(lambda: int(number))), conflict)

    async def last_step(self, session: bytes) -> LastStep | None:
        bucket = await self._ask(self._client.hget(scripts.STORE_KEYS[9], str(bucket_number(session, self._buckets))))
        offset = find_slot(session, bucket or b"")
        if offset is None:
            held = await self._ask(self._client.get(_OLD_STEP + session.hex().encode()))
        else:
            held = bucket[offset + 16 : offset + 56]
        return readable(lambda: LastStep(*_LAST.unpack(held))) if held else None

    # Publishing.

    async def publish(self, name: str, media_type: str, body: bytes, published: int) -> WireMessage:
        return await self._publishing.publish(name, WireMessage(0, published, media_type, body))

    async def replace_catalogue(self, new: Catalogue, *, expected: Catalogue) -> bool:
        latest = await self.latest(Stamp())
        check_fits(new, {name: len(message.body) for name, message in latest.messages.items()})
        life = new_life()
        digest = first_digest(new.epoch, life)
        args = [encode_catalogue(expected), encode_catalogue(new), life, digest, *new.names]
        return bool(await self._run_script(scripts.REPLACE, *args))

    async def restore(self, catalogue: Catalogue, messages: Mapping[str, WireMessage]) -> None:
        life = new_life()
        digest = first_digest(catalogue.epoch, life)
        args: list[Any] = [encode_catalogue(catalogue), life, digest, catalogue.n, *catalogue.names]
        for name, message in messages.items():
            args += [name, pack_message(message), message.version]
        await self._run_script(scripts.RESTORE, *args)

    async def leader(self) -> str | None:
        held = await self._ask(self._client.hget(scripts.STORE_KEYS[6], "leader"))
        return None if held is None else readable(held.decode)

    async def adopt(self, step: Adoption, *, expected: Edition) -> bool:
        edition, names = step.edition, step.catalogue.names if step.whole else ()
        size = sum(FRAME_OVERHEAD + len(message.body) for message in step.messages.values())
        args: list[Any] = [expected.number, expected.life, expected.digest]
        args += [edition.number, edition.life, edition.digest, step.leader, int(step.whole), current_hour(), size]
        args += [encode_catalogue(step.catalogue), len(names), *names]
        for name, message in step.messages.items():
            args += [name, pack_message(message), message.version]
        return bool(await self._run_script(scripts.ADOPT, *args))

    # Publishers, editions, and what the store is good for.

    async def publishers(self) -> Sequence[Publisher]:
        rows = await self._ask(self._client.hgetall(_PUBLISHERS))

        def read() -> list[Publisher]:
            found = []
            for name, text in rows.items():
                fields = json.loads(text)
                found.append(Publisher(name.decode(), bytes.fromhex(fields["digest"]), tuple(fields["sources"])))
            return found

        return readable(read)

    async def add_publisher(self, publisher: Publisher) -> None:
        text = json.dumps({"digest": publisher.digest.hex(), "sources": publisher.sources})
        await self._ask(self._client.hset(_PUBLISHERS, publisher.name, text))

    async def feed_names(self) -> Mapping[str, str]:
        rows = await self._ask(self._client.hgetall(_FEEDS))
        return readable(lambda: {url.decode(): name.decode() for url, name in rows.items()})

    async def replace_feed_names(self, names: Mapping[str, str]) -> None:
        both = self._client.pipeline(transaction=True).delete(_FEEDS)
        await self._ask((both.hset(_FEEDS, mapping=dict(names)) if names else both).execute())

    async def digest_of(self, number: int) -> bytes | None:
        held: bytes | None = await self._ask(self._client.hget(scripts.STORE_KEYS[7], str(number)))
        return held

    async def changed_per_hour(self) -> int:
        born = await self._ask(self._client.hget(scripts.STORE_KEYS[6], "born"))
        hours = await self._ask(self._client.hgetall(scripts.STORE_KEYS[8]))
        return readable(
            lambda: changed_per_hour({int(hour): int(size) for hour, size in hours.items()}, int(born or 0))
        )

    async def readiness(self) -> Readiness:
        return await self._readiness()

    async def _probe(self) -> Readiness:
        """A query writes to the store as a publish does, so one failure affects both."""
        try:
            await self.catalogue()
            await self._ask(self._client.set(_PROBE, time.time_ns()))
        except StoreUnavailable as error:
            return Readiness(answers=False, keeps=False, reason=error.message)
        return Readiness()

    async def promise(self) -> Promise:
        await self.catalogue()
        try:
            config = await self._ask(self._client.config_get("append*"))
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, ResponseError):
                raise
            return Promise("valkey", False, "unknown: the store does not tell how it writes its log")
        if config.get("appendonly") != "yes":
            return Promise("valkey", False, "no log: a crash of the store loses all since its last snapshot")
        match config.get("appendfsync"):
            case "always":
                return Promise("valkey", True, "log synced at every write: an acknowledged message survives a crash")
            case "everysec":
                return Promise("valkey", False, "log synced every second: a power cut loses up to two seconds")
            case mode:
                return Promise(
                    "valkey", False, f"log synced by the system ({mode}): a power cut loses the last moments"
                )

    async def close(self) -> None:
        await self._publishing.close()
        await self._client.aclose()
