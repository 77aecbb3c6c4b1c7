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

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

from onoff.client.exchange import Failure, Reply
from onoff.client.record import Record
from onoff.wire import Edition, FrameDigests


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
