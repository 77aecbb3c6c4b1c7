"""Queries: a set of sources as a bitmap, asked at one step of one session.

    query    version 2 | epoch 6 | session 16 | step 8 | bitmap ceil(N/8)            integers are big-endian
    bitmap   source i is bit i % 8 (least significant first) of byte i // 8; spare bits zero; at least one set

All queries to a server are equally long, whatever their sets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final, NamedTuple, TypeVar

from onoff.errors import InvalidWire
from onoff.wire.catalogue import EPOCH_LIMIT, MAX_SOURCES

WIRE_VERSION: Final = 1
SESSION_BYTES: Final = 16
STEP_LIMIT: Final = 1 << 53  # steps are exact in every JSON reader

_QUERY_HEAD = struct.Struct(">H6s16sQ")
QUERY_HEAD_BYTES: Final = _QUERY_HEAD.size
MAX_QUERY: Final = QUERY_HEAD_BYTES + MAX_SOURCES // 8

_FLAGS = bytes(byte == ord("1") for byte in range(256))

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WireQuery:
    """A set of sources, ascending, asked at one step of one session."""

    epoch: int
    session: bytes
    step: int
    sources: tuple[int, ...]
    n: int = field(kw_only=True)


class QueryHead(NamedTuple):
    """The fields before the bitmap; readable before the catalogue is known."""

    epoch: int
    session: bytes
    step: int


def bitmap_length(n: int) -> int:
    return (n + 7) // 8


def query_length(n: int) -> int:
    """The length of every query to n sources."""
    return QUERY_HEAD_BYTES + bitmap_length(n)


def encode_bitmap(sources: Sequence[int], n: int) -> bytes:
    """The set `sources`, strictly ascending below n, as its one bitmap."""
    if not sources:
        raise InvalidWire("a query for no source", hint="ask for at least one")
    bitmap = bytearray(bitmap_length(n))
    last = -1
    for source in sources:
        if not last < source < n:
            raise InvalidWire(f"sources that do not ascend below {n}", hint="sort them and remove duplicates")
        bitmap[source >> 3] |= 1 << (source & 7)
        last = source
    return bytes(bitmap)


def select(bitmap: bytes, items: Sequence[_T]) -> list[_T]:
    """The items whose bits are set, in order; each item has a bit."""
    n = len(items)
    if len(bitmap) != bitmap_length(n):
        raise InvalidWire(f"a bitmap of {len(bitmap)} bytes", hint=f"{n} sources take exactly {bitmap_length(n)} bytes")
    bits = int.from_bytes(bitmap, "little")
    if bits >> n:
        raise InvalidWire("a bitmap whose spare bits are not zero", hint=f"there are only {n} sources")
    if not bits:
        raise InvalidWire("a query for no source", hint="ask for at least one")
    return list(compress(items, f"{bits:b}".encode().translate(_FLAGS)[::-1]))


def decode_bitmap(bitmap: bytes, n: int) -> tuple[int, ...]:
    """The sources of a bitmap, ascending."""
    return tuple(select(bitmap, range(n)))


def encode_query(query: WireQuery) -> bytes:
    """The bytes of a query: the same length for every set."""
    if not 0 <= query.epoch < EPOCH_LIMIT or not 0 <= query.step < STEP_LIMIT:
        raise InvalidWire("an epoch or step out of range", hint="start a new session")
    if len(query.session) != SESSION_BYTES:
        raise InvalidWire(f"a session id of {len(query.session)} bytes", hint=f"use {SESSION_BYTES} random bytes")
    head = _QUERY_HEAD.pack(WIRE_VERSION, query.epoch.to_bytes(6), query.session, query.step)
    return head + encode_bitmap(query.sources, query.n)


def decode_query_head(data: bytes) -> QueryHead:
    """Epoch, session and step of a query; the bitmap that follows needs the catalogue's n."""
    if len(data) < QUERY_HEAD_BYTES:
        raise InvalidWire(f"a query of {len(data)} bytes", hint=f"its head alone has {QUERY_HEAD_BYTES}")
    version, epoch, session, step = _QUERY_HEAD.unpack_from(data)
    if version != WIRE_VERSION:
        raise InvalidWire(f"a query of version {version}", hint=f"this server speaks version {WIRE_VERSION}")
    if step >= STEP_LIMIT:
        raise InvalidWire("a step out of range", hint="start a new session")
    return QueryHead(int.from_bytes(epoch), session, step)


def decode_query(data: bytes, n: int) -> WireQuery:
    """The query in `data`, whose catalogue has n sources."""
    head = decode_query_head(data)
    return WireQuery(head.epoch, head.session, head.step, decode_bitmap(data[QUERY_HEAD_BYTES:], n), n=n)
