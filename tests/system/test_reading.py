"""Files that somebody named: ordinary ones are read up to a limit, and whatever else a path leads to is refused."""

import os
from pathlib import Path

import pytest

from onoff.cli import run
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.system import files
from onoff.system.files import read_limited


def test_a_file_is_read_up_to_the_limit_and_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PIECE", 7)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    assert read_limited(path, 100) == bytes(range(100))
    with pytest.raises(InvalidInput, match="longer than the 99 bytes"):
        read_limited(path, 99)


@pytest.mark.parametrize(
    "command",
    [
        "bounds FILE",
        "plot FILE",
        "plot FILE.parquet",
        "sweep FILE --output new.parquet",
        "learn FILE --format csv --output new.json",
        "audit log FILE --chain chain.json",
        "audit traces chain.json FILE --format csv",
        "publish a FILE --token t --server http://127.0.0.1:1",
        "serve --store m.db --sources FILE",
        "serve --store m.db --feeds FILE",
        "serve --store m.db --restore FILE",
        "serve --store m.db --source a --metrics-token-file FILE",
        "gateway --server http://127.0.0.1:1 --chain FILE",
    ],
)
def test_what_is_not_an_ordinary_file_is_refused_at_once(command, tmp_path, monkeypatch, capsys):
    """A pipe that nobody writes to would be waited for, a device without an end read for ever."""
    monkeypatch.chdir(tmp_path)
    MarkovChain([[0.5, 0.5], [0.5, 0.5]], names=["a", "b"]).save("chain.json")
    os.mkfifo("pipe")
    os.mkfifo("pipe.parquet")
    before = set(Path.cwd().iterdir())
    for file in ("pipe", "/dev/zero") if "parquet" not in command else ("pipe",):
        assert run(command.replace("FILE", file).split()) == 3
        assert "not an ordinary file" in capsys.readouterr().err
    assert set(Path.cwd().iterdir()) == before
