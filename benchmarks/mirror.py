"""The mirror: bytes of a refresh beside the frames of before, and `changes` under load beside nginx.

**Bytes.** N = 16, 120 and 1000 sources with messages as feeds have them (English-like text of 1 to 8 kB as JSON), of
which 0, 1, 10 and 100 % changed since the last refresh: the bytes of the compressed reply, beside the N frames of
64 KiB that a private request took before, and beside the sum of the changed messages compressed one by one.

**Open requests.** 30 such sources and a reader of a made-up chain: bytes of everything by a first refresh, of a refresh
when nothing changed, and of 12 requests with privacy OFF after it, while nothing and while 4 sources change. An open
request says what it knows and gets what changed, so that it never takes more than staying ON. Bodies both ways; and
what comes with the heads of replies.

**Load.** Readers ask a server for all that changed since an edition, while 200 messages a second are published to the
changed sources, each durable before it is acknowledged. nginx serves a file with the same bytes, and publishing
replaces the file. wrk, 32 connections, one worker each; rounds are interleaved, ratios are medians over the rounds.

    python benchmarks/mirror.py [--seconds S] [--rounds R] [--no-load] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx2
import numpy as np
from benchmarks.publishing import PER_SECOND, Publishing, Put, Replace
from benchmarks.server import NGINX, Server, free_port, load, middle, process

from onoff import Client, MarkovChain, wire
from onoff.client import Hooks, upstream_of
from onoff.lab.families import browsing
from onoff.server import running
from onoff.server.admin import edit_catalogue, opened
from onoff.server.answers import Shelf
from onoff.server.changes import ChangesBuilder
from onoff.server.store import Stamp
from onoff.upstream.transport import Failure, Http, Reply, Request
from onoff.wire import Since

SIZES = (16, 120, 1000)
PARTS = (0.0, 0.01, 0.1, 1.0)
OLD_FRAME = 64 * 1024
OPEN_BAR = 200  # bytes of an open request beyond what changed
BAR = 0.5
SPANS = {"nothing": 0, "10 %": 12, "everything": 120}  # sources that change, of 120
WORDS = [
    "".join(random.Random(k).choices("etaoinshrdlucmfwypvbgkjqxz", k=random.Random(-k).randint(2, 9)))
    for k in range(2000)
]

LOAD = """
-- The same request for ever; counts what is not a 200.
local line = nil
function init(args)
  for text in io.lines(args[1]) do line = wrk.format("GET", text, {["Accept"] = "application/vnd.onoff.changes",
    ["Accept-Encoding"] = "gzip", ["User-Agent"] = "onoff"}) end
