"""Client: `get("news", private=True)`, safe across crashes, retries and restores.

Thin hands for `core`: it carries out the commands (journal, transport, clock) one after the other, under one lock.
After each answer a thread of its own closes the books in the journal and builds the table of the next query, so
that a request costs one draw and one commit. Whatever breaks in between, a failed write or an interrupt, the
journal is dropped and opened again at the next request, as after a crash.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, NamedTuple

from onoff import wire
from onoff.client.core import (
    LARGEST_CATALOGUE,
    SMALL_ANSWER,
    Ask,
    Build,
    Command,
    Core,
    Event,
    Fetch,
    Send,
    Steps,
    Store,
    Tick,
    Wait,
)
from onoff.client.journal import Journal, JournalStore
from onoff.client.message import Message, Sent
from onoff.client.transport import Http, Request, Transport, check_url
from onoff.errors import JournalBusy, JournalError, OnOffError, UnknownSource
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.cache import TableCache
from onoff.session.entropy import Entropy, SystemEntropy
from onoff.session.memory import Memory
from onoff.tables.files import default_store

TICK: Final = 0.05
"""Seconds between the moments at which queries are sent, so that the time of sending tells nothing of the draw."""
ATTEMPTS: Final = 4
BACKOFF: Final = 0.2
TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The table of the next query: "building" or "ready", for how many sources, and after how many seconds."""

    state: str
    sources: int
    seconds: float = 0.0


class _Open(NamedTuple):
    core: Core
    keeper: JournalStore


