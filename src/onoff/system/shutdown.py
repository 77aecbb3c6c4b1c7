"""Orderly shutdown: no thread is inside compiled code when the interpreter is finalized.

A daemon thread that returns from compiled code at that moment crashes the process. So long compiled work runs
`uninterrupted`: when the process shuts down, that work is told to stop (`is_shutting_down`) and waited for.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onoff.errors import OnOffError

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
