"""The figures of the code: each line is of one kind, each use counts once, and the script prints both sides."""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks import house

ROOT = Path(house.__file__).parents[1]
BEFORE = json.loads((ROOT / "benchmarks" / "house-before.json").read_text())
FILE = '''"""Two lines
of text."""

from a import (
    b,
)

# Why it is so.
LIMIT = 3  # beside code
"""What it limits."""


class Client:
    def __init__(self, a, *, b=1):
        """One line."""
        self.a = """no
docstring"""
'''
TESTS = """
from hypothesis import given, stateful
from onoff.a import _inner
class Machine(stateful.RuleBasedStateMachine): ...
@given(x=1)
def test_one(x, monkeypatch):
    thing._private = thing.__dict__, self._mine
    monkeypatch.setattr(module, "LIMIT", 1)
    monkeypatch.setattr("onoff.module.LIMIT", 1)
    monkeypatch.setattr(module, "function", 1)
def helper(): ...
"""


def test_each_line_is_of_one_kind(tmp_path: Path) -> None:
    for room in ("client", "server"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "same.py").write_text(FILE)
    (tmp_path / "top.py").write_text("def f(): ...\n")
    figures = house.measure_source(tmp_path)
    assert figures["lines of client"] == {"code": 5, "imports": 3, "docstrings": 4, "comments": 1}
    assert figures["lines"] == {"code": 11, "imports": 6, "docstrings": 8, "comments": 2, "all, with blank ones": 35}
    assert figures["files"] == {"files": 3, "median lines": 17, "most lines": 17}
    assert figures["names"] == {
        "parameters of Client": 2,
        "public names in two rooms": 1,
        "file names in two rooms": 1,
    }


def test_tests_and_what_they_reach_into_are_counted() -> None:
    assert Counter(house.noted(ast.parse(TESTS))) == {
        "tests": 1,
        "properties": 2,
        "private attributes used": 2,
        "constants patched": 2,
    }


def test_the_script_prints_before_and_now() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "house.py"), "--no-walks"]
    now = json.loads(subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    assert now == house.measure(ROOT, walks=False)
    assert now["tests"]["tests"] > 1000
    assert now["names"]["parameters of Client"] > 0
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert shown == house.show(BEFORE, now) + "\n"
    words = [line.split() for line in shown.splitlines()]
    assert ["files:", "files", str(BEFORE["files"]["files"]), str(now["files"]["files"])] in words
