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
    {onoff}:steps                hash, bucket -> slots as in `StepTable`: the last step of up to 262144 sessions

Each method is one script, so versions, editions and steps are atomic over all servers; `PublishQueue` says how
messages are published. A new session in a full bucket takes the slot that was seen longest ago, so clients cannot fill
the store; a forgotten session starts afresh. What an acknowledged message survives depends on how the store itself
is set to write its log; `promise()` asks it and says so.

A store that was restarted, or replaced by its replica, may have lost its last writes and use their numbers again. So
every connection asks for the run id of the store, and after another run everything is read again.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from valkey.asyncio import BlockingConnectionPool, Valkey
from valkey.exceptions import ConnectionError as ValkeyConnectionError
from valkey.exceptions import OutOfMemoryError, ResponseError, ValkeyError
from valkey.exceptions import TimeoutError as ValkeyTimeoutError

from onoff.errors import InvalidInput, OnOffError, StoreFull, StoreUnavailable, UnknownSource
from onoff.server.store import (
    BUCKETS,
    HOURS,
    KEPT_DIGESTS,
    SLOT_BYTES,
    SLOTS,
    Adoption,
    LastStep,
    Latest,
    Probing,
    Promise,
    Publisher,
    Readiness,
    Stamp,
    bucket_number,
    changed_per_hour,
    check_fits,
    check_message,
    check_total,
    current_hour,
    find_slot,
    may_overflow,
    new_life,
    readable,
    settle,
)
from onoff.wire import (
    FRAME_OVERHEAD,
    Catalogue,
    Edition,
    WireMessage,
    decode_catalogue,
    encode_catalogue,
    first_digest,
    next_digest,
)

# The Lua scripts, each atomic over all servers. In every script KEYS are `STORE_KEYS`, in order; ADMIT has one more.
# A store without a catalogue answers EMPTY.

_NAMES = ("catalogue", "sources", "changes", "versions", "messages", "changed", "edition", "digests", "hours", "steps")
STORE_KEYS: Final = tuple(f"{{onoff}}:{name}" for name in _NAMES)

_START = """
local catalogue = redis.call('GET', KEYS[1])
if not catalogue then return redis.error_reply('EMPTY no catalogue') end
local number = redis.call('GET', KEYS[3])
local life, digest = redis.call('HGET', KEYS[7], 'life'), redis.call('HGET', KEYS[7], 'digest')
"""
_BEGIN_LIFE = """
redis.call('SET', KEYS[3], number)
redis.call('HSET', KEYS[7], 'life', life, 'digest', digest)
redis.call('DEL', KEYS[8])
redis.call('HSET', KEYS[8], number, digest)
"""
_TAKE_BODIES = """
local size = 0
for i = first, #names do
    if size > budget then break end
    local body = redis.call('HGET', KEYS[5], names[i]) or ''
    found[#found + 1] = redis.call('HGET', KEYS[4], names[i]) or '0'
    found[#found + 1] = body
    size = size + #body
end
return found
"""
_PUT_MESSAGES = """
for i = last + 1, #ARGV, 3 do
    redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1])
    redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 2])
    redis.call('ZADD', KEYS[6], number, ARGV[i])
end
return 1
"""

# ARGV: catalogue, life, digest, hour. A store of version 0.1 has a catalogue and no life. Gives 0 if the catalogue
# is another one.
OPEN: Final = f"""
redis.call('SETNX', KEYS[1], ARGV[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('HEXISTS', KEYS[7], 'life') == 1 then return 1 end
local number, life, digest = redis.call('GET', KEYS[3]) or '0', ARGV[2], ARGV[3]
{_BEGIN_LIFE}
redis.call('HSET', KEYS[7], 'born', ARGV[4])
return 1
"""

