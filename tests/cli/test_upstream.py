"""`--upstream`: ordinary sites from the command line."""

import json
import sqlite3

import pytest
from tests.support.website import Answer, website

import onoff
from onoff.cli import app, output
from onoff.cli import run as run_command
from onoff.client import CopiesFile
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


def checks_of(capsys, *words, code=0):
    assert run_command(["doctor", *words, "--json"]) == code
    return {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_doctor_tries_every_address_alike_and_says_what_on_and_off_take(city, tmp_path, capsys):
    files = "--journal", str(tmp_path / "journal"), "--upstream", str(tmp_path / "city.toml")
    found = checks_of(capsys, *files, "--chain", str(tmp_path / "chain.json"))
    assert city.targets == ["/a", "/b", "/c"]
    assert all(check["ok"] for check in found.values())
    assert found["list"]["detail"] == "3 sources at 1 host; budget: no limit"
    assert found["sites"]["detail"].startswith("all 3 answered: 3 requests, 9 bytes")
    assert found["ON"]["detail"] == "everything: 3 requests, 9 bytes where all has changed, uncompressed, at once"
    off = found["OFF"]["detail"]
    table = onoff.design(onoff.MarkovChain.load(tmp_path / "chain.json").possible_rows())
    assert f"{table.cost:.3g} requests" in off
    assert f"{3 * table.cost:.0f} bytes" in off
    city.log.clear()
    run(tmp_path, capsys, "mirror", "show", "--journal", str(tmp_path / "journal"))
    assert city.log == []  # what came is kept for the next request


def test_doctor_warns_of_limits_and_of_sources_that_fail(city, tmp_path, capsys):
    text = (tmp_path / "city.toml").read_text().replace("[upstream]", '[upstream]\nbudget = "1/min"\nevery = "5 min"')
    (tmp_path / "city.toml").write_text(text + '[sources.gone]\nid = "gone"\n')
    files = "--journal", str(tmp_path / "journal"), "--upstream", str(tmp_path / "city.toml")
    found = checks_of(capsys, *files, "--chain", str(tmp_path / "chain.json"), code=1)
    assert city.log == []  # over the budget: nothing is sent
    assert "exceed the budget 1/min" in found["sites"]["detail"]
    assert "they take 180 s, and at most 60 s" in found["ON"]["detail"]
    assert "allow more time, a larger budget" in found["ON"]["hint"]
    (tmp_path / "city.toml").write_text(text.replace("1/min", "4/min 90/day") + '[sources.gone]\nid = "gone"\n')
    found = checks_of(capsys, *files, "--chain", str(tmp_path / "chain.json"), code=4)
    assert city.targets == ["/a", "/b", "/c", "/gone"]
    assert found["sites"]["detail"] == "1 of 4 sources failed: gone (the site answers with status 404)"
    assert "1152 requests a day" in found["ON"]["detail"]
    assert "the budget lasts for 1.9 h of it" in found["ON"]["detail"]
    assert found["names"]["detail"] == "all sources of the chain; 1 more, which are asked for while ON"


def test_doctor_leaves_the_copies_of_a_running_client_alone(city, tmp_path, capsys):
    copies = CopiesFile(tmp_path / "journal.copies")
    try:
        files = "--journal", str(tmp_path / "journal"), "--upstream", str(tmp_path / "city.toml")
        found = checks_of(capsys, *files)
    finally:
        copies.close()
    assert city.log == []
    assert found["sites"]["ok"]
    assert "not tried" in found["sites"]["detail"]
    assert "bytes not known yet" in found["ON"]["detail"]


def test_a_chain_of_other_sources_is_named(city, tmp_path, capsys):
    rows = {"names": ["a", "x"], "transition": [[0.5, 0.5], [0.5, 0.5]]}
    (tmp_path / "other.json").write_text(json.dumps(rows))
    files = "--journal", str(tmp_path / "journal"), "--upstream", str(tmp_path / "city.toml")
    found = checks_of(capsys, *files, "--chain", str(tmp_path / "other.json"), code=3)
    assert found["names"]["detail"] == "1 of the chain's 2 sources are not in the list: 'x'"


def test_copies_are_refreshed_shown_verified_and_forgotten(city, tmp_path, capsys):
    beside = "--journal", str(tmp_path / "journal")
    done = run(tmp_path, capsys, "mirror", "refresh", *beside)
    assert (done["changed"], done["requests"], done["received"]) == (list(NAMES), 3, 9)
    assert done["mirror"] == str(tmp_path / "journal.copies")
    city.answers["/b"] = Answer(b"no", 500)
    words = ["--upstream", str(tmp_path / "city.toml"), *beside]
    assert run_command(["mirror", "refresh", *words]) == 0
    assert "b: the site answers with status 500" in capsys.readouterr().out
    city.log.clear()
    shown = run(tmp_path, capsys, "mirror", "show", *beside)
    assert [state["size"] for state in shown["sources"]] == [3, 3, 3]
    assert run_command(["mirror", "show", *words]) == 0
    assert "copies of 3 of 3 sources, 9 bytes" in capsys.readouterr().out
    assert run(tmp_path, capsys, "mirror", "verify", *beside)["sound"]
    database = sqlite3.connect(tmp_path / "journal.copies")
    database.execute("UPDATE copy SET body = x'00' WHERE name = 'b'")
    database.commit()
    database.close()
    assert run_command(["mirror", "verify", *words, "--json"]) == 1
    assert "damaged" in json.loads(capsys.readouterr().out)["damage"]
    assert str(tmp_path / "journal.copies") in run(tmp_path, capsys, "mirror", "forget", *beside)["removed"]
    assert not (tmp_path / "journal.copies").exists()
    assert city.log == []  # only the refresh asked


def test_a_model_is_made_and_learnt_for_the_sources_of_a_list(city, tmp_path, capsys):
    made = run(tmp_path, capsys, "model", "-o", str(tmp_path / "guess.json"))
    assert (made["n"], made["guess"]) == (3, True)
    assert onoff.MarkovChain.load(tmp_path / "guess.json").names == NAMES
    (tmp_path / "rides.txt").write_text("c a c a\n" * 400)
    run(
        tmp_path,
        capsys,
        "learn",
        str(tmp_path / "rides.txt"),
        "-o",
        str(tmp_path / "learnt.json"),
        "--order",
        "1",
        "--types",
        "1",
    )
    assert onoff.MarkovChain.load(tmp_path / "learnt.json").names == NAMES  # b too, which nobody asked for
    assert city.log == []
    assert run_command(["model", "-o", str(tmp_path / "guess.json")]) == 3
    assert "--upstream FILE or --from URL" in capsys.readouterr().err


def test_an_audit_asks_sites_and_keeps_their_budget(city, tmp_path, capsys):
    """With its queries from a fixed seed."""
    words = "--chain", str(tmp_path / "chain.json"), "--pattern", "ON OFF", "--sessions", "120"
    audit = run(tmp_path, capsys, "audit", "run", *words)
    assert audit["breach"] is None
    assert len(city.log) > 120 * 3
    text = (tmp_path / "city.toml").read_text()
    (tmp_path / "city.toml").write_text(text.replace("[upstream]", '[upstream]\nbudget = "100/min"'))
    city.log.clear()
    assert run_command(["audit", "run", "--upstream", str(tmp_path / "city.toml"), *words]) == 1
    assert "up to 720 requests exceeds the budget 100/min" in capsys.readouterr().err
    assert city.log == []
    assert run_command(["audit", "run", *words]) == 3
    assert "--upstream FILE" in capsys.readouterr().err


def test_a_large_set_is_counted_while_it_is_fetched(city, tmp_path, capsys, monkeypatch):
    """The line comes while the second source is being answered: it waits for it."""
    monkeypatch.setattr(output, "LATE_SECONDS", 0.001)
    heard: list[str] = []

    def slowly(headers, times):
        for _ in range(200_000):  # until it was said, at most for minutes
            heard[:] = [capsys.readouterr().err, *heard]
            if any("1 of 3" in said for said in heard):
                break
        return Answer(b"bbb")

    city.answers["/b"] = slowly
    app(["get", "b", "--upstream", str(tmp_path / "city.toml"), "--json"], result_action="return_value")
    assert any(f"asking {city.url}: 1 of 3" in said for said in heard)
