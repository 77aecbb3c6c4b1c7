"""How many functions somebody has to find to follow a request through the code: the hops of the four walks.

    python benchmarks/walks.py                        the code of this project
    python benchmarks/walks.py --source OTHER/src     that of another version, counted alike
    python benchmarks/walks.py --list                 and which they are

A walk is run under a profiler after it has run often enough that imports are done and tables are at hand. Counted are

functions  of the package that are entered
hops       those of them that are entered from another file, or from no function of the package: a reader who follows
           the walk has to open that file and find that function
files      in which these functions are

Each counts once, however often it is entered. Lambdas and comprehensions stand where they are read and do not count.
Every walk is run three times, and what is in all three counts: timers and threads at work beside it do not.

off      `Client.get` while OFF, and what is done in other threads after it
design   `onoff design CHAIN`, in this process
server   the same request, in the process of `onoff serve`
click    a source opened on the page of `onoff gateway`, in its process; those in `gateway` and the others apart,
         and the threads of that process (those of a pool count as one)
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ROUNDS = 3
DONE = 255
SETTLING_SECONDS = 0.3
"""What is left for after the answer counts as well."""
CHAIN = {
    "transition": [[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.1, 0.4, 0.3], [0.3, 0.2, 0.1, 0.4]],
    "names": ["alpha", "beta", "gamma", "delta"],
}
DESIGNED = {"transition": [[(3 + 7 * x * y + x * x + y) % 11 + 1 for y in range(8)] for x in range(8)]}
Function = tuple[str, str]
"""The file in the package, and the name."""


class Walk(NamedTuple):
    """The functions of a walk, each with whether it is a hop, and the threads of the process that it went through."""

    functions: list[tuple[str, str, bool]]
    threads: list[str]


class Tracer:
    """Notes hops while `flag[0]` is the number of a round, which another process may set.

    `out`: where they are written as soon as the flag is DONE, since a server ends by a signal.
    """

    def __init__(self, flag: Any, out: Path | None = None) -> None:
        import onoff

        self.root = str(Path(onoff.__file__).parent) + os.sep
        self.flag, self.out = flag, out
        self.hops: list[set[Function]] = [set() for _ in range(ROUNDS + 1)]
        self.functions: list[set[Function]] = [set() for _ in range(ROUNDS + 1)]
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code, number = frame.f_code, self.flag[0]
        if number == DONE and self.out is not None:
            out, self.out = self.out, None
            out.with_suffix(".new").write_text(json.dumps(self.stop()))
            out.with_suffix(".new").replace(out)
        if event != "call" or not 0 < number <= ROUNDS or not code.co_filename.startswith(self.root):
            return
        if code.co_name.startswith("<"):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self.root):
            caller = caller.f_back
        function = (code.co_filename.removeprefix(self.root), code.co_qualname)
        self.functions[number].add(function)
        if caller is None or caller.f_code.co_filename != code.co_filename:
            self.hops[number].add(function)

    def stop(self) -> Walk:
        """What was in every round."""
        sys.setprofile(None)
        threading.setprofile(None)
        functions, hops = (set.intersection(*noted[1:]) for noted in (self.functions, self.hops))
        threads = {re.sub(r"[-_]\d+\b.*", "", thread.name) for thread in threading.enumerate()}
        return Walk([(*function, function in hops) for function in sorted(functions)], sorted(threads))


@contextlib.contextmanager
def program(folder: Path, name: str, *arguments: str) -> Iterator[tuple[dict[str, Any], Any, Path]]:
    """A traced `onoff` command in a process of its own: what it says first, its flag, and the file of its hops."""
    flag_file, out = folder / f"{name}.flag", folder / f"{name}.hops"
    flag_file.write_bytes(bytes(1))
    command = [sys.executable, __file__, "--trace", str(flag_file), str(out), *arguments]
    with open(flag_file, "r+b") as opened, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline()), mmap.mmap(opened.fileno(), 1), out
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def traced_program(flag_file: str, out: str, arguments: list[str]) -> None:
    from onoff.cli import main

    sys.argv = ["onoff", *arguments]
    with open(flag_file, "r+b") as opened:
        Tracer(mmap.mmap(opened.fileno(), 1), Path(out))
        main()


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[str, Any, Path]]:
    """A traced server with a message of every source: its address, its flag and the file of its hops."""
    store = ["--store", str(folder / "store.sqlite")]
    sources = [part for name in CHAIN["names"] for part in ("--source", name)]
    run = [sys.executable, "-c", "from onoff.cli import main; main()"]
    made = subprocess.run(
        [*run, "serve", *store, *sources, "--add-publisher", "me", "--json"], check=True, capture_output=True
    )
    token = json.loads(made.stdout)["token"]
    with program(folder, "serve", "serve", *store, *sources, "--port", "0", "--json") as (said, flag, out):
        for name in CHAIN["names"]:
            publish = [*run, "publish", str(name), "-", "--server", said["url"], "--media-type", "text/plain"]
            environment = {**os.environ, "ONOFF_TOKEN": token}
            subprocess.run(publish, check=True, input=b"message", capture_output=True, env=environment)
        yield said["url"], flag, out


def rounds(flag: Any, walk: Callable[[int], object], warm_up: int = 30) -> None:
    """Walk until everything is at hand, then three times with the flag set."""
    for at in range(warm_up):
        walk(at)
    for number in range(1, ROUNDS + 1):
        flag[0] = number
        walk(warm_up + number)
        time.sleep(SETTLING_SECONDS)
        flag[0] = 0


def written(flag: Any, out: Path, walk: Callable[[int], object]) -> Walk:
    """The hops that another process noted; it writes them when it is next at work."""
    flag[0] = DONE
    for step in range(100):
        walk(step)
        if out.exists():
            return Walk(*json.loads(out.read_text()))
        time.sleep(0.1)
    raise TimeoutError(out)


def source_at(step: int) -> str:
    return str(CHAIN["names"][step % 4])


def walk_off(folder: Path) -> Walk:
    import onoff
    from onoff.client import Hooks

    hooks = Hooks(tick=0.0)
    with server(folder) as (url, _, _):
        flag = [0]
        tracer = Tracer(flag)
        client = onoff.Client(url, onoff.MarkovChain.load(chain_file(folder)), journal=folder / "journal", hooks=hooks)
        client.get("alpha", private=True)
        rounds(flag, lambda step: client.get(source_at(step), private=False))
        hops = tracer.stop()
        client.close()
        return hops


def walk_server(folder: Path) -> Walk:
    import onoff
    from onoff.client import Hooks

    hooks = Hooks(tick=0.0)
    with server(folder) as (url, flag, out):
        client = onoff.Client(url, onoff.MarkovChain.load(chain_file(folder)), journal=folder / "journal", hooks=hooks)
        client.get("alpha", private=True)

        def ask(step: int) -> None:
            client.get(source_at(step), private=False)

        rounds(flag, ask)
        hops = written(flag, out, ask)
        client.close()
        return hops


def walk_design(folder: Path) -> Walk:
    from onoff.cli import main

    rows = [[value / sum(row) for value in row] for row in DESIGNED["transition"]]
    path = folder / "designed.json"
    path.write_text(json.dumps({"transition": rows}))
    sys.argv = ["onoff", "design", str(path)]

    def design(_: int) -> None:
        # A stream of bytes below, as a program's own: the command sets how what cannot be encoded is written.
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.suppress(SystemExit):
            main()

    flag = [0]
    tracer = Tracer(flag)
    rounds(flag, design, warm_up=1)
    return tracer.stop()


def walk_click(folder: Path) -> Walk:
    with server(folder) as (url, _, _):
        arguments = ["gateway", "--server", url, "--chain", str(chain_file(folder)), "--port", "0", "--json"]
        with program(folder, "gateway", *arguments, "--journal", str(folder / "journal")) as (said, flag, out):
            origin = "{0.scheme}://{0.netloc}".format(urlsplit(said["page"]))
            headers = {"Authorization": f"Bearer {said['token']}", "Content-Type": "application/json"}

            def send(method: str, path: str, body: bytes | None = None, **more: str) -> None:
                request = urllib.request.Request(origin + path, body, {**headers, **more}, method=method)
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answer.read()

            send("GET", "/v1/entries/alpha")
            send("PUT", "/v1/privacy", b'{"private": false}')

            def ask(step: int) -> None:  # as `open` in static/reader.js
                once = {"Idempotency-Key": f"click-{step}-{time.monotonic_ns()}", "X-Privacy-Expected": "off"}
                send("GET", f"/v1/entries/{source_at(step)}", **once)

            rounds(flag, ask)
            return written(flag, out, ask)


def chain_file(folder: Path) -> Path:
    path = folder / "chain.json"
    path.write_text(json.dumps(CHAIN))
    return path


WALKS: dict[str, Callable[[Path], Walk]] = {
    "off": walk_off,
    "design": walk_design,
    "server": walk_server,
    "click": walk_click,
}


def walk_through(walk: str, source: Path) -> Walk:
    """The functions of a walk through the package below `source`, in a process of its own."""
    command = [sys.executable, __file__, "--walk", walk]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, timeout=300)
    return Walk(*json.loads(done.stdout))


def count(walked: dict[str, Walk]) -> dict[str, dict[str, int]]:
    """The figures of each walk."""
    counted = {}
    for walk, (functions, threads) in walked.items():
        inside = [function for function in functions if function[0].startswith("gateway")]
        outside = [function for function in functions if function not in inside]
        groups = {"click: gateway": inside, "click: others": outside} if walk == "click" else {walk: functions}
        for name, group in groups.items():
            hops = sum(hop for *_, hop in group)
            counted[name] = {"hops": hops, "functions": len(group), "files": len({file for file, *_ in group})}
        if walk == "click":
            counted["click: gateway"]["threads"] = len(threads)
    return counted


def main() -> None:
    if sys.argv[1:2] == ["--trace"]:
        return traced_program(sys.argv[2], sys.argv[3], sys.argv[4:])
    parser = argparse.ArgumentParser(description="Count the hops of the four walks.")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src", help="the folder of `onoff`")
    parser.add_argument("--list", action="store_true", help="print each hop")
    parser.add_argument("--walk", choices=WALKS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.walk:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(WALKS[given.walk](Path(folder))))
        return None
    walked = {walk: walk_through(walk, given.source.absolute()) for walk in WALKS}
    if given.list:
        for walk, (functions, _) in walked.items():
            for file, name, hop in functions:
                print(f"{walk:8} {'->' if hop else '  '} {file} {name}", file=sys.stderr)
    print(json.dumps(count(walked)))
    return None


if __name__ == "__main__":
    main()
