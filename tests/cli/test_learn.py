"""`onoff learn`: the chain and its counts as JSON, warnings on stderr, bad input named."""

import json

import pytest

from onoff.cli import run
from onoff.errors import InvalidChain
from onoff.experiments.learn import learn
from onoff.experiments.traces import Trace
from onoff.model.chain import MarkovChain


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("user,source,private\nu,a,off\nu,b,off\nu,a,on\nu,b,off\nu,a,off\n")
    return path


def test_the_json_is_a_chain_file_with_counts(trace, tmp_path, capsys):
    assert run(["learn", str(trace), "-o", str(tmp_path / "chain.json"), "--json"]) == 0
    caught = capsys.readouterr()
    found = json.loads(caught.out)
    assert found["names"] == ["a", "b"]
    assert found["counts"] == [[0, 1], [1, 0]]
    assert found["about"]["trace"]["private_left_out"] == 1
    assert caught.err == ""
    assert found == json.loads((tmp_path / "chain.json").read_text())
    assert MarkovChain.load(tmp_path / "chain.json").n == 2


def test_private_requests_are_warned_about(trace, tmp_path, capsys):
    assert run(["learn", str(trace), "--include-private"]) == 0
    assert "learnt from as asked" in capsys.readouterr().err
    (tmp_path / "t.txt").write_text("a b\nb\xff")
    assert run(["learn", str(tmp_path / "t.txt")]) == 0
    assert "does not say which requests were private" in capsys.readouterr().err


def test_the_text_is_for_people(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a b a b b\n" * 30 + "\x02\n")
    assert run(["learn", str(tmp_path / "t.txt"), "-o", str(tmp_path / "c.json")]) == 0
    caught = capsys.readouterr()
    assert "30 users, 150 requests, 2 sources, 120 transitions" in caught.out
    assert "held out" in caught.out
    assert "Written to" in caught.out
    assert "1 lines could not be read; line 31" in caught.err


def test_sources_come_from_a_file(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a a a\n")
    (tmp_path / "names").write_text("a\nb\n\n")
    assert run(["learn", str(tmp_path / "t.txt"), "--sources", str(tmp_path / "names"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["a", "b"]
    assert run(["learn", str(tmp_path / "t.txt"), "--sources", str(tmp_path / "nowhere")]) == 3


@pytest.mark.parametrize(
    ("name", "content", "arguments", "complaint"),
    [
        ("t.txt", "", [], "no requests"),
        ("t.txt", "a a\n", [], "only one source"),
        ("t.dat", "a b\n", [], "cannot tell the format"),
        ("t.dat", "a b\n", ["--format", "xml"], "no trace format 'xml'"),
        ("t.csv", "who,what\n1,a\n", [], "no column 'user'"),
        ("t.txt", "a b\n", ["--smoothing", "-1"], "smoothing -1"),
        ("t.zip", "nonsense", [], "damaged"),
    ],
)
def test_bad_input_is_named(tmp_path, capsys, name, content, arguments, complaint):
    (tmp_path / name).write_text(content)
    assert run(["learn", str(tmp_path / name), *arguments]) == 3
    caught = capsys.readouterr()
    assert complaint in caught.err
    assert caught.out == ""


def test_a_name_under_which_the_chain_could_not_be_read_again_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a b a\n")
    for name in ("c.csv", "c.NPZ", "c.npy"):
        assert run(["learn", str(tmp_path / "t.txt"), "-o", str(tmp_path / name)]) == 3
        assert "the name says another format" in capsys.readouterr().err
    with pytest.raises(InvalidChain, match="another format"):
        learn(Trace(tmp_path / "t.txt")).save(tmp_path / "c.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]
