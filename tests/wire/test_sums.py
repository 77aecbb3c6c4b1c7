"""One message from several servers: laws, decoding and cost by enumeration; the query in its one form."""

import itertools
import random
import secrets
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.controls import servers as controls

from onoff import wire
from onoff.errors import InvalidWire

EPOCH = 77
N = 6


class Script:
    """`randbelow` that gives a script of numbers, and must be asked for exactly so many."""

    def __init__(self, numbers):
        self.left = list(numbers)

    def __call__(self, below):
        number = self.left.pop(0)
        assert 0 <= number < below
        return number


def all_draws(sources, wanted, servers):
    """The vectors of every draw, all equally likely."""
    for numbers in itertools.product(range(servers), repeat=len(sources) - 1):
        script = Script(numbers)
        yield wire.draw_vectors(sources, wanted, n=N, servers=servers, randbelow=script)
        assert script.left == []


def frames_of(rng, n=N):
    return [
        wire.encode_frame(
            s, wire.WireMessage(s + 1, 9, "a/b", rng.randbytes(rng.randrange(40))), epoch=EPOCH, frame_size=None
        )
        for s in range(n)
    ]


def digests_of(frames):
    edition = wire.Edition(EPOCH, bytes(16), 1, bytes(32))
    return wire.FrameDigests(edition, max(map(len, frames)), b"".join(map(wire.frame_digest, frames)))


CASES = [(servers, size) for servers in (2, 3, 4) for size in range(1, 6)]


@pytest.mark.parametrize(("servers", "size"), CASES)
def test_each_server_sees_the_same_law_whatever_is_wanted(servers, size):
    """Equal, not close: every vector of the residue class, each equally often, for every wanted source."""
    sources = tuple(range(1, size + 1))
    for place in range(servers):
        laws = {
            wanted: Counter(vectors[place] for vectors in all_draws(sources, wanted, servers)) for wanted in sources
        }
        (first, *others) = laws.values()
        assert all(law == first for law in others)
        classes = [
            entries for entries in itertools.product(range(servers), repeat=size) if sum(entries) % servers == place
        ]
        assert first == Counter({bytes([0, *entries, *bytes(N - 1 - size)]): 1 for entries in classes})


@pytest.mark.parametrize(("servers", "size"), CASES)
def test_decoding_is_always_right_and_costs_what_it_should(servers, size):
    frames = frames_of(random.Random(servers * 10 + size))
    width = max(map(len, frames))
    sources = tuple(range(N - size, N))
    for wanted in sources:
        draws = downloaded = 0
        for vectors in all_draws(sources, wanted, servers):
            answers = [wire.sum_answer(frames, vector, servers) for vector in vectors]
            message = wire.decode_sums(answers, vectors, wanted, digests_of(frames), limit=100)
            assert wire.encode_frame(wanted, message, epoch=EPOCH, frame_size=None) == frames[wanted]
            assert message.version == wanted + 1
            assert {len(answer) for answer in answers} <= {0, wire.chunk_length(width, servers)}
            downloaded += sum(bool(answer) for answer in answers)
            draws += 1
        assert Fraction(downloaded, draws * (servers - 1)) == wire.expected_cost(size, servers)


def test_the_cost_in_closed_form():
    for servers, size in itertools.product(range(2, 17), range(1, 40)):
        whole = (1 - Fraction(1, servers**size)) / (1 - Fraction(1, servers))
        assert wire.expected_cost(size, servers) == whole < Fraction(servers, servers - 1)
    assert wire.expected_cost(17, 2) == 2 - Fraction(1, 2**16)


BROKEN = {
    "parity is not enforced": lambda v, wanted, servers: [x[:wanted] + b"\0" + x[wanted + 1 :] for x in v],
    "the wanted one is always in server 1's": lambda v, wanted, servers: [
        x if p != 1 else x[:wanted] + b"\1" + x[wanted + 1 :] for p, x in enumerate(v)
    ],
}


@pytest.mark.parametrize("how", BROKEN)
def test_the_law_and_the_form_catch_broken_vectors(how):
    """A client that broke the parity, or forced an entry, would be seen by the law or refused by the server."""
    laws = {}
    refused = 0
    for wanted in (0, 1, 2):
        law: Counter[Any] = Counter()
        for vectors in all_draws((0, 1, 2), wanted, 2):
            for place, vector in enumerate(BROKEN[how](vectors, wanted, 2)):
                law[place, vector] += 1
                try:
                    wire.encode_sum_query(wire.SumQuery(EPOCH, bytes(16), 0, 1, bytes(32), 2, place, vector))
                except InvalidWire:
                    refused += 1
        laws[wanted] = law
    assert refused or not (laws[0] == laws[1] == laws[2])


