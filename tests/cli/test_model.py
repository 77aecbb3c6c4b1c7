"""`onoff model`: a first model for the sources of a server, that says it is a guess wherever it is seen."""

import json
from pathlib import Path

import pytest

from onoff.cli import run
from onoff.model.chain import MarkovChain
from onoff.server import running


@pytest.fixture(scope="module")
def url():
    with running(["news", "weather", "sport"]) as server:
        yield server.url


def test_it_is_made_for_the_servers_sources_and_says_it_is_a_guess(url, tmp_path: Path, capsys) -> None:
    path = tmp_path / "model.json"
    assert run(["model", "--from", url, "-o", str(path)]) == 0
    assert "This model is a guess" in capsys.readouterr().out
    assert MarkovChain.load(path).names == ("news", "weather", "sport")
    about = json.loads(path.read_text())["about"]
    assert about["guess"] == "sticky"
    assert "is a guess" in about["says"]


def test_json_says_so_too(url, tmp_path: Path, capsys) -> None:
    words = ["model", "--template", "popular", "--from", url, "-o", str(tmp_path / "m.json"), "--json"]
    assert run(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["template"], told["n"], told["guess"], told["cost"]) == ("popular", 3, True, 1.0)


def test_the_address_may_come_from_the_variable(url, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("ONOFF_SERVER", url)
    monkeypatch.chdir(tmp_path)
    assert run(["model"]) == 0
    assert Path("model.json").exists()


def test_a_guess_replaces_a_guess_and_nothing_else(url, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for template in ("sticky", "popular"):
        assert run(["model", "--template", template, "--from", url]) == 0
    learnt = json.dumps({"transition": [[1]], "about": {"trace": {"requests": 1200}}})
    for content in (learnt, "[[0.5, 0.5], [0.5, 0.5]]", "a list of things to do"):
        Path("model.json").write_text(content)
        assert run(["model", "--from", url]) == 3
        assert Path("model.json").read_text() == content
        assert "model.json: holds something that is no guess" in capsys.readouterr().err


def test_a_server_that_is_not_there_leaves_no_file(tmp_path: Path, capsys) -> None:
    assert run(["model", "--from", "http://127.0.0.1:1", "-o", str(tmp_path / "m.json")]) == 4
    assert not (tmp_path / "m.json").exists()
    assert run(["model", "--from", "http://127.0.0.1:1", "-o", str(tmp_path / "m.npz")]) == 3
