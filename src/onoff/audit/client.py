"""The shipped client under the exact audit: real codec, real journal, real retry code, every branch and every fault.

An `AuditedClient` is driven like a session. Each request runs the real `Client` on a real journal file, with a recorder
in place of the socket and enumerated randomness in place of the system's; what the server sees of it is every byte
that left. Before each request one of the faults asked for happens, or none, each with the same probability:

    lost answer         the first answer is lost; the client sends again
    given up            no answer arrives; the user goes on to the next request
    crash before sending    the process ends between the commit and the first byte
    crash after sending     the process ends before the answer is read
    restart             the client was closed and opened again
    restored            the client was closed and its journal restored from before the last request, once
    lost                the client was closed and its journal is gone

After a crash the files are what they were at that moment, not what an orderly end would have made of them. Worlds
cannot be copied while a client lives, so a twin is made by running the same requests with the same choices again.

The audit then says whether I(X_B ; bytes of step t | bytes before) is zero, faults included; faults do not depend on
what is wanted, so that is what a server learns that sees them happen. The recorder's own rules are judged too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from onoff.audit.exact import ExactAudit, ScriptedEntropy, audit_exact
from onoff.audit.logs import RECORDER_FRAME_SIZE, URL, Recorder, SeenExchange
from onoff.audit.sampled import MakeRequest, NewUser
from onoff.client import Client, Hooks, MemoryCopies, ServerView, upstream_of
from onoff.client.client import randbelow
from onoff.client.core import Record
from onoff.errors import BadAnswer, MirrorEmpty, OnOffError, PrivacyBreach
from onoff.model.contexts import Model
from onoff.model.rows import Floats
from onoff.session.session import Entropy, Memory, SystemEntropy, TableCache
from onoff.upstream.message_server import MessageServer
from onoff.upstream.sum_servers import SumServers
from onoff.upstream.transport import Request
from onoff.upstream.web import Web
from onoff.wire import SESSION_BYTES


class Fault(StrEnum):
    """What can happen at a request."""

    NONE = "none"
    LOST_ANSWER = "lost answer"
    GIVEN_UP = "given up"
    CRASH_BEFORE = "crash before sending"
    CRASH_AFTER = "crash after sending"
    RESTART = "restart"
    RESTORED = "restored"
    LOST = "lost"


EVERY_FAULT = tuple(fault for fault in Fault if fault is not Fault.NONE)
KNOWN_LIMITS = ({Fault.RESTORED, Fault.LOST}, {Fault.RESTORED, Fault.CRASH_BEFORE})
"""Combinations that are not covered: the whole folder restored from before the journal was lost, or from before a
request that was stored and never sent. In both cases the old session still matches what the server saw last in it, and
what was asked in between, in another session or without being sent, is lost."""
CLIENT_ATTEMPTS = 2


@dataclass(frozen=True)
class RequestSeen:
    """What the server saw of one request. right: the message was the wanted one, or none was delivered."""

    sources: tuple[SeenExchange, ...]
    asked: int
    right: bool

    def __len__(self) -> int:
        return self.asked

    def __contains__(self, source: object) -> bool:
        return self.right


@dataclass
class AuditedClient:
    """The client as something the exact audit can drive."""

    chain: Model
    scheme: str
    faults: tuple[Fault, ...] = ()
    entropy: Entropy = field(default_factory=SystemEntropy)
    tables: TableCache = field(init=False)
    past: tuple[tuple[int, bool, tuple[int, ...]], ...] = ()
    """Every request so far: what was wanted, the switch, and the choices taken."""
    state: Hashable = None
    memory: Memory | None = None
    """Of the session after the last request: what the audit checks depends on what it promises."""
    judging: bool = True
    self_contained: ClassVar[bool] = True
    frame_size: ClassVar[int | None] = RECORDER_FRAME_SIZE

    def __post_init__(self) -> None:
        self.tables = TableCache(self.chain, self.scheme)

    @property
    def _new_run(self) -> Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun]:
        return ClientRun

    def fork(self, entropy: Entropy) -> Self:
        twin = replace(self, entropy=entropy)
        twin.tables = self.tables
        return twin

    def request(self, source: int | str, *, private: bool) -> RequestSeen:
        x = self.chain.index(source)
        noted = _RecordingEntropy(self.entropy)
        recording = partial(Recorder, judging=self.judging, frame_size=self.frame_size)
        with _client_run(self.chain, self.tables, self.faults, recording, self._new_run) as run:
            for wanted, status, choices in self.past:
                run.request(wanted, status, ScriptedEntropy(choices))
            seen = run.request(x, private, noted)
            self.state, self.memory = run.state, run.client.core.session.memory
        self.past = (*self.past, (x, private, tuple(noted.taken)))
        return seen


def audit_client(chain: Model, scheme: str, pattern: tuple[bool, ...], faults: Sequence[Fault] = ()) -> ExactAudit:
    """The exact audit of the shipped client, with a fault or none before every request.

    faults: What may happen at every request, or nothing, each with the same probability.
    """
    return audit_exact(chain, scheme, pattern, session=lambda: AuditedClient(chain, scheme, tuple(faults)))


def client_user(chain: Model, scheme: str, fault: Fault = Fault.NONE, at: int = 0, *, judging: bool = True) -> NewUser:
    """Users of the shipped client for the statistical audit, with real randomness and a recorder for a server.

    The fault happens at step `at` of every session: a rare one would hide what it leaks among the others.
    """
    tables = TableCache(chain, scheme)

    @contextmanager
    def user() -> Iterator[MakeRequest]:
        steps = count()
        with _client_run(chain, tables, (), partial(Recorder, judging=judging), ClientRun) as run:
            yield (
                lambda x, private: (
                    run.request(x, private, SystemEntropy(), fault if next(steps) == at else Fault.NONE).sources
                )
            )

    return user


class _RecordingEntropy:
    """Draws from another source and keeps what was chosen."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self.taken: list[int] = []

    def choose(self, weights: Sequence[int]) -> int:
        self.taken.append(self._entropy.choose(weights))
        return self.taken[-1]

    def uniforms(self, count: int) -> Floats:
        return self._entropy.uniforms(count)


