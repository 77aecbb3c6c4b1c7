"""The Lua scripts of the Valkey store: each is atomic over all servers.

In every script KEYS are `STORE_KEYS`, in order; ADMIT has one more. A store without a catalogue answers EMPTY.
"""

from __future__ import annotations

from typing import Final

from onoff.server.editions import HOURS, KEPT_DIGESTS
from onoff.server.steps import SLOT_BYTES, SLOTS

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
