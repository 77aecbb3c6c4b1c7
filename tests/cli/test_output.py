"""What every command shares: numbers to the right, names as they are, one JSON document."""

import io
import json

from rich.console import Console

from onoff.cli.output import emit, table


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
