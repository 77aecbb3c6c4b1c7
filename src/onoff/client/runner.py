"""Runner: carries out the steps of a core, one request at a time, and keeps its journal.

What needs the network goes to a `Driver`; the record is stored in the journal. After each answer a background thread
flushes the journal and builds the table of the next query, so that a request costs one draw and one commit.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from onoff import wire
from onoff.client.core import Build, Core, StoreRecord, Tick
from onoff.client.journal import JournalStore
from onoff.client.message import Message, ServerView
from onoff.errors import JournalBusy, JournalError, OnOffError
from onoff.session.session import Entropy, Memory, TableCache
from onoff.upstream.transport import Event, Request, Result, Steps, Transport, Wait

log = logging.getLogger("onoff.client")

TICK: Final = 0.05
"""Seconds between the moments at which queries are sent, so that the time of sending tells nothing of the draw."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An exchange that begins now; `number` counts how often the same was sent, `server` is which of several."""

    number: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """The table of the next query: "building" or "ready", for how many sources, and after how many seconds."""

    state: str
    sources: int
    seconds: float = 0.0


@dataclass(frozen=True)
class Hooks:
    """What a program may watch, and what tests and audits replace.

    observe      called with every `ServerView` before it leaves; progress: with every `BuildProgress`; waiting:
                 with every `Attempt` that begins
    background   whether a thread flushes the journal and builds tables ahead of requests
    tick         seconds between the moments at which queries leave; see `TICK`
    entropy      where randomness comes from; the operating system's unless given
    new_session  16 fresh random bytes
    clock, now   seconds; seconds since 1970; sleep: waits
    """

    observe: Callable[[ServerView], None] | None = None
    progress: Callable[[BuildProgress], None] | None = None
    waiting: Callable[[Attempt], None] | None = None
    background: bool = True
    tick: float = TICK
    entropy: Entropy | None = None
    new_session: Callable[[], bytes] = lambda: secrets.token_bytes(wire.SESSION_BYTES)
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


NO_HOOKS: Final = Hooks()


class Driver:
    """Carries out steps: exchanges over the lines of an upstream, and waiting, by the clock of `hooks`."""

    def __init__(self, lines: Sequence[Transport], hooks: Hooks = NO_HOOKS) -> None:
        self.lines, self._hooks = tuple(lines), hooks

    def run(self, steps: Steps[Result], perform: Callable[[object], None] | None = None) -> Result:
        """What the steps return when all their commands are carried out; `perform` does others."""
        hooks, started = self._hooks, self._hooks.clock()
        event: Event = None
        last: Request | None = None
        attempt = 0
        while True:
            try:
                command = steps.send(event)
            except StopIteration as done:
                result: Result = done.value
                return result
            event = None
            match command:
                case Request(server=server):
                    attempt, last = attempt + 1 if command == last else 1, command
                    if hooks.waiting is not None:
                        hooks.waiting(Attempt(attempt, server))
                    event = self.lines[server].exchange(command)
                case Tick() if hooks.tick:  # until a whole number of ticks has passed since the request came
                    spent = (hooks.clock() - started) / hooks.tick
                    hooks.sleep((math.ceil(spent) - spent) * hooks.tick)
                case Wait(seconds):
                    hooks.sleep(seconds)
                case _ if perform is not None:
                    perform(command)


