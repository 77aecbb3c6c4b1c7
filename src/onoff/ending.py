"""Ending in good order: no thread is inside compiled code when the interpreter is taken down.

A daemon thread that comes back from compiled code at that moment crashes the process. So work that is long and
compiled is done `under_way`; when the process ends, whoever does it is told (`check` raises) and waited for.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onoff.errors import OnOffError

PATIENCE_SECONDS = 10.0
"""How long the end of the process waits for work that is under way."""


class Ending(OnOffError):
    """The process is ending: what was being made is needed no more."""


class _State:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.changed = threading.Condition()
        self.ending = False
        self.under_way = 0


_state = _State()
os.register_at_fork(after_in_child=_state.begin)  # the threads at work stay with the parent


@contextmanager
def under_way() -> Iterator[None]:
    """The process does not end before this block does, unless it takes too long."""
    with _state.changed:
        check()
        _state.under_way += 1
    try:
        yield
    finally:
        with _state.changed:
            _state.under_way -= 1
            _state.changed.notify_all()


def is_ending() -> bool:
    """Whether the process is about to end."""
    return _state.ending


def check() -> None:
    """Raise Ending if the process is about to end."""
    if _state.ending:
        raise Ending("the process is ending", hint="start it again to go on")


@atexit.register
def _end() -> None:
    with _state.changed:
        _state.ending = True
        _state.changed.wait_for(lambda: _state.under_way == 0, PATIENCE_SECONDS)
