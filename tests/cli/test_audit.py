"""`onoff audit`: the agreed JSON, pages that load nothing, and exit codes that a script can rely on."""

import json
import re

import pytest

from onoff.cli import run


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text('{"transition": [[0.8, 0.2], [0.2, 0.8]]}')
    return str(path)


def test_a_private_scheme_exits_0(chain, capsys):
    assert run(["audit", "exact", chain, "--scheme", "single", "--pattern", "ON OFF OFF", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["leak"] == 0
    assert [step["bits"] for step in report["steps"]] == [0, 0, 0]
    assert report["naive"][1] == pytest.approx(0.278, abs=5e-4)


def test_naive_switching_exits_5(chain, capsys):
    assert run(["audit", "exact", chain, "--scheme", "naive", "--pattern", "ON OFF", "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["leak"] == pytest.approx(0.278, abs=5e-4)


def test_the_text_says_where_it_leaks(chain, capsys):
    assert run(["audit", "exact", chain, "--scheme", "naive"]) == 5
    assert "LEAK of" in capsys.readouterr().out
    assert run(["audit", "exact", chain, "--scheme", "single"]) == 0
    assert "exactly 0 bits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--pattern", "ON OF"], 3, "word 2 of the pattern"),
        (["--scheme", "gredy"], 3, "did you mean 'greedy'"),
        (["--memory", "bayes"], 3, "no memory called"),
        (["--patern", "ON"], 2, "patern"),
    ],
)
def test_bad_input_is_named(chain, capsys, arguments, code, complaint):
    assert run(["audit", "exact", chain, *arguments]) == code
    caught = capsys.readouterr()
    assert complaint in caught.err
    assert caught.out == ""


def test_a_missing_file_exits_3(capsys):
    assert run(["audit", "exact", "nowhere.json"]) == 3
    assert "nowhere.json: No such file" in capsys.readouterr().err


def run_json(capsys, *arguments, code=0):
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def check_page(path):
    """One page that loads nothing: no script, no address that anything could be fetched from."""
    text = path.read_text()
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", text)
    assert "@import" not in text
    assert "<image" not in text
    return text


def test_simulated_sessions_verify_tables(chain, capsys, tmp_path):
    report = run_json(capsys, "audit", "exact", chain, "--scheme", "single", "--sessions", "5", "--pattern", "ON OFF")
    assert report["sessions"] == 5
    assert report["tables"] == 1
    assert report["breach"] is None
    assert run(["audit", "exact", chain, "--scheme", "single", "--sessions", "5"]) == 0
    assert "by equality of integers" in capsys.readouterr().out
    page = tmp_path / "met.html"
    assert run(["audit", "exact", chain, "--scheme", "single", "--sessions", "5", "--html", str(page)]) == 0
    assert "by equality of integers" in check_page(page)


def test_sessions_say_what_they_will_take(chain, capsys):
    """The most that there can be before the first session, and the time after it."""
    pattern = ["--sessions", "5", "--pattern", "ON OFF OFF"]
    assert run(["audit", "exact", chain, "--scheme", "optimal", *pattern]) == 0
    first, *later = capsys.readouterr().err.splitlines()
    assert first == (
        "onoff: 5 sessions of 3 requests: at most 10 tables, each of up to 120 s of processor time; none is built twice"
    )
    assert any(re.fullmatch(r"onoff: at most about \d+ s more, going by the first session", line) for line in later)
    assert run(["audit", "exact", chain, "--scheme", "single", *pattern]) == 0
    assert "at most 10 tables; none is built twice" in capsys.readouterr().err


def test_the_exact_report_as_a_page(chain, capsys, tmp_path):
    page = tmp_path / "exact.html"
    assert run(["audit", "exact", chain, "--scheme", "naive", "--pattern", "ON OFF", "--html", str(page)]) == 5
    text = check_page(page)
    assert "LEAK of 0.278" in text
    assert text.count("<svg") == 1
    assert 'class="bad"' in text


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"transition": [[0.7, 0.3], [0.2, 0.8]]}')
    return str(path)


def test_a_chain_against_another(chain, other, capsys, tmp_path):
    page, picture = tmp_path / "chain.html", tmp_path / "chain.svg"
    report = run_json(
        capsys,
        "audit",
        "chain",
        chain,
        "--against",
        other,
        "--scheme",
        "single",
        "--html",
        str(page),
        "--plot",
        str(picture),
    )
    assert report["error"] == pytest.approx(0.1)
    assert 0 < report["exact"]["bits"] < report["upper"]["bits"]
    assert report["steps"][1]["bits"] == pytest.approx(report["exact"]["bits"])
    assert "<svg" in check_page(page)
    assert picture.read_text().startswith("<svg")
    assert run(["audit", "chain", chain, "--against", other, "--scheme", "single"]) == 0
    assert "cited" in capsys.readouterr().out


def test_a_chain_that_is_off_by_an_error(chain, capsys):
    report = run_json(capsys, "audit", "chain", chain, "--error", "0.05", "--scheme", "single")
    assert report["exact"]["bits"] == max(found["bits"] for found in report["directions"].values())
    assert run(["audit", "chain", chain, "--error", "0.05", "--scheme", "single"]) == 0
    assert "the worst found is" in capsys.readouterr().out


