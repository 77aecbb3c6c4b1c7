"""No command is silent while it works: whatever is slow in it, stderr says what is under way.

What may be slow is made so here: it goes on only once a new line was heard on stderr.
"""

import io
import sys
import threading

import pytest
from tests.support.waiting import PATIENCE

from onoff.cli import app, output, run
from onoff.errors import InvalidInput
from onoff.wire import Catalogue

CASES = [  # the command, and what takes long in it
    ("audit chain chain.json --error 0.1", "onoff.model.chain.MarkovChain.load"),
    ("audit chain chain.json --error 0.1", "onoff.lab.mismatch.error_curve"),
    ("audit chain chain.json --against chain.json", "onoff.lab.mismatch.first_step"),
    ("audit chain chain.json --traces trace.txt", "onoff.lab.mismatch.sampling_error"),
    ("audit chain chain.json --error 0.1 --html new.html", "onoff.cli.audit.write"),
    ("audit exact chain.json", "onoff.cli.audit.load_model"),
    ("audit exact chain.json", "onoff.cli.audit.audit_exact"),
    ("audit exact chain.json --html new.html", "onoff.cli.audit.write"),
    ("audit exact chain.json --sessions 10", "onoff.cli.audit.audit_identities"),
    ("audit exact chain.json --client --pattern ON", "onoff.audit.client.audit_client"),
    ("audit explain chain.json", "onoff.model.chain.MarkovChain.load"),
    ("audit explain chain.json", "onoff.cli.audit.explain"),
    ("audit explain chain.json --html new.html", "onoff.cli.audit.write"),
    ("audit log log.jsonl --chain chain.json", "onoff.model.chain.MarkovChain.load"),
    ("audit log log.jsonl --chain chain.json", "onoff.cli.audit.audit_log"),
    ("audit log log.jsonl --chain chain.json --html new.html", "onoff.cli.audit.write"),
    ("audit run http://127.0.0.1:9 --chain chain.json", "onoff.cli.audit.load_model"),
    ("audit run http://127.0.0.1:9 --chain chain.json", "onoff.cli.audit.collect"),
    ("audit traces chain.json trace.txt", "onoff.cli.audit_traces.load_model"),
    ("audit traces chain.json trace.txt", "onoff.cli.audit_traces.Trace"),
    ("audit traces chain.json trace.txt --after 1", "onoff.cli.audit_traces.RequestModel.fit"),
    ("bounds chain.json", "onoff.model.chain.MarkovChain.load"),
    ("bounds chain.json", "onoff.cli.design.step_bounds"),
    ("compare chain.json", "onoff.cli.compare.design"),
    ("compare chain.json", "onoff.model.chain.MarkovChain.load"),
    ("catalogue --server http://127.0.0.1:9", "onoff.upstream.message_server.fetch_catalogue"),
    ("catalogue --store new.db", "onoff.server.admin.edit_catalogue"),
    ("demo --model chain.json", "onoff.cli.demo.load_model"),
    ("demo --exit --no-browser", "onoff.cli.demo.city_running"),
    ("demo --feeds --exit --no-browser", "onoff.cli.demo.everything_running"),
    ("demo --exit --no-browser --json", "onoff.cli.demo.Reader.step"),
    ("design chain.json", "onoff.model.chain.MarkovChain.load"),
    ("design chain.json", "onoff.cli.design.design"),
    ("design chain.json", "onoff.cli.design.bounds"),
    ("design chain.json --save new.npz", "onoff.cli.design.write_table"),
    ("design chain.json --picture new.svg", "onoff.cli.design.draw_table"),
    ("design chain.json --check old.npz", "onoff.cli.design.read_table"),
    ("doctor --chain chain.json --server http://127.0.0.1:9", "onoff.cli.doctor.load_model"),
    ("doctor --server http://127.0.0.1:9", "onoff.cli.doctor.fetch_catalogue"),
    ("doctor --upstream feeds.txt", "onoff.cli.doctor.WebSources.refresh"),
    ("gateway --port 0 --chain chain.json --server http://127.0.0.1:9", "onoff.model.contexts.load_model"),
    ("gateway --port 0 --server http://127.0.0.1:9", "onoff.gateway.engine.Engine"),
    ("get a --server http://127.0.0.1:9", "onoff.cli.get.Client"),
    ("learn trace.txt", "onoff.cli.learn.learn"),
    ("learn trace.txt -o new.json", "onoff.cli.learn.Learnt.save"),
    ("mirror refresh --server http://127.0.0.1:9", "onoff.cli.get.MirrorClient"),
    ("mirror refresh --upstream feeds.txt", "onoff.cli.get.WebSources"),
    ("mirror show --mirror log.jsonl", "onoff.cli.get.Mirror"),
    ("mirror verify --mirror log.jsonl", "onoff.cli.get.Mirror"),
    ("mirror forget --mirror log.jsonl", "onoff.cli.get.Mirror"),
    ("model --server http://127.0.0.1:9 -o new.json", "onoff.cli.learn.fetch_catalogue"),
    ("model --server http://127.0.0.1:9 -o new.json", "onoff.cli.learn.from_template"),
    ("model --server http://127.0.0.1:9 -o new.json", "onoff.cli.learn.bounds"),
    ("plot chain.json", "onoff.cli.design.figures_of"),
    ("plot chain.json", "onoff.cli.design.save_all"),
    ("publish a chain.json --token t --server http://127.0.0.1:9", "onoff.upstream.message_server.publish"),
    ("reproduce --only E5", "onoff.cli.simulate.reproduce"),
    ("reproduce --only E5 --out figures", "onoff.cli.simulate.save_figures"),
    ("serve --store new.db --source a", "onoff.server.admin.prepare"),
    ("serve --store new.db --follow http://127.0.0.1:9", "onoff.server.admin.prepare_to_follow"),
    ("serve --store new.db --source a --backup b", "onoff.server.admin.backup"),
    ("serve --store new.db --restore log.jsonl", "onoff.server.admin.restore"),
    ("serve --store new.db --feeds feeds.txt", "onoff.server.admin.name_listed"),
    ("simulate chain.json", "onoff.cli.simulate.load_model"),
    ("simulate chain.json", "onoff.cli.simulate.compare"),
    ("sweep spec.toml", "onoff.cli.simulate.read_spec"),
    ("sweep spec.toml", "onoff.cli.simulate.sweep"),
]
SOON_DONE = {
    "completion": "prints a script",
    "config": "reads one small file",
    "state": "reads the one small file of a journal, or deletes it",
}


