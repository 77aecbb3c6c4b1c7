"""Traces: every format gives the same requests, and what is broken is counted, shown and left out."""

import gzip
import time
import tracemalloc
import zipfile
from typing import Any

import pytest

from onoff.errors import InvalidInput
from onoff.model import traces
from onoff.model.traces import Options, Run, Trace, size_of

HEAD = "% Different categories found in input file:\n\nfront news tech\n\n\n% Sequences:\n\n"


def read(path, content, **options):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    trace = Trace(path, Options(**options))
    return trace, list(trace.runs())


def named(trace, runs):
    return [[trace.names[x] for x in run.sources[run.known :]] for run in runs]


def pairs(trace, runs):
    """The transitions that a reader of the runs would count."""
    found = []
    for run in runs:
        for i in range(max(run.known, 1), len(run.sources)):
            found.append((trace.names[run.sources[i - 1]], trace.names[run.sources[i]]))
    return found


def test_text_has_one_user_a_line(tmp_path):
    trace, runs = read(tmp_path / "t.txt", "front news  front\n\nnews\n")
    assert named(trace, runs) == [["front", "news", "front"], ["news"]]
    assert (trace.users, trace.requests, trace.broken) == (2, 4, 0)
    assert runs[0] == Run(1, [0, 1, 0])


def test_msnbc_counts_from_one_and_names_its_categories(tmp_path):
    trace, runs = read(tmp_path / "t.seq", HEAD + "1 1 \n2 \n3 2 9 \n3 2\n")
    assert trace.names == ["front", "news", "tech"]
    assert named(trace, runs) == [["front", "front"], ["news"], ["tech", "news"]]
    assert trace.broken == 1
    assert trace.first_broken == "10: '9' is not a category"


def test_packed_files_are_read_through(tmp_path):
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("t.seq", HEAD + "1 2\n")
        packed.writestr("__MACOSX/._t.seq", b"\0\1")
    trace = Trace(path)
    assert named(trace, list(trace.runs())) == [["front", "news"]]
    assert size_of(path) == len(HEAD + "1 2\n")
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(b"a b\n"))
    trace = Trace(tmp_path / "t.txt.gz")
    assert named(trace, list(trace.runs())) == [["a", "b"]]
    assert size_of(trace.path) is None


def test_csv_puts_interleaved_users_together(tmp_path):
    trace, runs = read(tmp_path / "t.csv", "source,user\na,1\nx,2\nb,1\ny,2\nc,1\nd,1\n")
    assert sorted(pairs(trace, runs)) == [("a", "b"), ("b", "c"), ("c", "d"), ("x", "y")]
    assert [run.known for run in runs] == [0, 0, 1, 1, 2, 3]  # what came before, up to the longest context
    assert [run.fresh for run in runs] == [True, True, False, False, False, False]
    assert trace.users == 2


def test_other_column_names(tmp_path):
    content = "when,who,what\n1,u,a\n2,u,b\n"
    columns = {"user": "who", "source": "what", "time": "when"}
    trace, runs = read(tmp_path / "t.csv", content, columns=columns)
    assert pairs(trace, runs) == [("a", "b")]
    with pytest.raises(InvalidInput, match="no column 'user'"):
        read(tmp_path / "t.csv", content)


def test_json_lines_hold_requests_or_whole_users(tmp_path):
    content = '{"user": 1, "source": "a"}\n{"user": 1, "source": "b"}\n{"sources": ["c", "d"]}\n["e"]\n[]\n'
    trace, runs = read(tmp_path / "t.jsonl", content)
    assert named(trace, runs) == [["a"], ["b"], ["c", "d"], ["e"]]
    assert pairs(trace, runs) == [("a", "b"), ("c", "d")]
    assert trace.users == 3


def test_a_gap_in_time_starts_afresh(tmp_path):
    content = "user,source,time\nu,a,0\nu,b,1800\nu,c,3601\nu,d,3700\n"
    trace, runs = read(tmp_path / "t.csv", content, gap=1800)
    assert pairs(trace, runs) == [("a", "b"), ("c", "d")]
    assert [run.fresh for run in runs] == [True, False, True, False]
    dates = "user,source,time\nu,a,2024-01-01T10:00:00+00:00\nu,b,2024-01-01T10:40:00+00:00\n"
    trace, runs = read(tmp_path / "t.csv", dates, gap=1800)
    assert pairs(trace, runs) == []


