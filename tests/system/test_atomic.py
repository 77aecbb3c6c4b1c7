"""Files are replaced whole or stay as they were."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from onoff.system.files import atomic_write


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    return path


@pytest.mark.parametrize("durable", [False, True])
def test_a_block_that_ends_well_replaces_the_file(path, durable):
    with atomic_write(path, durable=durable) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("trouble", [OSError, KeyboardInterrupt])
def test_a_block_that_fails_changes_nothing_and_leaves_nothing(path, trouble):
    def write():
        with atomic_write(path) as file:
            file.write(b"new")
            raise trouble

    with pytest.raises(trouble):
        write()
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_killed_writer_changes_nothing(path):
    program = (
        "import os, pathlib, signal, sys\n"
        "from onoff.system.files import atomic_write\n"
        "with atomic_write(pathlib.Path(sys.argv[1]), durable=True) as file:\n"
        "    file.write(b'new')\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, path], check=False).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def test_what_is_secret_is_so_from_the_start(path):
    with atomic_write(path, mode=0o600) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_writers_do_not_meet(path):
    with atomic_write(path) as one, atomic_write(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"  # its block ended last
