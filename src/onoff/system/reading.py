"""Reading a file that somebody named: an ordinary one, and no more of it than makes sense."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from onoff.errors import InvalidInput

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
