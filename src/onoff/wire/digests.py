"""Digests: the SHA-256 of every source's frame in one edition, which readers of several servers hold before they ask.

A sum (`wire.sums`) says nothing about who made it: whoever adds the difference of two valid frames of a source to an
answer makes another valid frame where that source was wanted, and no frame elsewhere. So a reader takes nothing but the
very frame of the edition, by a digest that does not depend on what is wanted, and asks only where all servers agree
about all digests. Then an error is refused whatever is wanted.

`GET /v1/digests?since=E&life=L&digest=D` gets the digests that changed after edition E, if the server knows E as an
edition of that life and digest; else, and for `since=0`, all. They are those of the newest edition; of an older one
that the server still holds, with `&edition=N` at the end. The reply is

    head     version 2 | epoch 6 | life 16 | since 8 | edition 8 | digest 32 | width 4 | root 32
    set      a bitmap of sources, as in queries but perhaps empty: all that changed after `since`; all where it is 0
    digests  32 for each of them, ascending: SHA-256 of the frame at its own length

with the width of the edition: the length of its longest frame. The root is SHA-256("onoff digests" | epoch 6 | life 16
| edition 8 | digest 32 | width 4 | the digests of all sources). Servers that report one root hold one edition.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onoff.errors import InvalidWire
from onoff.wire.changes import DIGEST_BYTES, EDITION_LIMIT, Edition, Since, decode_since, since_query
from onoff.wire.messages import DIGESTS_PATH, FRAME_OVERHEAD, MAX_LIMIT, MAX_SOURCES, Catalogue, bitmap_length

DIGESTS_VERSION: Final = 1
_HEAD = struct.Struct(">H6s16sQQ32sI32s")
MAX_DIGESTS: Final = _HEAD.size + bitmap_length(MAX_SOURCES) + MAX_SOURCES * DIGEST_BYTES
_OF_EDITION = re.compile(r"(.*?)(?:&edition=(0|[1-9][0-9]{0,15}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class FrameDigests:
    """The digests of all frames of an edition. `width`: bytes of the longest one. `digests`: 32 for each source."""

    edition: Edition
    width: int
    digests: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not FRAME_OVERHEAD <= self.width <= FRAME_OVERHEAD + MAX_LIMIT:
            raise InvalidWire("a width out of range", hint="no frame has that length")
        if not self.digests or len(self.digests) % DIGEST_BYTES:
            raise InvalidWire("digests of another length", hint=f"{DIGEST_BYTES} bytes for each source")

    @property
    def root(self) -> bytes:
        """What names all of it."""
        edition = self.edition
        root = hashlib.sha256(b"onoff digests" + edition.epoch.to_bytes(6) + edition.life)
        root.update(edition.number.to_bytes(8) + edition.digest + self.width.to_bytes(4))
        root.update(self.digests)
        return root.digest()

    def of(self, source: int) -> bytes:
        """The digest of the frame of a source."""
        return self.digests[source * DIGEST_BYTES : (source + 1) * DIGEST_BYTES]


class WantedDigests(NamedTuple):
    """A request for digests: what the reader has, and which edition it asks for; None: the newest."""

    since: Since
    edition: int | None


def frame_digest(frame: bytes) -> bytes:
    """The digest of an unpadded frame."""
    return hashlib.sha256(frame).digest()


def digests_target(have: FrameDigests | None, edition: int | None = None) -> str:
    """The path and query that ask for the digests of an edition (None: the newest) by one that holds others already."""
    wanted = "" if edition is None else f"&edition={edition}"
    return f"{DIGESTS_PATH}?{since_query(None if have is None else have.edition)}{wanted}"


def decode_wanted_digests(query: str) -> WantedDigests:
    """The request in the query part of a target, which has one form."""
    match = _OF_EDITION.fullmatch(query)
    if match is None or int(match[2] or 0) >= EDITION_LIMIT:
        raise InvalidWire("not a request for digests", hint="as for changes; then &edition=NUMBER for one before")
    return WantedDigests(decode_since(match[1]), None if match[2] is None else int(match[2]))


def encode_digests(digests: FrameDigests, since: int, changed: Collection[int]) -> bytes:
    """The reply to a reader that has edition `since`: the digests of the sources `changed`. 0: of all sources."""
    edition, n = digests.edition, len(digests.digests) // DIGEST_BYTES
    sources = range(n) if since == 0 else sorted(changed)
    bits = 0
    for source in sources:
        bits |= 1 << source
    fields = edition.epoch.to_bytes(6), edition.life, since, edition.number, edition.digest, digests.width, digests.root
    bitmap = bits.to_bytes(bitmap_length(n), "little")
    return b"".join([_HEAD.pack(DIGESTS_VERSION, *fields), bitmap, *map(digests.of, sources)])


def digests_epoch(data: bytes) -> int:
    """The epoch of a reply, which tells whether the reader knows its catalogue."""
    if len(data) < _HEAD.size:
        raise InvalidWire(f"digests of {len(data)} bytes", hint=f"their head alone has {_HEAD.size}")
    return int.from_bytes(_HEAD.unpack_from(data)[1])


def decode_digests(data: bytes, catalogue: Catalogue, have: FrameDigests | None) -> FrameDigests:
    """All digests after a reply to a reader that held `have`; whoever reads it computed the root.

    Raises InvalidWire if the reply is not in its one form, of another catalogue, or does not make the root that it
    reports.
    """
    n = catalogue.n
    start = _HEAD.size + bitmap_length(n)
    epoch = digests_epoch(data)
    version, _, life, since, number, digest, width, root = _HEAD.unpack_from(data)
    if version != DIGESTS_VERSION:
        raise InvalidWire(f"digests of version {version}", hint=f"this reader knows version {DIGESTS_VERSION}")
    if epoch != catalogue.epoch:
        raise InvalidWire("digests of another catalogue", hint="fetch /v1/catalogue and ask again")
    if since and (have is None or (since, life) != (have.edition.number, have.edition.life) or number < since):
        raise InvalidWire("digests since an edition that was not named", hint="the server is faulty")
    bits = int.from_bytes(data[_HEAD.size : start], "little")
    if bits >> n or (not since and bits.bit_count() != n):
        raise InvalidWire(
            "a set of digests that is not one", hint=f"there are {n} sources, and all come where since is 0"
        )
    if len(data) != start + bits.bit_count() * DIGEST_BYTES:  # also where it ends within the set
        raise InvalidWire("digests of another length than their set", hint=f"{DIGEST_BYTES} bytes for each source")
    if not since:
        merged = data[start:]
    else:
        assert have is not None
        held, at = bytearray(have.digests), start
        for source in range(n):
            if bits >> source & 1:
                held[source * DIGEST_BYTES : (source + 1) * DIGEST_BYTES] = data[at : at + DIGEST_BYTES]
                at += DIGEST_BYTES
        merged = bytes(held)
    found = FrameDigests(Edition(catalogue.epoch, life, number, digest), width, merged)
    if found.root != root:
        raise InvalidWire("digests that do not make their root", hint="ask again")
    return found
