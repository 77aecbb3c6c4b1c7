"""Client: `get("news", private=True)`, safe across crashes, retries and restores.

`core` decides what is asked and stored; `runner` carries it out, one request at a time. Private requests are
answered from the mirror where there is one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, cast

from onoff.client.copies import KeptCopies, MirrorClient, Refresh, SourceState, WhereCopiesAre, with_copies
from onoff.client.core import Core
from onoff.client.forecast import Forecast, cost_of_set, expected_messages, forecast, sum_bytes
from onoff.client.journal import Journal, JournalStore
from onoff.client.message import Copy, Message, ServerView
from onoff.client.runner import NO_HOOKS, Hooks, Runner
from onoff.errors import InvalidInput, ServerMissing, SourceFailed, UnknownSource
from onoff.model.chain import NAME_THEM, Names, Sources, default_names
from onoff.model.contexts import Model, check_model, load_model
from onoff.model.origin import Advice, advice_of
from onoff.model.people import FEWEST_KNOWN, OpenHistory, best_guess, constants_of, own_law_of
from onoff.names import some_of
from onoff.session import Session
from onoff.session.session import Entropy, SystemEntropy, TableCache
from onoff.system.interrupts import forbid_core_dumps
from onoff.system.plugins import load_plugin, plugins
from onoff.tables.files import default_table_folder
from onoff.upstream.message_server import MessageServer, NoChanges
from onoff.upstream.sum_servers import SumServers
from onoff.upstream.transport import ATTEMPTS, BACKOFF, TIMEOUT, Steps, Transport
from onoff.upstream.web import Web

# --------------------------------------------------------------------------------------------------------------------
# What a client is made from: where its journal is, where messages come from, what may be watched or replaced.


def default_journal(url: str) -> Path:
    """Where the journal for a server is kept unless told otherwise: one file per address, in the state directory."""
    from platformdirs import user_state_path

    return user_state_path("onoff") / f"journal-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}.sqlite"


def upstream_of(
    where: str | Sequence[str],
    *,
    attempts: int = ATTEMPTS,
    backoff: float = BACKOFF,
    timeout: float = TIMEOUT,
    proxy: str | None = None,
    on_missing: Literal["error", "everything"] = "error",
    transports: Sequence[Transport] | None = None,
    randbelow: Callable[[int], int] = secrets.randbelow,
) -> MessageServer | SumServers | Web:
    """The message server at an address, or the servers at several; see `MessageServer` and `SumServers`.

    An address of a kind that another distribution adds leads to what that gives for it (`onoff.system.plugins`).
    """
    urls = (where,) if isinstance(where, str) else tuple(where)
    other = plugins("onoff.upstreams").get(urls[0].partition("://")[0]) if len(urls) == 1 else None
    if other is not None:
        return cast("MessageServer | SumServers | Web", load_plugin(other)(urls[0]))
    if len(urls) != 1:
        return SumServers(
            urls,
            on_missing=on_missing,
            attempts=attempts,
            backoff=backoff,
            timeout=timeout,
            proxy=proxy,
            transports=transports,
            randbelow=randbelow,
        )
    line = None if transports is None else transports[0]
    return MessageServer(urls[0], attempts=attempts, backoff=backoff, timeout=timeout, proxy=proxy, transport=line)


def randbelow(entropy: Entropy) -> Callable[[int], int]:
    """Uniform draws below a bound: the operating system's, unless a test or an audit gives others."""
    return secrets.randbelow if isinstance(entropy, SystemEntropy) else lambda k: entropy.choose([1] * k)


HIDING: Final = ("hide", "person", "topics", "everything", "leak")
"""Options of a client that are those of its session."""
STAY_ON_MEND: Final = (
    "ask privately; learn a model from other people's requests (`onoff learn`) and audit it (`onoff audit traces "
    "--save`); or accept what it gives away (accept_leak=True, --accept-leak)"
)


