"""What a request gives back: the message, and what the server saw of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onoff import wire


@dataclass(frozen=True, slots=True)
class Sent:
    """What the server sees of one request, and nothing that it does not see.

    step     its number in the session       sources  the set asked for, as numbers of the chain, ascending
    n        how many sources there are      private  whether privacy was ON
    note     None, or why everything was asked where less would have been expected (said here, not to the server)
    """

    session: str
    step: int
    sources: tuple[int, ...]
    n: int
    private: bool
    note: str | None = None

    @property
    def cost(self) -> int:
        """How many messages were downloaded."""
        return len(self.sources)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sources": list(self.sources), "cost": self.cost}


class Message(bytes):
    """The latest message of a source: its bytes, and what came with them.

    source      whose it is (private: it stays out of `repr`)      version     0 where nothing was published yet
    published   milliseconds since 1970                            media_type  as the publisher gave it
    sent        what the server saw

    >>> message = Message(b"the latest")
    >>> message.decode(), message.payload == b"the latest", message
    ('the latest', True, <Message: 10 bytes>)
    """

    source: str
    version: int
    published: int
    media_type: str
    sent: Sent

    @classmethod
    def of(cls, source: str, message: wire.Message, sent: Sent) -> Message:
        """The message that a frame held, for whoever asked for `source`."""
        self = cls(message.body)
        self.source, self.sent = source, sent
        self.version, self.published, self.media_type = message.version, message.published, message.media_type
        return self

    @property
    def payload(self) -> bytes:
        """The bytes alone."""
        return bytes(self)

    def __repr__(self) -> str:
        return f"<Message: {len(self)} bytes>"

    __str__ = __repr__
