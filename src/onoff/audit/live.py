"""Users of a real server over HTTP, for the statistical audit: the shipped client with real randomness.

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
from onoff.upstream.transport import Failure, Http, Reply, Request, Transport

LIVE_FAULTS = (Fault.LOST_ANSWER, Fault.CRASH_AFTER, Fault.RESTART)
SERVER_TIMEOUT = 10.0


class Tap:
    """A transport that forwards everything and records what a server can compare."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.seen: list[Hashable] = []
        self.lose = self.crash = False
        self._sessions: dict[bytes, int] = {}

    def exchange(self, request: Request) -> Reply | Failure:
        self.seen.append((request.method, request.path, self._content(request), len(request.body), request.limit))
        reply = self.inner.exchange(request)
        if request.path == wire.QUERY_PATH:
            if self.crash:
                self.crash = False
                raise Crash
            if self.lose:
                self.lose = False
                return Failure("lost for the audit")
        return reply

    def _content(self, request: Request) -> Hashable:
        if request.path == wire.SEEN_PATH:
            return self._ordinal(request.body)
        if request.path != wire.QUERY_PATH:
            return request.body
        head = wire.decode_query_head(request.body)
        return self._ordinal(head.session), head.step, request.body[wire.QUERY_HEAD_BYTES :]

    def _ordinal(self, session: bytes) -> int:
        return self._sessions.setdefault(session, len(self._sessions) + 1)

    def take(self) -> Hashable:
        seen, self.seen = tuple(self.seen), []
        return seen


class LiveUsers:
    """Makes users of the server at `url`, and keeps how long their steps took."""

    def __init__(
        self, url: str, chain: Model, scheme: str = "auto", fault: Fault = Fault.NONE, at: int | None = None
    ) -> None:
        if fault is not Fault.NONE and fault not in LIVE_FAULTS:
            raise InvalidInput(f"the fault {str(fault)!r} cannot be made over HTTP", hint=", ".join(LIVE_FAULTS))
        self.url, self.chain, self.fault, self.at = url, chain, fault, at
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
            journal, tap = Path(directory) / "journal", Tap(Http(self.url, timeout=SERVER_TIMEOUT))
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

    def _client(self, journal: Path, tap: Tap) -> Client:
        return Client(
            upstream_of(self.url, transports=[tap], backoff=0.0),
            self.chain,
            journal,
            tables=self.tables,  # built once for all users
            mirror=False,
            hooks=Hooks(tick=0, background=False),
        )
