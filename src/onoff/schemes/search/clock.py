"""How long a search may go on: a budget of processor time, and callables that end it, with nothing or with what it has.

The budget counts the processor time of the searching thread, so that a busy machine changes how long a search takes and
not what it finds. Making kernels ready is left out: it happens once in a process, and takes seconds the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, thread_time
from typing import TypeAlias

from onoff.errors import Stopped
from onoff.system.kernels import preparing_seconds

Stop: TypeAlias = Callable[[], bool]
"""Called now and then: whether the result is no longer wanted."""


def never() -> bool:
    """The search is never called off."""
    return False


class SearchClock:
    """A budget of seconds that begins now; `stop` calls the search off, `enough` ends it as if the time were up."""

    def __init__(self, budget: float, stop: Stop = never, enough: Stop = never) -> None:
        self.budget = budget
        self.stop = stop
        self.enough = enough
        self._began, self._began_on_the_wall = _working_seconds(), monotonic()

    @property
    def spent(self) -> float:
        """Seconds of processor time so far."""
        return _working_seconds() - self._began

    @property
    def elapsed(self) -> float:
        """Seconds of wall time so far."""
        return monotonic() - self._began_on_the_wall

    def left(self, part: float = 1.0) -> float:
        """Seconds of processor time that are left of `part` of the budget. Raises Stopped where it was called off."""
        if self.stop():
            raise Stopped("the search was told to stop", hint="give it time, or a smaller budget")
        return 0.0 if self.enough() else self.budget * part - self.spent

    def is_over(self, part: float = 1.0) -> bool:
        """Whether that part of the budget is spent or the search called off; never raises, for use inside solvers."""
        return self.spent >= self.budget * part or self.stop() or self.enough()


def _working_seconds() -> float:
    """Processor time of this thread, without what went into making kernels ready."""
    return thread_time() - preparing_seconds()
