"""Users of a real server or site over HTTP, for the statistical audit: the shipped client with real randomness.

Every user has a new journal and is the real `Client`, except that it does not wait for ticks. What the server sees of a
request is recorded where it leaves the process, in terms by which a server can compare users: which
address, which step of which of its sessions (the first, the second, ...), which sources, how long the request is and
how much of the answer is read. Session ids are random bytes and say nothing else. How long each exchange took is kept
apart, for the attacker.

A fault can be made to happen at one step of every session (it would hide among the others if it were rare): the first
answer lost, or the process ended right after sending.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from onoff import wire
from onoff.audit.client import Crash, Fault, fast_directory
from onoff.audit.sampled import MakeRequest, NewUser
from onoff.client import Client, Hooks, upstream_of
from onoff.errors import InvalidInput
from onoff.model.contexts import Model
from onoff.model.rows import Floats
from onoff.session.session import TableCache
from onoff.upstream.message_server import MessageServer
from onoff.upstream.sources import SourceList
from onoff.upstream.sum_servers import SumServers
from onoff.upstream.transport import Connection, Deadline, Failure, Http, Origin, Reply, Request, Transport
from onoff.upstream.web import Web

LIVE_FAULTS = (Fault.LOST_ANSWER, Fault.CRASH_AFTER, Fault.RESTART)
SERVER_TIMEOUT = 10.0


class Wiretap:
    """Keeps what can be compared, and makes the fault that it was told to make."""

    def __init__(self) -> None:
        self.seen: list[Hashable] = []
        self.lose = self.crash = False

    def faulty(self, reply: Reply | Failure) -> Reply | Failure:
        """What becomes of an answer."""
        if self.crash:
            self.crash = False
            raise Crash
        if self.lose:
            self.lose = False
            return Failure("lost for the audit")
        return reply

    def take(self) -> Hashable:
        seen, self.seen = tuple(self.seen), []
        return seen


class Tap(Wiretap):
    """A transport that forwards everything and records what a server can compare."""

    def __init__(self, inner: Transport) -> None:
        super().__init__()
        self.inner = inner
        self._sessions: dict[bytes, int] = {}

    def exchange(self, request: Request) -> Reply | Failure:
        self.seen.append((request.method, request.path, self._content(request), len(request.body), request.limit))
        reply = self.inner.exchange(request)
        return self.faulty(reply) if request.path == wire.QUERY_PATH else reply

    def _content(self, request: Request) -> Hashable:
        if request.path == wire.SEEN_PATH:
            return self._ordinal(request.body)
        if request.path != wire.QUERY_PATH:
            return request.body
        head = wire.decode_query_head(request.body)
        return self._ordinal(head.session), head.step, request.body[wire.QUERY_HEAD_BYTES :]

    def _ordinal(self, session: bytes) -> int:
        return self._sessions.setdefault(session, len(self._sessions) + 1)


class SiteTap(Wiretap):
    """Makes connections to sites that forward everything, and records what a site can compare.

    Of headers their names: the values of validators are the site's own, and change with what it has.
    """

    def __init__(self, proxy: str | None) -> None:
        super().__init__()
        self.proxy = proxy

    def connect(self, origin: Origin) -> TappedLine:
        return TappedLine(self, Connection(origin, proxy=self.proxy))

    def take(self) -> Hashable:
        seen, self.seen = sorted(map(repr, self.seen)), []  # connections are made at the same time
        return tuple(seen)


class TappedLine:
    """A connection to a site whose requests are recorded when it is closed, in their order."""

    def __init__(self, tap: SiteTap, inner: Connection) -> None:
        self.tap, self.inner = tap, inner
        self.seen: list[Hashable] = []

    def exchange(self, request: Request, deadline: Deadline) -> Reply | Failure:
        self.seen.append((request.method, request.path, tuple(name for name, _ in request.headers)))
        return self.tap.faulty(self.inner.exchange(request, deadline))

    def close(self) -> None:
        self.tap.seen.append((self.inner.origin.host_header, *self.seen))
        self.inner.close()


class LiveUsers:
    """Makes users of the server at an address, or of the sites of a list, and keeps how long their steps took."""

    def __init__(
        self,
        where: str | SourceList,
        chain: Model,
        scheme: str = "auto",
        fault: Fault = Fault.NONE,
        at: int | None = None,
    ) -> None:
        if fault is not Fault.NONE and fault not in LIVE_FAULTS:
            raise InvalidInput(f"the fault {str(fault)!r} cannot be made over HTTP", hint=", ".join(LIVE_FAULTS))
        self.where, self.chain, self.fault, self.at = where, chain, fault, at
        self.tables = TableCache(chain, scheme)
        self._times: list[list[float]] = []

    @property
    def times(self) -> Floats:
        """Seconds of each step of each session so far."""
        return np.array(self._times)

    @property
    def user(self) -> NewUser:
        return self._user

    @contextmanager
    def _user(self) -> Iterator[MakeRequest]:
        took: list[float] = []
        self._times.append(took)
        with tempfile.TemporaryDirectory(prefix="onoff-audit-", dir=fast_directory()) as directory:
            journal, tap = Path(directory) / "journal", self._tap()
            client = self._client(journal, tap)

            def ask(x: int, private: bool) -> Hashable:
                nonlocal client
                here = self.fault if len(took) == self.at else Fault.NONE
                tap.lose, tap.crash = here is Fault.LOST_ANSWER, here is Fault.CRASH_AFTER
                if here is Fault.RESTART:
                    client.close()
                    client = self._client(journal, tap)
                started = time.perf_counter()
                try:
                    client.get(x, private=private)
                except Crash:
                    client.close()
                    client = self._client(journal, tap)
                took.append(time.perf_counter() - started)
                return tap.take()

            try:
                yield ask
            finally:
                client.close()

    def _tap(self) -> Tap | SiteTap:
        if isinstance(self.where, str):
            return Tap(Http(self.where, timeout=SERVER_TIMEOUT))
        return SiteTap(self.where.proxy)

    def _client(self, journal: Path, tap: Tap | SiteTap) -> Client:
        upstream: MessageServer | SumServers | Web
        if isinstance(self.where, str):
            assert isinstance(tap, Tap)
            upstream = upstream_of(self.where, transports=[tap], backoff=0.0)
        else:
            assert isinstance(tap, SiteTap)
            upstream = Web(self.where, connect=tap.connect)
        return Client(
            upstream,
            self.chain,
            journal,
            scheme=self.tables,  # built once for all users
            mirror=False if isinstance(self.where, str) else None,
            hooks=Hooks(tick=0, background=False),
        )
