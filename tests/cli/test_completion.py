"""Completion: the script works in a real bash, and knows every command."""

import subprocess

import pytest
from tests.cli.test_help import ONOFF, commands

COMPLETE = """
source /dev/stdin <<< "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_onoff
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script():
    return subprocess.run([ONOFF, "completion", "bash"], capture_output=True, text=True, check=True).stdout


def completed(script, *words):
    run = subprocess.run(["bash", "-c", COMPLETE, "bash", script, *words], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.slow(reason="programs are started and waited for")
def test_it_completes_commands_options_and_choices(script):
    assert completed(script, "onoff", "ga") == {"gateway"}
    assert completed(script, "onoff", "audit", "ex") == {"exact", "explain"}
    assert completed(script, "onoff", "get", "--pr") == {"--private"}
    assert completed(script, "onoff", "completion", "") == {"bash", "zsh", "fish"}


def test_it_knows_every_command(script):
    for path, _ in commands():
        assert path[-1] in completed(script, "onoff", *path[:-1], "")


def test_an_unknown_shell_is_refused():
    run = subprocess.run([ONOFF, "completion", "tcsh"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert "bash" in run.stderr
