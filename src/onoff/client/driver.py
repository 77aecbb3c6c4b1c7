"""Driver: carries out commands, one after the other: exchanges over a transport, waiting by a clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from onoff import wire
from onoff.client.catalogue import CATALOGUE_REQUEST
from onoff.client.commands import (
    Ask,
    Changes,
    Command,
    Digests,
    Event,
    Exchange,
    Fetch,
    Newest,
    Result,
    SendQuery,
    SendSum,
    Steps,
    Tick,
    Wait,
)
from onoff.client.core import SMALL_ANSWER
from onoff.client.exchange import Request, Transport
from onoff.client.refreshing import LARGEST_CHANGES

TICK: Final = 0.05
"""Seconds between the moments at which queries are sent, so that the time of sending tells nothing of the draw."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An exchange that begins now; `number` counts how often the same was sent, `server` is which of several."""

    number: int
    server: int = 0


@dataclass(frozen=True)
class TickClock:
    """Time for a driver, in seconds; queries are sent at multiples of `tick` after the request came."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tick: float = TICK

    def wait_for_tick(self, started: float) -> None:
        """Sleep until a whole number of ticks has passed since `started`."""
        if self.tick:
            spent = (self.now() - started) / self.tick
            self.sleep((math.ceil(spent) - spent) * self.tick)


class Driver:
    """Carries out the commands of a core or a refresh. `waiting` is called with every `Attempt`."""

    def __init__(
        self, transports: Sequence[Transport], clock: TickClock, waiting: Callable[[Attempt], None] | None = None
    ) -> None:
        self._transports = tuple(transports)
        self._clock = clock
        self._waiting = waiting

    def run(self, steps: Steps[Result], perform: Callable[[Command], None] | None = None) -> Result:
        """What the steps return when all their commands are carried out."""
        started = self._clock.now()
        event: Event = None
        last: tuple[int, Request] | None = None
        attempt = 0
        while True:
            try:
                command = steps.send(event)
            except StopIteration as done:
                result: Result = done.value
                return result
            if isinstance(command, Exchange):
                sending = command.server, _request(command)
                attempt, last = attempt + 1 if sending == last else 1, sending
                if self._waiting is not None:
                    self._waiting(Attempt(attempt, command.server))
                event = self._transports[command.server].exchange(sending[1])
                continue
            event = None
            match command:
                case Tick():
                    self._clock.wait_for_tick(started)
                case Wait(seconds):
                    self._clock.sleep(seconds)
                case _ if perform is not None:
                    perform(command)


def _request(command: Exchange) -> Request:
    """What a command sends."""
    match command:
        case Fetch():
            return CATALOGUE_REQUEST
        case Ask(session):
            return Request("POST", wire.SEEN_PATH, wire.SEEN_HEADERS, session, SMALL_ANSWER)
        case SendQuery(query, limit):
            return Request("POST", wire.QUERY_PATH, wire.QUERY_HEADERS, query, limit)
        case SendSum(query, limit):
            return Request("POST", wire.SUM_PATH, wire.SUM_QUERY_HEADERS, query, limit)
        case Changes(have):
            return Request("GET", wire.changes_target(have), wire.CHANGES_HEADERS, b"", LARGEST_CHANGES)
        case Digests(have, edition):
            return Request("GET", wire.digests_target(have, edition), wire.DIGESTS_HEADERS, b"", wire.MAX_DIGESTS)
        case Newest():
            return Request("GET", wire.EDITION_PATH, wire.CATALOGUE_HEADERS, b"", SMALL_ANSWER)
