"""StepObserver: which steps of the session a job stored, and which of them were sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from onoff.client import Sent
from onoff.gateway.jobs import Job, Step
from onoff.gateway.meter import Meter


class StepObserver:
    """Notes the steps of one job at a time.

    A step is stored before it is sent. It was sent if the meters counted a query before the next step was stored.
    """

    def __init__(self, meters: Sequence[Meter], now: Callable[[], float]) -> None:
        self._meters, self._now = meters, now
        self._stored: list[tuple[float, Sent, int]] = []

    def observed(self, sent: Sent) -> None:
        """The client has stored a step and is about to send it."""
        self._stored.append((self._now(), sent, self._count()))

    @contextmanager
    def steps_of(self, job: Job) -> Iterator[None]:
        """Add what is stored inside the block to the steps of `job`. A repeated request is the step that it was."""
        self._stored, left_before = [], self._count()
        try:
            yield
        finally:
            left_now = self._count()
            if job.again and job.steps and left_now > left_before:
                job.steps[-1] = Step(job.steps[-1].time, job.steps[-1].sent, left=True)
            ends = [begin for _, _, begin in self._stored[1:]]
            for (moment, sent, begin), end in zip(self._stored, [*ends, left_now], strict=False):
                job.steps.append(Step(moment, sent, left=end > begin))

    def _count(self) -> int:
        return sum(meter.queries_that_left for meter in self._meters)
