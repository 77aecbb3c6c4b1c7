"""Atomic writes: a file is replaced completely, or stays as it was."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from onoff.errors import InvalidInput, JournalWriteFailed


@contextmanager
def atomic_write(path: Path, *, mode: int = 0o666, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file beside `path` that replaces it when the block ends; if the block raises, `path` stays as it was."""
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
    """Write a file that only the user can read, in such a folder, durably.

    Raises
    ------
    JournalWriteFailed
        The write failed; the file is as it was.
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


LARGEST_LIST = 1 << 26
"""Bytes of a list of names or feeds, of a specification, or of a token."""
_PIECE = 1 << 20


def open_ordinary(path: Path) -> IO[bytes]:
    """The file, for reading. Raises OSError, also for a pipe or device: one would be waited for, or never end."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is opened without waiting for its writer
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def read_limited(path: Path, largest: int = LARGEST_LIST) -> bytes:
    """The content of a file. Raises InvalidInput past `largest` bytes, and OSError."""
    pieces, size = [], 0
    with open_ordinary(path) as file:
        while piece := file.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > largest:
                raise InvalidInput(
                    f"{path}: longer than the {largest} bytes that are read", hint="is it the right file?"
                )
    return b"".join(pieces)
