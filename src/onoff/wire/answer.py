"""Answers: one frame per asked source, ascending; nothing before, between or after.

    frame    source 4 | version 8 | published 8 | length 4 | media type 64 | body | zeros | checksum 16

Unpadded frames have no zeros: each is as long as its message makes it. Padded frames are all exactly as long as the
catalogue says, so the length of an answer is a function of the number of asked sources. The checksum is the first 16
bytes of SHA-256 over the epoch and all that precedes: a frame of another catalogue fails it. It detects damage,
not a malicious server. Version 0 is "nothing published yet"; `published` is in milliseconds since 1970.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from onoff.errors import InvalidWire
from onoff.wire.catalogue import (
    EPOCH_LIMIT,
    FRAME_OVERHEAD,
    MAX_ANSWER,
    MAX_LIMIT,
    MAX_SOURCES,
    Catalogue,
    capacity,
)

VERSION_LIMIT: Final = 1 << 53
TIME_LIMIT: Final = 1 << 53
MEDIA_TYPE_BYTES: Final = 64

_FRAME_HEAD = struct.Struct(">IQQI64s")
CHECKSUM_BYTES: Final = 16
_LENGTH_AT = 20  # of the length in a frame

_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?: ?; ?[\w-]+=[\w.+-]+)*", re.ASCII)


def check_media_type(media_type: str) -> str:
    """`media_type` itself, if it fits a frame and is safe to repeat in a header."""
    if len(media_type) > MEDIA_TYPE_BYTES or not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidWire(
            "not a media type",
            hint=f"such as text/plain; charset=utf-8, at most {MEDIA_TYPE_BYTES} characters",
        )
    return media_type


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One version of the message of a source; version 0 where nothing was published yet."""

    version: int = 0
    published: int = 0
    media_type: str = ""
    body: bytes = field(default=b"", repr=False)


NOTHING: Final = WireMessage()


def _checksum(epoch: int, content: bytes) -> bytes:
    digest = hashlib.sha256(epoch.to_bytes(6))
    digest.update(content)
    return digest.digest()[:CHECKSUM_BYTES]


def _check_message(message: WireMessage, room: int) -> None:
    if message.version == 0 and message != NOTHING:
        raise InvalidWire("a message of version 0 that is not empty", hint="versions start at 1")
    if not 0 <= message.version < VERSION_LIMIT or not 0 <= message.published < TIME_LIMIT:
        raise InvalidWire("a message version or time out of range", hint="versions and times count from 0")
    if message.version:
        check_media_type(message.media_type)
    if len(message.body) > room:
        raise InvalidWire(f"a message of {len(message.body)} bytes", hint=f"at most {room} bytes")


def encode_frame(
    source: int, message: WireMessage, *, epoch: int, frame_size: int | None, limit: int = MAX_LIMIT
) -> bytes:
    """The frame of `message`.

    Raises
    ------
    InvalidWire
        If the message is too long or a number is out of range.
    """
    _check_message(message, limit if frame_size is None else capacity(frame_size))
    if not 0 <= source < MAX_SOURCES or not 0 <= epoch < EPOCH_LIMIT:
        raise InvalidWire("a source index or epoch out of range", hint="take both from the catalogue")
    media_type = message.media_type.encode("ascii")
    content = _FRAME_HEAD.pack(source, message.version, message.published, len(message.body), media_type) + message.body
    if frame_size is not None:
        content = content.ljust(frame_size - CHECKSUM_BYTES, b"\0")
    return content + _checksum(epoch, content)


def decode_frame(
    data: bytes, source: int, *, epoch: int, frame_size: int | None, limit: int = MAX_LIMIT
) -> WireMessage:
    """The message in a frame.

    Raises
    ------
    InvalidWire
        If the frame is damaged, of another source or catalogue, or not in its one form.
    """
    if len(data) < FRAME_OVERHEAD or len(data) != (frame_size or len(data)):
        wanted = frame_size or f"at least {FRAME_OVERHEAD}"
        raise InvalidWire(f"a frame of {len(data)} bytes", hint=f"the catalogue says {wanted}")
    content, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if _checksum(epoch, content) != checksum:
        raise InvalidWire("a frame that is damaged or of another catalogue", hint="send the same query again")
    index, version, published, length, padded_type = _FRAME_HEAD.unpack_from(content)
    if index != source:
        raise InvalidWire("a frame of another source", hint="send the same query again")
    media_type = padded_type.rstrip(b"\0")
    end = _FRAME_HEAD.size + length
    padding = content[end:]
    if end > len(content) or any(padding) or (padding and frame_size is None) or not media_type.isascii():
        raise InvalidWire("a frame that is not in its one form", hint="the server is faulty")
    message = WireMessage(version, published, media_type.decode("ascii"), content[_FRAME_HEAD.size : end])
    _check_message(message, limit if frame_size is None else capacity(frame_size))
    return message


def frame_length(head: bytes | bytearray | memoryview) -> int:
    """The length of an unpadded frame that starts with these `FRAME_OVERHEAD` bytes or more."""
    return FRAME_OVERHEAD + int.from_bytes(head[_LENGTH_AT : _LENGTH_AT + 4])


def strip_padding(frame: bytes, *, epoch: int) -> bytes:
    """The unpadded frame of the same message."""
    content = frame[: frame_length(frame) - CHECKSUM_BYTES]
    return content + _checksum(epoch, content)


def answer_length(asked: int, frame_size: int) -> int:
    """The length of every padded answer to a query of `asked` sources."""
    return asked * frame_size


def max_answer_length(asked: int, catalogue: Catalogue) -> int:
    """The length of the longest answer to a query of `asked` sources; of every answer, where frames are padded."""
    if catalogue.frame_size is not None:
        return answer_length(asked, catalogue.frame_size)
    return min(asked * (FRAME_OVERHEAD + catalogue.limit), MAX_ANSWER)


def encode_answer(frames: Iterable[bytes]) -> bytes:
    """The answer made of ready frames, ascending by source."""
    return b"".join(frames)


def decode_answer(
    body: bytes, sources: Sequence[int], *, epoch: int, frame_size: int | None, limit: int = MAX_LIMIT
) -> tuple[WireMessage, ...]:
    """The messages of all asked `sources`, in their order; the whole body is checked first.

    Raises
    ------
    InvalidWire
        If the answer is not exactly one good frame for each asked source.
    """
    whole = memoryview(body)
    messages, at = [], 0
    if frame_size is not None and len(body) != answer_length(len(sources), frame_size):
        raise InvalidWire(
            f"an answer of {len(body)} bytes", hint=f"{len(sources)} frames make {len(sources) * frame_size}"
        )
    for source in sources:
        left = len(body) - at
        size = frame_size or (frame_length(whole[at : at + FRAME_OVERHEAD]) if left >= FRAME_OVERHEAD else left + 1)
        if size > left:
            raise InvalidWire(f"an answer of {len(body)} bytes that ends within a frame", hint="send the query again")
        frame = bytes(whole[at : at + size])
        messages.append(decode_frame(frame, source, epoch=epoch, frame_size=frame_size, limit=limit))
        at += size
    if at != len(body):
        raise InvalidWire(f"an answer with {len(body) - at} bytes after its last frame", hint="the server is faulty")
    return tuple(messages)
