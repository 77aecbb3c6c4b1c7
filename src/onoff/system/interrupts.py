"""What ends a process: Ctrl-C, at once even inside compiled code; its own end, in order; and too much memory or time.

Python raises KeyboardInterrupt between two steps of the main thread, so a solver that computes for a minute in one
call delays it for a minute. Here a thread is woken by the signal (`signal.set_wakeup_fd`), waits `grace`
seconds for the main thread to end in order, and then ends the process.

A program that handles SIGINT itself, as a server does to finish its answers, is not affected, unless its handler is
marked as `prompt_when_repeated`.

KeyboardInterrupt may be raised inside an import or a callback of an extension module, which turns it into another
error. `was_interrupted` tells such an error from a real one. Raised where Python cannot propagate it, as in `__del__`,
it is lost, and the thread ends the process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from onoff.errors import OnOffError
from onoff.system.files import optional

INTERRUPT_SECONDS = 0.7
"""How long the main thread may take to end in order."""

_Handler = TypeVar("_Handler", bound=Callable[..., object])

_interrupted = threading.Event()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _interrupted.set()
    warnings.simplefilter("ignore")  # of coroutines that never ran, and the like: it says nothing but that
    raise KeyboardInterrupt


_patient_once: set[object] = set()


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed since `end_promptly`, and this process left it to Python's KeyboardInterrupt."""
    return _interrupted.is_set()


def prompt_when_repeated(handler: _Handler) -> _Handler:
    """Mark a handler of SIGINT that may take its time once: after the second the process has to end, as without it."""
    _patient_once.add(handler)
    return handler


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C that comes within the block counts at its end.

    For steps after which something must be closed that nobody could close were it half made. Elsewhere than in the main
    thread, where signals are not handled, it does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: came.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came.is_set():
            signal.raise_signal(signal.SIGINT)


def end_promptly(code: int, farewell: Callable[[], None], *, grace: float = INTERRUPT_SECONDS) -> None:
    """From now on Ctrl-C ends this process within `grace` seconds. Call it once, from the main thread.

    code: The exit code, if the process has to be ended from outside of its main thread.
    grace: Seconds between the signal and that end; until then KeyboardInterrupt may do it in order.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # started in the background, or SIGINT is handled elsewhere
    signal.signal(signal.SIGINT, _interrupt)
    report = sys.unraisablehook

    def report_unless_interrupted(lost: sys.UnraisableHookArgs) -> None:
        if not was_interrupted():  # after it, destructors of half-made objects fail too, as those of llvmlite do
            report(lost)

    sys.unraisablehook = report_unless_interrupted
    reading, writing = socket.socketpair()  # not a pipe: Windows wakes sockets only
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    arguments = (reading, writing, code, farewell, grace)
    threading.Thread(target=_watch, args=arguments, name="onoff-interrupt", daemon=True).start()


def _watch(
    reading: socket.socket, writing: socket.socket, code: int, farewell: Callable[[], None], grace: float
) -> None:
    """`writing` is the signals' end: it stays open as long as this thread has it."""
    prompt: set[object] = {_interrupt}
    while number := reading.recv(1):
        handler = signal.getsignal(signal.SIGINT)
        if number[0] == signal.SIGINT and handler in _patient_once - prompt:
            prompt.add(handler)
        elif number[0] == signal.SIGINT and handler in prompt:
            time.sleep(grace)
            farewell()
            os._exit(code)


# A daemon thread that returns from compiled code while the interpreter is finalized crashes the process. So long
# compiled work runs `uninterrupted`: at shutdown it is told to stop (`is_shutting_down`) and waited for.

SHUTDOWN_SECONDS = 10.0
"""Seconds that the end of the process waits for work under way."""


class ShuttingDown(OnOffError):
    """The process is shutting down: the result is no longer needed."""


class _State:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.changed = threading.Condition()
        self.shutting_down = False
        self.running = 0


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_state.begin)  # after a fork, the working threads exist in the parent only


@contextmanager
def uninterrupted() -> Iterator[None]:
    """The process does not end before this block does, unless it takes too long."""
    with _state.changed:
        check_not_shutting_down()
        _state.running += 1
    try:
        yield
    finally:
        with _state.changed:
            _state.running -= 1
            _state.changed.notify_all()


def is_shutting_down() -> bool:
    """Whether the process is about to end."""
    return _state.shutting_down


def check_not_shutting_down() -> None:
    """Raise ShuttingDown if the process is about to end."""
    if _state.shutting_down:
        raise ShuttingDown("the process is shutting down", hint="start it again to go on")


@atexit.register
def _end() -> None:
    with _state.changed:
        _state.shutting_down = True
        _state.changed.wait_for(lambda: _state.running == 0, SHUTDOWN_SECONDS)


# What a process may use, by each system's means: no core dump, so much memory, so much processor time. Linux limits
# both in the kernel. macOS takes no limit of memory, and Windows none of either: there a thread looks every
# `_LOOK_SECONDS` and ends the process. Between two looks a process can take what it gets; an honest document does not.

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
