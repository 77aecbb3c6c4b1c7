"""`onoff learn`: the chain and its counts as JSON, warnings on stderr, bad input named."""

import json
import re

import numpy as np
import pytest
from tests.support.typed import as_a

from onoff.cli import run
from onoff.errors import InvalidChain
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel, load_model
from onoff.model.learn import learn
from onoff.model.traces import Trace


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("user,source,private\nu,a,off\nu,b,off\nu,a,on\nu,b,off\nu,a,off\n")
    return path


def test_the_json_is_a_chain_file_with_counts(trace, tmp_path, capsys):
    assert run(["learn", str(trace), "-o", str(tmp_path / "chain.json"), "--json"]) == 0
    caught = capsys.readouterr()
    found = json.loads(caught.out)
    assert found["names"] == ["a", "b"]
    assert found["counts"] == [[0, 1], [1, 0]]
    assert found["about"]["trace"]["private_left_out"] == 1
    assert caught.err == ""
    assert found == json.loads((tmp_path / "chain.json").read_text())
    assert MarkovChain.load(tmp_path / "chain.json").n == 2


def test_private_requests_are_warned_about(trace, tmp_path, capsys):
    assert run(["learn", str(trace), "--include-private"]) == 0
    assert "learnt from as asked" in capsys.readouterr().err
    (tmp_path / "t.txt").write_text("a b\nb\xff")
    assert run(["learn", str(tmp_path / "t.txt")]) == 0
    assert "does not say which requests were private" in capsys.readouterr().err


