"""The engine: a queue of requests, the switch that decides how each is asked, and the state that pages show.

    request(source) -> Future[Message]    joins the queue; a thread of its own takes one after the other
    turn(...)                             the switch
    upstream                              the servers: names, messages, the mirror
    board                                 `revision` grows with every change of what `snapshot` shows

A request is asked as the switch says when it is accepted. A caller may say which position it saw; if it is another now,
nothing happens. A repeated request: see `jobs`.

A message is delivered as soon as it arrives. What the request told the server is computed afterwards (`weighing`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from onoff.audit.measured import measured_of, zero_in_words
from onoff.client import Message, Sent
from onoff.client.consent import OpenRecord
from onoff.client.forecast import frame_sizes
from onoff.errors import OnOffError
from onoff.gateway.evidence import views_of
from onoff.gateway.jobs import Board, Job, JobQueue, Marks
from onoff.gateway.query_log import MOST_DRAWN_SOURCES, SeenLog, Weighing
from onoff.gateway.switch import Position, Switch
from onoff.gateway.upstream import HEARTBEAT, INTERVAL, GatewaySetup, Upstream
from onoff.model.contexts import Model
from onoff.model.origin import origin_in_words
from onoff.upstream.transport import TIMEOUT, Transport


class Changed(OnOffError):
    """The position of the switch is not the one that the caller saw; nothing was sent."""


class Engine:
    """What the gateway does, without HTTP.

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
        The log of what the server saw; in memory unless given.
    heartbeat
        Seconds between two checks that the server answers.
    refresh
        Seconds between two refreshes of the mirror. None: no mirror, as with a server without `/v1/changes`.
    about
        Where the model comes from, for the page; by default what the model itself says.
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
        self.setup = GatewaySetup.of(url, chain, journal, about, client_options.get("on_missing", "error"))
        self.start = secrets.token_hex(4)
        """A random id of this start of the gateway; revisions begin again with each."""
        self.now = clock
        self.board = Board()
        self.switch = Switch(self.setup.switch_path, clock, self.board.changed)
        self.log = SeenLog() if log is None else log
        self.marks = Marks()
        self.record = OpenRecord(self.setup.journal, clock)
        self.upstream = Upstream(
            self.setup,
            self.board,
            clock,
            lambda: self.switch.position.private,
            heartbeat=heartbeat,
            refresh=refresh,
            transport=transport,
            timeout=timeout,
            client_options=client_options,
        )
        self.weighing = Weighing(self.log, None if chain is None else self.upstream.client)
        self.jobs = JobQueue(self.upstream.run, self._settled, self._after, self._ended, self.board)

    def request(self, source: str, *, key: str | None = None, expected: bool | None = None) -> Future[Message]:
        """The latest message of `source`, when its turn comes. Where it raises, nothing will be sent.

        key: The caller's name for this request: the same key gives the same request.
        expected: The position of the switch that the caller saw; Changed is raised if it is another now.
        """

        def private() -> bool:
            found = self.switch.position.private
            if expected is not None and expected != found:
                word = "ON" if found else "OFF"
                raise Changed(f"the switch is {word}", hint="look at it and ask again; nothing was sent")
            if not found:
                self.upstream.require_modelled(wanted)
            return found

        wanted = self.upstream.index(source)
        return self.jobs.submit(wanted, key, private)

    def turn(self, *, private: bool, seconds: float | None = None, until: float | None = None) -> Position:
        """Turn the switch, and refresh the mirror where it was turned ON."""
        was_private = self.switch.position.private
        position = self.switch.turn(private=private, seconds=seconds, until=until)
        if private and not was_private:
            self.upstream.refresh_soon()
        return position

    def close(self, seconds: float = 1.0) -> None:
        """Stop. A request under way may take `seconds` more; after that it counts as sent, as after a crash."""
        self.upstream.stop()
        self.jobs.close(seconds)

    # -- called by the queue -------------------------------------------------------------------------------

    def _settled(self, job: Job, outcome: Message | OnOffError) -> None:
        self.weighing.note(job)
        self._remember(job, outcome)
        self.upstream.presence.report(outcome)
        self.board.changed()

    def _remember(self, job: Job, outcome: Message | OnOffError) -> None:
        """Record what was opened while OFF, with consent; of private requests only that there was one."""
        if job.private or isinstance(outcome, OnOffError):
            self.record.interrupted()
        else:
            self.record.opened(outcome.source)

    def _after(self, job: Job) -> None:
        self.weighing.weigh(job)
        self.upstream.wake_estimate()
        self.board.changed()

    def _ended(self) -> None:
        self.upstream.close()
        self.log.close()


