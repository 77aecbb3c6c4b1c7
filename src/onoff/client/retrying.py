"""Retries: repeat a command, up to a number of attempts, until its reply passes a check."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from onoff.client.commands import Exchange, Steps, Wait
from onoff.client.exchange import Reply
from onoff.errors import BadAnswer, InvalidWire, ServerUnreachable

log = logging.getLogger("onoff.client")

ATTEMPTS: Final = 4
BACKOFF: Final = 0.2
TRY_LATER: Final = frozenset({408, 425, 429})

_Checked = TypeVar("_Checked")


@dataclass(frozen=True)
class Retries:
    """How often a command is sent to one server.

    server    its address, for messages
    attempts  how often the same bytes are sent before the server is given up
    backoff   seconds before the second attempt; doubled before every further one
    """

    server: str
    attempts: int = ATTEMPTS
    backoff: float = BACKOFF

    def exchange(self, command: Exchange, check: Callable[[Reply], _Checked]) -> Steps[_Checked]:
        """The checked reply to a command, which is repeated as it is.

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
            event = yield command
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
