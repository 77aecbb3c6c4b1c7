"""A redis-server of our own on a Unix socket, that can be killed."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import PATIENCE, until


class Redis:
    """A redis-server process that can be killed and started again on the same files."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.url = f"unix://{self.socket}"
        self._options = options
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        self.process = subprocess.Popen(
            [*command, "--save", "", *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: self._answers() or self.process.poll() is not None)
        assert self.process.poll() is None, "redis-server did not start"

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            line.connect(str(self.socket))
            line.sendall(b"PING\r\n")
            return line.recv(100).startswith(b"+PONG")
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def flush(self) -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.socket))
            line.sendall(b"FLUSHALL\r\n")
            assert line.recv(100).startswith(b"+OK")


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[Redis]:
    assert shutil.which("redis-server"), "redis-server is missing: run `make system`"
    with tempfile.TemporaryDirectory(prefix="onoff-redis-") as folder:  # a short path: sockets need one
        redis = Redis(Path(folder), *options)
        try:
            yield redis
        finally:
            redis.kill()
