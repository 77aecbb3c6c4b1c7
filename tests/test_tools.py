"""The tools around the tests: what they leave out is said, and what was ever red in a soak is listed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow(reason="other programs are started and waited for")

ROOT = Path(__file__).parents[1]
RED = "def test_red():\n    assert 0\n"
GREEN = "def test_green():\n    pass\n"


@pytest.fixture
def bare_path(tmp_path: Path) -> dict[str, str]:
    """An environment where only Python and a shell are installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("sh", "id"):
        (folder / program).symlink_to(f"/usr/bin/{program}")
    return {**os.environ, "PATH": str(folder)}


def test_without_a_way_to_install_one_line_says_what_is_left_out(bare_path: dict[str, str]) -> None:
    script = str(ROOT / "tests" / "system-packages.sh")
    done = subprocess.run(["/bin/sh", script], env=bare_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    for word in ("chromium", "redis-server", "nginx", "sudo make system"):
        assert word in line


@pytest.mark.slow(reason="pytest is started once more")
def test_tests_without_their_program_are_left_out_and_counted(bare_path: dict[str, str]) -> None:
    """The fixture `where` of the stores has one store in Redis."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/server/test_store.py"]
    only = ["-k", "test_tokens_are_kept_as_digests_only"]
    done = subprocess.run([*command, *only], cwd=ROOT, env=bare_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Left out: 1 tests (redis-server is not installed). `make system` as root" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout


@pytest.mark.slow(reason="pytest is started twice beside a busy process")
@pytest.mark.parametrize(("content", "code", "said"), [(GREEN, 0, " 0 failures"), (RED, 1, "2 x FAILED")])
def test_a_soak_tells_what_was_ever_red(tmp_path: Path, content: str, code: int, said: str) -> None:
    """What its red runs printed is kept, in a folder of this test."""
    (tmp_path / "test_it.py").write_text(content)
    command = [sys.executable, str(ROOT / "tests" / "soak.py"), "--runs", "2", "--busy", "1", str(tmp_path)]
    bare = {**os.environ, "TMPDIR": str(tmp_path)}
    bare["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # its tests need none, and each takes time to load
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout
