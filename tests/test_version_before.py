"""What version 0.1 wrote, printed and understood still holds: commands, JSON, chain and table.

Its journal is read in tests/client/test_journal.py, its store in tests/server/test_editions.py. The shapes in
fixtures/v0.1/commands.json are those of 0.1; a command may print more than it did, never less or otherwise.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onoff
from onoff.cli import app, run
from onoff.server import Running, running
from onoff.tables.files import load_table

BEFORE = Path(__file__).parent / "fixtures" / "v0.1"
CHAIN = str(BEFORE / "chain.json")
SHAPES: dict[str, Any] = json.loads((BEFORE / "commands.json").read_text())
COMMANDS = {
    *("audit", "bounds", "catalogue", "completion", "demo", "design", "doctor", "gateway", "get", "learn", "plot"),
    *("publish", "reproduce", "serve", "simulate", "state", "sweep"),
}
TRACE = "user,source,time\n" + "".join(f"u{k % 3},{'abc'[k * k % 3]},{k}\n" for k in range(60))
SPEC = 'schemes = ["greedy"]\nhorizons = [1]\nseeds = [1]\n[[chain]]\nfamily = "dirichlet 1"\nn = [3]\n'


def missing(shape: Any, value: Any, at: str = "") -> Iterator[str]:
    """Where `value` is not of the shape that it had."""
    match shape:
        case dict():
            if not isinstance(value, dict):
                yield f"{at} is no object"
                return
            for key, inner in shape.items():
                if key not in value:
                    yield f"{at}.{key} is gone"
                else:
                    yield from missing(inner, value[key], f"{at}.{key}")
        case [inner]:
            if not isinstance(value, list) or not value:
                yield f"{at} is no list with something in it"
                return
            yield from missing(inner, value[0], f"{at}[0]")
        case "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                yield f"{at} is no number"
        case "text":
            if not isinstance(value, str):
                yield f"{at} is no text"
        case "boolean":
            if not isinstance(value, bool):
                yield f"{at} is not true or false"


def test_a_lost_field_is_seen() -> None:
    shape = {"a": [{"b": "number"}], "c": "text"}
    assert list(missing(shape, {"a": [{"b": 1, "new": 2}], "c": ""})) == []
    assert list(missing(shape, {"a": [{"b": "1"}]})) == [".a[0].b is no number", ".c is gone"]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    # Servers of then padded every message to a frame; without padding the catalogue has a limit in its place.
    with running({"left": b"1", "centre": b"2", "right": b"3"}, frame_size=65536) as server:
        yield server


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "message.txt").write_text("hello")

    def json_of(*words: str) -> Any:
        assert run([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return json_of


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize(
    "words",
    [
        ("bounds", CHAIN, "--steps", "2"),
        ("design", CHAIN, "--table"),
        ("simulate", CHAIN, "--users", "20", "--pattern", "ON OFF"),
        ("audit", "exact", CHAIN, "--pattern", "ON OFF"),
        ("learn", "trace.csv"),
        ("sweep", "spec.toml"),
        ("demo", "--exit", "--scheme", "single"),
    ],
    ids=lambda words: words[0],
)
def test_commands_print_what_they_did(printed: Any, words: tuple[str, ...]) -> None:
    name = " ".join(words[:2]) if words[0] == "audit" else words[0]
    assert list(missing(SHAPES[name], printed(*words))) == []


def test_commands_that_talk_to_a_server_print_what_they_did(printed: Any, server: Running) -> None:
    at = ("--server", server.url)
    known = (*at, "--chain", CHAIN, "--journal", "journal")
    for name, words in {
        "publish": ("publish", "left", "message.txt", *at, "--token", server.token),
        "catalogue": ("catalogue", *at),
        "get": ("get", "left", "--open", *known),
        "doctor": ("doctor", *known),
        "state show": ("state", "show", "--journal", "journal"),
    }.items():
        assert list(missing(SHAPES[name], printed(*words))) == [], name


def test_every_command_of_then_is_there() -> None:
    assert set(app) >= COMMANDS


def test_a_chain_is_read() -> None:
    chain = onoff.MarkovChain.load(CHAIN)
    assert chain.names == ("left", "centre", "right")
    assert onoff.bounds(chain).lower == pytest.approx(1.6)


def test_a_table_is_read_and_verifies() -> None:
    rows = onoff.Rows.of(onoff.MarkovChain.load(CHAIN).transition)
    table = load_table(BEFORE / "table.npz", rows)
    assert table is not None
    table.verify()
    assert table.cost == pytest.approx(1.6)
