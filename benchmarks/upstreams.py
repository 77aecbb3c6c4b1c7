"""A day of a person at ordinary web sites: naive switching, onoff and always ON side by side; and OFF beside curl.

    python benchmarks/upstreams.py [--days 3] [--rounds 20] [--json]

The sites are those of `examples`, larger. A day is 24 requests, one every 25 minutes, which walk the habits of the
example; five of them are private, in two stretches. Each of three ways makes the same requests of a site of its own,
which counts requests and bytes, heads included:

    naive        everything for a private request, and the wanted one alone for others, which tells the private ones
    onoff        everything for a private request, and a drawn set for others
    always ON    everything for each request

`first set` is how many sources the set right after a private request has at least, on average, under any scheme.

All three ask conditionally, from copies that begin empty, and the first request of a day finds them so. `ok` says that
onoff took no more than always ON, and that OFF requests took at most 1.2 times what curl took for the same addresses
over as many connections, all that are timed together. There a site in a process of its own answers after 100 ms, and
the start of curl is left out, and so is the tick of the client, up to 50 ms, which hides how long a draw took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import onoff
from onoff.client import Hooks
from onoff.client.copies import MemoryCopies
from onoff.model.patterns import parse

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))  # programs, and no package
local_site: Any = import_module("local_site").local_site

DAY = "OFF*6 ON*3 OFF*7 ON*2 OFF*6"
APART_SECONDS = 25 * 60.0
MORNING = 1_800_000_000.0
DELAY = 0.1
"""Seconds after which the site that is timed answers."""
MOST_TIMES_CURL = 1.2
WAYS = ("naive", "onoff", "always ON")


@dataclass(frozen=True)
class Case:
    """An example at a size; `topic` as the example's habits have it."""

    example: str
    n: int
    habits: dict[str, int] = field(default_factory=dict)


CASES = (
    Case("departures", 30),
    Case("departures", 200),
    Case("weather", 100),
    Case("encyclopedia", 300, {"topic": 30}),
    Case("packages", 200),
)


class Clock:
    """The time of the day, which a site and a client share."""

    def __init__(self) -> None:
        self.now = MORNING

    def __call__(self) -> float:
        return self.now


def day(case: Case, seed: int) -> dict[str, Any]:
    """Requests and bytes of each way for the same wanted sources."""
    example = import_module(case.example)
    chain = example.habits([f"{case.example}-{k}" for k in range(case.n)], **case.habits)
    statuses = parse(DAY)
    wanted = [chain.names[x] for x in chain.sample(len(statuses), np.random.default_rng(seed)).tolist()]
    found: dict[str, Any] = {"first": float(chain.dense().max(axis=0).sum())}
    for way in WAYS:
        clock = Clock()
        with local_site(example.page, clock) as (url, log), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "list"
            path.write_text(example.listed(url, chain.names).replace('budget = "600/min"\n', ""))
            web = onoff.Web(onoff.Web.load(path).sources, now=clock)
            with asking(web, chain, way, Path(folder) / "journal") as ask:
                for name, private in zip(wanted, statuses, strict=True):
                    ask(name, private)
                    clock.now += APART_SECONDS
            found[way] = {"requests": len(log), "bytes": sum(access.came + access.went for access in log)}
    return found


@contextmanager
def asking(
    web: onoff.Web, chain: onoff.MarkovChain, way: str, journal: Path
) -> Iterator[Callable[[str, bool], object]]:
    """How requests are made in this way."""
    if (
        way == "onoff"
    ):  # the race draws for a set of any size at once; it costs what the optimum costs, but for percents
        with onoff.Client(web, chain, journal=journal, scheme="race", hooks=Hooks(tick=0.0)) as client:
            yield lambda name, private: client.get(name, private=private)
    else:
        copies = MemoryCopies()
        whole = way == "always ON"
        yield lambda name, private: web.fetch(chain.names if whole or private else [name], copies)


# -- beside curl -------------------------------------------------------------------------------------------


