"""steps: a step has left if a query was counted between it and the next one."""

import pytest

from onoff.client import Sent
from onoff.errors import ServerUnreachable
from onoff.gateway.jobs import Job, Step
from onoff.gateway.upstream import Meter, StepObserver
from onoff.upstream.transport import Failure, Reply, Request
from onoff.wire import QUERY_PATH

ASKED = Request("POST", QUERY_PATH, (), b"query", 0)


class Line:
    """Answers, unless it is cut: then nothing leaves."""

    cut = False

    def exchange(self, request: Request) -> Reply | Failure:
        return Failure("cut", left=False) if self.cut else Reply(200, (), b"")


def step(number: int) -> Sent:
    return Sent("session", number, (0,), 4, private=True)


def test_each_step_says_whether_it_left() -> None:
    line = Line()
    meter = Meter(line)
    observer = StepObserver([meter], lambda: 5.0)
    job = Job(0, private=True, key=None)
    with observer.steps_of(job):
        observer.observed(step(0))
        meter.exchange(ASKED)
        observer.observed(step(1))
        line.cut = True
        meter.exchange(ASKED)
    assert job.steps == [Step(5.0, step(0), left=True), Step(5.0, step(1), left=False)]
    line.cut = False
    again = Job(0, private=True, key=None, again=True, steps=list(job.steps))
    with observer.steps_of(again):
        meter.exchange(ASKED)
    assert again.steps == [Step(5.0, step(0), left=True), Step(5.0, step(1), left=True)]


def test_steps_are_kept_when_the_request_fails() -> None:
    observer = StepObserver([], lambda: 5.0)
    job = Job(0, private=True, key=None)

    def fail() -> None:
        with observer.steps_of(job):
            observer.observed(step(0))
            raise ServerUnreachable("nobody answers")

    with pytest.raises(ServerUnreachable):
        fail()
    assert job.steps == [Step(5.0, step(0), left=False)]
