"""kill -9 at every system call that touches the journal or a socket; the judge is the server's record.

A child process makes one request and is killed at the k-th such call, k = 1, 2, ... until a run passes; or, for most
situations outside of `make test-deep`, without those k that leave behind what k - 1 did. After each kill one restart
makes another request. Always: one byte string per (session, step); what came over the wire was on disk before; what is
delivered is right; at most one full fetch brings the client back.

The request before is for the same source, so that a query drawn twice differs about every other time (after a request
for alpha, gamma is always asked alone, and a second draw would go unnoticed).
"""

import random
import shutil

import pytest
from tests.support.chains import request_model
from tests.support.clients import Client
from tests.support.killing import WRITING, failing_writes, telling_kills
from tests.support.marks import KILLED_AT_EVERY_CALL
from tests.support.progress import progress
from tests.support.world import NAMES, P4, World, has_heard, listening

import onoff
from onoff import wire
from onoff.client import Journal
from onoff.session.session import TableCache

pytestmark = KILLED_AT_EVERY_CALL
CHAIN = onoff.MarkovChain(P4, names=NAMES)
MODEL = request_model(P4, NAMES)
TABLES = {model: TableCache(model, "greedy") for model in (CHAIN, MODEL)}
"""Built once for all clients of this process."""
KINDS = ("first", "on", "off", "retry", "rolled back", "damaged", "new epoch")
KILLS_OF_A_ROUND = 300
"""At least so many system calls count in one run of each kind."""


class Scene:
    """A user with a journal and a server, brought into one of the situations."""

    def __init__(self, folder, url, world, model=CHAIN, leak=0.0):
        self.leak, self.begun = leak, -1  # how many queries were heard before the fault, where that is known
        self.folder, self.url, self.world, self.model = folder, url, world, model
        self.journal = folder / "user" / "journal"
        self.chain = folder / "chain.json"
        model.save(self.chain)

    def client(self, **options):
        settings = {"tick": 0, "attempts": 1, "background": False, "mirror": False, **options}
        settings["leak"] = self.leak
        return Client(self.url, self.model, self.journal, scheme=TABLES[self.model], **settings)

    def set(self, kind):
        """Everything that happened before the request of this kind; the job to be done then."""
        shutil.rmtree(self.journal.parent, ignore_errors=True)
        self.journal.parent.mkdir()
        self.world.rename(NAMES)
        job = {
            "url": self.url,
            "chain": str(self.chain),
            "journal": str(self.journal),
            "get": "gamma",
            "private": False,
            "leak": self.leak,
        }
        if kind == "first":
            return {**job, "private": True}
        with self.client() as client:
            client.get("gamma", private=True)
            if kind == "rolled back":
                client.close()
                older = self.journal.read_bytes()
        if kind == "rolled back":
            with self.client() as client:
                client.get("beta", private=False)
            self.journal.write_bytes(older)
        elif kind == "damaged":
            with self.journal.open("r+b") as file:
                file.seek(4096)
                file.write(b"\xff" * 64)
        elif kind == "new epoch":
            self.world.rename(("zeta", *reversed(NAMES)))
        elif kind == "retry":
            self.world.mute = True
            with self.client() as client, pytest.raises(onoff.OnOffError):
                client.get("gamma", private=False)
            self.world.mute = False
            del job["get"]
            return {**job, "retry": True}
        return {**job, "private": kind == "on"}


class MutableWorld(World):
    """A world that can refuse to answer, having seen."""

    mute = False

    def answer(self, method, path, headers, body):
        reply = super().answer(method, path, headers, body)
        return self._problem(wire.Problem(503, "later")) if self.mute and path == wire.QUERY_PATH else reply


@pytest.fixture
def scene(quick_folder):
    world = MutableWorld(journal=quick_folder / "user" / "journal")
    with listening(world) as server:
        yield Scene(quick_folder, server.url, world)


@pytest.fixture
def scene_with_a_model(quick_folder):
    world = MutableWorld(journal=quick_folder / "user" / "journal")
    with listening(world) as server:
        yield Scene(quick_folder, server.url, world, MODEL)


def judge(scene):
    """One restart after the fault, by a client in this process: one query, and the right message."""
    has_heard(scene.url)
    before = len(scene.world.queries)
    with scene.client() as client:
        assert client.spent <= scene.leak
        left = may_spend(client)
        if before == scene.begun + 1 and scene.leak and scene.kind == "off":
            assert not left  # what may have told something has left: it is spent
        message = client.get("beta", private=False)
        if scene.leak:
            assert client.spent <= scene.leak
            assert not may_spend(client)
    assert message == b"first of beta"
    assert len(scene.world.queries) == before + 1
    scene.world.check()
    for (_, step), (query,) in scene.world.byte_strings().items():  # every session begins with everything
        if step == 0 and wire.decode_query_head(query).epoch == scene.world.catalogue.epoch:
            assert set(scene.world.asked(query)) == set(NAMES)


def may_spend(client):
    """Whether the next open request may tell something."""
    core = client.core
    return core.doubt is None and getattr(core.session.memory, "limit", None) is not None


def right(result):
    return result["message"] == "first of gamma"


@pytest.mark.parametrize(
    "kind", [kind if kind == "off" else pytest.param(kind, marks=pytest.mark.deep) for kind in KINDS]
)
def test_killed_at_every_call(scene, killer, kind):
    kill_at_every_call(scene, killer, kind)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "off"])
def test_killed_wherever_it_leaves_something_else_behind(scene, killer, kind):
    """At every call before which files or server are not as they were before the call before."""
    kill_wherever_it_leaves_something_else_behind(scene, killer, kind)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["off", "first", "on", "retry", "rolled back"])
