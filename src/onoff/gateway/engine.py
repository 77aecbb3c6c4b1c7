"""The engine: one client, one request at a time, and one state for everybody who looks.

    request(source) -> Future[Message]    joins the queue; a thread of its own takes one after the other
    turn(...)                             the switch
    snapshot()                            all that the page shows; `board.revision` grows with every change

Each request is one step. Whether it is private is what the switch says when it is accepted. A caller may say which
position it saw; if the switch stands otherwise nothing is sent. What becomes of a repeated request: see `jobs`.

A message is handed over as soon as it is there. What it told the server is worked out afterwards.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from onoff.client import Client, Message, Progress, Sent, default_journal
from onoff.client.exchange import Transport
from onoff.client.transport import TIMEOUT, Http
from onoff.errors import OnOffError, ServerUnreachable, UnknownSource
from onoff.gateway.board import Board
from onoff.gateway.estimate import Estimate
from onoff.gateway.evidence import Assessment, Evidence
from onoff.gateway.jobs import Job, JobQueue, Step
from onoff.gateway.meter import Meter
from onoff.gateway.presence import HEARTBEAT, Presence
from onoff.gateway.seen import SeenLog
from onoff.gateway.switch import Position, Switch
from onoff.model.chain import MarkovChain

log = logging.getLogger("onoff.gateway")

SHOWN_STEPS: Final = 48


class Changed(OnOffError):
    """The switch does not stand where the caller saw it; nothing was sent."""


class Engine:
    """A gateway's working part.

    Parameters
    ----------
    url
        The address of the message server.
    chain
        How requests follow one another; its names are the sources.
    journal
        Where the session is kept; the switch is kept beside it.
    log
        What is remembered of what the server saw.
    heartbeat
        Seconds between two looks whether the server is there.
    clock
        The time by which timers run, in seconds since 1970.
    transport, timeout, client_options
        Passed to the client.
    """

    def __init__(
        self,
        url: str,
        chain: MarkovChain,
        journal: Path | None = None,
        *,
        log: SeenLog | None = None,
        heartbeat: float = HEARTBEAT,
        clock: Callable[[], float] = time.time,
        transport: Transport | None = None,
        timeout: float = TIMEOUT,
        **client_options: Any,
    ) -> None:
        path = default_journal(url) if journal is None else Path(journal)
        self.url, self.chain = url, chain
        self.start = secrets.token_hex(4)
        self.now = clock
        self.switch = Switch(path.with_name(f"{path.name}.switch.json"), clock)
        self.log = SeenLog() if log is None else log
        self.board = Board()
        self.meter = Meter(Http(url, timeout=timeout) if transport is None else transport)
        self._client = Client(
            url,
            chain,
            journal=path,
            observe=self._observed,
            progress=self._progressed,
            transport=self.meter,
            mirror=False,
            **client_options,
        )
        last = self._client.status()["last"]  # opens the journal, so that a second gateway fails here
        before = None if last is None else (last["session"], last["step"], tuple(last["sources"]))
        self._evidence = Evidence(chain, self._client.tables, before)
        self._lock = threading.Lock()
        self._shown: Position = self.switch.position
        self._building: tuple[int, float] | None = None
        self._observing: list[tuple[float, Sent, int]] = []
        self._unweighed: list[Sent] = []
        self._estimate = Estimate(self._client, self.board)
        self.presence = Presence(url, chain.names, heartbeat, self.board)
        self.jobs = JobQueue(self._run, self._settled, self._weigh, self._ended, self.board)

    # -- requests ------------------------------------------------------------------------------------------

    def request(self, source: str, *, key: str | None = None, expected: bool | None = None) -> Future[Message]:
        """The latest message of `source`, when its turn comes. Raises what says that nothing will be sent."""
        if source not in self.chain.names:
            raise UnknownSource("no such source", hint="GET /v1/sources lists them")

        def private() -> bool:
            stands = self.switch.position.private
            if expected is not None and expected != stands:
                word = "ON" if stands else "OFF"
                raise Changed(f"the switch is {word}", hint="look at it and ask again; nothing was sent")
            return stands

        return self.jobs.submit(self.chain.index(source), key, private)

    def _run(self, job: Job) -> Message:
        self._observing = []
        left_before = self.meter.queries_that_left
        try:
            return self._client.retry() if job.again else self._client.get(job.wanted, private=job.private)
        finally:
            self._keep_steps(job, left_before)

    def _keep_steps(self, job: Job, left_before: int) -> None:
        """Note what was stored for a job and which of it left. A repeated request is the step that it was."""
        left_now = self.meter.queries_that_left
        if job.again and job.steps and left_now > left_before:
            job.steps[-1] = Step(job.steps[-1].time, job.steps[-1].sent, left=True)
        ends = [begin for _, _, begin in self._observing[1:]]
        for (moment, sent, begin), end in zip(self._observing, [*ends, left_now], strict=False):
            job.steps.append(Step(moment, sent, left=end > begin))

    def _settled(self, job: Job, outcome: Message | OnOffError) -> None:
        self._unweighed = [step.sent for step in job.steps if self.log.add(step, job.wanted)]
        if isinstance(outcome, ServerUnreachable):
            self.presence.report(False, outcome.message)
        elif isinstance(outcome, OnOffError):
            self.presence.report(self.presence.connected is True, outcome.message)
        else:
            self.presence.report(True, None)

    def _weigh(self, job: Job) -> None:
        for sent in self._unweighed:
            self.log.weigh(sent, self._assess(sent, job.wanted))
        self._unweighed = []
        self._estimate.wake()
        self.board.changed()

    def _assess(self, sent: Sent, wanted: int) -> Assessment:
        try:
            return self._evidence.add(sent, wanted)
        except Exception as error:  # what is shown must not stop what is done
            log.warning("a step could not be weighed: %s", type(error).__name__)
            return Assessment()

    def _observed(self, sent: Sent) -> None:
        self._observing.append((self.now(), sent, self.meter.queries_that_left))

    def _progressed(self, progress: Progress) -> None:
        self._building = (progress.sources, self.now()) if progress.state == "building" else None
        self._estimate.wake()
        self.board.changed()

    # -- the switch ----------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Where the switch stands; whoever watches is told if the timer turned it."""
        position = self.switch.position
        with self._lock:
            if position == self._shown:
                return position
            self._shown = position
        self.board.changed()
        return position

    def turn(self, *, private: bool, seconds: float | None = None, until: float | None = None) -> Position:
        """Turn the switch; see `Switch.turn`."""
        self.switch.turn(private=private, seconds=seconds, until=until)
        return self.position

    # -- what there is to see ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All that the page shows. It holds what was wanted, at log level "full": for the page alone."""
        position = self.position
        building, catalogue = self._building, self.presence.catalogue
        return {
            "start": self.start,
            "revision": self.board.revision,
            "now": self.now(),
            "privacy": position.as_dict(),
            "note": self.switch.note,
            "server": self.url,
            "connected": self.presence.connected,
            "problem": self.presence.problem,
            "names": list(self.chain.names),
            "frame_size": None if catalogue is None else catalogue.frame_size,
            "bytes": self.meter.as_dict(),
            "next": self._estimate.as_dict(),
            "building": building and {"sources": building[0], "since": building[1]},
            "waiting": self.jobs.waiting,
            "level": self.log.level,
            "steps": self.log.latest(SHOWN_STEPS),
            "totals": asdict(self.log.totals),
            "posterior": self._evidence.posterior if self.log.level == "full" else None,
        }

    # -- life ----------------------------------------------------------------------------------------------

    def close(self, seconds: float = 1.0) -> None:
        """Stop; a request under way is given so many seconds, and then counts as sent, as after a crash."""
        self.presence.close()
        self._estimate.close()
        self.jobs.close(seconds)

    def _ended(self) -> None:
        with suppress(OnOffError):
            self._client.close()
        self.log.close()
