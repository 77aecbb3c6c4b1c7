"""The wire: lengths that tell the number of sources only, strict readers; that all have one form is in `test_forms`."""

import hashlib
import json
import random
import struct

import pytest

from onoff import wire
from onoff.errors import InvalidWire, UnknownSource
from onoff.wire import Catalogue, Problem, WireMessage, WireQuery

SESSION = bytes(range(16))
FRAME = 256
NAMES = ("news", "weather", "Zürich", "東京", "a b", "x", "y", "z", "t", "u")
CATALOGUE = Catalogue(NAMES, FRAME)


def message(body: bytes = b"hello", version: int = 3) -> WireMessage:
    return WireMessage(version, 1_700_000_000_000, "text/plain; charset=utf-8", body)


def frame(source: int = 2, content: WireMessage | None = None) -> bytes:
    return wire.encode_frame(source, content or message(), epoch=CATALOGUE.epoch, frame_size=FRAME)


# Catalogue and names.


def test_the_epoch_is_a_function_of_names_order_and_frame_size():
    assert Catalogue(NAMES, FRAME).epoch == CATALOGUE.epoch < wire.EPOCH_LIMIT
    others = [
        Catalogue(NAMES[::-1], FRAME),
        Catalogue(NAMES[:-1], FRAME),
        Catalogue((*NAMES, "more"), FRAME),
        Catalogue(NAMES, FRAME + 1),
        Catalogue(("ne", "wsweather", *NAMES[2:]), FRAME),
    ]
    assert len({c.epoch for c in [CATALOGUE, *others]}) == 6


def test_a_catalogue_comes_back_whole_and_knows_its_sources():
    assert wire.decode_catalogue(wire.encode_catalogue(CATALOGUE)) == CATALOGUE
    assert [CATALOGUE.source(name) for name in NAMES] == list(range(10))
    with pytest.raises(UnknownSource) as refused:
        CATALOGUE.source("newz")
    assert "newz" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 257,
        "é" * 129,
        "e\u0301",
        "a\x00b",
        "a\nb",
        "\x1b[31m",
        "a\u202eb",
        "a\u200bb",
        "a\u2028b",
        "../x",
        "a/b",
        "a\\b",
        ".",
        "..",
        " a",
        "a ",
        "\ud800",
    ],
)
def test_names_that_could_mislead_are_refused(name: str):
    with pytest.raises(InvalidWire):
        wire.check_name(name)


@pytest.mark.parametrize("name", ["x" * 256, "é", "con", "🙂", "a.b", "..a", "%2e%2e", "1e1", "-1"])
def test_names_that_are_merely_odd_are_kept(name: str):
    assert wire.check_name(name) == name


def test_catalogues_beyond_the_limits_are_refused():
    for names, size in [
        (("a", "a"), FRAME),
        (("a",), wire.MIN_FRAME_SIZE - 1),
        (("a",), wire.MAX_FRAME_SIZE + 1),
        (tuple(str(i) for i in range(wire.MAX_SOURCES + 1)), wire.MIN_FRAME_SIZE),
        (tuple(str(i) for i in range(17)), wire.MAX_FRAME_SIZE),
    ]:
        with pytest.raises(InvalidWire):
            Catalogue(names, size)


def test_a_catalogue_whose_epoch_or_form_is_not_its_own_is_refused():
    good = wire.encode_catalogue(CATALOGUE)
    fields = json.loads(good)
    for bad in [
        json.dumps(fields | {"epoch": fields["epoch"] ^ 1}).encode(),
        json.dumps(fields).encode(),
        good + b" ",
        json.dumps(fields | {"more": 1}).encode(),
        json.dumps(fields | {"sources": [1]}).encode(),
        b"[]",
        b"<html>",
        b"[" * 100_000,
        b"9" * 5000,
    ]:
        with pytest.raises(InvalidWire):
            wire.decode_catalogue(bad)


# Queries.


def test_the_bytes_of_a_query_are_as_documented():
    data = wire.encode_query(WireQuery(CATALOGUE.epoch, SESSION, 7, (0, 3, 9), n=10))
    assert data == b"\0\3" + CATALOGUE.epoch.to_bytes(6) + SESSION + (7).to_bytes(8) + bytes([0b1001, 0b10])
    assert wire.QUERY_HEAD_BYTES == 32
    tags = b"tag of 0" + wire.NO_TAG + b"tag of 9"
    assert wire.encode_query(WireQuery(CATALOGUE.epoch, SESSION, 7, (0, 3, 9), n=10, known=tags)) == data + tags