def test_the_text_is_for_people(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a b a b b\n" * 30 + "\x02\n")
    assert run(["learn", str(tmp_path / "t.txt"), "-o", str(tmp_path / "c.json")]) == 0
    caught = capsys.readouterr()
    assert "30 users, 150 requests, 2 sources, 120 transitions" in caught.out
    assert "held out" in caught.out
    assert "Written to" in caught.out
    assert "lines that could not be read: 1; line 31" in caught.err


def test_sources_come_from_a_file(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a a a\n")
    (tmp_path / "names").write_text("a\nb\n\n")
    assert run(["learn", str(tmp_path / "t.txt"), "--sources", str(tmp_path / "names"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["a", "b"]
    assert run(["learn", str(tmp_path / "t.txt"), "--sources", str(tmp_path / "nowhere")]) == 3


@pytest.mark.parametrize(
    ("name", "content", "arguments", "complaint"),
    [
        ("t.txt", "", [], "no requests"),
        ("t.txt", "a a\n", [], "only one source"),
        ("t.dat", "a b\n", [], "cannot tell the format"),
        ("t.dat", "a b\n", ["--format", "xml"], "no trace format 'xml'"),
        ("t.csv", "who,what\n1,a\n", [], "no column 'user'"),
        ("t.txt", "a b\n", ["--smoothing", "-1"], "smoothing -1"),
        ("t.txt", "a\nb\nc\n", [], "no request follows another, every person made only one"),
        ("t.txt", "a b\nb a\n", ["--types", "3"], "3 types of only 2 people"),
        ("t.txt", "a b\n", ["--types", "0"], "0 types"),
        ("t.txt", "a b\n", ["--order", "9"], "order 9"),
        ("t.txt", "a b\nb a\n", ["--types", "2", "--structural-zeros"], "structural zeros"),
        ("t.zip", "nonsense", [], "damaged"),
    ],
)
def test_bad_input_is_named(tmp_path, capsys, name, content, arguments, complaint):
    (tmp_path / name).write_text(content)
    assert run(["learn", str(tmp_path / name), *arguments]) == 3
    caught = capsys.readouterr()
    assert complaint in caught.err
    assert caught.out == ""


@pytest.mark.parametrize(
    ("limit", "most", "arguments", "complaint", "mend"),
    [
        (
            "fitting.MOST_CONTEXTS",
            5,
            ["--order", "2", "--types", "1"],
            r"order 2 over 2 sources: 7 contexts were seen 5 times or more and take about 0.0 GB",
            "at most 5 fit: --order 1,",
        ),
        (
            "fitting.MOST_FITTED_BYTES",
            60_000,
            ["--order", "1", "--types", "9"],
            r"9 types of order 1 over 2 sources: \d+ pairs of a context and a source were seen, which takes about",
            "--types 4, a smaller --order,",
        ),
        (
            "fitting.MOST_CONTEXTS",
            200_000,
            ["--types", "560"],
            "560 types of only 540 people, while others are held out",
            "ask for fewer types",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_once(
    tmp_path, capsys, monkeypatch, people, limit, most, arguments, complaint, mend
):
    """With enough people to choose by, and where order and types are given there is nothing to choose."""
    monkeypatch.setattr(f"onoff.model.{limit}", most)
    assert run(["learn", str(people), *arguments, "-o", str(tmp_path / "model.npz")]) == 3
    caught = capsys.readouterr()
    said = " ".join(caught.err.split())
    assert re.search(complaint, said), said
    assert mend in said
    assert caught.out == ""
    assert not (tmp_path / "model.npz").exists()
    assert run(["learn", str(people), "-o", str(tmp_path / "model.npz")]) == 0  # what fits is chosen


def test_many_sources_are_learnt_without_the_bounds_that_take_minutes(tmp_path, capsys, monkeypatch):
    (tmp_path / "t.txt").write_text("a b a b b\n" * 3)
    arguments = ["learn", str(tmp_path / "t.txt"), "--order", "1", "--types", "1"]
    assert run([*arguments, "--json"]) == 0
    full = json.loads(capsys.readouterr().out)["about"]["cost"]
    monkeypatch.setattr("onoff.model.learn.MOST_FOR_COSTS", 1)
    assert run([*arguments, "--json"]) == 0
    short = json.loads(capsys.readouterr().out)["about"]["cost"]
    assert short == {"everything": 2, "at_least": pytest.approx(full["at_least"]), "paper_at_most": None}
    assert run(arguments) == 0
    assert "at least" in capsys.readouterr().out


def test_a_name_under_which_the_chain_could_not_be_read_again_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a b a\n")
    for name in ("c.csv", "c.npy"):
        assert run(["learn", str(tmp_path / "t.txt"), "-o", str(tmp_path / name)]) == 3
        assert "the suffix belongs to another format" in capsys.readouterr().err
    with pytest.raises(InvalidChain, match="another format"):
        learn(Trace(tmp_path / "t.txt")).save(tmp_path / "c.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]


@pytest.fixture
def people(tmp_path):
    """People of two types, who stay or alternate: no chain tells them apart."""
    rng = np.random.default_rng(0)
    lines = []
    for person in range(600):
        path = [int(rng.integers(2))]
        for _ in range(11):
            stays = rng.random() < (0.9 if person // 10 % 2 else 0.1)  # of every tenth, too, half are of each type
            path.append(path[-1] if stays else 1 - path[-1])
        lines.append(" ".join("ab"[x] for x in path))
    (tmp_path / "people.txt").write_text("\n".join(lines))
    return tmp_path / "people.txt"


@pytest.mark.parametrize("name", ["model.json", "model.npz"])
def test_types_are_chosen_on_people_held_out(people, tmp_path, capsys, name):
    assert run(["learn", str(people), "-o", str(tmp_path / name), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tried = {(one["order"], one["types"]): one["held_out_bits"] for one in found["tried"]}
    assert min(tried.values()) < tried[1, 1] - 0.1
    assert found["about"]["model"]["chosen"].startswith("the cheapest whose audited leak is not above the least")
    audited = [one for one in found["families"] if one["leak"] is not None]
    assert {one["family"] for one in found["families"]} == {"chain", "types"} == {one["family"] for one in audited}
    assert found["advice"] == found["about"]["advice"] == "stay-on"  # with two sources, OFF costs nearly what ON does
    assert found["own_history_bits"] is None  # nobody made enough requests
    assert len(found["weights"]) == found["about"]["model"]["types"] > 1
    model = as_a(RequestModel, load_model(tmp_path / name))
    assert model.types == len(found["weights"])
    assert model.about["trace"]["file"] == "people.txt"
    assert model.about["model"]["tried"] == found["tried"]


def test_the_table_of_what_was_tried_is_printed(people, capsys):
    assert run(["learn", str(people), "--types", "2"]) == 0
    out = capsys.readouterr().out
    assert "Bits per request of people held out" in out
    assert "Learnt: 2 types, order" in out
    assert "bits given away" in out
    assert "Advice: " in out


def test_order_and_types_are_as_asked(people, tmp_path, capsys):
    assert run(["learn", str(people), "--order", "2", "--types", "3", "-o", str(tmp_path / "m.npz")]) == 0
    model = as_a(RequestModel, load_model(tmp_path / "m.npz"))
    assert (model.order, model.types) == (2, 3)
    assert run(["learn", str(people), "--order", "1", "--types", "1", "-o", str(tmp_path / "c.npz")]) == 0
    assert "people who remember more" in capsys.readouterr().out
    chain = load_model(tmp_path / "c.npz")
    assert isinstance(chain, MarkovChain)
    assert chain.digest() == learn(Trace(people)).chain.digest()


def test_too_few_to_choose_by_is_said(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a b a b\n" * 10)
    assert run(["learn", str(tmp_path / "t.txt")]) == 0
    assert "too few to hold anybody out: 10 people, and 12 are needed" in capsys.readouterr().out


def test_lines_that_look_like_one_persons_are_warned_of(tmp_path, capsys):
    """Months of each person, one a line, beside one another; and the same lines shuffled."""
    rng = np.random.default_rng(0)
    lines = [" ".join(map(str, rng.choice([home, home + 1], size=12))) for home in range(0, 20, 2) for _ in range(12)]
    (tmp_path / "months.txt").write_text("\n".join(lines))
    (tmp_path / "people.txt").write_text("\n".join(rng.permutation(lines)))
    for name, warned in (("months.txt", True), ("people.txt", False)):
        assert run(["learn", str(tmp_path / name), "--order", "1", "--types", "2"]) == 0
        assert ("they may be one person's" in capsys.readouterr().err) == warned


def test_what_was_tried_is_drawn(people, tmp_path, capsys):
    assert run(["learn", str(people), "--types", "2", "--plot", str(tmp_path / "f.svg")]) == 0
    assert "messages of ten OFF requests" in (tmp_path / "f.svg").read_text()


def test_a_file_that_is_not_there_is_named_before_its_format_is_guessed(tmp_path, capsys):
    assert run(["learn", str(tmp_path / "nofile")]) == 3
    assert "nofile: No such file" in capsys.readouterr().err


def test_a_bad_time_is_told_even_where_nothing_can_be_learnt(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("user,source,time\nu,a,yesterday\nu,b,3\n")
    assert run(["learn", str(tmp_path / "t.csv")]) == 3
    assert "lines that could not be read: 1; line 2: 'yesterday' is not a time" in capsys.readouterr().err
