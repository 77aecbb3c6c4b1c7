"""The commands that a core gives, and the events that they lead to. Exchanges name which of its servers is meant.

Fetch        GET the catalogue                                ->  Reply or Failure
Ask          POST a session id: which step was seen last      ->  Reply or Failure
Build        build the table of the public state              ->  None
StoreRecord  write the record                                 ->  None, once it is durable
Tick         wait for the next tick, which hides how long the draw took ->  None
SendQuery    POST the record's bytes                          ->  Reply or Failure
SendSum      POST the bytes for one of several servers        ->  Reply or Failure
Changes      GET all that changed since an edition            ->  Reply or Failure
Newest       GET the number of the newest edition             ->  Reply or Failure
Digests      GET the digests of frames that changed           ->  Reply or Failure
Wait         sleep for some seconds                           ->  None
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from onoff.errors import BadAnswer, InvalidWire, ServerUnreachable
from onoff.upstream.transport import Failure, Reply
from onoff.wire import Edition, FrameDigests

# --------------------------------------------------------------------------------------------------------------------
# What a client must remember, and nothing else: the last request it stored.
#
# The last query *is* the pending one: as soon as it is stored it counts as sent, so there is nothing older to keep.
# `wanted` is secret, and `memory` where a model has one; everything else is known to the server, or is about the
# machine.


@dataclass(frozen=True, slots=True)
class Record:
    """One request as it was stored before it was sent.

    server, chain, origin  the address, the digest of the chain or model, and where it came from
    session, step          the server's name for this request
    query                  the bytes to send, as often as it takes
    asked                  the same set as a bitmap over the sources of the chain: the last query
    wanted                 secret: which of them was wanted
    private, note          how it was asked, and why everything was, if it was
    pending                not answered yet
    others                 what goes to the second and further servers, one after the other, each as long as `query`
    mirror                 read from the mirror: nothing was sent for it, `query` and `step` are those last sent
    memory                 what the session's memory needs beyond `asked` and `wanted`, in bytes of its own; secret
    """

    server: str
    chain: str
    origin: str
    session: bytes
    step: int
    query: bytes
    asked: bytes
    wanted: int = field(repr=False)
    private: bool
    note: str | None = None
    pending: bool = True
    memory: bytes = field(default=b"", repr=False)
    mirror: bool = False
    others: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Fetch:
    """GET the catalogue."""

    server: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """POST a session id, to learn the last step that the server saw in it."""

    session: bytes
    server: int = 0


@dataclass(frozen=True, slots=True)
class Build:
    """Build the table for the session's memory, whatever is wanted."""


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """Write the record; go on only when it is durable."""

    record: Record


@dataclass(frozen=True, slots=True)
class Tick:
    """Wait for the next tick."""


@dataclass(frozen=True, slots=True)
class SendQuery:
    """POST these bytes; read at most `limit` bytes of answer."""

    query: bytes = field(repr=False)
    limit: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class SendSum:
    """POST these bytes to one of several servers; read at most `limit` bytes of answer."""

    query: bytes = field(repr=False)
    limit: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """GET every message that changed after an edition; None: every message."""

    have: Edition | None
    server: int = 0


@dataclass(frozen=True, slots=True)
class Newest:
    """GET the newest edition, and how much changes in an hour."""

    server: int = 0


@dataclass(frozen=True, slots=True)
class Digests:
    """GET the digests of frames that changed after those that are held, of an edition; None: of the newest."""

    have: FrameDigests | None
    edition: int | None
    server: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep."""

    seconds: float


Exchange = Fetch | Ask | SendQuery | SendSum | Changes | Newest | Digests
Command = Exchange | Build | StoreRecord | Tick | Wait
Event = Reply | Failure | None
Result = TypeVar("Result")
Steps = Generator[Command, Event, Result]
"""A request, or part of one: yields commands, is sent the event of each, returns its result."""


# --------------------------------------------------------------------------------------------------------------------
# Retries: repeat a command, up to a number of attempts, until its reply passes a check.


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
