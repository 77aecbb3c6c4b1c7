"""Locks of files between processes, by each system's means.

Where there is `fcntl`, a file is locked whole (shared or exclusive) and by ranges. Windows locks ranges only, and never
shared: there a file belongs to one process for as long as that has it open (`ONE_PROCESS`).
"""

from __future__ import annotations

import os

from onoff.system.files import optional

fcntl, msvcrt = optional("fcntl"), optional("msvcrt")

ONE_PROCESS = fcntl is None
_BEYOND = 1 << 40  # locked in place of the whole file: past its end, so that nobody is kept from reading it


def try_exclusive(file: int) -> bool:
    """Whether this process now holds the whole file alone."""
    if fcntl is not None:
        return _flock(file, fcntl.LOCK_EX)
    os.lseek(file, _BEYOND, os.SEEK_SET)
    try:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def try_shared(file: int) -> bool:
    """Whether this process now holds the whole file together with others that share it."""
    return _flock(file, fcntl.LOCK_SH)


def release(file: int) -> None:
    """Give the whole file back."""
    fcntl.flock(file, fcntl.LOCK_UN)


def lock_range(file: int, start: int, length: int) -> None:
    """Wait until a part of the file is ours alone among processes that lock ranges."""
    fcntl.lockf(file, fcntl.LOCK_EX, length, start)


def release_range(file: int, start: int, length: int) -> None:
    """Give a part of the file back."""
    fcntl.lockf(file, fcntl.LOCK_UN, length, start)


def _flock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