def test_killed_at_every_call_with_a_model(scene_with_a_model, killer, kind):
    """What a filter remembers is in the journal as well: 12 bytes for each entry of its beliefs, compressed."""
    kill_at_every_call(scene_with_a_model, killer, kind)


def test_killed_wherever_it_leaves_something_else_behind_with_a_model(scene_with_a_model, killer):
    kill_wherever_it_leaves_something_else_behind(scene_with_a_model, killer, "off")


@pytest.fixture
def scene_with_a_budget(quick_folder):
    world = MutableWorld(journal=quick_folder / "user" / "journal")
    with listening(world) as server:
        yield Scene(quick_folder, server.url, world, leak=0.5)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["off", "first", "on", "retry", "rolled back"])
def test_killed_at_every_call_with_a_budget(scene_with_a_budget, killer, kind):
    """It is never spent twice and never renewed: what left is on the odometer, and after a loss all of it is."""
    kill_at_every_call(scene_with_a_budget, killer, kind)


@pytest.mark.parametrize("kind", ["off", "rolled back"])
def test_killed_wherever_it_leaves_something_else_behind_with_a_budget(scene_with_a_budget, killer, kind):
    kill_wherever_it_leaves_something_else_behind(scene_with_a_budget, killer, kind)


def kill_wherever_it_leaves_something_else_behind(scene, killer, kind):
    run = kill(scene, killer, kind, None)
    assert right(run["result"])
    assert synced_before_sent(run["calls"])
    assert sum(kill(scene, killer, kind, k)["killed"] for k in telling_kills(run["calls"])) >= 20


def kill(scene, killer, kind, at):
    job = scene.set(kind)
    before = scene.begun = len(scene.world.queries)
    scene.kind = kind
    run = killer.run(job, kill_at=at)
    if kind == "retry":
        assert set(scene.world.queries[before:]) <= {scene.world.queries[before - 1]}
    judge(scene)
    assert run["result"] is None or right(run["result"])
    return run


def kill_at_every_call(scene, killer, kind):
    kills = 0
    while (run := kill(scene, killer, kind, kills + 1))["killed"]:
        kills += 1
    assert right(run["result"])
    assert kills == len(run["calls"]) >= 40
    assert synced_before_sent(run["calls"])


def synced_before_sent(calls):
    """Every write to the journal was synced before a query left."""
    unsynced, sent = set(), 0
    for name, target in calls:
        if name == "pwrite64":
            unsynced.add(target)
        elif name in {"fsync", "fdatasync"}:
            unsynced.discard(target)
        elif target == "query":
            sent += 1
            if unsynced:
                return False
    return sent > 0


def test_a_round_of_kills_has_its_size(scene, killer):
    assert sum(len(killer.run(scene.set(kind))["calls"]) for kind in KINDS) >= KILLS_OF_A_ROUND


def test_killed_with_the_thread_that_flushes(scene, killer):
    for k in range(1, 100, 3):
        job = {**scene.set("off"), "background": True}
        run = killer.run(job, kill_at=k)
        assert run["result"] is None or right(run["result"])
        judge(scene)


@pytest.mark.parametrize(("kind", "error", "for_ever"), failing_writes("first", "off"))
def test_a_write_that_fails_sends_nothing(scene, killer, kind, error, for_ever):
    """At every call that writes: a named error and not one query, or the right message; the journal is as it was."""
    refused = k = 0
    while True:
        k += 1
        job = scene.set(kind)
        found = found_in(scene.journal)
        before = len(scene.world.queries)
        run = killer.run(job, fail_at=k, error=error, for_ever=for_ever)
        sent = len(scene.world.queries) - before
        if "error" in run["result"]:
            refused += 1
            assert run["result"]["error"] == "JournalWriteFailed"
            assert sent == 0
            if not for_ever:  # a disk that stays broken may keep what it said it could not write: that counts as sent
                assert found_in(scene.journal) == found
        else:
            assert right(run["result"])
            assert sent == 1
        judge(scene)
        if sum(name in WRITING and target not in {"socket", "query"} for name, target in run["calls"]) < k:
            break
    assert refused >= 3
    assert "message" in run["result"]


def found_in(journal):
    if not journal.exists():
        return None
    opened = Journal(journal)
    opened.close()
    return opened.found


def test_a_file_that_may_not_grow_sends_nothing(scene, killer):
    job = scene.set("off")
    found = found_in(scene.journal)
    before = len(scene.world.queries)
    run = killer.run({**job, "largest_file": 4096})
    assert run["result"]["error"] == "JournalWriteFailed"
    assert "nothing was sent" in run["result"]["text"]
    assert len(scene.world.queries) == before
    assert found_in(scene.journal) == found
    judge(scene)


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_killed_ten_thousand_times(scene, killer):
    """Kills in runs of every kind, then again during the restart, and with the thread of its own."""
    rng = random.Random(5)
    kills = 0
    while kills < 10_000:
        kind = rng.choice(KINDS)
        job = {**scene.set(kind), "background": rng.random() < 0.5, "scheme": rng.choice(["single", "greedy"])}
        run = killer.run(job, kill_at=rng.randrange(1, 90))
        assert run["result"] is None or right(run["result"])
        kills += run["killed"]
        again = {**job, "get": rng.choice(NAMES), "private": rng.random() < 0.3}
        again.pop("retry", None)
        while rng.random() < 0.6:
            run = killer.run(again, kill_at=rng.randrange(1, 90))
            kills += run["killed"]
            assert run["result"] is None or run["result"]["message"] == f"first of {again['get']}"
        judge(scene)
        progress(kills, 10_000, "kills")
        scene.world.forget_records()  # the next scene is of another user