# ARGV: '1' if the size of all messages is wanted, names. Gives number, life, digest, catalogue, size of all, and for
# each name its version and size.
STATE: Final = f"""{_START}
local total = 0
if ARGV[1] == '1' then
    for _, name in ipairs(redis.call('HKEYS', KEYS[5])) do total = total + redis.call('HSTRLEN', KEYS[5], name) end
end
local found = {{number, life, digest, catalogue, total}}
for i = 2, #ARGV do
    found[#found + 1] = redis.call('HGET', KEYS[4], ARGV[i]) or '0'
    found[#found + 1] = redis.call('HSTRLEN', KEYS[5], ARGV[i])
end
return found
"""

# ARGV: number and life that the rest was computed from, hour; then for each message name, content, version, digest,
# size. Gives 0 if the edition is another one.
PUBLISH: Final = f"""{_START}
if number ~= ARGV[1] or life ~= ARGV[2] then return 0 end
local count = tonumber(number)
for i = 4, #ARGV, 5 do
    count = count + 1
    digest = ARGV[i + 3]
    redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1])
    redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 2])
    redis.call('ZADD', KEYS[6], count, ARGV[i])
    redis.call('HSET', KEYS[8], count, digest)
    redis.call('HDEL', KEYS[8], count - {KEPT_DIGESTS})
    redis.call('HINCRBY', KEYS[9], ARGV[3], ARGV[i + 4])
end
redis.call('SET', KEYS[3], count)
redis.call('HSET', KEYS[7], 'digest', digest)
for _, hour in ipairs(redis.call('HKEYS', KEYS[9])) do
    if tonumber(hour) <= ARGV[3] - {HOURS} then redis.call('HDEL', KEYS[9], hour) end
end
return 1
"""

# ARGV: bytes to give at once, life, number. Gives number, life, digest, catalogue, the names that changed after it with
# the numbers of their editions, and for the first of these names version and content.
LATEST: Final = f"""{_START}
local after = '-inf'
if life == ARGV[2] then after = '(' .. ARGV[3] end
local changed = redis.call('ZRANGEBYSCORE', KEYS[6], after, '+inf', 'WITHSCORES')
local names = {{}}
for i = 1, #changed, 2 do names[#names + 1] = changed[i] end
local found = {{number, life, digest, catalogue, changed}}
local first, budget = 1, tonumber(ARGV[1])
{_TAKE_BODIES}
"""

# ARGV: bytes to give at once, names. Gives number, life, and for the first of the names version and content.
BODIES: Final = f"""{_START}
local found, names, first, budget = {{number, life}}, ARGV, 2, tonumber(ARGV[1])
{_TAKE_BODIES}
"""

# KEYS: one more, of the session in version 0.1. ARGV: session, its bucket, step and digest, milliseconds now. A bucket
# has slots as in `steps`: session 16 | step 8 | sha256 32 | last seen 8. Returns number, life, conflicting step.
ADMIT: Final = f"""{_START}
local bucket = redis.call('HGET', KEYS[10], ARGV[2]) or ''
local at, oldest, oldest_at = nil, nil, nil
for i = 1, #bucket, {SLOT_BYTES} do
    if string.sub(bucket, i, i + 15) == ARGV[1] then at = i end
    local seen = struct.unpack('>I8', string.sub(bucket, i + 56, i + 63))
    if not oldest or seen < oldest then oldest, oldest_at = seen, i end
end
local held = nil
if at then held = string.sub(bucket, at + 16, at + 55) else held = redis.call('GET', KEYS[11]) end
if held and held ~= ARGV[3] and struct.unpack('>I8', held) >= struct.unpack('>I8', ARGV[3]) then
    return {{number, life, held}}
end
if not at then
    redis.call('DEL', KEYS[11])
    if #bucket < {SLOTS * SLOT_BYTES} then at = #bucket + 1 else at = oldest_at end
end
local slot = ARGV[1] .. ARGV[3] .. struct.pack('>I8', ARGV[4])
redis.call('HSET', KEYS[10], ARGV[2], string.sub(bucket, 1, at - 1) .. slot .. string.sub(bucket, at + {SLOT_BYTES}))
return {{number, life}}
"""

