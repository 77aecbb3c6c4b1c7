"""The state of the page: its revision, what was read, and all that the page shows of an engine, as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onoff.client import MirrorClient, ServerView, SourceState, WebSources
from onoff.client.forecast import cost_of_set, frame_sizes, sum_bytes
from onoff.errors import OnOffError
from onoff.gateway.evidence import views_of
from onoff.gateway.query_log import MOST_DRAWN_SOURCES
from onoff.model.origin import measured_of, origin_in_words, zero_in_words
from onoff.system.files import read_limited, write_private

if TYPE_CHECKING:
    from onoff.gateway.engine import Engine

log = logging.getLogger("onoff.gateway")

SHOWN_STEPS: Final = 48


class Board:
    """The revision of what pages show. Any thread may count a change; the streams of one event loop wait for it."""

    def __init__(self) -> None:
        self.revision = 0
        self.fault: str | None = None
        """The last bug that a thread of the gateway ran into and survived."""
        self.closed = False
        self.watching = 0
        """How many streams are open."""
        self.news = asyncio.Event()
        """Set, and replaced by another one, by every change; to be taken before the state is read."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def changed(self) -> None:
        """Count a change, and wake the streams."""
        with self._lock:
            self.revision += 1
            loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(self._wake)

    def bug(self, error: Exception) -> OnOffError:
        """Log and show an exception that nobody expected; the thread that met it goes on.

        The log gets the place and not the text, which may hold what was wanted. Returns an error for the caller.
        """
        place = traceback.extract_tb(error.__traceback__)[-1:]
        at = f" at {place[0].filename}:{place[0].lineno}" if place else ""
        log.error("%s in the gateway%s", type(error).__name__, at)
        self.fault = f"{type(error).__name__} in the gateway"
        self.changed()
        return OnOffError(self.fault, hint="this is a bug; its place is in the gateway's log")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A stream of the running event loop is open."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
        self.watching += 1
        try:
            yield
        finally:
            self.watching -= 1

    def close(self) -> None:
        """End all streams. Called by the event loop."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


class Marks:
    """Which version of each source was opened last: in a file for the user alone, without times, or in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._read: dict[str, tuple[int, float]] = {}
        with suppress(OSError, ValueError, AttributeError):  # none yet, or damaged: then all is new again
            if path is not None:
                kept = json.loads(read_limited(path))
                self._read = {str(name): (int(version), 0.0) for name, version in kept.items()}
        self.revision = 0

    def opened(self, name: str, version: int, when: float) -> None:
        """Note that a version of a source was opened, at a time in seconds since 1970."""
        self._mark({name: version}, when)

    def opened_all(self, states: Sequence[SourceState], when: float) -> None:
        """Mark all messages as read."""
        self._mark({state.name: state.version for state in states}, when)

    def _mark(self, versions: Mapping[str, int], when: float) -> None:
        with self._lock:
            for name, version in versions.items():
                self._read[name] = (max(version, self._read.get(name, (0, 0.0))[0]), when)
            self.revision += 1
            if self._path is not None:
                content = json.dumps({name: version for name, (version, _) in self._read.items()}).encode()
                with suppress(OnOffError):  # a full disk costs a mark, not the message
                    write_private(self._path, content, "what was opened is new again after a restart")

    def listed(self, names: Sequence[str], states: Mapping[str, SourceState]) -> list[dict[str, Any]]:
        """Every source with what is known of it: version, time of publishing in milliseconds, whether it is new."""
        with self._lock:
            read = dict(self._read)
        listed = []
        for name in names:
            state, (version, when) = states.get(name), read.get(name, (0, 0.0))
            listed.append(
                {
                    "name": name,
                    "version": None if state is None else state.version,
                    "published": None if state is None or not state.version else round(1000 * state.published),
                    "new": state is not None and state.version > version,
                    "read": when or None,
                }
            )
        return listed


def snapshot(engine: Engine) -> dict[str, Any]:
    """All that the page shows. It holds what was wanted, at log level "full": for the page alone."""
    revision = engine.board.revision  # first: a change while the rest is read gets a later revision
    names, refresher, building = engine.names, engine.refresher, engine.building
    servers = engine.servers_as_list()

    def views(sent: ServerView) -> list[list[int]]:
        """What each server saw of a step."""
        catalogue = engine.heartbeat.catalogue
        return [] if catalogue is None else views_of(sent, names, catalogue)

    return {
        "start": engine.start,
        "revision": revision,
        "now": engine.now(),
        "privacy": {**engine.switch.position.as_dict(), "always": engine.always_private},
        "schedule": engine.switch.schedule_as_dict(),
        "note": engine.switch.note or engine.board.fault,
        "server": " ".join(engine.urls),
        "servers": servers,
        "on_missing": engine.on_missing,
        "connected": engine.heartbeat.connected,
        "problem": "; ".join(server["problem"] for server in servers if server["problem"] is not None) or None,
        "n": len(names),
        "unmodelled": len(engine.unmodelled),
        "model": _model(engine),
        "learning": {**engine.record.as_dict(), "command": engine.learn_command},
        "mirror": None if refresher is None else refresher.as_dict(),
        "bytes": {key: sum(server[key] for server in servers) for key in ("sent", "received")}
        if engine.web is None
        else None,
        "site": _site(engine),
        "next": _next(engine),
        "building": building and {"sources": building[0], "since": building[1]},
        "waiting": engine.waiting,
        "level": engine.log.level,
        "steps": engine.log.latest(SHOWN_STEPS, views if engine.several else None),
        "totals": asdict(engine.log.totals),
        "posterior": engine.posterior,
        "names": list(names) if len(names) <= MOST_DRAWN_SOURCES else None,
        "reading": _reading_key(engine),
        "forecast": _forecast(engine),
    }