class Crash(BaseException):
    """The process ends here."""


@contextmanager
def _client_run(
    chain: Model,
    tables: TableCache,
    faults: tuple[Fault, ...],
    recording: Callable[[tuple[str, ...], Path], Recorder],
    new_run: Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun],
) -> Iterator[ClientRun]:
    with tempfile.TemporaryDirectory(prefix="onoff-audit-", dir=fast_directory()) as directory:
        run = new_run(chain, tables, faults, recording(chain.names, Path(directory) / "journal"))
        try:
            yield run
        finally:
            run.client.close()


def fast_directory() -> str | None:
    """A directory in memory where there is one: syncing a journal is then fast."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class ClientRun:
    """One user, one journal, one server, from the first request on."""

    def __init__(self, chain: Model, tables: TableCache, faults: tuple[Fault, ...], recorder: Recorder) -> None:
        assert recorder.journal is not None
        self.chain, self.tables, self.journal, self.recorder = chain, tables, recorder.journal, recorder
        self.faults = (Fault.NONE, *faults)
        self.sessions = 0
        self.before: _Files = ()
        self.now: _Files = ()
        self.records: tuple[Record | None, ...] = (None, None)
        self.restored = False
        self._open()

    def _open(self) -> None:
        self.entropy = _Replaceable()
        self.client = Client(
            self.upstream(),
            self.chain,
            self.journal,
            scheme=self.tables,  # built once for all worlds
            mirror=self.mirror,
            **self.hiding,
            hooks=Hooks(
                observe=self.observed,
                tick=0,
                background=False,
                entropy=self.entropy,
                new_session=self._new_session,
                sleep=lambda seconds: None,
            ),
        )

    mirror: Literal[False] | MemoryCopies | None = False
    """The client's copies; None: a mirror beside the journal."""
    hiding: ClassVar[Mapping[str, Any]] = {}
    """What it hides, and how much: `leak`, `topics`, `hide`, `person`."""

    def upstream(self) -> MessageServer | SumServers | Web:
        """What the client asks."""
        return upstream_of(URL, transports=[self.recorder], attempts=CLIENT_ATTEMPTS)

    def observed(self, sent: ServerView) -> None:
        """Called when a request is durable, and nothing of it has left."""

    def _reopen(self, fault: Fault) -> None:
        self.client.close()
        if fault is Fault.LOST:
            _put_back(self.journal, ())
        elif fault is Fault.RESTORED and not self.restored and self.now:
            _put_back(self.journal, self.before)
            self.restored = True
        self._open()

    def _new_session(self) -> bytes:
        self.sessions += 1
        return self.sessions.to_bytes(SESSION_BYTES)

    def request(self, x: int, private: bool, entropy: Entropy, fault: Fault | None = None) -> RequestSeen:
        """One request, and what the server saw of it.

        fault: What happens at this request; drawn from those of the run unless given.
        """
        if fault is None:
            fault = self.faults[entropy.choose([1] * len(self.faults))] if len(self.faults) > 1 else Fault.NONE
        if fault in (Fault.RESTART, Fault.RESTORED, Fault.LOST):
            self._reopen(fault)
        self.entropy.source = entropy
        right = True
        try:
            right = self.ask(x, private, fault) in (None, self.recorder.message(x))
        except Crash:
            self.client.close()
            _put_back(self.journal, self._crashed)
            self._open()
        except OnOffError:
            if fault is not Fault.GIVEN_UP:
                raise
        self.before, self.now = self.now, _files(self.journal)
        self.records = self.records[1], self.client.core.record
        events, asked = self.taken()
        return RequestSeen(events, asked, right)

    def taken(self) -> tuple[tuple[SeenExchange, ...], int]:
        """What the server saw of the request, and how many messages it asked for."""
        return self.recorder.take()

    def ask(self, x: int, private: bool, fault: Fault) -> bytes | None:
        """The message that the client delivers, or None where there can be none."""
        self.recorder.fault = self.happens(fault)
        return self.client.get(x, private=private).payload

    def crash(self) -> None:
        """Simulate the end of the process, which leaves the files as they are."""
        self._crashed = _files(self.journal)
        raise Crash

    def happens(self, fault: Fault) -> Callable[[Request, bool], bool]:
        lost = 0

        def happens(request: Request, seen: bool) -> bool:
            nonlocal lost
            if (fault is Fault.CRASH_BEFORE and not seen) or (fault is Fault.CRASH_AFTER and seen):
                self.crash()
            lost += seen
            return seen and (fault is Fault.GIVEN_UP or (fault is Fault.LOST_ANSWER and lost == 1))

        return happens

    @property
    def state(self) -> Hashable:
        core = self.client.core
        files = self.records if Fault.RESTORED in self.faults and not self.restored else self.records[1:]
        # of the sessions that the server keeps, those that some journal still knows; the others are never used again
        alive = tuple(self.recorder.last.get(record.session) for record in files if record is not None)
        own = core.doubt, core.checked, getattr(core.upstream, "catalogue", None) is None, core.session.state
        return own, files, alive, self.sessions, self.restored


