"""Ctrl-C for commands that spend their time in compiled code."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onoff.system.interrupts import prompt_when_repeated


@contextmanager
def noticing_ctrl_c() -> Iterator[Callable[[], bool]]:
    """For work that can end early: after Ctrl-C, which does not raise, the callable that is yielded returns True.

    A second Ctrl-C raises at once.
    """
    asked = threading.Event()

    @prompt_when_repeated
    def ask(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        os.write(2, b"onoff: ending with what there is; Ctrl-C again gives it up\n")  # a print may be under way

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield asked.is_set
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
