"""Sweeps: chains x schemes x memories x horizons x seeds, one row each, to Parquet.

    [[chain]]                        a family of `experiments.families` at some sizes ...
    family = "dirichlet 1"
    n = [4, 8, 16]
    [[chain]]                        ... or a chain file
    file = "chain.json"              (or a model; its bounds are those of the state after the private request)

    schemes  = ["greedy", "optimal"]
    memories = ["last-query"]        optional: by default what suits a chain or a model
    horizons = [1, 10]               OFF requests after a private one
    seeds    = [1, 2, 3]             of random chains, and of descents where the states are too many
    descents = 200                   optional
    budget   = 60.0                  optional: seconds that a search for the optimum may take

(The keys that are not tables come first in a TOML file.) Every task has a key, the hash of what it is. Each finished
row is written at once as a part `KEY.parquet` beside the result; a part that is there is never computed again, so a
killed sweep goes on where it was and no row can be lost or doubled. At the end the parts become one file; only its rows
with an error are tried again by the next run. With a Dask cluster the rows are computed by its workers and written by
this process; a worker that dies has its tasks done by another.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import socket
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from onoff.errors import InvalidInput, MissingExtra, OnOffError, nearest
from onoff.lab.families import FAMILIES
from onoff.lab.walk import PATH_BUDGETS, Pattern, States, expected_costs, sampled_costs, sampled_paths, standard_error
from onoff.model.bounds import bounds, step_bounds
from onoff.model.chain import MarkovChain
from onoff.model.contexts import Model, RequestModel, load_model
from onoff.schemes import find_scheme
from onoff.session import Session
from onoff.session.session import MEMORIES, default_memory
from onoff.system.files import atomic_write, open_ordinary, read_limited

SPEC_KEYS = ("chain", "schemes", "memories", "horizons", "seeds", "descents", "budget")
DESCENTS = 200
EXACT_STATES = 200
"""Public states up to which the expected cost is exact."""
MOST_TASKS = 1_000_000
CONNECT_SECONDS = 10
"""How long the scheduler of a cluster may take to answer."""
Task = dict[str, Any]


class ClusterLost(OnOffError):
    """The connection to the cluster was lost; finished rows are kept."""


@dataclass(frozen=True)
class Swept:
    """A finished sweep: the rows of its file, those computed just now, and those of its tasks that have an error."""

    path: Path
    rows: int
    computed: int
    failed: int


# -- what is to be done ------------------------------------------------------------------------------------


def read_spec(path: Path) -> list[Task]:
    """Every task of a specification. Raises InvalidInput that names the key at fault."""
    try:
        spec = tomllib.loads(read_limited(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: {error}", hint="give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: {error}", hint="not TOML") from None
    try:
        return list(_tasks(spec, path.parent))
    except InvalidInput as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


def _tasks(spec: Mapping[str, Any], folder: Path) -> Iterator[Task]:
    for key in spec:
        if key not in SPEC_KEYS:
            raise InvalidInput(f"unknown key {key!r}", hint=nearest(key, SPEC_KEYS))
    chains = spec.get("chain")
    if not isinstance(chains, list) or not chains:
        raise InvalidInput("no [[chain]]", hint='e.g. [[chain]] family = "dirichlet 1", n = [4, 8]')
    schemes = [find_scheme(str(scheme)).name for scheme in _listed(spec, "schemes", str)]
    memories: list[str | None] = [None] if "memories" not in spec else list(_listed(spec, "memories", str))
    for memory in memories:
        if memory is not None and memory not in MEMORIES:
            raise InvalidInput(f"no memory called {memory!r}", hint=nearest(memory, MEMORIES))
    horizons, seeds = _listed(spec, "horizons", int, [1]), _listed(spec, "seeds", int, [1])
    if min(horizons) < 1 or min(seeds) < 0:
        raise InvalidInput("a horizon below 1 or a seed below 0", hint="horizons count from 1 and seeds from 0")
    descents = spec.get("descents", DESCENTS)
    if not isinstance(descents, int) or descents < 2:
        raise InvalidInput(f"descents = {descents!r}", hint="give a number from 2 up")
    budget = spec.get("budget")
    if budget is not None and not (isinstance(budget, int | float) and budget > 0):
        raise InvalidInput(f"budget = {budget!r}", hint="give a number of seconds above 0")
    sources = [one for chain in chains for one in _chains(chain, folder)]
    size = len(sources) * len(schemes) * len(memories) * len(horizons) * len(seeds)
    if size > MOST_TASKS:
        raise InvalidInput(f"{size} tasks, more than {MOST_TASKS}", hint="sweep less at once")
    for source, scheme, memory, horizon, seed in itertools.product(sources, schemes, memories, horizons, seeds):
        kept = source["memory"] if memory is None else memory
        task = {**source, "scheme": scheme, "memory": kept, "horizon": horizon, "seed": seed, "descents": descents}
        task["budget"] = budget
        yield {**task, "key": key_of(task)}


def _chains(chain: Any, folder: Path) -> Iterator[Task]:
    if not isinstance(chain, dict) or ("family" in chain) == ("file" in chain):
        raise InvalidInput("a [[chain]] without family and file, or with both", hint="give one of them")
    for key in chain:
        if key not in ("family", "n", "file"):
            raise InvalidInput(f"unknown key {key!r} in [[chain]]", hint=nearest(key, ("family", "n", "file")))
    if "file" in chain:
        path = (folder / str(chain["file"])).resolve()
        loaded = load_model(path)
        known = {"file": str(path), "digest": loaded.digest(), "memory": default_memory(loaded)}
        yield {"family": path.name, "n": loaded.n, **known}
        return
    if chain["family"] not in FAMILIES:
        raise InvalidInput(f"no family {chain['family']!r}", hint=nearest(str(chain["family"]), FAMILIES))
    sizes = _listed(chain, "n", int)
    if min(sizes) < 2:
        raise InvalidInput("a chain with fewer than 2 sources", hint="give n from 2 up")
    for n in sizes:
        yield {"family": chain["family"], "n": n, "file": None, "digest": None, "memory": "last-query"}


def _listed(spec: Mapping[str, Any], key: str, kind: type, default: list[Any] | None = None) -> list[Any]:
    value = spec.get(key, default)
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(type(one) is kind for one in listed):
        raise InvalidInput(f"{key!r} is not a list of {'names' if kind is str else 'numbers'}", hint="such as [...]")
    return list(dict.fromkeys(listed))


def key_of(task: Mapping[str, Any]) -> str:
    """What a task is, as one word; where a chain file lies does not matter, what it holds does."""
    told = {key: value for key, value in task.items() if key not in ("key", "file")}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:24]


# -- one row -----------------------------------------------------------------------------------------------


def run_task(task: Task) -> dict[str, Any]:
    """The row of one task. What goes wrong inside a scheme becomes the row's `error`."""
    begun = time.perf_counter()
    row: dict[str, Any] = {
        key: value for key, value in task.items() if key not in ("file", "digest", "descents", "budget")
    }
    row |= dict.fromkeys(FIGURES)
    try:
        row |= _figures(task)
    except OnOffError as error:
        row["error"] = error.message
    row["seconds"] = time.perf_counter() - begun
    return row


