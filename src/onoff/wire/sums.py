"""Several servers: one message out of a set, while no server alone learns which.

K servers of different operators hold the same edition. The frame of each source, at its own length, is padded with
zeros to the longest of the edition (the *width*) and cut into K - 1 chunks w[1], ..., w[K-1] of equal length; w[0] is
zeros. To get source i out of a set S, a client draws an entry in 0..K-1 for every other source of S, uniformly. Server
j gets these entries, 0 for what is not in S, and at i the entry that makes the sum of the vector j (mod K). It answers

    XOR over the sources s of w_s[v_s],

or nothing if the vector is all zero. At i the K servers have K different entries. The server whose entry is 0 gives the
sum of all the others' chunks; XOR with that takes w_i[c] out of the answer of the server whose entry is c. Each server
sees a vector that is uniform on its residue class whatever i is. An error that one server adds to its answer is in one
chunk, or in all, whatever i is; so that it is also *noticed* whatever i is, nothing is taken but the frame whose digest
the client held before (`wire.digests`), and no bit beside it. An answer is 1/(K-1) of a message, and one of the
answers may be empty: `expected_cost`. (Tian, Sun, Chen, "Capacity-achieving private information retrieval codes with
optimal message size and upload cost".)

    query    version 2 | epoch 6 | session 16 | step 8 | edition 8 | digest 32 | K 1 | j 1 | vector
    vector   ceil(log2 K) bits for each source of the catalogue, source 0 in the least significant bits of the first
             byte; spare bits zero; every entry below K; the sum of the entries is j (mod K)
    answer   as many bytes as a chunk has, or none to the all-zero vector

The step of a session is the query *without* edition and digest (`sum_step_digest`): the same vector may be asked of
another edition when the first is gone, and tells nothing new. Everything has exactly one form.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from onoff.errors import InvalidWire
from onoff.wire.changes import DIGEST_BYTES, EDITION_LIMIT
from onoff.wire.digests import FrameDigests, frame_digest
from onoff.wire.messages import (
    EPOCH_LIMIT,
    MAX_SOURCES,
    SESSION_BYTES,
    STEP_LIMIT,
    WireMessage,
    decode_frame,
    frame_length,
)

SUM_VERSION: Final = 2
MIN_SERVERS: Final = 2
MAX_SERVERS: Final = 16

_HEAD = struct.Struct(">H6s16sQQ32sBB")
_EDITION_AT, _PLACE_AT = 32, 72  # what lies between names the edition
SUM_HEAD_BYTES: Final = _HEAD.size
MAX_SUM_QUERY: Final = SUM_HEAD_BYTES + MAX_SOURCES * 4 // 8

_DIGITS = b"0123456789abcdef" + bytes(240)
_BITS = bytes(byte == ord("1") for byte in range(256))


class SumHead(NamedTuple):
    """The fields before the vector; readable before the catalogue is known."""

    epoch: int
    session: bytes
    step: int
    edition: int  # its number
    digest: bytes  # of the edition
    servers: int  # K
    place: int  # j: which of the servers this one is


@dataclass(frozen=True, slots=True)
class SumQuery:
    """One server's vector, asked of an edition at one step of one session. `vector` has a byte for each source."""

    epoch: int
    session: bytes
    step: int
    edition: int
    digest: bytes
    servers: int
    place: int
    vector: bytes


# Lengths and costs.


def entry_bits(servers: int) -> int:
    """The bits of an entry of a vector for so many servers."""
    _check_servers(servers)
    return (servers - 1).bit_length()


def vector_length(n: int, servers: int) -> int:
    """The bytes of a vector over n sources."""
    return (n * entry_bits(servers) + 7) // 8


def sum_query_length(n: int, servers: int) -> int:
    """The length of every sum query to n sources."""
    return SUM_HEAD_BYTES + vector_length(n, servers)


