"""Sweeps: the rows are right, a stopped sweep goes on, and a cluster may lose workers and clients."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.support.chains import request_model
from tests.support.waiting import PATIENCE, until

from onoff.errors import InvalidInput, OnOffError, UnknownScheme
from onoff.lab import sweep as module
from onoff.lab.families import FAMILIES
from onoff.lab.sweep import ClusterLost, Parts, key_of, model_of, read_rows, read_spec, run_task, sweep
from onoff.lab.walk import States
from onoff.model.bounds import bounds
from onoff.model.chain import MarkovChain

pytestmark = pytest.mark.slow(reason="whole experiments are run")

SPEC = """
schemes = ["greedy", "single"]
horizons = [1, 3]
seeds = [1, 2]
[[chain]]
family = "dirichlet 1"
n = [3, 4]
"""


def tasks_of(tmp_path, text=SPEC):
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return read_spec(path)


def without_times(rows):
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in rows]


def test_every_combination_is_one_task(tmp_path):
    tasks = tasks_of(tmp_path)
    assert len(tasks) == 2 * 2 * 2 * 2
    assert len({task["key"] for task in tasks}) == len(tasks)
    again = tasks_of(tmp_path)
    assert [task["key"] for task in again] == [task["key"] for task in tasks]
    assert all(task["key"] == key_of(task) for task in tasks)


def test_a_row_has_the_figures_of_its_chain(tmp_path):
    task = next(t for t in tasks_of(tmp_path) if t["n"] == 4 and t["horizon"] == 3 and t["scheme"] == "greedy")
    row = run_task(task)
    P = FAMILIES["dirichlet 1"](4, np.random.default_rng(task["seed"]))
    b = bounds(P)
    assert (row["first_lower"], row["inner"], row["outer"]) == (b.lower, b.inner, b.outer)
    assert b.lower - 1e-12 <= row["first_cost"] <= b.inner + 1e-12
    assert row["total_lower"] - 1e-9 <= row["total"]
    assert row["last_lower"] - 1e-9 <= row["last_cost"] <= row["first_cost"]
    assert (row["error"], row["stderr"]) == (None, 0)
    assert row["queries"] >= 2


def test_many_states_are_sampled(tmp_path, monkeypatch):
    task = next(t for t in tasks_of(tmp_path) if t["n"] == 4 and t["horizon"] == 3 and t["scheme"] == "greedy")
    exact = run_task(task)
    monkeypatch.setattr(module, "EXACT_STATES", 1)
    drawn = run_task({**task, "descents": 500})
    assert drawn["stderr"] > 0
    assert abs(drawn["total"] - exact["total"]) <= 6 * 3 * drawn["stderr"]


def test_a_budget_goes_to_the_schemes_that_have_one(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "States", lambda *given, **options: asked.append(options) or States(*given, **options))  # type: ignore[func-returns-value]
    for task in tasks_of(tmp_path, "budget = 9.5\n" + SPEC.replace("single", "auto")):
        run_task(task)
    assert asked.count({"budget": 9.5}) == 8
    assert asked.count({}) == 8


def test_chains_come_from_files_too(tmp_path):
    MarkovChain([[0.8, 0.2], [0.2, 0.8]]).save(tmp_path / "c.json")
    (task,) = tasks_of(tmp_path, 'schemes = ["single"]\n[[chain]]\nfile = "c.json"\n')
    assert run_task(task)["first_cost"] == pytest.approx(1.6)
    assert task["family"] == "c.json"
    MarkovChain([[0.7, 0.3], [0.2, 0.8]]).save(tmp_path / "c.json")
    with pytest.raises(InvalidInput, match="has changed"):
        model_of(task)
    assert "has changed" in run_task(task)["error"]


def test_the_result_is_one_file_in_the_order_of_the_tasks(tmp_path):
    tasks = tasks_of(tmp_path)
    told: list[Any] = []
    found = sweep(tasks, tmp_path / "r.parquet", progress=told.append)
    assert (found.rows, found.computed, found.failed) == (16, 16, 0)
    assert told == list(range(1, 17))
    rows = read_rows(found.path)
    assert [row["key"] for row in rows] == [task["key"] for task in tasks]
    assert not Parts(found.path).folder.exists()
    assert sweep(tasks, found.path).computed == 0
    more = tasks_of(tmp_path, SPEC.replace("[3, 4]", "[3, 4, 5]"))
    assert sweep(more, found.path).computed == 8
    assert len(read_rows(found.path)) == 24


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path, monkeypatch):
    tasks = tasks_of(tmp_path)
    whole = sweep(tasks, tmp_path / "whole.parquet")
    done: list[Any] = []

    def tired(task):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(task["key"])
        return run_task(task)

    monkeypatch.setattr(module, "run_task", tired)
    with pytest.raises(KeyboardInterrupt):
        sweep(tasks, tmp_path / "r.parquet")
    assert Parts(tmp_path / "r.parquet").keys() == set(done)
    monkeypatch.setattr(module, "run_task", run_task)
    assert sweep(tasks, tmp_path / "r.parquet").computed == 11
    assert without_times(read_rows(tmp_path / "r.parquet")) == without_times(read_rows(whole.path))


def test_a_full_disk_keeps_what_was_done(tmp_path, monkeypatch):
    tasks = tasks_of(tmp_path)
    parquet = module._arrow().parquet
    written: list[Any] = []
    write = parquet.write_table

    def full(table, file, **options):
        if len(written) == 3:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        written.append(file)
        write(table, file, **options)

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(OnOffError, match="No space left") as caught:
        sweep(tasks, tmp_path / "r.parquet")
    assert "run it again" in (caught.value.hint or "")
    monkeypatch.undo()
    assert len(Parts(tmp_path / "r.parquet").keys()) == 3
    assert not list(tmp_path.glob("r.parquet.parts/.*"))
    assert sweep(tasks, tmp_path / "r.parquet").computed == 13


def test_a_scheme_that_fails_is_a_row_with_its_error(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise OnOffError("too hard")

    monkeypatch.setattr(module, "_figures", broken)
    found = sweep(tasks_of(tmp_path), tmp_path / "r.parquet")
    assert found.failed == 16
    assert {row["error"] for row in read_rows(found.path)} == {"too hard"}


def test_what_failed_is_tried_again_by_the_next_run_and_counted_until_it_works(tmp_path, monkeypatch):
    figures, tasks, out = module._figures, tasks_of(tmp_path), tmp_path / "r.parquet"

    def broken(task):
        if task["key"] in {tasks[0]["key"], tasks[1]["key"]}:
            raise OnOffError("too hard")
        return figures(task)

    monkeypatch.setattr(module, "_figures", broken)
    first = sweep(tasks, out)
    assert (first.rows, first.computed, first.failed) == (16, 16, 2)
    again = sweep(tasks, out)
    assert (again.rows, again.computed, again.failed) == (16, 2, 2)
    rest = sweep(tasks[1:], out)
    assert (rest.rows, rest.computed, rest.failed) == (16, 1, 1)  # of what was asked for now
    monkeypatch.undo()
    mended = sweep(tasks, out)
    assert (mended.rows, mended.computed, mended.failed) == (16, 2, 0)
    assert [row["key"] for row in read_rows(out)] == [task["key"] for task in tasks]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("schemes = [", "not TOML|Invalid"),
        ('schemes = ["greedy"]\n', "no \\[\\[chain\\]\\]"),
        (SPEC + 'colour = "red"\n', "unknown key 'colour'"),
        ("horizon = [1]\n" + SPEC, "unknown key 'horizon'"),
        (SPEC.replace("dirichlet 1", "dirichlet"), "no family 'dirichlet'"),
        (SPEC.replace("[3, 4]", "[1]"), "fewer than 2 sources"),
        (SPEC.replace("[3, 4]", '["x"]'), "not a list of numbers"),
        (SPEC.replace("[1, 3]", "[0]"), "horizons count from 1"),
        ('memories = ["bayes"]\n' + SPEC, "no memory called 'bayes'"),
        ("descents = 1\n" + SPEC, "descents = 1"),
        ("budget = 0\n" + SPEC, "budget = 0"),
        (SPEC + 'file = "x.json"\n', "without family and file, or with both"),
        (SPEC.replace("seeds = [1, 2]", "seeds = [true]"), "not a list of numbers"),
    ],
)
def test_a_specification_that_is_none_is_refused(tmp_path, text, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        tasks_of(tmp_path, text)


def test_unknown_names_and_files_are_refused(tmp_path):
    with pytest.raises(UnknownScheme, match="gredy"):
        tasks_of(tmp_path, SPEC.replace("greedy", "gredy"))
    with pytest.raises(InvalidInput, match="No such file"):
        read_spec(tmp_path / "nowhere.toml")
    with pytest.raises(InvalidInput, match="more than"):
        tasks_of(tmp_path, SPEC.replace("[1, 2]", str(list(range(200_000)))))
    (tmp_path / "x.parquet").write_bytes(b"nonsense")
    with pytest.raises(InvalidInput, match=r"x\.parquet"):
        read_rows(tmp_path / "x.parquet")
    with pytest.raises(InvalidInput, match=r"x\.parquet"):
        sweep(tasks_of(tmp_path), tmp_path / "x.parquet")
    (tmp_path / "file").write_text("")
    with pytest.raises(OnOffError, match="file"):
        sweep(tasks_of(tmp_path), tmp_path / "file" / "r.parquet")


def test_a_model_is_swept_with_its_filter(tmp_path):
    model = request_model([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]], ("a", "b", "c"))
    model.save(tmp_path / "model.npz")
    spec = 'schemes = ["greedy"]\nhorizons = [3]\ndescents = 20\n[[chain]]\nfile = "model.npz"\n'
    (task,) = tasks_of(tmp_path, spec)
    assert (task["memory"], task["n"], task["digest"]) == ("bayes-filter", 3, model.digest())
    row = run_task(task)
    assert row["error"] is None
    assert row["first_lower"] - 1e-9 <= row["first_cost"] <= 3
    assert row["first_cost"] + row["last_cost"] < row["total"] < 9
    assert row["inner"] is row["total_lower"] is None
    (failed,) = tasks_of(tmp_path, 'memories = ["last-query"]\n' + spec)
    assert "types" in run_task(failed)["error"]


@pytest.mark.parametrize(
    ("address", "error", "fault"),
    [
        ("foo", InvalidInput, "'foo' is not the address of a Dask scheduler"),
        ("tcp://127.0.0.1:none", InvalidInput, "is not the address"),
        ("tcp://127.0.0.1:1", ClusterLost, "no Dask scheduler at tcp://127.0.0.1:1"),
    ],
)
def test_an_address_where_nobody_listens_is_refused_in_one_line(tmp_path, address, error, fault):
    with pytest.raises(error) as caught:
        sweep(tasks_of(tmp_path), tmp_path / "r.parquet", cluster=address)
    assert fault in caught.value.message
    assert not (tmp_path / "r.parquet").exists()


# -- a real cluster on loopback: a scheduler and two worker processes --------------------------------------

LOOPBACK = ["--host", "127.0.0.1"]
NOBODY = "tcp://127.0.0.1:9"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """The address, and the processes: the scheduler first, then two workers of one thread each."""
    monkeypatch.setattr(module, "CONNECT_SECONDS", PATIENCE)
    place = tmp_path / "scheduler.json"
    environment = {**os.environ, "DASK_DISTRIBUTED__DASHBOARD__LINK": "", "PYTHONWARNINGS": "ignore"}
    started = []

    def start(*command):
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli." + command[0], *command[1:]],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    scheduler = start(
        "dask_scheduler", *LOOPBACK, "--port", "0", "--scheduler-file", str(place), "--no-dashboard", "--no-show"
    )
    until(lambda: scheduler.poll() is not None or (place.exists() and place.read_text().endswith("}")))
    address = json.loads(place.read_text())["address"]
    for _ in range(2):
        start("dask_worker", address, *LOOPBACK, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    wait_for_workers(address, 2)
    yield address, started
    for process in started:
        process.kill()
        process.wait()


KILLED_AT_FIVE = """
import os, signal, sys
from pathlib import Path
from onoff.lab import sweep as module
from onoff.lab.sweep import read_spec, sweep
spec, out, address, module.CONNECT_SECONDS = *sys.argv[1:4], float(sys.argv[4])
kill = lambda finished: finished >= 5 and os.kill(os.getpid(), signal.SIGKILL)
sweep(read_spec(Path(spec)), Path(out), cluster=address, progress=kill)
"""


def wait_for_workers(address, count):
    from distributed import Client

    with Client(address, timeout=PATIENCE, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=PATIENCE)


CLUSTER_SPEC = """
schemes = ["greedy", "single"]
horizons = [1, 2, 3, 4]
seeds = [1, 2, 3, 4, 5]
[[chain]]
family = "dirichlet 1"
n = [4, 5]
"""


@pytest.mark.slow(reason="starts a scheduler and two workers")
def test_a_sweep_survives_a_killed_client_and_a_killed_worker_and_tells_of_a_lost_cluster(tmp_path, cluster):
    """One cluster, which loses a client, then a worker, then the scheduler. No row is lost or doubled."""
    address, processes = cluster
    spec = tmp_path / "spec.toml"
    tasks = tasks_of(tmp_path, CLUSTER_SPEC.replace("[1, 2, 3, 4, 5]", str(list(range(12)))))
    out = tmp_path / "r.parquet"
    command = [sys.executable, "-c", KILLED_AT_FIVE, str(spec), str(out), address, str(PATIENCE)]
    client = subprocess.run(command, check=False)
    assert client.returncode == -signal.SIGKILL
    parts = Parts(out)
    kept = parts.keys()
    assert 5 <= len(kept) < len(tasks)

    _survives_a_killed_worker(tmp_path, address, processes[1])

    def end_scheduler(finished):
        if finished == len(kept) + 5:
            processes[0].kill()
            processes[0].wait()
            processes[2].kill()

    with pytest.raises(ClusterLost, match="connection to the cluster was lost") as caught:
        sweep(tasks, out, cluster=address, progress=end_scheduler)
    assert "run it again" in (caught.value.hint or "")
    assert len(parts.keys()) >= len(kept) + 5
    assert sweep(tasks, out).rows == len(tasks)
    rows = read_rows(out)
    assert [row["key"] for row in rows] == [task["key"] for task in tasks]


def _survives_a_killed_worker(tmp_path, address, worker):
    """80 rows, none lost or doubled, the same as in this process."""
    tasks = tasks_of(tmp_path, CLUSTER_SPEC)

    def kill_one(finished):
        if finished == 10:
            worker.send_signal(signal.SIGKILL)
            worker.wait()

    found = sweep(tasks, tmp_path / "cluster.parquet", cluster=address, progress=kill_one)
    assert worker.returncode == -signal.SIGKILL
    rows = read_rows(found.path)
    assert [row["key"] for row in rows] == [task["key"] for task in tasks]
    here = sweep(tasks, tmp_path / "here.parquet")
    assert without_times(rows) == without_times(read_rows(here.path))


def test_nobody_at_the_address(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CONNECT_SECONDS", 1)
    with pytest.raises(ClusterLost, match="no Dask"):
        sweep(tasks_of(tmp_path), tmp_path / "r.parquet", cluster=NOBODY)
    assert not (tmp_path / "r.parquet").exists()
