"""The deployment files: well-formed, and every command and path in them is one that exists."""

import re
import shlex
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
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


def test_a_call_that_the_unit_refuses_does_not_end_the_server():
    """numpy calls mbind as it is loaded, which is of @resources; without a number the answer is a signal that kills."""
    unit = (DEPLOY / "onoff.service").read_text().splitlines()
    assert "SystemCallFilter=~@privileged @resources" in unit
    assert "SystemCallErrorNumber=EPERM" in unit


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


@pytest.mark.parametrize("name", ["compose.yaml", "compose.redis.yaml", "compose.gateway.yaml"])
def test_compose_files_build_our_image_and_run_our_commands(name):
    composed = yaml.safe_load((DEPLOY / name).read_text())
    ours = [service for service in composed["services"].values() if "build" in service]
    assert ours
    for service in ours:
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
        assert understood(service["command"])
    for service in composed["services"].values():
        assert service["mem_limit"]
        assert service["pids_limit"]
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "build" in service or service["user"] not in {"root", "0"}  # ours says so in its Dockerfile
    volumes = {v.split(":")[0] for service in composed["services"].values() for v in service.get("volumes", [])}
    volumes = {name for name in volumes if not name.startswith(".")}
    assert volumes == set(composed["volumes"])


def test_the_dockerfile_copies_what_is_there_and_installs_extras_that_we_have():
    lines = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", lines, re.MULTILINE) for name in line.split()]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    install, ours = re.findall(r"/pip install (.*?)(?: \\\\)?$", lines, re.MULTILINE)
    assert "--require-hashes --requirement requirements.txt" in install
    assert "--no-deps --no-build-isolation" in ours  # so that nothing comes without a hash
    extras = present(re.search(r"\.\[([\w,]+)\]", lines))[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    command = yaml.safe_load(present(re.search(r"^CMD (\[.*\])$", lines, re.MULTILINE))[1])
    assert understood(command)


def needed(texts, extras=frozenset({""})):
    """The distributions that these requirements lead to in the image, as they are installed here."""
    found = set()
    for requirement in map(Requirement, texts):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            deeper = needed(metadata.requires(requirement.name) or (), frozenset({"", *requirement.extras}))
            found |= {canonicalize_name(requirement.name)} | deeper
    return found


def test_all_that_the_image_installs_has_the_version_of_the_constraints_and_a_hash():
    text = (DEPLOY / "requirements.txt").read_text().replace("\\\n", "")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    constraints = {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in (ROOT / "constraints.txt").read_text().split())
        if version
    }
    listed = {}
    for pinned, *hashes in lines:
        name, _, version = pinned.partition("==")
        listed[canonicalize_name(name)] = version
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
    assert listed == {name: constraints[name] for name in listed}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    ours = [*project["project"]["dependencies"], *extras["valkey"]]
    assert set(listed) == needed([*ours, *project["build-system"]["requires"]])