def chunk_length(width: int, servers: int) -> int:
    """The length of every answer that is not empty: a chunk of a frame padded to `width` bytes."""
    _check_servers(servers)
    return -(-width // (servers - 1))


def expected_cost(asked: int, servers: int) -> Fraction:
    """The expected download for one of `asked` sources, in messages: 1 + 1/K + ... + 1/K^(asked-1).

    >>> expected_cost(3, 2)
    Fraction(7, 4)
    """
    _check_servers(servers)
    return sum((Fraction(1, servers**k) for k in range(asked)), Fraction(0))


def _check_servers(servers: int) -> None:
    if not MIN_SERVERS <= servers <= MAX_SERVERS:
        raise InvalidWire(f"a query to {servers} servers", hint=f"between {MIN_SERVERS} and {MAX_SERVERS}")


# The client's side: vectors, and the message out of the answers.


def draw_vectors(
    sources: Sequence[int], wanted: int, *, n: int, servers: int, randbelow: Callable[[int], int]
) -> tuple[bytes, ...]:
    """The vectors of all servers, in their order, that get `wanted` out of the set `sources`.

    randbelow: Uniform on 0..k-1 for its argument k; called once for each source of the set but one.
    `secrets.randbelow`.
    """
    _check_servers(servers)
    if wanted not in sources or any(not 0 <= s < n for s in sources) or len(set(sources)) != len(sources):
        raise InvalidWire("a set that is not one, or without the wanted source", hint="sources ascend below n")
    shared = bytearray(n)
    for source in sources:
        if source != wanted:
            shared[source] = randbelow(servers)
    rest = sum(shared)
    vectors = []
    for place in range(servers):
        shared[wanted] = (place - rest) % servers
        vectors.append(bytes(shared))
    return tuple(vectors)


def decode_sums(
    answers: Sequence[bytes], vectors: Sequence[bytes], wanted: int, digests: FrameDigests, *, limit: int
) -> WireMessage:
    """The message of `wanted` out of the answers of all servers, in their order.

    Only the frame that `digests` names is taken, with zeros after it, out of answers of the length that the edition
    gives them: an error of one server is in the frame or in the zeros whatever is wanted, and is refused. Raises
    InvalidWire if any bit of an answer, or its length, is another. It says nothing about which source is wanted.
    """
    if len(answers) != len(vectors):
        raise InvalidWire(f"{len(answers)} answers of {len(vectors)} servers", hint="every server must answer")
    length = chunk_length(digests.width, len(vectors))
    if any(len(answer) != (length if any(vector) else 0) for answer, vector in zip(answers, vectors, strict=True)):
        raise InvalidWire("answers of another length than the edition has", hint="ask all servers again")
    by_entry = {vector[wanted]: int.from_bytes(answer) for answer, vector in zip(answers, vectors, strict=True)}
    chunks = ((by_entry[entry] ^ by_entry[0]).to_bytes(length) for entry in range(1, len(vectors)))
    padded = b"".join(chunks)
    frame = padded[: frame_length(padded)]
    if frame_digest(frame) != digests.of(wanted) or any(padded[len(frame) :]):
        raise InvalidWire(
            "answers that do not make a message of the edition",
            hint="a server is faulty, or lies; the same bytes again",
        )
    return decode_frame(frame, wanted, epoch=digests.edition.epoch, frame_size=None, limit=limit)


def sum_answer(frames: Sequence[bytes], vector: bytes, servers: int) -> bytes:
    """The answer to a vector over these frames, in plain steps. The server computes the same in one pass."""
    if not any(vector):
        return b""
    length = chunk_length(max(map(len, frames)), servers)
    total = 0
    for frame, entry in zip(frames, vector, strict=True):
        if entry:
            chunk = frame[(entry - 1) * length : entry * length]
            total ^= int.from_bytes(chunk.ljust(length, b"\0"))
    return total.to_bytes(length)


# The query.


def encode_vector(vector: bytes, servers: int) -> bytes:
    """The one form of a vector that has a byte for each source."""
    bits = entry_bits(servers)
    if not vector or max(vector) >= servers:
        raise InvalidWire("a vector with an entry out of range", hint=f"one entry below {servers} for each source")
    number = int(vector.translate(_DIGITS)[::-1], 1 << bits)
    return number.to_bytes(vector_length(len(vector), servers), "little")


def decode_vector(data: bytes, n: int, servers: int) -> bytes:
    """The entries of a vector over n sources, a byte each."""
    bits = entry_bits(servers)
    if n < 1 or len(data) != vector_length(n, servers):
        raise InvalidWire(
            f"a vector of {len(data)} bytes",
            hint=f"{n} sources and {servers} servers take exactly {vector_length(n, servers)} bytes",
        )
    number = int.from_bytes(data, "little")
    if number >> n * bits:
        raise InvalidWire("a vector whose spare bits are not zero", hint=f"there are only {n} sources")
    flags = f"{number:0{n * bits}b}".encode().translate(_BITS)[::-1]
    if bits == 1:
        return flags
    planes = [flags[k::bits] for k in range(bits)]
    vector = bytes(sum(bit << k for k, bit in enumerate(column)) for column in zip(*planes, strict=True))
    if max(vector) >= servers:
        raise InvalidWire("a vector with an entry out of range", hint=f"entries below {servers}")
    return vector


def encode_sum_query(query: SumQuery) -> bytes:
    """The bytes of a query: the same length for every vector."""
    if not 0 <= query.epoch < EPOCH_LIMIT or not 0 <= query.step < STEP_LIMIT:
        raise InvalidWire("an epoch or step out of range", hint="start a new session")
    if len(query.session) != SESSION_BYTES:
        raise InvalidWire(f"a session id of {len(query.session)} bytes", hint=f"use {SESSION_BYTES} random bytes")
    if not 0 <= query.edition < EDITION_LIMIT or len(query.digest) != DIGEST_BYTES:
        raise InvalidWire("an edition or digest out of range", hint="take both from the edition")
    vector = encode_vector(query.vector, query.servers)
    _check_residue(query.vector, query.servers, query.place)
    epoch = query.epoch.to_bytes(6)
    place = (query.servers, query.place)
    return _HEAD.pack(SUM_VERSION, epoch, query.session, query.step, query.edition, query.digest, *place) + vector


def decode_sum_head(data: bytes) -> SumHead:
    """All of a query but its vector, which needs the catalogue's n."""
    if len(data) < SUM_HEAD_BYTES:
        raise InvalidWire(f"a sum query of {len(data)} bytes", hint=f"its head alone has {SUM_HEAD_BYTES}")
    version, epoch, session, step, edition, digest, servers, place = _HEAD.unpack_from(data)
    if version != SUM_VERSION:
        raise InvalidWire(f"a sum query of version {version}", hint=f"this server speaks version {SUM_VERSION}")
    if step >= STEP_LIMIT:
        raise InvalidWire("a step out of range", hint="start a new session")
    if edition >= EDITION_LIMIT:
        raise InvalidWire("an edition out of range", hint="take it from /v1/edition")
    _check_servers(servers)
    if place >= servers:
        raise InvalidWire(f"server {place} of {servers}", hint="servers count from 0")
    return SumHead(int.from_bytes(epoch), session, step, edition, digest, servers, place)


def decode_sum_vector(data: bytes, head: SumHead, n: int) -> bytes:
    """The vector of the query in `data`, whose head was read and whose catalogue has n sources; a byte each."""
    vector = decode_vector(data[SUM_HEAD_BYTES:], n, head.servers)
    _check_residue(vector, head.servers, head.place)
    return vector


def decode_sum_query(data: bytes, n: int) -> SumQuery:
    """The query in `data`, whose catalogue has n sources."""
    head = decode_sum_head(data)
    return SumQuery(*head, decode_sum_vector(data, head, n))


def _check_residue(vector: bytes, servers: int, place: int) -> None:
    total = sum([entry * vector.count(entry) for entry in range(1, servers)])  # many times faster than adding bytes up
    if not 0 <= place < servers or total % servers != place:
        raise InvalidWire("a vector of another residue class", hint="its entries sum to the server's place modulo K")


def with_edition(data: bytes, edition: int, digest: bytes) -> bytes:
    """The same query, asked of another edition."""
    if not 0 <= edition < EDITION_LIMIT or len(digest) != DIGEST_BYTES:
        raise InvalidWire("an edition or digest out of range", hint="take both from the edition")
    return data[:_EDITION_AT] + edition.to_bytes(8) + digest + data[_PLACE_AT:]


def sum_step_digest(data: bytes) -> bytes:
    """What names the bytes of a step: SHA-256 of the query without edition and digest."""
    return hashlib.sha256(data[:_EDITION_AT] + data[_PLACE_AT:]).digest()
