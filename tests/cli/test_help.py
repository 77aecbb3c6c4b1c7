"""Help: every command says in the list what it does, and opens with examples that it understands."""

import inspect
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

from onoff.cli import app, run

ONOFF = Path(sysconfig.get_path("scripts")) / "onoff"


def commands(parent=app, path=()):
    for name in parent:
        if name.startswith("-"):
            continue
        found = parent[name]
        inner = [inner for inner in found if not inner.startswith("-")]
        if inner:
            yield from commands(found, (*path, name))
        else:
            yield (*path, name), found


def examples(found):
    fenced = re.search(r"\A[^\n]+\n\n```console\n(.*?)```", inspect.cleandoc(found.help or ""), re.S)
    return [line.strip() for line in fenced.group(1).splitlines() if line.strip()] if fenced else []


def summary(name, found):
    return name, found.help.split()[0]


def listed(shown):
    """Name and first word of its summary, for every command in the list."""
    return re.findall(r"^│ ([a-z]+) +(\S+)", shown, re.M)


def test_the_list_says_what_each_command_does(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for path, found in commands():
        assert found.help
        if len(path) == 1:
            assert summary(path[0], found) in listed(shown), path


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize("group", ["audit", "state"])
def test_the_list_of_a_group_says_what_each_command_does(group):
    # in a process of its own: once a command was loaded, by any test, its summary shows anyway
    shown = subprocess.run([ONOFF, group, "--help"], capture_output=True, text=True, check=True).stdout
    for path, found in commands():
        if path[0] == group:
            assert summary(path[1], found) in listed(shown), path
    assert "docs/threat-model.md" in shown


@pytest.mark.parametrize(
    ("path", "found"), list(commands()), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_help_opens_with_two_examples_that_parse(path, found):
    lines = examples(found)
    assert len(lines) >= 2, f"{' '.join(path)} shows {len(lines)} examples"
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "onoff"
        arguments = words[1 : words.index(">")] if ">" in words else words[1:]
        app.parse_args(arguments, exit_on_error=False, print_error=False)
