"""`onoff sweep`: a file, a line about it, and exit codes."""

import json

import pytest

from onoff.cli import run
from onoff.errors import OnOffError
from onoff.lab import sweep as module

SPEC = 'schemes = ["single"]\n[[chain]]\nfamily = "ring"\nn = [3, 4]\n'


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def test_the_result_lies_beside_the_specification(spec, capsys):
    assert run(["sweep", str(spec), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"file": str(spec.with_suffix(".parquet")), "rows": 2, "computed": 2, "failed": 0}
    assert run(["sweep", str(spec)]) == 0
    assert "2 rows in" in capsys.readouterr().out


def test_failed_rows_exit_1(spec, tmp_path, monkeypatch, capsys):
    def broken(*_):
        raise OnOffError("too hard")

    monkeypatch.setattr(module, "_figures", broken)
    assert run(["sweep", str(spec), "-o", str(tmp_path / "r.parquet")]) == 1
    assert "2 with an error" in capsys.readouterr().out


def test_bad_input_is_named(tmp_path, capsys):
    (tmp_path / "s.toml").write_text(SPEC.replace("ring", "rong"))
    assert run(["sweep", str(tmp_path / "s.toml")]) == 3
    assert "no family 'rong'" in capsys.readouterr().err
