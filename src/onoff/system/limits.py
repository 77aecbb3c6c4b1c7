"""What this process may use, by each system's means: no core dump, so much memory, so much processor time.

Linux limits both in the kernel. macOS takes no limit of memory, and Windows none of either: there a thread looks every
`_LOOK_SECONDS` and ends the process. Between two looks a process can take what it gets; an honest document never does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from onoff.system.files import optional

resource = optional("resource")

_LOOK_SECONDS = 0.02
OUT_OF_TIME = -signal.SIGPROF if hasattr(signal, "SIGPROF") else 124
"""How a process ended that took too much processor time, as its parent sees it."""


def forbid_core_dumps() -> None:
    """Disable core dumps: what a process knows must not be written to the disk with its image."""
    if resource is not None:
        with suppress(ValueError, OSError):
            _, hard = resource.getrlimit(resource.RLIMIT_CORE)
            resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def limit_memory(most_bytes: int) -> None:
    """End this process, or fail its allocations, once it has more than `most_bytes`."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    except (AttributeError, ValueError, OSError):
        _end_when(lambda: _memory_bytes() > most_bytes, code=1, until=threading.Event())


@contextmanager
def limited_time(seconds: float) -> Iterator[None]:
    """End this process if the block takes more than `seconds` of the processor."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return
    done, end = threading.Event(), time.process_time() + seconds
    _end_when(lambda: time.process_time() > end, code=OUT_OF_TIME, until=done)
    try:
        yield
    finally:
        done.set()


def _end_when(too_much: Callable[[], bool], *, code: int, until: threading.Event) -> None:
    def look() -> None:
        while not until.wait(_LOOK_SECONDS):
            if too_much():
                os._exit(code)

    threading.Thread(target=look, name="onoff-limit", daemon=True).start()


def _memory_bytes() -> int:
    """The most memory that this process has had."""
    if resource is not None:
        unit = 1 if sys.platform == "darwin" else 1024
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
    counters = _Counters(cb=ctypes.sizeof(_Counters))
    windows: Any = ctypes.windll  # type: ignore[attr-defined,unused-ignore]
    process = ctypes.c_void_p(windows.kernel32.GetCurrentProcess())
    windows.psapi.GetProcessMemoryInfo(process, ctypes.byref(counters), counters.cb)
    return int(counters.PeakWorkingSetSize)


class _Counters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of Windows."""

    _fields_ = [
        ("cb", ctypes.c_uint32),
        ("PageFaultCount", ctypes.c_uint32),
        *((name, ctypes.c_size_t) for name in ("PeakWorkingSetSize", "WorkingSetSize")),
        *((f"quota_{number}", ctypes.c_size_t) for number in range(4)),
        *((name, ctypes.c_size_t) for name in ("PagefileUsage", "PeakPagefileUsage")),
    ]
