"""Copies: what is known here of every source, and what brings all of them up to date. No model, no session, no journal.

    MirrorClient  of one message server; it tells a query which messages are known, and keeps those that come
    WebSources    of the sites of a list; for a client these are the upstream as well

Used alone they are always private: whoever is asked learns when everything was, and nothing else. A client reads its
private requests from them.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from onoff.client.journal import JournalStore
from onoff.client.message import Copy
from onoff.client.runner import NO_HOOKS, Driver, Hooks
from onoff.client.stores import CopiesFile, MemoryCopies, MemoryMirror, Mirror, MirrorEntry, as_message
from onoff.errors import InvalidInput, MirrorEmpty, MirrorError, UnknownSource
from onoff.upstream import NEW, AnsweredSet, Doubt, MemberOutcome, Outgoing
from onoff.upstream.message_server import MessageServer, fetch_changes, fetch_edition, require_sources
from onoff.upstream.sum_servers import SumServers
from onoff.upstream.transport import ATTEMPTS, BACKOFF, TIMEOUT, Http, Origin, Retries, Steps, Transport, check_url
from onoff.upstream.web import FetchedSet, Web
from onoff.wire import NOTHING, Catalogue, Edition, EditionReport, WireMessage

log = logging.getLogger("onoff.client")

CopyKind = TypeVar("CopyKind", bound=Copy)


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a refresh did.

    edition   the number of the edition reached; 0 where a site has none
    changed   the names of the sources that changed, in the order of the catalogue
    received  bytes of replies, as they came over the line
    seconds   how long it took
    requests  how many requests it took
    outcomes  of a site: what became of each source
    """

    edition: int
    changed: tuple[str, ...]
    received: int
    seconds: float
    requests: int = 1
    outcomes: Mapping[str, MemberOutcome] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is known of a source.

    version     0 where nothing was published yet
    published   seconds since 1970; 0 where nothing was
    size        bytes of the message
    age         seconds since it was published; None where nothing was
    """

    name: str
    version: int
    published: float
    media_type: str
    size: int
    age: float | None


class KeptCopies(ABC):
    """Copies, opened when first used. Threads may share them; refreshes queue, and reading never waits for one."""

    def __init__(self, where: PathLike[str] | str | MemoryMirror | MemoryCopies, hooks: Hooks) -> None:
        self._where, self._hooks = where, hooks
        self._opened: MemoryMirror | MemoryCopies | None = None
        self._closed = False
        self._opening, self._refreshing = threading.Lock(), threading.Lock()
        self.arrived: Callable[[list[tuple[str, WireMessage]]], None] | None = None
        """Called after a refresh of a mirror with the sources that changed and their messages; of sites, by the gateway
        alone, with the copies of an earlier run and after each set."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...] | None:
        """The sources; None before a server was asked for them."""

    @property
    @abstractmethod
    def number(self) -> int | None:
        """The number of the edition; 0 where a site has none; None before the first refresh."""

    @property
    @abstractmethod
    def stamp(self) -> str | None:
        """Another one whenever something else is held."""

    @abstractmethod
    def refresh(self) -> Refresh:
        """Bring everything up to date, whatever is read. Where it raises, all is as it was."""

    @abstractmethod
    def require(self, names: tuple[str, ...]) -> None:
        """Raise CatalogueMismatch where these are known not to be all among the sources."""

    @abstractmethod
    def copy_as(self, kind: type[CopyKind], source: str) -> CopyKind:
        """The message of `source` as this kind of copy; of version 0 where there is none. No traffic."""

    def copy(self, source: str, kind: type[CopyKind] = Copy) -> CopyKind:  # type: ignore[assignment]
        """The same. Raises UnknownSource, MirrorEmpty where nothing was fetched, or MirrorError."""
        return self.copy_as(kind, source)

    def ready(self, names: tuple[str, ...]) -> None:  # noqa: B027
        """Called before anything is stored or sent; raises where that would be in vain."""

    def outcome(self, source: str, refreshed: Refresh | None) -> MemberOutcome:
        """What became of a source at this refresh; None: at the last one."""
        return NEW

    def count_traffic(self, received: int) -> None:  # noqa: B027
        """Add bytes that were received by other requests to what was used today."""

    @property
    def used_today(self) -> int:
        """Bytes received since midnight UTC; of sites they are not counted."""
        return 0

    @property
    def refreshed(self) -> float | None:
        """When everything was asked for last, in seconds since 1970."""
        return self._store.refreshed

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return self._store.size

    @property
    def age(self) -> float | None:
        """Seconds since everything was asked for; None where it never was, or where the clock was set back."""
        refreshed = self.refreshed
        age = None if refreshed is None else self._hooks.now() - refreshed
        return age if age is not None and age >= 0 else None

    def refresh_if_older(self, max_age: float) -> Refresh | None:
        """Refresh unless that was done less than `max_age` seconds ago; None where it was."""
        age = self.age
        return self.refresh() if age is None or age >= max_age else None

    def sources(self) -> tuple[SourceState, ...]:
        """What is known of every source, in their order. No traffic; empty before they are known."""
        now, entries, found = self._hooks.now(), self._store.entries, []
        for name in self.names or ():
            entry = entries.get(name, MirrorEntry())
            published = entry.published / 1000
            age = max(now - published, 0.0) if entry.version else None
            found.append(SourceState(name, entry.version, published, entry.media_type, entry.size, age))
        return tuple(found)

    def messages(self) -> Iterator[tuple[str, WireMessage]]:
        """Every message that can be read. No traffic."""
        for name in self.names or ():
            with suppress(MirrorError):  # one that is damaged does not touch the others
                if (message := self._message(name)) is not None:
                    yield name, message

    def close(self) -> None:
        """Close for good. A second call does nothing."""
        self._closed = True
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _message(self, name: str) -> WireMessage | None: ...

    @abstractmethod
    def _open(self, path: Path) -> MemoryMirror | MemoryCopies: ...

    @property
    def _store(self) -> MemoryMirror | MemoryCopies:
        """Where they are kept, opened if need be. Raises MirrorError, also once it is closed."""
        with self._opening:
            if self._closed:  # a thread that is still at work must not open, and lock, the file again
                raise MirrorError("these copies are closed", hint="make a new client")
            if self._opened is None:
                where = self._where
                self._opened = where if isinstance(where, MemoryMirror | MemoryCopies) else self._open(Path(where))
            return self._opened

    def _drop(self) -> None:
        """After a failed write the file is opened, and checked, again."""
        with self._opening:
            opened = self._opened or self._where
            if isinstance(opened, MemoryMirror | MemoryCopies):
                opened.close()
            self._opened = None


