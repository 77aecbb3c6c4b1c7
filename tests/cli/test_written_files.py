"""What a command is to write is looked at before it works: a place that cannot be written, or what it reads itself."""

import pytest
from tests.support import others

from onoff.cli import run

CASES = [  # the command, what it works with, and a file that it reads
    ("audit chain chain.json --error 0.1 --html OUT", "onoff.model.chain.MarkovChain.load", "chain.json"),
    ("audit chain chain.json --error 0.1 --plot OUT", "onoff.model.chain.MarkovChain.load", "chain.json"),
    ("audit chain chain.json --traces trace.txt --html OUT", "onoff.model.chain.MarkovChain.load", "trace.txt"),
    ("audit exact chain.json --html OUT", "onoff.cli.audit.load_model", "chain.json"),
    ("audit explain chain.json --html OUT", "onoff.model.chain.MarkovChain.load", "chain.json"),
    ("audit log log.jsonl --chain chain.json --html OUT", "onoff.model.chain.MarkovChain.load", "log.jsonl"),
    ("audit run http://127.0.0.1:9 --chain chain.json --html OUT", "onoff.cli.audit.load_model", "chain.json"),
    ("audit traces chain.json trace.txt --html OUT", "onoff.cli.audit_traces.load_model", "trace.txt"),
    ("design chain.json --save OUT", "onoff.model.chain.MarkovChain.load", "chain.json"),
    ("learn trace.json --format jsonl --output OUT", "onoff.cli.learn.learn", "trace.json"),
    ("serve --store messages.db --source a --backup OUT", "onoff.server.admin.backup", "messages.db"),
    ("sweep spec.toml --output OUT", "onoff.cli.simulate.read_spec", "spec.toml"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("chain.json", "trace.txt", "trace.json", "log.jsonl", "spec.toml"):
        others.document(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "work", "read"), CASES)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(command, work, read, monkeypatch, capsys):
    monkeypatch.setattr(work, lambda *_, **__: pytest.fail("it began to work"))
    assert run(command.replace("OUT", "nowhere/new.json").split()) == 3
    assert "nowhere/new.json: no directory nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "work", "read"), CASES)
def test_what_is_read_is_never_written_over(command, work, read, folder, monkeypatch, capsys):
    monkeypatch.setattr(work, lambda *_, **__: pytest.fail("it began to work"))
    before = others.all_of(folder)
    assert run(command.replace("OUT", f"../{folder.name}/{read}").split()) == 3
    assert f"{read}: this input file would be overwritten" in capsys.readouterr().err
    assert others.all_of(folder) == before


def test_a_model_that_cannot_be_written_to_is_refused_before_it_is_measured(folder, monkeypatch, capsys):
    monkeypatch.setattr("onoff.cli.output.os.access", lambda path, mode: False)
    assert run(["audit", "traces", "chain.json", "trace.txt", "--save"]) == 3
    assert "chain.json: may not be written" in capsys.readouterr().err
