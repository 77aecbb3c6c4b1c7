"""`onoff gateway --install`: a service that runs the same command, and its removal, by three systems' means."""

import plistlib
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onoff.cli import run
from onoff.gateway import service
from onoff.gateway.service import Launchd, Systemd, TaskScheduler, text_of

ARGUMENTS = ["--server", "http://127.0.0.1:1", "--log", '/tmp/a "b" 100%$X/seen.jsonl']
SERVICE_NAME = "onoff-gateway.service"
MOST_EXPOSED = 3.0  # of 10, as `systemd-analyze security` counts


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A systemctl that writes down what it is told; a word in `fail` is what it refuses."""
    said, fail = tmp_path / "said", tmp_path / "fail"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    refuse = f'grep -qx -- "$2" {fail} && {{ echo no bus >&2; exit 1; }}'
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\n{refuse}\nexit 0\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    said.touch()
    fail.touch()
    return said


def gateway(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["onoff", "gateway", *words])
    return run(["gateway", *words])


def test_it_is_written_started_and_removed(systemctl, tmp_path, monkeypatch, capsys):
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 0
    path = tmp_path / "config" / "systemd" / "user" / SERVICE_NAME
    assert path == Systemd().path()
    text = path.read_text()
    (command,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    assert command.endswith('"gateway" "--server" "http://127.0.0.1:1" "--log" "/tmp/a \\"b\\" 100%%$$X/seen.jsonl"')
    assert f'"{sys.executable}"' in command
    assert f"WorkingDirectory={Path.cwd()}" in text.splitlines()  # where the paths of the command lead from
    assert "--install" not in text
    assert systemctl.read_text().splitlines()[-2:] == ["--user daemon-reload", f"--user enable --now {SERVICE_NAME}"]
    assert gateway(monkeypatch, *ARGUMENTS, "--uninstall") == 0
    assert not path.exists()
    assert f"--user disable --now {SERVICE_NAME}" in systemctl.read_text()
    capsys.readouterr()
    assert gateway(monkeypatch, *ARGUMENTS, "--uninstall") == 3
    assert "there is no such service" in capsys.readouterr().err


@pytest.mark.parametrize("letter", ["\n", "\r", "\x0b", "\x1b", "\x7f", "\udcff"])
def test_an_argument_cannot_add_a_line(systemctl, tmp_path, monkeypatch, capsys, letter):
    """A line of its own could be another command, such as ExecStartPre=."""
    assert gateway(monkeypatch, *ARGUMENTS[:-1], f"a{letter}ExecStartPre=/bin/sh -c true", "--install") == 3
    assert "cannot be written into a service" in capsys.readouterr().err
    assert not (tmp_path / "config").exists()
    assert systemctl.read_text() == ""


@pytest.mark.parametrize("refused", ["daemon-reload", "enable"])
def test_a_systemd_that_refuses_is_told_and_nothing_is_left_behind(systemctl, tmp_path, monkeypatch, capsys, refused):
    (tmp_path / "fail").write_text(f"{refused}\n")
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 1
    assert "no bus" in capsys.readouterr().err
    assert not Systemd().path().exists()
    (tmp_path / "fail").write_text("")
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 0
    before = Systemd().path().read_text()
    (tmp_path / "fail").write_text(f"{refused}\n")
    assert gateway(monkeypatch, "--server", "http://127.0.0.1:2", "--install") == 1
    assert Systemd().path().read_text() == before


def test_without_systemd_it_says_so_and_leaves_nothing_behind(systemctl, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 1
    assert "there is no systemctl here" in capsys.readouterr().err
    assert not (tmp_path / "config").exists()


def test_the_unit_is_closed_to_what_a_gateway_does_not_need():
    given = dict(line.split("=", 1) for line in text_of(Systemd(), ARGUMENTS).splitlines() if "=" in line)
    closed = {
        "CapabilityBoundingSet": "",
        "NoNewPrivileges": "yes",
        "PrivateDevices": "yes",
        "PrivateUsers": "yes",
        "ProtectKernelModules": "yes",
        "ProtectSystem": "full",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
        "RestrictNamespaces": "yes",
        "RestrictSUIDSGID": "yes",
        "UMask": "0077",
    }
    assert {name: given.get(name) for name in closed} == closed
    assert "MemoryDenyWriteExecute" not in given  # compiled kernels are written, then executed


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here to measure by")
def test_systemd_takes_the_unit_and_counts_little_exposure(tmp_path):
    unit = tmp_path / SERVICE_NAME
    unit.write_text(text_of(Systemd(), ARGUMENTS))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert float(shown.split(f"exposure level for {SERVICE_NAME}: ")[1].split()[0]) < MOST_EXPOSED


# -- launchd and the Task Scheduler: programs that write down what they are told, in place of those that are not here --


@pytest.fixture(params=[Launchd, TaskScheduler])
def other(request, tmp_path, monkeypatch):
    """A service of another system, what its program was told, and where to write what it shall refuse."""
    kept: service.Service = request.param()
    said, fail = tmp_path / "said", tmp_path / "fail"
    program = tmp_path / "bin" / kept.program
    program.parent.mkdir()
    refuse = f'grep -qx -- "$1" {fail} && {{ echo not now >&2; exit 1; }}'
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\n{refuse}\nexit 0\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(service, "service_of", lambda: kept)
    said.touch()
    fail.touch()
    return kept, said, fail


def test_other_systems_take_it_and_give_it_back(other, monkeypatch):
    kept, said, _ = other
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 0
    assert _command_in(kept)[-5:] == ["gateway", *ARGUMENTS]
    told = said.read_text().splitlines()
    assert told == [" ".join(words) for words in (*kept.check, *kept.start())]
    assert gateway(monkeypatch, *ARGUMENTS, "--uninstall") == 0
    assert not kept.path().exists()
    assert said.read_text().splitlines()[len(told) :] == [" ".join(words) for words in kept.stop()]


def test_other_systems_that_refuse_are_left_as_they_were(other, monkeypatch, capsys):
    kept, _, fail = other
    fail.write_text(f"{kept.start()[0][0]}\n")
    assert gateway(monkeypatch, *ARGUMENTS, "--install") == 1
    assert "not now" in capsys.readouterr().err
    assert not kept.path().exists()


def _command_in(kept):
    """The words that the service would run."""
    if isinstance(kept, Launchd):
        return plistlib.loads(kept.path().read_bytes())["ProgramArguments"]
    (run_by,) = ElementTree.parse(kept.path()).iter("{http://schemas.microsoft.com/windows/2004/02/mit/task}Exec")
    program, arguments, _ = (part.text for part in run_by)
    assert program == sys.executable
    return shlex.split(arguments or "")  # splits these as Windows does
