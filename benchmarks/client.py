"""The client: draw and commit against a bare durable commit of SQLite, in one run; and what importing it takes.

Both commit one row of the same size to a file on the same disk, with WAL and synchronous=FULL, in turns, so that
whatever else the disk does meets both alike. The timed request is an open one (OFF) right after a private one, so that
there is a draw from the largest table. Marking it as answered happens while nobody waits (in a thread of its
own); here it is done between the timed parts. A private request is a read of the mirror, on the same disk. Beside it
stands the processor time of an open request with a model, of which no table comes back: by `auto`, and by Algorithm 1
for the same requests, so that the two can be compared on any machine.
"""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from onoff import MarkovChain, RequestModel
from onoff.client import Client, Hooks
from onoff.client.core import Core, Record, StoreRecord
from onoff.client.journal import Journal
from onoff.lab.families import dirichlet
from onoff.model.context_tree import all_contexts
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.upstream.message_server import Fetched, MessageServer
from onoff.wire import Catalogue, Edition, WireMessage

WANTED_RATIO = 2.0
"""Draw and commit take at most so many bare commits."""
WANTED_MODEL_RATIO = 33.0
"""An open request with a model takes at most so many times that of Algorithm 1, whose table takes about 2 ms."""
SOURCES = 12
ROUNDS = 400
IMPORTS = 5
MODEL_SOURCES, MODEL_TYPES, MODEL_STEPS = 17, 24, 66
HEAVY = ("numba", "scipy", "highspy", "starlette", "uvicorn", "matplotlib")


