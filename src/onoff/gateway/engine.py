"""The engine: one client with its mirror, one request at a time, and one state for everybody who looks.

    request(source) -> Future[Message]    joins the queue; a thread of its own takes one after the other
    copy(source) -> Copy                  for programs that poll feeds; from the mirror, and not a request
    turn(...)                             the switch
    snapshot()                            all that the page shows; `board.revision` grows with every change

While ON a request is read from the mirror and causes no traffic; the mirror is refreshed by schedule (`refresher`).
While OFF it is one step of the session. Which of the two is what the switch says when the request is accepted. A caller
may say which position it saw; if it is another now, nothing happens. A repeated request: see `jobs`.

Without a model the mirror serves both positions, and nothing is ever asked for one by one. From a server that does not
tell what changed, everything is asked for while ON.

With several servers a request is a sum from each of them, ON and OFF, and the mirror is for programs that poll feeds:
it is refreshed when they do, from the first server. Without a model every request is private.

A message is handed over as soon as it is there. What it told the server is worked out afterwards.
"""

from __future__ import annotations

import logging
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from onoff.audit.measured import measured_of, zero_in_words
from onoff.client import (
    BuildProgress,
    Client,
    Copy,
    Message,
    MirrorClient,
    Refresh,
    Sent,
    SourceState,
    default_journal,
)
from onoff.client.exchange import Transport
from onoff.client.forecast import frame_sizes
from onoff.client.open_record import OpenRecord
from onoff.client.refreshing import NoChanges
from onoff.client.setup import transports
from onoff.client.transport import TIMEOUT, check_url
from onoff.errors import OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway.board import Board
from onoff.gateway.estimate import Estimate
from onoff.gateway.evidence import Assessment, Evidence
from onoff.gateway.history import EarlierEntries
from onoff.gateway.jobs import Job, JobQueue, Step
from onoff.gateway.marks import Marks
from onoff.gateway.meter import Meter
from onoff.gateway.model_evidence import ModelEvidence
from onoff.gateway.presence import HEARTBEAT, Presence
from onoff.gateway.present import ReadableEntry
from onoff.gateway.refresher import INTERVAL, Refresher
from onoff.gateway.seen import MOST_DRAWN_SOURCES, SeenLog
from onoff.gateway.several import assess_sums, views_of
from onoff.gateway.switch import Position, Switch
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model
from onoff.model.origin import origin_in_words
from onoff.session.filter import ModelFilter

log = logging.getLogger("onoff.gateway")

SHOWN_STEPS: Final = 48


class Changed(OnOffError):
    """The switch does not stand where the caller saw it; nothing was sent."""


