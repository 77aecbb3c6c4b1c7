"""Driver: carries out the commands of a core, one after the other: journal, transport, tables, clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onoff import wire
from onoff.client.builder import TableBuilder
from onoff.client.catalogue import CATALOGUE_REQUEST
from onoff.client.commands import Ask, Build, Command, Event, Fetch, Result, Send, Steps, Store, Tick, Wait
from onoff.client.core import SMALL_ANSWER, Core
from onoff.client.exchange import Request, Transport
from onoff.client.journal import JournalStore
from onoff.client.message import Sent

TICK: Final = 0.05
"""Seconds between the moments at which queries are sent, so that the time of sending tells nothing of the draw."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An exchange that begins now: the how manieth time the same is sent."""

    number: int


@dataclass(frozen=True)
class Clock:
    """Time for a driver: `now` and `sleep` in seconds; queries leave at multiples of `tick` after the request came."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tick: float = TICK

    def wait_for_tick(self, started: float) -> None:
        """Sleep until a whole number of ticks has passed since `started`."""
        if self.tick:
            spent = (self.now() - started) / self.tick
            self.sleep((math.ceil(spent) - spent) * self.tick)


class Driver:
    """The hands of a core.

    observe is called with every `Sent` once it is durable and before it leaves; waiting with every `Attempt`.
    """

    def __init__(
        self,
        transport: Transport,
        builder: TableBuilder,
        clock: Clock,
        observe: Callable[[Sent], None] | None = None,
        waiting: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._transport = transport
        self._builder = builder
        self._clock = clock
        self._observe = observe
        self._waiting = waiting

    def run(self, core: Core, journal: JournalStore, steps: Steps[Result]) -> Result:
        """What the steps return when all their commands are carried out. Raises what they raise."""
        started = self._clock.now()
        event: Event = None
        last: Request | None = None
        attempt = 0
        while True:
            try:
                command = steps.send(event)
            except StopIteration as done:
                result: Result = done.value
                return result
            request = _request(command)
            if request is None:
                self._perform(core, journal, command, started)
                event = None
                continue
            attempt, last = attempt + 1 if request == last else 1, request
            if self._waiting is not None:
                self._waiting(Attempt(attempt))
            event = self._transport.exchange(request)

    def _perform(self, core: Core, journal: JournalStore, command: Command, started: float) -> None:
        match command:
            case Build():
                self._builder.build(core.session.memory)
            case Store(record):
                journal.store(record)
                if self._observe is not None:
                    self._observe(core.sent(record))
            case Tick():
                self._clock.wait_for_tick(started)
            case Wait(seconds):
                self._clock.sleep(seconds)


def _request(command: Command) -> Request | None:
    """What a command sends, or None where it sends nothing."""
    match command:
        case Fetch():
            return CATALOGUE_REQUEST
        case Ask(session):
            return Request("POST", wire.SEEN_PATH, wire.SEEN_HEADERS, session, SMALL_ANSWER)
        case Send(query, limit):
            return Request("POST", wire.QUERY_PATH, wire.QUERY_HEADERS, query, limit)
    return None