class _Replaceable:
    """The client's entropy, from a source that is set before each request."""

    source: Entropy

    def choose(self, weights: Sequence[int]) -> int:
        return self.source.choose(weights)

    def uniforms(self, count: int) -> Floats:
        return self.source.uniforms(count)


_Files = tuple[tuple[Path, bytes], ...]


def _files(journal: Path) -> _Files:
    """The journal's files as they are now."""
    return tuple((path, path.read_bytes()) for path in (journal, *_beside(journal)) if path.exists())


def _beside(journal: Path) -> tuple[Path, ...]:
    """The log, and the file of the live session: the whole folder is restored, which is the worst case."""
    return tuple(journal.with_name(journal.name + end) for end in ("-wal", ".session"))


def _put_back(journal: Path, files: _Files) -> None:
    """Write them as they were, in place: the file stays the same file."""
    held = dict(files)
    for path in set(_beside(journal)) - set(held):
        path.unlink(missing_ok=True)
    for path, content in {journal: b"", **held}.items():
        if path.exists():
            with path.open("r+b") as file:
                file.truncate()
                file.write(content)
        else:
            path.write_bytes(content)


# --------------------------------------------------------------------------------------------------------------------
# The shipped client with its mirror under the exact audit: reads while ON, refreshes by schedule, open requests.
#
# Every step the server publishes something. Then the mirror is refreshed if the schedule says so; then the person
# makes a
# request, while ON by reading the mirror, while OFF by asking. Without a schedule a private request refreshes by
# itself.
# Faults are those of `audit.client`; a crash at a read comes between the durable write and the message.
#
# Beyond what `audit.client` judges, a read that causes traffic is a breach, whatever the traffic is.


