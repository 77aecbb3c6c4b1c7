"""Editions and changes: digests, one form for every reply, a reader that holds one frame at most."""

import gzip
import hashlib
import json
import random
import struct
import zlib
from dataclasses import replace

import pytest

from onoff import wire
from onoff.errors import InvalidWire
from onoff.wire import Catalogue, ChangesDecoder, Edition, EditionReport, Since, Unpacker, WireMessage

NAMES = tuple("abcdefgh")
KNOWN = Catalogue(NAMES, None, 1000)
LIFE = bytes(range(16))
HAVE = Edition(KNOWN.epoch, LIFE, 7, b"\x07" * 32)
REACHED = Edition(KNOWN.epoch, LIFE, 9, b"\x09" * 32)


def message(body: bytes = b"hello", version: int = 3) -> WireMessage:
    return WireMessage(version, 1_700_000_000_000, "text/plain", body)


def frame(source: int, content: WireMessage, epoch: int = KNOWN.epoch) -> bytes:
    return wire.encode_frame(source, content, epoch=epoch, frame_size=None)


def reply(changes: dict[int, WireMessage], since: int = 7, edition: Edition = REACHED) -> bytes:
    frames = [frame(source, content, edition.epoch) for source, content in changes.items()]
    head, trailer = wire.encode_changes_head(edition, since), wire.encode_changes_trailer(edition, since, frames)
    return head + b"".join(frames) + trailer


def read(data: bytes, have: Edition | None = HAVE, piece: int = 1 << 20) -> tuple[dict[int, WireMessage], Edition]:
    decoder = ChangesDecoder(KNOWN, have)
    found: dict[int, WireMessage] = {}
    for at in range(0, len(data), piece):
        found.update(decoder.feed(data[at : at + piece]))
    return found, decoder.finish()


CHANGES = {1: message(b""), 4: message(b"x" * 1000, 1), 7: message(bytes(256))}


# Digests.


def test_the_digest_is_as_documented():
    first = hashlib.sha256(b"onoff edition" + KNOWN.epoch.to_bytes(6) + LIFE).digest()
    assert wire.first_digest(KNOWN.epoch, LIFE) == first
    content = hashlib.sha256(struct.pack(">Q", 1_700_000_000_000) + b"text/plain".ljust(64, b"\0") + b"hello").digest()
    second = hashlib.sha256(first + struct.pack(">IQ", 5, 3) + content).digest()
    assert wire.next_digest(first, 5, message()) == second


def test_every_part_of_a_publish_changes_the_digest():
    start, said = bytes(32), message()
    others = [replace(said, version=4), replace(said, published=1), replace(said, media_type="a/b")]
    digests = {wire.next_digest(start, 5, m) for m in [said, *others, replace(said, body=b"hellp")]}
    digests |= {wire.next_digest(start, 6, said), wire.next_digest(b"\1" * 32, 5, said)}
    assert len(digests) == 7


# The newest edition.


def test_the_newest_edition_comes_back_and_has_one_form():
    report = EditionReport(REACHED, 12345, 678)
    data = wire.encode_edition(report)
    assert wire.decode_edition(data) == report
    assert list(json.loads(data)) == ["epoch", "life", "edition", "digest", "changed_per_hour", "longest"]
    fields = json.loads(data)
    for change in [
        {"epoch": 1 << 48},
        {"life": "00"},
        {"life": LIFE.hex().upper()},
        {"life": "xx" * 16},
        {"edition": -1},
        {"edition": True},
        {"edition": 1 << 53},
        {"digest": "00" * 31},
        {"changed_per_hour": -1},
        {"changed_per_hour": 1.5},
        {"longest": -1},
        {"longest": True},
        {"longest": 1 << 53},
        {"more": 1},
    ]:
        with pytest.raises(InvalidWire):
            wire.decode_edition(json.dumps(fields | change, separators=(",", ":")).encode())
    for bad in [b"", b"[]", data + b"\n", b"[" * 100_000]:
        with pytest.raises(InvalidWire):
            wire.decode_edition(bad)


# Asking.


def test_a_request_names_number_life_and_digest_of_what_the_reader_has():
    assert wire.changes_target(None) == "/v1/changes?since=0"
    target = wire.changes_target(HAVE)
    assert target == f"/v1/changes?since=7&life={LIFE.hex()}&digest={'07' * 32}"
    assert wire.decode_since(target.partition("?")[2]) == Since(7, LIFE, b"\x07" * 32)
    assert wire.decode_since("since=0") == Since(0)
    assert wire.decode_since("since=12&life=" + "ab" * 16) == Since(12, b"\xab" * 16)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "since=",
        "since=-1",
        "since=+1",
        "since=01",
        "since=1.0",
        "since=9007199254740992",
        "since=" + "9" * 400,
        "since=1&since=2",
        "since=1&life=00",
        "since=1&life=" + "AB" * 16,
        "since=1&digest=" + "00" * 32 + "&life=" + "00" * 16,
        "since=1&more=1",
        "SINCE=1",
        "since=1&",
        "since=1\n",
        "since=٣",
    ],
)
def test_any_other_request_is_refused(query: str):
    with pytest.raises(InvalidWire):
        wire.decode_since(query)


# The reply.


