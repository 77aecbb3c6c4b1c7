"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from onoff.errors import JournalWriteFailed


@contextmanager
def atomic_write(path: Path, *, mode: int = 0o666, durable: bool = False) -> Iterator[BinaryIO]:
    """A fresh file beside `path` that takes its place when the block ends well; else `path` stays as it was.

    `durable`: once the block has ended, so it is after a power cut too.

    Parameters
    ----------
    path
        The file.
    mode
        Its permissions, where it is new.
    durable
        Whether, once the block has ended, it is so after a power cut too.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
        if durable:
            _sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def write_private(path: Path, content: bytes, consequence: str) -> None:
    """Write a file of the user's own, in a folder of the user's own, durably.

    Parameters
    ----------
    path
        Its place; the folder is made where it is missing.
    content
        All of it.
    consequence
        What a failure leads to, for the message of the error.

    Raises
    ------
    JournalWriteFailed
        Where the disk refuses; what was there is as it was.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_write(path, mode=0o600, durable=True) as file:
            file.write(content)
    except OSError as error:
        raise JournalWriteFailed(f"{path}: {error.strerror}; {consequence}", hint="make room on the disk") from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
