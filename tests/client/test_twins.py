"""Non-interference: two request paths that drew the same queries leave the same traces, byte by byte.

The second run wants other sources, and its draws are steered to the queries of the first. Everything that leaves the
process must then be equal: what the server receives, log lines, files and their sizes, also where answers break off;
and in the journal only what was wanted may differ, with the checksum over it.
"""

import logging
import random
import sqlite3

import pytest
from tests.support.clients import Client
from tests.support.progress import progress
from tests.support.world import NAMES, P4, Listening, World

import onoff
from onoff import wire
from onoff.audit.exact import ScriptedEntropy
from onoff.errors import OnOffError

CHAIN = onoff.MarkovChain(P4, names=NAMES)
SECRET_COLUMNS = {"wanted", "checksum"}


class Steered:
    """Chooses what it is told to; else the most likely."""

    def __init__(self):
        self.choice = None

    def choose(self, weights):
        return max(range(len(weights)), key=weights.__getitem__) if self.choice is None else self.choice


def ways(client, target, private):
    """All (source, choice) that would ask for exactly `target` now."""
    session = client.core.session
    found = []
    for source in range(CHAIN.n):
        for choice in range(1 if private else 40):
            twin = session.fork(ScriptedEntropy([choice]))
            try:
                query, _ = twin.propose(source, private=private)
            except (ValueError, OnOffError):  # the script has no such choice
                break
            if query.sources == target and query.note is None:
                found.append((source, choice))
    return found


class Run:
    """One user's run against a server of its own, with everything that can be seen of it."""

    def __init__(self, folder, caplog):
        self.folder = folder
        self.world = World()
        self.failing = iter(())
        self.server = Listening(self.world, self.deliver)
        self.steering = Steered()
        self.client = Client(
            self.server.url,
            CHAIN,
            folder / "journal",
            "greedy",
            tick=0,
            backoff=0,
            background=False,
            mirror=False,
            entropy=self.steering,
            new_session=lambda: b"the same session",
        )
        self.logged = []
        self.sizes = []
        self.caplog = caplog

    def deliver(self, connection, path, raw):
        if path == wire.QUERY_PATH and next(self.failing, False):
            connection.sendall(raw[: len(raw) // 2])
        else:
            connection.sendall(raw)

    def get(self, source, choice, private, failures):
        self.steering.choice = choice
        self.failing = iter([True] * failures)  # type: ignore[list-item]
        self.caplog.clear()
        message = self.client.get(source, private=private)
        assert message == f"first of {NAMES[source]}".encode()
        ours = [record for record in self.caplog.records if record.name.startswith("onoff")]  # numba's threads log too
        self.logged += [(record.levelname, record.getMessage()) for record in ours]
        self.sizes.append(sorted((path.name, path.stat().st_size) for path in self.folder.iterdir()))
        return message.sent

    def row(self):
        self.client.close()
        with sqlite3.connect(self.folder / "journal") as database:
            database.row_factory = sqlite3.Row
            row = dict(database.execute("SELECT * FROM request").fetchone())
        database.close()
        return row

    def traffic(self):
        host = self.server.url.removeprefix("http://").encode()
        return [raw.replace(host, b"host") for raw in self.server.raw]


def twin_runs(tmp_path, caplog, seed, length):
    """How many steps wanted different sources; everything visible was equal."""
    caplog.set_level(logging.DEBUG)
    rng = random.Random(seed)
    runs = []
    for name in ("one", "two"):
        (tmp_path / f"{name}-{seed}").mkdir()
        runs.append(Run(tmp_path / f"{name}-{seed}", caplog))
    first, second = runs
    different = 0
    for t in range(length):
        private = t < 2 or rng.random() < 0.2
        failures = rng.choice([0, 0, 0, 1, 2])
        if t == 0:  # no journal yet: everything, whoever is wanted
            choices = [(source, None) for source in range(CHAIN.n)]
            (one, _), (two, _) = rng.sample(choices, 2)
            sent = first.get(one, None, private, failures)
            again = second.get(two, None, private, failures)
        else:
            one = rng.randrange(CHAIN.n)
            options = [i for i in range(40) if _possible(first.client, one, i, private)]
            sent = first.get(one, rng.choice(options) if options else None, private, failures)
            candidates = ways(second.client, sent.sources, private)
            others = [way for way in candidates if way[0] != one] or candidates
            two, choice = rng.choice(others)
            again = second.get(two, choice, private, failures)
        different += one != two
        assert sent == again
    assert first.traffic() == second.traffic()
    assert first.logged == second.logged
    assert first.sizes == second.sizes
    one, two = first.row(), second.row()
    one["server"] = two["server"] = None  # the port
    assert {column for column in one if one[column] != two[column]} <= SECRET_COLUMNS
    for run in runs:
        run.server.close()
    return different


def _possible(client, source, choice, private):
    if private:
        return False
    try:
        client.core.session.fork(ScriptedEntropy([choice])).propose(source, private=False)
    except (ValueError, OnOffError):
        return False
    return True


@pytest.mark.parametrize("seed", range(6))
def test_twins_cannot_be_told_apart(quick_folder, caplog, seed):
    assert twin_runs(quick_folder, caplog, seed, 15) >= 3


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_a_thousand_twins_cannot_be_told_apart(quick_folder, caplog):
    different = 0
    for number in range(1, 1001):
        different += twin_runs(quick_folder, caplog, 99 + number, 15)
        progress(number, 1000, "twins")
    assert different >= 3000
