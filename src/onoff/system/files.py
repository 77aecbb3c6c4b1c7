"""Files by each system's means: opened for us alone, replaced completely or not at all, durable when we say so.

What Linux has and another system lacks is asked for by name, so that every module imports everywhere: Windows has no
O_CLOEXEC (nothing is inherited there unless asked for), no O_NOFOLLOW and no way to open a folder; macOS keeps what
`fsync` wrote in the drive's cache, and has F_FULLFSYNC for those who mean it.
"""

from __future__ import annotations

import errno
import importlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from onoff.errors import InvalidInput, JournalWriteFailed


def optional(module: str) -> Any:
    """A module that not every system has, or None."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


_fcntl, _msvcrt = optional("fcntl"), optional("msvcrt")
_ALWAYS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOINHERIT", "O_BINARY"))
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_FULL_SYNC = getattr(_fcntl, "F_FULLFSYNC", None)


def open_private(path: str | Path, flags: int, *, follow: bool = True) -> int:
    """A descriptor of the file, which its owner alone can read where this makes it, and which no child inherits.

    follow: Whether `path` may be a symbolic link.
    """
    if not follow and not _NO_FOLLOW and Path(path).is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, flags | _ALWAYS | (0 if follow else _NO_FOLLOW), 0o600)


def make_durable(file: int) -> None:
    """What was written to the descriptor is on the disk when this returns."""
    if _FULL_SYNC is not None:
        with suppress(OSError):  # a network drive has none: what fsync does is all that it offers
            _fcntl.fcntl(file, _FULL_SYNC)
            return
    os.fsync(file)


def allocate(file: int, size: int) -> None:
    """Make the file at least `size` bytes long, and own the room: writing there can then not fail for want of it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    length = os.lseek(file, 0, os.SEEK_END)
    while length < size:
        length += os.write(file, bytes(min(size - length, _PIECE)))


@contextmanager
def atomic_write(path: Path, *, mode: int = 0o666, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file beside `path` that replaces it when the block ends; if the block raises, `path` stays as it was."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _ALWAYS, mode), "wb") as file:
            yield file
            if durable:
                file.flush()
                make_durable(file.fileno())
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
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folder; its file system journals the change of name
    handle = os.open(folder, os.O_RDONLY)
    try:
        make_durable(handle)
    finally:
        os.close(handle)


LARGEST_LIST = 1 << 26
"""Bytes of a list of names or feeds, of a specification, or of a token."""
_PIECE = 1 << 20


def open_ordinary(path: Path) -> IO[bytes]:
    """The file, for reading. Raises OSError, also for a pipe or device: one would be waited for, or never end."""
    file = os.open(path, os.O_RDONLY | _NO_WAIT | _ALWAYS)  # a pipe is opened without waiting for its writer
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


# Locks between processes. Where there is `fcntl`, a file is locked whole (shared or exclusive) and by ranges. Windows
# locks ranges only, and never shared: there a file belongs to one process for as long as that has it open.

ONE_PROCESS = _fcntl is None
_BEYOND = 1 << 40  # locked in place of the whole file: past its end, so that nobody is kept from reading it


def lock_alone(file: int) -> bool:
    """Whether this process now holds the whole file alone."""
    if _fcntl is not None:
        return _flock(file, _fcntl.LOCK_EX)
    os.lseek(file, _BEYOND, os.SEEK_SET)
    try:
        _msvcrt.locking(file, _msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def lock_shared(file: int) -> bool:
    """Whether this process now holds the whole file together with others that share it."""
    return _flock(file, _fcntl.LOCK_SH)


def unlock(file: int) -> None:
    """Give the whole file back."""
    _fcntl.flock(file, _fcntl.LOCK_UN)


def lock_range(file: int, start: int, length: int) -> None:
    """Wait until a part of the file is ours alone among processes that lock ranges."""
    _fcntl.lockf(file, _fcntl.LOCK_EX, length, start)


def unlock_range(file: int, start: int, length: int) -> None:
    """Give a part of the file back."""
    _fcntl.lockf(file, _fcntl.LOCK_UN, length, start)


def _flock(file: int, kind: int) -> bool:
    try:
        _fcntl.flock(file, kind | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