@given(
    servers=st.integers(2, 16),
    n=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_any_number_of_servers_and_sources(servers, n, seed):
    rng = random.Random(seed)
    sources = sorted(rng.sample(range(n), rng.randint(1, n)))
    wanted = rng.choice(sources)
    frames = frames_of(rng, n)
    vectors = wire.draw_vectors(sources, wanted, n=n, servers=servers, randbelow=rng.randrange)
    assert all(vector[s] == 0 for vector in vectors for s in range(n) if s not in sources)
    answers = []
    for place, vector in enumerate(vectors):
        query = wire.SumQuery(EPOCH, rng.randbytes(16), 3, 5, rng.randbytes(32), servers, place, vector)
        data = wire.encode_sum_query(query)
        assert len(data) == wire.sum_query_length(n, servers) <= wire.MAX_SUM_QUERY
        assert wire.decode_sum_query(data, n) == query
        answers.append(wire.sum_answer(frames, vector, servers))
    assert wire.decode_sums(answers, vectors, wanted, digests_of(frames), limit=100).version == wanted + 1


def test_a_set_without_the_wanted_source_is_refused():
    for sources, wanted in [((0, 1), 2), ((0, 0), 0), ((0, 9), 0), ((-1, 0), 0), ((), 0)]:
        with pytest.raises(InvalidWire, match="set"):
            wire.draw_vectors(sources, wanted, n=3, servers=2, randbelow=secrets.randbelow)


# What the servers send.


def test_answers_of_wrong_lengths_are_refused():
    frames = frames_of(random.Random(5), 2)
    whole = max(frames, key=len)
    wanted = frames.index(whole)
    vectors = wire.draw_vectors((0, 1), wanted, n=2, servers=2, randbelow=Script([0]))
    assert not any(vectors[0])
    good = [b"", whole]
    assert wire.decode_sums(good, vectors, wanted, digests_of(frames), limit=100).version == wanted + 1
    for bad in [[b"x", whole], [b"", b""], [b""], [b"", b"m", b"m"], [b"", whole + b"\0"], [b"", whole[:-1]]]:
        with pytest.raises(InvalidWire):
            wire.decode_sums(bad, vectors, wanted, digests_of(frames), limit=100)


def errors_of(frames, answer, servers):
    """What a lying server may make of its answer, by name: nothing, a bit anywhere, differences of frames, lengths."""
    length = len(answer)
    yield "none", answer
    for at in range(length):
        yield ("bit", at), answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :]
    for source, frame in enumerate(frames):
        others = [wire.WireMessage(9, 9, "a/b", b"another"), wire.WireMessage(9, 9, "a/b", bytes(len(frame) - 104))]
        for number, other in enumerate(others):
            lie = wire.encode_frame(source, other, epoch=EPOCH, frame_size=None)
            size = max(map(len, (frame, lie, *frames)))
            error = int.from_bytes(frame.ljust(size, b"\0")) ^ int.from_bytes(lie.ljust(size, b"\0"))
            chunks = error.to_bytes(size).ljust(length * (servers - 1), b"\0")
            for chunk in range(servers - 1):
                part = chunks[chunk * length : (chunk + 1) * length]
                yield ("frame", source, number, chunk), bytes(a ^ b for a, b in zip(answer, part, strict=True))
        yield ("cut", source), answer[: len(frame)]
    yield "longer", answer + b"\0"
    yield "longer by a bit", answer + b"\1"
    yield "empty", b""


def acceptances(decode, n, servers):
    """Whether a lie is accepted, for every want and draw, by what the liar knows: its place, its vector, the lie."""
    frames = [
        wire.encode_frame(s, wire.WireMessage(s + 1, 9, "a/b", b"m" * (5 * s)), epoch=EPOCH, frame_size=None)
        for s in range(n)
    ]
    digests = digests_of(frames)
    found: dict[Any, Any] = {}
    for wanted in range(n):
        for numbers in itertools.product(range(servers), repeat=n - 1):
            vectors = wire.draw_vectors(range(n), wanted, n=n, servers=servers, randbelow=Script(numbers))
            answers = [wire.sum_answer(frames, vector, servers) for vector in vectors]
            for liar in range(servers):
                for name, lie in errors_of(frames, answers[liar], servers):
                    told = [lie if place == liar else answer for place, answer in enumerate(answers)]
                    try:
                        decode(told, vectors, wanted, digests, limit=100)
                        accepted = True
                    except InvalidWire:
                        accepted = False
                    knows = (liar, vectors[liar], name, lie == answers[liar])
                    found.setdefault(knows, set()).add(accepted)
    return found


@pytest.mark.parametrize(("n", "servers"), list(itertools.product((2, 3), (2, 3))))
def test_a_lie_is_refused_whatever_is_wanted(n, servers):
    """Enumerated: what one server knows decides whether its answer is accepted, and every other answer is refused."""
    for (*_, honest), accepted in acceptances(wire.decode_sums, n, servers).items():
        assert accepted == {honest}


@pytest.mark.parametrize("broken", [controls.by_checksum, controls.without_zeros, controls.of_any_length])
def test_whoever_takes_less_than_the_frame_of_the_edition_is_found_out(broken):
    """The checksum alone, the frame without the zeros after it, any length: each tells a liar what was wanted."""
    assert {True, False} in acceptances(broken, 3, 2).values()