@pytest.mark.parametrize("tags", [bytes(8), b"seven by", bytes(24), bytes(23) + b"x" * 2, b"x" * 25], ids=len)
def test_tags_are_one_for_each_source_and_not_all_nothing(tags: bytes):
    data = wire.encode_query(WireQuery(5, SESSION, 7, (0, 3, 9), n=10))
    with pytest.raises(InvalidWire, match="bytes of tags for 3 sources"):
        wire.decode_query(data + tags, 10)
    with pytest.raises(InvalidWire, match="bytes of tags for 3 sources"):
        wire.encode_query(WireQuery(5, SESSION, 7, (0, 3, 9), n=10, known=tags))


def test_a_query_of_the_version_before_is_refused_with_a_clear_word():
    data = wire.encode_query(WireQuery(5, SESSION, 7, (0, 3, 9), n=10))
    with pytest.raises(InvalidWire, match=r"a query of version 1 .*speaks version 3.*same version on both sides"):
        wire.decode_query(b"\0\1" + data[2:], 10)


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16, 1000, wire.MAX_SOURCES])
def test_every_query_has_the_same_length_and_comes_back(n: int):
    rng = random.Random(n)
    sets = [(0,), (n - 1,), tuple(range(n))] + [
        tuple(sorted(rng.sample(range(n), rng.randint(1, n)))) for _ in range(20)
    ]
    for sources in sets:
        query = WireQuery(5, SESSION, 0, sources, n=n)
        data = wire.encode_query(query)
        assert len(data) == wire.query_length(n) <= wire.MAX_QUERY
        assert wire.decode_query(data, n) == query


def test_all_bitmaps_of_ten_sources_are_told_apart_and_only_canonical_ones_read():
    accepted = {}
    for value in range(1 << 16):
        try:
            accepted[wire.decode_bitmap(value.to_bytes(2, "little"), 10)] = value
        except InvalidWire:
            assert value == 0 or value >> 10
    assert len(accepted) == 2**10 - 1
    assert all(sum(1 << s for s in sources) == value for sources, value in accepted.items())


@pytest.mark.parametrize("sources", [(), (1, 1), (2, 1), (10,), (-1,)])
def test_a_set_has_one_form_for_the_writer_too(sources: tuple[int, ...]):
    with pytest.raises(InvalidWire):
        wire.encode_query(WireQuery(5, SESSION, 0, sources, n=10))


@pytest.mark.parametrize(
    "query",
    [
        WireQuery(-1, SESSION, 0, (0,), n=10),
        WireQuery(1 << 48, SESSION, 0, (0,), n=10),
        WireQuery(0, SESSION, -1, (0,), n=10),
        WireQuery(0, SESSION, 1 << 53, (0,), n=10),
        WireQuery(0, SESSION[:-1], 0, (0,), n=10),
        WireQuery(0, SESSION + b"x", 0, (0,), n=10),
    ],
)
def test_heads_out_of_range_are_not_written(query: WireQuery):
    with pytest.raises(InvalidWire):
        wire.encode_query(query)


def test_queries_of_other_versions_steps_and_lengths_are_not_read():
    data = wire.encode_query(WireQuery(5, SESSION, 1, (0,), n=10))
    for bad in [
        b"",
        data[:31],
        data[:-1],
        data + b"\0",
        b"\0\2" + data[2:],
        data[:24] + b"\xff" * 8 + data[32:],
        data[:-2] + b"\0\0",
        data[:-1] + b"\x04",
    ]:
        with pytest.raises(InvalidWire):
            wire.decode_query(bad, 10)


# Answers.


def test_the_bytes_of_a_frame_are_as_documented():
    data = frame()
    head = struct.pack(">IQQI", 2, 3, 1_700_000_000_000, 5) + b"text/plain; charset=utf-8".ljust(64, b"\0")
    content = (head + b"hello").ljust(FRAME - 16, b"\0")
    assert data == content + hashlib.sha256(CATALOGUE.epoch.to_bytes(6) + content).digest()[:16]


def test_every_body_up_to_the_capacity_fits_and_all_frames_are_equally_long():
    for size in range(wire.capacity(FRAME) + 1):
        content = message(bytes([255]) * size)
        data = frame(1, content)
        assert len(data) == FRAME
        assert wire.decode_frame(data, 1, epoch=CATALOGUE.epoch, frame_size=FRAME) == content
    with pytest.raises(InvalidWire, match="at most"):
        frame(1, message(bytes(wire.capacity(FRAME) + 1)))


def test_nothing_published_is_a_frame_as_long_as_any():
    data = frame(0, wire.NOTHING)
    assert len(data) == FRAME
    assert wire.decode_frame(data, 0, epoch=CATALOGUE.epoch, frame_size=FRAME) == wire.NOTHING


def test_a_frame_of_another_source_or_catalogue_is_refused():
    with pytest.raises(InvalidWire, match="another source"):
        wire.decode_frame(frame(), 3, epoch=CATALOGUE.epoch, frame_size=FRAME)
    with pytest.raises(InvalidWire, match="another catalogue"):
        wire.decode_frame(frame(), 2, epoch=CATALOGUE.epoch ^ 1, frame_size=FRAME)


