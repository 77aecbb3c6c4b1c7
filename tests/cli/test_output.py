"""What every command shares: numbers to the right, names as they are, one JSON document."""

import io
import json
import os

import pytest
from rich.console import Console

from onoff.cli import design, run
from onoff.cli.output import check_writable, emit, table
from onoff.errors import InvalidInput


def test_names_in_brackets_are_shown_as_they_are():
    out = io.StringIO()
    Console(file=out, width=80).print(table(("source", "cost"), [("[t-1]", 1.5), ("[bold]x", 2)]))
    assert "[t-1]" in out.getvalue()
    assert "[bold]x" in out.getvalue()
    assert "1.5" in out.getvalue()


def test_json_is_one_document_on_stdout(capsys):
    emit({"name": "ü"}, True, lambda console: console.print("never"))
    assert json.loads(capsys.readouterr().out) == {"name": "ü"}
    emit({"name": "ü"}, False, lambda console: console.print("for people"))
    assert capsys.readouterr().out == "for people\n"


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    check_writable(tmp_path / "new")
    (tmp_path / "old").write_text("")
    check_writable(tmp_path / "old")
    with pytest.raises(InvalidInput, match="a directory"):
        check_writable(tmp_path)
    with pytest.raises(InvalidInput, match="no directory"):
        check_writable(tmp_path / "nowhere" / "new")
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root, who may write anywhere
    with pytest.raises(InvalidInput, match="may not be written"):
        check_writable(tmp_path / "new")


def test_any_other_file_error_is_one_line(capsys, monkeypatch, tmp_path):
    (tmp_path / "chain.json").write_text("[[0.8, 0.2], [0.3, 0.7]]")
    monkeypatch.setattr(design, "draw_table", lambda path, *_: path.read_bytes())
    assert run(["design", str(tmp_path / "chain.json"), "--picture", str(tmp_path / "new.png")]) == 1
    assert capsys.readouterr().err == f"onoff: {tmp_path / 'new.png'}: No such file or directory\n"