# ARGV: catalogue expected, new one, life, digest, names. Gives 0 if the catalogue is another one.
REPLACE: Final = f"""{_START}
if catalogue ~= ARGV[1] then return 0 end
number, life, digest = number + 1, ARGV[3], ARGV[4]
{_BEGIN_LIFE}
redis.call('SET', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2])
for i = 5, #ARGV do redis.call('SADD', KEYS[2], ARGV[i]) end
for _, name in ipairs(redis.call('ZRANGE', KEYS[6], 0, -1)) do
    if redis.call('SISMEMBER', KEYS[2], name) == 0 then
        redis.call('ZREM', KEYS[6], name)
        redis.call('HDEL', KEYS[4], name)
        redis.call('HDEL', KEYS[5], name)
    end
end
return 1
"""

# ARGV: catalogue, life, digest, number of names, names; then for each message name, content, version.
RESTORE: Final = f"""{_START}
number, life, digest = number + 1, ARGV[2], ARGV[3]
{_BEGIN_LIFE}
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2], KEYS[4], KEYS[5], KEYS[6])
local last = 4 + ARGV[4]
for i = 5, last do redis.call('SADD', KEYS[2], ARGV[i]) end
{_PUT_MESSAGES}
"""

# ARGV: number, life and digest expected; number, life, digest, leader, '1' if whole, hour, bytes; catalogue, number of
# names, names; then for each message name, content, version. Gives 0 if the edition is another one.
ADOPT: Final = f"""{_START}
if number ~= ARGV[1] or life ~= ARGV[2] or digest ~= ARGV[3] then return 0 end
number, life, digest = ARGV[4], ARGV[5], ARGV[6]
local last = 12 + ARGV[12]
if ARGV[8] == '1' then
    {_BEGIN_LIFE}
    redis.call('SET', KEYS[1], ARGV[11])
    redis.call('DEL', KEYS[2], KEYS[4], KEYS[5], KEYS[6])
    for i = 13, last do redis.call('SADD', KEYS[2], ARGV[i]) end
else
    redis.call('SET', KEYS[3], number)
    redis.call('HSET', KEYS[7], 'digest', digest)
    redis.call('HSET', KEYS[8], number, digest)
    redis.call('HDEL', KEYS[8], number - {KEPT_DIGESTS})
    redis.call('HINCRBY', KEYS[9], ARGV[9], ARGV[10])
end
redis.call('HSET', KEYS[7], 'leader', ARGV[7])
{_PUT_MESSAGES}
"""


_HEAD = struct.Struct(">QB")


def pack_message(message: WireMessage) -> bytes:
    """A message without its version: published 8 | length of media type 1 | media type | body."""
    return _HEAD.pack(message.published, len(message.media_type)) + message.media_type.encode() + message.body


def unpack_message(version: bytes, packed: bytes) -> WireMessage:
    """The message that was packed. Raises StoreUnavailable."""

    def read() -> WireMessage:
        published, length = _HEAD.unpack_from(packed)
        start = _HEAD.size + length
        return WireMessage(int(version), published, packed[_HEAD.size : start].decode("ascii"), packed[start:])

    return readable(read)


