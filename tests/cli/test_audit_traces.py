"""`onoff audit traces`: the agreed JSON, exit codes, and what it says to a person."""

import contextlib
import io
import json

import numpy as np
import pytest
from tests.audit.test_observer import model_of
from tests.support.typed import present

from onoff.audit.cases import Case, starts_of
from onoff.audit.traces import TABLE_SECONDS, save_measured, table_options
from onoff.cli import run
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel, load_model
from onoff.model.origin import about_of, measured_of, zero_in_words
from onoff.model.people import constants_of
from onoff.schemes import SCHEMES
from onoff.session import Session

NAMES = ("news", "sport", "health")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Readers of two types with habits, a trace of them, their chain and their model."""
    folder, rng = tmp_path_factory.mktemp("traces"), np.random.default_rng(7)
    contexts = model_of(3, 2, 2, 7).contexts
    laws = 0.95 * rng.dirichlet(np.full(3, 0.4), size=(2, len(contexts))) + 0.05 / 3
    people = RequestModel(laws, contexts, NAMES, weights=[0.5, 0.5])
    people.save(folder / "model.npz")
    visits = people.sample_many(2400, 8, rng)
    (folder / "trace.txt").write_text("\n".join(" ".join(NAMES[x] for x in visit) for visit in visits))
    rows = [f"{user},{NAMES[visit[t]]}" for t in range(8) for user, visit in enumerate(visits)]
    (folder / "trace.csv").write_text("\n".join(["user,source", *rows]))
    run(
        ["learn", str(folder / "trace.txt"), "--order", "1", "--types", "1", "-o", str(folder / "chain.json"), "--json"]
    )
    return folder


def command(files, model, trace="trace.txt", *more):
    options = ("--after", "4", "--users", "300", "--types", "4", "--scheme", "greedy")
    return ["audit", "traces", str(files / model), str(files / trace), *options, *more]


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize("trace", ["trace.txt", "trace.csv"])
def test_a_chain_gives_readers_away_and_exits_5(files, trace, capsys):
    capsys.readouterr()
    assert run(command(files, "chain.json", trace, "--allow", "0.05", "--json")) == 5
    report = json.loads(capsys.readouterr().out)
    assert report["users"] == 300
    assert [step["k"] for step in report["steps"]] == [1, 2, 3, 4]
    wanted = {"k", "cost", "bits", "stderr", "top1", "naive_bits", "empirical_bound"}
    assert all(wanted <= step.keys() for step in report["steps"])
    assert report["leak"] == max(step["bits"] for step in report["steps"]) > 0.05
    assert report["steps"][-1]["naive_bits"] > report["steps"][-1]["bits"]
    assert 0 < report["prior_bits"] < 1.7


@pytest.fixture(scope="module")
def of_the_model(files, tmp_path_factory):
    """A copy of the readers' model that is audited with an attacker who has it too, and the report; it is kept."""
    copy = tmp_path_factory.mktemp("audited") / "model.npz"
    copy.write_bytes((files / "model.npz").read_bytes())
    more = ("--allow", "0.05", "--attacker", str(files / "model.npz"), "--save", "--json")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run(["audit", "traces", str(copy), *command(files, "model.npz", "trace.txt", *more)[3:]])
    return copy, code, json.loads(out.getvalue())


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_model_of_the_readers_does_not(of_the_model):
    _, code, report = of_the_model
    assert code == 0
    assert report["leak"] < 0.05
    assert report["cost"] == pytest.approx(sum(step["cost"] for step in report["steps"]))
    assert report["impossible"] == 0


@pytest.mark.slow(reason="programs are started and waited for")
def test_what_it_says_to_a_person(files, capsys, tmp_path):
    page = tmp_path / "report.html"
    assert run(command(files, "chain.json", "trace.txt", "--html", str(page), "--before", "open")) == 0
    said = capsys.readouterr().out
    assert "If people behave like this trace, 4 open requests after a private one let the server guess it" in said
    assert "with naive switching" in said
    assert "bits given away over the number of OFF requests" in page.read_text()
    assert "<script" not in page.read_text()


@pytest.mark.slow(reason="programs are started and waited for")
def test_an_attacker_may_bring_a_model(of_the_model):
    _, _, report = of_the_model
    assert [step["attackers"]["model.npz"] for step in report["steps"]] == pytest.approx([0] * 4, abs=1e-9)


@pytest.mark.slow(reason="programs are started and waited for")
def test_what_was_measured_is_kept_with_the_chain(files, capsys, tmp_path):
    copy = tmp_path / "chain.json"
    copy.write_bytes((files / "chain.json").read_bytes())
    assert run(["audit", "traces", str(copy), *command(files, "chain.json")[3:], "--save", "--json"]) == 0
    is_kept(json.loads(capsys.readouterr().out), copy, files / "chain.json")


@pytest.mark.slow(reason="programs are started and waited for")
def test_what_was_measured_is_kept_with_the_model(files, of_the_model):
    copy, _, report = of_the_model
    is_kept(report, copy, files / "model.npz")
    assert measured_of(load_model(copy).about) == measured_of(about_of(copy))


