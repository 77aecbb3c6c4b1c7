"""`onoff demo`: a gateway with its page, someone who switches privacy ON and OFF, and what the other side saw.

Everything is real and on this machine. A web site of a made-up city, with its access log, and a rider; or, with
`--feeds`, a message server with SQLite whose sources publish all the time, and a reader of news (of several servers,
one leads and the others follow it). Either downloads from the gateway as any app would.
"""

from __future__ import annotations

import contextlib
import itertools
import json as jsons
import os
import signal
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np
from cyclopts import Parameter, validators
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from onoff.cli.demo_city import REFRESH_SECONDS, RIDE, CitySite, city_chain, ride, running_site, write_list
from onoff.cli.options import size_text
from onoff.cli.output import Json, Work, emit, progress, table
from onoff.client.copies import fetch_edition_of
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, load_model
from onoff.model.patterns import parse
from onoff.system.sockets import check_port

if TYPE_CHECKING:
    from onoff.gateway.run import Address
    from onoff.server import Running

ABOUT = {"guess": "made up for the demo"}
SHOWN_STEPS, SHOWN_LINES = 12, 10
"""Of the table and of the access log, while they grow at a terminal."""
PATTERN = "OFF*2 ON*3 OFF*6 ON*2 OFF*7"
MOST_SERVERS = 4
NEW_EDITION_SECONDS = 1.0
DEMO_LOOK_SECONDS = 0.02
MOST_SECONDS_FOR_AN_ANSWER = 600
"""The gateway is in this process; the first table of a large model on a busy machine takes minutes."""
SOURCES: dict[str, tuple[str, ...]] = {
    "world": ("Talks go on into the night", "A bridge between two shores is opened", "Harbour reopens after the storm"),
    "politics": ("Committee votes on the budget", "Two parties agree to talk", "A long session ends early"),
    "business": ("Markets end the day where they began", "A mill becomes a workshop", "Fewer trucks, more trains"),
    "science": ("A comet returns on time", "How lichens keep count", "A quieter way to cool a laptop"),
    "health": ("Walking is still good for you", "A clinic on a boat", "Sleep studied in daylight"),
    "sport": ("A draw nobody expected", "The relay is run in the rain", "Record holds for another year"),
    "culture": ("A small museum of keys", "The choir sings in the station", "An old film, in colour at last"),
    "weather": ("Fog in the morning, sun by noon", "Wind from the west", "First frost in the valleys"),
    "travel": ("The slow train is worth it", "An island without cars", "Nine benches with a view"),
    "technology": ("A keyboard made of wood", "Radios that listen better", "Maps that work offline"),
    "local": ("The market moves to the square", "A tree is planted", "Library open on Sundays"),
    "opinion": ("In favour of doing less", "On the use of waiting", "Why the queue is fair"),
}
OTHER_TITLES = ("The morning edition", "What changed since", "More of the same")
"""Of sources that are not the demo's own."""
FAVOUR = (5.0, 4, 3, 2, 2, 4, 2, 3, 2, 3, 2, 2)
SUBJECTS = (0, 0, 0, 1, 1, 2, 2, 1, 2, 1, 2, 0)


