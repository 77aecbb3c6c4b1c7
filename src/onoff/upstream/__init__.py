"""Where messages come from, and what asking for a set of them looks like from outside.

An upstream is given a set and the copies, and *not* what is wanted: code that never has the secret cannot leak it. Only
servers that answer with sums are (`Retrieval`), and live apart. It stands on `wire`; the client stands on it, and does
not know which upstream it has. What changes here may change what leaves the machine, and so the exact audit.

    web             ordinary sites, by GETs; counts no steps      sources    which addresses: TOML, OPML, a list
    message_server  `onoff serve`, by one POST for a set          budget     how many requests a site allows
    sum_servers     several of these, by vectors and sums         transport  how bytes travel, and are sent again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from onoff.upstream.transport import Origin, Steps, Transport
    from onoff.wire import Catalogue, WireMessage


class Doubt(StrEnum):
    """Why the record of the last request may be out of date, so that the next query has to be everything.

    Found by the journal (the first four), by comparing it with this client, or by asking the server. Code compares
    members; the value of each is the sentence that people read.
    """

    NEW = "there was no journal"
    COPIED = "the journal was copied or moved from elsewhere"
    DAMAGED = "the journal was damaged and put aside"
    PUT_BACK = "the journal is not the one that was used last"
    NOTHING_STORED = "there is no last request"
    OTHER_CHAIN = "the chain is not the one of the last request"
    OTHER_SERVER = "the server is not the one of the last request"
    OTHER_CATALOGUE = "the server's catalogue has changed"
    UNFIT = "the journal does not fit the chain"
    OLDER_WIRE = "the last request was written by another version of onoff"
    COPIES_GONE = "copies that the last request relied on are gone"
    ROLLED_BACK = "the journal is older than what the server saw"
    FORGOTTEN = "the server does not know this session"
    CONFLICT = "the server saw another request at this step"


class Conflict(Exception):
    """The last step of the server is not ours."""

    def __init__(self, doubt: Doubt) -> None:
        super().__init__(doubt)
        self.doubt = doubt


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it was stored, without what is wanted.

    session, step  its name; counted by message servers
    asked          the names of its set
    query, others  the bytes to send, and those for further servers; empty where a set has no bytes of its own
    read           it was read from copies: nothing was sent for it, `query` and `step` are those last sent
    """

    session: bytes
    step: int
    asked: tuple[str, ...]
    query: bytes = field(default=b"", repr=False)
    others: bytes = field(default=b"", repr=False)
    read: bool = False


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """What became of one member of a set.

    state   "new", "same" (304), "fresh" (the site had said so before), or "failed"
    reason  why it failed; empty otherwise
    status  the HTTP status; 0 where there was no answer
    """

    state: str
    reason: str = ""
    status: int = 0


NEW: Final = MemberOutcome("new", status=200)


@dataclass(frozen=True)
class AnsweredSet:
    """What came back for a set, all of it.

    messages  by name; a member that failed has its old copy here, or none
    outcomes  what became of each member, by name; those that are not there are new
    ages      seconds since the site confirmed a copy; those that are not there were confirmed now
    edition   of several servers, from which all answered
    known     how many messages a server did not send again, as they were known
    """

    messages: Mapping[str, WireMessage] = field(repr=False)
    received: int
    requests: int = 1
    outcomes: Mapping[str, MemberOutcome] = field(default_factory=dict, repr=False)
    ages: Mapping[str, float] = field(default_factory=dict, repr=False)
    edition: int | None = None
    known: int = 0


class KnownMessages(Protocol):
    """Copies of what a message server has sent: by refreshes, and for sets that were asked for, always whole sets.

    So what they hold is a function of what the server has seen and sent, and of which answers came through.
    """

    def known(self, catalogue: Catalogue, sources: Sequence[int]) -> Mapping[int, WireMessage]:
        """The newest copies of these sources; those without one are left out."""

    def keep(self, catalogue: Catalogue, messages: Mapping[int, WireMessage]) -> None:
        """Keep what came for a set, all of it."""


@dataclass(frozen=True, slots=True)
class WebCopy:
    """The latest known message of a source, as a site gave it.

    etag, modified  its validators, as the site wrote them
    fetched         when the site last confirmed it, in seconds since 1970; it is fresh until `fresh_until`
    place           where it has moved for good; None: where the list says
    """

    body: bytes = field(repr=False)
    media_type: str
    etag: str | None
    modified: str | None
    fetched: float
    fresh_until: float
    place: str | None = None


class Copies(Protocol):
    """What is known of every source, durable: the latest copy of each, and when each host was asked."""

    def get(self, name: str) -> WebCopy | None:
        """The copy of a source; None where there is none."""

    def keep(self, copies: Mapping[str, WebCopy]) -> None:
        """Keep these copies, all or none of them."""

    def sent(self, host: Origin, since: float) -> Sequence[float]:
        """When this host was asked since a time, ascending."""

    def note_sent(self, requests: Sequence[tuple[Origin, float]]) -> None:
        """Requests go out to these hosts at these times."""


class AnyUpstream(Protocol):
    """What every upstream is: a place that has sources, and may count the steps of a session."""

    @property
    def address(self) -> str:
        """What a journal calls it."""
        ...

    @property
    def lines(self) -> Sequence[Transport]:
        """How each of its servers is reached by the steps below."""
        ...

    def forget(self) -> None:
        """Forget what it offers, as a process that ends does."""
        ...

    def offers(self) -> Steps[tuple[str, ...]]:
        """The names of its sources."""
        ...

    def get_ready(self, names: tuple[str, ...]) -> Steps[bool]:
        """Know what it offers; whether that has changed since it was last known. Raises CatalogueMismatch."""
        ...

    def compare_steps(self, last: Outgoing) -> Steps[Doubt | None]:
        """Why what it saw last in a session is not this, or None."""
        ...


@runtime_checkable
class Upstream(AnyUpstream, Protocol):
    """Where a set is asked for as a whole. It is not given what is wanted."""

    def encode(self, session: bytes, step: int, asked: tuple[str, ...]) -> bytes:
        """The bytes of a request; empty where a set has none of its own."""
        ...

    def first(self) -> tuple[str, ...]:
        """The set by which a session is opened, whatever is wanted: one source where steps are counted."""
        ...

    def check(self, last: Outgoing) -> Doubt | None:
        """Why the bytes of a stored request are not what it would be sent as, or None."""
        ...

    def fetch_set(self, outgoing: Outgoing) -> Steps[AnsweredSet]:
        """The messages of a set, all of them read before any is looked at. Raises Conflict."""
        ...


@runtime_checkable
class Retrieval(AnyUpstream, Protocol):
    """Where each of several servers is told something that hides which member of the set is wanted."""

    def encode_for(self, wanted: str, session: bytes, step: int, asked: tuple[str, ...]) -> tuple[bytes, bytes]:
        """The bytes for the first server, and those for the others."""
        ...

    def check_for(self, wanted: str, last: Outgoing) -> Doubt | None:
        """Why the bytes of a stored request are not what it would be sent as, or None."""
        ...

    def retrieve(
        self, wanted: str, outgoing: Outgoing, store: Callable[[bytes, bytes], Steps[None]]
    ) -> Steps[AnsweredSet]:
        """The message of the wanted one. `store` makes other bytes of the same step durable before they leave."""
        ...

    def vectors(self, outgoing: Outgoing) -> tuple[bytes, ...]:
        """What each server is told, an entry for each source; empty where it is not known what they have."""
        ...
