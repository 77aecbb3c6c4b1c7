"""Ctrl-C for commands that spend their time in compiled code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onoff.errors import Stopped
from onoff.system.interrupts import prompt
from onoff.system.shutdown import is_shutting_down


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """For long compiled work: after Ctrl-C, which does not raise at once, the callable that is yielded returns True.

    Once the work has raised Stopped it becomes KeyboardInterrupt. A second Ctrl-C raises at once.
    """
    asked = threading.Event()

    @prompt
    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield is_shutting_down
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked.is_set() or is_shutting_down()
        if asked.is_set():  # the work was done before it noticed
            raise KeyboardInterrupt
    except Stopped:
        if asked.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
