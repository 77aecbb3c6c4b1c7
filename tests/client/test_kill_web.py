"""kill -9, a full disk and errors at the system calls of a client of ordinary sites.

Always: nothing is asked for that is not on disk; what was handed over is remembered, and hidden by the next open
request; after a restart all of the set is asked for again, in order; one restart brings everything back.
"""

import shutil
from contextlib import contextmanager

import pytest
from tests.support.killing import LEAVING, WRITING, failing_writes
from tests.support.marks import KILLED_AT_EVERY_CALL
from tests.support.website import Answer, website
from tests.support.world import NAMES, P4

import onoff
from onoff.client import Hooks, Journal
from onoff.session.session import TableCache

pytestmark = KILLED_AT_EVERY_CALL
CHAIN = onoff.MarkovChain(P4, names=NAMES)
TABLES = TableCache(CHAIN, "greedy")
"""Built once for all clients of this process."""
WANTED = "gamma"  # the request before is for beta, so that a stale row shows


class Scene:
    """A user of a site, brought into one of the situations."""

    def __init__(self, folder, site):
        self.folder, self.site = folder, site
        self.user, self.shown = folder / "user", folder / "shown"
        self.journal, self.chain, self.list = self.user / "journal", folder / "chain.json", folder / "list.toml"
        CHAIN.save(self.chain)
        listed = "".join(f'[sources.{name}]\nid = "{name}"\n' for name in NAMES)
        self.list.write_text(f'[upstream]\nurl = "{site.url}/{{id}}"\nbudget = "1000000/min"\n{listed}')

    @contextmanager
    def client(self):
        web = onoff.Web.load(self.list)
        with onoff.Client(web, CHAIN, self.journal, scheme=TABLES, hooks=Hooks(tick=0, background=False)) as client:
            yield client

    def publish(self, edition):
        for name in NAMES:
            body = f"{name} {edition}".encode()

            def answer(headers, times, body=body):
                tag = f'"{body.decode()}"'
                same = headers.get("if-none-match") == tag
                return Answer(b"" if same else body, 304 if same else 200, {"etag": tag})

            self.site.answers[f"/{name}"] = answer
        self.edition = edition

    def set(self, kind):
        """Everything that happened before; the job to be done then."""
        shutil.rmtree(self.user, ignore_errors=True)
        self.shown.unlink(missing_ok=True)
        self.user.mkdir()
        self.publish("first")
        if kind != "first":
            with self.client() as client:
                client.get("beta", private=False)
                client.get("beta", private=True)
        self.publish("latest")
        self.site.log.clear()
        job = {"list": str(self.list), "chain": str(self.chain), "journal": str(self.journal), "now": 2e9, "seed": 1}
        return {**job, "shown": str(self.shown), "get": WANTED, "private": kind != "off"}


@pytest.fixture
def scene(quick_folder):
    with website() as site:
        yield Scene(quick_folder, site)


def judge(scene, kind):
    """After the fault: what was asked for is on disk, what was handed over is remembered; one restart is enough."""
    shown = scene.shown.read_text() if scene.shown.exists() else ""
    asked = [target.removeprefix("/") for target in scene.site.targets]
    assert shown in {"", f"{WANTED} latest"}
    if scene.journal.exists() and (asked or shown):
        journal = Journal(scene.journal)
        journal.close()
        found = journal.found
        assert found is not None
        assert (CHAIN.names[found.wanted], found.private) == (WANTED, kind != "off")
    scene.site.log.clear()
    with scene.client() as client:
        core = client.core
        if asked or shown:
            assert core.doubt is None
            whole = [NAMES[x] for x in core.sent(core.record).sources]
            assert [name for name in whole if name in asked] == asked  # in order, and nothing beside the set
        if client.pending and core.doubt is None and core.record.wanted == CHAIN.index(WANTED):
            whole = list(NAMES) if core.record.mirror else whole_of(core)
            assert client.retry() == f"{WANTED} latest".encode()
            assert scene.site.targets == [f"/{name}" for name in whole]  # all of it again
        assert client.get("delta", private=False) == b"delta latest"
        assert client.get(WANTED, private=True) == f"{WANTED} latest".encode()
        assert [client.copy(name).payload for name in NAMES] == [f"{name} latest".encode() for name in NAMES]
    return shown


def whole_of(core):
    return [NAMES[x] for x in core.sent(core.record).sources]


@pytest.mark.parametrize("kind", ["get", "off", pytest.param("first", marks=pytest.mark.deep)])
def test_killed_before_everything_that_leaves_it(scene, killer, kind):
    kills = shown = 0
    while True:
        run = killer.run(scene.set(kind), kill_before=kills + 1)
        shown += bool(judge(scene, kind))
        if not run["killed"]:
            break
        kills += 1
    assert run["result"]["message"] == f"{WANTED} latest"
    assert kills == sum(name in LEAVING for name, _ in run["calls"]) >= 25
    assert shown > 1  # some were killed after the message was handed over


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["get", "off", "first"])
def test_killed_at_every_call(scene, killer, kind):
    kills = shown = 0
    while True:
        run = killer.run(scene.set(kind), kill_at=kills + 1)
        shown += bool(judge(scene, kind))
        if not run["killed"]:
            break
        kills += 1
    assert kills == len(run["calls"]) >= 60
    assert shown > 1


@pytest.mark.parametrize(("kind", "error", "for_ever"), failing_writes("get", "off"))
def test_a_write_that_fails_shows_nothing_that_is_not_remembered(scene, killer, kind, error, for_ever):
    refused = k = 0
    while True:
        k += 1
        run = killer.run(scene.set(kind), fail_at=k, error=error, for_ever=for_ever)
        if "error" in run["result"]:
            refused += 1
            assert run["result"]["error"] in {"JournalWriteFailed", "MirrorError"}
            assert not scene.shown.exists()
        judge(scene, kind)
        if sum(name in WRITING and target not in {"socket", "query"} for name, target in run["calls"]) < k:
            break
    assert refused >= 3