def pairs(items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """A flat list of a script, two by two."""
    return zip(items[::2], items[1::2], strict=True)


def number_pairs(items: Sequence[Any]) -> list[tuple[int, int]]:
    """The same as numbers. Raises StoreUnavailable."""
    return readable(lambda: [(int(one), int(other)) for one, other in pairs(items)])


BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of messages that one script writes or reads, about."""


@dataclass(slots=True)
class _Waiting:
    """A publish that waits for its turn."""

    name: str
    message: WireMessage  # its version is not known yet
    done: asyncio.Future[WireMessage]


class PublishQueue:
    """The publishes of one process, in batches, each conditional on the edition that it follows.

    The next digest is computed here from the edition that was looked at; the script accepts it only if that is still
    the newest one, else the batch is computed again. Publishes that come meanwhile wait and go together.

    run_script: Runs a script on the store.
    read_state: The edition and the catalogue that a script returned.
    known: The catalogue that was read last: whether its messages together may be too many bytes.
    """

    def __init__(
        self,
        run_script: Callable[..., Awaitable[Any]],
        read_state: Callable[[list[Any]], tuple[Edition, Catalogue, dict[bytes, int]]],
        known: Callable[[], Catalogue],
    ) -> None:
        self.run_script = run_script
        self._read_state = read_state
        self._known = known
        self._queue: deque[_Waiting] = deque()
        self._publishing: asyncio.Task[None] | None = None

    async def publish(self, name: str, message: WireMessage) -> WireMessage:
        """Publish a message without a version; return it with the one that it got. Raises what a store raises."""
        waiting = _Waiting(name, message, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish_queue())
        return await waiting.done

    async def close(self) -> None:
        """Return when nothing waits."""
        if self._publishing is not None:
            await self._publishing

    async def _publish_queue(self) -> None:
        while self._queue:
            batch, size = [self._queue.popleft()], 0
            while self._queue and size < BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += len(batch[-1].message.body)
            try:
                await self._publish_batch([one for one in batch if not one.done.done()])
            except Exception as error:
                for one in batch:
                    settle(one.done, error)

    async def _publish_batch(self, batch: list[_Waiting]) -> None:
        """Publish all that can be, in order; tell each its message, or why it is refused."""
        outcomes: dict[int, WireMessage | OnOffError] = {}
        accepted = 0
        while not accepted and batch:  # until the edition that was looked at is the one that holds
            names = list(dict.fromkeys(one.name for one in batch))
            want_total = "1" if may_overflow(self._known()) else "0"
            got = await self.run_script(STATE, want_total, *names)
            edition, catalogue, _ = self._read_state([*got[:4], []])
            if may_overflow(catalogue) and want_total == "0":
                continue
            held = dict(zip(names, number_pairs(got[5:]), strict=True))
            args: list[Any] = []
            outcomes, digest, total = {}, edition.digest, int(got[4])
            for k, one in enumerate(batch):
                version, size = held[one.name]
                message = WireMessage(version + 1, one.message.published, one.message.media_type, one.message.body)
                try:
                    _check(catalogue, one.name, message, total - size if want_total == "1" else 0)
                except OnOffError as refusal:
                    outcomes[k] = refusal
                    continue
                packed = pack_message(message)
                digest = next_digest(digest, catalogue.index[one.name], message)
                args += [one.name, packed, message.version, digest, FRAME_OVERHEAD + len(message.body)]
                total += len(packed) - size
                held[one.name] = (message.version, len(packed))
                outcomes[k] = message
            accepted = not args or await self.run_script(PUBLISH, edition.number, edition.life, current_hour(), *args)
        for k, one in enumerate(batch):
            settle(one.done, outcomes[k])


def _check(catalogue: Catalogue, name: str, message: WireMessage, others: int) -> None:
    if name not in catalogue.index:
        raise UnknownSource("no source of that name", hint="`onoff catalogue` lists them")
    check_message(catalogue, message.body)
    if may_overflow(catalogue):
        check_total(catalogue, others, message.body)


_PUBLISHERS = "{onoff}:publishers"
_FEEDS = "{onoff}:feeds"
_PROBE = "{onoff}:probed"
_OLD_STEP = b"{onoff}:step:"  # version 0.1 had a key for each session
_LAST = struct.Struct(">Q32s")
_CONNECTIONS = 16
_SECONDS = 5


class ValkeyStore:
    """A store that many servers share."""

    never_waits = False  # every verdict is a round trip

    def __init__(self, client: Any, *, buckets: int = BUCKETS) -> None:
        self._client = client
        self.buckets = buckets
        self._run = b""
        self._known = (b"", Catalogue(()))
        self._publishing = PublishQueue(self.run_script, self._read_state, lambda: self._known[1])
        self.probing = Probing(self._probe)
        self._scripts = {
            text: client.register_script(text)
            for text in (
                *(OPEN, STATE, PUBLISH, LATEST, BODIES),
                *(ADMIT, REPLACE, RESTORE, ADOPT),
            )
        }

    @classmethod
    async def open(cls, url: str, *, frame_size: int | None = None, limit: int = 0) -> ValkeyStore:
        """Connect; an empty store gets an empty catalogue, one of version 0.1 its first edition.

        Raises StoreUnavailable if there is no answer, or the content cannot be read, InvalidInput if it is not an
        address.
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
            text = await self._ask(self._client.get(STORE_KEYS[0])) or encode_catalogue(empty)
            life = new_life()
            digest = first_digest(self._read_catalogue(text).epoch, life)
            begun = await self.run_script(OPEN, text, life, digest, current_hour())

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

    async def run_script(self, text: str, *args: Any, more_keys: Sequence[bytes] = ()) -> Any:
        return await self._ask(self._scripts[text](keys=[*STORE_KEYS, *more_keys], args=args))

    def _read_catalogue(self, text: bytes) -> Catalogue:
        if text != self._known[0]:
            self._known = (text, readable(lambda: decode_catalogue(text)))
        return self._known[1]

    def _stamp(self, life: bytes, number: int) -> Stamp:
        return Stamp(self._run + life, number)

    async def catalogue(self) -> Catalogue:
        text = await self._ask(self._client.get(STORE_KEYS[0]))
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
            got = await self.run_script(LATEST, BATCH_BYTES, known, number)
            edition, catalogue, names = self._read_state(got)
            if edition.life != known or number < 0:
                known, whole = edition.life, True
                messages, changed = {}, {}
            found, now = got[5:], got[:2]
            while 2 * len(names) > len(found) and now[1] == known:
                more = await self.run_script(BODIES, BATCH_BYTES, *list(names)[len(found) // 2 :])
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

    async def admit(self, session: bytes, step: int, digest: bytes) -> tuple[Stamp, LastStep | None]:
        number, life, *held = await self.run_script(
            ADMIT,
            session,
            bucket_number(session, self.buckets),
            _LAST.pack(step, digest),
            time.time_ns() // 1_000_000,
            more_keys=[_OLD_STEP + session.hex().encode()],
        )
        conflict = readable(lambda: LastStep(*_LAST.unpack(held[0]))) if held else None
        return self._stamp(life, readable(lambda: int(number))), conflict

    async def last_step(self, session: bytes) -> LastStep | None:
        bucket = await self._ask(self._client.hget(STORE_KEYS[9], str(bucket_number(session, self.buckets))))
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
        return bool(await self.run_script(REPLACE, *args))

    async def restore(self, catalogue: Catalogue, messages: Mapping[str, WireMessage]) -> None:
        life = new_life()
        digest = first_digest(catalogue.epoch, life)
        args: list[Any] = [encode_catalogue(catalogue), life, digest, catalogue.n, *catalogue.names]
        for name, message in messages.items():
            args += [name, pack_message(message), message.version]
        await self.run_script(RESTORE, *args)

    async def leader(self) -> str | None:
        held = await self._ask(self._client.hget(STORE_KEYS[6], "leader"))
        return None if held is None else readable(held.decode)

    async def adopt(self, step: Adoption, *, expected: Edition) -> bool:
        edition, names = step.edition, step.catalogue.names if step.whole else ()
        size = sum(FRAME_OVERHEAD + len(message.body) for message in step.messages.values())
        args: list[Any] = [expected.number, expected.life, expected.digest]
        args += [edition.number, edition.life, edition.digest, step.leader, int(step.whole), current_hour(), size]
        args += [encode_catalogue(step.catalogue), len(names), *names]
        for name, message in step.messages.items():
            args += [name, pack_message(message), message.version]
        return bool(await self.run_script(ADOPT, *args))

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
        held: bytes | None = await self._ask(self._client.hget(STORE_KEYS[7], str(number)))
        return held

    async def changed_per_hour(self) -> int:
        born = await self._ask(self._client.hget(STORE_KEYS[6], "born"))
        hours = await self._ask(self._client.hgetall(STORE_KEYS[8]))
        return readable(
            lambda: changed_per_hour({int(hour): int(size) for hour, size in hours.items()}, int(born or 0))
        )

    async def readiness(self) -> Readiness:
        return await self.probing()

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