def demo_command(
    *,
    feeds: Annotated[
        bool, Parameter(negative="", help="News from a message server instead of departures from a web site.")
    ] = False,
    model: Annotated[
        Path | None, Parameter(help="News: a chain or model file whose sources take the place of the dozen.")
    ] = None,
    scheme: str = "auto",
    seed: Annotated[int, Parameter(help="For the scripted requests; queries draw from the system.")] = 7,
    servers: Annotated[
        int,
        Parameter(
            validator=validators.Number(gte=1, lte=MOST_SERVERS),
            help="News: how many servers hold the messages. None of several learns alone which source is wanted.",
        ),
    ] = 1,
    mirror: Annotated[
        bool, Parameter(help="News: read from a mirror while ON; without it every request asks for everything then.")
    ] = True,
    port: Annotated[int, Parameter(help="The port of the page; 0 takes a free one.")] = 0,
    stop: Annotated[bool, Parameter(name="--exit", negative="", help="Stop after the table.")] = False,
    browser: Annotated[bool, Parameter(negative="--no-browser", help="Open the page.")] = True,
    json: Json = False,
) -> None:
    """Watch a rider ask a city's web site for departures, privacy ON around two stops, and see what the site sees.

    ```console
    onoff demo
    onoff demo --exit --scheme greedy --json
    onoff demo --feeds
    onoff demo --feeds --servers 2
    onoff demo --feeds --model model.npz
    ```

    With --feeds, and wherever an option of the news is given, it is a reader of news before a message server.
    """
    check_port(port)
    feeds = feeds or model is not None or servers > 1 or not mirror
    statuses = parse(PATTERN if feeds else RIDE)
    with contextlib.ExitStack() as stack:
        with progress("reading the model") as work:
            chain = city_chain() if not feeds else news_chain() if model is None else load_model(model)
            rng = np.random.default_rng(seed)
            if isinstance(chain, MarkovChain) and not feeds:
                wanted = ride(chain, len(statuses), rng)
            else:
                wanted = chain.sample(len(statuses), rng).tolist()
            work.now("starting server and gateway")
            if feeds:
                site = None
                running = everything_running(chain, scheme, port, servers=servers, mirror=mirror)
                reader = Reader(stack.enter_context(running))
            else:
                site, address = stack.enter_context(city_running(chain, scheme, port))
                reader = Rider(address, site)
        steps: list[dict[str, Any]] = []
        console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        watched = console.is_terminal and not json
        with live if watched else progress("scripted requests", len(statuses)) as shown:
            if watched:
                live.update(Text("Scripted requests are made ..."), refresh=True)
            for x, private in zip(wanted, statuses, strict=True):
                steps.append(reader.step(chain.names[x], private))
                if isinstance(shown, Work):
                    shown(len(steps))
                else:
                    shown.update(_growing(chain, steps, () if site is None else site.log), refresh=True)
        used = reader.bytes_received()
        told = {"steps": steps, "sources": list(chain.names), "page": reader.address.page, "servers": servers}
        if site is not None:
            told |= {"site": site.url, "requests": len(site.log)}
        emit(
            {**told, "received": used},
            json,
            lambda shown: shown.print(
                Group(_steps_table(chain, steps), *_strips(chain, steps), Text(_sum(chain, steps, used, site)))
            ),
        )
        if not stop:
            if site is not None:
                site.watch = lambda line: print(f"site   {line}", file=sys.stderr, flush=True)
            _keep_serving(reader.address, browser=browser, feeds=feeds)


def news_chain() -> MarkovChain:
    """A reader who stays, or goes on with the same subject, or goes where most people go."""
    favour, subjects = np.array(FAVOUR), np.array(SUBJECTS)
    alike = (subjects[:, None] == subjects) * favour
    P = 0.2 * np.eye(len(SOURCES)) + 0.45 * alike / alike.sum(axis=1, keepdims=True) + 0.35 * favour / favour.sum()
    return MarkovChain(P, names=tuple(SOURCES), initial=favour / favour.sum())


