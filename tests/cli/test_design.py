"""`onoff design`: the agreed JSON for every scheme, the table on demand, pictures, and bad input named."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.support.typed import present
from tests.support.waiting import PATIENCE

from onoff.cli import run
from onoff.lab import families
from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT
from onoff.tables.files import load_table

pytestmark = pytest.mark.slow(reason="commands are started and waited for")

PAPER = [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]]
KEYS = {"scheme", "n", "cost", "lower_bound", "inner", "outer", "optimal", "certificate", "queries", "seconds"}


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(json.dumps({"transition": PAPER}))
    return str(path)


def report_of(capsys):
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("scheme", ["full", "single", "greedy", "enumerated", "optimal", "auto"])
def test_the_json_of_every_scheme_with_a_table(chain, capsys, scheme):
    assert run(["design", chain, "--scheme", scheme, "--json"]) == 0
    report = report_of(capsys)
    assert set(report) == KEYS
    assert (report["n"], report["lower_bound"], report["outer"], report["inner"]) == (3, 1.6, 1.6, 1.6)
    assert report["cost"] >= 1.6
    assert report["scheme"] == scheme
    assert report["optimal"] == (scheme not in ("full", "single"))
    assert report["certificate"] == "outer"


def test_the_table_is_the_one_that_was_counted(chain, capsys):
    assert run(["design", chain, "--table", "--json"]) == 0
    report = report_of(capsys)
    assert set(report) == KEYS | {"table", "names"}
    assert report["names"] == list(MarkovChain.load(chain).names)
    table = report["table"]
    assert (table["unit"], len(table["queries"]), sum(table["mass"])) == (UNIT, report["queries"], UNIT)


def test_the_race_has_no_table_and_an_error_bar(chain, capsys):
    assert run(["design", chain, "--scheme", "race", "--table", "--json"]) == 0
    report = report_of(capsys)
    assert set(report) == KEYS | {"stderr"}
    assert report["queries"] is None
    assert report["cost"] == pytest.approx(1.7, abs=0.2)


def test_the_text_says_what_is_proved(chain, capsys):
    assert run(["design", chain]) == 0
    out = capsys.readouterr().out
    assert "proved" in out
    assert "source-1" in out
    assert run(["design", chain, "--scheme", "full", "--table"]) == 0
    assert "above the least possible" in capsys.readouterr().out


def test_long_searches_talk_on_stderr_and_stop_at_their_budget(tmp_path, capsys):
    path = tmp_path / "grid.npy"
    np.save(path, families.grid(6, 6))
    assert run(["design", str(path), "--budget", "0.1", "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["cost"] >= report["lower_bound"]
    assert all(line.startswith("onoff: ") for line in captured.err.splitlines())


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("scheme", ["optimal", "race"])
def test_a_picture_is_written(chain, tmp_path, capsys, suffix, scheme):
    path = tmp_path / f"table{suffix}"
    assert run(["design", chain, "--scheme", scheme, "--picture", str(path), "--json"]) == 0
    assert report_of(capsys)["n"] == 3
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if suffix == ".png" else b"<?xml" in head


def checked(capsys, *arguments):
    code = run(["design", *map(str, arguments), "--json"])
    return code, report_of(capsys)


@pytest.mark.parametrize("scheme", ["optimal", "full"])
def test_a_saved_table_is_checked_without_knowing_where_it_comes_from(chain, tmp_path, capsys, scheme):
    path = tmp_path / "table.npz"
    assert run(["design", chain, "--scheme", scheme, "--save", str(path), "--json"]) == 0
    made = report_of(capsys)
    code, report = checked(capsys, chain, "--check", path)
    assert code == 0
    assert report == {"verified": True, **{key: made[key] for key in ("cost", "lower_bound", "optimal")}}
    assert run(["design", chain, "--check", str(path)]) == 0
    assert ("No table is cheaper" in capsys.readouterr().out) == (scheme == "optimal")


def test_a_table_of_another_chain_of_none_or_that_leaks_is_refused(chain, tmp_path, capsys):
    path, other = tmp_path / "table.npz", tmp_path / "other.json"
    other.write_text(json.dumps({"transition": [[0.5, 0.3, 0.2], *PAPER[1:]]}))
    assert run(["design", str(other), "--save", str(path), "--json"]) == 0
    capsys.readouterr()
    for against in (path, tmp_path / "nothing.npz", other):
        code, report = checked(capsys, chain, "--check", against)
        assert (code, report["verified"], report["optimal"], report["lower_bound"]) == (3, False, False, None)
        assert report["reason"]
    assert run(["design", chain, "--check", str(path)]) == 3
    assert "Refused" in capsys.readouterr().out
    with np.load(path) as stored:
        arrays = dict(stored)
    table = present(load_table(path, MarkovChain.load(other).rows()))
    leaking = table.weights.copy()
    first = int(table.starts[1])  # one unit from one query to the next in the second row
    queries = np.searchsorted(table.offsets, table.slots[first:], side="right")
    sources = table.items[table.slots[first:]]
    pair = next(
        (a, b)
        for a in range(len(sources))
        for b in range(len(sources))
        if sources[a] == sources[b] and queries[a] != queries[b] and table.starts[2] - first > max(a, b)
    )
    leaking[first + pair[0]] += 1
    leaking[first + pair[1]] -= 1
    np.savez(path, **{**arrays, "weights": leaking})
    code, report = checked(capsys, other, "--check", path)
    assert (code, report["verified"]) == (5, False)


def test_what_has_no_table_cannot_be_saved(chain, tmp_path, capsys):
    assert run(["design", chain, "--scheme", "race", "--save", str(tmp_path / "t.npz")]) == 3
    assert "no table" in capsys.readouterr().err
    assert run(["design", chain, "--save", str(tmp_path / "nowhere" / "t.npz")]) == 3


def test_ctrl_c_ends_a_search_with_the_best_table_so_far(tmp_path):
    """One SIGINT once the search talks: the process ends with 130, long before its budget, and the table is whole."""
    path, saved = tmp_path / "grid.npy", tmp_path / "table.npz"
    np.save(path, families.grid(15, 15))
    words = ["design", str(path), "--budget", "600", "--save", str(saved), "--json"]
    command = [sys.executable, "-c", "from onoff.cli import main; main()", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            under_way = next(line for line in present(process.stderr) if "round" in line)
            assert " of 600 s, " in under_way
            process.send_signal(signal.SIGINT)
            out, rest = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "onoff: ending with what there is; Ctrl-C again gives it up" in rest.splitlines()
    assert rest.splitlines()[-2:] == ["onoff: this is the best table so far", "onoff: interrupted"]
    report = json.loads(out)
    table = present(load_table(saved, MarkovChain.load(path).possible_rows()))
    assert report["cost"] == table.cost < 225


def test_a_second_ctrl_c_gives_the_search_up(tmp_path):
    path = tmp_path / "grid.npy"
    np.save(path, families.grid(15, 15))
    endless = """