RefreshPattern = tuple[bool, ...]
MIRROR_LIMITS = (Fault.RESTORED,)
"""Not covered: a folder restored from before a read, which the server cannot know of."""


@dataclass
class MirroredClient(AuditedClient):
    """The client with a mirror. refreshes: at which steps, over and over; None: at every private request."""

    refreshes: RefreshPattern | None = None
    frame_size: ClassVar[int | None] = None
    """Open requests then say which messages they know."""

    @property
    def _new_run(self) -> Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun]:
        return partial(MirrorRun, refreshes=self.refreshes)


class MirrorRun(ClientRun):
    """One user with a mirror."""

    def __init__(
        self,
        chain: Model,
        tables: TableCache,
        faults: tuple[Fault, ...],
        recorder: Recorder,
        *,
        refreshes: RefreshPattern | None,
    ) -> None:
        self.refreshes = refreshes
        self.steps = 0
        self.crashes = False
        super().__init__(chain, tables, faults, recorder)

    mirror = None

    def observed(self, sent: ServerView) -> None:
        if sent.mirror and self.crashes:
            self.crash()

    def ask(self, x: int, private: bool, fault: Fault) -> bytes | None:
        crash = fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
        self.recorder.publish(self.steps % self.chain.n)
        scheduled = self.refreshes is not None and self.refreshes[self.steps % len(self.refreshes)]
        self.steps += 1
        if scheduled:
            self.recorder.fault = self.happens(Fault.NONE if crash else fault)
            try:
                self.client.refresh()
            except OnOffError:
                if fault is not Fault.GIVEN_UP:
                    raise
        if self.refreshes is None or not private:
            return super().ask(x, private, fault)
        self.recorder.fault = self.happens(Fault.NONE)
        self.crashes = crash
        before = len(self.recorder.events)
        message = None
        try:
            message = self.client.read(x).payload
        except MirrorEmpty:
            if Fault.GIVEN_UP not in self.faults:
                raise
        finally:
            self.crashes = False
        if self.recorder.judging and len(self.recorder.events) != before:
            raise PrivacyBreach(f"reading the mirror at step {self.steps - 1} caused traffic")
        return message

    @property
    def state(self) -> Hashable:
        mirror = self.client.mirror
        assert mirror is not None
        held = mirror.mirror.known(self.recorder.catalogue, range(self.chain.n))
        versions = tuple((source, message.version) for source, message in held.items())
        return super().state, self.steps, mirror.mirror.edition, versions


def audit_mirror(
    chain: Model,
    scheme: str,
    pattern: tuple[bool, ...],
    refreshes: RefreshPattern | None = None,
    faults: Sequence[Fault] = (),
    *,
    judging: bool = True,
) -> ExactAudit:
    """The exact audit of the shipped client with a mirror.

    refreshes: At which steps the mirror is refreshed, over and over; while ON requests then only read it. None: every
    private request refreshes.
    faults: What may happen at every request, or nothing, each with the same probability.
    """
    return audit_exact(
        chain,
        scheme,
        pattern,
        session=lambda: MirroredClient(chain, scheme, tuple(faults), judging=judging, refreshes=refreshes),
    )