# -- what runs ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def everything_running(
    chain: Model, scheme: str, port: int, *, servers: int = 1, mirror: bool = True
) -> Iterator[Address]:
    """Servers whose messages change, and a gateway for them; deleted at the end of the block.

    mirror: Whether the gateway has a mirror; without one every request is a query to look at.
    """
    from onoff.gateway.engine import Engine
    from onoff.gateway.refresh import INTERVAL
    from onoff.gateway.run import running_gateway
    from onoff.server import running as running_server

    with contextlib.ExitStack() as stack:
        # A gateway that takes long to stop is not waited for: it may still close files in there.
        made = tempfile.TemporaryDirectory(prefix="onoff-demo-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        first = {name: edition(name, 1) for name in chain.names}
        leader = stack.enter_context(running_server(first, store=folder / "messages.db"))
        urls = [leader.url]
        for number in range(1, servers):
            follower = running_server([], store=folder / f"follower-{number}.db", follow=leader.url)
            urls.append(stack.enter_context(follower).url)
        _wait_for_followers(urls)
        stack.enter_context(_publishing(leader, chain.names))
        refresh = INTERVAL if mirror else None
        engine = Engine(
            urls, chain, folder / "journal.sqlite", scheme=scheme, refresh=refresh, about=ABOUT, accept_leak=True
        )
        yield stack.enter_context(running_gateway(engine, port=port))


def _wait_for_followers(urls: list[str]) -> None:
    """Wait until all servers hold the same edition. Nothing is published meanwhile."""
    while len({fetch_edition_of(url) for url in urls}) > 1:
        time.sleep(DEMO_LOOK_SECONDS)


def edition(name: str, number: int) -> bytes:
    """One edition of a source."""
    titles = SOURCES.get(name, OTHER_TITLES)
    rest = "\n".join(f"· {titles[(number + k) % len(titles)]}" for k in range(1, len(titles)))
    return f"{titles[number % len(titles)]}\n\n{name.capitalize()}, edition {number}. Also today:\n{rest}\n".encode()


@contextlib.contextmanager
def _publishing(server: Running, names: tuple[str, ...]) -> Iterator[None]:
    """Sources publish in turn until the block ends."""
    over = threading.Event()

    def publish() -> None:
        for number in itertools.count(2):
            for name in names:
                if over.wait(NEW_EDITION_SECONDS):
                    return
                server.publish(name, edition(name, number))

    thread = threading.Thread(target=publish, name="onoff-demo-publisher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def city_running(chain: Model, scheme: str, port: int) -> Iterator[tuple[CitySite, Address]]:
    """The web site of the city, and a gateway before it that has asked it for everything once."""
    from onoff.gateway.engine import Engine
    from onoff.gateway.run import running_gateway
    from onoff.upstream.web import Web

    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="onoff-demo-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        site = stack.enter_context(running_site())
        web = Web.load(write_list(folder / "city.toml", site.url))
        engine = Engine(
            web, chain, folder / "journal.sqlite", scheme=scheme, refresh=None, about=ABOUT, accept_leak=True
        )
        address = stack.enter_context(running_gateway(engine, port=port))
        assert engine.refresher is not None
        engine.refresher.wait_for_first()
        yield site, address


class Reader:
    """An app that downloads from the gateway, and turns its switch."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._base, self._token = address.base, address.guard.page
        self._opener = build_opener(ProxyHandler({}))
        self._made = 0

    def step(self, source: str, private: bool) -> dict[str, Any]:
        """Make one request. Returns what each server saw, what it cost and what it told."""
        self._turn(private)
        _, headers = self._call("GET", f"/v1/sources/{quote(source)}")
        step = {"t": self._made, "private": private, "wanted": source}
        self._made += 1
        if headers["X-Mirror"] == "yes":  # read from the mirror: no step, so the server learnt nothing
            nothing = {"seen": [], "views": [[]], "cost": 0, "expected": 0.0, "bits": 0.0, "naive": 0.0}
            return {**step, **nothing, "mirror": True}
        state = self._state()
        while not state["steps"][-1]["weighed"]:  # the message came first
            time.sleep(DEMO_LOOK_SECONDS)
            state = self._state()
        names, told = state["names"], state["steps"][-1]
        views = [[at for at, entry in enumerate(view["entries"]) if entry] for view in told.get("views", [])]
        named = [[names[x] for x in view] for view in views or [told["sources"]]]
        seen = [name for name in names if any(name in view for view in named)]  # by one server or another
        kept = {key: told[key] for key in ("cost", "expected", "bits", "naive")}
        return {**step, "seen": seen, "views": named, **kept, "mirror": False}

    def bytes_received(self) -> int:
        """Bytes of answers that came from the servers since the start, those for the mirror among them."""
        return int(self._state()["bytes"]["received"])

    def _turn(self, private: bool) -> None:
        self._call("PUT", "/v1/privacy", {"private": private})

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = jsons.loads(self._call("GET", "/v1/state")[0])
        return state

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[bytes, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else jsons.dumps(body).encode()
        with self._opener.open(
            Request(self._base + path, data, headers, method=method), timeout=MOST_SECONDS_FOR_AN_ANSWER
        ) as answer:
            return bytes(answer.read()), answer.headers


class Rider(Reader):
    """A reader of a web site, who looks into its access log as well."""

    def __init__(self, address: Address, site: CitySite) -> None:
        super().__init__(address)
        self._site = site
        self._private = True
        """A gateway starts so."""

    def step(self, source: str, private: bool) -> dict[str, Any]:
        """Make one request, and say which stops the access log shows since the last one."""
        before = len(self._site.log)
        step = super().step(source, private)
        return {**step, "asked": self._site.asked(before)}

    def bytes_received(self) -> int:
        site = self._state()["site"]
        return int(site["on"]["received"] + site["off"]["received"])

    def _turn(self, private: bool) -> None:
        """Turn the switch; where it goes ON, wait for the refresh that this begins."""
        before = self._state()["site"]["refreshes"]
        super()._turn(private)
        while private and not self._private and self._state()["site"]["refreshes"] == before:
            time.sleep(DEMO_LOOK_SECONDS)
        self._private = private


def _keep_serving(address: Address, *, browser: bool, feeds: bool) -> None:
    stopping = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):  # before Ctrl-C is announced
        signal.signal(signum, lambda *_: stopping.set())
    apps = f"feeds  {address.apps}/feeds/NAME" if feeds else f"apps   {address.site}/stops/13/departures"
    print(f"\nopen   {address.page}\n{apps}\nCtrl-C ends it.", file=sys.stderr, flush=True)
    seen = sys.platform in {"win32", "darwin"} or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if browser and seen:
        webbrowser.open(address.page)
    stopping.wait()


# -- what is shown -----------------------------------------------------------------------------------------


def _growing(chain: Model, steps: list[dict[str, Any]], log: Sequence[str]) -> Group:
    """The last lines of the table and of the access log of the site, as they grow."""
    lines = [Text(f"site  {line}", style="dim") for line in log[-SHOWN_LINES:]]
    return Group(_steps_table(chain, steps[-SHOWN_STEPS:]), *lines)


def _steps_table(chain: Model, steps: list[dict[str, Any]]) -> Any:
    lines = [
        (
            step["t"],
            "ON" if step["private"] else "OFF",
            step["wanted"],
            *(_seen_text(chain, step, seen) for seen in step["views"]),
            len(step["asked"]) if "asked" in step else round(step["cost"], 2),
            "not known" if step["bits"] is None else step["bits"],
            "not known" if step["naive"] is None else round(step["naive"], 3),
        )
        for step in steps
    ]
    cost = "requests" if "asked" in steps[0] else "cost"
    return table(("t", "switch", "wanted", *_who(steps), cost, "bits told", "naive"), lines)


def _who(steps: list[dict[str, Any]]) -> list[str]:
    count = len(steps[0]["views"])
    if "asked" in steps[0]:
        return ["the site saw"]
    return ["the server saw"] if count == 1 else [f"server {place + 1} saw" for place in range(count)]


def _seen_text(chain: Model, step: dict[str, Any], seen: list[str]) -> str:
    """What one of the other side saw; of a web site what stands in its access log."""
    if "asked" in step:
        seen = step["asked"]
    if step["mirror"] and not seen:
        return "nothing (read here)" if "asked" in step else "nothing (mirror)"
    return "everything" if len(set(seen)) == chain.n else ", ".join(seen) or "an empty set"


def _strips(chain: Model, steps: list[dict[str, Any]]) -> Iterator[Text]:
    """A picture of what each server saw."""
    width = max(len(name) for name in chain.names)
    for place, who in enumerate(_who(steps)):
        yield Text(f"What {who} (█ asked for; wanted, which is known only here: ● and asked for, ○ and not):")
        yield Text(" " * width + "  " + "".join("▲" if step["private"] else " " for step in steps) + "  ▲ ON")
        for name in chain.names:
            cells = ["·█○●"[2 * (s["wanted"] == name) + (name in s.get("asked", s["views"][place]))] for s in steps]
            yield Text(name.rjust(width) + "  " + "".join(cells))


def _sum(chain: Model, steps: list[dict[str, Any]], received: int, site: CitySite | None) -> str:
    asked = [step for step in steps if not step["mirror"]]
    known = [step["bits"] for step in steps if step["bits"] is not None]
    told = f"{sum(known):g} bits" if len(known) == len(steps) else "what is not worked out here (no tables)"
    naive = [step["naive"] for step in steps if step["naive"] is not None]
    openly = f"{sum(naive):.3f}" if len(naive) == len(steps) else "what is not worked out here either"
    here = len(steps) - len(asked)
    who = "server" if site is None else "site"
    if site is None:
        total = sum(step["cost"] for step in asked)
        reads = f"; {here} more were read from the mirror, which asks for all that changed" if here else ""
        cost = (
            f"{total:g} messages for {len(asked)} requests; asking for everything would take "
            f"{chain.n * len(asked)}{reads}. {size_text(received)} were received in all."
        )
    else:
        cost = (
            f"{len(site.log)} requests to the site, {chain.n} of them before the first step, and "
            f"{size_text(received)}: {len(asked)} readings while OFF, and {here} while ON, which were read here. "
            f"Everything at each reading would take {chain.n * len(steps)} requests; staying ON takes {chain.n} every "
            f"{REFRESH_SECONDS:g} s."
        )
    parts = [
        cost,
        f"The {who} was told {told} about private requests; naive switching would have told {openly}.",
        "That is for someone who behaves like the model, as this script does; what real people give away is measured "
        "by `onoff audit traces`.",
    ]
    if site is not None:
        parts.append("When the switch is turned is seen by the site; here that is by the clock.")
    if len(steps[0]["views"]) > 1:
        parts[1] = parts[1].replace("The server was told", "Each server by itself was told")
        parts.append("If the servers told each other what they saw, they would know every source that was wanted.")
    return " ".join(parts)
