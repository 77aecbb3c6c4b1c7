"""Inner loops in compiled code: functions of numbers and numpy arrays that numba compiles at their first call.

    @kernel
    def flow(...): ...

Importing a module with kernels does not load numba; the first call does. What was compiled is kept on disk, where numba
keeps it: in NUMBA_CACHE_DIR, else beside the source, else in the user's cache; without any of these, as long as the
process lives. A kernel may call other kernels of its own module, which is how long ones are split by phase.

Loading numba and making a kernel ready (compiling it, or reading its compiled form from the disk) happens once in a
process. `preparing_seconds` says how much of a thread's processor time went there, so that it need not be taken for
work.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, update_wrapper
from time import thread_time
from typing import Any

from onoff.system.interrupts import held_back


class _Preparing(threading.local):
    """What this thread spent on making kernels ready; a kernel may need others, whose time counts once."""

    seconds = 0.0
    under_way = False


_preparing = _Preparing()


def preparing_seconds() -> float:
    """Processor seconds that this thread has spent on loading numba and on making kernels ready."""
    return _preparing.seconds


@contextmanager
def _counted() -> Iterator[None]:
    """Count the processor time inside as preparing; Ctrl-C waits, as a compiler left half way crashes the process."""
    if _preparing.under_way:
        yield
        return
    began, _preparing.under_way = thread_time(), True
    try:
        with held_back():
            yield
    finally:
        _preparing.seconds += thread_time() - began
        _preparing.under_way = False


class Kernel:
    """A function that is compiled for each kind of arguments when it is first called with them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    @cached_property
    def compiled(self) -> Any:
        """What numba makes of the function, for any kind of arguments."""
        with _counted():
            numba = _numba()
            try:
                compiled = numba.njit(cache=True, nogil=True)(self._function)
            except RuntimeError:  # no place for the cache: a read-only installation and a user without a home directory
                compiled = numba.njit(nogil=True)(self._function)
            compiled.compile = _counted()(compiled.compile)  # called for each new kind of arguments
        return compiled


@cache
def _numba() -> Any:
    """numba, which from now on takes a kernel that a kernel calls for its compiled form, and says what it compiles."""
    import numba
    from numba.core import event
    from numba.extending import typeof_impl

    class Notice(event.Listener):  # type: ignore[misc]
        """Says once in a process that kernels are compiled, and not where they are read from the disk."""

        said = False

        def on_start(self, event: Any) -> None:
            if not self.said and event.data["dispatcher"].py_func.__module__.startswith("onoff."):
                Notice.said = True
                with suppress(OSError, AttributeError):  # stderr is closed, or there is none
                    sys.stderr.write("onoff: compiling for this processor, once: up to a minute ...\n")
                    sys.stderr.flush()

        def on_end(self, event: Any) -> None:
            """Nothing: the program goes on."""

    event.register("numba:compile", Notice())
    typeof_impl.register(Kernel, lambda called, _: numba.types.Dispatcher(called.compiled))
    return numba


kernel = Kernel
"""Marks a function of numbers and arrays as a kernel."""