class Heard(io.StringIO):
    """A stderr that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.line = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if " s) ..." in text:
            self.line.set()
        return written


@pytest.mark.parametrize(("command", "slow"), CASES)
def test_a_command_says_what_it_does_while_that_is_slow(command, slow, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onoff.cli.learn.fetch_catalogue", lambda server: Catalogue(("a", "b")))
    (tmp_path / "chain.json").write_text('{"names": ["a", "b"], "transition": [[0.8, 0.2], [0.3, 0.7]]}')
    (tmp_path / "trace.txt").write_text("a b a a\n" * 400)
    (tmp_path / "log.jsonl").write_text('{"step": 0, "private": true, "sources": [0, 1]}\n')
    (tmp_path / "feeds.txt").write_text("http://127.0.0.1:9/feed.xml\n")
    (tmp_path / "spec.toml").write_text('schemes = ["greedy"]\n[[chain]]\nfile = "chain.json"\n')
    monkeypatch.setattr(output, "LATE_SECONDS", 0.001)
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)

    def wait_to_be_told(*arguments: object, **options: object) -> None:
        heard.line.clear()
        raise InvalidInput("told" if heard.line.wait(PATIENCE) else "silence")

    monkeypatch.setattr(slow, wait_to_be_told)
    code = run(command.split())
    assert "told" in heard.getvalue() + capsys.readouterr().out, (code, heard.getvalue())


def test_every_command_is_among_the_cases_or_soon_done():
    commands = {name for name in app if not name.startswith("-")}
    groups = {f"{group} {name}" for group in ("audit", "mirror") for name in app[group] if not name.startswith("-")}
    tried = {" ".join(command.split()[:words]) for command, _ in CASES for words in (1, 2)}
    assert commands - tried == set(SOON_DONE)
    assert groups <= tried
