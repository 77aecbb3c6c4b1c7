"""Whatever stdout and stderr are: a full disk, closed, a reader that left, or of an encoding that lacks letters."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ONOFF = str(Path(sys.executable).parent / "onoff")
CHAIN = {"names": ["ä", "weather ☀", "c"], "transition": [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]]}
SAID = "onoff: cannot write what was found: No space left on device\n"

pytestmark = pytest.mark.slow(reason="programs are started")


@pytest.fixture(autouse=True)
def chain(tmp_path, monkeypatch):
    (tmp_path / "chain.json").write_text(json.dumps(CHAIN))
    monkeypatch.chdir(tmp_path)


def ended(command, where="", **variables):
    """A command of the shell's, with its streams sent elsewhere."""
    environment = {**os.environ, **variables}
    line = f"{shlex.quote(ONOFF)} {command} {where}"
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=False)
    # On a busy machine whatever takes two seconds says so: that is not what is tested here.
    kept = [said for said in done.stderr.splitlines(keepends=True) if not said.endswith(b" ...\n")]
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, b"".join(kept))


@pytest.mark.parametrize("command", ["--version", "--help", "bounds chain.json", "bounds chain.json --json"])
def test_a_full_disk_is_one_line_and_a_failure(command):
    done = ended(command, "> /dev/full")
    assert (done.returncode, done.stderr.decode()) == (1, SAID)


def test_an_error_that_cannot_be_printed_as_json_keeps_its_exit_code():
    done = ended("bounds nowhere.json --json", "> /dev/full")
    assert done.returncode == 3
    assert done.stderr.decode().startswith("onoff: nowhere.json: No such file")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-", "| true"])
def test_streams_that_somebody_closed_change_nothing(closed):
    done = ended("bounds chain.json", closed)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_is_said_goes_to_stdout_never():
    """Without stderr, Python would print there what is meant for it."""
    assert ended("bounds nowhere.json", "2>&-").stdout == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("command", ["audit explain", "simulate --users 10", "design --table", "doctor --chain"])
def test_an_encoding_that_lacks_letters_prints_all_the_same(command, encoding):
    done = ended(f"{command} chain.json", PYTHONIOENCODING=encoding, ONOFF_SERVER="http://127.0.0.1:1")
    assert done.returncode == (4 if "doctor" in command else 0), done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_the_same_document_in_every_encoding(encoding):
    done = ended("design chain.json --table --json", PYTHONIOENCODING=encoding)
    assert json.loads(done.stdout.decode(encoding))["names"] == CHAIN["names"]