class Client:
    """A user of `chain` who fetches messages from the server at `url`. Threads may share it; requests queue.

    chain      a MarkovChain, or the path of its file
    journal    the path of the journal (default: one per server in the user's state directory), or a JournalStore
    scheme     how queries are built, with its `options`; `everything` makes every private request ask for all sources
    attempts, backoff, timeout, tick   in seconds: see `core` and `TICK`
    background close the books and build tables in a thread of their own
    observe    is called with every `Sent` before it leaves; `progress` with every `Progress`
    entropy, new_session, transport, clock, sleep   the world outside, for tests and audits

    >>> client = Client("http://127.0.0.1:8470", MarkovChain([[0.9, 0.1], [0.2, 0.8]]), journal="/nonexistent/journal")
    >>> client
    <Client: 2 sources>
    """

    def __init__(
        self,
        url: str,
        chain: MarkovChain | str | os.PathLike[str],
        journal: str | os.PathLike[str] | JournalStore | None = None,
        scheme: str = "auto",
        *,
        everything: bool = False,
        attempts: int = ATTEMPTS,
        backoff: float = BACKOFF,
        timeout: float = TIMEOUT,
        tick: float = TICK,
        background: bool = True,
        observe: Callable[[Sent], None] | None = None,
        progress: Callable[[Progress], None] | None = None,
        entropy: Entropy | None = None,
        new_session: Callable[[], bytes] = lambda: secrets.token_bytes(wire.SESSION_BYTES),
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        self.url = check_url(url).rstrip("/")
        self.chain = chain if isinstance(chain, MarkovChain) else MarkovChain.load(Path(chain))
        self.origin = "given by the program" if isinstance(chain, MarkovChain) else str(Path(chain).absolute())
        self.journal = default_journal(self.url) if journal is None else journal
        self._transport = Http(url, timeout=timeout) if transport is None else transport
        options.setdefault("store", default_store() if journal is None else None)
        self._tables = TableCache(self.chain, scheme, **options)
        self._everything = everything
        self._entropy = SystemEntropy() if entropy is None else entropy
        self._new_session = new_session
        self._attempts, self._backoff, self._tick = attempts, backoff, tick
        self._observe, self._progress = observe, progress
        self._clock, self._sleep = clock, sleep
        self._background = background
        self._lock = threading.RLock()
        self._building = threading.Lock()
        self._jobs: SimpleQueue[Memory | None] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._open: _Open | None = None
        self._owed: Callable[[], None] | None = None
        self._process = os.getpid()
        self._closed = False
        _forbid_core_dumps()

    def __repr__(self) -> str:
        return f"<Client: {self.chain.n} sources>"

    # -- requests ------------------------------------------------------------------------------------------

    def get(self, source: str | int, *, private: bool) -> Message:
        """The latest message of `source`; whether privacy is ON is what the server will be able to tell.

        Raises UnknownSource, JournalError, CatalogueMismatch (nothing was sent), ServerUnreachable or BadAnswer (it
        may have been sent, and counts as sent: `retry` sends the same again, another `get` is another request).
        """
        wanted = self._index(source)
        with self._lock:
            opened = self._opened()
            return self._run(opened, opened.core.request(wanted, private=private))

    def retry(self) -> Message:
        """The message of the last request, by sending its bytes again. Raises what `get` raises."""
        with self._lock:
            opened = self._opened()
            return self._run(opened, opened.core.retry())

    # -- what is known without asking ----------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether the last request is still without an answer, also from before a crash."""
        with self._lock:
            record = self._opened().core.record
            return record is not None and record.pending

    @property
    def tables(self) -> TableCache:
        """The tables that queries are drawn from, by last query. They depend on nothing secret."""
        return self._tables

    def status(self) -> dict[str, Any]:
        """Where the session stands, as the server knows it: nothing of which source was wanted."""
        with self._lock:
            core = self._opened().core
            record = core.record
            sent = None if record is None or core.doubt is not None else core.sent(record).as_dict()
            return {"server": self.url, "doubt": core.doubt, "pending": self.pending, "last": sent}

    def expected_cost(self, *, private: bool, wait: bool = True) -> float | None:
        """How many messages the next request will download, on average; None if that takes building and not `wait`."""
        with self._lock:
            core = self._opened().core
            if core.doubt is not None or core.record is None:
                return float(self.chain.n)
            session = core.session.fork(self._entropy)
        if private:
            return session.expected_cost(private=True)
        if not wait and session.memory.rows.distinct > 1 and not self._tables.has(session.memory):
            return None
        self._build(session.memory)
        return session.expected_cost(private=False)

    # -- life ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the books and let go of the journal. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._pay()
            self._drop()
        self._jobs.put(None)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- carrying out --------------------------------------------------------------------------------------

    def _opened(self) -> _Open:
        """The journal, open and with its books closed, and the machine that stands where it stands."""
        if self._closed:
            raise OnOffError("this client is closed", hint="make a new one")
        if os.getpid() != self._process:
            raise JournalBusy("this client belongs to the process that made it", hint="make a client after forking")
        self._pay()
        if self._open is None:
            journal = self.journal
            keeper = Journal(Path(journal)) if isinstance(journal, str | os.PathLike) else journal
            core = Core(
                Session(self.chain, everything=self._everything, entropy=self._entropy, tables=self._tables),
                server=self.url,
                origin=self.origin,
                new_session=self._new_session,
                attempts=self._attempts,
                backoff=self._backoff,
            )
            core.opened(keeper.found, keeper.doubt)
            self._open = _Open(core, keeper)
        return self._open

    def _run(self, opened: _Open, steps: Steps) -> Message:
        started = self._clock()
        event: Event = None
        try:
            while True:
                event = self._perform(opened, steps.send(event), started)
        except StopIteration as done:
            message: Message = done.value
        except JournalError:
            self._drop()
            raise
        except OnOffError:
            self._finish(opened, answered=False)
            raise
        except BaseException:  # an interrupt, or a fault of ours: stand where the journal stands
            self._drop()
            raise
        self._finish(opened, answered=True)
        return message

    def _perform(self, opened: _Open, command: Command, started: float) -> Event:
        match command:
            case Fetch():
                return self._transport.exchange(
                    Request("GET", wire.CATALOGUE_PATH, wire.CATALOGUE_HEADERS, b"", LARGEST_CATALOGUE)
                )
            case Ask(session):
                return self._transport.exchange(
                    Request("POST", wire.SEEN_PATH, wire.SEEN_HEADERS, session, SMALL_ANSWER)
                )
            case Send(query, limit):
                return self._transport.exchange(Request("POST", wire.QUERY_PATH, wire.QUERY_HEADERS, query, limit))
            case Build():
                self._build(opened.core.session.memory)
            case Store(record):
                opened.keeper.store(record)
                if self._observe is not None:
                    self._observe(opened.core.sent(record))
            case Tick():
                if self._tick:
                    spent = (self._clock() - started) / self._tick
                    self._sleep((math.ceil(spent) - spent) * self._tick)
            case Wait(seconds):
                self._sleep(seconds)
        return None

    def _finish(self, opened: _Open, *, answered: bool) -> None:
        """After a request: the books are to be closed, and the next table built; here, or in the background."""
        self._owed = opened.keeper.settle if answered else opened.keeper.tidy
        if not self._background:
            self._pay()
            return
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="onoff-client", daemon=True)
            self._worker.start()
        self._jobs.put(opened.core.session.memory)

    def _pay(self) -> None:
        """Close the books if that is owed. A disk that failed once is not believed again: the journal is dropped."""
        if self._owed is None:
            return
        try:
            self._owed()
            self._owed = None
        except JournalError:
            self._drop()

    def _work(self) -> None:
        while (memory := self._jobs.get()) is not None:
            with self._lock:
                self._pay()
            if self._jobs.empty():  # else the state has moved on
                with suppress(OnOffError):  # whoever needs the table will meet the same error
                    self._build(memory)

    def _build(self, memory: Memory) -> None:
        """Have the table at hand. It depends on public state only, so how long it takes tells nothing."""
        if memory.rows.distinct == 1:
            return
        with self._building:
            if self._tables.has(memory):
                return
            started = self._clock()
            self._report(Progress("building", memory.rows.m))
            self._tables.of(memory)
            self._report(Progress("ready", memory.rows.m, self._clock() - started))

    def _report(self, progress: Progress) -> None:
        if self._progress is not None:
            self._progress(progress)

    def _drop(self) -> None:
        if self._open is not None:
            self._open.keeper.close()
        self._open = self._owed = None

    def _index(self, source: str | int) -> int:
        """The number of a source. The error names nothing that is near it: the name is somebody's request."""
        with suppress(UnknownSource):
            return self.chain.index(source)
        raise UnknownSource("no such source", hint="`onoff catalogue` lists the names that the server has")


def default_journal(url: str) -> Path:
    """Where the journal for a server is kept unless told otherwise: one file per address, in the state directory."""
    from platformdirs import user_state_path

    return user_state_path("onoff") / f"journal-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}.sqlite"


def _forbid_core_dumps() -> None:
    """The process knows what was wanted; its image must not end up on disk."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
