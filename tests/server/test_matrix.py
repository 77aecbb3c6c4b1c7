"""Sums over the matrix are those of the plain definition, for any number of servers, rows and waiting queries."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import wire
from onoff.server import matrix
from onoff.server.matrix import Matrix, Wanted


def frames_of(rng, n, longest):
    return [rng.randbytes(rng.randint(1, longest)) for _ in range(n)]


def wanted_of(rng, n, servers, width, past=None):
    vector = bytes(rng.randrange(servers) for _ in range(n))
    return Wanted(vector, servers, wire.chunk_length(width, servers), past or {})


def plain(frames, query, servers):
    """The sum by its definition; zeros where the vector is zero."""
    return wire.sum_answer(frames, query.vector, servers) or bytes(query.length)


@given(
    n=st.integers(1, 40),
    longest=st.integers(1, 300),
    servers=st.lists(st.integers(2, 16), min_size=1, max_size=5),
    grouped=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_sums_are_those_of_the_definition(n, longest, servers, grouped, seed):
    rng = random.Random(seed)
    frames = frames_of(rng, n, longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix, "MAX_GROUPED_ROW", 1 << 20 if grouped else 0)
        patch.setattr(matrix, "BLOCK_BYTES", 1000)  # several blocks
        made = Matrix(frames)
        for _ in range(3):
            width = max(map(len, frames))
            queries = [wanted_of(rng, n, k, width) for k in servers]
            assert made.sums(queries) == [plain(frames, q, k) for q, k in zip(queries, servers, strict=True)]
            changed = {at: rng.randbytes(rng.randint(0, made.width)) for at in rng.sample(range(n), rng.randint(0, n))}
            made.replace(changed)
            frames = [changed.get(at, frame) for at, frame in enumerate(frames)]
            assert [bytes(made.row(at)).rstrip(b"\0") for at in range(n)] == [f.rstrip(b"\0") for f in frames]


@pytest.mark.parametrize("servers", [2, 3, 4, 7])
@pytest.mark.parametrize("grouped", [True, False])
def test_an_edition_of_the_past_is_summed_as_it_was(monkeypatch, grouped, servers):
    monkeypatch.setattr(matrix, "MAX_GROUPED_ROW", 1 << 20 if grouped else 0)
    rng = random.Random(servers)
    old = frames_of(rng, 30, 200)
    made = Matrix(old)
    for _ in range(5):
        now = list(old)
        for at in rng.sample(range(30), 7):
            now[at] = rng.randbytes(rng.randint(1, made.width))
        made.replace(dict(enumerate(now)))
        past = {at: frame for at, frame in enumerate(old) if frame != now[at]}
        query = wanted_of(rng, 30, servers, max(map(len, old)), past)
        assert made.sums([query]) == [plain(old, query, servers)]


def test_a_row_that_does_not_fit_is_refused():
    made = Matrix([b"x" * 10])
    made.replace({0: b"y" * made.width})
    with pytest.raises(ValueError, match="width"):
        made.replace({0: b"y" * (made.width + 1)})


def test_long_rows_are_kept_alone_and_short_ones_in_groups():
    assert Matrix([bytes(100)] * 8)._rows.shape[0] == 2 * 16
    assert Matrix([bytes(100_000)] * 8)._rows.shape[0] == 8
    assert matrix.matrix_bytes(8, 100) == 8 * 128