class Client:
    """A user of `model` who fetches messages from `upstream`. Threads may share it; requests queue.

    Parameters
    ----------
    upstream
        Where messages come from: `onoff.Web` for ordinary sites; the address of a message server, or a `MessageServer`;
        the addresses of several that hold the same messages and do not tell each other what they were asked, or
        `SumServers`: none of them then learns which source is wanted, at the cost of about two messages.
    model
        How requests follow one another: a MarkovChain, a RequestModel, or the path of a file of either. None: not
        known, and every request is private.
    journal
        The path of the journal (default: one per server in the user's state directory), or a JournalStore.
    scheme
        How queries are built; or tables to share with other clients of the same model.
    mirror
        Where copies are kept: a path (default: beside the journal), or a mirror. Of a message server False: none, and
        private requests ask for everything by a query.
    max_age
        Seconds for which copies that were brought up to date count as such.
    accept_leak
        Whether open requests are made although the `advice` is "stay-on".
    hooks
        What may be watched or replaced.
    options
        What is hidden, as for a `Session`: hide, person, topics, everything, leak; and options of the scheme. With
        topics a private request is a query for about one source of each, not a refresh of all.

    >>> from onoff import MarkovChain
    >>> client = Client("http://127.0.0.1:8470", MarkovChain([[0.9, 0.1], [0.2, 0.8]]), journal="/nonexistent/journal")
    >>> client
    <Client: 2 sources>
    """

    def __init__(
        self,
        upstream: str | Sequence[str] | MessageServer | SumServers | Web,
        model: Model | str | os.PathLike[str] | None,
        journal: str | os.PathLike[str] | JournalStore | None = None,
        scheme: str | TableCache = "auto",
        *,
        mirror: WhereCopiesAre = None,
        max_age: float = 0.0,
        accept_leak: bool = False,
        hooks: Hooks = NO_HOOKS,
        **options: Any,
    ) -> None:
        random = SystemEntropy() if hooks.entropy is None else hooks.entropy
        if not isinstance(upstream, MessageServer | SumServers | Web):
            upstream = upstream_of(upstream, randbelow=randbelow(random))
        origin = str(Path(model).absolute()) if isinstance(model, str | os.PathLike) else "given by the program"
        self._model = load_model(Path(model)) if isinstance(model, str | os.PathLike) else model
        if self._model is not None:
            check_model(self._model)
        self.upstream = upstream
        self.url = upstream.address
        self.journal = default_journal(self.url) if journal is None else journal
        self.accept_leak = accept_leak
        self.about: Mapping[str, Any] = {} if self._model is None else self._model.about
        how: dict[str, Any] = {name: options.pop(name) for name in HIDING if name in options} | {"entropy": random}
        tables = scheme if isinstance(scheme, TableCache) else None
        if isinstance(scheme, str) and self._model is not None:
            options.setdefault("store", default_table_folder() if journal is None else None)
            tables = TableCache(self._model, scheme, **options)
        elif options:
            raise InvalidInput("both tables and how to make them, or no model for them", hint="give one of the two")
        self.max_age = max_age
        self._upstream, self._copies = with_copies(upstream, mirror, self.journal, hooks)
        self._tells_changes, place = True, self._upstream
        self._foreseen: tuple[OpenHistory, float] | None = None
        self._topics = how.get("topics") is not None
        if self._model is not None:
            Session(self._model, tables=tables, **how)  # refuses what cannot be, before anything is opened
        elif self._topics or how.get("leak") or how.get("person") is not None:
            raise InvalidInput("topics, a leak or a person without a model", hint="give a chain or a model")

        def new_core() -> Core:
            place.forget()
            own = None
            if self._model is None or tables is None:
                session = Session(Names(self.chain.names))
            else:
                session = Session(self._model, tables=tables, **how)
                if constants_of(self._model) is not None:
                    own = partial(_session_of, self._model, tables, how)
            return Core(session, place, origin=origin, new_session=hooks.new_session, own=own)

        self._runner = Runner(self._open_journal, new_core, place.lines, hooks)
        forbid_core_dumps()

    def __repr__(self) -> str:
        return "<Client: no model>" if self._model is None else f"<Client: {self._model.n} sources>"

    @cached_property
    def chain(self) -> Sources:
        """The model; without one, the names of the upstream, which is asked for them."""
        if self._model is not None:
            return self._model
        return Names(self._runner.driver.run(self._upstream.offers()))

    @property
    def servers(self) -> int:
        """How many servers count the steps of this client: none where messages come from ordinary sites."""
        return len(self._upstream.lines)

    # -- requests ------------------------------------------------------------------------------------------

    def get(self, source: str | int, *, private: bool, max_age: float | None = None, stale_ok: bool = False) -> Message:
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
        stale_ok
            Where a site does not give this source: the old copy, which says its `age`, instead of SourceFailed.

        Raises
        ------
        UnknownSource, JournalError, CatalogueMismatch, InvalidInput
            Nothing was sent; InvalidInput where it is open, the `advice` is to stay ON, and that was not accepted.
        ServerUnreachable, BadAnswer, MirrorError, OverBudget
            It counts as made: `retry` repeats it, another `get` is another request.
        SourceFailed
            All of the set was asked for, and the site did not give this source. Another `get` is another request.
        """
        wanted = self._index(source)
        if not private and self._model is None:
            raise InvalidInput("without a model every request is private", hint="give a chain or a model to switch OFF")
        if not private:
            self.check_advice()
        if private and self._reads_copies:
            with self._runner.lock:
                self._copies[0].ready(self.chain.names)
                self._runner.run(lambda core: core.remember(wanted, pending=True))
                return _given(self._read_mirror(wanted, self.max_age if max_age is None else max_age), stale_ok)
        return _given(self._ask_or_mirror(wanted, lambda core: core.request(wanted, private=private)), stale_ok)

    def retry(self, *, stale_ok: bool = False) -> Message:
        """The message of the last request, by asking for the same again. Raises what `get` raises.

        Parameters
        ----------
        stale_ok
            As for `get`.
        """
        with self._runner.lock:
            record = self.core.record
            if record is not None and record.mirror and self._reads_copies:
                return _given(self._read_mirror(self.core.waiting().wanted, 0.0), stale_ok)
            wanted = None if record is None else record.wanted
            return _given(self._ask_or_mirror(wanted, lambda core: core.retry()), stale_ok)

    def remember(self) -> None:
        """Keep in the journal what is asked openly, so that sessions know of this person what the server knows.

        Before the first request; a second call does nothing. Open requests are then sent plain until the first private
        one, of which the model is made that is used from then on (`onoff.own_law`), for this server and in this journal
        alone: at most 200 requests, readable by their owner, gone with `onoff state reset`. Nothing private must have
        been asked of this server before, by any client.

        Raises
        ------
        InvalidInput
            Where requests were made before, or the model's file holds no constants of the own law.
        """
        self._runner.run(lambda core: core.keep_history())

    def forget(self) -> None:
        """Remove what `remember` kept. What was private is then hidden by asking for everything, until the next ON."""
        self._runner.run(lambda core: core.forget_history())

    # -- the mirror ----------------------------------------------------------------------------------------

    def refresh(self) -> Refresh:
        """Bring the mirror up to date: one request that tells the server when it was made and nothing else.

        Raises ServerUnreachable, BadAnswer, CatalogueMismatch, NoChanges (the server is of an older version), or
        MirrorError; the mirror is then as it was.
        """
        copies = self.copies_of()
        refreshed = copies.refresh()
        copies.require(self.chain.names)
        return refreshed

    def read(self, source: str | int) -> Message:
        """The message of `source` as the mirror has it: a private request without any traffic.

        That this source was wanted is stored durably before the message is returned, so that the next open request
        hides it. Raises UnknownSource, JournalError, MirrorEmpty before the first refresh, or MirrorError.
        """
        wanted = self._index(source)
        copies = self.copies_of()
        with self._runner.lock:
            self._runner.run(lambda core: core.remember(wanted, pending=True))
            with self._runner.answering() as core:
                message = copies.copy(self.chain.names[wanted], Message)
            return message.after(_sent(core), messages=0, received=0)

    def read_unmodelled(self, source: str) -> Message:
        """The message of a source that the server has and the model does not, as the mirror has it; see `read`.

        No traffic. The model says nothing of such a request, so it can be private only, and what was private before
        stays hidden as it was. Raises UnknownSource where the mirror does not have it either.
        """
        copies = self.copies_of()
        with self._runner.lock:
            message = copies.copy(source, Message)
            self._runner.run(lambda core: core.remember_unmodelled())
            everything = tuple(range(self.chain.n))
            return message.after(
                ServerView("", -1, everything, self.chain.n, True, mirror=True), messages=0, received=0
            )

    def copy(self, source: str | int) -> Copy:
        """The message of `source` as the mirror has it. This is *not* a request: no traffic, and nothing is stored.

        Only for programs that read every source in a fixed order, whatever the person wants. Raises UnknownSource,
        MirrorEmpty or MirrorError.
        """
        return self.copies_of().copy(self.chain.names[self._index(source)])

    def sources(self) -> tuple[SourceState, ...]:
        """What the mirror knows of the chain's sources, in their order. No traffic, and not a request."""
        known = {state.name: state for state in self.copies_of().sources()}
        return tuple(known[name] for name in self.chain.names if name in known)

    @property
    def copies(self) -> KeptCopies | None:
        """The copies (of several servers: of the first), and what refreshes them; None where there are none."""
        return self._copies[0] if self._copies else None

    @property
    def mirror(self) -> MirrorClient | None:
        """The same of message servers; None where there is none."""
        return self.copies if isinstance(self.copies, MirrorClient) else None

    def forecast(self) -> Forecast:
        """What requests will cost, in bytes. Asks the server how much changes in an hour, and nothing else."""
        with self._runner.lock:
            core = self.core
            session = core.session.fork(SystemEntropy())
            doubtful = core.doubt is not None or core.record is None
        if not doubtful:
            self._runner.build(session.tables, session.memory)
        return forecast(self._need_mirror(), None if doubtful else session, self.chain.names, self.servers)

    def _read_mirror(self, wanted: int, max_age: float, place: int = 0) -> Message:
        """Refresh and read, after `wanted` was stored. A server without `/v1/changes` is sent a query instead."""
        copies, name = self.copies_of(place), self.chain.names[wanted]
        try:
            with self._runner.answering() as core:
                refreshed = copies.refresh_if_older(max_age)
                if refreshed is not None:
                    copies.require(self.chain.names)
                message = copies.copy_as(Message, name)
        except NoChanges:
            self._tells_changes = False  # not tried again by this client
            return self._ask(lambda core: core.ask_everything(wanted))
        message.outcome = copies.outcome(name, refreshed)
        if refreshed is None:
            return message.after(_sent(core), messages=0, received=0)
        message.requests, message.asked, opening = refreshed.requests, copies.names or (), 0
        if self._model is not None:  # the server has just seen a refresh: it learns no time
            opening = self._runner.run(lambda core: core.open_session())
            copies.count_traffic(opening)
        messages = len(refreshed.changed) + bool(opening)
        return message.after(_sent(core), messages=messages, received=refreshed.received + opening)

    @property
    def _reads_copies(self) -> bool:
        """Whether private requests are answered from copies."""
        several = isinstance(self._upstream, SumServers)
        return bool(self._copies) and self._tells_changes and not self._topics and not several

    def copies_of(self, place: int = 0) -> KeptCopies:
        """The copies of one of several servers. Raises InvalidInput where there are none."""
        if not self._copies:
            raise InvalidInput("this client has no mirror", hint="make it without mirror=False")
        return self._copies[place]

    def _need_mirror(self) -> MirrorClient:
        found = self.copies_of()
        if not isinstance(found, MirrorClient):
            raise InvalidInput("this client has no mirror", hint="bytes are foreseen of message servers only")
        return found

    # -- what is known without asking ----------------------------------------------------------------------

    @property
    def advice(self) -> Advice:
        """Whether to switch OFF with this model, by what its file says: one of "off", "warn" and "stay-on", and why.

        Without a model: stay ON. A chain that a program made up says nothing: "warn", not measured. What is promised of
        it is exact for people who behave like it.
        """
        if self._model is None:
            return Advice("stay-on", "There is no model.", False)
        history = self.core.history if constants_of(self._model) is not None else None
        known = history is not None and history.open >= FEWEST_KNOWN
        return advice_of(self.about, "open" if known else "none")

    @property
    def foreseen(self) -> float | None:
        """How likely the server's best guess of the next request is right, by what was openly asked of it alone.

        By the model of this person that is made of their open history; None where none is kept, or something is hidden.
        """
        history = self.core.history
        if self._model is None or history is None or history.hidden or not history.open:
            return None
        if self._foreseen is None or self._foreseen[0] != history:
            self._foreseen = history, best_guess(own_law_of(self._model, history, b""), history)
        return self._foreseen[1]

    def check_advice(self) -> None:
        """Raise InvalidInput where the advice is to stay ON, and that was not accepted."""
        advice = None if self.accept_leak else self.advice
        if advice is not None and advice.word == "stay-on":
            raise InvalidInput(f"stay ON with this model: {advice.says} Nothing was sent", hint=STAY_ON_MEND)

    def announce(self, source: str | int, *, after: int) -> None:
        """Hide from now on that `source` will be asked for privately after so many more requests.

        It takes a chain, its last query, and a request before it. Raises InvalidInput where it cannot be, and nothing
        was stored.
        """
        wanted = self._index(source)
        self._runner.run(lambda core: core.announce(wanted, after))

    @property
    def spent(self) -> float:
        """Bits that queries since the last private request may have told about it; see `Session.spent`."""
        return self.core.session.spent

    @property
    def pending(self) -> bool:
        """Whether the last request is still without an answer, also from before a crash."""
        record = self.core.record
        return record is not None and record.pending

    @property
    def tables(self) -> TableCache:
        """The tables that queries are drawn from, by last query. They depend on nothing secret."""
        if self._model is None:
            raise InvalidInput("a client without a model has no tables", hint="give a chain or a model")
        return self.core.session.tables

    def status(self) -> dict[str, Any]:
        """The state of the session as the server knows it: nothing of which source was wanted."""
        with self._runner.lock:
            core = self.core
            record = core.record
            sent = None if record is None or core.doubt is not None else core.sent(record).as_dict()
            history = core.history
            known = None if history is None else {"open": history.open, "private_since": history.hidden}
            status = {"server": self.url, "doubt": core.doubt, "pending": self.pending, "last": sent, "history": known}
            return {**status, "spent": self.spent}

    def expected_cost(self, *, private: bool, wait: bool = True) -> float | None:
        """How many messages the next request will download, on average; None if that takes building and not `wait`."""
        with self._runner.lock:
            core = self.core
            if core.doubt is not None or core.record is None:
                return cost_of_set(self.chain.n, max(self.servers, 1))
            session = core.session.fork(SystemEntropy())  # the state now, whatever is asked meanwhile
        if not private and not wait and not self._runner.ready(session.tables, session.memory):
            return None
        if not private:
            self._runner.build(session.tables, session.memory)
        return expected_messages(session, max(self.servers, 1), private=private)

    def expected_bytes(self, *, private: bool, wait: bool = True) -> float | None:
        """Of several servers: how many bytes their answers to the next request will have, on average.

        None if that takes building and not `wait`. Asks the first server how long messages are, unless that is known
        from a request. Raises ServerUnreachable, or InvalidInput where there is one server: see `forecast`.
        """
        messages = self.expected_cost(private=private or self._model is None, wait=wait)
        servers = self._upstream
        if not isinstance(servers, SumServers):
            raise InvalidInput("one server answers at the messages' own lengths", hint="see `Client.forecast`")
        if servers.longest is None:
            servers.longest = self._need_mirror().newest().longest
        return None if messages is None else sum_bytes(messages, servers.longest, self.servers)

    # -- life ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close the journal, and close the mirror. A second call does nothing."""
        self._runner.close()
        with self._runner.lock:
            for copies in self._copies:
                copies.close()

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
                servers = self._upstream
                allowed = isinstance(servers, SumServers) and servers.on_missing == "everything"
                if not allowed or not error.answered or wanted is None or not self._copies:
                    raise
                private = self.core.record is None or self.core.record.private
                self._runner.run(lambda core: core.remember(wanted, private=private, pending=True, again=True))
                return self._read_mirror(wanted, 0.0, error.answered[0])

    def _ask(self, steps: Callable[[Core], Steps[Message]]) -> Message:
        """A request that the server answers."""
        with self._runner.lock:
            message = self._runner.ask(steps)
            for copies in self._copies[:1]:
                copies.count_traffic(message.received)
            return message

    def _index(self, source: str | int) -> int:
        """The number of a source. The error suggests no similar name: the name is private."""
        with suppress(UnknownSource):
            return self.chain.index(source)
        names = self.chain.names
        if names == default_names(len(names)):
            raise UnknownSource(f"no such source: the chain does not name its {len(names)} sources", hint=NAME_THEM)
        raise UnknownSource("no such source", hint=f"there are {some_of(names)}; `onoff catalogue` lists the server's")