def test_a_chain_known_from_traces(chain, capsys, tmp_path):
    trace, page = tmp_path / "clicks.txt", tmp_path / "page.html"
    trace.write_text("source-1 source-1 source-2\nsource-2 source-2 source-1\n" * 50)
    report = run_json(
        capsys, "audit", "chain", chain, "--traces", str(trace), "--scheme", "single", "--html", str(page)
    )
    assert report["sampling"]["transitions"] == 200
    assert report["sampling"]["fewest"] == 100
    assert "typically off by" in check_page(page)


def test_one_question_at_a_time(chain, other, capsys):
    assert run(["audit", "chain", chain]) == 3
    assert run(["audit", "chain", chain, "--error", "0.1", "--against", other]) == 3
    assert "give one of" in capsys.readouterr().err


def test_explain_for_a_person(chain, capsys, tmp_path):
    page = tmp_path / "explain.html"
    arguments = ["audit", "explain", chain, "--pattern", "ON OFF", "--scheme", "single"]
    report = run_json(capsys, *arguments, "--html", str(page))
    assert report["requests"][0] == pytest.approx({"t": 0, "prior": 0.5, "earlier": 0.5, "ours": 0.5, "naive": 0.8})
    assert "After a private request, queries add nothing." in check_page(page)
    assert run(arguments) == 0
    assert "still 50.0%" in capsys.readouterr().out


def test_a_log_is_recomputed(chain, capsys, tmp_path):
    log, page = tmp_path / "log.jsonl", tmp_path / "log.html"
    log.write_text('{"step": 0, "private": true, "sources": [0, 1]}\n{"step": 1, "private": false, "sources": [0]}\n')
    arguments = ["audit", "log", str(log), "--chain", chain, "--scheme", "single"]
    assert run_json(capsys, *arguments)["sound"]
    assert run(arguments) == 0
    assert "All 2 queries" in capsys.readouterr().out
    log.write_text('{"step": 0, "private": true, "sources": [0]}\n')
    assert run([*arguments, "--html", str(page)]) == 5
    assert "ON, but only 1 of the 2" in capsys.readouterr().out
    assert "ON, but only 1 of the 2" in check_page(page)
    log.write_text("\n")
    assert run(arguments) == 3
    assert "no query in it" in capsys.readouterr().err
    log.write_text("{\n")
    assert run(arguments) == 3
    assert "line 1 is not JSON" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_named(chain, capsys, tmp_path):
    assert run(["audit", "explain", chain, "--scheme", "single", "--html", str(tmp_path / "no" / "page.html")]) == 3
    assert "no directory" in capsys.readouterr().err


@pytest.mark.slow(reason="programs are started and waited for")
def test_the_client_with_every_fault(chain, capsys, tmp_path):
    page = tmp_path / "client.html"
    arguments = ["audit", "exact", chain, "--scheme", "single", "--client", "--pattern", "ON OFF", "--html", str(page)]
    report = run_json(capsys, *arguments)
    assert report["leak"] == 0
    assert len(report["faults"]) == 8
    assert all(line["leak"] == 0 and line["breach"] is None for line in report["faults"])
    assert run(arguments) == 0
    assert "crash after sending" in capsys.readouterr().out
    assert "crash after sending" in check_page(page)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--client", "--sessions", "5"],
        ["--client", "--everything"],
        ["--client", "--memory", "bayes-filter"],
        ["--sessions", "5", "--memory", "bayes-filter"],
        ["--scheme", "race"],
        ["--scheme", "race", "--client", "--pattern", "ON OFF"],
        ["--scheme", "race", "--sessions", "5"],
    ],
)
def test_what_the_exact_audit_cannot_do_is_refused(chain, capsys, arguments):
    """Rather than passed over, or answered with a traceback."""
    assert run(["audit", "exact", chain, *arguments]) == 3
    caught = capsys.readouterr()
    assert caught.out == ""
    assert len(caught.err.splitlines()) == 2


@pytest.mark.parametrize(("truth", "says"), [([0.8, 0.2], "fits their tables"), ([0.4, 0.6], "does not fit")])
def test_how_often_queries_were_drawn_is_compared_with_their_tables(chain, truth, says, capsys, tmp_path):
    """500 pairs of ON and OFF, as draws expect them: for the chain itself exactly, for a restless user far from it.

    After a private request 0 the table asks {0} with 0.2 / 0.8, and everything with the rest; {1} likewise.
    """
    stay, leave = truth
    plain = round(250 * (stay * 0.25 + leave))  # of 250 users at either source, who stays and who leaves for it
    log, step, lines = tmp_path / "log.jsonl", 0, []
    for sources, count in (([0], plain), ([1], plain), ([0, 1], 500 - 2 * plain)):
        for _ in range(count):
            lines += [{"step": step, "private": True, "sources": [0, 1]}]
            lines += [{"step": step + 1, "private": False, "sources": sources}]
            step += 2
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["audit", "log", str(log), "--chain", chain, "--scheme", "single"]) == 0
    assert says in capsys.readouterr().out


def test_a_pattern_that_is_too_long_is_refused_before_it_takes_long(chain, capsys):
    assert run(["audit", "exact", chain, "--scheme", "single", "--pattern", "OFF*40"]) == 3
    assert "40 steps make about 10^12 worlds, 2 times as many at each step" in capsys.readouterr().err
