"""RequestRunner: carries out the steps of a core, one request at a time, and keeps its journal.

Commands that need the network go to the `driver`; the record is stored in the journal, and tables come from the
`builder`. After each answer a thread flushes the journal and builds the table of the next query, so that a request
costs one draw and one commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from onoff.client.background import Background
from onoff.client.builder import TableBuilder
from onoff.client.commands import Build, Command, Result, Steps, StoreRecord
from onoff.client.core import Core
from onoff.client.driver import Driver
from onoff.client.durable import DurableCore
from onoff.client.message import Message, Sent
from onoff.errors import JournalError, OnOffError
from onoff.session.memory import Memory


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

            def perform(command: Command) -> None:
                match command:
                    case Build():
                        self.builder.build(core.session.memory)
                    case StoreRecord(record):
                        journal.store(record)
                        if self._observe is not None:
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
            self._background.submit(core.session.memory)

    def _after_request(self, memory: Memory, latest: Callable[[], bool]) -> None:
        """In the background: flush the journal, and build the next table unless the state has moved on."""
        with self.lock:
            self.durable.flush()
        if latest():
            with suppress(OnOffError):  # a request that needs the table gets the same error
                self.builder.build(memory)