# --------------------------------------------------------------------------------------------------------------------
# What the page shows of an engine, as JSON: its state, and its sources as a reader sees them.


SHOWN_STEPS: Final = 48


def snapshot(engine: Engine) -> dict[str, Any]:
    """All that the page shows. It holds what was wanted, at log level "full": for the page alone."""
    revision = engine.board.revision  # first: a change while the rest is read gets a later revision
    position = engine.switch.position
    setup, upstream = engine.setup, engine.upstream
    building, names, refresher = upstream.building, upstream.names, upstream.refresher

    def views(sent: Sent) -> list[list[int]]:
        """What each server saw of a step."""
        catalogue = upstream.presence.catalogue
        return [] if catalogue is None else views_of(sent, names, catalogue)

    return {
        "start": engine.start,
        "revision": revision,
        "now": engine.now(),
        "privacy": {**position.as_dict(), "always": setup.always_private},
        "schedule": engine.switch.schedule_as_dict(),
        "note": engine.switch.note or engine.board.fault,
        "server": setup.url,
        "servers": _servers(upstream),
        "on_missing": setup.on_missing,
        "connected": upstream.presence.connected,
        "problem": upstream.presence.problem,
        "n": len(names),
        "unmodelled": len(upstream.unmodelled),
        "model": _model(setup),
        "learning": {**engine.record.as_dict(), "command": setup.learn_command},
        "mirror": None if refresher is None else refresher.as_dict(),
        "bytes": {key: sum(meter.as_dict()[key] for meter in upstream.meters) for key in ("sent", "received")},
        "next": None if upstream.estimate is None else upstream.estimate.as_dict(),
        "building": building and {"sources": building[0], "since": building[1]},
        "waiting": engine.jobs.waiting,
        "level": engine.log.level,
        "steps": engine.log.latest(SHOWN_STEPS, views if setup.several else None),
        "totals": asdict(engine.log.totals),
        "posterior": engine.weighing.posterior,
        "names": list(names) if len(names) <= MOST_DRAWN_SOURCES else None,
        "reading": _reading_key(engine),
        "forecast": _forecast(upstream),
    }


def reading(engine: Engine) -> dict[str, Any]:
    """The sources as a reader sees them: what is new, when it was published. For the page alone."""
    upstream = engine.upstream
    listed = engine.marks.listed(upstream.all_names, upstream.states())
    modelled = set(upstream.names)
    return {
        "revision": engine.board.revision,
        "sources": [{**source, "modelled": source["name"] in modelled} for source in listed],
    }


def _reading_key(engine: Engine) -> str:
    """Changes whenever `reading` does."""
    refresher = engine.upstream.refresher
    edition = None if refresher is None else refresher.mirror.mirror.edition
    digest = edition and edition.digest.hex()[:12]
    return f"{engine.start}-{len(engine.upstream.all_names)}-{digest}-{engine.marks.revision}"


def _servers(upstream: Upstream) -> list[dict[str, Any]]:
    """Each server: whether it answers, and the bytes sent to it and received from it."""
    looks = upstream.presence.as_list()
    return [{**look, **meter.as_dict()} for look, meter in zip(looks, upstream.meters, strict=True)]


def _forecast(upstream: Upstream) -> dict[str, Any] | None:
    """Bytes that an hour of ON takes, and of a message on average; worked out when the mirror is refreshed.

    With several servers also those of the next request, ON and OFF.
    """
    if upstream.refresher is None:
        return None
    sizes = frame_sizes(upstream.refresher.mirror.mirror, upstream.names)
    request = None if upstream.estimate is None else upstream.estimate.bytes
    message = sum(sizes) / len(sizes) if sizes else None
    return {"hour": upstream.refresher.per_hour, "message": message, "request": request}


def _model(setup: GatewaySetup) -> dict[str, Any] | None:
    """The model, with what was measured on real readers beside the zero that is proved."""
    model, about = setup.chain, setup.about
    if model is None:
        return None
    return {
        "kind": type(model).__name__,
        "sources": model.n,
        "origin": origin_in_words(about),
        "guess": "guess" in about,
        "zero": zero_in_words(about.get("measured") if about else measured_of(model)),
    }
