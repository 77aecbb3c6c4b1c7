"""`onoff audit exact`: the agreed JSON, and exit codes that a script can rely on."""

import json

import pytest

from onoff.cli import run


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text('{"transition": [[0.8, 0.2], [0.2, 0.8]]}')
    return str(path)


def test_a_private_scheme_exits_0(chain, capsys):
    assert run(["audit", "exact", chain, "--scheme", "single", "--pattern", "ON OFF OFF", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["leak"] == 0
    assert [step["bits"] for step in report["steps"]] == [0, 0, 0]
    assert report["naive"][1] == pytest.approx(0.278, abs=5e-4)


def test_naive_switching_exits_5(chain, capsys):
    assert run(["audit", "exact", chain, "--scheme", "naive", "--pattern", "ON OFF", "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["leak"] == pytest.approx(0.278, abs=5e-4)


def test_the_text_says_where_it_leaks(chain, capsys):
    assert run(["audit", "exact", chain, "--scheme", "naive"]) == 5
    assert "LEAK of" in capsys.readouterr().out
    assert run(["audit", "exact", chain, "--scheme", "single"]) == 0
    assert "exactly 0 bits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--pattern", "ON OF"], 3, "word 2 of the pattern"),
        (["--scheme", "gredy"], 3, "did you mean 'greedy'"),
        (["--memory", "bayes"], 3, "no memory called"),
        (["--patern", "ON"], 2, "patern"),
    ],
)
def test_bad_input_is_named(chain, capsys, arguments, code, complaint):
    assert run(["audit", "exact", chain, *arguments]) == code
    caught = capsys.readouterr()
    assert complaint in caught.err
    assert caught.out == ""


def test_a_missing_file_exits_3(capsys):
    assert run(["audit", "exact", "nowhere.json"]) == 3
    assert "nowhere.json: No such file" in capsys.readouterr().err
