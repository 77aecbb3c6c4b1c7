"""Digests of frames: one form, a root that every reader computes, and no way to change what is held unseen."""

import hashlib
from dataclasses import replace

import pytest

from onoff import wire
from onoff.errors import InvalidWire
from onoff.wire import Catalogue, Edition, FrameDigests, Since, WantedDigests

KNOWN = Catalogue(tuple("abcdefghij"), None, 1000)
LIFE = bytes(range(16))
EDITION = Edition(KNOWN.epoch, LIFE, 9, b"\x09" * 32)
HAVE = FrameDigests(replace(EDITION, number=7, digest=b"\x07" * 32), 300, b"".join(bytes([k]) * 32 for k in range(10)))
CHANGED = (0, 3, 9)
NOW = FrameDigests(EDITION, 400, b"".join(bytes([k + 100 * (k in CHANGED)]) * 32 for k in range(10)))
HEAD = 108


def test_the_layout_and_the_root_are_as_documented():
    fields = KNOWN.epoch.to_bytes(6) + LIFE
    named = (9).to_bytes(8) + b"\x09" * 32 + (400).to_bytes(4)
    root = hashlib.sha256(b"onoff digests" + fields + named + NOW.digests).digest()
    assert NOW.root == root
    head = b"\0\1" + fields + (7).to_bytes(8) + named + root
    bitmap = bytes([0b1001, 0b10])
    assert wire.encode_digests(NOW, 7, CHANGED) == head + bitmap + b"".join(map(NOW.of, CHANGED))
    assert len(head) == HEAD
    whole = wire.encode_digests(NOW, 0, CHANGED)
    assert whole[HEAD:] == bytes([255, 3]) + NOW.digests
    assert len(whole) <= wire.MAX_DIGESTS


def test_a_reader_holds_what_the_server_holds():
    assert wire.decode_digests(wire.encode_digests(NOW, 0, ()), KNOWN, None) == NOW
    assert wire.decode_digests(wire.encode_digests(NOW, 0, ()), KNOWN, HAVE) == NOW
    assert wire.decode_digests(wire.encode_digests(NOW, 7, CHANGED), KNOWN, HAVE) == NOW
    assert wire.decode_digests(wire.encode_digests(NOW, 7, range(10)), KNOWN, HAVE) == NOW
    assert wire.decode_digests(wire.encode_digests(NOW, 9, ()), KNOWN, NOW) == NOW
    assert wire.digests_epoch(wire.encode_digests(NOW, 9, ())) == KNOWN.epoch


def test_one_that_is_left_out_does_not_make_the_root():
    for missing in CHANGED:
        told = wire.encode_digests(NOW, 7, [source for source in CHANGED if source != missing])
        with pytest.raises(InvalidWire, match="root"):
            wire.decode_digests(told, KNOWN, HAVE)


GOOD = wire.encode_digests(NOW, 7, CHANGED)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "bytes"),
        (GOOD[: HEAD - 1], "bytes"),
        (GOOD[:HEAD], "length"),
        (GOOD[:-1], "length"),
        (GOOD + b"\0", "length"),
        (b"\0\2" + GOOD[2:], "version"),
        (GOOD[:7] + bytes([GOOD[7] ^ 1]) + GOOD[8:], "catalogue"),
        (GOOD[:8] + b"other life of it" + GOOD[24:], "not named"),
        (GOOD[:24] + (6).to_bytes(8) + GOOD[32:], "not named"),
        (GOOD[:24] + bytes(8) + GOOD[32:], "set"),
        (GOOD[:32] + (6).to_bytes(8) + GOOD[40:], "not named"),
        (GOOD[:32] + (10).to_bytes(8) + GOOD[40:], "root"),
        (GOOD[:72] + bytes(4) + GOOD[76:], "width"),
        (GOOD[:72] + b"\xff" * 4 + GOOD[76:], "width"),
        (GOOD[:76] + bytes(32) + GOOD[HEAD:], "root"),
        (GOOD[:HEAD] + bytes([0b1001, 0b1000010]) + GOOD[HEAD + 2 :], "set"),
        (GOOD[:HEAD] + bytes([0b1010, 0b10]) + GOOD[HEAD + 2 :], "root"),
    ],
)
def test_every_other_form_is_refused(data, says):
    assert wire.decode_digests(GOOD, KNOWN, HAVE) == NOW
    with pytest.raises(InvalidWire) as refused:
        wire.decode_digests(data, KNOWN, HAVE)
    assert says in refused.value.message + (refused.value.hint or "")


def test_changes_that_were_not_asked_for_are_refused():
    with pytest.raises(InvalidWire, match="not named"):
        wire.decode_digests(GOOD, KNOWN, None)
    with pytest.raises(InvalidWire):
        FrameDigests(EDITION, 400, b"x" * 33)


def test_a_request_has_one_form():
    assert wire.digests_target(None) == "/v1/digests?since=0"
    for have, edition in [(None, None), (None, 3), (HAVE, None), (HAVE, 0), (HAVE, 12)]:
        query = wire.digests_target(have, edition).partition("?")[2]
        since = Since(0) if have is None else Since(7, LIFE, b"\x07" * 32)
        assert wire.decode_wanted_digests(query) == WantedDigests(since, edition)
    for bad in [
        "", "edition=3", "since=1&edition=", "since=1&edition=03", "since=1&edition=-1", "since=1&edition=3&edition=4",
        f"since=1&edition={1 << 53}", "since=1&edition=3&", "since=1&life=00", "edition=3&since=1",
        "since=1&edition=3\n",
    ]:  # fmt: skip
        with pytest.raises(InvalidWire):
            wire.decode_wanted_digests(bad)
