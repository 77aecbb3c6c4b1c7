"""Sums over the matrix are those of the plain definition, for any number of servers, rows and waiting queries."""

import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import PATIENCE

from onoff import wire
from onoff.server import sums
from onoff.server.sums import Matrix, Wanted


def frames_of(rng, n, longest):
    return [rng.randbytes(rng.randint(1, longest)) for _ in range(n)]


def wanted_of(rng, n, servers, width, past=None):
    vector = bytes(rng.randrange(servers) for _ in range(n))
    return Wanted(vector, servers, wire.chunk_length(width, servers), past or {})


def plain(frames, query, servers):
    """The sum by its definition; zeros where the vector is zero."""
    return wire.sum_answer(frames, query.vector, servers) or bytes(query.length)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """The kernel is compiled in the background; here it is waited for."""
    assert sums.kernel_ready().wait(5 * PATIENCE)


FROM = {"numpy": None, "compiled": 0}
"""From how many bytes on the kernel is used: never, or always."""


@pytest.mark.slow(reason="programs are started and waited for")
@given(
    n=st.integers(1, 40),
    longest=st.integers(1, 300),
    servers=st.lists(st.integers(2, 16), min_size=1, max_size=5),
    way=st.sampled_from(["numpy", "compiled"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_sums_are_those_of_the_definition(n, longest, servers, way, seed):
    rng = random.Random(seed)
    frames = frames_of(rng, n, longest)
    made = Matrix(frames, kernel_bytes=FROM[way], block_bytes=1000)  # several blocks
    for _ in range(3):
        width = max(map(len, frames))
        queries = [wanted_of(rng, n, k, width) for k in servers]
        assert made.sums(queries) == [plain(frames, q, k) for q, k in zip(queries, servers, strict=True)]
        changed = {at: rng.randbytes(rng.randint(0, made.width)) for at in rng.sample(range(n), rng.randint(0, n))}
        made.replace(changed)
        frames = [changed.get(at, frame) for at, frame in enumerate(frames)]


@pytest.mark.parametrize("servers", [2, 3, 4, 7])
@pytest.mark.parametrize("way", ["numpy", "compiled"])
def test_an_edition_of_the_past_is_summed_as_it_was(way, servers):
    rng = random.Random(servers)
    old = frames_of(rng, 30, 200)
    made = Matrix(old, kernel_bytes=FROM[way])
    for _ in range(5):
        now = list(old)
        for at in rng.sample(range(30), 7):
            now[at] = rng.randbytes(rng.randint(1, made.width))
        made.replace(dict(enumerate(now)))
        past = {at: frame for at, frame in enumerate(old) if frame != now[at]}
        query = wanted_of(rng, 30, servers, max(map(len, old)), past)
        assert made.sums([query]) == [plain(old, query, servers)]


@pytest.mark.parametrize("way", ["numpy", "compiled"])
@pytest.mark.parametrize("servers", [2, 3, 7])
def test_an_edition_whose_messages_were_longer_is_summed_as_it_was(way, servers):
    rng = random.Random(servers)
    now = frames_of(rng, 20, 40)
    longer = {4: rng.randbytes(700), 9: rng.randbytes(300)}
    then = [longer.get(at, row) for at, row in enumerate(now)]
    query = wanted_of(rng, 20, servers, 700, longer)
    assert Matrix(now, kernel_bytes=FROM[way]).sums([query]) == [plain(then, query, servers)]


def test_a_row_that_does_not_fit_is_refused():
    made = Matrix([b"x" * 10])
    made.replace({0: b"y" * made.width})
    with pytest.raises(ValueError, match="width"):
        made.replace({0: b"y" * (made.width + 1)})


def test_the_compiled_kernel_goes_on_where_a_chunk_of_the_total_ends():
    rng = random.Random(5)
    frames = [rng.randbytes(3 * sums.CHUNK_BYTES + 17) for _ in range(21)]
    made = Matrix(frames)
    queries = [wanted_of(rng, 21, servers, len(frames[0])) for servers in (2, 3, 5)]
    assert made.sums(queries) == [plain(frames, query, query.servers) for query in queries]


def test_until_the_kernel_is_compiled_numpy_does_it(monkeypatch):
    rng = random.Random(6)
    frames = frames_of(rng, 30, 100_000)
    monkeypatch.setattr(sums, "kernel_ready", threading.Event)
    monkeypatch.setattr(sums, "_xor_blocks", None)
    made = Matrix(frames)
    query = wanted_of(rng, 30, 3, max(map(len, frames)))
    assert made.sums([query]) == [plain(frames, query, 3)]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to refuse memory that is executed")
def test_where_no_memory_may_be_executed_numpy_does_it():
    """As under `MemoryDenyWriteExecute` of the unit in `deploy`; in a process of its own, which cannot take it back."""
    program = """
import ctypes
import threading
from onoff.server import sums as matrix
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, refuse gaining
    raise SystemExit("skipped")
made = matrix.Matrix([bytes([at]) * matrix.KERNEL_BYTES for at in range(3)])
query = matrix.Wanted(bytes([1, 0, 1]), 2, matrix.KERNEL_BYTES, {})
for _ in range(2):
    assert made.sums([query]) == [bytes([0 ^ 2]) * matrix.KERNEL_BYTES]
    for thread in threading.enumerate():
        if thread.name == "onoff-kernel":
            thread.join()
assert not matrix.kernel_ready().is_set()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.stderr == "skipped\n":
        pytest.skip("this kernel does not know PR_SET_MDWE")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_memory_of_a_matrix_is_told_before_it_is_made():
    assert sums.matrix_bytes(8, 100) == Matrix([bytes(100)] * 8).nbytes == 8 * 128
