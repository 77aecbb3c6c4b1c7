"""What the page shows of an engine, as JSON: its state, and its sources as a reader sees them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from onoff.audit.measured import measured_of, zero_in_words
from onoff.client import Sent
from onoff.client.forecast import frame_sizes
from onoff.gateway.engine import Engine
from onoff.gateway.seen import MOST_DRAWN_SOURCES
from onoff.gateway.setup import GatewaySetup
from onoff.gateway.several import views_of
from onoff.gateway.upstream import Upstream
from onoff.model.origin import origin_in_words

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
