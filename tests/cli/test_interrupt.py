"""Long commands say what they do, and Ctrl-C ends them with one line, wherever they are."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.waiting import PATIENCE

from onoff.lab.families import FAMILIES
from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.slow(reason="each command is started, and left to work until it speaks")

SPEAKING_SOON = """
from onoff.cli import main, output
output.progress.__wrapped__.__kwdefaults__["late"] = 0.3  # seconds of work before it speaks
main()
"""
SPEC = 'schemes = ["greedy"]\nhorizons = [1, 2, 3, 4]\nseeds = [{}]\n[[chain]]\nfamily = "dirichlet 1"\nn = [40]\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("long")
    for n in (64, 400):
        P = FAMILIES["dirichlet 0.1"](n, np.random.default_rng(1))
        MarkovChain(P).save(made / f"{n}.json")
    (made / "spec.toml").write_text(SPEC.format(", ".join(map(str, range(2000)))))
    return made


@pytest.mark.parametrize(
    "command",
    [
        "simulate 64.json --users 1000000",
        "bounds 400.json --steps 10000",
        "sweep spec.toml",
        "audit exact 64.json --pattern ON_OFF*9",
        "reproduce",
    ],
    ids=lambda command: command.split()[0],
)
def test_a_long_command_speaks_and_ends_at_once(folder: Path, command: str) -> None:
    words = [word.replace("_", " ") for word in command.split()]
    program = [sys.executable, "-c", SPEAKING_SOON, *words]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("onoff: "), first
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, ""), rest
    assert rest.splitlines()[-1] == "onoff: interrupted"
    assert all(line.startswith("onoff: ") for line in rest.splitlines())


SERVE = ["serve", "--store", "messages.db", "--port", "0", "--sources", "names"]


def noise(told: str) -> list[str]:
    """What a server said beyond what it always says."""
    return [line for line in told.splitlines() if not line.startswith(("INFO ", "for readers: "))]


def test_a_server_that_is_just_starting_ends_without_noise(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a\nb\n")
    with subprocess.Popen(
        [sys.executable, "-c", "from onoff.cli import main; main()", *SERVE],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE)
    # It served already, or not yet.
    assert (process.returncode, noise(rest)) in [(0, []), (130, ["onoff: interrupted"])]


INTERRUPTED_AFTER = """
import signal
from unittest import mock

def and_interrupt(make):
    def made(*arguments, **options):
        try:
            return make(*arguments, **options)
        finally:
            signal.raise_signal(signal.SIGINT)
    return made
"""
COROUTINE = """
from onoff.server import run
run.serve = and_interrupt(run.serve)
"""
LOOP = """
import weakref, uvloop
make = uvloop.new_event_loop

def half_made():  # its last part but one is such a dictionary
    part = weakref.WeakValueDictionary
    with mock.patch.object(part, "__init__", and_interrupt(part.__init__)):
        return make()

uvloop.new_event_loop = half_made
"""


@pytest.mark.parametrize("part", [COROUTINE, LOOP], ids=["coroutine", "loop"])
def test_ctrl_c_just_when_a_part_of_the_server_is_made_leaves_none_open(tmp_path: Path, part: str) -> None:
    """Python complains of a coroutine that never ran, uvloop of a loop that was not closed."""
    (tmp_path / "names").write_text("a\nb\n")
    program = f"{INTERRUPTED_AFTER}{part}\nfrom onoff.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *SERVE], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, noise(done.stderr)) == (0, [])
    assert done.stdout.startswith("http://127.0.0.1:")
    assert "Started server process" not in done.stderr  # it was interrupted before


LOADING = """
import os, signal, sys
if "--multiprocessing-fork" in sys.orig_argv:
    os.write(2, b"loading\\n")  # in one piece, as two workers do
    signal.pause()
"""


def test_ctrl_c_at_a_terminal_while_workers_are_loading_ends_them_without_noise(tmp_path: Path) -> None:
    """A terminal sends it to the whole group of processes."""
    (tmp_path / "names").write_text("a\nb\n")
    (tmp_path / "sitecustomize.py").write_text(LOADING)
    with subprocess.Popen(
        [sys.executable, "-c", "from onoff.cli import main; main()", *SERVE, "--workers", "2"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        while noise(process.stderr.readline()) != ["loading"]:
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # while the first is loading, and perhaps the second
        _, rest = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert set(noise(rest)) <= {"loading"}


CONVERTED = """
import signal
from onoff.cli import app, main

@app.command
def convert():
    try:
        print("ready", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        raise ImportError("numpy.core.multiarray failed to import")

main(["convert"])
"""


def test_an_error_that_an_extension_made_of_ctrl_c_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONVERTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest) == (130, "onoff: interrupted\n")
