"""Every form on the wire: it comes back whole, and nothing but what its writer writes is taken.

Readers are handed injured inputs, half of them with checksums and epochs mended, so that what lies behind these is
reached. Whatever they take must be what the writer writes of it; where a checksum covers all of it, no one-byte change
is taken at all. Readers that are laxer than that are found out.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from onoff import wire
from onoff.errors import InvalidWire
from onoff.wire import Catalogue, ChangesDecoder, Edition, EditionReport, FrameDigests, Problem, Since, WireMessage
from onoff.wire.changes import CHANGES_HEAD_BYTES, CHANGES_TRAILER_BYTES
from onoff.wire.messages import CHECKSUM_BYTES

FRAME = 256
NAMES = ("news", "weather", "Zürich", "東京", "a b", "x", "y", "z", "t", "u")
N = len(NAMES)
PADDED, UNPADDED = Catalogue(NAMES, FRAME), Catalogue(NAMES, None, 1000)
LIFE, DIGEST = bytes(range(16)), b"\x07" * 32
HAVE = Edition(UNPADDED.epoch, LIFE, 7, DIGEST)
HELD = FrameDigests(HAVE, 200, bytes(32 * N))


@dataclass(frozen=True)
class Form:
    """How values of a kind are written and read; a reader may be told of the value that it asked for."""

    values: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, Any], Any]
    mend: Callable[[bytes], bytes] = lambda data: data  # checksums and epochs made right
    sealed: bool = False  # whether a checksum covers all of it
    one_form: bool = True


# Values.

below = lambda limit: st.integers(0, limit - 1)  # noqa: E731
sets = st.sets(below(N), min_size=1).map(sorted)
messages = st.builds(
    WireMessage,
    st.integers(1, wire.VERSION_LIMIT - 1),
    below(wire.TIME_LIMIT),
    st.sampled_from(["a/b", "text/plain; charset=utf-8", "a/" + "b" * 62]),
    st.binary(max_size=30),
)
editions = st.builds(
    Edition, below(wire.EPOCH_LIMIT), st.binary(min_size=16, max_size=16), below(1 << 53), st.just(DIGEST)
)
answers = st.dictionaries(below(N), messages | st.just(wire.NOTHING), min_size=1, max_size=3)
since = st.builds(
    Since,
    below(1 << 53),
    st.none() | st.binary(min_size=16, max_size=16),
    st.none() | st.binary(min_size=32, max_size=32),
)
queries = st.builds(
    lambda epoch, session, step, sources, tags: wire.WireQuery(
        epoch, session, step, tuple(sources), n=N, known=tags[: 8 * len(sources)] if any(tags[:8]) else b""
    ),
    below(wire.EPOCH_LIMIT),
    st.binary(min_size=16, max_size=16),
    below(wire.STEP_LIMIT),
    sets,
    st.binary(min_size=8 * N, max_size=8 * N),
)
problems = st.builds(Problem, st.just(503), st.text(max_size=9), st.text(max_size=9)) | st.builds(
    lambda epoch: Problem(409, "t", "h", wire.EPOCH_CHANGED, epoch=epoch), below(wire.EPOCH_LIMIT)
)


@st.composite
def catalogues(draw):
    names = tuple(draw(st.sets(st.sampled_from(NAMES), max_size=4)))
    size = draw(st.none() | st.sampled_from([wire.MIN_FRAME_SIZE, wire.MAX_FRAME_SIZE]))
    return Catalogue(names, size, draw(st.sampled_from([wire.MIN_LIMIT, 1000, wire.MAX_LIMIT])) if size is None else 0)


@st.composite
def replies(draw):
    """The edition that a reply with changes leads to, since when, and the messages."""
    found = dict(sorted(draw(st.dictionaries(below(N), messages, min_size=1, max_size=3)).items()))
    return replace(HAVE, number=draw(st.integers(8, 99))), draw(st.sampled_from([0, 7])), found


@st.composite
def changed_answers(draw):
    """What a set says now, and what was known of each source of it: that, something else, or nothing."""
    found = dict(sorted(draw(answers).items()))
    tags = [
        draw(st.sampled_from([wire.message_tag(source, message, epoch=UNPADDED.epoch), wire.NO_TAG, b"of other"]))
        for source, message in found.items()
    ]
    return found, b"".join(tags)


@st.composite
def digests(draw):
    """All digests of an edition, and the sources of which a reader of edition 7 does not hold them."""
    changed = draw(sets)
    held = bytearray(HELD.digests)
    for source in changed:
        held[source * 32 : source * 32 + 32] = draw(st.binary(min_size=32, max_size=32))
    return FrameDigests(replace(HAVE, number=9), draw(st.integers(104, 999)), bytes(held)), changed


@st.composite
def sum_queries(draw):
    servers = draw(st.integers(2, 16))
    vector = bytes(draw(st.lists(below(servers), min_size=N, max_size=N)))
    fields = draw(below(wire.EPOCH_LIMIT)), draw(st.binary(min_size=16, max_size=16)), draw(below(wire.STEP_LIMIT))
    return wire.SumQuery(*fields, draw(below(1 << 53)), DIGEST, servers, sum(vector) % servers, vector)


# Writing and reading.


def how(catalogue):
    return {"epoch": catalogue.epoch, "frame_size": catalogue.frame_size, "limit": catalogue.limit}


def frames(found, catalogue):
    return b"".join(wire.encode_frame(source, found[source], **how(catalogue)) for source in sorted(found))


def read_frames(data, of, catalogue):
    return dict(zip(sorted(of), wire.decode_answer(data, sorted(of), **how(catalogue)), strict=True))


def encode_changed(value):
    found, known = value
    written = [wire.encode_frame(source, message, **how(UNPADDED)) for source, message in found.items()]
    return wire.encode_changed(written, known, epoch=UNPADDED.epoch)


def decode_changed(data, of):
    found, known = of
    changed = wire.decode_changed(data, list(found), known, epoch=UNPADDED.epoch, limit=UNPADDED.limit)
    return found | changed, known


def mend_catalogue(data):
    """The same names and size under the epoch that they would have, however wrong they are."""
    try:
        fields = json.loads(data)
        fake = object.__new__(Catalogue)
        for name, value in (("names", fields["sources"]), ("frame_size", fields.get("frame_size"))):
            object.__setattr__(fake, name, tuple(value) if name == "names" else value)
        object.__setattr__(fake, "limit", fields.get("limit", 0))
        return wire.encode_catalogue(fake)
    except Exception:
        return data


def mend_frames(catalogue):
    """Every frame with its right checksum, as far as there are whole ones."""

    def mend(data):
        mended, at = b"", 0
        while len(data) - at >= wire.FRAME_OVERHEAD:
            size = catalogue.frame_size or wire.frame_length(data[at:])
            content = data[at : at + size][:-CHECKSUM_BYTES]
            mended += content + wire.frame_checksum(catalogue.epoch, content)
            at += size
        return mended + data[at:]

    return mend


def encode_reply(value):
    edition, number, found = value
    written = [wire.encode_frame(source, message, **how(UNPADDED)) for source, message in found.items()]
    head, trailer = wire.encode_changes_head(edition, number), wire.encode_changes_trailer(edition, number, written)
    return head + b"".join(written) + trailer


def decode_reply(data, of):
    decoder = ChangesDecoder(UNPADDED, HAVE)
    found = dict(pair for at in range(0, len(data), 50) for pair in decoder.feed(data[at : at + 50]))
    return decoder.finish(), decoder.since, found


def mend_reply(data):
    head, trailer = data[:CHANGES_HEAD_BYTES], data[-CHANGES_TRAILER_BYTES:-CHECKSUM_BYTES]
    body = mend_frames(UNPADDED)(data[CHANGES_HEAD_BYTES:-CHANGES_TRAILER_BYTES])
    sums, at = b"", 0
    while len(body) - at >= wire.FRAME_OVERHEAD:
        size = wire.frame_length(body[at:])
        sums += body[at : at + size][-CHECKSUM_BYTES:]
        at += size
    return head + body + trailer + hashlib.sha256(head + sums + trailer).digest()[:CHECKSUM_BYTES]


def decode_digests(data, of):
    found = wire.decode_digests(data, UNPADDED, HELD)
    at = len(data) - 32 * len(of[1]) - wire.bitmap_length(N)  # of the set, where it is as long as it was
    bits = int.from_bytes(data[at : at + wire.bitmap_length(N)], "little")
    return found, [source for source in range(N) if bits >> source & 1]


def since_text(value):
    parts = [f"since={value.number}"]
    parts += [] if value.life is None else [f"life={value.life.hex()}"]
    return "&".join(parts + ([] if value.digest is None else [f"digest={value.digest.hex()}"]))


FORMS = {
    "catalogue": Form(
        catalogues(), wire.encode_catalogue, lambda data, of: wire.decode_catalogue(data), mend_catalogue, sealed=True
    ),
    "query": Form(queries, wire.encode_query, lambda data, of: wire.decode_query(data, N)),
    "padded frames": Form(
        answers,
        lambda found: frames(found, PADDED),
        lambda data, of: read_frames(data, of, PADDED),
        mend_frames(PADDED),
        sealed=True,
    ),
    "frames": Form(
        answers,
        lambda found: frames(found, UNPADDED),
        lambda data, of: read_frames(data, of, UNPADDED),
        mend_frames(UNPADDED),
        sealed=True,
    ),
    "frames that are not known": Form(changed_answers(), encode_changed, decode_changed, sealed=True),
    "changes": Form(replies(), encode_reply, decode_reply, mend_reply, sealed=True),
    "digests": Form(digests(), lambda value: wire.encode_digests(value[0], 7, value[1]), decode_digests, sealed=True),
    "edition": Form(
        st.builds(EditionReport, editions, below(1 << 53), below(1 << 53)),
        wire.encode_edition,
        lambda data, of: wire.decode_edition(data),
    ),
    "request for changes": Form(
        since, lambda value: since_text(value).encode(), lambda data, of: wire.decode_since(data.decode("latin-1"))
    ),
    "request for digests": Form(
        st.builds(wire.WantedDigests, since, st.none() | below(1 << 53)),
        lambda w: (since_text(w.since) + ("" if w.edition is None else f"&edition={w.edition}")).encode(),
        lambda data, of: wire.decode_wanted_digests(data.decode("latin-1")),
    ),
    "sum query": Form(sum_queries(), wire.encode_sum_query, lambda data, of: wire.decode_sum_query(data, N)),
    "seen": Form(
        st.none() | st.builds(wire.Seen, below(wire.STEP_LIMIT), st.sampled_from(["0" * 64, "af" * 32])),
        wire.encode_seen,
        lambda data, of: wire.decode_seen(data),
    ),
    "refusal": Form(problems, wire.encode_problem, lambda data, of: wire.decode_problem(data), one_form=False),
}


# Properties.


def comes_back(form, value, data):
    assert form.decode(form.encode(value), value) == value


def no_byte_may_change(form, value, data):
    """Nor may any be missing at the end."""
    written, change = form.encode(value), data.draw(st.integers(1, 255))
    for at in range(len(written)):
        for injured in (written[:at] + bytes([written[at] ^ change]) + written[at + 1 :], written[:at]):
            assert refuses(form, injured, value), injured.hex()


def refuses(form, injured, value):
    try:
        form.decode(injured, value)
    except InvalidWire:
        return True
    return False


def what_is_taken_is_what_is_written(form, value, data):
    written = form.encode(value)
    injured = bytearray(written)
    for _ in range(data.draw(st.integers(1, 3))):
        at, size = (
            data.draw(st.integers(0, len(injured)) | st.just(len(injured))),
            data.draw(st.sampled_from([0, 1, 1, 2, 8, 16])),
        )
        again = bytes(injured[at : at + size])
        injured[at : at + size] = data.draw(
            st.binary(max_size=16) | st.sampled_from([again * 2, b" ", b"0", b"\0" * size])
        )
    taken = form.mend(bytes(injured)) if data.draw(st.booleans()) else bytes(injured)
    try:
        read = form.decode(taken, value)
    except InvalidWire:
        return
    assert not form.one_form or form.encode(read) == taken, taken.hex()


def check(law, form, examples, phases=tuple(Phase)):
    @settings(max_examples=examples, deadline=None, report_multiple_bugs=False, database=None, phases=phases)
    @given(form.values, st.data())
    def holds(value, data):
        law(form, value, data)

    holds()


DEEP = pytest.param(50_000, marks=[pytest.mark.deep, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("name", FORMS)
def test_every_form_comes_back(name):
    check(comes_back, FORMS[name], 100)


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.sealed])
def test_every_one_byte_change_of_what_has_a_checksum_is_refused(name):
    check(no_byte_may_change, FORMS[name], 20)


@pytest.mark.slow(reason="thousands of injured inputs")
@pytest.mark.parametrize("examples", [300, DEEP])
@pytest.mark.parametrize("name", FORMS)
def test_whatever_is_taken_is_what_its_writer_writes(name, examples):
    check(what_is_taken_is_what_is_written, FORMS[name], examples)


# Broken twins.


@pytest.mark.slow(reason="thousands of injured inputs")
@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.one_form])
def test_a_reader_that_does_not_look_at_the_end_is_found_out(name):
    form = FORMS[name]
    lax = replace(form, decode=lambda data, of: form.decode(data[: len(form.encode(of))], of))
    with pytest.raises(AssertionError):
        check(what_is_taken_is_what_is_written, lax, 5_000, [Phase.generate])


@pytest.mark.parametrize("name", ["catalogue", "padded frames", "frames", "changes"])
def test_a_reader_that_does_not_look_at_checksums_is_found_out(name):
    form = FORMS[name]
    lax = replace(form, decode=lambda data, of: form.decode(form.mend(data), of))
    with pytest.raises(AssertionError):
        check(no_byte_may_change, lax, 1000, [Phase.generate])
