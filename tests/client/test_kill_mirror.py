"""kill -9, a full disk and errors at every system call of a refresh, a read of the mirror, and the open request after.

Always: a message that was handed over is remembered, so that the next open query is drawn from its row; what is read
is what the server had; one byte string per (session, step), on disk before it is sent; one restart brings all back.
"""

import shutil

import pytest
from tests.support.clients import Client
from tests.support.killing import WRITING, failing_writes, telling_kills
from tests.support.marks import KILLED_AT_EVERY_CALL
from tests.support.world import NAMES, P4, World, has_heard, listening

import onoff
from onoff.client import Journal, Mirror
from onoff.errors import MirrorError
from onoff.session.session import TableCache

pytestmark = KILLED_AT_EVERY_CALL
CHAIN = onoff.MarkovChain(P4, names=NAMES)
TABLES = TableCache(CHAIN, "greedy")
"""Built once for all clients of this process."""
EVERYTHING = (0, 1, 2, 3)
WANTED = 2  # gamma; the request before is for beta, so that a stale row shows
KINDS = ("first refresh", "refresh", "read", "get", "first get", "retry", "off")


class Scene:
    """A user with a journal and a mirror, brought into one of the situations."""

    def __init__(self, folder, url, world):
        self.folder, self.url, self.world = folder, url, world
        self.user = folder / "user"
        self.journal, self.mirror = self.user / "journal", self.user / "journal.mirror"
        self.chain, self.shown = folder / "chain.json", folder / "shown"
        CHAIN.save(self.chain)

    def client(self, **options):
        settings = {"tick": 0, "attempts": 1, "background": False, **options}
        return Client(self.url, CHAIN, self.journal, scheme=TABLES, **settings)

    def set(self, kind):
        """Everything that happened before; the job to be done then."""
        shutil.rmtree(self.user, ignore_errors=True)
        self.shown.unlink(missing_ok=True)
        self.user.mkdir()
        job = {"url": self.url, "chain": str(self.chain), "journal": str(self.journal), "mirror": str(self.mirror)}
        job["shown"] = str(self.shown)
        if kind == "first refresh":
            return {**job, "refresh": True}
        if kind == "first get":
            return {**job, "get": "gamma", "private": True}
        with self.client() as client:
            client.get("beta", private=False)
            client.get("beta", private=True)
            if kind == "off":
                client.read("gamma")
        self.world.publish("gamma", b"latest of gamma")
        if kind == "retry":
            self.world.tells_changes = None
            with self.client() as client, pytest.raises(onoff.OnOffError):
                client.get("gamma", private=True)
            self.world.tells_changes = True
            return {**job, "retry": True}
        return {
            "refresh": {**job, "refresh": True},
            "read": {**job, "read": "gamma"},
            "get": {**job, "get": "gamma", "private": True},
            "off": {**job, "get": "gamma", "private": False},
        }[kind]

    def right(self, kind, text):
        """Whether this is what gamma said, then or now."""
        return text in {"first of gamma", "latest of gamma"} if kind == "read" else text == self.latest

    @property
    def latest(self):
        return self.world.messages["gamma"].body.decode()


class Moody(World):
    """A world that refuses changes where `tells_changes` is None."""

    def answer(self, method, path, headers, body):
        if self.tells_changes is None and path.startswith("/v1/changes"):
            from onoff.upstream.transport import Reply

            return Reply(503, (), b"")
        return super().answer(method, path, headers, body)


@pytest.fixture
def scene(quick_folder):
    world = Moody(journal=quick_folder / "user" / "journal")
    with listening(world) as server:
        yield Scene(quick_folder, server.url, world)


