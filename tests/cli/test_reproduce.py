"""`onoff reproduce`: the agreed JSON, figures on demand, exit 1 when an item is not as expected."""

import json

import pytest

from onoff.cli import run
from onoff.lab import paper
from onoff.lab.paper.claim import Claim, same
from onoff.lab.paper.tables import claims


@pytest.fixture
def few(monkeypatch):
    """Some of the real items; tests/lab/paper runs every one of them."""

    def use(*listed):
        monkeypatch.setattr(paper, "CLAIMS", listed)

    use(*claims.listed[1:4])
    return use


def test_the_json_is_a_list_of_items(few, capsys):
    assert run(["reproduce", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)
    assert [set(item) for item in items] == [{"item", "expected", "got", "ok"}] * 3
    assert all(item["ok"] for item in items)
    assert items[2]["got"] == pytest.approx([0.5, 0.625])


def test_an_item_that_is_not_as_expected_exits_1_and_is_marked(few, capsys):
    few(Claim("Q_[t-1] is wrong", lambda: same(1.0, 2.0)))
    assert run(["reproduce"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  Q_[t-1] is wrong" in out
    assert "0 of 1 items" in out


@pytest.mark.slow(reason="programs are started and waited for")
def test_figures_and_items_are_written_where_asked(few, tmp_path, capsys):
    assert run(["reproduce", "--out", str(tmp_path / "new")]) == 0
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [
        "figure-3b-symmetric-chain.png",
        "figure-3b-symmetric-chain.svg",
        "figure-4-rate.png",
        "figure-4-rate.svg",
        "items.json",
    ]
    assert len(json.loads((tmp_path / "new" / "items.json").read_text())) == 3
    assert "3 of 3 items as expected" in capsys.readouterr().out


def test_a_directory_that_cannot_be_is_refused_before_the_work(few, tmp_path, capsys):
    few(Claim("never run", lambda: pytest.fail("the work was done first")))
    (tmp_path / "file").write_text("")
    assert run(["reproduce", "--out", str(tmp_path / "file")]) == 3
    assert "cannot write to" in capsys.readouterr().err


def test_only_some_items_are_shown_in_full(few, capsys):
    assert run(["reproduce", "--only", "TABLE 1: q_1"]) == 0
    out = capsys.readouterr().out
    assert "1 of 1 items as expected" in out
    assert run(["reproduce", "--only", "table 9"]) == 3
    assert "table 9" in capsys.readouterr().err


def test_a_table_is_shown_cell_by_cell(few, capsys):
    few(Claim("Table 7", lambda: same({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 3.0})))
    assert run(["reproduce", "--only", "table 7"]) == 1
    assert [line.split("│")[1:4] for line in capsys.readouterr().out.splitlines() if "│ b" in line] == [
        [" b ", " 2.0      ", " 3.0 "]
    ]
