"""What is handed out: a wheel that is built twice alike, extras that exist, workflows that run what we have."""

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.slow(reason="builds wheel and sdist, twice")
def test_wheel_and_sdist_are_built_twice_alike_and_hold_what_is_needed(tmp_path):
    built = []
    for folder in ("one", "two"):
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        files = sorted((tmp_path / folder).iterdir())
        built.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files})
    assert built[0] == built[1]
    assert [name.partition("-")[0] for name in built[0]] == ["onoff_privacy", "onoff_privacy"]
    (wheel,) = (tmp_path / "one").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        metadata = packed.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"onoff"}
    assert "onoff/py.typed" in names
    assert any(name.endswith("LICENSE") for name in names)
    assert "Name: onoff-privacy" in metadata


def test_extras_that_texts_name_exist():
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {
        extra
        for path in texts
        for found in re.findall(r"onoff-privacy\[([\w,]+)\]|MissingExtra\([^()]*extra=\"([\w,]+)\"\)", path.read_text())
        for extra in "".join(found).split(",")
    }
    assert named
    assert named <= set(PROJECT["optional-dependencies"])


def test_workflows_run_commands_and_extras_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [path.stem for path in workflows] == ["docs", "release", "test"]
    lines = [
        step["run"]
        for path in workflows
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    made = {target for line in lines for target in re.findall(r"\bmake ([a-z-]+)", line)}
    assert made
    assert made <= targets
    extras = {extra for line in lines for found in re.findall(r"-e \.\[([\w,]+)\]", line) for extra in found.split(",")}
    assert extras
    assert extras <= set(PROJECT["optional-dependencies"])
    systems = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    assert systems["everything"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {name.partition("-")[0] for name in systems["other-systems"]["strategy"]["matrix"]["system"]} == {
        "macos",
        "windows",
        "ubuntu",
    }