# The one form.


def good_query(rng=random, n=N, servers=3, place=1):
    vectors = wire.draw_vectors(range(n), rng.randrange(n), n=n, servers=servers, randbelow=rng.randrange)
    query = wire.SumQuery(EPOCH, rng.randbytes(16), 5, 9, rng.randbytes(32), servers, place, vectors[place])
    return query, wire.encode_sum_query(query)


def test_the_layout_of_a_query():
    query = wire.SumQuery(EPOCH, b"s" * 16, 5, 9, b"d" * 32, 2, 1, bytes([1, 0, 0, 0, 0, 0, 1, 0, 1]))
    head = b"\0\2" + EPOCH.to_bytes(6) + b"s" * 16 + (5).to_bytes(8) + (9).to_bytes(8) + b"d" * 32 + b"\2\1"
    assert wire.encode_sum_query(query) == head + bytes([0b01000001, 0b1])
    assert wire.encode_vector(bytes([1, 2, 0, 3, 3]), 4) == bytes([0b11001001, 0b11])
    assert wire.encode_vector(bytes([7, 1, 0]), 8) == bytes([0b00001111, 0])
    assert wire.encode_vector(bytes([15, 1, 2]), 16) == bytes([0x1F, 0x02])
    assert [wire.entry_bits(k) for k in (2, 3, 4, 5, 8, 9, 16)] == [1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda q: q[:-1], "bytes"),
        (lambda q: q + b"\0", "bytes"),
        (lambda q: q[:73], "head"),
        (lambda q: b"\0\1" + q[2:], "version"),
        (lambda q: q[:24] + b"\xff" * 8 + q[32:], "step"),
        (lambda q: q[:32] + b"\xff" * 8 + q[40:], "edition"),
        (lambda q: q[:72] + b"\1" + q[73:], "servers"),
        (lambda q: q[:72] + b"\x11" + q[73:], "servers"),
        (lambda q: q[:73] + b"\3" + q[74:], "server 3 of 3"),
        (lambda q: q[:73] + b"\2" + q[74:], "residue"),
        (lambda q: q[:72] + b"\2" + q[73:], "bytes"),
        (lambda q: q[:-1] + bytes([q[-1] | 0x80]), "spare"),
        (lambda q: q[:74] + b"\3" + q[75:], "range"),
    ],
)
def test_every_other_form_is_refused(change, says):
    query, data = good_query(random.Random(3))
    assert wire.decode_sum_query(data, N) == query
    with pytest.raises(InvalidWire) as refused:
        wire.decode_sum_query(change(data), N)
    assert says in refused.value.message + (refused.value.hint or "")


@pytest.mark.parametrize(
    "fields",
    [
        {"epoch": 1 << 48}, {"session": b""}, {"step": 1 << 53}, {"edition": 1 << 53}, {"digest": b""}, {"servers": 1},
        {"servers": 17}, {"place": 3}, {"place": 2}, {"place": -1}, {"vector": b""}, {"vector": bytes([3, 1])},
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused(fields):
    good = {"epoch": 1, "session": bytes(16), "step": 1, "edition": 1, "digest": bytes(32), "servers": 3, "place": 1}
    wire.encode_sum_query(wire.SumQuery(**good, vector=bytes([2, 2])))
    with pytest.raises(InvalidWire):
        wire.encode_sum_query(wire.SumQuery(**({**good, "vector": bytes([2, 2])} | fields)))


def test_an_empty_catalogue_has_no_vectors():
    with pytest.raises(InvalidWire):
        wire.decode_vector(b"", 0, 2)


def test_another_edition_is_the_same_step():
    query, data = good_query(random.Random(4))
    other = wire.with_edition(data, 10, b"x" * 32)
    decoded = wire.decode_sum_query(other, N)
    assert (decoded.edition, decoded.digest) == (10, b"x" * 32)
    assert (decoded.vector, decoded.session, decoded.place) == (query.vector, query.session, query.place)
    assert wire.sum_step_digest(other) == wire.sum_step_digest(data) != wire.sum_step_digest(good_query()[1])
    for at in [*range(32), *range(72, len(data))]:  # every other byte is part of the step
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert wire.sum_step_digest(changed) != wire.sum_step_digest(data)
    for edition, digest in [(-1, bytes(32)), (1 << 53, bytes(32)), (1, b"")]:
        with pytest.raises(InvalidWire):
            wire.with_edition(data, edition, digest)


def test_edition_gone_names_the_newest():
    gone = wire.Problem(409, "gone", "ask again", wire.EDITION_GONE, edition=7)
    assert wire.decode_problem(wire.encode_problem(gone)) == gone
    with pytest.raises(InvalidWire, match="edition"):
        wire.decode_problem(b'{"type":"urn:onoff:edition-gone","title":"x","status":409,"hint":""}')
