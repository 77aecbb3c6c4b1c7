"""`onoff gateway --install`: a unit that runs the same command, and its removal."""

import stat
import sys

import pytest

from onoff.cli import run
from onoff.gateway.service import SERVICE_NAME, unit_path

ARGUMENTS = ["--server", "http://127.0.0.1:1", "--log", '/tmp/a "b" 100%$X/seen.jsonl']


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A systemctl that writes down what it is told; `fail` makes it refuse."""
    said = tmp_path / "said"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\n[ ! -e {tmp_path}/fail ] || {{ echo no bus >&2; exit 1; }}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    said.touch()
    return said


def gateway(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["onoff", "gateway", *words])
    return run(["gateway", *words])


def test_it_is_written_started_and_removed(systemctl, tmp_path, monkeypatch, capsys):
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 0
    path = tmp_path / "config" / "systemd" / "user" / SERVICE_NAME
    assert path == unit_path()
    text = path.read_text()
    (command,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    assert command.endswith('"gateway" "--server" "http://127.0.0.1:1" "--log" "/tmp/a \\"b\\" 100%%$$X/seen.jsonl"')
    assert f'"{sys.executable}"' in command
    assert "--install" not in text
    assert systemctl.read_text().splitlines() == ["--user daemon-reload", f"--user enable --now {SERVICE_NAME}"]
    assert gateway(monkeypatch, *ARGUMENTS, "--uninstall") == 0
    assert not path.exists()
    assert f"--user disable --now {SERVICE_NAME}" in systemctl.read_text()
    capsys.readouterr()
    assert gateway(monkeypatch, *ARGUMENTS, "--uninstall") == 3
    assert "there is no such service" in capsys.readouterr().err


def test_a_systemd_that_refuses_is_told(systemctl, tmp_path, monkeypatch, capsys):
    (tmp_path / "fail").touch()
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 1
    assert "no bus" in capsys.readouterr().err


def test_without_systemd_it_says_so(systemctl, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path / "config"))
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 1
    assert "systemctl is not there" in capsys.readouterr().err