class MirrorClient(KeptCopies):
    """A mirror of the server at `url`.

    Parameters
    ----------
    url
        The address of the server.
    mirror
        The path of the mirror's file, or a mirror; None: in memory.
    attempts, backoff, timeout
        As for `MessageServer`.
    transport, hooks
        How the server is reached; what may be watched or replaced.
    """

    def __init__(
        self,
        url: str,
        mirror: str | PathLike[str] | MemoryMirror | None = None,
        *,
        attempts: int = ATTEMPTS,
        backoff: float = BACKOFF,
        timeout: float = TIMEOUT,
        transport: Transport | None = None,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        super().__init__(MemoryMirror() if mirror is None else mirror, hooks)
        self.url = check_url(url).rstrip("/")
        self._retries = Retries(self.url, attempts, backoff)
        self._driver = Driver([Http(url, timeout=timeout) if transport is None else transport], hooks)

    def __repr__(self) -> str:
        return f"<MirrorClient: {len(self._opened.entries) if self._opened else 0} sources>"

    @property
    def mirror(self) -> MemoryMirror:
        """The mirror, opened if need be. Raises MirrorError, also once it is closed."""
        store = self._store
        assert isinstance(store, MemoryMirror)
        return store

    def _open(self, path: Path) -> MemoryMirror:
        return Mirror(path)

    def refresh(self) -> Refresh:
        """One request for all that changed.

        Raises ServerUnreachable, BadAnswer, NoChanges (a server of an older version) or MirrorError.
        """
        with self._refreshing:
            started = self._hooks.clock()
            mirror = self.mirror
            fetched = self._driver.run(fetch_changes(self._retries, mirror.catalogue, mirror.edition))
            try:
                mirror.apply(fetched, self._hooks.now())
            except MirrorError:
                self._drop()
                raise
            changed = [(fetched.catalogue.names[source], message) for source, message in fetched.messages]
            if self.arrived is not None:
                self.arrived(changed)
            names = tuple(name for name, _ in changed)
            return Refresh(fetched.edition.number, names, fetched.received, self._hooks.clock() - started)

    def get(self, source: str, *, max_age: float = 0.0) -> Copy:
        """The message of `source`, from a mirror that is at most `max_age` seconds old."""
        self.refresh_if_older(max_age)
        return self.copy(source)

    def newest(self) -> EditionReport:
        """What the server tells of its newest edition. Raises what `refresh` raises."""
        return self._driver.run(fetch_edition(self._retries))

    # -- for queries ---------------------------------------------------------------------------------------

    def known(self, catalogue: Catalogue, sources: Sequence[int]) -> Mapping[int, WireMessage]:
        """The newest copies of these; none where the mirror cannot be read: then all are asked for."""
        try:
            return self.mirror.known(catalogue, sources)
        except MirrorError as error:
            log.warning("copies cannot be used: %s", error)
            self._drop()
            return {}

    def keep(self, catalogue: Catalogue, messages: Mapping[int, WireMessage]) -> None:
        """Keep what came for a set, if that can be written: else it is asked for again."""
        try:
            self.mirror.keep(catalogue, messages)
        except MirrorError as error:
            log.warning("copies are not kept: %s", error)
            self._drop()

    # -- without traffic -----------------------------------------------------------------------------------

    def require(self, names: tuple[str, ...]) -> None:
        if self.mirror.catalogue is not None:
            require_sources(names, self.mirror.catalogue)

    @property
    def names(self) -> tuple[str, ...] | None:
        catalogue = self.mirror.catalogue
        return None if catalogue is None else catalogue.names

    @property
    def number(self) -> int | None:
        edition = self.mirror.edition
        return None if edition is None else edition.number

    @property
    def stamp(self) -> str | None:
        edition = self.mirror.edition
        return None if edition is None else edition.digest.hex()[:12]

    def copy_as(self, kind: type[CopyKind], source: str) -> CopyKind:
        message, edition = self.mirror.message(source)
        return kind.of(source, message, edition=edition, age=self.age or 0.0)

    def _message(self, name: str) -> WireMessage:
        return self.mirror.message(name)[0]

    @property
    def used_today(self) -> int:
        return self.mirror.used_today(self._hooks.now())

    def count_traffic(self, received: int) -> None:
        if isinstance(self._opened, MemoryMirror):
            self._opened.count_traffic(received, self._hooks.now())


def fetch_edition_of(url: str, *, timeout: float = TIMEOUT) -> Edition:
    """The newest edition of a server. Raises what `MirrorClient.refresh` raises."""
    return Driver([Http(url, timeout=timeout)]).run(fetch_edition(Retries(url, 1))).edition


class WebSources(KeptCopies):
    """The sources of a `Web`, with their copies: what a client asks for sets, and reads while ON.

    copies: The path of the file of copies, or copies; None: in memory.
    """

    lines: Sequence[Transport] = ()

    def __init__(
        self, web: Web, copies: str | PathLike[str] | MemoryCopies | None = None, hooks: Hooks = NO_HOOKS
    ) -> None:
        super().__init__(MemoryCopies() if copies is None else copies, hooks)
        self.web, self.address = web, web.address
        self._fetched = 0
        self.outcomes: dict[str, MemberOutcome] = {}
        """What became of each source when it was asked for last, since the start."""
        self.noticed: Callable[[bool, Origin, int], None] | None = None
        """Called after each request: whether everything is asked for, its host, and the bytes that came back."""
        self.answered: Callable[[Mapping[str, MemberOutcome]], None] | None = None
        """Called after each set with what became of its members."""

    @property
    def copies(self) -> MemoryCopies:
        """The copies, opened if need be. Raises MirrorError, also once they are closed."""
        store = self._store
        assert isinstance(store, MemoryCopies)
        return store

    def _open(self, path: Path) -> MemoryCopies:
        return CopiesFile(path)

    # -- as an upstream ------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Nothing is known of a site but its copies."""

    def offers(self) -> Steps[tuple[str, ...]]:
        yield from ()  # there is nothing to ask
        return self.web.names

    def get_ready(self, names: tuple[str, ...]) -> Steps[bool]:
        yield from ()
        self.ready(names)
        return False

    def compare_steps(self, last: Outgoing) -> Steps[Doubt | None]:
        """A site counts no steps: it cannot tell an old journal from the last one."""
        yield from ()
        return None

    def encode(self, session: bytes, step: int, asked: tuple[str, ...]) -> bytes:
        return b""

    def first(self) -> tuple[str, ...]:
        return ()

    def check(self, last: Outgoing) -> Doubt | None:
        return None

    def fetch_set(self, outgoing: Outgoing) -> Steps[AnsweredSet]:
        """Every member of the set, conditionally; see `Web.fetch`, which has connections of its own."""
        yield from ()
        fetched = self._fetch(outgoing.asked, whole=False)
        found = {name: self.copies.get(name) for name in outgoing.asked}
        now = self._hooks.now()
        return AnsweredSet(
            {name: as_message(copy) for name, copy in found.items() if copy is not None},
            fetched.received,
            fetched.requests,
            fetched.outcomes,
            {name: max(now - copy.fetched, 0.0) for name, copy in found.items() if copy is not None},
        )

    # -- everything ----------------------------------------------------------------------------------------

    def _fetch(self, asked: tuple[str, ...], *, whole: bool, patience: float | None = None) -> FetchedSet:
        """One set after the other, so that each plan knows all requests that the budget counts."""
        with self._refreshing:
            if self.noticed is not None:
                self.web.noticed = partial(self.noticed, whole)
            fetched = self.web.fetch(asked, self.copies, patience=patience)
            self._fetched += 1
            self.outcomes |= fetched.outcomes
        if self.answered is not None:
            self.answered(fetched.outcomes)
        return fetched

    def refresh(self, patience: float | None = None) -> Refresh:
        """Ask for every source. Raises OverBudget or MirrorError.

        patience: Seconds over which the budget may spread it; None: as the list says.
        """
        started, when, copies = self._hooks.clock(), self._hooks.now(), self.copies
        fetched = self._fetch(self.web.names, whole=True, patience=patience)
        copies.note_refreshed(when)
        changed = tuple(name for name, outcome in fetched.outcomes.items() if outcome.state == "new")
        seconds = self._hooks.clock() - started
        return Refresh(0, changed, fetched.received, seconds, fetched.requests, fetched.outcomes)

    # -- without traffic -----------------------------------------------------------------------------------

    def require(self, names: tuple[str, ...]) -> None:
        self.web.require(names)

    def ready(self, names: tuple[str, ...]) -> None:
        self.web.require(names)
        _ = self.copies  # opened, and locked

    @property
    def names(self) -> tuple[str, ...]:
        return self.web.names

    @property
    def number(self) -> int | None:
        return None if self.refreshed is None else 0

    @property
    def stamp(self) -> str | None:
        return f"{self.refreshed}-{self._fetched}"

    def copy(self, source: str, kind: type[CopyKind] = Copy) -> CopyKind:  # type: ignore[assignment]
        copy = self.copy_as(kind, source)
        if not copy.version:
            raise MirrorEmpty("nothing was fetched yet", hint="refresh first")
        return copy

    def copy_as(self, kind: type[CopyKind], source: str) -> CopyKind:
        if source not in self.web.names:
            raise UnknownSource("no such source", hint="the list of sources has their names")
        copy = self.copies.get(source)
        if copy is None:
            return kind.of(source, NOTHING)
        return kind.of(source, as_message(copy), age=max(self._hooks.now() - copy.fetched, 0.0))

    def _message(self, name: str) -> WireMessage | None:
        copy = self.copies.get(name)
        return None if copy is None else as_message(copy)

    def outcome(self, source: str, refreshed: Refresh | None) -> MemberOutcome:
        if refreshed is not None:
            return refreshed.outcomes[source]
        copy, when = self.copies.get(source), self.refreshed or 0.0
        if copy is None:
            return MemberOutcome("failed", "the site has not given it yet")
        late = copy.fetched < when and copy.fresh_until <= when
        return MemberOutcome("failed", "the site did not give it when it was asked last") if late else FRESH

    def budgets(self) -> list[dict[str, Any]]:
        """What the budget of each host leaves now: for each limit, how many requests may go out at once."""
        now, limits = self._hooks.now(), self.web.sources.budget.limits
        return [
            {
                "host": f"{host.scheme}://{host.host_header}",
                "limit": str(limit),
                "left": max(0, limit.count - len(self.copies.sent(host, now - limit.seconds))),
            }
            for host in sorted(self.web.sources.hosts, key=str)
            for limit in limits
        ]


FRESH: Final = MemberOutcome("fresh")

# --------------------------------------------------------------------------------------------------------------------
# What a client has of them.

WhereCopiesAre = str | os.PathLike[str] | MemoryMirror | MemoryCopies | Literal[False] | None
"""Where a client keeps copies: a path, copies, beside the journal (None), or nowhere."""


def with_copies(
    upstream: MessageServer | SumServers | Web,
    where: WhereCopiesAre,
    journal: str | os.PathLike[str] | JournalStore,
    hooks: Hooks,
) -> tuple[MessageServer | SumServers | WebSources, tuple[KeptCopies, ...]]:
    """The upstream as a client with copies asks it, and these: of several servers those of each.

    where: Of several servers, where those of the first are; the others are beside the journal.
    """

    def beside(end: str) -> Path | None:
        return Path(f"{os.fspath(journal)}.{end}") if isinstance(journal, str | os.PathLike) else None

    if isinstance(upstream, Web):
        if isinstance(where, MemoryMirror) or where is False:
            raise InvalidInput("a client of web sites needs copies", hint="give a path for them, or leave it out")
        sources = WebSources(upstream, beside("copies") if where is None else where, hooks)
        return sources, (sources,)
    if where is False:
        return upstream, ()
    if isinstance(where, MemoryCopies):
        raise InvalidInput("copies of web sites for a message server", hint="give a mirror, or the path of one")
    mirrors = tuple(
        MirrorClient(
            retries.server,
            beside(f"mirror-{place}" if place else "mirror") if where is None or place else where,
            attempts=retries.attempts,
            backoff=retries.backoff,
            transport=line,
            hooks=hooks,
        )
        for place, (retries, line) in enumerate(zip(upstream.retries, upstream.lines, strict=True))
    )
    return upstream.with_copies(mirrors[0]) if isinstance(upstream, MessageServer) else upstream, mirrors
