"""`onoff bounds`: the agreed JSON, and bad input named."""

import json

import pytest

from onoff.cli import run

PAPER = '{"transition": [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]}'


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(PAPER)
    return str(path)


def test_the_json_has_a_line_for_each_step(chain, capsys):
    assert run(["bounds", chain, "--steps", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["n"] == 3
    assert [step["t"] for step in report["steps"]] == [1, 2, 3]
    assert report["steps"][0] == {"t": 1, "inner": 1.6, "outer": 1.6, "lower": 1.6}
    assert report["steps"][1]["lower"] == pytest.approx(1.15, abs=1e-12)


def test_lower_passes_outer_where_the_papers_bound_is_loose(tmp_path, capsys):
    path = tmp_path / "never-stays.csv"
    path.write_text("0,0.5,0.5\n0.5,0,0.5\n0.5,0.5,0\n")
    assert run(["bounds", str(path), "--steps", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == [{"t": 1, "inner": 2.0, "outer": 1.5, "lower": 2.0}]


def test_the_text_names_the_sides(chain, capsys):
    assert run(["bounds", chain]) == 0
    out = capsys.readouterr().out
    assert "at least" in out
    assert "at most" in out
    assert "1.034" in out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nowhere.json"], 3, "nowhere.json"),
        (["CHAIN", "--steps", "0"], 2, "steps"),
        (["CHAIN", "--steps", "many"], 2, "many"),
        ([], 2, "CHAIN"),
    ],
)
def test_bad_input_is_named(chain, capsys, arguments, code, complaint):
    assert run(["bounds", *(chain if word == "CHAIN" else word for word in arguments)]) == code
    caught = capsys.readouterr()
    assert complaint in caught.err
    assert caught.out == ""
