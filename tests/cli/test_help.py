"""Help: every command says in the list what it does, and opens with examples that it understands."""

import inspect
import re
import shlex

import pytest

from onoff.cli import app, run


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


def test_the_list_says_what_each_command_does(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for path, found in commands():
        assert found.help
        if len(path) == 1:
            first = found.help.split()[0]
            assert re.search(rf"│ {path[0]} +{re.escape(first)}", shown), path


@pytest.mark.parametrize(
    ("path", "found"), list(commands()), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_help_opens_with_two_examples_that_parse(path, found):
    lines = examples(found)
    assert len(lines) >= 2, f"{' '.join(path)} shows {len(lines)} examples"
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "onoff"
        app.parse_args(words[1:], exit_on_error=False, print_error=False)
