"""ONOFF_* variables stand for the same option in every command that has it, and the command line comes first."""

import inspect
import shlex
from typing import Any

import pytest
from tests.cli.test_help import commands, examples

from onoff.cli import app
from onoff.cli.config import OPTIONS

VALUES = {option: f"value-of-{option}" for option in OPTIONS}


def bound(line: str) -> dict[str, Any]:
    words = shlex.split(line.split(" > ")[0])
    assert words[0] == "onoff"
    command, arguments, _ = app.parse_args(words[1:], exit_on_error=False, print_error=False)
    assert callable(command)
    return dict(arguments.arguments)


def options_of(found: Any) -> list[str]:
    parameters = inspect.signature(found.default_command).parameters
    named = [option for option in OPTIONS if option.replace("-", "_") in parameters]
    return [option for option in named if not isinstance(parameters[option.replace("-", "_")].default, bool)]


EVERY = [(path, found, option) for path, found in commands() for option in options_of(found)]


@pytest.mark.parametrize(("path", "found", "option"), EVERY, ids=[f"{' '.join(p)} {o}" for p, _, o in EVERY])
def test_every_command_takes_every_variable(
    path: tuple[str, ...], found: Any, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = option.replace("-", "_")
    for line in examples(found):
        without = bound(line).get(name)
        monkeypatch.setenv(f"ONOFF_{name.upper()}", VALUES[option])
        given = bound(line)[name]
        if isinstance(given, list) and without is None:  # an option that may be given many times
            (given,) = given
        assert str(given) == (VALUES[option] if without is None else str(without)), line
        monkeypatch.undo()


def test_a_switch_of_the_same_name_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONOFF_MIRROR", "/the/path/of/a.mirror")
    assert bound("onoff demo").get("mirror") is None
    assert bound("onoff demo --no-mirror")["mirror"] is False


def test_the_list_is_not_empty() -> None:
    found = {option for _, _, option in EVERY}
    assert found >= {"server", "chain", "journal", "store", "scheme", "token", "token-file"}


def test_a_chain_that_is_an_argument_comes_from_the_variable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONOFF_CHAIN", "from-the-variable.json")
    assert str(bound("onoff bounds --steps 3")["chain"]) == "from-the-variable.json"
    assert str(bound("onoff bounds given.json")["chain"]) == "given.json"


def test_a_variable_does_not_switch_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONOFF_PRIVATE", "false")
    monkeypatch.setenv("ONOFF_OPEN", "true")
    assert bound("onoff get news --server http://h --chain c").get("private", True)
