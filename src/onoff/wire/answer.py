"""Answers: one frame per asked source, ascending; nothing before, between or after.

    frame    source 4 | version 8 | published 8 | length 4 | media type 64 | body | zeros | checksum 16

A frame is always exactly as long as the catalogue says, so the length of an answer is a function of the
number of asked sources. Its checksum is the first 16 bytes of SHA-256 over the epoch and all that precedes: a
frame of another catalogue fails it. It guards against damage, not against a lying server. Version 0 is
"nothing published yet"; `published` is in milliseconds since 1970.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from onoff.errors import InvalidWire
from onoff.wire.catalogue import EPOCH_LIMIT, MAX_SOURCES

VERSION_LIMIT: Final = 1 << 53
TIME_LIMIT: Final = 1 << 53
MEDIA_TYPE_BYTES: Final = 64

_FRAME_HEAD = struct.Struct(">IQQI64s")
_CHECKSUM_BYTES = 16
FRAME_OVERHEAD: Final = _FRAME_HEAD.size + _CHECKSUM_BYTES

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
class Message:
    """One version of what a source says. Version 0: it has said nothing yet."""

    version: int = 0
    published: int = 0
    media_type: str = ""
    body: bytes = field(default=b"", repr=False)


NOTHING: Final = Message()


def capacity(frame_size: int) -> int:
    """The longest body that a frame holds."""
    return frame_size - FRAME_OVERHEAD


def _checksum(epoch: int, content: bytes) -> bytes:
    digest = hashlib.sha256(epoch.to_bytes(6))
    digest.update(content)
    return digest.digest()[:_CHECKSUM_BYTES]


def _check_message(message: Message, frame_size: int) -> None:
    if message.version == 0 and message != NOTHING:
        raise InvalidWire("a message of version 0 that is not empty", hint="versions start at 1")
    if not 0 <= message.version < VERSION_LIMIT or not 0 <= message.published < TIME_LIMIT:
        raise InvalidWire("a message version or time out of range", hint="versions and times count from 0")
    if message.version:
        check_media_type(message.media_type)
    if len(message.body) > capacity(frame_size):
        raise InvalidWire(
            f"a message of {len(message.body)} bytes", hint=f"a frame holds at most {capacity(frame_size)}"
        )


def encode_frame(source: int, message: Message, *, epoch: int, frame_size: int) -> bytes:
    """The frame of `message`, exactly `frame_size` bytes long."""
    _check_message(message, frame_size)
    if not 0 <= source < MAX_SOURCES or not 0 <= epoch < EPOCH_LIMIT:
        raise InvalidWire("a source index or epoch out of range", hint="take both from the catalogue")
    media_type = message.media_type.encode("ascii")
    head = _FRAME_HEAD.pack(source, message.version, message.published, len(message.body), media_type)
    content = (head + message.body).ljust(frame_size - _CHECKSUM_BYTES, b"\0")
    return content + _checksum(epoch, content)


def decode_frame(data: bytes, source: int, *, epoch: int, frame_size: int) -> Message:
    """The message in the frame of `source`."""
    if len(data) != frame_size:
        raise InvalidWire(f"a frame of {len(data)} bytes", hint=f"the catalogue says {frame_size}")
    content, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if _checksum(epoch, content) != checksum:
        raise InvalidWire("a frame that is damaged or of another catalogue", hint="send the same query again")
    index, version, published, length, padded_type = _FRAME_HEAD.unpack_from(content)
    if index != source:
        raise InvalidWire("a frame of another source", hint="send the same query again")
    media_type = padded_type.rstrip(b"\0")
    end = _FRAME_HEAD.size + length
    if length > capacity(frame_size) or content[end:] != bytes(len(content) - end) or not media_type.isascii():
        raise InvalidWire("a frame that is not in its one form", hint="the server is faulty")
    message = Message(version, published, media_type.decode("ascii"), content[_FRAME_HEAD.size : end])
    _check_message(message, frame_size)
    return message


def answer_length(asked: int, frame_size: int) -> int:
    """The length of every answer to a query of `asked` sources."""
    return asked * frame_size


def encode_answer(frames: Iterable[bytes]) -> bytes:
    """The answer made of ready frames, ascending by source."""
    return b"".join(frames)


def decode_answer(body: bytes, sources: Sequence[int], *, epoch: int, frame_size: int) -> tuple[Message, ...]:
    """The messages of all asked `sources`, in their order; the whole body is checked first."""
    if len(body) != answer_length(len(sources), frame_size):
        raise InvalidWire(
            f"an answer of {len(body)} bytes", hint=f"{len(sources)} frames make {len(sources) * frame_size}"
        )
    whole = memoryview(body)
    return tuple(
        decode_frame(bytes(whole[at * frame_size : (at + 1) * frame_size]), s, epoch=epoch, frame_size=frame_size)
        for at, s in enumerate(sources)
    )