def reading(engine: Engine) -> dict[str, Any]:
    """The sources as a reader sees them: what is new, when it was published. For the page alone."""
    listed = engine.marks.listed(engine.all_names, engine.states())
    modelled = set(engine.names)
    places = {} if engine.web is None else {source.name: source.at for source in engine.web.sources.sources}

    titles, mirror = engine.entries.titles(), None if engine.refresher is None else engine.refresher.mirror
    outcomes = mirror.outcomes if isinstance(mirror, WebSources) else {}

    def about(name: str) -> dict[str, Any]:
        # A site counts no versions, so that nothing of it is new.
        site = {} if engine.web is None else {"new": False, "at": places.get(name)}
        failed = name in outcomes and outcomes[name].state == "failed"
        dead = outcomes[name].reason if failed else None
        return {"modelled": name in modelled, "title": titles.get(name) or None, "dead": dead, **site}

    return {
        "revision": engine.board.revision,
        "sources": [{**source, **about(source["name"])} for source in listed],
    }


def _reading_key(engine: Engine) -> str:
    """Changes whenever `reading` does."""
    stamp = None if engine.refresher is None else engine.refresher.mirror.stamp
    return f"{engine.start}-{len(engine.all_names)}-{stamp}-{engine.marks.revision}"


def _next(engine: Engine) -> dict[str, float | None] | None:
    """The messages that the next request will download, ON and OFF; None where nothing is asked for a request.

    Without a model every request is private, and its cost follows from how many sources there are.
    """
    if engine.client is None:
        return None
    if engine.model is not None:
        return dict(engine.expected)
    known = cost_of_set(len(engine.names), len(engine.urls)) if engine.names else None
    return {"on": known, "off": known}


def _forecast(engine: Engine) -> dict[str, Any] | None:
    """Bytes that an hour of ON takes, and of a message on average; with several servers also of the next request."""
    if engine.refresher is None or not isinstance(engine.refresher.mirror, MirrorClient):
        return None
    sizes = frame_sizes(engine.refresher.mirror.mirror, engine.names)
    report, expected = engine.heartbeat.servers[0].report, _next(engine)
    request = None
    if engine.several and expected is not None:
        request = {
            mode: None if messages is None or report is None else sum_bytes(messages, report.longest, len(engine.urls))
            for mode, messages in expected.items()
        }
    return {
        "hour": None if report is None else report.changed_per_hour,
        "message": sum(sizes) / len(sizes) if sizes else None,
        "request": request,
    }


def _site(engine: Engine) -> dict[str, Any] | None:
    """Of web sites: what was asked and came back, what budgets leave, and what staying ON would have taken so far.

    Staying ON: a refresh when the gateway started and at each interval since, each as the refreshes were on average;
    before the first, as many requests as there are sources, each with the bytes of open requests on average.
    """
    refresher = engine.refresher
    if refresher is None or not isinstance(refresher.mirror, WebSources):
        return None
    on, off = engine.traffic["on"], engine.traffic["off"]
    rounds = 1 + math.floor(max(0.0, engine.now() - engine.started) / refresher.interval)
    made = refresher.made
    requests = on.requests / made if made else float(len(refresher.mirror.names))
    received = on.received / made if made else requests * off.received / max(off.requests, 1)
    return {
        "every": refresher.interval,
        "on": asdict(on),
        "off": asdict(off),
        "refreshes": made,
        "always_on": {"requests": round(rounds * requests), "received": round(rounds * received)},
        "budgets": refresher.mirror.budgets(),
        "asked": _asked_last(engine, refresher.mirror.refreshed),
        "opened": None if engine.opened is None else {"name": engine.opened[0], "private": engine.opened[1]},
    }


def _asked_last(engine: Engine, refreshed: float | None) -> dict[str, Any] | None:
    """The set that web sites were asked for last, by a refresh or by an open request; None where that is not kept."""
    sent = [query for query in engine.log.queries if query.left]
    if engine.log.level != "full":
        return None
    if not sent or (refreshed is not None and refreshed >= sent[-1].time):
        return None if refreshed is None else {"time": refreshed, "everything": True, "sources": []}
    last = sent[-1]
    everything = last.sent.cost == last.sent.n
    sources = [] if everything else list(last.sent.sources)
    return {"time": last.time, "everything": everything, "sources": sources}


def _model(engine: Engine) -> dict[str, Any] | None:
    """The model, with what was measured on real readers beside the zero that is proved."""
    model, about = engine.model, engine.about
    if model is None:
        return None
    return {
        "kind": type(model).__name__,
        "sources": model.n,
        "origin": origin_in_words(about),
        "guess": "guess" in about,
        "zero": zero_in_words(measured_of(about or model.about)),
        "advice": None if engine.advice is None else engine.advice.as_dict(),
        "foreseen": engine.foreseen,
    }
