"""The deployment files: well-formed, and every command and path in them is one that exists."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.support.typed import present

from onoff.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def understood(arguments):
    """Whether our command line takes these arguments."""
    command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    return command.__name__ == f"{arguments[0]}_command" and bound is not None


def test_the_check_itself_can_fail():
    assert understood(["serve", "--port", "1"])
    with pytest.raises(Exception, match="nonsense"):
        understood(["serve", "--nonsense"])


def test_the_unit_runs_a_command_that_we_have():
    unit = (DEPLOY / "onoff.service").read_text()
    program, *arguments = shlex.split(present(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE))[1])
    assert program.endswith("/onoff")
    assert understood(arguments)


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd here, and tests install none: its package would change how the machine starts",
)
def test_systemd_accepts_the_unit(tmp_path):
    unit = (DEPLOY / "onoff.service").read_text().replace("/opt/onoff/bin/onoff", "/bin/true")  # only that it is there
    (tmp_path / "onoff.service").write_text(unit)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "onoff.service")], capture_output=True, text=True
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("name", ["compose.yaml", "compose.redis.yaml"])
def test_compose_files_build_our_image_and_run_our_commands(name):
    composed = yaml.safe_load((DEPLOY / name).read_text())
    ours = [service for service in composed["services"].values() if "build" in service]
    assert ours
    for service in ours:
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
        assert understood(service["command"])
        assert service["cap_drop"] == ["ALL"]
    assert all(service["mem_limit"] and service["pids_limit"] for service in composed["services"].values())
    volumes = {v.split(":")[0] for service in composed["services"].values() for v in service.get("volumes", [])}
    assert volumes == set(composed["volumes"])


def test_the_dockerfile_copies_what_is_there_and_installs_extras_that_we_have():
    lines = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", lines, re.MULTILINE) for name in line.split()]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    extras = present(re.search(r"\.\[([\w,]+)\]", lines))[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    command = yaml.safe_load(present(re.search(r"^CMD (\[.*\])$", lines, re.MULTILINE))[1])
    assert understood(command)
