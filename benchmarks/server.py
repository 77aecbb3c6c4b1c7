"""The message server under load, beside nginx and a bare Starlette app, in one run, with and without publishing.

Two cases: N = 16 and N = 1000 sources, frames of 1 KiB, sets of every size. All three serve answers of the same
lengths over the same number of connections with the same number of workers, while nothing is published and while
200 messages a second are, each durable before it is acknowledged:

- onoff answers POSTed queries from its store; a publish changes every answer with that source, at once.
- nginx serves each answer as a static file; a publish replaces one of the files. It keeps its files open for a
  minute, which is its fastest setting, so it goes on serving the old one: less than is asked of the others.
- Starlette answers the same POSTed queries from a dictionary; a publish replaces one answer, in a file and there.

The load comes from wrk. Rounds are interleaved, so that all see the same machine; figures are those of the median
round, ratios the medians over the rounds. The processor time that a server takes for a request, all its processes
and threads counted, is reported beside: it hardly moves when others use the machine, as requests per second do.

    python benchmarks/server.py [--seconds S] [--rounds R] [--workers W] [--json]
"""

from __future__ import annotations

import argparse
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
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.publishing import PER_SECOND, Act, Publishing, Put, Replace

from onoff import wire

ROOT = Path(__file__).resolve().parent.parent

FRAME_SIZE = 1024
CONNECTIONS = 32
SMALL_RATIO_BAR = 0.3
SERVERS = ("onoff", "nginx", "starlette")
TRAFFICS = ("quiet", "publishing")

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
import asyncio, pathlib, sys
sys.path.insert(0, {root!r})
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from benchmarks.publishing import replace_durably
files = pathlib.Path({at!r}) / "files"
numbers = dict(line.split() for line in (files.parent / "bare").read_text().splitlines())
answers = {{k: (files / k).read_bytes() for k in numbers.values()}}
of_query = {{bytes.fromhex(query): k for query, k in numbers.items()}}
async def query(request):
    return Response(answers[of_query[await request.body()]], media_type="application/vnd.onoff.answer")
async def publish(request):
    k, message = request.path_params["k"], await request.body()
    answer = message.ljust({frame_size}) + answers[k][{frame_size}:]
    await asyncio.to_thread(replace_durably, files / k, answer)
    answers[k] = answer
    return Response(b"ok")
app = Starlette(routes=[Route("/v1/query", query, methods=["POST"]), Route("/{{k}}", publish, methods=["PUT"])])
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


class Server(NamedTuple):
    """Its first process, where it is, the list of requests it understands, and how one publishes to it."""

    pid: int
    port: int
    requests: str
    make_act: Callable[[], Act]


def processor_seconds(pid: int) -> float:
    """What a process, its threads and its children have used so far."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    ticks = sum(map(int, fields.split()[11:13]))
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(processor_seconds, children))


def load(at: Path, server: Server, seconds: int) -> dict[str, float]:
    """What wrk measured, and what the server used."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(at / "load.lua")]
    where = [f"http://127.0.0.1:{server.port}", "--", str(at / server.requests)]
    before = processor_seconds(server.pid)
    out = subprocess.run([*command, *where], capture_output=True, text=True, check=True).stdout
    used = processor_seconds(server.pid) - before
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", out)
    if found is None:
        raise RuntimeError(f"wrk said: {out}")
    count, micros, p50, p99, broken, refused = map(int, found.groups())
    return {
        "requests_per_second": count / (micros / 1e6),
        "p50_ms": p50 / 1000,
        "p99_ms": p99 / 1000,
        "errors": broken + refused,
        "processor_us": used / count * 1e6,
    }


def prepare(at: Path, n: int, sets: int, seed: int) -> list[str]:
    """Queries of every size, their answers as files, and the lists of requests."""
    rng = random.Random(seed)
    names = [f"source-{i}" for i in range(n)]
    catalogue = wire.Catalogue(tuple(names), FRAME_SIZE)
    (at / "files").mkdir()
    queries, statics, bare = [], [], []
    for k in range(sets):
        sources = tuple(sorted(rng.sample(range(n), rng.randint(1, n))))
        query = wire.encode_query(wire.WireQuery(catalogue.epoch, secrets.token_bytes(16), 0, sources, n=n))
        (at / "files" / f"{k}").write_bytes(rng.randbytes(len(sources) * FRAME_SIZE))
        queries.append(f"/v1/query {query.hex()}")
        statics.append(f"/{k} ")
        bare.append(f"{query.hex()} {k}")
    (at / "queries").write_text("\n".join(queries) + "\n")
    (at / "statics").write_text("\n".join(statics) + "\n")
    (at / "bare").write_text("\n".join(bare) + "\n")
    (at / "load.lua").write_text(WRK_SCRIPT)
    (at / "bare.py").write_text(STARLETTE.format(at=str(at), root=str(ROOT), frame_size=FRAME_SIZE))
    return names


