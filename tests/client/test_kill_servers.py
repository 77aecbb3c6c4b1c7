"""kill -9 at every system call of a request to two servers: one vector for each server and step, stored before sent.

After each kill one restart makes another request of both servers, or repeats the last one with the same bytes.
"""

import shutil

import pytest
from tests.support.clients import Client
from tests.support.killing import telling_kills
from tests.support.marks import KILLED_AT_EVERY_CALL
from tests.support.world import NAMES, P4, World, has_heard, listening

import onoff
from onoff import wire
from onoff.session.session import TableCache

pytestmark = KILLED_AT_EVERY_CALL
CHAIN = onoff.MarkovChain(P4, names=NAMES)
TABLES = TableCache(CHAIN, "greedy")
"""Built once for all clients of this process."""


class Scene:
    """A user of two servers."""

    def __init__(self, folder, urls, worlds):
        self.folder, self.urls, self.worlds = folder, urls, worlds
        self.journal, self.chain = folder / "user" / "journal", folder / "chain.json"
        CHAIN.save(self.chain)

    def client(self):
        return Client(self.urls, CHAIN, self.journal, scheme=TABLES, tick=0, attempts=1, background=False)

    def set(self, kind):
        shutil.rmtree(self.journal.parent, ignore_errors=True)
        self.journal.parent.mkdir()
        job = {"url": self.urls, "chain": str(self.chain), "journal": str(self.journal), "get": "gamma"}
        if kind != "first":
            with self.client() as client:
                client.get("gamma", private=True)
        return {**job, "private": kind != "off"}


@pytest.fixture
def scene(quick_folder):
    journal = quick_folder / "user" / "journal"
    worlds = [World(frame_size=None, journal=journal) for _ in range(2)]
    with listening(worlds[0]) as first, listening(worlds[1]) as second:
        yield Scene(quick_folder, [first.url, second.url], worlds)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["off", "first", "on"])
def test_killed_at_every_call(scene, killer, kind):
    kills = repeated = 0
    while True:
        run, again = kill(scene, killer, kind, kills + 1, repeat=kind != "first" and kills % 2)
        repeated += again
        if not run["killed"]:
            break
        kills += 1
    assert run["result"]["message"] == "first of gamma"
    assert kills == len(run["calls"]) >= 60
    assert repeated > 5 or kind == "first"
    first_is_asked_first(scene)


def test_killed_wherever_it_leaves_something_else_behind(scene, killer):
    """At every call before which files or servers are not as they were before the call before."""
    whole, _ = kill(scene, killer, "off", None, repeat=False)
    assert whole["result"]["message"] == "first of gamma"
    runs = [kill(scene, killer, "off", k, repeat=k % 2) for k in telling_kills(whole["calls"])]
    assert sum(run["killed"] for run, _ in runs) >= 30
    assert sum(again for _, again in runs) > 5
    first_is_asked_first(scene)


def kill(scene, killer, kind, at, *, repeat):
    """The run, and whether the restart after it repeated what was under way: a session that nobody knows is not."""
    run = killer.run(scene.set(kind), kill_at=at)
    for url in scene.urls:
        has_heard(url)
    with scene.client() as client:
        again = bool(repeat and client.pending)
        if again:
            assert client.retry() == b"first of gamma"
        assert client.get("beta", private=False) == b"first of beta"
    for world in scene.worlds:
        world.check()
    assert run["result"] is None or run["result"]["message"] == "first of gamma"
    return run, again


def first_is_asked_first(scene):
    steps = [{wire.decode_sum_head(query)[1:3] for query in world.queries} for world in scene.worlds]
    assert steps[0] >= steps[1]  # the first is asked first, and a kill may come between
