"""Client: `get("news", private=True)`, safe across crashes, retries and restores.

`core` decides what is asked and stored; `runner` carries it out, one request at a time. Private requests are
answered from the mirror where there is one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

from onoff import wire
from onoff.client.commands import ATTEMPTS, BACKOFF, Retries, Steps
from onoff.client.copies import MemoryMirror, MirrorClient, Refresh, SourceState
from onoff.client.core import Core
from onoff.client.forecast import Forecast, cost_of_set, expected_messages, forecast, sum_bytes
from onoff.client.journal import Journal, JournalStore
from onoff.client.message import Copy, Message, Sent
from onoff.client.message_server import NoChanges, fetch_by, require_sources
from onoff.client.runner import (
    TICK,
    Attempt,
    BuildProgress,
    Driver,
    DurableCore,
    RequestRunner,
    TableBuilder,
    TickClock,
)
from onoff.client.servers import SumCore
from onoff.client.unmodelled import AlwaysPrivate, NoModel
from onoff.errors import InvalidInput, ServerMissing, UnknownSource
from onoff.model.contexts import Model, check_model, load_model
from onoff.session import Session
from onoff.session.session import Entropy, SystemEntropy, TableCache
from onoff.tables.files import default_table_folder
from onoff.upstream.transport import TIMEOUT, Http, Transport, check_url

# --------------------------------------------------------------------------------------------------------------------
# What a client is made from: where its journal is, how servers are reached, where randomness comes from.


def default_journal(url: str) -> Path:
    """Where the journal for a server is kept unless told otherwise: one file per address, in the state directory."""
    from platformdirs import user_state_path

    return user_state_path("onoff") / f"journal-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}.sqlite"


def check_servers(urls: tuple[str, ...], on_missing: str) -> None:
    """Raise InvalidInput unless the addresses are different and `on_missing` is known."""
    if not urls or len(set(urls)) != len(urls):
        raise InvalidInput("no server, or the same one twice", hint="give addresses of different servers")
    if len(urls) > wire.MAX_SERVERS:
        raise InvalidInput(f"{len(urls)} servers", hint=f"at most {wire.MAX_SERVERS}")
    if on_missing not in {"error", "everything"}:
        raise InvalidInput(f"on_missing={on_missing!r}", hint='"error" or "everything"')


def transports(
    urls: tuple[str, ...], transport: Transport | Sequence[Transport] | None, timeout: float
) -> tuple[Transport, ...]:
    """How each server is reached.

    transport: One for each server, or one for a lone server; HTTP unless given.
    """
    if transport is None:
        return tuple(Http(url, timeout=timeout) for url in urls)
    return tuple(transport) if isinstance(transport, Sequence) else (transport,) * len(urls)


def randbelow(entropy: Entropy) -> Callable[[int], int]:
    """Uniform draws below a bound: the operating system's, unless a test or an audit gives others."""
    return secrets.randbelow if isinstance(entropy, SystemEntropy) else lambda k: entropy.choose([1] * k)


