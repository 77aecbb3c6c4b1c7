"""RequestRunner: carries out the steps of a core, one request at a time, and keeps its journal.

What needs the network goes to the `driver`; the record is stored in the journal, and tables come from the
`builder`. After each answer a background thread flushes the journal and builds the table of the next query, so that a
request costs one draw and one commit.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from onoff.client.core import Build, Core, StoreRecord, Tick
from onoff.client.journal import JournalStore
from onoff.client.message import Message, Sent
from onoff.errors import JournalBusy, JournalError, OnOffError
from onoff.session.session import Memory, TableCache
from onoff.upstream.steps import Event, Result, SendRequest, Steps, Wait
from onoff.upstream.transport import Request, Transport

# --------------------------------------------------------------------------------------------------------------------
# Driver: carries out commands, one after the other: exchanges over a transport, waiting by a clock.


TICK: Final = 0.05
"""Seconds between the moments at which queries are sent, so that the time of sending tells nothing of the draw."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An exchange that begins now; `number` counts how often the same was sent, `server` is which of several."""

    number: int
    server: int = 0


@dataclass(frozen=True)
class TickClock:
    """Time for a driver, in seconds; queries are sent at multiples of `tick` after the request came."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tick: float = TICK

    def wait_for_tick(self, started: float) -> None:
        """Sleep until a whole number of ticks has passed since `started`."""
        if self.tick:
            spent = (self.now() - started) / self.tick
            self.sleep((math.ceil(spent) - spent) * self.tick)


class Driver:
    """Carries out the commands of a core or a refresh. `waiting` is called with every `Attempt`."""

    def __init__(
        self, transports: Sequence[Transport], clock: TickClock, waiting: Callable[[Attempt], None] | None = None
    ) -> None:
        self._transports = tuple(transports)
        self._clock = clock
        self._waiting = waiting

    def run(self, steps: Steps[Result], perform: Callable[[object], None] | None = None) -> Result:
        """What the steps return when all their commands are carried out."""
        started = self._clock.now()
        event: Event = None
        last: tuple[int, Request] | None = None
        attempt = 0
        while True:
            try:
                command = steps.send(event)
            except StopIteration as done:
                result: Result = done.value
                return result
            event = None
            match command:
                case SendRequest(request, server):
                    attempt, last = attempt + 1 if (server, request) == last else 1, (server, request)
                    if self._waiting is not None:
                        self._waiting(Attempt(attempt, server))
                    event = self._transports[server].exchange(request)
                case Tick():
                    self._clock.wait_for_tick(started)
                case Wait(seconds):
                    self._clock.sleep(seconds)
                case _ if perform is not None:
                    perform(command)


# --------------------------------------------------------------------------------------------------------------------
# TableBuilder: builds the table of the next query in advance, one at a time, and reports what it builds.


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """The table of the next query: "building" or "ready", for how many sources, and after how many seconds."""

    state: str
    sources: int
    seconds: float = 0.0


class TableBuilder:
    """Builds tables into a cache. A table depends on public state only, so how long it takes tells nothing."""

    def __init__(self, report: Callable[[BuildProgress], None] | None, clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()

    def ready(self, tables: TableCache | None, memory: Memory) -> bool:
        """Whether an OFF request in this state would need no building."""
        return memory.rows.distinct == 1 or tables is None or tables.has(memory)

    def build(self, tables: TableCache | None, memory: Memory) -> None:
        """Build the table of `memory` unless it is in the cache."""
        with self._lock:
            if tables is None or self.ready(tables, memory):
                return
            started = self._clock()
            self._tell(BuildProgress("building", memory.rows.m))
            tables.of(memory)
            self._tell(BuildProgress("ready", memory.rows.m, self._clock() - started))

    def _tell(self, progress: BuildProgress) -> None:
        if self._report is not None:
            self._report(progress)


log = logging.getLogger("onoff.client")

_Item = TypeVar("_Item")


class RequestRunner:
    """Threads may share it: requests queue at `lock`, which can be held over several calls.

    Parameters
    ----------
    durable
        The core and its journal.
    driver
        Carries out what needs a server.
    builder
        Builds tables.
    observe
        Called with what the server will see of every request, once that is durable.
    background
        Whether a thread flushes the journal and builds tables ahead of requests.
    """

    def __init__(
        self,
        durable: DurableCore,
        driver: Driver,
        builder: TableBuilder,
        *,
        observe: Callable[[Sent], None] | None,
        background: bool,
    ) -> None:
        self.durable = durable
        self.driver = driver
        self.builder = builder
        self.lock = threading.RLock()
        self._observe = observe
        self._background = Background("onoff-client", self._after_request) if background else None

    @property
    def core(self) -> Core:
        """The state machine as the journal has it, opened if need be."""
        with self.lock:
            return self.durable.open()[0]

    def run(self, steps: Callable[[Core], Steps[Result]]) -> Result:
        """Carry out steps of the core; after an error the core is again what the journal holds."""
        with self.lock:
            core, journal = self.durable.open()

            def perform(command: object) -> None:
                match command:
                    case Build():
                        self.builder.build(core.session.tables, core.session.memory)
                    case StoreRecord(record, request):
                        journal.store(record)
                        if self._observe is not None and request:
                            self._observe(core.sent(record))

            try:
                return self.driver.run(steps(core), perform)
            except JournalError:
                self.durable.drop()
                raise
            except OnOffError:
                self._defer(core, journal.checkpoint)
                raise
            except BaseException:  # an interrupt, or a bug
                self.durable.drop()
                raise

    def ask(self, steps: Callable[[Core], Steps[Message]]) -> Message:
        """Carry out a request that servers answer."""
        with self.lock:
            message = self.run(steps)
            core, journal = self.durable.open()
            self._defer(core, journal.complete)
            return message

    @contextmanager
    def answering(self) -> Iterator[Core]:
        """A block that answers the stored request without a query. It counts as answered unless the block raises."""
        with self.lock:
            core, journal = self.durable.open()
            try:
                yield core
            except OnOffError:
                self._defer(core, journal.checkpoint)
                raise
            core.answered()
            self._defer(core, journal.complete)

    def close(self) -> None:
        """Flush and close the journal. A second call does nothing."""
        with self.lock:
            closed_now = self.durable.close()
        if closed_now and self._background is not None:
            self._background.close()

    def _defer(self, core: Core, work: Callable[[], None]) -> None:
        self.durable.defer(work)
        if self._background is None:
            self.durable.flush()
        else:
            self._background.submit((core.session.tables, core.session.memory))

    def _after_request(self, state: tuple[TableCache | None, Memory], latest: Callable[[], bool]) -> None:
        """In the background: flush the journal, and build the next table unless the state has moved on."""
        with self.lock:
            self.durable.flush()
        if latest():
            with suppress(OnOffError):  # a request that needs the table gets the same error
                self.builder.build(*state)


class DurableCore:
    """A core and its journal, opened together and dropped together. Not thread-safe: its owner holds a lock.

    Marking a request as answered and truncating the journal's log need not delay a request: they are deferred, and
    flushed before the next request, by a background thread, or when the client is closed. After a failed write or an
    interrupt the journal is dropped and opened again at the next request, as after a crash.
    """

    def __init__(self, open_journal: Callable[[], JournalStore], new_core: Callable[[], Core]) -> None:
        self._open_journal = open_journal
        self._new_core = new_core
        self._opened: tuple[Core, JournalStore] | None = None
        self._deferred: Callable[[], None] | None = None
        self._process = os.getpid()
        self._closed = False

    def open(self) -> tuple[Core, JournalStore]:
        """The core and its journal, with nothing left to flush."""
        if self._closed:
            raise OnOffError("this client is closed", hint="make a new one")
        if os.getpid() != self._process:
            raise JournalBusy("this client belongs to the process that made it", hint="make a client after forking")
        self.flush()
        if self._opened is None:
            journal = self._open_journal()
            core = self._new_core()
            core.opened(journal.found, journal.doubt)
            self._opened = core, journal
        return self._opened

    def defer(self, work: Callable[[], None]) -> None:
        """Leave `work` to the next `flush`."""
        self._deferred = work

    def flush(self) -> None:
        """Do what was deferred. If a write fails, the journal is dropped, and opened again for the next request."""
        if self._deferred is None:
            return
        try:
            self._deferred()
            self._deferred = None
        except JournalError:
            self.drop()

    def drop(self) -> None:
        """Close the journal; the next `open` reads it again."""
        if self._opened is not None:
            self._opened[1].close()
        self._opened = self._deferred = None

    def close(self) -> bool:
        """Flush and close for good; False where it was closed before."""
        if self._closed:
            return False
        self._closed = True
        self.flush()
        self.drop()
        return True


class Background(Generic[_Item]):
    """Calls `work(item, latest)` for every item in order; `latest()` tells whether no newer item is waiting.

    The thread starts with the first item, ends with `close`, and never keeps the process alive.
    """

    def __init__(self, name: str, work: Callable[[_Item, Callable[[], bool]], None]) -> None:
        self._name = name
        self._work = work
        self._items: SimpleQueue[_Item | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, item: _Item) -> None:
        """Add an item to the queue."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._items.put(item)

    def close(self) -> None:
        """End the thread after the items that are waiting."""
        self._items.put(None)

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            try:
                self._work(item, self._items.empty)
            except Exception as error:  # what it would have done ahead is done by the next request
                log.error("%s in the background", type(error).__name__)