class Runner:
    """A core and its journal, opened together and dropped together. Threads may share it: requests queue at `lock`.

    Marking a request as answered and truncating the journal's log need not delay a request: they are deferred, and
    flushed before the next request, by the background thread, or when the client is closed. After a failed write or an
    interrupt the journal is dropped and opened again at the next request, as after a crash.
    """

    def __init__(
        self,
        open_journal: Callable[[], JournalStore],
        new_core: Callable[[], Core],
        lines: Sequence[Transport],
        hooks: Hooks,
    ) -> None:
        self.driver = Driver(lines, hooks)
        self.lock = threading.RLock()
        """It can be held over several calls."""
        self.observe = hooks.observe
        self._open_journal, self._new_core, self._hooks = open_journal, new_core, hooks
        self.opened: tuple[Core, JournalStore] | None = None
        self.deferred: Callable[[], None] | None = None
        self._process, self._closed = os.getpid(), False
        self._building = threading.Lock()  # a table may take minutes, and who looks at the state must not wait for it
        self._ahead: SimpleQueue[tuple[TableCache, Memory] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def core(self) -> Core:
        """The state machine as the journal has it, opened if need be."""
        with self.lock:
            return self.open()[0]

    def run(self, steps: Callable[[Core], Steps[Result]]) -> Result:
        """Carry out steps of the core; after an error the core is again what the journal holds."""
        with self.lock:
            core, journal = self.open()

            def perform(command: object) -> None:
                match command:
                    case Build():
                        self.build(core.session.tables, core.session.memory)
                    case StoreRecord(record, request):
                        journal.store(record)
                        if self.observe is not None and request:
                            self.observe(core.sent(record))

            try:
                return self.driver.run(steps(core), perform)
            except JournalError:
                self._drop()
                raise
            except OnOffError:
                self._defer(core, journal.checkpoint)
                raise
            except BaseException:  # an interrupt, or a bug
                self._drop()
                raise

    def ask(self, steps: Callable[[Core], Steps[Message]]) -> Message:
        """Carry out a request that servers answer."""
        with self.lock:
            message = self.run(steps)
            core, journal = self.open()
            self._defer(core, journal.complete)
            return message

    @contextmanager
    def answering(self) -> Iterator[Core]:
        """A block that answers the stored request without a query. It counts as answered unless the block raises."""
        with self.lock:
            core, journal = self.open()
            try:
                yield core
            except OnOffError:
                self._defer(core, journal.checkpoint)
                raise
            core.answered()
            self._defer(core, journal.complete)

    def close(self) -> None:
        """Flush and close the journal for good. A second call does nothing."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self.flush()
            self._drop()
        self._ahead.put(None)

    # -- the journal ---------------------------------------------------------------------------------------

    def open(self) -> tuple[Core, JournalStore]:
        """The core and its journal, with nothing left to flush."""
        if self._closed:
            raise OnOffError("this client is closed", hint="make a new one")
        if os.getpid() != self._process:
            raise JournalBusy("this client belongs to the process that made it", hint="make a client after forking")
        self.flush()
        if self.opened is None:
            journal = self._open_journal()
            core = self._new_core()
            core.opened(journal.found, journal.doubt)
            self.opened = core, journal
        return self.opened

    def flush(self) -> None:
        """Do what was deferred. If a write fails, the journal is dropped, and opened again for the next request."""
        if self.deferred is None:
            return
        try:
            self.deferred()
            self.deferred = None
        except JournalError:
            self._drop()

    def _drop(self) -> None:
        """Close the journal; the next request reads it again."""
        if self.opened is not None:
            self.opened[1].close()
        self.opened = self.deferred = None

    # -- ahead of requests ---------------------------------------------------------------------------------

    def ready(self, tables: TableCache, memory: Memory) -> bool:
        """Whether an OFF request in this state would need no building."""
        return memory.rows.distinct == 1 or tables.has(memory)

    def build(self, tables: TableCache, memory: Memory) -> None:
        """Build the table of `memory`, once. It depends on public state only, so how long it takes tells nothing."""
        with self._building:
            if self.ready(tables, memory):
                return
            tell = self._hooks.progress or (lambda progress: None)
            started = self._hooks.clock()
            tell(BuildProgress("building", memory.rows.m))
            tables.of(memory)
            tell(BuildProgress("ready", memory.rows.m, self._hooks.clock() - started))

    def _defer(self, core: Core, work: Callable[[], None]) -> None:
        self.deferred = work
        if not self._hooks.background:
            self.flush()
            return
        if self._thread is None:  # it never keeps the process alive
            self._thread = threading.Thread(target=self._work_ahead, name="onoff-client", daemon=True)
            self._thread.start()
        self._ahead.put((core.session.tables, core.session.memory))

    def _work_ahead(self) -> None:
        """Flush the journal, and build the next table unless the state has moved on."""
        while (state := self._ahead.get()) is not None:
            try:
                with self.lock:
                    self.flush()
                if self._ahead.empty():
                    with suppress(OnOffError):  # a request that needs the table gets the same error
                        self.build(*state)
            except Exception as error:  # what it would have done ahead is done by the next request
                log.error("%s in the background", type(error).__name__)
