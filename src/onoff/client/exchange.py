"""One exchange with a server as values: what to send, what came back. No I/O; see `transport` for how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """What to send, all of it. At most `limit` bytes of body are read in return."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    limit: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer, of any status."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)

    def header(self, name: str) -> str | None:
        """The value of a header that came exactly once."""
        values = [value for key, value in self.headers if key == name]
        return values[0] if len(values) == 1 else None

    def has_type(self, media_type: str) -> bool:
        """Whether the body is of this media type, and not encoded."""
        encoded = any(key == "content-encoding" for key, _ in self.headers)
        return self.header("content-type") == media_type and not encoded


@dataclass(frozen=True, slots=True)
class Failure:
    """No complete answer: no connection, a timeout, or cut off. `left`: whether the server may have got the request."""

    reason: str
    left: bool = True


class Transport(Protocol):
    """How requests reach a server. Gives a Failure, and never raises, where no whole answer came back."""

    def exchange(self, request: Request) -> Reply | Failure: ...