def is_kept(report, audited, before):
    """What the report says is in the file that was audited, which is else as it was before."""
    assert "Not measured on real readers" in zero_in_words(measured_of(about_of(before)))
    kept = present(measured_of(about_of(audited)))
    assert kept["bits"] == report["steps"][-1]["bits"]
    assert kept["users"] == 300
    assert load_model(audited).about["audits"]["none"] == kept
    assert f"{kept['bits']:.3f} ± {kept['stderr']:.3f} bits after 4 OFF requests" in zero_in_words(kept)
    assert load_model(audited).digest() == load_model(before).digest()


def test_a_matrix_has_no_place_for_what_was_measured(tmp_path):
    (tmp_path / "chain.csv").write_text("0.5,0.5\n0.25,0.75\n")
    assert measured_of(about_of(tmp_path / "chain.csv")) is None
    with pytest.raises(InvalidInput, match="cannot hold measurements"):
        save_measured(tmp_path / "chain.csv", {})


def test_too_few_long_visits_are_refused(files, capsys):
    assert run([*command(files, "chain.json")[:4], "--after", "9"]) == 3
    assert "too few" in capsys.readouterr().err


def test_the_error_of_an_estimate_is_not_sold_as_what_readers_give_away(files, capsys):
    arguments = [
        "audit",
        "chain",
        str(files / "chain.json"),
        "--traces",
        str(files / "trace.txt"),
        "--scheme",
        "greedy",
    ]
    assert run(arguments) in (0, None)
    said = " ".join(capsys.readouterr().out.split())
    assert "about the estimate of a first-order chain only" in said
    assert "`onoff audit traces` measures it" in said
    assert run([*arguments, "--json"]) in (0, None)
    assert "audit traces" in json.loads(capsys.readouterr().out)["note"]


def test_a_model_is_audited_exactly(files, capsys):
    assert (
        run(["audit", "exact", str(files / "model.npz"), "--scheme", "greedy", "--pattern", "ON ON OFF", "--json"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert report["leak"] == 0
    assert report["steps"][-1]["all_bits"] > 0
    assert run(["audit", "exact", str(files / "model.npz"), "--scheme", "greedy", "--pattern", "ON ON OFF"]) == 0
    assert "Older ones show through the type" in capsys.readouterr().out
    for option in (["--client", "--hide", "2"], ["--sessions", "5"]):
        assert run(["audit", "exact", str(files / "model.npz"), *option]) == 3
        assert option[-2] in capsys.readouterr().err


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_client_of_a_model_is_audited_with_every_fault(tmp_path, capsys):
    model_of(2, 1, 2, 2).save(tmp_path / "model.npz")
    arguments = ["audit", "exact", str(tmp_path / "model.npz"), "--client", "--scheme", "single", "--pattern", "ON OFF"]
    assert run([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["faults"]) == 8
    assert all(line["leak"] == 0 and line["breach"] is None for line in report["faults"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_readers_do_not_wait_for_tables_that_look_ahead(scheme):
    """With `auto` a chain of 17 sources stood still at the first readers for minutes."""
    tables = Session(MarkovChain([[0.7, 0.3], [0.4, 0.6]]), scheme, **table_options(scheme)).tables
    assert not tables.look_ahead
    assert (tables.budget(lasting=True) or 0) <= TABLE_SECONDS


@pytest.fixture(scope="module")
def settled(tmp_path_factory):
    """People who each go to places of their own, whatever the last was, and a guess at how others behave."""
    folder, rng = tmp_path_factory.mktemp("settled"), np.random.default_rng(5)
    names = [f"place{x}" for x in range(6)]
    lines = ["user,source"]
    for user in range(110):
        law = 0.85 * rng.dirichlet(np.full(6, 0.15)) + 0.15 / 6
        lines += [f"{user},{names[x]}" for x in rng.choice(6, size=60, p=law)]
    (folder / "trace.csv").write_text("\n".join(lines))
    MarkovChain(np.full((6, 6), 0.1) + 0.4 * np.eye(6), names).save(folder / "chain.json")
    return folder


@pytest.mark.slow(reason="readers are sent through sessions, and attackers are taught")
def test_a_model_that_is_not_below_naive_exits_5_whatever_is_allowed(settled, capsys):
    options = ("--history", "open", "--after", "3", "--users", "300", "--types", "2", "--allow", "99")
    assert run(["audit", "traces", str(settled / "chain.json"), str(settled / "trace.csv"), *options]) == 5
    said = " ".join(capsys.readouterr().out.split())
    assert "gives away no less than naive switching" in said
    assert "What each person openly asked before had told" in said
    assert "paired difference +0." in said


def test_a_history_ends_right_before_the_private_request(settled, capsys):
    chain, trace = str(settled / "chain.json"), str(settled / "trace.csv")
    assert run(["audit", "traces", chain, trace, "--history", "open", "--before", "private"]) == 3
    assert "ends right before" in capsys.readouterr().err


def test_learning_chooses_how_a_person_s_own_law_is_made(settled, capsys, tmp_path):
    for name in ("model.json", "model.npz"):
        run(["learn", str(settled / "trace.csv"), "-o", str(tmp_path / name)])
        assert "Knowing what a person openly asked, a request takes" in capsys.readouterr().out
        constants = present(constants_of(load_model(tmp_path / name)))
        assert constants["weight"] >= 0.5
        assert starts_of(load_model(tmp_path / name), constants, np.random.default_rng(0), "greedy")(
            Case((0, 1), (True, False), 0, 0, (0, 1, 1))
        ).history
    assert constants_of(load_model(settled / "chain.json")) is None
