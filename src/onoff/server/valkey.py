"""A store in Valkey or Redis, for any number of server processes on any number of machines.

All keys begin with `{onoff}`, so that a cluster keeps them together:

    {onoff}:catalogue            JSON as on the wire
    {onoff}:sources              set of its names
    {onoff}:changes              count of publishes and changes of the catalogue
    {onoff}:versions             hash, name -> version of its latest message
    {onoff}:messages             hash, name -> published 8 | length of media type 1 | media type | body
    {onoff}:changed              sorted set, name -> the count of its latest publish
    {onoff}:publishers           hash, name -> JSON of digest and sources
    {onoff}:step:SESSION         step 8 | sha256 32; expires when unused for 30 days

Each method is one script, so versions, counts and steps are atomic over all servers. What an acknowledged
message survives depends on how the store itself is set to write its log; `promise()` asks it and says so.

A store that was restarted, or replaced by its replica, may have lost its last moments and count them again. So
every connection asks for the id of the store's run; a new one begins a new **life** of the stamp, and copies of
an earlier life are read anew, whole.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Awaitable, Sequence
from typing import Any

from valkey.asyncio import BlockingConnectionPool, Valkey
from valkey.exceptions import ResponseError, ValkeyError

from onoff.errors import InvalidWire, StoreUnavailable, UnknownSource
from onoff.server.store import (
    SESSION_DAYS,
    Admission,
    LastStep,
    Latest,
    Promise,
    Publisher,
    Stamp,
    check_fits,
)
from onoff.wire import FRAME_OVERHEAD, Catalogue, Message, decode_catalogue, encode_catalogue

_KEYS = [f"{{onoff}}:{k}" for k in ("catalogue", "sources", "changes", "versions", "messages", "changed")]
_PUBLISHERS = "{onoff}:publishers"
_STEP = b"{onoff}:step:"
_HEAD = struct.Struct(">QB")
_LAST = struct.Struct(">Q32s")
_BATCH_BYTES = 4 * 1024 * 1024
_CONNECTIONS = 16
_SECONDS = 5

# In every script KEYS are those of _KEYS, in order; a store without a catalogue answers "EMPTY".
_START = """
local catalogue = redis.call('GET', KEYS[1])
if not catalogue then return redis.error_reply('EMPTY no catalogue') end
"""
_PUBLISH = (
    _START
    + """
if catalogue ~= ARGV[1] then return 0 end
if redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 0 then return -1 end
local count = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[5], ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[6], count, ARGV[2])
return redis.call('HINCRBY', KEYS[4], ARGV[2], 1)
"""
)
_LATEST = (
    _START
    + """
