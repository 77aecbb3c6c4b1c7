"""The table of steps equals a dictionary of bounded size that forgets the session seen longest ago."""

import os
import subprocess
import sys
import threading
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.typed import present
from tests.support.waiting import PATIENCE, until

from onoff.errors import StoreUnavailable
from onoff.server.store import LastStep, StepTable


@pytest.fixture
def table(tmp_path):
    table = StepTable(tmp_path / "steps", buckets=1)
    yield table
    table.close()


SESSIONS = [bytes(16), *(bytes([letter]) * 16 for letter in b"abcdefghij")]
DIGESTS = [b"a" * 32, b"bc" * 16, bytes(32)]  # which spell ids of sessions


@given(
    asked=st.lists(
        st.tuples(st.booleans(), st.sampled_from(SESSIONS), st.integers(0, 3), st.sampled_from(DIGESTS)), max_size=60
    )
)
@settings(max_examples=200)
def test_any_sequence_of_steps_over_two_processes_equals_a_dictionary(tmp_path_factory, asked):
    """Of eight sessions, the room of a bucket: a new one takes the place of the one that was seen longest ago."""
    clock, path = count(1), tmp_path_factory.mktemp("steps") / "steps"
    known: dict[bytes, LastStep] = {}  # the one that was seen longest ago is first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onoff.server.store.time.time_ns", lambda: next(clock) * 1_000_000)
        tables = [StepTable(path, buckets=1), StepTable(path, buckets=1)]
        for second, session, step, digest in asked:
            last, sent = known.get(session), LastStep(step, digest)
            good = last is None or step > last.step or sent == last
            assert tables[second].admit(session, step, digest) == (None if good else last)
            if good:
                known.pop(session, None)
                known[session] = sent
                if len(known) > 8:
                    del known[next(iter(known))]
            assert {session: tables[not second].last(session) for session in SESSIONS} == {
                session: known.get(session) for session in SESSIONS
            }
        for table in tables:
            table.close()


def test_the_file_never_grows(table, tmp_path):
    size = (tmp_path / "steps").stat().st_size
    for _ in range(1000):
        assert table.admit(os.urandom(16), 0, bytes(32)) is None
    assert (tmp_path / "steps").stat().st_size == size


def test_it_outlives_the_process_and_the_generation_is_shared(tmp_path):
    first, second = StepTable(tmp_path / "s"), StepTable(tmp_path / "s")
    first.admit(b"a" * 16, 5, b"x" * 32)
    assert second.admit(b"a" * 16, 4, b"x" * 32) == LastStep(5, b"x" * 32)
    before = second.generation
    first.change_generation()
    assert second.generation != before
    first.close()
    second.close()
    third = StepTable(tmp_path / "s")
    assert third.admit(b"a" * 16, 5, b"y" * 32) == LastStep(5, b"x" * 32)
    third.close()


def test_a_bucket_that_another_process_holds_is_waited_for(table, tmp_path):
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "steps")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert present(other.stdout).readline() == b"held\n"
    verdicts = []
    waiting = threading.Thread(target=lambda: verdicts.append(table.admit(b"a" * 16, 1, b"d" * 32)))
    waiting.start()
    waiting.join(0.3)
    assert verdicts == []
    other.communicate(b"")
    waiting.join()
    assert verdicts == [None]


class Turns:
    """An event loop that ends its iteration when told."""

    def __init__(self, path):
        self.at_end: list[Any] = []
        self.table = StepTable(path, at_end_of_iteration=self.at_end.append)

    def admit(self, session, step, digest):
        return self.table.admit(session * 16, step, digest * 32)

    def end(self):
        for callback in self.at_end:
            callback()
        self.at_end.clear()


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.server.store.SHARE_SECONDS", PATIENCE)
    pair = Turns(tmp_path / "steps"), Turns(tmp_path / "steps")
    yield pair
    for turns in pair:
        turns.table.close()


def admit_elsewhere(turns, *what):
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(turns.admit(*what)))
    thread.start()
    return thread, verdicts


def test_a_lone_table_takes_one_lock_an_iteration(pair, monkeypatch):
    """And no lock of a bucket: any such call fails here."""
    monkeypatch.setattr("fcntl.lockf", lambda *_: pytest.fail("locked a bucket"))
    first, _ = pair
    for turn in range(3):
        for step in range(5):
            assert first.admit(b"a", 10 * turn + step, b"x") is None
        assert first.admit(b"a", 0, b"x") == first.table.last(b"a" * 16) == LastStep(10 * turn + 4, b"x" * 32)
        assert len(first.at_end) == 1
        first.end()


def test_another_waits_for_the_end_of_the_turn_and_then_both_share(pair):
    first, second = pair
    assert first.admit(b"a", 5, b"x") is None
    waiting, verdicts = admit_elsewhere(second, b"a", 5, b"y")
    waiting.join(0.1)
    assert verdicts == []
    assert first.admit(b"a", 6, b"x") is None  # still alone
    first.end()
    waiting.join()
    assert verdicts == [LastStep(6, b"x" * 32)]
    assert second.admit(b"a", 7, b"y") is None
    assert first.admit(b"a", 7, b"x") == LastStep(7, b"y" * 32)
    assert first.at_end == second.at_end == []  # no turns any more: buckets are locked


def test_whoever_is_busy_sees_the_request_to_share(pair):
    """One iteration after the other without a gap: the other gets in before the next one all the same."""
    first, second = pair
    first.admit(b"a", 0, b"x")
    waiting, verdicts = admit_elsewhere(second, b"a", 0, b"y")
    until(lambda: first.table._map[8])  # the request to share
    first.end()
    first.admit(b"a", 1, b"x")
    assert first.at_end == []  # it shares now
    waiting.join()
    assert verdicts in ([LastStep(0, b"x" * 32)], [LastStep(1, b"x" * 32)])
    assert not first.table._map[8]


def test_a_turn_that_never_ends_is_not_waited_for_without_end(pair, monkeypatch):
    monkeypatch.setattr("onoff.server.store.SHARE_SECONDS", 0.05)
    first, second = pair
    first.admit(b"a", 0, b"x")
    with pytest.raises(StoreUnavailable, match="does not go on"):
        second.admit(b"a", 0, b"y")
    first.end()
    assert second.admit(b"a", 0, b"y") == LastStep(0, b"x" * 32)


def test_closing_within_a_turn_ends_it(tmp_path):
    first, second = Turns(tmp_path / "steps"), Turns(tmp_path / "steps")
    first.admit(b"a", 0, b"x")
    first.table.close()
    first.end()
    assert second.admit(b"a", 0, b"y") == LastStep(0, b"x" * 32)
    second.table.close()