@contextlib.contextmanager
def all_three(at: Path, names: list[str], sets: int, workers: int) -> Iterator[dict[str, Server]]:
    """The servers, up while the block runs."""
    ports = {name: free_port() for name in SERVERS}
    files = [str(k) for k in range(sets)]
    (at / "nginx.conf").write_text(NGINX.format(at=at, port=ports["nginx"], workers=workers))
    (at / "names").write_text("\n".join(names))
    os.chmod(at, 0o755)  # nginx's workers are another user
    onoff, store = str(Path(sys.executable).parent / "onoff"), str(at / "messages.db")
    serve = [onoff, "serve", "--store", store, "--sources", str(at / "names"), "--frame-size", str(FRAME_SIZE)]
    bare = [sys.executable, "-m", "uvicorn", "bare:app", "--no-access-log", "--port", str(ports["starlette"])]
    with (
        process([*serve, "--port", str(ports["onoff"]), "--workers", str(workers)], ports["onoff"]) as ours,
        process(["nginx", "-c", str(at / "nginx.conf")], ports["nginx"]) as nginx,
        process([*bare, "--workers", str(workers)], ports["starlette"], cwd=at) as starlette,
    ):
        add = [onoff, "serve", "--store", store, "--add-publisher", "bench"]
        token = subprocess.run(add, capture_output=True, text=True, check=True).stdout.strip()
        messages, numbers = [f"/v1/sources/{name}/message" for name in names], [f"/{k}" for k in files]
        yield {
            "onoff": Server(ours.pid, ports["onoff"], "queries", partial(Put, ports["onoff"], messages, token)),
            "nginx": Server(nginx.pid, ports["nginx"], "statics", partial(Replace, at / "files", files, FRAME_SIZE)),
            "starlette": Server(
                starlette.pid,
                ports["starlette"],
                "queries",
                partial(Put, ports["starlette"], numbers, ""),
            ),
        }


def measure(n: int, sets: int, *, workers: int, seconds: int, rounds: int) -> dict[str, Any]:
    """All three servers over some rounds."""
    runs: dict[tuple[str, str], list[dict[str, float]]] = {(s, t): [] for s in SERVERS for t in TRAFFICS}
    with tempfile.TemporaryDirectory(prefix="onoff-bench-") as folder:
        at = Path(folder)
        names = prepare(at, n, sets, seed=n)
        with all_three(at, names, sets, workers) as servers:
            for _ in range(rounds):
                for name, server in servers.items():
                    runs[name, "quiet"].append(load(at, server, seconds))
                    with Publishing(server.make_act) as publishing:
                        run = load(at, server, seconds)
                    run |= {"publishes_per_second": publishing.per_second, "publish_errors": publishing.errors}
                    runs[name, "publishing"].append(run)

    def ratio(ours: tuple[str, str], theirs: tuple[str, str]) -> float:
        pairs = zip(runs[ours], runs[theirs], strict=True)
        return median(one["requests_per_second"] / other["requests_per_second"] for one, other in pairs)

    return {
        "n": n,
        "workers": workers,
        "connections": CONNECTIONS,
        **{server: {traffic: middle(runs[server, traffic]) for traffic in TRAFFICS} for server in SERVERS},
        "ratios": {
            other: {
                **{traffic: ratio(("onoff", traffic), (other, traffic)) for traffic in TRAFFICS},
                "publishing_to_quiet": ratio(("onoff", "publishing"), (other, "quiet")),
            }
            for other in SERVERS[1:]
        },
    }


def middle(runs: list[dict[str, float]]) -> dict[str, float]:
    """The round of median throughput, with the errors of all rounds and the slowest rate of publishing."""
    whole = dict(sorted(runs, key=lambda run: run["requests_per_second"])[len(runs) // 2])
    for key in whole.keys() & {"errors", "publish_errors"}:
        whole[key] = sum(run[key] for run in runs)
    if "publishes_per_second" in whole:
        whole["publishes_per_second"] = min(run["publishes_per_second"] for run in runs)
    return whole


def run(*, seconds: int = 5, rounds: int = 3, workers: int = 1) -> dict[str, Any]:
    """Both cases, as data."""
    for tool in ("wrk", "nginx"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed; `make system` installs what the benchmarks drive")
    cases = [
        measure(16, 512, workers=workers, seconds=seconds, rounds=rounds),
        measure(1000, 64, workers=workers, seconds=seconds, rounds=rounds),
    ]
    ours = [case["onoff"][traffic] for case in cases for traffic in TRAFFICS]
    errors = sum(run["errors"] + run.get("publish_errors", 0) for run in ours)
    steady = min(case["onoff"]["publishing"]["publishes_per_second"] for case in cases) >= 0.95 * PER_SECOND
    ok = cases[0]["ratios"]["nginx"]["publishing"] >= SMALL_RATIO_BAR and steady and not errors
    return {"benchmark": "server", "cases": cases, "bar": SMALL_RATIO_BAR, "ok": ok}


def show(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = []
    for case in report["cases"]:
        lines.append(
            f"N = {case['n']}, frames of {FRAME_SIZE} bytes, {CONNECTIONS} connections, {case['workers']} worker"
        )
        for name in SERVERS:
            for traffic in TRAFFICS:
                run = case[name][traffic]
                line = (
                    f"  {name:9} {traffic:10} {run['requests_per_second']:9.0f} requests/s   "
                    f"p50 {run['p50_ms']:7.2f} ms   p99 {run['p99_ms']:7.2f} ms   errors {run['errors']:g}   "
                    f"processor {run['processor_us']:5.1f} us"
                )
                if traffic == "publishing":
                    line += f"   {run['publishes_per_second']:.0f} publishes/s, errors {run['publish_errors']:g}"
                lines.append(line)
        for other, ratios in case["ratios"].items():
            lines.append(
                f"  of {other}: {ratios['publishing']:.2f} with publishing to both, {ratios['quiet']:.2f} with none, "
                f"{ratios['publishing_to_quiet']:.2f} with publishing to onoff alone"
            )
    verdict = "yes" if report["ok"] else "NO"
    bar = f"small case at least {report['bar']} of nginx, both with {PER_SECOND} publishes/s, no errors"
    lines.append(f"{bar}: {verdict}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    outcome = run(seconds=options.seconds, rounds=options.rounds, workers=options.workers)
    print(json.dumps(outcome, indent=2) if options.json else show(outcome))