def test_times_that_go_back_are_broken(tmp_path):
    trace, runs = read(tmp_path / "t.csv", "user,source,time\nu,a,5\nu,b,4\nu,c,6\n")
    assert pairs(trace, runs) == [("a", "c")]
    assert trace.first_broken == "3: a time before that of the user's last request"
    trace, _ = read(tmp_path / "t.csv", "user,source,time\nu,a,5\nu,b,\n", gap=10)
    assert trace.first_broken == "3: no time, which a session gap needs"


def test_a_private_request_need_not_say_what_or_when(tmp_path):
    lines = [
        '{"user": "u", "private": true}',
        '{"user": "u", "source": "a", "time": 1, "private": false}',
        '{"user": "u", "private": true}',
        '{"user": "u", "source": "b", "time": 2, "private": false}',
        '{"user": "u", "source": "a", "time": 3, "private": false}',
    ]
    trace, runs = read(tmp_path / "t.jsonl", "\n".join(lines), gap=100)
    assert [(run.sources, run.known, run.fresh) for run in runs] == [
        ([0], 0, True),
        ([1], 0, False),
        ([1, 0], 1, False),
    ]
    assert (trace.private, trace.requests, trace.broken, trace.marked) == (2, 3, 0, True)
    trace, _ = read(tmp_path / "t.jsonl", "\n".join(lines), include_private=True)
    assert trace.broken == 2


def test_private_requests_are_left_out_with_both_their_transitions(tmp_path):
    content = "user,source,private\nu,a,off\nu,b,OFF\nu,secret,ON\nu,c,0\nu,d,0\n"
    trace, runs = read(tmp_path / "t.csv", content)
    assert pairs(trace, runs) == [("a", "b"), ("c", "d")]
    assert [run.fresh for run in runs] == [True, False, False, False]
    assert (trace.private, trace.requests, trace.marked) == (1, 4, True)
    trace, runs = read(tmp_path / "t.csv", content, include_private=True)
    assert ("b", "secret") in pairs(trace, runs)
    assert trace.private == 0


@pytest.mark.parametrize(
    ("name", "content", "broken", "first"),
    [
        ("t.txt", b"a b\n\xff\xfe\nb a\n", 1, "2: not UTF-8, or too long"),
        ("t.jsonl", '{"user": 1}\n[1, 2]\n3\n{bad\n', 3, "1: a user or source without a name"),
        ("t.jsonl", '["a"]\n["a", null]\n["b", ""]\n', 2, "2: a user or source without a name"),
        ("t.csv", 'user,source\nu,a\nu\nu,"b\nu,b\n', 2, "3: 1 columns"),
        ("t.csv", "user,source,private\nu,a,perhaps\nu,b,on\nu,c,\n", 1, "2: 'perhaps' is not ON or OFF"),
        ("t.csv", "user,source,time\nu,a,soon\nu,b,1\n", 1, "2: 'soon' is not a time"),
        ("t.txt", "a b\na\x01 b\n", 1, "2: a source's name holds a control character"),
        ("t.txt", "a b\nb c\u200d\n", 1, "2: a source's name holds a control character"),
        ("t.txt", f"a b\nb {'c' * 257}\n", 1, "2: a source's name is longer than 256 bytes"),
        ("t.csv", "user,source,time\n1,a,nan\n1,b,2\n1,a,inf\n", 2, "2: 'nan' is not a time"),
        (
            "t.jsonl",
            '{"user": 1, "source": "a"}\n{"user": 1, "source": "a", "time": 1%s}\n' % ("0" * 400),
            1,
            f"2: 1{'0' * 39} is not a time",
        ),
    ],
)
def test_broken_lines_are_counted_and_the_first_is_shown(tmp_path, name, content, broken, first):
    trace, runs = read(tmp_path / name, content)
    assert runs
    assert trace.broken == broken
    assert trace.first_broken == first


def test_a_line_that_never_ends_is_broken_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "LONGEST_LINE", 100)
    trace, runs = read(tmp_path / "t.txt", "a b\n" + "a " * 500 + "\nb a\n")
    assert named(trace, runs) == [["a", "b"], ["b", "a"]]
    assert trace.broken == 1


