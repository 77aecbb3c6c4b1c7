"""`onoff simulate`: the agreed JSON, text for people, and bad input named."""

import json

import pytest
from tests.support.chains import request_model

from onoff.cli import run


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text('{"transition": [[0.8, 0.2], [0.2, 0.8]]}')
    return str(path)


def simulate(capsys, *arguments):
    assert run(["simulate", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_json_is_as_agreed_and_follows_the_seed(chain, capsys):
    arguments = (chain, "--scheme", "greedy", "--pattern", "ON OFF OFF", "--users", "4000", "--seed", "7")
    found = simulate(capsys, *arguments)
    assert {"steps", "total", "baselines"} <= found.keys()
    assert {"t", "private", "cost", "stderr", "lower"} <= found["steps"][0].keys()
    assert [step["lower"] for step in found["steps"]] == pytest.approx([2, 1.6, 1.36])
    assert found["baselines"].keys() == {"everything", "naive", "paper"}
    assert simulate(capsys, *arguments) == found
    assert simulate(capsys, *arguments[:-1], "8") != found


def test_the_text_names_the_baselines(chain, capsys):
    assert run(["simulate", chain, "--scheme", "greedy", "--pattern", "ON OFF", "--users", "100"]) == 0
    shown = capsys.readouterr().out
    assert "everything always 4" in shown
    assert "a leak of 0.2781 bits" in shown
    assert run(["simulate", chain, "--scheme", "full", "--users", "1", "--no-paper"]) == 0


def test_random_switching(chain, capsys):
    options = ("--steps", "4", "--turn-off", "0.5", "--turn-on", "0.5", "--users", "200")
    found = simulate(capsys, chain, "--scheme", "greedy", *options)
    assert len(found["steps"]) == 4
    assert 0 < found["steps"][1]["private"] < 1
    assert run(["simulate", chain, "--scheme", "greedy", *options]) == 0
    assert "% ON" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--pattern", "ON OF"], 3, "word 2 of the pattern"),
        (["--scheme", "gredy"], 3, "did you mean 'greedy'"),
        (["--memory", "bayes"], 3, "no memory called"),
        (["--users", "0"], 3, "0 users"),
        (["--seed", "-1"], 3, "not a seed"),
        (["--steps", "5"], 3, "either fixed or random"),
        (["--pattern", "ON", "--steps", "5", "--turn-off", "1", "--turn-on", "1"], 3, "either fixed or random"),
        (["--steps", "5", "--turn-off", "2", "--turn-on", "1"], 3, "turn_off = 2"),
        (["--users", "many"], 2, "many"),
    ],
)
def test_bad_input_is_named(chain, capsys, arguments, code, complaint):
    assert run(["simulate", chain, *arguments]) == code
    caught = capsys.readouterr()
    assert complaint in caught.err
    assert caught.out == ""


def test_a_model_is_simulated_with_its_filter(tmp_path, capsys):
    request_model([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]], ("a", "b", "c")).save(tmp_path / "m.npz")
    model = str(tmp_path / "m.npz")
    found = simulate(capsys, model, "--scheme", "greedy", "--pattern", "ON OFF OFF", "--users", "200")
    assert (found["memory"], found["batches"]) == ("bayes-filter", 40)
    assert found["steps"][0]["cost"] == 3
    assert found["steps"][1]["lower"] is None
    assert found["baselines"]["paper"] is None
    assert run(["simulate", model, "--pattern", "ON OFF", "--users", "100", "--hide", "2"]) == 0
    assert "100 users in 40 batches that share their queries" in " ".join(capsys.readouterr().out.split())
    assert run(["simulate", model, "--memory", "last-query"]) == 3
    assert "types" in capsys.readouterr().err


def test_topics_a_leak_and_a_person_are_simulated(chain, tmp_path, capsys):
    (tmp_path / "topics.toml").write_text('health = ["source-1"]\n')
    base = [chain, "--scheme", "greedy", "--pattern", "ON OFF", "--users", "300", "--no-paper"]
    assert simulate(capsys, *base, "--topics", str(tmp_path / "topics.toml"))["steps"][0]["cost"] == 2
    plain, leaking = (simulate(capsys, *base, *more)["steps"][1]["cost"] for more in ([], ["--leak", "0.5"]))
    assert leaking < plain
    request_model([[0.8, 0.2], [0.2, 0.8]], ("a", "b")).save(path := tmp_path / "model.npz")
    base[0] = str(path)
    costs = {hide: simulate(capsys, *base, "--hide", hide)["total"] for hide in ("1", "person", "type")}
    assert costs["person"] >= costs["type"]
    assert run(["simulate", *base, "--hide", "everyone"]) == 3
    assert "person or type" in capsys.readouterr().err
