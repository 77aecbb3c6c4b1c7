"""Other distributions add schemes, stores, upstreams and commands, and onoff compares and checks what they give."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import onoff
from onoff.cli import run
from onoff.errors import InvalidInput, InvalidTable, OnOffError, PrivacyBreach, UnknownScheme
from onoff.schemes import design, find_scheme
from onoff.server.admin import open_store
from onoff.tables.table import QueryTable

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
P = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]
DISTRIBUTION = {
    "METADATA": "Metadata-Version: 2.1\nName: onoff-nested\nVersion: 1.0\n",
    "entry_points.txt": (
        "[onoff.schemes]\nnested = onoff_nested:build\nbroken = onoff_nested:nothing\ngreedy = onoff_nested:build\n"
        "[onoff.commands]\nhello = onoff_nested:hello\n"
        "[onoff.stores]\nshelf = other_parts:Shelf\n"
        "[onoff.upstreams]\nhere = other_parts:here\n"
    ),
}
OTHER_PARTS = """
import onoff
from onoff.server.sqlite import SQLiteStore
from onoff.upstream.sources import Source, SourceList

class Shelf:
    @staticmethod
    async def open(where, *, frame_size, limit):
        return SQLiteStore(where.removeprefix("shelf://"), frame_size=frame_size, limit=limit)

def here(address):
    return onoff.Web(SourceList(tuple(Source(name, f"http://127.0.0.1:9/{name}", name) for name in "abc")))
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The example, and parts of other kinds, as pip would have installed them."""
    folder = tmp_path / "site"
    info = folder / "onoff_nested-1.0.dist-info"
    info.mkdir(parents=True)
    for name, text in DISTRIBUTION.items():
        (info / name).write_text(text)
    (folder / "other_parts.py").write_text(OTHER_PARTS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return folder


def test_a_scheme_by_its_name_and_by_its_place(installed):
    for name in ("nested", "onoff_nested:build"):
        table = design(P, name, first=2)
        assert isinstance(table, QueryTable)
        table.verify()
        assert table.queries == [(0, 1), (0, 1, 2)]
        assert table.lower_bound is not None
        assert design(P, "optimal").cost <= table.cost < 3
        assert find_scheme(name).options == ("first",)
        with pytest.raises(UnknownScheme, match="no option 'last'"):
            design(P, name, last=1)
    session = onoff.Session(onoff.MarkovChain(P), "nested")
    assert session.request(0, private=True).sources == (0, 1, 2)
    assert set(session.request(1, private=False).sources) in ({0, 1, 2}, {0}, {1})


def test_a_name_of_our_own_is_not_given_away(installed):
    assert find_scheme("greedy").entry is None


def test_a_scheme_that_tells_is_refused(installed):
    with pytest.raises(PrivacyBreach):
        design(P, "onoff_nested:leaky")


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("broken", OnOffError, "onoff_nested:nothing, of onoff-nested, cannot be loaded"),
        ("onoff_nested:nothing", OnOffError, "cannot be loaded"),
        ("no_such_module:build", OnOffError, "cannot be loaded"),
        ("nestde", UnknownScheme, "no scheme 'nestde'"),
        ("builtins:int", UnknownScheme, "builtins:int is not a function of rows"),
    ],
)
def test_a_scheme_that_is_none(installed, name, error, said):
    with pytest.raises(error) as caught:
        design(P, name)
    assert said in str(caught.value)


def test_what_gives_no_table_is_refused(installed):
    (installed / "lists.py").write_text("def build(rows): return [rows]")
    with pytest.raises(InvalidTable, match="gave a list, and not a QueryTable"):
        design(P, "lists:build")


def test_compare_puts_it_beside_ours(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("chain.json").write_text(json.dumps({"transition": P}))
    words = ["compare", "chain.json", "--scheme", "nested", "--scheme", "optimal", "--budget", "5"]
    assert run([*words, "--picture", "costs.svg", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    nested, best = found["schemes"]
    assert (nested["scheme"], nested["private"], nested["leak_bits"]) == ("nested", True, 0)
    assert found["lower_bound"] <= best["cost"] < nested["cost"]
    assert nested["above_bound"] == pytest.approx(nested["cost"] / found["lower_bound"] - 1)
    assert "<svg" in Path("costs.svg").read_text()
    assert run(words) == 0
    assert "yes, all paths" in capsys.readouterr().out


def test_compare_takes_all_of_ours_where_there_are_few_sources(tmp_path, capsys):
    """A race has no table, so that no session of it is audited; its cost is an estimate and is shown as one."""
    onoff.MarkovChain([[0.9, 0.1, 0], [0.2, 0.8, 0], [0.1, 0.2, 0.7]]).save(tmp_path / "chain.json")
    assert run(["compare", str(tmp_path / "chain.json"), "--budget", "1"]) == 0
    shown = capsys.readouterr().out
    assert "about 2." in shown
    assert shown.count("yes, all") == 5, shown


def test_compare_says_which_scheme_tells(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("chain.json").write_text(json.dumps({"transition": P}))
    words = ["compare", "chain.json", "--scheme", "onoff_nested:leaky", "--scheme", "single"]
    assert run([*words, "--json"]) == 5
    leaky, single = json.loads(capsys.readouterr().out)["schemes"]
    assert (leaky["private"], leaky["cost"], single["private"]) == (False, None, True)
    assert leaky["reason"]
    assert run(words) == 5
    assert "NO" in capsys.readouterr().out


def test_compare_refuses_what_it_cannot_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("chain.json").write_text(json.dumps({"transition": P}))
    assert run(["compare", "chain.json", "--scheme", "nestde"]) == 3
    assert run(["compare", "chain.json", "--budget", "0"]) == 3
    assert "a budget of 0" in capsys.readouterr().err


def test_an_upstream_by_the_kind_of_its_address(installed, tmp_path):
    with onoff.Client(
        "here://anything", onoff.MarkovChain(P, names=list("abc")), journal=tmp_path / "journal"
    ) as client:
        assert isinstance(client.upstream, onoff.Web)


def test_a_store_by_the_kind_of_its_address(installed, tmp_path, capsys):
    store = f"shelf://{tmp_path / 'messages.db'}"
    assert run(["catalogue", "--store", store, "--add", "news"]) == 0
    assert "news" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match="no store at cupboard://"):
        asyncio.run(open_store("cupboard://x"))


@pytest.mark.slow(reason="a program of its own, which has the plug-in from its start")
def test_a_command(installed, tmp_path):
    paths = os.pathsep.join([str(installed), str(EXAMPLE)])
    done = subprocess.run(
        [sys.executable, "-c", "from onoff.cli import main; main()", "hello"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "hello from a plug-in\n"
