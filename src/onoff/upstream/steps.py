"""Steps: what is asked of a server, in order, without any I/O.

A request is a generator. It yields `SendRequest` and is sent the Reply or Failure that this led to, or `Wait`, and
returns its result; a client adds commands of its own. Whoever runs the steps has the sockets and the clock, so
everything that decides what leaves can be driven by a test, event by event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from onoff.errors import BadAnswer, InvalidWire, ServerUnreachable
from onoff.upstream.transport import Failure, Reply, Request

log = logging.getLogger("onoff.client")

ATTEMPTS: Final = 4
BACKOFF: Final = 0.2
TRY_LATER: Final = frozenset({408, 425, 429})
SMALL_ANSWER: Final = 64 * 1024
"""Refusals are at most this long."""
NOT_A_SERVER: Final = "is this a message server?"


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request to one of the servers of an upstream."""

    request: Request
    server: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep."""

    seconds: float


Event = Reply | Failure | None
Result = TypeVar("Result")
Steps = Generator[object, Event, Result]
"""A request, or part of one: yields commands, is sent the event of each, returns its result."""


@dataclass(frozen=True)
class Retries:
    """How often a request is sent to one server.

    server    its address, for messages
    attempts  how often the same bytes are sent before the server is given up
    backoff   seconds before the second attempt; doubled before every further one
    place     which of the servers of its upstream it is
    """

    server: str
    attempts: int = ATTEMPTS
    backoff: float = BACKOFF
    place: int = 0

    def exchange(self, request: Request, check: Callable[[Reply], Result]) -> Steps[Result]:
        """The checked reply to a request, which is repeated as it is.

        check: Makes a result of a reply; raises InvalidWire for a damaged one, which is asked for again, or anything
        else for one that is final.

        Raises
        ------
        ServerUnreachable
            No attempt had an answer.
        BadAnswer
            The last answer was damaged.
        """
        problem: ServerUnreachable | BadAnswer | None = None
        for attempt in range(self.attempts):
            if attempt:
                log.info("attempt %d failed", attempt)
                yield Wait(self.backoff * 2 ** (attempt - 1))
            event = yield SendRequest(request, self.place)
            if not isinstance(event, Reply):
                reason = "nothing came back" if event is None else event.reason
                problem = ServerUnreachable(f"{self.server}: {reason}", hint="is the server running?")
            elif event.status >= 500 or event.status in TRY_LATER:
                problem = ServerUnreachable(f"{self.server}: HTTP {event.status}", hint="try again later")
            else:
                try:
                    return check(event)
                except InvalidWire as error:
                    problem = BadAnswer(f"{self.server}: {error.message}", hint="nothing of the answer was used")
        raise problem or ServerUnreachable(f"{self.server}: no attempt was allowed", hint="allow at least one")