def judge(scene, kind):
    """After the fault: what was handed over is remembered; one restart reads and asks as if nothing had happened."""
    has_heard(scene.url)
    shown = scene.shown.read_text() if scene.shown.exists() else ""
    if scene.journal.exists():
        journal = Journal(scene.journal)
        journal.close()
        found = journal.found
        if shown and kind != "off":
            assert scene.right(kind, shown)
            assert found is not None
            assert (found.wanted, found.private, found.mirror) == (WANTED, True, True)
    before = len(scene.world.queries)
    with scene.client() as client:
        core = client.core
        if core.record is not None and core.doubt is None:  # drawn from the row of what was wanted last
            assert core.session.memory.secret == core.record.wanted
            assert core.record.wanted in core.session.memory.last
            assert not core.record.mirror or core.session.memory.last == EVERYTHING
        message = client.get("delta", private=False)
        assert message == scene.world.messages["delta"].body
        assert len(scene.world.queries) == before + 1
        assert client.get("gamma", private=True) == scene.latest.encode()
        assert [client.copy(name).payload for name in NAMES] == [scene.world.messages[name].body for name in NAMES]
    scene.world.check()
    return shown


IN_EVERY_RUN = ("read",)
"""The others take minutes and run in `make test-deep`."""


@pytest.mark.parametrize(
    "kind", [kind if kind in IN_EVERY_RUN else pytest.param(kind, marks=pytest.mark.deep) for kind in KINDS]
)
def test_killed_at_every_call(scene, killer, kind):
    kills = shown = 0
    while True:
        run = killer.run(scene.set(kind), kill_at=kills + 1)
        shown += bool(judge(scene, kind))
        if not run["killed"]:
            break
        kills += 1
    if "refresh" in kind:
        assert run["result"]["changed"] == (list(NAMES) if kind == "first refresh" else ["gamma"])
    else:
        assert scene.right(kind, run["result"]["message"])
        assert shown > 1  # some were killed after the message was handed over
    assert kills == len(run["calls"]) >= 40


@pytest.mark.parametrize("kind", ["get", "off"])
def test_killed_wherever_it_leaves_something_else_behind(scene, killer, kind):
    """At every call before which files or server are not as they were before the call before."""
    whole = killer.run(scene.set(kind))
    assert scene.right(kind, whole["result"]["message"])
    assert judge(scene, kind)
    kills = shown = 0
    for k in telling_kills(whole["calls"]):
        kills += killer.run(scene.set(kind), kill_at=k)["killed"]
        shown += bool(judge(scene, kind))
    assert kills >= 20
    assert shown > 1  # some were killed after the message was handed over


def test_what_was_read_is_synced_before_it_is_handed_over(scene, killer):
    calls = killer.run(scene.set("read"))["calls"]
    written = max(at for at, call in enumerate(calls) if call == ["pwrite64", "/journal-wal"])
    assert any(name in {"fsync", "fdatasync"} and target == "/journal-wal" for name, target in calls[written:])
    assert not any(target in {"socket", "query"} for _, target in calls)  # reading asks nobody


@pytest.mark.parametrize(("kind", "error", "for_ever"), failing_writes("refresh", "get", "read", "off"))
def test_a_write_that_fails_shows_nothing_that_is_not_remembered(scene, killer, kind, error, for_ever):
    refused = k = 0
    while True:
        k += 1
        before = len(scene.world.queries)
        job = scene.set(kind)
        asked = len(scene.world.queries)
        run = killer.run(job, fail_at=k, error=error, for_ever=for_ever)
        if "error" in run["result"]:
            refused += 1
            assert run["result"]["error"] in {"JournalWriteFailed", "MirrorError"}
            assert not scene.shown.exists()
            assert len(scene.world.queries) == asked
        elif kind != "refresh":
            assert scene.right(kind, run["result"]["message"])
        judge(scene, kind)
        if sum(name in WRITING and target not in {"socket", "query"} for name, target in run["calls"]) < k:
            break
        assert len(scene.world.queries) > before
    assert refused >= 3


def test_a_mirror_that_may_not_grow_is_an_error_and_stays_as_it_was(scene, killer):
    job = scene.set("refresh")
    scene.world.publish("alpha", b"x" * 100)
    run = killer.run({**job, "largest_file": 4096})
    assert run["result"]["error"] == "MirrorError"
    mirror = Mirror(scene.mirror)
    assert mirror.message("alpha")[0].body == b"first of alpha"
    mirror.close()
    judge(scene, "refresh")


def test_a_damaged_mirror_is_fetched_again_by_one_restart(scene):
    scene.set("read")
    with scene.mirror.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xff" * 512)
    with pytest.raises(MirrorError, match="damaged"):
        Mirror(scene.mirror, repair=False)
    judge(scene, "read")