def test_the_bytes_of_a_reply_are_as_documented():
    data = reply({1: message()})
    head = struct.pack(">H", 1) + KNOWN.epoch.to_bytes(6) + LIFE + struct.pack(">Q", 7)
    only = frame(1, message())
    trailer = struct.pack(">IIQ", 2**32 - 1, 1, 9) + b"\x09" * 32
    assert data == head + only + trailer + hashlib.sha256(head + only[-16:] + trailer).digest()[:16]


@pytest.mark.parametrize("piece", [1, 7, 103, 105, 1 << 20])
@pytest.mark.parametrize("changes", [{}, CHANGES, {0: message()}])
def test_a_reply_comes_back_however_it_is_cut(changes, piece):
    assert read(reply(changes), piece=piece) == (changes, REACHED)
    assert read(reply(changes, since=0), have=None, piece=piece) == (changes, REACHED)


def test_a_reader_learns_whether_everything_follows():
    for since, have in [(0, None), (0, HAVE), (7, HAVE)]:
        decoder = ChangesDecoder(KNOWN, have)
        decoder.feed(reply(CHANGES, since))
        assert (decoder.since, decoder.whole) == (since, since == 0)


def test_a_reply_with_nothing_new_leads_to_the_edition_at_hand_and_to_no_other():
    assert read(reply({}, edition=HAVE)) == ({}, HAVE)
    for bad in [replace(HAVE, digest=bytes(32)), replace(HAVE, number=6)]:
        with pytest.raises(InvalidWire):
            read(reply({}, edition=bad))
    with pytest.raises(InvalidWire):
        read(reply({1: message()}, edition=HAVE))


def test_changes_of_another_catalogue_are_refused_and_tell_which():
    other = replace(REACHED, epoch=KNOWN.epoch ^ 1)
    decoder = ChangesDecoder(KNOWN, HAVE)
    with pytest.raises(InvalidWire, match="another catalogue"):
        decoder.feed(reply({}, since=0, edition=other))
    assert decoder.epoch == other.epoch


def test_changes_since_an_edition_that_was_not_named_are_refused():
    for since, have in [(7, None), (6, HAVE), (7, replace(HAVE, life=bytes(16)))]:
        with pytest.raises(InvalidWire, match="not named"):
            read(reply(CHANGES, since), have)


@pytest.mark.parametrize(
    "frames",
    [
        [frame(4, message()), frame(1, message())],
        [frame(4, message()), frame(4, message())],
        [frame(8, message())],
        [frame(4, wire.NOTHING)],
        [frame(4, message(bytes(1001)))],
        [frame(4, message(), KNOWN.epoch ^ 1)],
    ],
)
def test_frames_out_of_order_or_out_of_bounds_are_refused(frames):
    data = wire.encode_changes_head(REACHED, 7) + b"".join(frames)
    with pytest.raises(InvalidWire):
        read(data + wire.encode_changes_trailer(REACHED, 7, frames))


def test_a_lost_frame_is_noticed():
    frames = [frame(s, m) for s, m in CHANGES.items()]
    head, trailer = wire.encode_changes_head(REACHED, 7), wire.encode_changes_trailer(REACHED, 7, frames)
    with pytest.raises(InvalidWire):
        read(head + b"".join(frames[1:]) + trailer)


def test_a_reader_holds_one_frame_at_most_and_refuses_an_endless_one_at_its_head():
    decoder = ChangesDecoder(KNOWN)
    endless = struct.pack(">IQQI", 1, 1, 0, 2**32 - 1) + bytes(80)
    with pytest.raises(InvalidWire, match="longer"):
        decoder.feed(wire.encode_changes_head(REACHED, 0) + endless)
    decoder = ChangesDecoder(KNOWN)
    decoder.feed(wire.encode_changes_head(REACHED, 0))
    for source in range(8):
        data = frame(source, message(bytes(1000)))
        for at in range(0, len(data), 100):
            decoder.feed(data[at : at + 100])
            assert len(decoder._held) <= len(data)


# Packed.

PLAIN = random.Random(5).randbytes(2_500_000) + bytes(2_500_000)
PACKED = gzip.compress(PLAIN)


def unpack(packed: bytes, piece: int) -> bytes:
    unpacker = Unpacker()
    pieces = [p for at in range(0, len(packed), piece) for p in unpacker.feed(packed[at : at + piece])]
    unpacker.finish()
    assert max(map(len, pieces)) <= wire.UNPACKED_PIECE
    return b"".join(pieces)


@pytest.mark.parametrize("piece", [997, 65_536, len(PACKED)])
def test_a_packed_reply_is_one_member_and_ends_with_it(piece):
    assert unpack(PACKED, piece) == PLAIN
    for after in (b"x", PACKED):
        with pytest.raises(InvalidWire, match="after their end"):
            unpack(PACKED + after, piece)
    with pytest.raises(InvalidWire, match="end too early"):
        unpack(PACKED[:-1], piece)
    with pytest.raises(InvalidWire, match="cannot be decompressed"):
        unpack(PLAIN, piece)


def test_unpacking_reads_each_byte_a_few_times_and_not_once_for_every_piece(monkeypatch):
    read = 0
    real = zlib.decompressobj

    class Counting:
        def __init__(self, bits):
            self.member = real(bits)

        def __getattr__(self, name):
            return getattr(self.member, name)

        def decompress(self, data, most):
            nonlocal read
            read += len(data)
            return self.member.decompress(data, most)

    monkeypatch.setattr("zlib.decompressobj", Counting)
    assert unpack(PACKED, len(PACKED)) == PLAIN
    assert len(PACKED) <= read <= len(PACKED) + len(PLAIN)
