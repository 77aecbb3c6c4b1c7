"""Inner loops that are compiled if numba is installed, and plain Python if not.

A kernel is an ordinary function of numbers and numpy arrays. `@kernel` leaves it as it is until its calls, one or
many together, have enough work to pay for loading numba (about a second) and compiling (cached on disk); from
then on the compiled form is used. Both forms are the same source, so there is nothing to keep in step, and
`kernel.python` is always there to compare with. A kernel may call other kernels of its own module, which is how long
ones are split by phase: compiled it calls their compiled form, in Python their plain one.

    @kernel
    def flow(...): ...

    flow(..., effort=rows * columns)

Loading numba and making a kernel ready (compiling it, or reading its compiled form from the disk) happens once in a
process. `preparing_seconds` says how much of a thread's processor time went there, so that it need not be taken for
work.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, update_wrapper
from importlib.util import find_spec
from time import thread_time
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, cast

WORTH_COMPILING = 20_000
"""Inner-loop steps from which compiling pays."""

Parameters = ParamSpec("Parameters")
_Result = TypeVar("_Result")


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
    """Count the processor time inside as preparing."""
    if _preparing.under_way:
        yield
        return
    began, _preparing.under_way = thread_time(), True
    try:
        yield
    finally:
        _preparing.seconds += thread_time() - began
        _preparing.under_way = False


class Kernel(Generic[Parameters, _Result]):
    """A function with a plain and, on demand, a compiled form."""

    def __init__(self, function: Callable[Parameters, _Result]) -> None:
        self.python = function
        self._spent = 0
        self._preparing: threading.Thread | None = None
        self._prepared: Callable[..., _Result] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: Any, effort: int = 0) -> _Result:
        """Call it; effort: about how many steps the inner loop takes."""
        self._spent += effort
        if self._spent >= WORTH_COMPILING or "numba" in sys.modules:
            return self.compiled(*args)
        return cast("Callable[..., _Result]", self.python)(*args)

    @cached_property
    def compiled(self) -> Callable[..., _Result]:
        """The compiled function, or the plain one where numba is not installed."""
        with _counted():
            try:
                import numba
            except ImportError:
                return self.python
            source = self._calling_compiled()
            try:
                compiled = numba.njit(cache=True, nogil=True)(source)
            except RuntimeError:  # no place for the cache: a read-only installation and a user without a home directory
                compiled = numba.njit(nogil=True)(source)
            compiled.compile = _counted()(compiled.compile)  # called for each new kind of arguments
        return cast("Callable[..., _Result]", compiled)

    def if_ready(self, *example: Any) -> Callable[..., _Result] | None:
        """The compiled function, or None as long as it is not ready: a thread loads numba and compiles meanwhile.

        For a program that must not wait for that, and has another implementation to use until then. `example` are
        arguments of the kinds that it will be called with; the function is called with them once.
        """
        if self._prepared is None and self._preparing is None:
            self._preparing = threading.Thread(target=self._prepare, args=example, name="onoff-kernel")
            self._preparing.start()
        return self._prepared

    def _prepare(self, *example: Any) -> None:
        compiled = self.compiled
        if compiled is not self.python:
            compiled(*example)
            self._prepared = compiled

    def _calling_compiled(self) -> Callable[Parameters, _Result]:
        """The function with the compiled form of every kernel that it calls in the place of the kernel."""
        function = cast("FunctionType", self.python)
        called = {name: function.__globals__.get(name) for name in function.__code__.co_names}
        kernels = {name: value.compiled for name, value in called.items() if isinstance(value, Kernel)}
        if not kernels:
            return self.python
        copy = FunctionType(function.__code__, {**function.__globals__, **kernels}, function.__name__)
        copy.__doc__, copy.__qualname__, copy.__module__ = function.__doc__, function.__qualname__, function.__module__
        return cast("Callable[Parameters, _Result]", copy)


def can_compile() -> bool:
    """Whether numba is installed, for code that goes another way without it. Does not load it."""
    return find_spec("numba") is not None


def kernel(function: Callable[Parameters, _Result]) -> Kernel[Parameters, _Result]:
    """Mark a function of numbers and arrays as a kernel. Of our functions it calls kernels of its own module only."""
    return Kernel(function)