class Bare:
    """SQLite alone: one row, replaced and durable."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            self._database.execute(f"PRAGMA {setting}").fetchall()
        names = [column.name for column in fields(Record)]
        self._database.execute(f"CREATE TABLE request (id INTEGER PRIMARY KEY, {', '.join(names)}, checksum)")
        marks = ", ?" * (len(names) + 1)
        self._statement = f"INSERT OR REPLACE INTO request VALUES (1{marks})"

    def commit(self, record: Record) -> None:
        """One transaction."""
        values = [getattr(record, column.name) for column in fields(Record)]
        self._database.execute(self._statement, (*values, bytes(32)))

    def close(self) -> None:
        self._database.close()


def stored_request(core: Core, journal: Journal, wanted: int, *, private: bool) -> Record:
    """A request up to the moment at which it may be sent."""
    steps = core.request(wanted, private=private)
    command = next(steps)
    while not isinstance(command, StoreRecord):
        command = steps.send(None)
    journal.store(command.record)
    steps.send(None)
    return command.record


class Reader(Client):
    """A client that flushes when it is told to, as its thread does while nobody waits."""

    def flush(self) -> None:
        """Truncate the log of the journal."""
        self._runner.flush()


def reading(folder: Path, chain: MarkovChain) -> Reader:
    """A client whose mirror is full."""
    reader = Reader("http://x.test", chain, folder / "reader", hooks=Hooks(background=False))
    reader._runner._defer = lambda core, work: setattr(reader._runner, "deferred", work)  # type: ignore[method-assign]
    catalogue = Catalogue(chain.names, None)
    edition = Edition(catalogue.epoch, bytes(16), 1, bytes(32))
    messages = tuple((source, WireMessage(1, 1, "text/plain", bytes(4096))) for source in range(SOURCES))
    assert reader.mirror is not None
    reader.mirror.mirror.apply(Fetched(catalogue, edition, True, messages, 0), time.time())
    return reader


def commits(rounds: int) -> dict[str, float]:
    """Median seconds of a bare commit, of a draw and commit, and of marking it as answered."""
    chain = MarkovChain(dirichlet(SOURCES, 1.0, np.random.default_rng(1)))
    session = Session(chain, "greedy")
    server = MessageServer("http://x.test")
    server.catalogue = Catalogue(chain.names)
    core = Core(session, server, origin="", new_session=lambda: bytes(16))
    times: dict[str, list[float]] = {"bare": [], "request": [], "complete": [], "read": []}
    with tempfile.TemporaryDirectory(prefix="onoff-", dir=Path.cwd()) as folder:
        bare, journal = Bare(Path(folder) / "bare"), Journal(Path(folder) / "journal")
        reader = reading(Path(folder), chain)
        core.opened(journal.found, journal.doubt)
        for number in range(rounds + 1):
            stored_request(core, journal, number % SOURCES, private=True)
            journal.complete()
            session.prepare()
            start = time.perf_counter()
            record = stored_request(core, journal, number * 5 % SOURCES, private=False)
            stored = time.perf_counter()
            journal.complete()
            settled = time.perf_counter()
            bare.commit(record)
            end = time.perf_counter()
            reader.read(number % SOURCES)
            read = time.perf_counter()
            reader.flush()
            if number:  # the first one opens files
                spans = (end - settled, stored - start, settled - stored, read - end)
                for name, seconds in zip(times, spans, strict=True):
                    times[name].append(seconds)
        bare.close()
        journal.close()
        reader.close()
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def model_step(steps: int, scheme: str) -> float:
    """Median processor seconds of one OFF request of a session with a model: filter, table and draw."""
    rng = np.random.default_rng(1)
    contexts = all_contexts(MODEL_SOURCES, 2)
    laws = rng.dirichlet(np.full(MODEL_SOURCES, 0.3), size=(MODEL_TYPES, len(contexts)))
    model = RequestModel(laws, contexts)
    session = Session(model, scheme, entropy=SeededEntropy(rng))
    times: list[float] = []
    while len(times) < steps:
        private = len(times) % 11 == 0
        wanted = int(model.sample(1, rng)[0])
        start = time.process_time()
        session.request(wanted, private=private)
        times.append(time.process_time() - start)
    return statistics.median(seconds for number, seconds in enumerate(times) if number % 11)


def importing(statement: str) -> tuple[float, list[str]]:
    """Seconds that a fresh interpreter takes for a statement, best of a few, and what heavy things it loaded."""
    timed = f"start = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    program = f"import sys, time\n{timed}\nprint(*sys.modules)"
    best, loaded = float("inf"), []
    for _ in range(IMPORTS):
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        seconds, modules = done.stdout.splitlines()
        best, loaded = min(best, float(seconds)), [name for name in HEAVY if name in modules.split()]
    return best, loaded


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    """Ratio of a request's draw and commit to a bare commit; seconds and heavy modules of the import."""
    medians = commits(rounds)
    seconds, heavy = importing("import onoff.client")
    numpy_alone, _ = importing("import numpy")
    by_model, by_greedy = (model_step(MODEL_STEPS, scheme) for scheme in ("auto", "greedy"))
    ratio = medians["request"] / medians["bare"]
    read_ratio = medians["read"] / medians["bare"]
    return {
        "benchmark": "client",
        "bare_commit_ms": medians["bare"] * 1e3,
        "draw_and_commit_ms": medians["request"] * 1e3,
        "complete_ms": medians["complete"] * 1e3,
        "ratio": ratio,
        "mirror_read_ms": medians["read"] * 1e3,
        "mirror_read_ratio": read_ratio,
        "model_step_cpu_ms": by_model * 1e3,
        "model_greedy_step_cpu_ms": by_greedy * 1e3,
        "model_step_ratio": by_model / by_greedy,
        "import_seconds": seconds,
        "import_numpy_seconds": numpy_alone,
        "heavy_imports": heavy,
        "ok": max(ratio, read_ratio) <= WANTED_RATIO and by_model <= WANTED_MODEL_RATIO * by_greedy and not heavy,
    }


def show(result: dict[str, Any]) -> str:
    """The figures as text."""
    return "\n".join(
        [
            f"bare durable commit          {result['bare_commit_ms']:8.3f} ms",
            f"draw and commit of a request {result['draw_and_commit_ms']:8.3f} ms"
            f"   {result['ratio']:.2f} times (at most {WANTED_RATIO:g})",
            f"private read of the mirror   {result['mirror_read_ms']:8.3f} ms"
            f"   {result['mirror_read_ratio']:.2f} times (at most {WANTED_RATIO:g})",
            f"marking as answered, later   {result['complete_ms']:8.3f} ms",
            f"OFF step with a model, CPU   {result['model_step_cpu_ms']:8.3f} ms"
            f"   {MODEL_TYPES} types of order 2, {MODEL_SOURCES} sources: filter, table and draw;"
            f" {result['model_step_ratio']:.1f} times Algorithm 1 (at most {WANTED_MODEL_RATIO:g})",
            f"import onoff.client          {result['import_seconds'] * 1e3:8.0f} ms"
            f"   of which numpy {result['import_numpy_seconds'] * 1e3:.0f} ms;"
            f" heavy: {', '.join(result['heavy_imports']) or 'none'}",
        ]
    )


def main() -> int:
    """Run it alone."""
    result = run()
    print(show(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
