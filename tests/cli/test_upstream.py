"""`onoff get --upstream`: ordinary sites from the command line."""

import json

import pytest
from tests.support.website import Answer, website

from onoff.cli import app
from onoff.errors import InvalidInput

NAMES = ("a", "b", "c")


@pytest.fixture
def city(tmp_path):
    pages = {name: Answer(name.encode() * 3, headers={"etag": f'"{name}"'}) for name in NAMES}
    with website(**pages) as site:
        sources = "".join(f'[sources.{name}]\nid = "{name}"\n' for name in NAMES)
        (tmp_path / "city.toml").write_text(f'[upstream]\nurl = "{site.url}/{{id}}"\n{sources}')
        rows = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]
        (tmp_path / "chain.json").write_text(json.dumps({"transition": rows, "names": list(NAMES)}))
        yield site


def run(folder, capsys, *words):
    app([*words, "--upstream", str(folder / "city.toml"), "--json"], result_action="return_value")
    return json.loads(capsys.readouterr().out)


def test_get_asks_sites_and_says_what_it_asked(city, tmp_path, capsys):
    files = "--chain", str(tmp_path / "chain.json"), "--journal", str(tmp_path / "journal")
    got = run(tmp_path, capsys, "get", "b", "--private", *files)
    assert (got["source"], got["body"], got["asked"], got["requests"]) == ("b", "bbb", list(NAMES), 3)
    assert city.targets == ["/a", "/b", "/c"]
    city.log.clear()
    got = run(tmp_path, capsys, "get", "b", "--open", *files)
    assert got["requests"] == len(got["asked"])
    assert city.targets == [f"/{name}" for name in got["asked"]]
    assert "b" in got["asked"]
    state = run(tmp_path, capsys, "state", "show", "--journal", str(tmp_path / "journal"))
    assert (state["doubt"], state["last"]["server"], state["last"]["step"]) == (None, city.url, 0)


def test_the_journal_of_a_site_is_found_by_its_list(city, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run(tmp_path, capsys, "get", "c")["body"] == "ccc"
    assert run(tmp_path, capsys, "state", "verify")["sound"]
    assert len(run(tmp_path, capsys, "state", "reset", "--yes")["removed"]) >= 1


def test_bytes_of_sites_are_not_known_beforehand(city, tmp_path, capsys):
    with pytest.raises((InvalidInput, SystemExit)):
        run(tmp_path, capsys, "get", "a", "--dry-run", "--journal", str(tmp_path / "journal"))
    assert city.log == []