def test_only_given_sources_count(tmp_path):
    trace, runs = read(tmp_path / "t.txt", "a b\na z\nb a\n", sources=["b", "a", "never"])
    assert trace.names == ["b", "a", "never"]
    assert pairs(trace, runs) == [("a", "b"), ("b", "a")]
    assert trace.first_broken == "2: a source that is not among those given"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("t.txt", "", "no requests"),
        ("t.txt", "\n \n", "no requests"),
        ("t.jsonl", "nonsense\n", "no requests"),
        ("t.csv", "user,source\n", "no requests"),
        ("t.seq", "1 2 3\n", "no list of categories"),
        ("t.seq", HEAD, "no requests"),
        ("t.zip", b"PK nonsense", "damaged"),
        ("t.txt.gz", b"nonsense", "damaged"),
        ("t.txt.gz", gzip.compress(b"a b\n" * 1000, mtime=0)[:-20], "damaged"),
    ],
)
def test_files_without_requests_say_so(tmp_path, name, content, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        read(tmp_path / name, content)


def test_files_that_cannot_be_read_say_so(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        list(Trace(tmp_path / "nowhere.txt").runs())
    (tmp_path / "t.parquet").touch()
    with pytest.raises(InvalidInput, match="cannot tell the format"):
        Trace(tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match="no trace format 'cvs'"):
        Options(format="cvs")
    with pytest.raises(InvalidInput, match="session gap"):
        Options(gap=0)
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as packed:
        packed.writestr("a", "x")
        packed.writestr("b", "y")
    with pytest.raises(InvalidInput, match="2 files"):
        list(Trace(tmp_path / "two.zip").runs())


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Twenty times the lines, the same peak: runs are made one at a time."""

    def peak(lines):
        path = tmp_path / "t.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("t.seq", HEAD + "1 2 3 1 2 3\n" * lines)
        trace = Trace(path)
        tracemalloc.start()
        count = sum(1 for _ in trace.runs())
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == lines
        return highest

    peak(1_000)  # what is loaded and kept for good at the first reading counts for neither
    assert peak(20_000) < 1.5 * peak(1_000)


def test_progress_is_told(tmp_path):
    told: list[Any] = []
    (tmp_path / "t.txt").write_bytes(b"a b\n" * 25_000)
    list(Trace(tmp_path / "t.txt").runs(told.append))
    assert told == [40_000, 80_000]


def test_two_spellings_of_one_name_are_one_source(tmp_path):
    """The second é is an e with an accent of its own, as some systems write it."""
    trace, runs = read(tmp_path / "t.txt", "caf\u00e9 b cafe\u0301\n")
    assert trace.names == ["caf\u00e9", "b"]
    assert runs[0].sources == [0, 1, 0]
    given, runs = read(tmp_path / "t.txt", "caf\u00e9 cafe\u0301\n", sources=["cafe\u0301", "b"])
    assert given.names == ["caf\u00e9", "b"]
    assert runs[0].sources == [0, 0]


def test_a_list_of_sources_with_a_name_that_cannot_be_one_is_refused_at_once(tmp_path):
    with pytest.raises(InvalidInput, match=r"the source 'a\\x01' holds a control"):
        read(tmp_path / "t.txt", "a b\n", sources=["a\x01", "b"])


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_times_mean_the_same_in_every_zone(tmp_path, monkeypatch, zone):
    """Eighty minutes apart as written, twenty by a clock in Berlin, which is put forward by an hour in between."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        content = "user,source,time\n1,a,2026-03-29T01:50:00\n1,b,2026-03-29T03:10:00\n"
        _, runs = read(tmp_path / "t.csv", content, gap=3600.0)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [run.known for run in runs] == [0, 0]


def test_visits_are_whole_whatever_the_format(tmp_path):
    (tmp_path / "a.txt").write_text("x y x\ny\nx x x y\n")
    trace = Trace(tmp_path / "a.txt")
    assert list(trace.visits(3)) == [(1, [0, 1, 0]), (3, [0, 0, 0, 1])]
    lines = ["user,source,time", "a,x,0", "b,y,1", "a,y,2", "a,x,3", "b,x,4", "a,y,500", "a,y,501", "a,x,502"]
    (tmp_path / "b.csv").write_text("\n".join(lines))
    trace = Trace(tmp_path / "b.csv", Options(gap=60))
    assert sorted(trace.visits(2)) == [(1, [0, 1, 0]), (1, [1, 1, 0]), (2, [1, 0])]
    assert sorted(Trace(tmp_path / "b.csv", Options(gap=60)).visits(3)) == [(1, [0, 1, 0]), (1, [1, 1, 0])]
