"""`onoff plot`: files, their paths, bad input named."""

import json

import numpy as np
import pytest

from onoff.cli import run
from onoff.model.chain import MarkovChain

MATRIX = [[0.8, 0.2], [0.2, 0.8]]


@pytest.mark.slow(reason="programs are started and waited for")
def test_a_simulation_is_drawn(tmp_path, capsys):
    MarkovChain([[0.8, 0.2], [0.2, 0.8]]).save(tmp_path / "c.json")
    assert run(["simulate", str(tmp_path / "c.json"), "--scheme", "greedy", "--users", "50", "--json"]) == 0
    (tmp_path / "run.json").write_text(capsys.readouterr().out)
    assert run(["plot", str(tmp_path / "run.json"), "-o", str(tmp_path / "f"), "--format", "svg", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["figures"]
    assert found == [str(tmp_path / "f" / f"run-{name}.svg") for name in ("cost", "bytes", "sizes")]
    assert run(["plot", str(tmp_path / "run.json")]) == 0
    assert (tmp_path / "run-cost.png").exists()
    assert "run-cost.png" in capsys.readouterr().out


def test_bad_input_is_named(tmp_path, capsys):
    assert run(["plot", str(tmp_path / "nowhere.json")]) == 3
    assert "nowhere.json" in capsys.readouterr().err
    MarkovChain([[0.8, 0.2], [0.2, 0.8]]).save(tmp_path / "c.json")
    (tmp_path / "file").write_text("")
    assert run(["plot", str(tmp_path / "c.json"), "-o", str(tmp_path / "file" / "x")]) == 3
    assert run(["plot", str(tmp_path / "c.json"), "--format", "bmp"]) == 2
    assert run(["plot", str(tmp_path / "c.json"), "--message-bytes", "0"]) == 2


@pytest.mark.parametrize(
    "content", ['{"steps": 1, "baselines": 2}', '{"steps": [], "baselines": {}}', '{"transition": "x"}']
)
def test_half_a_result_is_refused_in_one_line(tmp_path, capsys, content):
    (tmp_path / "half.json").write_text(content)
    assert run(["plot", str(tmp_path / "half.json")]) == 3
    assert "half.json: begins like a result, but is not whole" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["c.csv", "c.npy"])
def test_a_bare_matrix_is_drawn_as_the_chain_that_it_is(tmp_path, capsys, name):
    np.savetxt(tmp_path / "c.csv", MATRIX, delimiter=",")
    np.save(tmp_path / "c.npy", MATRIX)
    assert run(["plot", str(tmp_path / name), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"] == [str(tmp_path / "c-transition.png")]
    (tmp_path / "c.csv").write_text("not,a\nmatrix,at all\n")
    if name == "c.csv":
        assert run(["plot", str(tmp_path / name)]) == 3
        assert "c.csv" in capsys.readouterr().err
