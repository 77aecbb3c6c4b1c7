"""The message server under load, beside nginx and a bare Starlette app, in one run.

Two cases: N = 16 and N = 1000 sources, frames of 1 KiB, sets of every size. All three serve the same answers to
the same number of connections with the same number of workers: the message server from its store, to POSTed
queries, while a publisher puts 200 messages a second; nginx the same bytes as static files; Starlette the same
bytes from memory, to the same POSTed queries. The load comes from wrk. Rounds are interleaved, so that all see
the same machine; the ratio of requests per second is the median over the rounds.

    python benchmarks/server.py [--seconds S] [--rounds R] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from onoff import wire

FRAME_SIZE = 1024
CONNECTIONS = 32
PUBLISHES_PER_SECOND = 200
PUBLISHERS = 32
SMALL_RATIO_BAR = 0.3

WRK_SCRIPT = """
-- Sends the prepared requests in turn, for ever; counts what is not a 200 of the right kind.
local requests, at = {}, 0
function init(args)
  for line in io.lines(args[1]) do
    local path, body = line:match("(%S+) (%S*)")
    if body == "" then
      requests[#requests + 1] = wrk.format("GET", path)
    else
      local bytes = body:gsub("%x%x", function(h) return string.char(tonumber(h, 16)) end)
      local headers = {["Content-Type"] = "application/vnd.onoff.query", ["Accept-Encoding"] = "identity",
                       ["Accept"] = "application/vnd.onoff.answer", ["User-Agent"] = "onoff"}
      requests[#requests + 1] = wrk.format("POST", path, headers, bytes)
    end
  end
end
function request()
  at = at % #requests + 1
  return requests[at]
end
function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.timeout, e.status))
end
"""

NGINX = """
daemon off; worker_processes {workers}; pid {at}/nginx.pid; error_log {at}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000000; etag off;
  open_file_cache max=10000; default_type application/vnd.onoff.answer; add_header Cache-Control no-store;
  client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d;
  scgi_temp_path {at}/e;
  server {{ listen 127.0.0.1:{port}; root {at}/files; }}
}}
"""

STARLETTE = """
import pathlib, sys
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
at = pathlib.Path({at!r})
answers = {{bytes.fromhex(k): (at / "files" / v).read_bytes() for k, v in
           (line.split() for line in (at / "bare").read_text().splitlines())}}
async def query(request):
    return Response(answers[await request.body()], media_type="application/vnd.onoff.answer")