# --------------------------------------------------------------------------------------------------------------------
# The shipped client with several servers under the exact audit: what each server sees, and what all see together.
#
# Every server is a separate recorder and holds the same messages. The audit takes the view of one of them: I(X_B ;
# bytes
# at server j of step t | bytes at server j before) must be zero. For the view of all of them together (`view` None,
# which
# is collusion) it is reported, not promised. Faults are those of `audit.client`; they happen at one server.
#
# Beyond what `audit.client` judges, a request that leaves out a server is a breach.
#
# One server may lie (`lie`): it adds the difference of two valid frames of a source to every answer that is not
# empty.
# After a refusal the client sends nothing by itself. A person may insist (`insists`) and ask for the same once
# more, so
# that all servers see that answers were refused. To the liar that tells nothing; the others learn what the liar
# decided
# on seeing what it was asked, which is the same as being told.


SERVER_URLS = tuple(f"http://server{place}.invalid" for place in range(16))


@dataclass
class SeveralServers(AuditedClient):
    """The client of several servers. view: which server's; None: all together. faulty: where faults happen.

    lie: the source about which the faulty server lies; None: it does not. insists: whether the person then asks again.
    """

    servers: int = 2
    view: int | None = 0
    faulty: int = 0
    lie: int | None = None
    insists: bool = True

    @property
    def _new_run(self) -> Callable[[Model, TableCache, tuple[Fault, ...], Recorder], ClientRun]:
        return partial(
            ServersRun,
            servers=self.servers,
            view=self.view,
            faulty=self.faulty,
            lie=self.lie,
            insists=self.insists,
        )


class ServersRun(ClientRun):
    """One user of several servers."""

    def __init__(
        self,
        chain: Model,
        tables: TableCache,
        faults: tuple[Fault, ...],
        recorder: Recorder,
        *,
        servers: int,
        view: int | None,
        faulty: int,
        lie: int | None,
        insists: bool,
    ) -> None:
        self.view, self.faulty, self.insists = view, faulty, insists
        others = [Recorder(chain.names, recorder.journal, judging=recorder.judging) for _ in range(servers - 1)]
        self.recorders = (recorder, *others)
        self.recorders[faulty].lie = lie
        super().__init__(chain, tables, faults, recorder)

    def upstream(self) -> MessageServer | SumServers | Web:
        urls = SERVER_URLS[: len(self.recorders)]
        below = randbelow(self.entropy)
        return upstream_of(urls, transports=self.recorders, attempts=CLIENT_ATTEMPTS, randbelow=below)

    def ask(self, x: int, private: bool, fault: Fault) -> bytes | None:
        before = [recorder.sums for recorder in self.recorders]
        self.recorders[self.faulty].fault = self.happens(fault)
        message: bytes | None = None
        try:
            message = self.client.get(x, private=private).payload
        except BadAnswer:
            if self.recorders[self.faulty].lie is None:
                raise
            with suppress(BadAnswer):
                message = self.client.retry().payload if self.insists else None
        for place, (recorder, asked) in enumerate(zip(self.recorders, before, strict=True)):
            if recorder.judging and recorder.sums == asked:
                raise PrivacyBreach(f"server {place} was not asked")
        return message

    def taken(self) -> tuple[tuple[SeenExchange, ...], int]:
        taken = [recorder.take() for recorder in self.recorders]
        asked = sum(count for _, count in taken)
        if self.view is not None:
            return taken[self.view][0], asked
        return tuple(event for events, _ in taken for event in events), asked

    @property
    def state(self) -> Hashable:
        alive = tuple(tuple(recorder.last.items())[-1:] for recorder in self.recorders)
        return super().state, alive


def audit_servers(
    chain: Model,
    scheme: str,
    pattern: tuple[bool, ...],
    servers: int = 2,
    view: int | None = 0,
    faults: Sequence[Fault] = (),
    *,
    faulty: int = 0,
    judging: bool = True,
    lie: int | None = None,
    insists: bool = True,
) -> ExactAudit:
    """The exact audit of the shipped client with several servers.

    faults, faulty: What may happen at every request, or nothing, each with the same probability; and at which server.
    lie, insists: The source about which that server lies; None: it does not. Whether the person then asks again.
    """
    several = partial(
        SeveralServers, judging=judging, servers=servers, view=view, faulty=faulty, lie=lie, insists=insists
    )
    return audit_exact(chain, scheme, pattern, session=lambda: several(chain, scheme, tuple(faults)))