local names = redis.call('ZRANGEBYSCORE', KEYS[6], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local found = {redis.call('GET', KEYS[3]), catalogue}
for i = 1, #names, 2 do
    found[#found + 1] = names[i]
    found[#found + 1] = names[i + 1]
    found[#found + 1] = redis.call('HGET', KEYS[4], names[i])
    found[#found + 1] = redis.call('HGET', KEYS[5], names[i])
end
return found
"""
)
_ADMIT = (
    _START
    + """
local held = redis.call('GET', KEYS[7])
if held and held ~= ARGV[1] and struct.unpack('>I8', held) >= struct.unpack('>I8', ARGV[1]) then
    return {redis.call('GET', KEYS[3]), held}
end
redis.call('SET', KEYS[7], ARGV[1], 'EX', ARGV[2])
return {redis.call('GET', KEYS[3])}
"""
)
_REPLACE = (
    _START
    + """
if catalogue ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('INCR', KEYS[3])
redis.call('DEL', KEYS[2])
for i = 3, #ARGV do redis.call('SADD', KEYS[2], ARGV[i]) end
for _, name in ipairs(redis.call('ZRANGE', KEYS[6], 0, -1)) do
    if redis.call('SISMEMBER', KEYS[2], name) == 0 then
        redis.call('ZREM', KEYS[6], name)
        redis.call('HDEL', KEYS[4], name)
        redis.call('HDEL', KEYS[5], name)
    end
end
return 1
"""
)


class ValkeyStore:
    """A store that many servers share."""

    nearby = None  # every verdict is a round trip

    def __init__(self, client: Any) -> None:
        self._client = client
        self._life = 0
        self._run = b"none yet"
        self._known = (b"", Catalogue(()))
        scripts = (_PUBLISH, _LATEST, _ADMIT, _REPLACE)
        self._publish, self._latest, self._admit, self._replace = map(client.register_script, scripts)

    @classmethod
    async def open(cls, url: str, *, frame_size: int) -> ValkeyStore:
        """Connect; an empty store gets an empty catalogue."""
        store: ValkeyStore

        async def connected(connection: Any) -> None:
            await connection.on_connect()
            await connection.send_command("INFO", "server")
            store._learn_life(await connection.read_response())

        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=_SECONDS,
                socket_timeout=_SECONDS,
                socket_connect_timeout=_SECONDS,
                valkey_connect_func=connected,
            )
            store = cls(Valkey.from_pool(pool))
            empty = encode_catalogue(Catalogue((), frame_size))
            await store._client.set(_KEYS[0], empty, nx=True)
            await store._client.set(_KEYS[2], 0, nx=True)
        except (ValkeyError, OSError, ValueError) as error:
            raise StoreUnavailable(f"cannot reach the store: {error}", hint="is its server running?") from error
        return store

    def _learn_life(self, info: bytes) -> None:
        run = next((line for line in info.splitlines() if line.startswith(b"run_id:")), b"")
        if run != self._run:
            self._run, self._life = run, self._life + 1

    async def _ask(self, work: Awaitable[Any]) -> Any:
        """The outcome of `work`, with the store's failures as ours."""
        try:
            return await work
        except (ValkeyError, OSError, TimeoutError) as error:
            raise StoreUnavailable(f"the store does not answer: {error}", hint="is its server running?") from error

    def _read_catalogue(self, text: bytes) -> Catalogue:
        if text != self._known[0]:
            self._known = (text, decode_catalogue(text))
        return self._known[1]

    async def _catalogue_text(self) -> bytes:
        text = await self._ask(self._client.get(_KEYS[0]))
        if text is None:
            raise StoreUnavailable("the store has lost its catalogue", hint="start `onoff serve` anew with it")
        return bytes(text)

    async def catalogue(self) -> Catalogue:
        return self._read_catalogue(await self._catalogue_text())

    async def latest(self, after: Stamp) -> Latest:
        life = self._life
        whole = after.life != life or after.changes < 0
        since, target = (-1 if whole else after.changes), -1
        messages: dict[str, Message] = {}
        while True:
            batch = max(1, _BATCH_BYTES // (self._known[1].limit + FRAME_OVERHEAD))
            count, text, *rows = await self._ask(self._latest(keys=_KEYS, args=[since, batch]))
            target = int(count) if target < 0 else target
            for name, score, version, packed in zip(*[iter(rows)] * 4, strict=True):
                messages[name.decode()] = _unpack(int(version), packed)
                since = int(score)
            if len(rows) < 4 * batch or since >= target:
                break
        catalogue = self._read_catalogue(text)
        messages = {name: message for name, message in messages.items() if name in catalogue.index}
        return Latest(Stamp(life, target), catalogue, messages, whole)

    async def admit(self, session: bytes, step: int, digest: bytes) -> Admission:
        args = [_LAST.pack(step, digest), SESSION_DAYS * 86400]
        count, *held = await self._ask(self._admit(keys=[*_KEYS, _STEP + session.hex().encode()], args=args))
        conflict = LastStep(*_LAST.unpack(held[0])) if held else None
        return Admission(Stamp(self._life, int(count)), conflict)

    async def last_step(self, session: bytes) -> LastStep | None:
        held = await self._ask(self._client.get(_STEP + session.hex().encode()))
        return LastStep(*_LAST.unpack(held)) if held else None

    async def publish(self, name: str, media_type: str, body: bytes, published: int) -> Message:
        packed = _HEAD.pack(published, len(media_type)) + media_type.encode() + body
        version = 0
        while version == 0:  # until the catalogue that was judged is the one that holds
            text = await self._catalogue_text()
            limit = self._read_catalogue(text).limit
            if len(body) > limit:
                raise InvalidWire(f"a message of {len(body)} bytes", hint=f"at most {limit} bytes")
            version = await self._ask(self._publish(keys=_KEYS, args=[text, name, packed]))
        if version < 0:
            raise UnknownSource("no source of that name", hint="`onoff catalogue` lists them")
        return Message(int(version), published, media_type, body)

    async def replace_catalogue(self, new: Catalogue, *, expected: Catalogue) -> bool:
        latest = await self.latest(Stamp())
        check_fits(new, {name: len(message.body) for name, message in latest.messages.items()})
        args = [encode_catalogue(expected), encode_catalogue(new), *new.names]
        return bool(await self._ask(self._replace(keys=_KEYS, args=args)))

    async def publishers(self) -> Sequence[Publisher]:
        rows = await self._ask(self._client.hgetall(_PUBLISHERS))
        found = []
        for name, text in rows.items():
            fields = json.loads(text)
            found.append(Publisher(name.decode(), bytes.fromhex(fields["digest"]), tuple(fields["sources"])))
        return found

    async def add_publisher(self, publisher: Publisher) -> None:
        text = json.dumps({"digest": publisher.digest.hex(), "sources": publisher.sources})
        await self._ask(self._client.hset(_PUBLISHERS, publisher.name, text))

    async def promise(self) -> Promise:
        await self._catalogue_text()
        try:
            config = await self._client.config_get("append*")
        except ResponseError:
            return Promise("valkey", False, "unknown: the store does not tell how it writes its log")
        except (ValkeyError, OSError) as error:
            raise StoreUnavailable(f"the store does not answer: {error}", hint="is its server running?") from error
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
        await self._client.aclose()


def _unpack(version: int, packed: bytes) -> Message:
    published, length = _HEAD.unpack_from(packed)
    start = _HEAD.size + length
    return Message(version, published, packed[_HEAD.size : start].decode(), packed[start:])
