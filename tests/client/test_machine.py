"""A machine of requests and misfortunes, with the server's record as the judge of every step.

Requests ON and OFF, lost requests and answers, duplicates, crashes around the send, restarts, journals restored from
backups, copied, moved away and back, a second process, new catalogues, new messages, in any order that hypothesis
thinks of.
"""

import contextlib
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.chains import request_model
from tests.support.clients import Client
from tests.support.world import Direct, World

import onoff
from onoff import wire
from onoff.errors import BadAnswer, JournalBusy, OnOffError, ServerUnreachable
from onoff.session.session import TableCache
from onoff.upstream.transport import Reply

pytestmark = pytest.mark.slow(reason="whole clients and servers are driven, and killed")

NAMES = ("a", "b", "c")
CHAINS = {
    "dense": [[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]],
    "zeros": [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]],
}
FAULTS = ["none"] * 4 + ["before", "after", "busy", "damaged", "crash before", "crash after"]


RARE = ("second process", "duplicate", "new epoch", "no journal", "moved away", "moved back", "server forgets")


@cache
def tables_of(chain, scheme):
    """Tables hold what is public alone and are the same in every life, so they are built in one of them."""
    if chain == "model":
        return TableCache(request_model(CHAINS["dense"], NAMES), scheme)
    return TableCache(onoff.MarkovChain(CHAINS[chain], names=NAMES), scheme)


class Crash(BaseException):
    """The process ends here."""


class Misfortunes(RuleBasedStateMachine):
    """One user, one journal, one server."""

    chain_name = "dense"
    scheme = "single"

    @initialize()
    def begin(self):
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="onoff-", dir=memory if memory.exists() else None))
        self.journal = self.folder / "journal"
        self.world = World(NAMES, journal=self.journal)
        self.tables = tables_of(self.chain_name, self.scheme)
        self.backups = []
        self.fault = "none"
        self.photo = None
        self.judged = 0
        self.latest = {}
        self.sessions = [None]
        self.client = self.new_client()

    def teardown(self):
        if hasattr(self, "client"):
            self.client.close()
            shutil.rmtree(self.folder)

    def new_client(self):
        options = {"tick": 0, "background": False, "attempts": 2, "sleep": lambda seconds: None, "mirror": False}
        transport = Direct(self.world, self.misfortune)
        chain, tables = self.tables.model, self.tables
        return Client("http://server.test", chain, self.journal, scheme=tables, transport=transport, **options)

    # -- the line ------------------------------------------------------------------------------------------

    def misfortune(self, request):
        if request.path != wire.QUERY_PATH:
            return None
        if self.fault.startswith("crash"):
            self.photo = self.files()
            if self.fault == "crash after":
                self.world.answer(request.method, request.path, request.headers, request.body)
            raise Crash
        if self.fault == "busy":
            return Reply(503, (), b"")
        if self.fault == "damaged":
            return Reply(200, wire.ANSWER_HEADERS, b"\0" * 256)
        return self.fault if self.fault in {"before", "after"} else None

    def files(self):
        paths = (self.journal, self.journal.with_name("journal-wal"))
        return {path: path.read_bytes() for path in paths if path.exists()}

    def put_back(self, files):
        self.journal.with_name("journal-wal").unlink(missing_ok=True)
        for path, content in files.items():
            path.write_bytes(content)

    # -- what happens --------------------------------------------------------------------------------------

    @rule(source=st.sampled_from(NAMES))
    def ask_openly(self, source):
        self.attempt(lambda: self.client.get(source, private=False), "none", source, False)

    @rule(source=st.sampled_from(NAMES))
    def ask_privately(self, source):
        self.attempt(lambda: self.client.get(source, private=True), "none", source, True)

    @rule(source=st.sampled_from(NAMES), private=st.booleans(), fault=st.sampled_from(FAULTS))
    def ask_over_a_bad_line(self, source, private, fault):
        self.attempt(lambda: self.client.get(source, private=private), fault, source, private)

    @rule(fault=st.sampled_from(("none", *FAULTS)))
    def retry(self, fault):
        self.attempt(lambda: self.client.retry(), fault, None, None)

    def attempt(self, act, fault, source, private):
        self.fault = fault
        before = len(self.world.queries)
        try:
            message = act()
        except Crash:
            self.client.close()
            self.put_back(self.photo)  # what the crash left, not what closing made of it
            self.client = self.new_client()
        except (ServerUnreachable, BadAnswer):
            assert fault != "none"
        except OnOffError:
            assert source is None  # nothing is waiting, or it cannot be repeated
        else:
            assert message == self.world.messages[message.source].body
            assert source is None or message.source == source
        finally:
            self.fault = "none"
        if source is not None:
            for query in self.world.queries[before:]:
                if wire.decode_query_head(query).epoch == self.world.catalogue.epoch:
                    assert source in self.world.asked(query)
                    if private and self.chain_name != "zeros":
                        assert set(self.world.asked(query)) >= set(NAMES)

    @rule(crash=st.booleans())
    def restart(self, crash):
        self.backups.append(self.files())
        self.client.close()
        if crash:
            self.put_back(self.backups[-1])
        self.client = self.new_client()

    @precondition(lambda self: self.backups)
    @rule(age=st.integers(1, 3), copied=st.booleans())
    def restore(self, age, copied):
        """An older journal, in the same file or as a copy of it."""
        self.client.close()
        if copied:
            self.journal.unlink(missing_ok=True)
        self.put_back(self.backups[-min(age, len(self.backups))])
        self.client = self.new_client()

    @rule(name=st.sampled_from(NAMES), body=st.binary(max_size=20))
    def publish(self, name, body):
        self.world.publish(name, body)

    @rule(what=st.sampled_from(RARE))
    def something_rare(self, what):
        match what:
            case "second process":
                self.client.status()  # opens the journal
                with contextlib.closing(self.new_client()) as second, pytest.raises(JournalBusy):
                    second.get("a", private=True)
            case "duplicate" if self.world.queries:
                self.world.answer("POST", wire.QUERY_PATH, (), self.world.queries[-1])
            case "new epoch":
                names = self.world.catalogue.names
                self.world.rename((*names[1:], names[0]) if "more" in names else (*names, "more"))
            case "no journal":
                self.client.close()
                self.put_back({})
                self.journal.unlink(missing_ok=True)
                self.client = self.new_client()
            case "moved away" if self.journal.exists():
                self.client.close()
                self.journal.rename(self.folder / "away")
                self.client = self.new_client()
            case "moved back" if (self.folder / "away").exists():
                self.client.close()
                (self.folder / "away").replace(self.journal)
                self.client = self.new_client()
            case "server forgets":  # an old journal and a server without memory at once is more than can be noticed
                self.world.seen.clear()
                self.backups.clear()

    # -- what must hold ------------------------------------------------------------------------------------

    @invariant()
    def one_byte_string_per_step_and_everything_first(self):
        if not hasattr(self, "world"):
            return
        for query in self.world.queries[self.judged :]:
            head = wire.decode_query_head(query)
            key = (head.session, head.step)
            if key not in self.latest and head.session != self.sessions[-1]:
                assert head.session not in self.sessions  # one that was left never comes back
                self.sessions.append(head.session)
            assert self.latest.setdefault(key, query) == query
            if head.step == 0:
                bitmap = query[wire.QUERY_HEAD_BYTES :]
                assert sum(byte.bit_count() for byte in bitmap) >= len(NAMES)
        self.judged = len(self.world.queries)
        assert self.world.not_durable == []

    @invariant()
    def the_memory_is_what_is_stored(self):
        opened = self.client._runner.opened if hasattr(self, "client") else None
        if opened is None or opened[0].record is None or opened[0].doubt is not None:
            return
        core = opened[0]
        asked, memory = wire.decode_bitmap(core.record.asked, len(NAMES)), core.session.memory
        if self.chain_name == "model":
            stored = memory.restored(asked, core.record.wanted, core.record.memory)
            assert (stored.key, stored.secret_row, stored.rounding) == (memory.key, memory.secret_row, memory.rounding)
            assert stored.blind == memory.blind
            assert not core.record.private or memory.us[memory.secret_row][-1] == core.record.wanted
            return
        assert memory.last == asked
        assert memory.secret == core.record.wanted


