"""`onoff design`: the agreed JSON for every scheme, the table on demand, pictures, and bad input named."""

import json

import numpy as np
import pytest

from onoff.cli import run
from onoff.experiments import families
from onoff.model.rows import UNIT

PAPER = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
KEYS = {"scheme", "n", "cost", "lower_bound", "inner", "outer", "optimal", "queries", "seconds"}


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(json.dumps({"transition": PAPER}))
    return str(path)


def report_of(capsys):
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("scheme", ["full", "single", "greedy", "enumerated", "optimal", "auto"])
def test_the_json_of_every_scheme_with_a_table(chain, capsys, scheme):
    assert run(["design", chain, "--scheme", scheme, "--json"]) == 0
    report = report_of(capsys)
    assert set(report) == KEYS
    assert (report["n"], report["lower_bound"], report["outer"], report["inner"]) == (3, 1.6, 1.6, 1.6)
    assert report["cost"] >= 1.6
    assert report["scheme"] == scheme
    assert report["optimal"] == (scheme not in ("full", "single"))


def test_the_table_is_the_one_that_was_counted(chain, capsys):
    assert run(["design", chain, "--table", "--json"]) == 0
    report = report_of(capsys)
    assert set(report) == KEYS | {"table"}
    table = report["table"]
    assert (table["unit"], len(table["queries"]), sum(table["mass"])) == (UNIT, report["queries"], UNIT)


def test_the_race_has_no_table_and_an_error_bar(chain, capsys):
    assert run(["design", chain, "--scheme", "race", "--table", "--json"]) == 0
    report = report_of(capsys)
    assert set(report) == KEYS | {"stderr"}
    assert report["queries"] is None
    assert report["cost"] == pytest.approx(1.7, abs=0.2)


def test_the_text_says_what_is_proved(chain, capsys):
    assert run(["design", chain]) == 0
    out = capsys.readouterr().out
    assert "proved" in out
    assert "source-1" in out
    assert run(["design", chain, "--scheme", "full", "--table"]) == 0
    assert "above the least possible" in capsys.readouterr().out


def test_long_searches_talk_on_stderr_and_stop_at_their_budget(tmp_path, capsys):
    path = tmp_path / "grid.npy"
    np.save(path, families.grid(6, 6))
    assert run(["design", str(path), "--budget", "0.1", "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["cost"] >= report["lower_bound"]
    assert "lower bound" in captured.err


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("scheme", ["optimal", "race"])
def test_a_picture_is_written(chain, tmp_path, capsys, suffix, scheme):
    path = tmp_path / f"table{suffix}"
    assert run(["design", chain, "--scheme", scheme, "--picture", str(path), "--json"]) == 0
    assert report_of(capsys)["n"] == 3
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if suffix == ".png" else b"<?xml" in head


def test_bad_input_is_named(chain, tmp_path, capsys):
    assert run(["design", chain, "--scheme", "optimum"]) == 3
    assert "did you mean 'optimal'" in capsys.readouterr().err
    assert run(["design", chain, "--scheme", "full", "--budget", "3"]) == 3
    assert "no option 'budget'" in capsys.readouterr().err
    assert run(["design", chain, "--picture", str(tmp_path / "table.doc")]) == 3
    assert ".doc" in capsys.readouterr().err
    assert run(["design", chain, "--budget", "-1"]) == 2


@pytest.mark.parametrize("scheme", ["race", "optimal"])
def test_a_seed_below_zero_is_refused(chain, capsys, scheme):
    assert run(["design", chain, "--scheme", scheme, "--seed", "-1"]) == 2
    assert "--seed" in capsys.readouterr().err