def mended(content: bytes) -> bytes:
    """`content` with the checksum that makes it pass as a frame."""
    return content + wire.frame_checksum(CATALOGUE.epoch, content)


@pytest.mark.parametrize(
    ("at", "patch"),
    [
        (FRAME - 17, b"\1"),  # padding
        (20, struct.pack(">I", 1)),  # a length that leaves the rest of the body in the padding
        (20, struct.pack(">I", 2**32 - 1)),
        (4, bytes(8)),  # version 0 with a body
        (4, b"\xff" * 8),
        (12, b"\xff" * 8),
        (24, b"\0"),  # media type that starts with a zero
        (24, b"\xff"),
        (24 + 30, b"x"),  # something after the media type's zeros
        (24, b"text\r\n"),
    ],
)
def test_frames_that_check_out_but_are_not_canonical_are_refused(at: int, patch: bytes):
    content = bytearray(frame()[:-16])
    assert mended(bytes(content)) == frame()
    content[at : at + len(patch)] = patch
    with pytest.raises(InvalidWire):
        wire.decode_frame(mended(bytes(content)), 2, epoch=CATALOGUE.epoch, frame_size=FRAME)


def test_an_answer_is_its_frames_in_order_and_nothing_else():
    sources = (1, 4, 9)
    messages = tuple(message(b"m%d" % s) for s in sources)
    frames = [frame(s, m) for s, m in zip(sources, messages, strict=True)]
    body = wire.encode_answer(frames)
    assert len(body) == wire.answer_length(3, FRAME)
    assert wire.decode_answer(body, sources, epoch=CATALOGUE.epoch, frame_size=FRAME) == messages
    for bad in [
        body[:-1],
        body + b"\0",
        b"".join(frames[::-1]),
        frames[0] * 3,
        b"".join(frames[:2]),
        b"".join(frames) + frames[2],
        b"",
    ]:
        with pytest.raises(InvalidWire):
            wire.decode_answer(bad, sources, epoch=CATALOGUE.epoch, frame_size=FRAME)


@pytest.mark.parametrize("kind", ["", "text", "text/", "a/b\r\nx: y", "a/b; c", "a/" + "b" * 63, "ä/b", "a/b\n"])
def test_media_types_that_could_break_a_header_are_refused(kind: str):
    with pytest.raises(InvalidWire):
        wire.check_media_type(kind)
    with pytest.raises(InvalidWire):
        frame(0, WireMessage(1, 0, kind, b""))


# Refusals.


@pytest.mark.parametrize(
    "problem",
    [
        Problem(400, "a bitmap of 3 bytes", "use 2"),
        Problem(409, "the catalogue has changed", "fetch it", wire.EPOCH_CHANGED, epoch=17),
        Problem(409, "another query", "new session", wire.STEP_CONFLICT, step=4, sha256="0" * 64),
    ],
)
def test_refusals_come_back_whole(problem: Problem):
    data = wire.encode_problem(problem)
    assert wire.decode_problem(data) == problem
    more = json.dumps(json.loads(data) | {"instance": "x"}).encode()
    assert wire.decode_problem(more) == problem


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"status":"409","title":""}',
        b'{"status":true,"title":""}',
        b'{"title":""}',
        b'{"status":409,"title":"","type":"urn:onoff:epoch-changed"}',
        b'{"status":409,"title":"","type":"urn:onoff:step-conflict","step":1}',
    ],
)
def test_refusals_that_do_not_say_what_they_must_are_refused(data: bytes):
    with pytest.raises(InvalidWire):
        wire.decode_problem(data)


# What the server saw last.


@pytest.mark.parametrize("seen", [None, wire.Seen(0, "0" * 64), wire.Seen(wire.STEP_LIMIT - 1, "af" * 32)])
def test_what_was_seen_last_comes_back(seen):
    assert wire.decode_seen(wire.encode_seen(seen)) == seen


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"step":1,"sha256":null}',
        b'{"step":null,"sha256":"' + b"0" * 64 + b'"}',
        b'{"step":true,"sha256":"' + b"0" * 64 + b'"}',
        b'{"step":-1,"sha256":"' + b"0" * 64 + b'"}',
        b'{"step":9007199254740992,"sha256":"' + b"0" * 64 + b'"}',
        b'{"step":1,"sha256":"' + b"0" * 63 + b'"}',
        b'{"step":1,"sha256":"' + b"A" * 64 + b'"}',
        b'{"step": 1,"sha256":"' + b"0" * 64 + b'"}',
        b'{"step":1,"sha256":"' + b"0" * 64 + b'","more":1}',
        b"[" * 100_000,
    ],
)
def test_what_was_seen_last_has_one_form(data):
    with pytest.raises(InvalidWire):
        wire.decode_seen(data)
