"""Files that somebody named: read whole up to a limit, whatever the path leads to, and refused past it."""

import os
import threading
from pathlib import Path

import pytest

from onoff.cli import run
from onoff.errors import InvalidInput
from onoff.system import reading
from onoff.system.reading import read_limited


def test_a_file_is_read_up_to_the_limit_and_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_PIECE", 7)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    assert read_limited(path, 100) == bytes(range(100))
    with pytest.raises(InvalidInput, match="longer than the 99 bytes"):
        read_limited(path, 99)


def test_a_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"through a pipe",))
    writer.start()
    assert read_limited(path) == b"through a pipe"
    writer.join()


@pytest.mark.parametrize(
    "command",
    [
        "bounds /dev/zero",
        "plot /dev/zero",
        "sweep /dev/zero --output new.parquet",
        "publish a /dev/zero --token t --server http://127.0.0.1:1",
        "serve --store m.db --sources /dev/zero",
        "serve --store m.db --feeds /dev/zero",
        "serve --store m.db --source a --metrics-token-file /dev/zero",
    ],
)
def test_a_device_without_an_end_is_refused(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for limit in (
        "onoff.model.chain.LARGEST_FILE",
        "onoff.experiments.plots.LARGEST_FILE",
        "onoff.cli.publish.MAX_LIMIT",
    ):
        monkeypatch.setattr(limit, 1 << 20)
    assert run(command.split()) == 3
    assert "/dev/zero: longer than the" in capsys.readouterr().err
    assert list(Path.cwd().iterdir()) == []