end
function request() return line end
function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.timeout, e.status))
end
"""


def message(number: int) -> bytes:
    """A message as a feed has it."""
    rng = random.Random(number)
    text = " ".join(rng.choices(WORDS, weights=[1 / (k + 5) for k in range(len(WORDS))], k=rng.randint(150, 1200)))
    fields = {"title": text[:60], "link": f"https://example.org/{number}", "time": 1_763_000_000_000, "html": text}
    return json.dumps(fields).encode()


# Bytes.


async def _bytes_of(n: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(f"{folder}/messages.db") as store:
            names = [f"source-{i}" for i in range(n)]
            await edit_catalogue(store, add=names)
            await asyncio.gather(*(store.publish(name, wire.ENTRY_TYPE, message(k), 0) for k, name in enumerate(names)))
            changes = ChangesBuilder(store, Shelf())
            found = []
            for part in PARTS:
                have = (await store.latest(Stamp())).edition
                changed = range(round(part * n))
                bodies = [message(n + k) for k in changed]
                await asyncio.gather(
                    *(
                        store.publish(names[k], wire.ENTRY_TYPE, body, 1)
                        for k, body in zip(changed, bodies, strict=True)
                    )
                )
                reply = await changes.reply(Since(have.number, have.life, have.digest), gzip=True)
                found.append(
                    {
                        "n": n,
                        "changed": len(changed),
                        "refresh": reply.length,
                        "frames_before": n * OLD_FRAME,
                        "messages_compressed": sum(len(gzip.compress(body, 6)) for body in bodies),
                    }
                )
            return found


# Open requests.


class Counting:
    """A transport that counts bytes: of bodies both ways, and of replies with their heads."""

    def __init__(self, url: str) -> None:
        self.inner, self.bodies, self.received, self.requests = Http(url), 0, 0, 0

    def exchange(self, request: Request) -> Reply | Failure:
        reply = self.inner.exchange(request)
        self.requests += 1
        if isinstance(reply, Reply):
            self.bodies += len(request.body) + len(reply.body)
            head = sum(len(name) + len(value) + 4 for name, value in reply.headers)
            self.received += len("HTTP/1.1 200 OK\r\n\r\n") + head + len(reply.body)
        return reply

    def take(self) -> dict[str, int]:
        taken = {"requests": self.requests, "bodies": self.bodies, "received": self.received}
        self.requests = self.bodies = self.received = 0
        return taken


def open_requests(n: int = 30, reads: int = 12, publishes: int = 4, seed: int = 1) -> list[dict[str, Any]]:
    """What 12 open requests take after a refresh, beside the refresh, and what changed meanwhile."""
    draws = np.random.default_rng(seed)
    names = [f"source-{k}" for k in range(n)]
    chain = MarkovChain(browsing(n, draws), names=names)
    wanted = chain.sample(2 * reads + 1, draws).tolist()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, running({name: message(k) for k, name in enumerate(names)}) as server:
        line = Counting(server.url)
        upstream = upstream_of(server.url, transports=[line])
        with Client(upstream, chain, Path(folder) / "journal", "greedy", hooks=Hooks(tick=0)) as client:

            def note(what: str, changed: int = 0) -> None:
                found.append({"what": what, "changed": changed, **line.take()})

            client.refresh()
            note("everything")
            client.refresh()
            note("a refresh of nothing")
            client.get(wanted[0], private=True)
            line.take()
            for changing in (0, publishes):
                changed = 0
                for k, source in enumerate(wanted[1 + (reads if changing else 0) :][:reads]):
                    if k % 3 == 0 and k // 3 < changing:
                        name, body = names[7 * k % n], message(1000 + k)
                        server.publish(name, body)
                        changed += len(gzip.compress(body, 6))
                    client.get(source, private=False)
                note(f"{reads} open requests", changed)
    return found


# Load.


def measure(span: str, *, seconds: int, rounds: int) -> dict[str, Any]:
    """Our server and nginx over some rounds, for one span."""
    runs: dict[str, list[dict[str, float]]] = {"onoff": [], "nginx": []}
    n, changed = 120, SPANS[span]
    names = [f"source-{i}" for i in range(n)]
    with tempfile.TemporaryDirectory(prefix="onoff-bench-") as folder:
        at = Path(folder)
        (at / "files").mkdir()
        (at / "load.lua").write_text(LOAD)
        (at / "names").write_text("\n".join(names))
        os.chmod(at, 0o755)
        port, other = free_port(), free_port()
        store = str(at / "messages.db")
        have = asyncio.run(_filled(store, names, changed))
        target = wire.changes_target(have)
        (at / "ours").write_text(target + "\n")
        (at / "theirs").write_text("/reply\n")
        (at / "nginx.conf").write_text(NGINX.format(at=at, port=other, workers=1))
        onoff = str(Path(sys.executable).parent / "onoff")
        with (
            process([onoff, "serve", "--store", store, "--port", str(port)], port) as ours,
            process(["nginx", "-c", str(at / "nginx.conf")], other) as nginx,
        ):
            add = [onoff, "serve", "--store", store, "--add-publisher", "bench"]
            token = subprocess.run(add, capture_output=True, text=True, check=True).stdout.strip()
            with httpx2.stream("GET", f"http://127.0.0.1:{port}{target}", headers=dict(wire.CHANGES_HEADERS)) as reply:
                body = b"".join(reply.iter_raw())
            (at / "files" / "reply").write_bytes(body)
            paths = [f"/v1/sources/{name}/message" for name in names[:changed]]
            servers = {
                "onoff": Server(ours.pid, port, "ours", partial(Put, port, paths, token, message)),
                "nginx": Server(nginx.pid, other, "theirs", partial(Replace, at / "files", ["reply"], 1)),
            }
            for _ in range(rounds):
                for name, server in servers.items():
                    if changed:
                        with Publishing(server.make_act) as publishing:
                            run = load(at, server, seconds)
                        run |= {"publishes_per_second": publishing.per_second, "publish_errors": publishing.errors}
                    else:
                        run = load(at, server, seconds)
                    runs[name].append(run)
    pairs = zip(runs["onoff"], runs["nginx"], strict=True)
    ratio = median(one["requests_per_second"] / two["requests_per_second"] for one, two in pairs)
    return {"span": span, "bytes": len(body), **{name: middle(found) for name, found in runs.items()}, "ratio": ratio}


async def _filled(where: str, names: list[str], changed: int) -> wire.Edition | None:
    """A store whose first `changed` sources changed after the edition that is given; None: all did."""
    async with opened(where) as store:
        await edit_catalogue(store, add=names)
        await asyncio.gather(*(store.publish(name, wire.ENTRY_TYPE, message(k), 0) for k, name in enumerate(names)))
        have = (await store.latest(Stamp())).edition
        await asyncio.gather(
            *(store.publish(name, wire.ENTRY_TYPE, message(-k), 0) for k, name in enumerate(names[:changed]))
        )
        return None if changed == len(names) else have


def run(*, seconds: int = 5, rounds: int = 3, load: bool = True) -> dict[str, Any]:
    """Bytes and load, as data."""
    for tool in ("wrk", "nginx") if load else ():
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed; `make system` installs what the benchmarks drive")
    sizes = [row for n in SIZES for row in asyncio.run(_bytes_of(n))]
    opened = open_requests()
    cases = [measure(span, seconds=seconds, rounds=rounds) for span in SPANS] if load else []
    errors = sum(case["onoff"]["errors"] + case["onoff"].get("publish_errors", 0) for case in cases)
    spare = [max(row["bodies"], row["received"]) - row["changed"] - OPEN_BAR * row["requests"] for row in opened[2:]]
    ok = all(case["ratio"] >= BAR for case in cases) and not errors and max(spare) <= 0
    return {"benchmark": "mirror", "bytes": sizes, "open": opened, "cases": cases, "bar": BAR, "ok": ok}


def show(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = ["     N  changed     refresh  frames before  messages compressed one by one"]
    for row in report["bytes"]:
        sizes = f"{row['refresh']:11} {row['frames_before']:14} {row['messages_compressed']:10}"
        lines.append(f"  {row['n']:4} {row['changed']:8} {sizes}")
    lines.append("                          requests   bodies both ways   received with heads   changed, compressed")
    for row in report["open"]:
        counts = f"{row['requests']:8} {row['bodies']:18} {row['received']:21} {row['changed']:21}"
        lines.append(f"  {row['what']:24}{counts}")
    for case in report["cases"]:
        for name in ("onoff", "nginx"):
            run = case[name]
            line = (
                f"  {case['span']:10} {case['bytes']:7} bytes {name:6} {run['requests_per_second']:8.0f} requests/s   "
                f"p99 {run['p99_ms']:6.2f} ms   errors {run['errors']:g}   processor {run['processor_us']:5.1f} us"
            )
            if "publishes_per_second" in run:
                line += f"   {run['publishes_per_second']:.0f} publishes/s, errors {run['publish_errors']:g}"
            lines.append(line)
        lines.append(f"  of nginx: {case['ratio']:.2f}")
    bar = (
        f"at least {report['bar']} of nginx for every span, with {PER_SECOND} publishes/s, no errors, "
        f"and open requests within what changed and {OPEN_BAR} bytes each"
    )
    lines.append(f"{bar}: {'yes' if report['ok'] else 'NO'}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-load", action="store_true", help="bytes alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    outcome = run(seconds=options.seconds, rounds=options.rounds, load=not options.no_load)
    print(json.dumps(outcome, indent=2) if options.json else show(outcome))
