"""What `import onoff` gives: the names that are ours, for people, for Python and for type checkers alike."""

import subprocess
import sys
from pathlib import Path

import pytest

import onoff

pytestmark = pytest.mark.slow(reason="other programs are started and waited for")

PROGRAM = Path(__file__).parent / "support" / "user_program.py"
SOURCE = Path(onoff.__file__).parents[1]
CACHE = Path(__file__).parents[1] / ".mypy_cache" / "user"  # what did not change is not read again


def test_dir_holds_only_what_is_ours() -> None:
    assert dir(onoff) == sorted([*onoff.__all__, "__version__"])
    assert len(set(onoff.__all__)) == len(onoff.__all__)
    for name in onoff.__all__:
        assert getattr(onoff, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = onoff.nothing  # type: ignore[attr-defined]


def test_a_users_program_names_everything_public_and_runs() -> None:
    text = PROGRAM.read_text()
    assert [name for name in onoff.__all__ if f"onoff.{name}" not in text] == []
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=True)
    assert done.stdout == "look at the catalogue: did you mean 'left'?\n"


def mypy(program: Path, tmp_path: Path) -> str:
    """What a type checker says to somebody who has installed onoff."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(CACHE), str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={"MYPYPATH": str(SOURCE)}
    )
    return done.stdout + done.stderr


@pytest.mark.slow(reason="mypy reads the whole package when it has changed")
def test_a_users_program_is_typed(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(f"{PROGRAM.read_text()}\nonoff.UnknownSauce\nonoff.MarkovChain([[1.0]]).index(2.5)\n")
    ours = [line for line in mypy(wrong, tmp_path).splitlines() if line.startswith("wrong.py")]
    assert len(ours) == 2, ours  # these two, and nothing in the program itself
    assert '"UnknownSauce"' in ours[0]
    assert "arg-type" in ours[1]
