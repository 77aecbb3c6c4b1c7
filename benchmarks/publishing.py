"""Publishing at a steady rate, by a process of its own: the same traffic for whatever server is measured.

A publish is one of two acts, both done only when the new message is on disk. `Put` sends it to a server over a kept
connection and waits for the acknowledgement. `Replace` writes a file, syncs it and renames it over the old one, for a
server that only reads files.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PER_SECOND = 200
LINES = 64  # publishers: publishes that may wait for their acknowledgement at once

Act = Callable[[int], bool]  # publish the message of that number; whether it was acknowledged


class Put:
    """The act of a publisher: PUT, on one connection."""

    def __init__(
        self, port: int, paths: list[str], token: str, make_body: Callable[[int], bytes] = b"message %d".__mod__
    ) -> None:
        self.port, self.paths, self.token, self.make_body = port, paths, token, make_body
        self.sock: socket.socket | None = None

    def __call__(self, number: int) -> bool:
        if self.sock is None:
            self.sock = socket.create_connection(("127.0.0.1", self.port))
        body = self.make_body(number)
        head = (
            f"PUT {self.paths[number % len(self.paths)]} HTTP/1.1\r\nhost: bench\r\n"
            f"authorization: Bearer {self.token}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.sock.sendall(head.encode() + body)
        return self._reply().startswith(b"HTTP/1.1 200 ")

    def _reply(self) -> bytes:
        assert self.sock is not None
        reply = b""
        while True:
            piece = self.sock.recv(65536)
            if not piece:
                raise EOFError
            reply += piece
            head, end, rest = reply.partition(b"\r\n\r\n")
            if end:
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if len(rest) >= (int(length[1]) if length else 0):
                    return reply


class Replace:
    """The act of one who keeps static files: write, sync, rename, sync the folder."""

    def __init__(self, folder: Path, names: list[str], frame_size: int) -> None:
        self.folder, self.names, self.frame_size = folder, names, frame_size

    def __call__(self, number: int) -> bool:
        path = self.folder / self.names[number % len(self.names)]
        old = path.read_bytes()
        replace_durably(path, (b"message %d" % number).ljust(self.frame_size, b"\0") + old[self.frame_size :])
        return True


def replace_durably(path: Path, content: bytes) -> None:
    """Put a file in place of another so that it is there after a power cut."""
    fresh = path.with_name(f".{path.name}-{threading.get_ident()}")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Publishing:
    """Publishes while the block runs; afterwards `per_second` and `errors` say what came of it."""

    def __init__(self, make_act: Callable[[], Act]) -> None:
        context = multiprocessing.get_context("spawn")
        self._stopping = context.Event()
        self._told, tell = context.Pipe(duplex=False)
        self._process = context.Process(target=_publish, args=(make_act, self._stopping, tell), daemon=True)
        self.per_second, self.errors = 0.0, 0

    def __enter__(self) -> Publishing:
        self._process.start()
        self._told.recv()  # it is up
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.per_second, self.errors = self._told.recv()
        self._process.join()


def _publish(make_act: Callable[[], Act], stopping: Any, tell: Any) -> None:
    tell.send("up")
    start = time.perf_counter()
    outcomes: list[list[bool]] = [[] for _ in range(LINES)]

    def publish_on_one_line(line: int) -> None:
        act, number = make_act(), line
        while not stopping.wait(max(0.0, start + number / PER_SECOND - time.perf_counter())):
            try:
                outcomes[line].append(act(number))
            except (OSError, EOFError):
                outcomes[line].append(False)
                act = make_act()
            number += LINES

    threads = [threading.Thread(target=publish_on_one_line, args=(line,)) for line in range(LINES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    acknowledged = sum(map(sum, outcomes))
    tell.send((acknowledged / seconds, sum(map(len, outcomes)) - acknowledged))