from onoff.cli import design, main
def endless(rows, scheme, *, enough, progress, **options):
    progress("round 1")
    while True:
        pass
design.design = endless
main()
"""
    command = [sys.executable, "-c", endless, "design", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            for awaited in ("round", "Ctrl-C again"):
                assert any(awaited in line for line in present(process.stderr))
                process.send_signal(signal.SIGINT)
            out, rest = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert rest.splitlines()[-1] == "onoff: interrupted"


def test_the_default_budgets_are_in_the_help(capsys):
    assert run(["design", "--help"]) == 0
    assert "120 (optimal), 30 (auto)" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_bad_input_is_named(chain, tmp_path, capsys):
    assert run(["design", chain, "--scheme", "optimum"]) == 3
    assert "did you mean 'optimal'" in capsys.readouterr().err
    assert run(["design", chain, "--scheme", "full", "--budget", "3"]) == 3
    assert "--budget is not for scheme 'full'" in capsys.readouterr().err
    assert run(["design", chain, "--picture", str(tmp_path / "table.doc")]) == 3
    assert ".doc" in capsys.readouterr().err
    assert run(["design", chain, "--budget", "-1"]) == 2


@pytest.mark.parametrize("scheme", ["race", "optimal"])
def test_a_seed_below_zero_is_refused(chain, capsys, scheme):
    assert run(["design", chain, "--scheme", scheme, "--seed", "-1"]) == 2
    assert "--seed" in capsys.readouterr().err


def test_an_option_of_another_scheme_is_named_with_its_own(tmp_path, capsys):
    MarkovChain([[0.8, 0.2], [0.2, 0.8]]).save(tmp_path / "c.json")
    assert run(["design", str(tmp_path / "c.json"), "--c", "2"]) == 3
    said = capsys.readouterr().err
    assert said == "onoff: --c is not for scheme 'optimal'\n       it is for --scheme enumerated\n"
    assert run(["design", str(tmp_path / "c.json"), "--scheme", "greedy", "--seed", "2"]) == 3
    assert "it is for --scheme optimal, race, auto" in capsys.readouterr().err


def test_a_budget_of_leakage_says_what_is_told(chain, capsys, tmp_path):
    saved = str(tmp_path / "table.npz")
    assert run(["design", chain, "--leak", "0.25", "--save", saved, "--json"]) == 0
    report = report_of(capsys)
    assert set(report) == KEYS | {"leak", "worst_cost"}
    assert 0.2 < report["leak"] <= 0.25
    assert report["lower_bound"] <= report["cost"] <= report["worst_cost"] < 1.6
    assert (report["certificate"], report["optimal"]) == ("leak", True)
    assert run(["design", chain, "--check", saved, "--json"]) == 0
    checked = report_of(capsys)
    assert (checked["verified"], checked["leak"]) == (True, report["leak"])
    assert run(["design", chain, "--check", saved]) == 0
    assert "Tells 0.25 bits at most" in capsys.readouterr().out
    assert run(["design", chain, "--leak", "0.25"]) == 0
    assert "best guess may become 1.19 times as likely" in capsys.readouterr().out
    assert run(["design", chain, "--ratio", "0.5", "--json"]) == 0
    assert 1 < report_of(capsys)["cost"] < 1.6


def test_a_range_of_budgets_is_a_curve(chain, capsys, tmp_path):
    picture = tmp_path / "curve.svg"
    assert run(["design", chain, "--leak", "0:0.5:0.25", "--plot", "--picture", str(picture), "--json"]) == 0
    curve = report_of(capsys)["curve"]
    assert [point["budget"] for point in curve] == [0, 0.25, 0.5]
    assert curve[0]["cost"] == 1.6 > curve[1]["cost"] > curve[2]["cost"]
    assert all(point["leak"] <= point["budget"] for point in curve)
    assert "bits of maximal leakage" in picture.read_text() or picture.stat().st_size > 1000
    assert run(["design", chain, "--leak", "0.5", "--plot"]) == 0
    text = capsys.readouterr().out
    assert text.count("\u2588") > 50
    assert "0.4375" in text


@pytest.mark.parametrize(
    "wrong",
    [
        ["--leak", "-1"],
        ["--leak", "inf"],
        ["--leak", "much"],
        ["--leak", "0:1"],
        ["--leak", "0:1:0"],
        ["--leak", "1:0:0.1"],
        ["--leak", "1e-20"],
        ["--leak", "0:1:0.5", "--table"],
        ["--leak", "0.5", "--scheme", "greedy"],
        ["--plot"],
    ],
    ids=" ".join,
)
def test_a_wrong_budget_is_named(chain, capsys, wrong):
    assert run(["design", chain, *wrong]) in (2, 3)
    assert capsys.readouterr().err.startswith("onoff")