def _given(message: Message, stale_ok: bool) -> Message:
    """The message; or raises SourceFailed where the site did not give it and an old copy will not do."""
    if message.outcome.state != "failed" or (stale_ok and message.version):
        return message
    old = f"; the last copy is {message.age:.0f} s old: allow it with stale_ok" if message.version else ""
    raise SourceFailed(
        f"what was wanted cannot be had: {message.outcome.reason}",
        hint=f"all of the set was asked for. Make another request later{old}",
        status=message.outcome.status,
    )


def _session_of(
    population: Model, tables: TableCache, how: dict[str, Any], history: OpenHistory, seed: bytes
) -> Session:
    """The session of a person of whom the server knows this history."""
    model = own_law_of(population, history, seed)
    return Session(model, tables=tables.for_model(model), history=history, **how)


def _sent(core: Core) -> ServerView:
    assert core.record is not None
    return core.sent(core.record)


# --------------------------------------------------------------------------------------------------------------------
# AsyncClient: the client for asyncio. The same methods as `Client`, each run in a thread.

_P = ParamSpec("_P")
_Given = TypeVar("_Given")


def _in_thread(
    method: Callable[Concatenate[Client, _P], _Given],
) -> Callable[Concatenate[AsyncClient, _P], Coroutine[Any, Any, _Given]]:
    @wraps(method)
    async def awaited(self: AsyncClient, /, *arguments: _P.args, **options: _P.kwargs) -> _Given:
        return await asyncio.to_thread(method, self.client, *arguments, **options)

    return awaited


class AsyncClient:
    """`Client`, with the same arguments and the same methods, each awaited.

    Requests queue as they do in `Client`. Cancelling the wait does not cancel the request: it counts as sent.

    >>> from onoff import MarkovChain
    >>> chain = MarkovChain([[0.9, 0.1], [0.2, 0.8]])
    >>> client = AsyncClient("http://127.0.0.1:8470", chain, journal="/nonexistent/journal")
    >>> client
    <AsyncClient: 2 sources>
    >>> asyncio.run(client.close())
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.client = Client(*arguments, **options)

    def __repr__(self) -> str:
        return f"<Async{repr(self.client)[1:]}"

    get = _in_thread(Client.get)
    retry = _in_thread(Client.retry)
    refresh = _in_thread(Client.refresh)
    read = _in_thread(Client.read)
    copy = _in_thread(Client.copy)
    sources = _in_thread(Client.sources)
    forecast = _in_thread(Client.forecast)
    status = _in_thread(Client.status)
    expected_cost = _in_thread(Client.expected_cost)
    announce = _in_thread(Client.announce)
    remember = _in_thread(Client.remember)
    forget = _in_thread(Client.forget)
    close = _in_thread(Client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
