"""What an operator may watch of a gateway, for Prometheus, and whether it is well.

All of it is a function of what servers and sites see themselves (the sets that were asked for, refreshes, what came
back) and of the switch. Nothing tells what was wanted: neither what is read nor that something is read while ON counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from onoff.client import WebSources

if TYPE_CHECKING:
    from onoff.gateway.engine import Engine

LATENCIES: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds; a refresh of web sites may be spread over its interval."""
KEPT_BESIDE: Final = ("", ".switch.json", ".mirror", ".copies", ".open.jsonl")


class GatewayMetrics:
    """Latencies are counted as they occur; all else is read off the engine when somebody asks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registry = CollectorRegistry()
        text = "Seconds of refreshes, and of requests that went to a server or site"
        self._latency = Histogram(
            "onoff_gateway", text, ["of"], unit="seconds", buckets=LATENCIES, registry=self._registry
        )
        self._registry.register(self)

    @contextmanager
    def timed(self, of: Literal["refresh", "query"]) -> Iterator[None]:
        """Count the seconds of a block, however it ends."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self._latency.labels(of).observe(time.perf_counter() - before)

    def render(self) -> bytes:
        """All of it in the text form."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The interface that prometheus_client asks of a collector."""
        engine, totals, refresher = self._engine, self._engine.log.totals, self._engine.refresher
        yield _gauge("private", "1 while the switch is ON", engine.switch.position.private)
        yield _gauge("well", "0 after a bug that was survived, or where a thread has ended", not ailments(engine))
        yield _gauge("ready", "1 where a private request would be answered", not obstacles(engine))
        yield CounterMetricFamily("onoff_gateway_queries", "Queries that were sent", value=totals.requests)
        yield CounterMetricFamily("onoff_gateway_messages", "Messages that queries asked for", value=totals.messages)
        up = _labelled("connected", "1 where the server or site answered last", "server")
        for server in engine.servers_as_list():
            if server["connected"] is not None:
                up.add_metric([server["url"]], server["connected"])
        yield up
        if refresher is not None:
            yield CounterMetricFamily("onoff_gateway_refreshes", "Refreshes that succeeded", value=refresher.made)
            yield _gauge(
                "refreshed_timestamp_seconds", "When everything was asked for last", refresher.mirror.refreshed or 0
            )
        sizes = _labelled("file_bytes", "Bytes of the files that the gateway keeps", "file")
        for suffix in KEPT_BESIDE:
            path = engine.journal.with_name(engine.journal.name + suffix)
            if path.exists():
                sizes.add_metric([suffix.removeprefix(".") or "journal"], path.stat().st_size)
        yield sizes
        yield from _sources(engine)


def _sources(engine: Engine) -> Iterator[Metric]:
    """Of every source alike what its copy tells, and of a site's how the last request for it ended."""
    published = _labelled("source_published_timestamp_seconds", "When the copy of a source was published", "source")
    sizes = _labelled("source_bytes", "Bytes of the copy of a source", "source")
    for name, state in engine.states().items():
        published.add_metric([name], state.published)
        sizes.add_metric([name], state.size)
    yield published
    yield sizes
    mirror = None if engine.refresher is None else engine.refresher.mirror
    if isinstance(mirror, WebSources):
        failed = _labelled("source_failed", "1 where the last request for a source failed", "source")
        for name, outcome in tuple(mirror.outcomes.items()):
            failed.add_metric([name], outcome.state == "failed")
        yield failed


def ailments(engine: Engine) -> list[str]:
    """What is wrong with the gateway itself; a restart may mend it."""
    threads = {"requests": engine.session, "the schedule": engine.deadlines.thread}
    dead = [f"the thread of {name} has ended" for name, thread in threads.items() if not thread.is_alive()]
    return [*dead, *([engine.board.fault] if engine.board.fault else [])]


def obstacles(engine: Engine) -> list[str]:
    """Why a request would not be answered now: of the gateway, a server, or copies that are not there yet."""
    found = ailments(engine)
    if engine.heartbeat.connected is False:
        found.append(f"a {'site' if engine.web is not None else 'server'} does not answer")
    if not engine.several and engine.refresher is not None and engine.refresher.mirror.number is None:
        found.append("nothing was fetched yet")
    return found


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"onoff_gateway_{name}", text, value=value)


def _labelled(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"onoff_gateway_{name}", text, labels=[label])