def machine(chain, scheme, examples, *, random=False):
    kind: Any = type(f"Misfortunes_{chain}_{scheme}", (Misfortunes,), {"chain_name": chain, "scheme": scheme})
    case = kind.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        derandomize=not random,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


MISFORTUNES = "40 lives of 50 misfortunes each"
TestDenseSingle = pytest.mark.slow(reason=MISFORTUNES)(machine("dense", "single", 40))
TestDenseGreedy = pytest.mark.slow(reason=MISFORTUNES)(machine("dense", "greedy", 40))
TestZerosSingle = pytest.mark.slow(reason=MISFORTUNES)(machine("zeros", "single", 40))
TestModelGreedy = pytest.mark.slow(reason=MISFORTUNES)(machine("model", "greedy", 40))
TestZerosGreedy = pytest.mark.slow(reason=MISFORTUNES)(machine("zeros", "greedy", 40))

TestManyDenseSingle = pytest.mark.deep(machine("dense", "single", 400))
TestManyZerosSingle = pytest.mark.deep(machine("zeros", "single", 400))
TestManyModelGreedy = pytest.mark.deep(machine("model", "greedy", 400))
TestManyZerosGreedy = pytest.mark.deep(machine("zeros", "greedy", 400))


@pytest.mark.deep
@pytest.mark.timeout(7200)
class TestDeep(machine("dense", "greedy", 10_000, random=True)):  # type: ignore[misc]
    """The same, many times, and other ones every time."""