FIGURES = (
    "first_cost", "first_lower", "inner", "outer", "queries", "build_seconds",
    "last_cost", "last_lower", "total", "stderr", "total_lower", "error", "seconds",
)  # fmt: skip
"""Of the first OFF request: cost, best lower bound, the paper's bounds, the table; of the last and of all: costs."""


def _figures(task: Task) -> dict[str, Any]:
    chain = model_of(task)
    has_budget = task["budget"] is not None and find_scheme(task["scheme"]).budget is not None
    options = {"budget": task["budget"]} if has_budget else {}
    if not isinstance(chain, MarkovChain):
        return _figures_of_model(chain, task, options)
    states = States(chain, task["scheme"], task["memory"], **options)
    private = states[states[0].after_private]
    begun = time.process_time()  # of this process alone, whatever else the machine does
    queries = 1 if private.plain else len(getattr(private.source, "mass", ())) or None
    built = time.process_time() - begun
    first = bounds(chain)
    pattern = Pattern((True, *[False] * task["horizon"]))
    walked = expected_costs(states, pattern, most_states=EXACT_STATES)
    if walked is None:
        walked = sampled_costs(states, pattern, task["descents"], np.random.default_rng(task["seed"]))
    later = step_bounds(chain, task["horizon"])
    return {
        "first_cost": walked[1].cost,
        "first_lower": first.lower,
        "inner": first.inner,
        "outer": first.outer,
        "queries": queries,
        "build_seconds": built,
        "last_cost": walked[-1].cost,
        "last_lower": later[-1].lower,
        "total": sum(step.cost for step in walked[1:]),
        "stderr": max(step.stderr for step in walked),
        "total_lower": sum(step.lower for step in later),
    }


