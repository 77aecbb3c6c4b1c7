"""Long commands say what they do, and Ctrl-C ends them with one line, wherever they are."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.waiting import PATIENCE

from onoff.experiments.families import FAMILIES
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
        "design 400.json --budget 3600",
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


def test_a_server_that_is_just_starting_ends_without_noise(tmp_path: Path) -> None:
    program = [
        sys.executable,
        "-c",
        "from onoff.cli import main; main()",
        "serve",
        "--store",
        "messages.db",
        "--port",
        "0",
    ]
    (tmp_path / "names").write_text("a\nb\n")
    with subprocess.Popen(
        [*program, "--sources", "names"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE)
    told = [line for line in rest.splitlines() if not line.startswith(("INFO ", "for readers: "))]
    assert (process.returncode, told) in [(0, []), (130, ["onoff: interrupted"])]  # it served already, or not yet


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