async def _slow_site(delay: float, ready: Connection) -> None:
    """Answers every request after `delay`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(delay)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n" + b"x" * 400)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _serve_slowly(delay: float, ready: Connection) -> None:
    asyncio.run(_slow_site(delay, ready))


@contextmanager
def slow_site(delay: float) -> Iterator[str]:
    """Such a site in a process of its own: its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve_slowly, args=(delay, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def curl_seconds(urls: Sequence[str], connections: int) -> float:
    """What curl takes for plain GETs over so many connections, without its start."""
    parallel = ["--parallel", "--parallel-immediate", "--parallel-max", str(connections)] if connections > 1 else []
    command = ["curl", "--no-progress-meter", "--noproxy", "*", *parallel]

    def run(addresses: Sequence[str]) -> float:
        started = time.perf_counter()
        given = [word for url in addresses for word in (url, "--output", "/dev/null")]
        subprocess.run([*command, *given], check=True)
        return time.perf_counter() - started

    return run(urls) - run(["file:///dev/null"])


def beside_curl(connections: int, rounds: int, *, after_private: bool, delay: float = DELAY) -> dict[str, Any]:
    """Seconds of OFF requests, and of curl for the same addresses, in turns.

    after_private: Whether a private request, which is not timed, comes before each: sets are largest then.
    """
    chain = import_module("departures").habits([f"stop {k}" for k in range(30)])
    wanted = [chain.names[x] for x in chain.sample(rounds, np.random.default_rng(5)).tolist()]
    with slow_site(delay) as url, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.toml"
        stops = "\n".join(f'[sources."{name}"]\nid = "{k}"' for k, name in enumerate(chain.names))
        path.write_text(f'[upstream]\nurl = "{url}/{{id}}"\nconnections = {connections}\n{stops}\n')
        web = onoff.Web.load(path)
        addresses = {source.name: source.url for source in web.sources.sources}
        hooks = Hooks(tick=0.0)
        with onoff.Client(web, chain, journal=Path(folder) / "journal", scheme="race", hooks=hooks) as client:
            client.get(wanted[0], private=True)
            client.get(wanted[0], private=False)  # kernels are loaded
            pairs, sizes = [], []
            for name in wanted:
                if after_private:
                    client.get(name, private=True)
                client.expected_cost(private=False)  # the next draw is ready, as between two requests of a person
                started = time.perf_counter()
                message = client.get(name, private=False)
                ours = time.perf_counter() - started
                pairs.append((ours, curl_seconds([addresses[each] for each in message.asked], connections)))
                sizes.append(len(message.asked))
    return {
        "connections": connections,
        "after_private": after_private,
        "sources": sum(sizes) / len(sizes),
        "onoff_ms": 1000 * sum(ours for ours, _ in pairs) / rounds,
        "curl_ms": 1000 * sum(theirs for _, theirs in pairs) / rounds,
        "ratio": sum(ours for ours, _ in pairs) / sum(theirs for _, theirs in pairs),
    }


# -- all of it ---------------------------------------------------------------------------------------------


def run(*, cases: Sequence[Case] = CASES, days: int = 3, rounds: int = 20) -> dict[str, Any]:
    """Means over days of each case, and ratios to curl over one connection and over four."""
    mean = partial(np.mean, dtype=float)
    shown = []
    for case in cases:
        found = [day(case, seed) for seed in range(days)]
        ways = {way: {key: float(mean([one[way][key] for one in found])) for key in found[0][way]} for way in WAYS}
        shown.append({"example": case.example, "sources": case.n, "first": found[0]["first"], "ways": ways})
    times = [
        beside_curl(connections, rounds // 4 if after_private else rounds, after_private=after_private)
        for after_private in (False, True)
        for connections in (1, 4)
        if rounds
    ]
    cheaper = all(
        each["ways"]["onoff"][key] <= each["ways"]["always ON"][key] for each in shown for key in ("requests", "bytes")
    )
    ours, theirs = (sum(each[who] for each in times) for who in ("onoff_ms", "curl_ms"))
    fast = ours <= MOST_TIMES_CURL * theirs
    return {"benchmark": "upstreams", "days": days, "cases": shown, "beside_curl": times, "ok": cheaper and fast}


def show(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = ["  a day of 24 requests, 5 private    first set".ljust(46) + "".join(f"{way:>22}" for way in WAYS)]
    for each in report["cases"]:
        cells = "".join(f"{one['requests']:9.0f} {one['bytes'] / 1000:9.0f} kB" for one in each["ways"].values())
        lines.append(f"  {each['example']:14} N = {each['sources']:<14} {each['first']:8.1f}".ljust(46) + cells)
    for each in report["beside_curl"]:
        lines.append(
            f"  an OFF request {'after a private one' if each['after_private'] else 'later'}, {each['sources']:.1f} "
            f"sources, connections {each['connections']}: {each['onoff_ms']:.0f} ms, curl {each['curl_ms']:.0f} ms, "
            f"ratio {each['ratio']:.2f} (at most {MOST_TIMES_CURL})"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20, help="OFF requests that are timed; 0: none")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = run(days=options.days, rounds=options.rounds)
    print(json.dumps(report) if options.json else show(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
