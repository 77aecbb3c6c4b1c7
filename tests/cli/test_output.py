"""What every command shares: numbers to the right, names as they are, one JSON document."""

import contextlib
import io
import json
import os
import re
import sys
import threading
import warnings

import pytest
from rich.console import Console
from tests.support.waiting import PATIENCE

from onoff import cli
from onoff.cli import design, run
from onoff.cli.output import check_writable, emit, progress, table
from onoff.errors import InvalidInput


def test_names_in_brackets_are_shown_as_they_are():
    out = io.StringIO()
    Console(file=out, width=80).print(table(("source", "cost"), [("[t-1]", 1.5), ("[bold]x", 2)]))
    assert "[t-1]" in out.getvalue()
    assert "[bold]x" in out.getvalue()
    assert "1.5" in out.getvalue()


def test_a_flag_that_blas_raises_for_finite_numbers_is_not_shown(monkeypatch):
    def flagged(arguments):
        warnings.warn("invalid value encountered in matmul", RuntimeWarning, stacklevel=1)
        warnings.warn("overflow encountered in matmul", RuntimeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(cli, "run", flagged)
    monkeypatch.setattr(cli, "end_promptly", lambda code, say: None)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(SystemExit):
            cli.main([])
    assert [str(warning.message) for warning in seen] == ["overflow encountered in matmul"]


def test_json_is_one_document_on_stdout(capsys):
    emit({"name": "ü"}, True, lambda console: console.print("never"))
    assert json.loads(capsys.readouterr().out) == {"name": "ü"}
    with contextlib.redirect_stdout(io.StringIO()) as text:  # which has no encoding
        emit({"name": "ü"}, True, lambda console: console.print("never"))
    assert text.getvalue() == '{"name": "ü"}\n'
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


class Heard(io.StringIO):
    """A stderr that tells when so many lines have been written."""

    def __init__(self, lines):
        super().__init__()
        self.lines, self.enough = lines, threading.Event()

    def write(self, text):
        written = super().write(text)
        if self.getvalue().count("\n") >= self.lines:
            self.enough.set()
        return written


def test_work_that_takes_long_says_what_it_does_and_how_far_it_is(monkeypatch):
    heard = Heard(1)
    monkeypatch.setattr(sys, "stderr", heard)
    with progress("reading", late=0.01) as work:
        work.now("users", total=2000)
        work(7)
        assert heard.enough.wait(PATIENCE)
    lines = heard.getvalue().splitlines()
    assert re.fullmatch(r"onoff: (reading|users: [07] of 2000) \(\d+ s\) \.\.\.", lines[0])


def test_things_are_counted_as_they_are_taken_where_nobody_knows_how_many_come():
    with progress("queries", late=3600) as work:
        assert str(work).startswith("queries (")
        taken = work.counting("abc")
        assert [next(taken), next(taken), next(taken)] == ["a", "b", "c"]
        assert str(work).startswith("queries: 2 (")  # two are done, and the third is being looked at


def test_work_that_goes_on_says_so_again(monkeypatch):
    heard = Heard(3)
    monkeypatch.setattr(sys, "stderr", heard)
    with progress("bounds", late=0.001):
        assert heard.enough.wait(PATIENCE)


def test_work_that_is_soon_done_says_nothing(capsys):
    with progress("reading", 10, late=3600) as work:
        work(10)
    assert capsys.readouterr() == ("", "")


def test_at_a_terminal_a_bar_shows_what_is_under_way_and_goes_away(monkeypatch):
    class Terminal(Heard):
        def isatty(self):
            return True

        def write(self, text):
            written = io.StringIO.write(self, text)
            if "7/2000" in self.getvalue():
                self.enough.set()
            return written

    screen = Terminal(0)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("users", 2000, late=0) as work:
        work(7)
        assert screen.enough.wait(PATIENCE)
    assert "users" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")  # the line is cleared


def test_an_interrupt_is_one_line(capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    cli._say_interrupted.cache_clear()
    monkeypatch.setattr("onoff.cli.design.MarkovChain.load", interrupt)
    assert run(["bounds", "chain.json"]) == 130
    assert capsys.readouterr().err == "onoff: interrupted\n"


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["learn", "{}/none.csv"], "InvalidInput", 3),
        (["bounds", "{}/none.json"], "InvalidChain", 3),
        (["bounds", "--nonsense"], "UsageError", 2),
        (["catalogue", "--server", "http://127.0.0.1:1"], "ServerUnreachable", 4),
    ],
)
def test_under_json_an_error_is_json(capsys, tmp_path, words, kind, code):
    filled = [word.replace("{}", str(tmp_path)) for word in words]
    assert run([*filled, "--json"]) == code
    out, err = capsys.readouterr()
    told = json.loads(out)["error"]
    assert (told["type"], told["exit_code"]) == (kind, code)
    assert told["message"] in err or code == 2
    assert run(filled) == code
    assert capsys.readouterr().out == ""
