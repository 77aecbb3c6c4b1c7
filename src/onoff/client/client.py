"""Client: `get("news", private=True)`, safe across crashes, retries and restores.

A request is carried out by `driver` from the commands of `core`, under one lock, with the journal that `durable` holds
open. After each answer a thread flushes the journal and builds the table of the next query, so that a request costs
one draw and one commit.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from onoff import wire
from onoff.client.background import Background
from onoff.client.builder import Progress, TableBuilder
from onoff.client.commands import Steps
from onoff.client.core import Core
from onoff.client.driver import TICK, Attempt, Clock, Driver
from onoff.client.durable import DurableCore
from onoff.client.exchange import Transport
from onoff.client.journal import Journal, JournalStore
from onoff.client.message import Message, Sent
from onoff.client.transport import Http, check_url
from onoff.errors import InvalidInput, JournalError, OnOffError, UnknownSource
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.cache import TableCache
from onoff.session.entropy import Entropy, SystemEntropy
from onoff.session.memory import Memory
from onoff.tables.files import default_store

ATTEMPTS: Final = 4
BACKOFF: Final = 0.2
TIMEOUT: Final = 30.0


class Client:
    """A user of `chain` who fetches messages from the server at `url`. Threads may share it; requests queue.

    Parameters
    ----------
    url
        The address of the server.
    chain
        A MarkovChain, or the path of its file.
    journal
        The path of the journal (default: one per server in the user's state directory), or a JournalStore.
    scheme, options
        How queries are built.
    everything
        Whether every private request asks for all sources, not only for those that can be wanted.
    attempts, backoff, timeout
        How often the same bytes are sent before the server is given up; seconds before the second attempt, doubled
        before every further one; seconds that one attempt may take.
    tick
        Seconds between the moments at which queries leave; see `driver.TICK`.
    background
        Whether a thread flushes the journal and builds tables ahead of requests.
    observe, progress, waiting
        Called with every `Sent` before it leaves, every `Progress` of a table, every `Attempt` that begins.
    tables
        Tables to share with other clients of the same chain, instead of `scheme` and `options`.
    entropy, new_session, transport, clock, sleep
        The world outside, for tests and audits.

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
        waiting: Callable[[Attempt], None] | None = None,
        tables: TableCache | None = None,
        entropy: Entropy | None = None,
        new_session: Callable[[], bytes] = lambda: secrets.token_bytes(wire.SESSION_BYTES),
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        self.url = check_url(url).rstrip("/")
        self.chain = chain if isinstance(chain, MarkovChain) else MarkovChain.load(Path(chain))
        origin = "given by the program" if isinstance(chain, MarkovChain) else str(Path(chain).absolute())
        self.journal = default_journal(self.url) if journal is None else journal
        if tables is None:
            options.setdefault("store", default_store() if journal is None else None)
            tables = TableCache(self.chain, scheme, **options)
        elif options:
            raise InvalidInput("both tables and how to make them", hint="give one of the two")
        self._builder = TableBuilder(tables, progress, clock)
        self._driver = Driver(
            Http(url, timeout=timeout) if transport is None else transport,
            self._builder,
            Clock(clock, sleep, tick),
            observe,
            waiting,
        )
        random = SystemEntropy() if entropy is None else entropy

        def new_core() -> Core:
            session = Session(self.chain, everything=everything, entropy=random, tables=tables)
            return Core(
                session, server=self.url, origin=origin, new_session=new_session, attempts=attempts, backoff=backoff
            )

        self._durable = DurableCore(self._open_journal, new_core)
        self._background = Background("onoff-client", self._after_request) if background else None
        self._lock = threading.RLock()
        _forbid_core_dumps()

    def __repr__(self) -> str:
        return f"<Client: {self.chain.n} sources>"

    # -- requests ------------------------------------------------------------------------------------------

    def get(self, source: str | int, *, private: bool) -> Message:
        """The latest message of `source`. `private`: hide which source is wanted; else hide only earlier requests.

        Raises UnknownSource, JournalError, CatalogueMismatch (nothing was sent), ServerUnreachable or BadAnswer (it
        may have been sent, and counts as sent: `retry` sends the same again, another `get` is another request).
        """
        wanted = self._index(source)
        return self._run(lambda core: core.request(wanted, private=private))

    def retry(self) -> Message:
        """The message of the last request, by sending its bytes again. Raises what `get` raises."""
        return self._run(Core.retry)

    # -- what is known without asking ----------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether the last request is still without an answer, also from before a crash."""
        record = self.core.record
        return record is not None and record.pending

    @property
    def tables(self) -> TableCache:
        """The tables that queries are drawn from, by last query. They depend on nothing secret."""
        return self._builder.tables

    def status(self) -> dict[str, Any]:
        """Where the session stands, as the server knows it: nothing of which source was wanted."""
        with self._lock:
            core = self.core
            record = core.record
            sent = None if record is None or core.doubt is not None else core.sent(record).as_dict()
            return {"server": self.url, "doubt": core.doubt, "pending": self.pending, "last": sent}

    def expected_cost(self, *, private: bool, wait: bool = True) -> float | None:
        """How many messages the next request will download, on average; None if that takes building and not `wait`."""
        with self._lock:
            core = self.core
            if core.doubt is not None or core.record is None:
                return float(self.chain.n)
            session = core.session.fork(SystemEntropy())  # as it stands now, whatever is asked meanwhile
        if private:
            return session.expected_cost(private=True)
        if not wait and not self._builder.ready(session.memory):
            return None
        self._builder.build(session.memory)
        return session.expected_cost(private=False)

    # -- life ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush the journal and let go of it. A second call does nothing."""
        with self._lock:
            closed_now = self._durable.close()
        if closed_now and self._background is not None:
            self._background.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- carrying out --------------------------------------------------------------------------------------

    @property
    def core(self) -> Core:
        """The state machine as the journal has it, opened if need be. For audits and tests: it holds what is secret."""
        with self._lock:
            return self._durable.open()[0]

    def _open_journal(self) -> JournalStore:
        journal = self.journal
        return Journal(Path(journal)) if isinstance(journal, str | os.PathLike) else journal

    def _run(self, steps: Callable[[Core], Steps[Message]]) -> Message:
        with self._lock:
            core, journal = self._durable.open()
            try:
                message = self._driver.run(core, journal, steps(core))
            except JournalError:
                self._durable.drop()
                raise
            except OnOffError:
                self._defer(core, journal.checkpoint)
                raise
            except BaseException:  # an interrupt, or a fault of ours: go back to what the journal holds
                self._durable.drop()
                raise
            self._defer(core, journal.complete)
            return message

    def _defer(self, core: Core, work: Callable[[], None]) -> None:
        self._durable.defer(work)
        if self._background is None:
            self._durable.flush()
        else:
            self._background.submit(core.session.memory)

    def _after_request(self, memory: Memory, latest: Callable[[], bool]) -> None:
        """In the background: flush the journal, and build the next table unless the state has moved on."""
        with self._lock:
            self._durable.flush()
        if latest():
            with suppress(OnOffError):  # whoever needs the table will meet the same error
                self._builder.build(memory)

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
