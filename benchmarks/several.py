"""Sums over an edition, for readers of several servers, beside a plain XOR reduction over as many bytes.

For N = 1000 sources of 4 KiB and of 64 KiB and two servers. *Reduction* is `numpy.bitwise_xor.reduce` over contiguous
rows, as many as a vector asks for on the average and each time others, so that both read the same memory. *Pass* is
what the server does for one query, and for several that wait. *HTTP* are whole sum queries to a server of its own
process, 16 connections at a time, driven by wrk; *processor* is the same by the server's processor time alone, which
others on the machine and wrk do not change. All are interleaved in one run; ratios are medians over the rounds, in
bytes of asked rows per second. *Requests*: what a reader of two servers downloads and waits, beside everything
from one.

    python benchmarks/several.py [--rounds R] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import numpy as np

import onoff
from onoff import wire
from onoff.server import running
from onoff.server.admin import opened
from onoff.server.store import Stamp
from onoff.server.sums import KERNEL_BYTES, Matrix, Wanted, kernel_ready

WRK_SCRIPT = """
local requests, at = {}, 0
function init(args)
  for line in io.lines(args[1]) do
    local path, body = line:match("(%S+) (%S*)")
    local bytes = body:gsub("%x%x", function(h) return string.char(tonumber(h, 16)) end)
    local headers = {["Content-Type"] = "application/vnd.onoff.sum-query", ["User-Agent"] = "onoff"}
    requests[#requests + 1] = wrk.format("POST", path, headers, bytes)
  end
end
function request()
  at = at % #requests + 1
  return requests[at]
end
function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d\\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.timeout + e.status))
end
"""

N = 1000
SIZES = (4096, 65536)
WAITING = 8
RATIO_BAR = 0.5
WARM_RATIO = 3  # a server that takes longer than so many reductions for an answer is still compiling ...
WARM_SECONDS = 60  # ... but not for ever


def seconds_of(work: Any, *arguments: Any) -> float:
    """The processor time it takes: all of it is XOR and memory, and others may use the machine."""
    start = time.thread_time()
    work(*arguments)
    return time.thread_time() - start


def random_vectors(count: int) -> list[bytes]:
    return [
        wire.draw_vectors(range(N), secrets.randbelow(N), n=N, servers=2, randbelow=secrets.randbelow)[1]
        for _ in range(count)
    ]


def measure_pass(size: int, rounds: int) -> dict[str, float]:
    """The matrix alone."""
    frames = [secrets.token_bytes(wire.FRAME_OVERHEAD + size) for _ in range(N)]
    matrix = Matrix(frames)
    if len(frames) * len(frames[0]) >= KERNEL_BYTES:
        kernel_ready().wait()  # in the background, as in a server
    rows = np.frombuffer(b"".join(frames), np.uint8).reshape(N, -1)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 64))).view(np.uint64)
    one, many = [], []
    for _ in range(rounds * 5):
        vectors = random_vectors(WAITING)
        asked = sum(sum(vector) for vector in vectors) // WAITING
        starts = [secrets.randbelow(N - asked) for _ in vectors]
        wanted = [Wanted(vector, 2, wire.FRAME_OVERHEAD + size, {}) for vector in vectors]
        for _ in range(2):  # the second counts: both then find caches as a busy server does
            plain = sum(seconds_of(np.bitwise_xor.reduce, rows[at : at + asked]) for at in starts)
        for _ in range(2):
            alone = sum(seconds_of(matrix.sums, [query]) for query in wanted)
        for _ in range(2):
            together = seconds_of(matrix.sums, wanted)
        one.append(plain / alone)
        many.append(plain / together)
    return {"size": size, "one": median(one), "together": median(many)}


def measure_http(size: int, rounds: int) -> dict[str, float]:
    """A running server, and a plain reduction in between."""
    names = [f"source-{k}" for k in range(N)]
    with tempfile.TemporaryDirectory(prefix="onoff-bench-") as folder:
        at = Path(folder)
        edition = asyncio.run(fill(str(at / "messages.db"), {name: secrets.token_bytes(size) for name in names}))
        (at / "load.lua").write_text(WRK_SCRIPT)
        lines = [f"{wire.SUM_PATH} {encoded(edition, vector).hex()}" for vector in random_vectors(256)]
        (at / "requests").write_text("\n".join(lines) + "\n")
        rows = np.frombuffer(secrets.token_bytes(N * size), np.uint64).reshape(N, -1)
        onoff = str(Path(sys.executable).parent / "onoff")
        command = [onoff, "serve", "--store", str(at / "messages.db"), "--port", "0", "--json"]
        served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert served.stdout is not None
            url = json.loads(served.stdout.readline())["url"]
            ratios: list[float] = []
            rates, shares, micros = [], [], []
            begun = time.monotonic()
            while len(ratios) < rounds:
                starts = [secrets.randbelow(N // 2) for _ in range(32)]
                plain = sum(seconds_of(np.bitwise_xor.reduce, rows[k : k + N // 2]) for k in starts) / 32
                before = processor_seconds(served.pid)
                answers, rate = wrk(at, url, 1)
                each = (processor_seconds(served.pid) - before) / max(answers, 1)  # none while it makes the matrix
                if not ratios and each > WARM_RATIO * plain and time.monotonic() < begun + WARM_SECONDS:
                    continue  # the first query makes the matrix, and has the kernel compiled
                rates.append(rate)
                ratios.append(plain * rate)
                shares.append(plain / each)
                micros.append(1e6 * each)
        finally:
            served.terminate()
            served.wait()
    by_clock = {"ratio": median(ratios), "per_second": median(rates)}
    return {"size": size, **by_clock, "processor": median(shares), "micros": median(micros)}


def processor_seconds(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def fill(where: str, messages: dict[str, bytes]) -> wire.Edition:
    """A new store with these messages; its edition."""
    async with opened(where) as store:
        known = wire.Catalogue(tuple(messages), None)
        await store.restore(known, {name: wire.WireMessage(1, 1, "a/b", body) for name, body in messages.items()})
        return (await store.latest(Stamp())).edition


def encoded(edition: wire.Edition, vector: bytes) -> bytes:
    head = (edition.epoch, secrets.token_bytes(16), 0, edition.number, edition.digest)
    return wire.encode_sum_query(wire.SumQuery(*head, 2, 1, vector))


def wrk(at: Path, url: str, seconds: int) -> tuple[int, float]:
    """Requests, and requests per second; all are answered, or it is an error."""
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", str(at / "load.lua"), url, "--", str(at / "requests")]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count, micros, errors = map(int, out.split("RESULT ")[1].split())
    if errors:
        raise RuntimeError(f"{errors} sum queries were refused")
    return count, count / (micros / 1e6)


def measure_request(n: int, rounds: int) -> dict[str, float]:
    """A private request to two servers, and everything from one of them: bytes and seconds over loopback."""
    with tempfile.TemporaryDirectory(prefix="onoff-bench-") as folder, contextlib.ExitStack() as stack:
        stores = [Path(folder) / f"{k}.db" for k in range(2)]
        asyncio.run(fill(str(stores[0]), {f"source-{k}": secrets.token_bytes(SIZES[0]) for k in range(n)}))
        shutil.copy(stores[0], stores[1])  # the same life, numbers and digests, as a follower has
        urls = [stack.enter_context(running([], store=store)).url for store in stores]
        client = stack.enter_context(onoff.Client(urls, None, Path(folder) / "journal"))
        http = stack.enter_context(httpx2.Client(base_url=urls[0], timeout=60))
        known = wire.decode_catalogue(http.get(wire.CATALOGUE_PATH).content)
        client.get(known.names[0], private=True)  # the first makes the matrices
        sums, everything, received, whole = [], [], 0, 0
        for _ in range(rounds):
            start = time.perf_counter()
            received = client.get(known.names[secrets.randbelow(n)], private=True).received
            sums.append(time.perf_counter() - start)
            query = wire.WireQuery(known.epoch, secrets.token_bytes(16), 0, tuple(range(n)), n=n)
            start = time.perf_counter()
            reply = http.post(wire.QUERY_PATH, content=wire.encode_query(query), headers=dict(wire.QUERY_HEADERS))
            everything.append(time.perf_counter() - start)
            whole = len(reply.content)
        asked = 2 * wire.sum_query_length(n, 2)
    return {
        "n": n,
        "bytes": received + asked,
        "everything_bytes": whole + wire.query_length(n),
        "ms": 1000 * median(sums),
        "everything_ms": 1000 * median(everything),
    }


def run(*, rounds: int = 7) -> dict[str, Any]:
    """All cases, as data."""
    passes = [measure_pass(size, rounds) for size in SIZES]
    http = [measure_http(size, rounds) for size in SIZES]
    ratios = [case[kind] for case in passes for kind in ("one", "together")] + [case["processor"] for case in http]
    requests = [measure_request(n, rounds) for n in (16, 1000, 10_000)]
    report = {"benchmark": "several", "n": N, "pass": passes, "http": http, "requests": requests}
    return {**report, "bar": RATIO_BAR, "ok": min(ratios) >= RATIO_BAR}


def show(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"N = {report['n']}, two servers; shares of a plain XOR reduction over as many bytes"]
    for case in report["pass"]:
        lines.append(
            f"  {case['size'] // 1024:3} KiB   pass for one query {case['one']:.2f}, "
            f"for {WAITING} that wait {case['together']:.2f}"
        )
    for case in report["http"]:
        lines.append(
            f"  {case['size'] // 1024:3} KiB   whole answers over HTTP, by the server's processor time "
            f"{case['processor']:.2f} ({case['micros']:.0f} us each); "
            f"by the clock {case['ratio']:.2f}, {case['per_second']:.0f} answers/s"
        )
    for case in report["requests"]:
        lines.append(
            f"  N = {case['n']:5}, 4 KiB: a private request to two servers {case['bytes'] / 1e3:.1f} kB, "
            f"{case['ms']:.0f} ms; everything from one {case['everything_bytes'] / 1e3:.1f} kB, "
            f"{case['everything_ms']:.0f} ms"
        )
    lines.append(
        f"passes for one and for {WAITING}, and whole answers by the server's processor time, "
        f"at least {report['bar']} of the reduction: {'yes' if report['ok'] else 'NO'}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    outcome = run(rounds=options.rounds)
    print(json.dumps(outcome, indent=2) if options.json else show(outcome))
