"""onoff.toml: flags are above variables, variables above the file; what it may not hold is refused."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from onoff.cli import app, run

FILE = """
server = ["https://one.example", "https://other.example"]
chain = "rides.json"
token_file = "~/token"

[gateway]
port = 8490
everything = true
scheme = "greedy"

[mirror.refresh]
server = "https://third.example"

[publish]
server = "https://one.example"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "onoff.toml"
    path.write_text(FILE)
    monkeypatch.setenv("ONOFF_CONFIG", str(path))
    return path


def bound(line: str) -> dict[str, Any]:
    return dict(app.parse_args(shlex.split(line), exit_on_error=False, print_error=False)[1].arguments)


def test_flags_are_above_variables_and_those_above_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = bound("gateway")
    assert got["server"] == ["https://one.example", "https://other.example"]
    assert (got["port"], got["everything"], got["scheme"]) == (8490, True, "greedy")
    assert got["chain"] == file.parent / "rides.json"
    assert bound("publish a b")["token_file"] == Path.home() / "token"
    assert bound("publish a b")["server"] == "https://one.example"
    assert bound("mirror refresh")["server"] == ["https://third.example"]
    assert bound("mirror show")["server"] == ["https://one.example", "https://other.example"]
    assert bound("demo").get("mirror") is None
    monkeypatch.setenv("ONOFF_CHAIN", "of-the-variable.json")
    assert bound("gateway")["chain"] == Path("of-the-variable.json")
    assert bound("gateway --chain given.json --port 1")["chain"] == Path("given.json")
    assert bound("gateway --port 1")["port"] == 1


def test_config_shows_what_holds_and_where_from(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONOFF_SERVER", "https://of-the-variable.example")
    monkeypatch.setenv("ONOFF_TOKEN", "a-secret")
    assert run(["config", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == [{"path": str(file), "found": True}]
    found = {(one["command"], one["option"]): (one["value"], one["from"]) for one in told["settings"]}
    assert found[None, "server"] == ("https://of-the-variable.example", "ONOFF_SERVER")
    assert found[None, "chain"] == (str(file.parent / "rides.json"), str(file))
    assert found["gateway", "port"] == (8490, str(file))
    assert ("mirror refresh", "server") not in found
    assert bound("mirror refresh")["server"] == ["https://of-the-variable.example"]
    assert "a-secret" not in str(told)
    assert run(["config"]) == 0
    assert "ONOFF_SERVER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("srever = 1", "unknown key srever"),
        ("[gatway]\nport = 1", "unknown key gatway"),
        ("token = 'secret'", "token is not read from a file"),
        ("[get]\nopen = true", "open is not read from a file"),
        ("[get]\naccept_leak = true", "accept-leak is not read from a file"),
        ("server = ", "cannot read"),
        ("\x00", "cannot read"),
    ],
)
@pytest.mark.parametrize("command", ["config", "bounds chain.json"])
def test_what_a_file_may_not_hold_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, said: str, command: str
) -> None:
    file.write_text(text)
    assert run(shlex.split(command)) == 3
    assert said in capsys.readouterr().err


def test_several_values_for_an_option_that_takes_one_are_refused(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('server = ["https://one.example", "https://other.example"]')
    assert run(["publish", "a", "b", "--token", "t"]) == 3
    assert "this command takes one server" in capsys.readouterr().err


def test_an_option_that_a_command_does_not_have_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[bounds]\nprot = 1")
    assert run(["bounds", "chain.json"]) == 2
    assert "prot" in capsys.readouterr().err


def test_a_file_that_is_named_and_not_there_is_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.unlink()
    assert run(["config"]) == 3
    assert "no such file" in capsys.readouterr().err


def test_the_usual_places_and_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONOFF_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "machine"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onoff.toml").write_text("scheme = 'greedy'")
    assert bound("design c.json").get("scheme", "auto") == "auto"
    for place, scheme in (("machine", "race"), ("user", "full")):
        folder = tmp_path / place / "onoff"
        folder.mkdir(parents=True)
        (folder / "onoff.toml").write_text(f"scheme = {scheme!r}")
        assert bound("design c.json")["scheme"] == scheme
