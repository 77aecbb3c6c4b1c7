"""Catalogues and answers without padding: each message at its own length, still in exactly one form."""

import hashlib
import json
import struct

import pytest

from onoff import wire
from onoff.errors import InvalidWire
from onoff.wire import Catalogue, WireMessage

NAMES = ("news", "weather", "Zürich")
LIMIT = 200
CATALOGUE = Catalogue(NAMES, None, LIMIT)
HOW = {"epoch": CATALOGUE.epoch, "frame_size": None, "limit": LIMIT}


def message(body: bytes = b"hello", version: int = 3) -> WireMessage:
    return WireMessage(version, 1_700_000_000_000, "text/plain", body)


def frame(source: int, content: WireMessage) -> bytes:
    return wire.encode_frame(source, content, **HOW)


def test_the_json_of_an_unpadded_catalogue_names_the_limit_and_no_frame_size():
    data = wire.encode_catalogue(CATALOGUE)
    assert json.loads(data) == {"epoch": CATALOGUE.epoch, "limit": LIMIT, "sources": list(NAMES)}
    assert wire.decode_catalogue(data) == CATALOGUE


def test_the_limit_is_one_mebibyte_unless_said_and_a_frame_sets_its_own():
    assert Catalogue(NAMES, None).limit == 1024 * 1024
    assert Catalogue(NAMES, 512).limit == wire.capacity(512) == 512 - 104


def test_the_epoch_depends_on_the_kind_the_limit_and_the_names():
    others = [Catalogue(NAMES, None, LIMIT + 1), Catalogue(NAMES[:2], None, LIMIT), Catalogue(NAMES, 256)]
    others.append(Catalogue(NAMES, LIMIT + 104))  # the same limit, padded
    assert len({c.epoch for c in [CATALOGUE, *others]}) == 5


@pytest.mark.parametrize("limit", [wire.MIN_LIMIT - 1, wire.MAX_LIMIT + 1, -1])
def test_limits_out_of_range_are_refused(limit: int):
    with pytest.raises(InvalidWire):
        Catalogue(NAMES, None, limit)


def test_a_frame_size_and_another_limit_contradict_each_other():
    with pytest.raises(InvalidWire):
        Catalogue(NAMES, 512, 100_000)


@pytest.mark.parametrize(
    "change",
    [{"limit": 0}, {"limit": True}, {"frame_size": 256}, {"limit": "200"}, {"limit": LIMIT + 1}, {"sources": None}],
)
def test_an_unpadded_catalogue_has_one_form(change: dict):
    fields = json.loads(wire.encode_catalogue(CATALOGUE)) | change
    with pytest.raises(InvalidWire):
        wire.decode_catalogue(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode())


def test_the_bytes_of_an_unpadded_frame_are_those_of_a_padded_one_without_the_zeros():
    head = struct.pack(">IQQI", 2, 3, 1_700_000_000_000, 5) + b"text/plain".ljust(64, b"\0")
    content = head + b"hello"
    assert frame(2, message()) == content + hashlib.sha256(CATALOGUE.epoch.to_bytes(6) + content).digest()[:16]
    assert len(frame(0, wire.NOTHING)) == wire.FRAME_OVERHEAD


def test_every_body_up_to_the_limit_fits_and_takes_its_own_length():
    for size in range(LIMIT + 1):
        data = frame(1, message(b"\xff" * size))
        assert len(data) == wire.frame_length(data) == wire.FRAME_OVERHEAD + size
        assert wire.decode_frame(data, 1, **HOW).body == b"\xff" * size
    with pytest.raises(InvalidWire, match="at most"):
        frame(1, message(bytes(LIMIT + 1)))


def test_a_message_over_the_limit_is_refused_though_its_frame_is_good():
    long = wire.encode_frame(1, message(bytes(LIMIT + 1)), epoch=CATALOGUE.epoch, frame_size=None, limit=LIMIT + 1)
    with pytest.raises(InvalidWire, match="at most"):
        wire.decode_frame(long, 1, **HOW)


def test_padding_in_an_unpadded_frame_and_none_in_a_padded_one_are_refused():
    content = frame(2, message())[:-16] + b"\0"
    with pytest.raises(InvalidWire, match="one form"):
        wire.decode_frame(content + wire.frame_checksum(CATALOGUE.epoch, content), 2, **HOW)
    with pytest.raises(InvalidWire):
        wire.decode_frame(frame(2, message()), 2, epoch=CATALOGUE.epoch, frame_size=256)


def test_an_answer_is_its_frames_in_order_and_nothing_else():
    messages = (message(b"x" * 150), wire.NOTHING, message(b""))
    frames = [frame(s, m) for s, m in enumerate(messages)]
    body = wire.encode_answer(frames)
    assert len(body) <= wire.max_answer_length(3, CATALOGUE)
    assert wire.decode_answer(body, range(3), **HOW) == messages
    for bad in [body[:-1], body + b"\0", b"".join(frames[::-1]), frames[0] * 3, b"".join(frames[:2]), body + frames[2]]:
        with pytest.raises(InvalidWire):
            wire.decode_answer(bad, range(3), **HOW)
    for size in range(len(body)):
        with pytest.raises(InvalidWire):
            wire.decode_answer(body[:size], range(3), **HOW)


def test_the_longest_answer_is_known_beforehand():
    assert wire.max_answer_length(2, CATALOGUE) == 2 * (LIMIT + wire.FRAME_OVERHEAD) + 16
    assert wire.max_answer_length(2, Catalogue(NAMES, 512)) == 1024
    assert wire.max_answer_length(1000, Catalogue(NAMES, None)) == wire.MAX_ANSWER + 16
