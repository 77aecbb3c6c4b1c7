"""What a request gives back: the message, and what the server saw of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from onoff import wire
from onoff.upstream import NEW, AnsweredSet, MemberOutcome


@dataclass(frozen=True, slots=True)
class ServerView:
    """What the server sees of one request, and nothing that it does not see.

    step     its number in the session       sources  the set asked for, as numbers of the chain, ascending
    n        how many sources there are      private  whether privacy was ON
    note     None, or why everything was asked where less would have been expected (said here, not to the server)
    mirror   read from the mirror: nothing was sent for it; `sources` are all, `step` is the last one sent (-1: none)
    vectors  with several servers: what each of them saw, an entry for each source; no server sees `sources`
    """

    session: str
    step: int
    sources: tuple[int, ...]
    n: int
    private: bool
    note: str | None = None
    mirror: bool = False
    vectors: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def cost(self) -> float:
        """How many messages are downloaded: one for each source; of several servers, a share of one for each answer."""
        if self.vectors:
            return sum(any(vector) for vector in self.vectors) / (len(self.vectors) - 1)
        return 0 if self.mirror else len(self.sources)

    def as_dict(self) -> dict[str, Any]:
        vectors = [list(vector) for vector in self.vectors]
        return {**asdict(self), "sources": list(self.sources), "vectors": vectors, "cost": self.cost}


class Copy(bytes):
    """A message of a source: its bytes, and what came with them.

    source      whose it is (private: it stays out of `repr`)      version     0 where nothing was published yet
    published   seconds since 1970                                 media_type  as the publisher gave it
    edition     of the mirror that it was read from; None where the server was asked for it
    age         seconds since that mirror was refreshed; 0 where the server was asked

    >>> copy = Copy(b"the latest")
    >>> copy.decode(), copy.payload == b"the latest", copy
    ('the latest', True, <Copy: 10 bytes>)
    """

    source: str
    version: int
    published: float
    media_type: str
    edition: int | None
    age: float

    @classmethod
    def of(cls, source: str, message: wire.WireMessage, *, edition: int | None = None, age: float = 0.0) -> Self:
        """The message of a frame, as the answer for `source`."""
        self = cls(message.body)
        self.source, self.edition, self.age = source, edition, age
        self.version, self.published, self.media_type = message.version, message.published / 1000, message.media_type
        return self

    @property
    def payload(self) -> bytes:
        """The bytes alone."""
        return bytes(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} bytes>"

    __str__ = __repr__


class Message(Copy):
    """The answer to a request: a message, and what the request took.

    sent        what the server saw
    messages    how many messages were downloaded for it
    received    bytes of answers for it
    asked       the names that were asked for, in the order of the list; empty where nothing was
    requests    how many requests that took
    outcome     what the site said of it: `state`, `status` and, where it failed and this is an old copy, the `reason`

    >>> message = Message(b"the latest")
    >>> message.decode(), message.payload == b"the latest", message
    ('the latest', True, <Message: 10 bytes>)
    """

    sent: ServerView
    messages: float
    received: int
    asked: tuple[str, ...] = ()
    requests: int = 0
    outcome: MemberOutcome = NEW

    @classmethod
    def answering(cls, name: str, answer: AnsweredSet, sent: ServerView, asked: tuple[str, ...]) -> Self:
        """The message of `name` among the answer to a set.

        Parameters
        ----------
        name
            The source that was wanted.
        answer
            What came back for the whole set.
        sent, asked
            What the server saw, and the names of the set.
        """
        found = answer.messages.get(name, wire.NOTHING)
        message = cls.of(name, found, edition=answer.edition, age=answer.ages.get(name, 0.0))
        message.outcome = answer.outcomes.get(name, NEW)
        message.asked, message.requests = asked, answer.requests
        return message.after(sent, messages=sent.cost - answer.known, received=answer.received)

    def after(self, sent: ServerView, *, messages: float, received: int) -> Self:
        """This message, as the answer to a request with this cost.

        Parameters
        ----------
        sent
            What the server saw.
        messages
            How many were downloaded.
        received
            Bytes of answers.
        """
        self.sent, self.messages, self.received = sent, messages, received
        return self