app = Starlette(routes=[Route("/v1/query", query, methods=["POST"])])
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def process(command: list[str], port: int, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A server process, up while the block runs."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield child
    finally:
        child.terminate()
        child.wait()


def load(at: Path, requests: str, port: int, seconds: float) -> dict[str, float]:
    """What wrk measured."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "-s", str(at / "load.lua")]
    out = subprocess.run(
        [*command, f"http://127.0.0.1:{port}", "--", str(at / requests)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", out)
    if found is None:
        raise RuntimeError(f"wrk said: {out}")
    count, micros, p50, p99, broken, refused = map(int, found.groups())
    return {
        "requests_per_second": count / (micros / 1e6),
        "p50_ms": p50 / 1000,
        "p99_ms": p99 / 1000,
        "errors": broken + refused,
    }


class Publishing(threading.Thread):
    """Publishes at a steady rate over a few connections until stopped; counts what was acknowledged and what not."""

    def __init__(self, port: int, token: str, names: list[str]) -> None:
        super().__init__(daemon=True)
        self.port, self.token, self.names = port, token, names
        self.stopping = threading.Event()
        self.started = self.acknowledged = self.errors = 0
        self.seconds = 0.0

    def run(self) -> None:
        asyncio.run(self.publish())

    async def publish(self) -> None:
        start = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PUBLISHERS):
                tasks.create_task(self.publish_on_one_line(start))
        self.seconds = time.perf_counter() - start

    async def publish_on_one_line(self, start: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while not self.stopping.is_set():
            number, self.started = self.started, self.started + 1
            await asyncio.sleep(start + number / PUBLISHES_PER_SECOND - time.perf_counter())
            body = b"message %d" % number
            head = (
                f"PUT /v1/sources/{self.names[number % len(self.names)]}/message HTTP/1.1\r\nhost: bench\r\n"
                f"authorization: Bearer {self.token}\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer)
            await reader.readexactly(int(length[1]) if length else 0)
            ok = answer.startswith(b"HTTP/1.1 200 ")
            self.acknowledged += ok
            self.errors += not ok
        writer.close()


def prepare(at: Path, n: int, sets: int, seed: int) -> list[str]:
    """Queries of every size, their answers as files, and the lists of requests."""
    rng = random.Random(seed)
    names = [f"source-{i}" for i in range(n)]
    catalogue = wire.Catalogue(tuple(names), FRAME_SIZE)
    (at / "files").mkdir()
    queries, statics, bare = [], [], []
    for k in range(sets):
        sources = tuple(sorted(rng.sample(range(n), rng.randint(1, n))))
        query = wire.encode_query(wire.Query(catalogue.epoch, secrets.token_bytes(16), 0, sources, n=n))
        (at / "files" / f"{k}").write_bytes(rng.randbytes(len(sources) * FRAME_SIZE))
        queries.append(f"/v1/query {query.hex()}")
        statics.append(f"/{k} ")
        bare.append(f"{query.hex()} {k}")
    (at / "queries").write_text("\n".join(queries) + "\n")
    (at / "statics").write_text("\n".join(statics) + "\n")
    (at / "bare").write_text("\n".join(bare) + "\n")
    (at / "load.lua").write_text(WRK_SCRIPT)
    (at / "bare.py").write_text(STARLETTE.format(at=str(at)))
    return names


def measure(n: int, sets: int, *, workers: int, seconds: float, rounds: int) -> dict[str, Any]:
    """All three servers over some rounds."""
    with tempfile.TemporaryDirectory(prefix="onoff-bench-") as folder, contextlib.ExitStack() as stack:
        at = Path(folder)
        names = prepare(at, n, sets, seed=n)
        ports = {name: free_port() for name in ("onoff", "nginx", "starlette")}
        (at / "nginx.conf").write_text(NGINX.format(at=at, port=ports["nginx"], workers=workers))
        (at / "names").write_text("\n".join(names))
        os.chmod(at, 0o755)  # nginx's workers are another user
        onoff, store = str(Path(sys.executable).parent / "onoff"), str(at / "messages.db")
        serve = [onoff, "serve", "--store", store, "--sources", str(at / "names"), "--frame-size", str(FRAME_SIZE)]
        stack.enter_context(process([*serve, "--port", str(ports["onoff"]), "--workers", str(workers)], ports["onoff"]))
        stack.enter_context(process(["nginx", "-c", str(at / "nginx.conf")], ports["nginx"]))
        bare = [sys.executable, "-m", "uvicorn", "bare:app", "--no-access-log", "--port", str(ports["starlette"])]
        stack.enter_context(process([*bare, "--workers", str(workers)], ports["starlette"], cwd=at))
        token = subprocess.run(
            [onoff, "serve", "--store", store, "--add-publisher", "bench"], capture_output=True, text=True, check=True
        ).stdout.strip()

        quiet: list[dict[str, float]] = []
        results: dict[str, list[dict[str, float]]] = {"onoff": [], "nginx": [], "starlette": []}
        publishing = {"acknowledged": 0, "errors": 0, "seconds": 0.0}
        for _ in range(rounds):
            results["nginx"].append(load(at, "statics", ports["nginx"], seconds))
            quiet.append(load(at, "queries", ports["onoff"], seconds))
            publisher = Publishing(ports["onoff"], token, names)
            publisher.start()
            results["onoff"].append(load(at, "queries", ports["onoff"], seconds))
            publisher.stopping.set()
            publisher.join()
            for key in publishing:
                publishing[key] += getattr(publisher, key)
            results["starlette"].append(load(at, "queries", ports["starlette"], seconds))

        def middle(runs: list[dict[str, float]]) -> dict[str, float]:
            run = sorted(runs, key=lambda run: run["requests_per_second"])[len(runs) // 2]
            return {**run, "errors": sum(run["errors"] for run in runs)}

        def ratio(to: str) -> float:
            pairs = zip(results["onoff"], results[to], strict=True)
            return median(ours["requests_per_second"] / theirs["requests_per_second"] for ours, theirs in pairs)

        return {
            "n": n,
            "workers": workers,
            "connections": CONNECTIONS,
            **{name: middle(runs) for name, runs in results.items()},
            "onoff_without_publishing": middle(quiet),
            "publishes_per_second": publishing["acknowledged"] / publishing["seconds"],
            "publish_errors": publishing["errors"],
            "ratio_to_nginx": ratio("nginx"),
            "ratio_to_starlette": ratio("starlette"),
        }


def run(*, seconds: float = 5.0, rounds: int = 3, workers: int = 1) -> dict[str, Any]:
    """Both cases, as data."""
    for tool in ("wrk", "nginx"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed; `make system` installs what the benchmarks drive")
    cases = [
        measure(16, 512, workers=workers, seconds=seconds, rounds=rounds),
        measure(1000, 64, workers=workers, seconds=seconds, rounds=rounds),
    ]
    small = cases[0]["ratio_to_nginx"]
    errors = sum(c["onoff"]["errors"] + c["onoff_without_publishing"]["errors"] + c["publish_errors"] for c in cases)
    steady = min(case["publishes_per_second"] for case in cases) >= 0.95 * PUBLISHES_PER_SECOND
    ok = small >= SMALL_RATIO_BAR and steady and not errors
    return {"benchmark": "server", "cases": cases, "bar": SMALL_RATIO_BAR, "ok": ok}


def show(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = []
    for case in report["cases"]:
        lines.append(
            f"N = {case['n']}, frames of {FRAME_SIZE} bytes, {CONNECTIONS} connections, {case['workers']} worker"
        )
        for name in ("onoff", "onoff_without_publishing", "nginx", "starlette"):
            run = case[name]
            lines.append(
                f"  {name:26} {run['requests_per_second']:9.0f} requests/s   p50 {run['p50_ms']:7.2f} ms   "
                f"p99 {run['p99_ms']:7.2f} ms   errors {run['errors']:g}"
            )
        lines.append(
            f"  {case['publishes_per_second']:.0f} publishes/s at the same time, {case['publish_errors']:g} errors;  "
            f"{case['ratio_to_nginx']:.2f} of nginx, {case['ratio_to_starlette']:.2f} of Starlette"
        )
    verdict = "yes" if report["ok"] else "NO"
    bar = f"small case at least {report['bar']} of nginx, {PUBLISHES_PER_SECOND} publishes/s, no errors"
    lines.append(f"{bar}: {verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    outcome = run(seconds=options.seconds, rounds=options.rounds, workers=options.workers)
    print(json.dumps(outcome, indent=2) if options.json else show(outcome))
