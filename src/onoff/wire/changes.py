"""Changes: every message whose last change is after an edition, each once, and the edition that they lead to.

An **edition** numbers the state of a store. It grows with every publish, and carries a running digest:

    digest   D_0 = SHA-256("onoff edition" | epoch 6 | life 16)
             D_e = SHA-256(D_{e-1} | source 4 | version 8 | SHA-256(published 8 | media type 64 | body))

A **life** is 16 random bytes, new with the store, with every change of its catalogue and with every restore. Two
editions of equal digest have equal content.

`GET /v1/changes?since=E&life=L&digest=D` gets the changes after edition E, if the server knows E as an edition of that
life and digest; else, and for `since=0`, everything. `life` and `digest` may be left out. The reply is

    head     version 2 | epoch 6 | life 16 | since 8                 since: 0 where everything follows
    frames   unpadded, ascending by source, each source at most once, none of version 0
    trailer  2**32 - 1 in 4 | frames 4 | edition 8 | digest 32 | checksum 16

whatever the padding of answers is. The trailer's checksum is the first 16 bytes of SHA-256 over the head, the
checksums of the frames and the trailer up to it. The reply is a function of E and of what was published.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from onoff.errors import InvalidWire
from onoff.wire.messages import (
    CHANGES_PATH,
    CHECKSUM_BYTES,
    EPOCH_LIMIT,
    FRAME_OVERHEAD,
    MAX_ANSWER,
    MEDIA_TYPE_BYTES,
    VERSION_LIMIT,
    Catalogue,
    WireMessage,
    decode_frame,
    decode_json,
    encode_json,
    frame_length,
)

CHANGES_VERSION: Final = 1
LIFE_BYTES: Final = 16
DIGEST_BYTES: Final = 32
EDITION_LIMIT: Final = VERSION_LIMIT

_HEAD = struct.Struct(">H6s16sQ")
_TRAILER = struct.Struct(">IIQ32s")
_TRAILER_MARK = 2**32 - 1  # no source has that index
_DIGEST = struct.Struct(f">Q{MEDIA_TYPE_BYTES}s")
_SINCE = re.compile(r"since=(0|[1-9][0-9]{0,15})(?:&life=([0-9a-f]{32}))?(?:&digest=([0-9a-f]{64}))?", re.ASCII)
CHANGES_HEAD_BYTES: Final = _HEAD.size
CHANGES_TRAILER_BYTES: Final = _TRAILER.size + CHECKSUM_BYTES
UNPACKED_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Edition:
    """A state of a store: its number in the life of the store, and the digest of all that led to it."""

    epoch: int
    life: bytes
    number: int
    digest: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.epoch < EPOCH_LIMIT or not 0 <= self.number < EDITION_LIMIT:
            raise InvalidWire("an epoch or edition out of range", hint="editions count from 0")
        if len(self.life) != LIFE_BYTES or len(self.digest) != DIGEST_BYTES:
            raise InvalidWire("a life or digest of another length", hint=f"{LIFE_BYTES} and {DIGEST_BYTES} bytes")


class Since(NamedTuple):
    """What a reader has: the number of an edition, and its life and digest if it names them."""

    number: int
    life: bytes | None = None
    digest: bytes | None = None


class EditionReport(NamedTuple):
    """What `GET /v1/edition` tells: the newest edition, how many bytes of frames change in an hour, the longest frame.

    All answers to sum queries are as long as the longest frame, without padding: `longest` in bytes.
    """

    edition: Edition
    changed_per_hour: int
    longest: int = 0


# Digests.


def first_digest(epoch: int, life: bytes) -> bytes:
    """The digest of the first edition of a life."""
    return hashlib.sha256(b"onoff edition" + epoch.to_bytes(6) + life).digest()


def next_digest(digest: bytes, source: int, message: WireMessage) -> bytes:
    """The digest of the next edition."""
    content = hashlib.sha256(_DIGEST.pack(message.published, message.media_type.encode("ascii")))
    content.update(message.body)
    return hashlib.sha256(digest + struct.pack(">IQ", source, message.version) + content.digest()).digest()


# The newest edition.


def encode_edition(report: EditionReport) -> bytes:
    """The JSON of the newest edition."""
    edition = report.edition
    fields = {
        "epoch": edition.epoch,
        "life": edition.life.hex(),
        "edition": edition.number,
        "digest": edition.digest.hex(),
        "changed_per_hour": report.changed_per_hour,
        "longest": report.longest,
    }
    return encode_json(fields)


def decode_edition(data: bytes) -> EditionReport:
    """The newest edition, in its one form."""
    fields = decode_json(data, "an edition")
    match fields:
        case {
            "epoch": int(epoch),
            "life": str(life),
            "edition": int(number),
            "digest": str(digest),
            "changed_per_hour": int(changed),
            "longest": int(longest),
        } if 0 <= changed < EDITION_LIMIT and 0 <= longest < EDITION_LIMIT:
            try:
                edition = Edition(int(epoch), bytes.fromhex(life), int(number), bytes.fromhex(digest))
            except ValueError as error:  # InvalidWire is one of them
                raise InvalidWire(f"not an edition: {error}", hint="is this a message server?") from None
            report = EditionReport(edition, int(changed), int(longest))
        case _:
            raise InvalidWire("not the members of an edition", hint="is this a message server?")
    if encode_edition(report) != data:
        raise InvalidWire("an edition that is not in its one form", hint="the server or the line is faulty")
    return report


# Asking.


def changes_target(have: Edition | None) -> str:
    """The path and query that ask for all that changed after the edition that the client has; None: for everything."""
    return f"{CHANGES_PATH}?{since_query(have)}"


def since_query(have: Edition | None) -> str:
    """What names the edition that a reader has in the query part of its request; `decode_since` reads it."""
    return "since=0" if have is None else f"since={have.number}&life={have.life.hex()}&digest={have.digest.hex()}"


def decode_since(query: str) -> Since:
    """What the reader has, from the query part of its request, which has one form."""
    match = _SINCE.fullmatch(query)
    if match is None or int(match[1]) >= EDITION_LIMIT:
        raise InvalidWire(
            "not a request for changes", hint="use ?since=EDITION, then &life=HEX and &digest=HEX if known"
        )
    life, digest = (None if text is None else bytes.fromhex(text) for text in match.groups()[1:])
    return Since(int(match[1]), life, digest)


# The reply.


def encode_changes_head(edition: Edition, since: int) -> bytes:
    """The fields before the frames. `since` is 0 where everything follows."""
    return _HEAD.pack(CHANGES_VERSION, edition.epoch.to_bytes(6), edition.life, since)


def encode_changes_trailer(edition: Edition, since: int, frames: Sequence[bytes]) -> bytes:
    """The fields after the frames."""
    fields = _TRAILER.pack(_TRAILER_MARK, len(frames), edition.number, edition.digest)
    digest = hashlib.sha256(encode_changes_head(edition, since))
    for frame in frames:
        digest.update(frame[-CHECKSUM_BYTES:])
    digest.update(fields)
    return fields + digest.digest()[:CHECKSUM_BYTES]


class Unpacker:
    """Unpacks a compressed reply as it comes: one gzip member and nothing after it."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """Take the next packed bytes; give what they hold, in pieces of at most `UNPACKED_PIECE` bytes.

        Raises InvalidWire if they are no gzip, or go on after its end.
        """
        view = memoryview(packed)
        for at in range(0, len(view), UNPACKED_PIECE):  # zlib copies what is left for every piece: let that be little
            left: bytes | memoryview = view[at : at + UNPACKED_PIECE]
            while left:
                if self._member.eof:
                    raise InvalidWire("packed bytes that go on after their end", hint="the server is faulty")
                try:
                    piece = self._member.decompress(left, UNPACKED_PIECE)
                except zlib.error:
                    raise InvalidWire("packed bytes that cannot be decompressed", hint="ask again") from None
                left = self._member.unconsumed_tail or self._member.unused_data
                if piece:
                    yield piece

    def finish(self) -> None:
        """Raise InvalidWire if the reply ended before the member did."""
        if not self._member.eof:
            raise InvalidWire("packed bytes that end too early", hint="ask again")


class ChangesDecoder:
    """Reads a reply as it comes: never more in memory than one frame and the piece that was fed.

    catalogue: The catalogue that the reader knows. Changes of another one are refused; `epoch` then tells which it is.
    have: The edition that was named in the request; None if none was.
    """

    def __init__(self, catalogue: Catalogue, have: Edition | None = None) -> None:
        self._catalogue = catalogue
        self._have = have
        self._held = bytearray()
        self._digest = hashlib.sha256()
        self._last = -1
        self._count = 0
        self._bytes = 0
        self._life = b""
        self._edition: Edition | None = None
        self.epoch: int | None = None
        self.since: int | None = None

    @property
    def whole(self) -> bool:
        """Whether everything follows: a source that does not come has published nothing."""
        return self.since == 0

    def feed(self, data: bytes) -> list[tuple[int, WireMessage]]:
        """Take the next piece; return the sources and messages that it completes.

        Raises InvalidWire if the reply is not in its one form, or of another catalogue.
        """
        self._held += data
        found: list[tuple[int, WireMessage]] = []
        at = 0
        if self.since is None:
            if len(self._held) < CHANGES_HEAD_BYTES:
                return found
            self._read_head(bytes(self._held[:CHANGES_HEAD_BYTES]))
            at = CHANGES_HEAD_BYTES
        while self._edition is None and len(self._held) - at >= 4:
            if int.from_bytes(self._held[at : at + 4]) == _TRAILER_MARK:
                size = CHANGES_TRAILER_BYTES
                if len(self._held) - at < size:
                    break
                self._read_trailer(bytes(self._held[at : at + size]))
            else:
                if len(self._held) - at < FRAME_OVERHEAD:
                    break
                size = frame_length(self._held[at : at + FRAME_OVERHEAD])
                if size > FRAME_OVERHEAD + self._catalogue.limit:
                    raise InvalidWire("a message longer than the catalogue allows", hint="the server is faulty")
                if len(self._held) - at < size:
                    break
                found.append(self._read_frame(bytes(self._held[at : at + size])))
            at += size
        del self._held[:at]
        if self._edition is not None and self._held:
            raise InvalidWire("changes with bytes after their end", hint="the server is faulty")
        return found

    def finish(self) -> Edition:
        """The edition that was reached, once all has been fed.

        Raises InvalidWire if the reply ended before its trailer.
        """
        if self._edition is None:
            raise InvalidWire("changes that end too early", hint="ask again")
        return self._edition

    def _read_head(self, head: bytes) -> None:
        version, epoch, life, since = _HEAD.unpack(head)
        if version != CHANGES_VERSION:
            raise InvalidWire(f"changes of version {version}", hint=f"this reader knows version {CHANGES_VERSION}")
        self.epoch = int.from_bytes(epoch)
        if self.epoch != self._catalogue.epoch:
            raise InvalidWire("changes of another catalogue", hint="fetch /v1/catalogue and ask again")
        if since and (self._have is None or (since, life) != (self._have.number, self._have.life)):
            raise InvalidWire("changes since an edition that was not named", hint="the server is faulty")
        self._life, self.since = life, since
        self._digest.update(head)

    def _read_frame(self, frame: bytes) -> tuple[int, WireMessage]:
        source = int.from_bytes(frame[:4])
        if not self._last < source < self._catalogue.n:
            raise InvalidWire("changes whose sources do not ascend", hint="the server is faulty")
        self._bytes += len(frame)
        if self._bytes > MAX_ANSWER:
            raise InvalidWire(f"changes of more than {MAX_ANSWER} bytes", hint="the server is faulty")
        message = decode_frame(frame, source, epoch=self._catalogue.epoch, frame_size=None, limit=self._catalogue.limit)
        if not message.version:
            raise InvalidWire("a change of a source that has published nothing", hint="the server is faulty")
        self._digest.update(frame[-CHECKSUM_BYTES:])
        self._last = source
        self._count += 1
        return source, message

    def _read_trailer(self, trailer: bytes) -> None:
        fields, checksum = trailer[:-CHECKSUM_BYTES], trailer[-CHECKSUM_BYTES:]
        self._digest.update(fields)
        if self._digest.digest()[:CHECKSUM_BYTES] != checksum:
            raise InvalidWire("changes that are damaged", hint="ask again")
        _, count, number, digest = _TRAILER.unpack(fields)
        since = self.since or 0
        edition = Edition(self._catalogue.epoch, self._life, number, digest)
        nothing_new = since and number == since
        if count != self._count or number < since or (nothing_new and (count or edition != self._have)):
            raise InvalidWire("changes that do not add up", hint="the server is faulty")
        self._edition = edition