class Engine:
    """A gateway's working part.

    Parameters
    ----------
    url
        The address of the message server, or the addresses of several that hold the same messages.
    chain
        How requests follow one another; its names are the sources. None: no model. One server: everything is read from
        the mirror. Several: every request is private.
    journal
        Where the session is kept; the switch and the mirror are kept beside it.
    log
        What is remembered of what the server saw.
    heartbeat
        Seconds between two looks whether the server is there.
    refresh
        Seconds between two refreshes of the mirror. None: no mirror, as with a server that does not tell what changed.
    about
        What the file of the model says of it; by default what the model itself does.
    clock
        The time by which timers run, in seconds since 1970.
    transport, timeout, client_options
        Passed to the client.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        chain: Model | None,
        journal: Path | None = None,
        *,
        log: SeenLog | None = None,
        heartbeat: float = HEARTBEAT,
        refresh: float | None = INTERVAL,
        about: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
        transport: Transport | Sequence[Transport] | None = None,
        timeout: float = TIMEOUT,
        **client_options: Any,
    ) -> None:
        self.urls = tuple(check_url(each).rstrip("/") for each in ([url] if isinstance(url, str) else url))
        self.url, self.chain = " ".join(self.urls), chain
        path = default_journal(self.url) if journal is None else Path(journal)
        self._on_missing = client_options.get("on_missing", "error")
        place = "" if journal is None else f" --journal {shlex.quote(str(path))}"
        named = " ".join(f"--server {shlex.quote(each)}" for each in self.urls)
        self._learn_command = f"onoff learn --from-gateway {named}{place} -o model.json"
        self._about: Mapping[str, Any] = getattr(chain, "about", {}) if about is None else about
        self.start = secrets.token_hex(4)
        self.now = clock
        self.switch = Switch(path.with_name(f"{path.name}.switch.json"), clock)
        self.log = SeenLog() if log is None else log
        self.board = Board()
        self.marks = Marks()
        self.history = EarlierEntries()
        self.record = OpenRecord(path, clock)
        self.meters = tuple(Meter(line) for line in transports(self.urls, transport, timeout))
        mirrored = path.with_name(f"{path.name}.mirror")
        by_mirror_alone = chain is None and not self.several
        self._client = None if by_mirror_alone else self._new_client(path, mirrored, refresh, client_options)
        self._evidence = None if self._client is None or chain is None else self._new_evidence(self._client)
        self._lock = threading.Lock()
        self._shown: Position = self.switch.position
        self._building: tuple[int, float] | None = None
        self._observing: list[tuple[float, Sent, int]] = []
        self._unweighed: list[Sent] = []
        last = None if self._client is None or chain is None else self._client.status()["last"]
        self._read_here = last is not None and bool(last["mirror"])
        self.presence = Presence(self.urls, None if chain is None else chain.names, heartbeat, self.board)
        self._estimate = (
            None if self._client is None else Estimate(self._client, self.board, always_private=chain is None)
        )
        self.refresher = self._new_refresher(mirrored, refresh)
        self.jobs = JobQueue(self._run, self._settled, self._weigh, self._ended, self.board)

    def _new_client(self, path: Path, mirror: Path, refresh: float | None, options: dict[str, Any]) -> Client:
        client = Client(
            self.urls,
            self.chain,
            journal=path,
            observe=self._observed,
            progress=self._progressed,
            transport=self.meters,
            mirror=False if refresh is None else mirror,
            **options,
        )
        if self.chain is not None:  # without a model that takes names from a server, which may be down now
            client.status()  # opens the journal, so that a second gateway fails here
        return client

    def _new_evidence(self, client: Client) -> Evidence | ModelEvidence:
        last = client.status()["last"]
        before = None if last is None else (last["session"], last["step"], tuple(last["sources"]))
        if isinstance(client.chain, MarkovChain):
            return Evidence(client.chain, client.tables, before)
        memory = client.core.session.memory
        return ModelEvidence(client.chain, client.tables, memory.hide if isinstance(memory, ModelFilter) else 1)

    def _new_refresher(self, path: Path, interval: float | None) -> Refresher | None:
        if self._client is not None and self._client.mirror is not None and interval is not None:
            refresh, mirror = self._client.refresh, self._client.mirror
        elif self._client is None:
            mirror = MirrorClient(self.url, path, transport=self.meters[0])
            refresh = mirror.refresh
        else:
            return None
        mirror.mirror.replaced = self.history.replaced  # opens the file, so that a second gateway fails here
        return Refresher(refresh, mirror, interval or INTERVAL, self._mirror_serves, self._refreshed, self.board)

    @property
    def several(self) -> bool:
        """Whether there is more than one server."""
        return len(self.urls) > 1

    @property
    def always_private(self) -> bool:
        """Whether OFF hides as much as ON: without a model nobody knows what an open request would give away."""
        return self.chain is None

    def _mirror_serves(self) -> bool:
        """Whether the mirror is what serves clicks now."""
        return not self.several and (self.always_private or self.position.private)

    def _queries_that_left(self) -> int:
        return sum(meter.queries_that_left for meter in self.meters)

    # -- requests ------------------------------------------------------------------------------------------

    def request(self, source: str, *, key: str | None = None, expected: bool | None = None) -> Future[Message]:
        """The latest message of `source`, when its turn comes. Raises what says that nothing will be sent.

        Parameters
        ----------
        source
            Its name.
        key
            The caller's name for this request: the same key gives the same request.
        expected
            The position of the switch that the caller saw; Changed is raised if it is another now.
        """

        def private() -> bool:
            stands = self.switch.position.private
            if expected is not None and expected != stands:
                word = "ON" if stands else "OFF"
                raise Changed(f"the switch is {word}", hint="look at it and ask again; nothing was sent")
            return stands

        return self.jobs.submit(self._index(source), key, private)

    def copy(self, source: str) -> Copy | None:
        """The message of `source` as the mirror has it, which may be refreshed first; None where there is no mirror.

        Not a request: for programs that poll every source whatever the person wants.
        """
        self._index(source)
        if self.refresher is None or not self.refresher.supported:
            return None
        try:
            self.refresher.wait_until_fresh()
        except NoChanges:
            return None
        return self.refresher.mirror.copy(source)

    def entries(self, message: Message) -> tuple[ReadableEntry, ...]:
        """The entries of a message, and earlier ones of its source that the mirror has had, newest first."""
        before = None
        if not message.sent.mirror and self.refresher is not None:
            with suppress(OnOffError):
                before = self.refresher.mirror.copy(message.source)
        return self.history.with_earlier(message, before)

    @property
    def names(self) -> tuple[str, ...]:
        """The sources: the model's, or the catalogue's where there is no model; none before that is known."""
        if self.chain is not None:
            return self.chain.names
        known = None if self.refresher is None else self.refresher.mirror.mirror.catalogue
        catalogue = known or self.presence.catalogue
        return () if catalogue is None else catalogue.names

    def _index(self, source: str) -> int:
        if source not in self.names:
            raise UnknownSource("no such source", hint="GET /v1/sources lists them")
        return self.names.index(source)

    def _run(self, job: Job) -> Message:
        self._observing = []
        left_before = self._queries_that_left()
        try:
            return self._read(job)
        finally:
            self._keep_steps(job, left_before)

    def _read(self, job: Job) -> Message:
        by_mirror = not self.several and (job.private or self._client is None)
        if by_mirror and self.refresher is not None and self.refresher.supported:
            try:
                self.refresher.wait_for_first()
            except NoChanges:
                if self._client is None:
                    raise
            else:
                return self._read_mirror(job)
        assert self._client is not None
        if job.again:
            return self._client.retry()
        return self._client.get(self.names[job.wanted], private=job.private or self.always_private)

    def _read_mirror(self, job: Job) -> Message:
        assert self.refresher is not None
        if self._client is not None:
            return self._client.read(job.wanted)
        names = self.names
        message = self.refresher.mirror.copy_as(Message, names[job.wanted])
        return message.after(Sent("", -1, (), len(names), job.private, mirror=True), messages=0, received=0)

    def _refreshed(self, outcome: Refresh | OnOffError) -> None:
        if isinstance(outcome, Refresh):
            self.presence.report(True, None)
        elif isinstance(outcome, ServerUnreachable):
            self.presence.report(False, outcome.message)

    def _keep_steps(self, job: Job, left_before: int) -> None:
        """Note what was stored for a job and which of it left. A repeated request is the step that it was."""
        left_now = self._queries_that_left()
        if job.again and job.steps and left_now > left_before:
            job.steps[-1] = Step(job.steps[-1].time, job.steps[-1].sent, left=True)
        ends = [begin for _, _, begin in self._observing[1:]]
        for (moment, sent, begin), end in zip(self._observing, [*ends, left_now], strict=False):
            job.steps.append(Step(moment, sent, left=end > begin))

    def _settled(self, job: Job, outcome: Message | OnOffError) -> None:
        self._unweighed = [step.sent for step in job.steps if self._note(step, job.wanted)]
        self._remember(job, outcome)
        if isinstance(outcome, ServerUnreachable):
            self.presence.report(False, outcome.message)
        elif isinstance(outcome, OnOffError):
            self.presence.report(self.presence.connected is True, outcome.message)
        else:
            if not outcome.sent.mirror:
                self.presence.report(True, None)
            self.board.changed()

    def _note(self, step: Step, wanted: int) -> bool:
        """Log a step that the server sees, and remember one that it does not; whether it is to be weighed."""
        if step.sent.mirror:
            self._read_here = True
            return True
        after, self._read_here = self._read_here, False
        return self.log.add(step, wanted, after_reading=after)

    def _remember(self, job: Job, outcome: Message | OnOffError) -> None:
        """Note what was opened while OFF, if the person wants that; of private requests only that there was one."""
        if job.private or isinstance(outcome, OnOffError):
            self.record.interrupted()
        else:
            self.record.opened(self.names[job.wanted])

    def _weigh(self, job: Job) -> None:
        for sent in self._unweighed:
            weighed = self._assess(sent, job.wanted)
            if not sent.mirror:
                self.log.weigh(sent, weighed)
        self._unweighed = []
        if self._estimate is not None:
            self._estimate.wake()
        self.board.changed()

    def _assess(self, sent: Sent, wanted: int) -> Assessment:
        try:
            if sent.vectors:
                return assess_sums(sent, wanted, self._evidence)
            return Assessment() if self._evidence is None else self._evidence.add(sent, wanted)
        except Exception as error:  # what is shown must not stop what is done
            log.warning("a step could not be weighed: %s", type(error).__name__)
            return Assessment()

    def _observed(self, sent: Sent) -> None:
        self._observing.append((self.now(), sent, self._queries_that_left()))

    def _progressed(self, progress: BuildProgress) -> None:
        self._building = (progress.sources, self.now()) if progress.state == "building" else None
        if self._estimate is not None:
            self._estimate.wake()
        self.board.changed()

    # -- the switch ----------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The position of the switch; subscribers are notified if the timer turned it."""
        position = self.switch.position
        with self._lock:
            if position == self._shown:
                return position
            self._shown = position
        self.board.changed()
        return position

    def turn(self, *, private: bool, seconds: float | None = None, until: float | None = None) -> Position:
        """Turn the switch.

        Parameters
        ----------
        private, seconds, until
            As for `Switch.turn`.
        """
        was_private = self.position.private
        self.switch.turn(private=private, seconds=seconds, until=until)
        turned_on = private and not was_private and not self.several
        if turned_on and self.refresher is not None and self.refresher.supported:
            self.refresher.refresh_soon()
        return self.position

    def schedule(self) -> dict[str, Any]:
        """When the switch turns by itself."""
        schedule = self.switch.schedule
        if schedule is None:
            return {"rules": [], "next": None}
        return {"rules": list(schedule.written), "next": schedule.next_change(self.now())}

    # -- what there is to see ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All that the page shows. It holds what was wanted, at log level "full": for the page alone."""
        revision = self.board.revision  # first: what changes while the rest is read is told again
        position = self.position
        building, names = self._building, self.names
        return {
            "start": self.start,
            "revision": revision,
            "now": self.now(),
            "privacy": {**position.as_dict(), "always": self.always_private},
            "schedule": self.schedule(),
            "note": self.switch.note,
            "server": self.url,
            "servers": self._servers(),
            "on_missing": self._on_missing,
            "connected": self.presence.connected,
            "problem": self.presence.problem,
            "n": len(self.names),
            "model": None if self.chain is None else _shown_model(self.chain, self._about),
            "learning": {**self.record.as_dict(), "command": self._learn_command},
            "mirror": None if self.refresher is None else self.refresher.as_dict(),
            "bytes": _total([meter.as_dict() for meter in self.meters]),
            "next": None if self._estimate is None else self._estimate.as_dict(),
            "building": building and {"sources": building[0], "since": building[1]},
            "waiting": self.jobs.waiting,
            "level": self.log.level,
            "steps": self.log.latest(SHOWN_STEPS, self._views if self.several else None),
            "totals": asdict(self.log.totals),
            "posterior": self._posterior(),
            "names": list(names) if len(names) <= MOST_DRAWN_SOURCES else None,
            "reading": self._reading_key(),
            "forecast": self._forecast(),
        }

    def _servers(self) -> list[dict[str, Any]]:
        """Each server: whether it is there, and what went to it and came from it, in bytes."""
        looks = self.presence.as_list()
        return [{**look, **meter.as_dict()} for look, meter in zip(looks, self.meters, strict=True)]

    def _views(self, sent: Sent) -> list[list[int]]:
        """What each server saw of a step."""
        catalogue = self.presence.catalogue
        return [] if catalogue is None else views_of(sent, self.names, catalogue)

    def _posterior(self) -> dict[str, Any] | None:
        return self._evidence.posterior if self._evidence is not None and self.log.level == "full" else None

    def _reading_key(self) -> str:
        """Changes whenever `reading` does."""
        edition = None if self.refresher is None else self.refresher.mirror.mirror.edition
        return f"{self.start}-{len(self.names)}-{edition and edition.digest.hex()[:12]}-{self.marks.revision}"

    def _forecast(self) -> dict[str, Any] | None:
        """Bytes that an hour of ON takes, and of a message on average; worked out when the mirror is refreshed.

        With several servers also those of the next request, ON and OFF.
        """
        if self.refresher is None:
            return None
        mirror = self.refresher.mirror.mirror
        sizes = frame_sizes(mirror, self.names)
        request = None if self._estimate is None else self._estimate.bytes
        message = sum(sizes) / len(sizes) if sizes else None
        return {"hour": self.refresher.per_hour, "message": message, "request": request}

    def reading(self) -> dict[str, Any]:
        """The sources as a reader sees them: what is new, when it was published. For the page alone."""
        states: dict[str, SourceState] = {}
        if self.refresher is not None:
            states = {state.name: state for state in self.refresher.mirror.sources()}
        return {"revision": self.board.revision, "sources": self.marks.listed(self.names, states)}

    # -- life ----------------------------------------------------------------------------------------------

    def close(self, seconds: float = 1.0) -> None:
        """Stop; a request under way is given so many seconds, and then counts as sent, as after a crash."""
        self.presence.close()
        if self._estimate is not None:
            self._estimate.close()
        if self.refresher is not None:
            self.refresher.close()
        self.jobs.close(seconds)

    def _ended(self) -> None:
        with suppress(OnOffError):
            if self._client is not None:
                self._client.close()
            elif self.refresher is not None:
                self.refresher.mirror.close()
        self.log.close()


def _total(meters: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: sum(meter[key] for meter in meters) for key in ("sent", "received")}


def _shown_model(model: Model, about: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says of the model, with what was measured on real readers beside the zero that is proved."""
    measured = about.get("measured") if about else measured_of(model)
    return {
        "kind": type(model).__name__,
        "sources": model.n,
        "origin": origin_in_words(about),
        "guess": "guess" in about,
        "zero": zero_in_words(measured),
    }
