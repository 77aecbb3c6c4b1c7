"""The encoding of messages and numbers in Valkey, and how they are read back and checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from onoff.server.store import readable
from onoff.wire import WireMessage

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