def forbid_core_dumps() -> None:
    """Disable core dumps: the process knows which source was wanted, and its image must not be written to disk."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


class Client:
    """A user of `chain` who fetches messages from the server at `url`. Threads may share it; requests queue.

    Parameters
    ----------
    url
        The address of the server, or the addresses of several that hold the same messages and do not tell each other
        what they were asked: none of them then learns which source is wanted, at the cost of about two messages.
    chain
        How requests follow one another: a MarkovChain, a RequestModel, or the path of a file of either. None: not
        known, and every request is private.
    journal
        The path of the journal (default: one per server in the user's state directory), or a JournalStore.
    scheme, options
        How queries are built.
    mirror
        The path of the mirror (default: beside the journal), or a mirror. False: none, and private requests ask for
        everything by a query.
    max_age
        Seconds for which a refreshed mirror counts as up to date.
    on_missing
        Where one of several servers does not answer: "error", or "everything" to fetch all messages from one that does.
    hide
        With a RequestModel: how many of the last private requests stay hidden.
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
        Called with every `Sent` before it leaves, every `BuildProgress` of a table, every `Attempt` that begins.
    tables
        Tables to share with other clients of the same chain, instead of `scheme` and `options`.
    entropy, new_session, transport, clock, now, sleep
        To be replaced in tests and audits: `clock` measures seconds, `now` gives seconds since 1970.

    >>> from onoff import MarkovChain
    >>> client = Client("http://127.0.0.1:8470", MarkovChain([[0.9, 0.1], [0.2, 0.8]]), journal="/nonexistent/journal")
    >>> client
    <Client: 2 sources>
    """

    def __init__(
        self,
        url: str | Sequence[str],
        chain: Model | str | os.PathLike[str] | None,
        journal: str | os.PathLike[str] | JournalStore | None = None,
        scheme: str = "auto",
        *,
        mirror: str | os.PathLike[str] | MemoryMirror | Literal[False] | None = None,
        max_age: float = 0.0,
        on_missing: Literal["error", "everything"] = "error",
        hide: int = 1,
        everything: bool = False,
        attempts: int = ATTEMPTS,
        backoff: float = BACKOFF,
        timeout: float = TIMEOUT,
        tick: float = TICK,
        background: bool = True,
        observe: Callable[[Sent], None] | None = None,
        progress: Callable[[BuildProgress], None] | None = None,
        waiting: Callable[[Attempt], None] | None = None,
        tables: TableCache | None = None,
        entropy: Entropy | None = None,
        new_session: Callable[[], bytes] = lambda: secrets.token_bytes(wire.SESSION_BYTES),
        transport: Transport | Sequence[Transport] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        self.urls = tuple(check_url(each).rstrip("/") for each in ([url] if isinstance(url, str) else url))
        self.url = " ".join(self.urls)
        check_servers(self.urls, on_missing)
        origin = str(Path(chain).absolute()) if isinstance(chain, str | os.PathLike) else "given by the program"
        self._model = load_model(Path(chain)) if isinstance(chain, str | os.PathLike) else chain
        if self._model is not None:
            check_model(self._model)
        self.journal = default_journal(self.url) if journal is None else journal
        if tables is None and self._model is not None:
            options.setdefault("store", default_table_folder() if journal is None else None)
            tables = TableCache(self._model, scheme, **options)
        elif options:
            raise InvalidInput("both tables and how to make them, or no model for them", hint="give one of the two")
        self.max_age = max_age
        lines = transports(self.urls, transport, timeout)
        self._on_missing = on_missing
        self._mirrors = tuple(
            MirrorClient(
                each,
                self._beside_the_journal(place) if mirror is None or place else mirror,
                attempts=attempts,
                backoff=backoff,
                waiting=waiting,
                transport=line,
                clock=clock,
                now=now,
                sleep=sleep,
            )
            for place, (each, line) in enumerate(zip(self.urls, lines, strict=True))
            if mirror is not False
        )
        self._tells_changes = True
        random = SystemEntropy() if entropy is None else entropy
        retries = [Retries(each, attempts, backoff) for each in self.urls]

        def new_core() -> Core:
            session = (
                cast("Session", AlwaysPrivate(self.chain.names))
                if self._model is None
                else Session(self._model, hide=hide, everything=everything, entropy=random, tables=tables)
            )
            if len(retries) == 1:
                return Core(session, retries[0], origin=origin, new_session=new_session)
            return SumCore(session, retries, origin=origin, new_session=new_session, randbelow=randbelow(random))

        self._runner = RequestRunner(
            DurableCore(self._open_journal, new_core),
            Driver(lines, TickClock(clock, sleep, tick), waiting),
            TableBuilder(tables, progress, clock),
            observe=observe,
            background=background,
        )
        forbid_core_dumps()

    def __repr__(self) -> str:
        return "<Client: no model>" if self._model is None else f"<Client: {self._model.n} sources>"

    @cached_property
    def chain(self) -> Model:
        """The model; without one, the names in the catalogue of the server, which is asked for them."""
        if self._model is not None:
            return self._model
        catalogue = self._runner.driver.run(fetch_by(Retries(self.urls[0])))
        return cast("Model", NoModel(catalogue.names))

    # -- requests ------------------------------------------------------------------------------------------

    def get(self, source: str | int, *, private: bool, max_age: float | None = None) -> Message:
        """The latest message of `source`.

        Parameters
        ----------
        source
            Its name, or its number in the chain.
        private
            True: refresh the mirror and read it; the server learns nothing of which source is wanted. False: ask the
            server for a few sources, this one among them, so that it learns nothing of earlier requests.
        max_age
            For a private request, seconds for which a refreshed mirror counts as up to date; None: the client's own.

        Raises
        ------
        UnknownSource, JournalError, CatalogueMismatch
            Nothing was sent.
        ServerUnreachable, BadAnswer, MirrorError
            It counts as made: `retry` repeats it, another `get` is another request.
        """
        wanted = self._index(source)
        if not private and self._model is None:
            raise InvalidInput("without a model every request is private", hint="give a chain or a model to switch OFF")
        if private and len(self.urls) == 1 and self._mirrors and self._tells_changes:
            with self._runner.lock:
                self._runner.run(lambda core: core.remember(wanted, pending=True))
                return self._read_mirror(wanted, self.max_age if max_age is None else max_age)
        return self._ask_or_mirror(wanted, lambda core: core.request(wanted, private=private))

    def retry(self) -> Message:
        """The message of the last request, by sending the same bytes again. Raises what `get` raises."""
        with self._runner.lock:
            record = self.core.record
            if record is not None and record.mirror and len(self.urls) == 1 and self._mirrors:
                return self._read_mirror(self.core.waiting().wanted, 0.0)
            return self._ask_or_mirror(None if record is None else record.wanted, lambda core: core.retry())

    # -- the mirror ----------------------------------------------------------------------------------------

    def refresh(self) -> Refresh:
        """Bring the mirror up to date: one request that tells the server when it was made and nothing else.

        Raises ServerUnreachable, BadAnswer, CatalogueMismatch, NoChanges (the server is of an older version), or
        MirrorError; the mirror is then as it was.
        """
        mirror = self._need_mirror()
        refreshed = mirror.refresh()
        assert mirror.mirror.catalogue is not None
        require_sources(self.chain.names, mirror.mirror.catalogue)
        return refreshed

    def read(self, source: str | int) -> Message:
        """The message of `source` as the mirror has it: a private request without any traffic.

        That this source was wanted is stored durably before the message is returned, so that the next open request
        hides it. Raises UnknownSource, JournalError, MirrorEmpty before the first refresh, or MirrorError.
        """
        wanted = self._index(source)
        mirror = self._need_mirror()
        with self._runner.lock:
            self._runner.run(lambda core: core.remember(wanted, pending=True))
            with self._runner.answering() as core:
                message = mirror.copy_as(Message, self.chain.names[wanted])
            return message.after(_sent(core), messages=0, received=0)

    def read_unmodelled(self, source: str) -> Message:
        """The message of a source that the server has and the model does not, as the mirror has it; see `read`.

        No traffic. The model says nothing of such a request, so it can be private only, and what was private before
        stays hidden as it was. Raises UnknownSource where the mirror does not have it either.
        """
        mirror = self._need_mirror()
        with self._runner.lock:
            message = mirror.copy_as(Message, source)
            self._runner.run(lambda core: core.remember_unmodelled())
            everything = tuple(range(self.chain.n))
            return message.after(Sent("", -1, everything, self.chain.n, True, mirror=True), messages=0, received=0)

    def copy(self, source: str | int) -> Copy:
        """The message of `source` as the mirror has it. This is *not* a request: no traffic, and nothing is stored.

        Only for programs that read every source in a fixed order, whatever the person wants. Raises UnknownSource,
        MirrorEmpty or MirrorError.
        """
        return self._need_mirror().copy(self.chain.names[self._index(source)])

    def sources(self) -> tuple[SourceState, ...]:
        """What the mirror knows of the chain's sources, in their order. No traffic, and not a request."""
        known = {state.name: state for state in self._need_mirror().sources()}
        return tuple(known[name] for name in self.chain.names if name in known)

    @property
    def mirror(self) -> MirrorClient | None:
        """The mirror (of several servers: of the first), and what refreshes it; None where the client has none."""
        return self._mirrors[0] if self._mirrors else None

    def forecast(self) -> Forecast:
        """What requests will cost, in bytes. Asks the server how much changes in an hour, and nothing else."""
        with self._runner.lock:
            core = self.core
            session = core.session.fork(SystemEntropy())
            doubtful = core.doubt is not None or core.record is None
        if not doubtful:
            self._runner.builder.build(session.memory)
        known = None if doubtful or self._model is None else session
        return forecast(self._need_mirror(), known, self.chain.names, len(self.urls))

    def _read_mirror(self, wanted: int, max_age: float, place: int = 0) -> Message:
        """Refresh and read, after `wanted` was stored. A server without `/v1/changes` is sent a query instead."""
        mirror = self._need_mirror(place)
        try:
            with self._runner.answering() as core:
                refreshed = mirror.refresh_if_older(max_age)
                if refreshed is not None and mirror.mirror.catalogue is not None:
                    require_sources(self.chain.names, mirror.mirror.catalogue)
                message = mirror.copy_as(Message, self.chain.names[wanted])
        except NoChanges:
            self._tells_changes = False  # not tried again by this client
            return self._ask(lambda core: core.ask_everything(wanted))
        if refreshed is None:
            return message.after(_sent(core), messages=0, received=0)
        opening = 0
        if len(self.urls) == 1 and self._model is not None:  # the server has just seen a refresh: it learns no time
            opening = self._runner.run(lambda core: core.open_session())
            mirror.count_traffic(opening)
        messages = len(refreshed.changed) + bool(opening)
        return message.after(_sent(core), messages=messages, received=refreshed.received + opening)

    def _need_mirror(self, place: int = 0) -> MirrorClient:
        if not self._mirrors:
            raise InvalidInput("this client has no mirror", hint="make it without mirror=False")
        return self._mirrors[place]

    def _beside_the_journal(self, place: int) -> Path | None:
        if not isinstance(self.journal, str | os.PathLike):
            return None
        return Path(f"{os.fspath(self.journal)}.mirror{f'-{place}' if place else ''}")

    # -- what is known without asking ----------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether the last request is still without an answer, also from before a crash."""
        record = self.core.record
        return record is not None and record.pending

    @property
    def tables(self) -> TableCache:
        """The tables that queries are drawn from, by last query. They depend on nothing secret."""
        if self._runner.builder.tables is None:
            raise InvalidInput("a client without a model has no tables", hint="give a chain or a model")
        return self._runner.builder.tables

    def status(self) -> dict[str, Any]:
        """The state of the session as the server knows it: nothing of which source was wanted."""
        with self._runner.lock:
            core = self.core
            record = core.record
            sent = None if record is None or core.doubt is not None else core.sent(record).as_dict()
            return {"server": self.url, "doubt": core.doubt, "pending": self.pending, "last": sent}

    def expected_cost(self, *, private: bool, wait: bool = True) -> float | None:
        """How many messages the next request will download, on average; None if that takes building and not `wait`."""
        with self._runner.lock:
            core = self.core
            if core.doubt is not None or core.record is None:
                return cost_of_set(self.chain.n, len(self.urls))
            session = core.session.fork(SystemEntropy())  # the state now, whatever is asked meanwhile
        if not private and not wait and not self._runner.builder.ready(session.memory):
            return None
        if not private:
            self._runner.builder.build(session.memory)
        return expected_messages(session, len(self.urls), private=private)

    def expected_bytes(self, *, private: bool, wait: bool = True) -> float | None:
        """Of several servers: how many bytes their answers to the next request will have, on average.

        None if that takes building and not `wait`. Asks the first server how long messages are, unless that is known
        from a request. Raises ServerUnreachable, or InvalidInput where there is one server: see `forecast`.
        """
        messages = self.expected_cost(private=private or self._model is None, wait=wait)
        core = self.core
        if not isinstance(core, SumCore):
            raise InvalidInput("one server answers at the messages' own lengths", hint="see `Client.forecast`")
        longest = core.longest
        if longest is None:
            longest = core.longest = self._need_mirror().newest().longest
        return None if messages is None else sum_bytes(messages, longest, len(self.urls))

    # -- life ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close the journal, and close the mirror. A second call does nothing."""
        self._runner.close()
        with self._runner.lock:
            for mirror in self._mirrors:
                mirror.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- carrying out --------------------------------------------------------------------------------------

    @property
    def core(self) -> Core:
        """The state machine in the state of the journal, opened if needed. For audits and tests: it holds secrets."""
        return self._runner.core

    def _open_journal(self) -> JournalStore:
        journal = self.journal
        return Journal(Path(journal)) if isinstance(journal, str | os.PathLike) else journal

    def _ask_or_mirror(self, wanted: int | None, steps: Callable[[Core], Steps[Message]]) -> Message:
        """A request; where one of several servers does not answer, everything from another if `on_missing` says so."""
        with self._runner.lock:
            try:
                return self._ask(steps)
            except ServerMissing as error:
                if self._on_missing != "everything" or not error.answered or wanted is None or not self._mirrors:
                    raise
                private = self.core.record is None or self.core.record.private
                self._runner.run(lambda core: core.remember(wanted, private=private, pending=True, again=True))
                return self._read_mirror(wanted, 0.0, error.answered[0])

    def _ask(self, steps: Callable[[Core], Steps[Message]]) -> Message:
        """A request that the server answers."""
        with self._runner.lock:
            message = self._runner.ask(steps)
            for mirror in self._mirrors[:1]:
                mirror.count_traffic(message.received)
            return message

    def _index(self, source: str | int) -> int:
        """The number of a source. The error suggests no similar name: the name is private."""
        with suppress(UnknownSource):
            return self.chain.index(source)
        raise UnknownSource("no such source", hint="`onoff catalogue` lists the names that the server has")


def _sent(core: Core) -> Sent:
    assert core.record is not None
    return core.sent(core.record)


# --------------------------------------------------------------------------------------------------------------------
# AsyncClient: the client for asyncio. The same methods as `Client`, each run in a thread.
#
# Requests queue as they do in `Client`. Cancelling the wait does not cancel the request: it counts as sent.


class AsyncClient:
    """`Client`, with the same arguments.

    >>> from onoff import MarkovChain
    >>> chain = MarkovChain([[0.9, 0.1], [0.2, 0.8]])
    >>> client = AsyncClient("http://127.0.0.1:8470", chain, journal="/nonexistent/journal")
    >>> client
    <AsyncClient: 2 sources>
    >>> asyncio.run(client.close())
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = Client(*arguments, **options)

    def __repr__(self) -> str:
        return f"<Async{repr(self._client)[1:]}"

    async def get(self, source: str | int, *, private: bool, max_age: float | None = None) -> Message:
        """See `Client.get`.

        Parameters
        ----------
        source, private, max_age
            As for `Client.get`.
        """
        return await asyncio.to_thread(self._client.get, source, private=private, max_age=max_age)

    async def refresh(self) -> Refresh:
        """See `Client.refresh`."""
        return await asyncio.to_thread(self._client.refresh)

    async def read(self, source: str | int) -> Message:
        """See `Client.read`."""
        return await asyncio.to_thread(self._client.read, source)

    async def copy(self, source: str | int) -> Copy:
        """See `Client.copy`."""
        return await asyncio.to_thread(self._client.copy, source)

    async def sources(self) -> tuple[SourceState, ...]:
        """See `Client.sources`."""
        return await asyncio.to_thread(self._client.sources)

    async def forecast(self) -> Forecast:
        """See `Client.forecast`."""
        return await asyncio.to_thread(self._client.forecast)

    async def retry(self) -> Message:
        """See `Client.retry`."""
        return await asyncio.to_thread(self._client.retry)

    async def status(self) -> dict[str, Any]:
        """See `Client.status`."""
        return await asyncio.to_thread(self._client.status)

    async def expected_cost(self, *, private: bool, wait: bool = True) -> float | None:
        """See `Client.expected_cost`."""
        return await asyncio.to_thread(self._client.expected_cost, private=private, wait=wait)

    async def close(self) -> None:
        """See `Client.close`."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