def _figures_of_model(model: RequestModel, task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """The same for a model, by random paths; the paper's bounds and those of later requests are not known."""
    pattern = Pattern((True, *[False] * task["horizon"]))
    session = Session(model, task["scheme"], task["memory"], **options)
    session.request(0, private=True)
    begun = time.process_time()
    table = session.tables.of(session.memory)
    built = time.process_time() - begun
    rng = np.random.default_rng(task["seed"])
    states = States(model, task["scheme"], task["memory"], budgets=PATH_BUDGETS, **options)
    paths = sampled_paths(states, pattern, task["descents"], rng)
    costs = paths.expected.mean(axis=0)
    found = {
        "first_cost": costs[1],
        "first_lower": table.lower_bound,
        "queries": len(getattr(table, "mass", ())) or None,
        "build_seconds": built,
        "last_cost": costs[-1],
        "total": costs[1:].sum(),
        "stderr": standard_error(paths.expected).max(),
    }
    return {key: None if value is None else float(value) for key, value in found.items()} | {
        "queries": found["queries"]
    }


def model_of(task: Task) -> Model:
    """The chain or model of a task: from its file, or of its family with the task's seed."""
    if task["file"] is not None:
        chain = load_model(task["file"])
        if chain.digest() != task["digest"]:
            raise InvalidInput(f"{task['file']} has changed since the sweep began", hint="run the sweep anew")
        return chain
    return MarkovChain(FAMILIES[task["family"]](task["n"], np.random.default_rng(task["seed"])))


# -- parts and the result ----------------------------------------------------------------------------------


class Parts:
    """The rows that are done: in the result, or still as parts beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.with_name(path.name + ".parts")

    def keys(self) -> set[str]:
        """The rows that need not be computed again: all but those with an error."""
        done = {part.stem for part in self.folder.glob("*.parquet")}
        if self.path.exists():
            done |= {row["key"] for row in read_rows(self.path) if row["error"] is None}
        return done

    def write(self, row: dict[str, Any]) -> None:
        """Write one row as a part, atomically."""
        self._put(self.folder / f"{row['key']}.parquet", [row])

    def finish(self, wanted: Sequence[str]) -> list[dict[str, Any]]:
        """Make the parts one file, ordered as the tasks are; its rows."""
        rows = {} if not self.path.exists() else {row["key"]: row for row in read_rows(self.path)}
        for part in self.folder.glob("*.parquet"):
            rows |= {row["key"]: row for row in read_rows(part)}
        order = [key for key in wanted if key in rows]
        order += sorted(rows.keys() - set(order))
        ordered = [rows[key] for key in order]
        self._put(self.path, ordered)
        shutil.rmtree(self.folder, ignore_errors=True)
        return ordered

    def _put(self, path: Path, rows: list[dict[str, Any]]) -> None:
        arrow = _arrow()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:
                arrow.parquet.write_table(arrow.Table.from_pylist(rows, schema=_schema()), file)
        except OSError as error:
            raise OnOffError(
                f"{path}: {error.strerror or error}", hint="the rows before this one are kept; run it again to go on"
            ) from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a result of a sweep."""
    arrow = _arrow()
    try:
        with open_ordinary(path) as file:
            rows: list[dict[str, Any]] = arrow.parquet.read_table(file).to_pylist()
    except (OSError, arrow.ArrowInvalid) as error:
        raise InvalidInput(f"{path}: {error}", hint="not a result of `onoff sweep`") from None
    if rows and not {"key", "scheme", "first_cost"} <= rows[0].keys():
        raise InvalidInput(f"{path}: columns of something else", hint="not a result of `onoff sweep`")
    return rows


def _schema() -> Any:
    arrow = _arrow()
    texts, whole = ("family", "scheme", "memory", "key", "error"), ("n", "horizon", "seed", "queries")
    order = ("family", "n", "scheme", "memory", "horizon", "seed", "key", *FIGURES)
    kinds = {**dict.fromkeys(texts, arrow.string()), **dict.fromkeys(whole, arrow.int64())}
    return arrow.schema([(name, kinds.get(name, arrow.float64())) for name in order])


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("sweeps need pyarrow", extra="sweep") from None
    return pyarrow


# -- the sweep ---------------------------------------------------------------------------------------------


def sweep(
    tasks: Sequence[Task],
    out: Path,
    *,
    cluster: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Swept:
    """Compute every row that is not there yet, here or on a Dask cluster, and leave one Parquet file at `out`."""
    _arrow()  # before anything is computed
    parts = Parts(out)
    done = parts.keys()
    missing = [task for task in tasks if task["key"] not in done]
    finished = len(tasks) - len(missing)
    rows = _here(missing) if cluster is None else _on_cluster(missing, cluster)
    for row in rows:
        parts.write(row)
        finished += 1
        if progress is not None:
            progress(finished)
    whole = parts.finish([task["key"] for task in tasks])
    failed = sum(row["error"] is not None for row in whole[: len(tasks)])
    return Swept(out, len(whole), len(missing), failed)


def _here(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        yield run_task(task)


def _on_cluster(tasks: Sequence[Task], address: str) -> Iterator[dict[str, Any]]:
    try:
        from distributed import Client, as_completed
        from distributed.client import FutureCancelledError
    except ImportError:
        raise MissingExtra("a cluster needs Dask", extra="sweep") from None
    _check_address(address)
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterLost(f"no Dask scheduler at {address}: {error}", hint="start one with `dask scheduler`") from None
    with client, client.as_current():
        # A key for each task makes it one task whatever happens to the worker that has it.
        futures = [client.submit(run_task, task, key=f"onoff-{task['key']}", pure=True) for task in tasks]
        try:
            completed = as_completed(futures)
            for future in completed:
                if future.status == "cancelled":
                    raise ClusterLost("the connection to the cluster was lost", hint=GO_ON)
                if future.status == "error":
                    raise ClusterLost(f"a task could not be run: {future.exception()}", hint=GO_ON)
                if future.status != "finished":  # its worker died with the result: another one computes it again
                    completed.add(future)
                    continue
                yield future.result()
                future.release()
        except (OSError, FutureCancelledError) as error:  # what Dask raises once its scheduler is gone
            raise ClusterLost(f"the connection to the cluster was lost: {error}", hint=GO_ON) from None


def _check_address(address: str) -> None:
    """Raise InvalidInput for an address without a listener, before Dask waits for it."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme not in ("tcp", "tls"):
        return
    if not host or not port:
        raise InvalidInput(f"{address!r} is not the address of a Dask scheduler", hint="e.g. tcp://127.0.0.1:8786")
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterLost(
            f"no Dask scheduler at {address}: {error.strerror or error}", hint="start one with `dask scheduler`"
        ) from None


GO_ON = "the rows that were done are kept; run it again to go on"
