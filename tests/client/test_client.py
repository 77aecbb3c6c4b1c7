"""The client delivers the right message, stores before it sends, sends one byte string per step, and recovers."""

import threading
from typing import Any

import pytest
from tests.support.clients import Client
from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, P4, Direct, World, listening

import onoff
from onoff import wire
from onoff.client import Journal, MemoryJournal, default_journal
from onoff.errors import (
    BadAnswer,
    CatalogueMismatch,
    InvalidInput,
    JournalWriteFailed,
    OnOffError,
    ServerUnreachable,
    UnknownSource,
)
from onoff.session.session import SystemEntropy
from onoff.upstream.transport import Reply

CHAIN = onoff.MarkovChain(P4, names=NAMES)


def client_of(world, journal=None, *, fault=lambda request: None, chain=CHAIN, **options):
    settings = {"scheme": "single", "tick": 0, "sleep": lambda seconds: None, "background": False, **options}

    journal = MemoryJournal() if journal is None else journal
    return Client("http://server.test", chain, journal, transport=Direct(world, fault), **{"mirror": False, **settings})


def queries_only(fault):
    return lambda request: fault(request) if request.path == wire.QUERY_PATH else None


def test_delivers_the_latest_message_on_and_off():
    world = World()
    with client_of(world) as client:
        for t in range(30):
            name = NAMES[t % 3]
            world.publish(name, f"{name} at {t}".encode())
            message = client.get(name, private=t % 2 == 0)
            assert message == f"{name} at {t}".encode()
            assert (message.source, message.version, message.media_type) == (
                name,
                world.messages[name].version,
                "text/plain",
            )
    world.check()


def test_a_message_is_bytes_and_says_what_the_server_saw():
    world = World()
    with client_of(world) as client:
        client.get("beta", private=True)
        message = client.get("gamma", private=False)
    assert issubclass(type(message), bytes)
    assert message.payload == bytes(message) == b"first of gamma"
    assert message.sent.as_dict() == {
        "session": wire.decode_query_head(world.queries[-1]).session.hex(),
        "step": 1,
        "sources": [NAMES.index(name) for name in world.sets()[-1]],
        "n": 4,
        "private": False,
        "note": None,
        "mirror": False,
        "vectors": [],
        "cost": len(world.sets()[-1]),
    }


def test_the_first_request_asks_for_everything_and_says_so():
    world = World()
    with client_of(world) as client:
        message = client.get("beta", private=False)
    assert world.sets() == [NAMES]
    assert message.sent.note == "there was no journal: everything was asked"


def test_private_requests_ask_for_everything_and_open_ones_contain_the_wanted_source():
    world = World()
    with client_of(world) as client:
        for t in range(300):
            name = NAMES[(t * 7) % 4]
            client.get(name, private=t % 3 == 0)
            assert name in world.sets()[-1]
            if t % 3 == 0:
                assert world.sets()[-1] == NAMES
    assert any(len(asked) == 1 for asked in world.sets())  # all cost 4 with chance < 1e-30: for 60 it is < 1e-6


def test_steps_follow_one_another_in_one_session():
    world = World()
    with client_of(world) as client:
        for t in range(5):
            client.get("alpha", private=t == 2)
    heads = [wire.decode_query_head(query) for query in world.queries]
    assert [head.step for head in heads] == [0, 1, 2, 3, 4]
    assert len({head.session for head in heads}) == 1


class Counting(SystemEntropy):
    """The system's, and how often it was asked."""

    asked = 0

    def choose(self, weights):
        self.asked += 1
        return super().choose(weights)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_retry_sends_the_same_bytes_and_draws_nothing(when):
    world, entropy = World(), Counting()
    faults = iter([None, when, when, None])
    fault = queries_only(lambda request: next(faults))
    with client_of(world, fault=fault, scheme="greedy", entropy=entropy) as client:
        client.get("alpha", private=True)
        assert client.get("alpha", private=False) == b"first of alpha"
    assert entropy.asked == 1
    world.check()
    assert len(world.byte_strings()) == 2


def test_a_request_without_answer_stays_pending_and_retry_sends_its_bytes():
    world, entropy = World(), Counting()
    down = False
    fault = queries_only(lambda request: "after" if down else None)
    with client_of(world, fault=fault, scheme="greedy", entropy=entropy) as client:
        client.get("delta", private=True)
        down = True
        with pytest.raises(ServerUnreachable, match="lost"):
            client.get("delta", private=False)
        assert client.pending
        down = False
        assert client.retry() == b"first of delta"
        assert not client.pending
        assert entropy.asked == 1
        with pytest.raises(OnOffError, match="nothing is waiting"):
            client.retry()
    assert len(world.queries) == 1 + 4 + 1
    assert len(set(world.queries[1:])) == 1


def test_a_retry_that_meets_a_new_catalogue_asks_for_everything():
    world = World()
    down = False
    with client_of(world, fault=queries_only(lambda request: "before" if down else None)) as client:
        client.get("alpha", private=True)
        down = True
        with pytest.raises(ServerUnreachable):
            client.get("delta", private=False)
        down = False
        world.rename(("zeta", *NAMES))
        message = client.retry()
    assert message == b"first of delta"
    assert message.sent.note == "the server's catalogue has changed: everything was asked"
    assert set(world.asked(world.queries[-1])) == set(NAMES)


def test_an_abandoned_request_counts_as_sent():
    world = World()
    down = False
    with client_of(world, fault=queries_only(lambda request: "before" if down else None)) as client:
        client.get("alpha", private=True)
        down = True
        with pytest.raises(ServerUnreachable):
            client.get("delta", private=False)
        down = False
        client.get("delta", private=False)
    assert [wire.decode_query_head(query).step for query in world.queries] == [0, 2]


@pytest.mark.parametrize("private", [True, False])
def test_a_conflict_starts_a_new_session_with_everything(private):
    world = World()
    with client_of(world) as client:
        client.get("alpha", private=True)
        session = wire.decode_query_head(world.queries[-1]).session
        world.seen[session] = (7, "0" * 64)  # a twin of this client went on
        message = client.get("beta", private=private)
    assert message == b"first of beta"
    assert message.sent.note == "the server saw another request at this step: everything was asked"
    assert message.sent.step == 0
    assert world.sets()[-1] == NAMES
    assert wire.decode_query_head(world.queries[-1]).session != session


def test_a_new_epoch_starts_a_new_session_with_everything_and_other_indices():
    world = World()
    with client_of(world) as client:
        client.get("alpha", private=True)
        world.rename(("zeta", *reversed(NAMES)))
        message = client.get("beta", private=False)
    assert message == b"first of beta"
    assert message.sent.note == "the server's catalogue has changed: everything was asked"
    assert set(world.asked(world.queries[-1])) == set(NAMES)  # zeta is not in the chain: nobody can want it


def test_a_catalogue_without_a_source_of_the_chain_is_refused_before_anything_is_asked():
    world = World(NAMES[:3])
    with client_of(world) as client, pytest.raises(CatalogueMismatch, match="1 of the chain's 4 sources"):
        client.get("alpha", private=True)
    assert world.queries == []


def test_a_server_that_refuses_every_session_is_given_up():
    world = World()
    conflict = wire.encode_problem(wire.Problem(409, "no", type=wire.STEP_CONFLICT, step=9, sha256="0" * 64))
    refuse = queries_only(lambda request: Reply(409, (), conflict))
    with client_of(world, fault=refuse) as client, pytest.raises(BadAnswer, match="refuses every session"):
        client.get("alpha", private=True)
    assert world.sets() == [NAMES] * 3
    world.check()


@pytest.mark.parametrize("status", [204, 301, 400, 404, 413])
def test_a_refusal_is_named_and_not_repeated(status):
    world = World()
    with client_of(world, fault=queries_only(lambda request: Reply(status, (), b""))) as client:
        with pytest.raises(BadAnswer, match=f"HTTP {status}"):
            client.get("alpha", private=True)
        assert client.pending
    assert len(world.queries) == 1


def test_an_overloaded_server_gets_the_same_bytes_later_and_later():
    world = World()
    waits: list[Any] = []
    faults = iter([Reply(503, (), b""), Reply(503, (), b""), Reply(500, (), b""), None])
    with client_of(world, fault=queries_only(lambda request: next(faults)), sleep=waits.append) as client:
        client.get("alpha", private=True)
    assert waits == [0.2, 0.4, 0.8]
    assert len(set(world.queries)) == 1


def test_restart_goes_on_where_it_stood():
    world = World()
    journal = MemoryJournal()
    with client_of(world, journal) as client:
        client.get("alpha", private=True)
    with client_of(world, journal) as client:
        assert client.get("beta", private=False).sent.step == 1
    world.check()


@pytest.mark.parametrize("forgets", [False, True])
def test_an_older_journal_is_noticed_before_anything_smaller_is_asked(forgets):
    world = World()
    journal = MemoryJournal()
    with client_of(world, journal) as client:
        client.get("alpha", private=True)
        client.get("beta", private=False)
        older = journal.found
        client.get("beta", private=False)
    journal.found = older
    if forgets:
        world.seen.clear()
    before = len(world.queries)
    with client_of(world, journal) as client:
        message = client.get("gamma", private=False)
    assert world.sets()[-1] == NAMES
    assert len(world.queries) == before + 1
    reason = "the server does not know this session" if forgets else "the journal is older than what the server saw"
    assert message.sent.note == f"{reason}: everything was asked"
    world.check()


def test_another_chain_or_server_asks_for_everything():
    world = World()
    journal = MemoryJournal()
    with client_of(world, journal) as client:
        client.get("alpha", private=True)
    smoother = onoff.MarkovChain([[0.25] * 4] * 4, names=NAMES)
    with client_of(world, journal, chain=smoother) as client:
        message = client.get("alpha", private=False)
    assert message.sent.note == "the chain is not the one of the last request: everything was asked"
    with Client(
        "http://other.test", smoother, journal, "single", transport=Direct(world), background=False, mirror=False
    ) as client:
        message = client.get("alpha", private=False)
    assert message.sent.note == "the server is not the one of the last request: everything was asked"
    assert set(world.sets()) == {NAMES}


def test_an_impossible_request_asks_for_everything():
    world = World()
    chain = onoff.MarkovChain([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.4, 0.6]], names=NAMES)
    with client_of(world, chain=chain) as client:
        client.get("alpha", private=True)
        client.get("alpha", private=True)
        client.get("alpha", private=True)
        assert world.sets()[-1] == NAMES  # nobody knows yet which half it is
        for _ in range(20):
            client.get("alpha", private=False)
        message = client.get("gamma", private=False)
    assert message == b"first of gamma"
    assert message.sent.cost == 4
    assert "probability zero" in message.sent.note


def test_an_unknown_source_sends_nothing_and_its_name_is_not_repeated():
    world, said = World(), set()
    with client_of(world) as client:
        for source in ("alphab", "", 4, -1, True, "\0"):
            with pytest.raises(UnknownSource) as caught:
                client.get(source, private=True)
            said.add(str(caught.value))
    assert len(said) == 1  # whatever was wanted
    assert world.requests == []


NO_ADDRESSES = [
    *("", "server", "ftp://x", "http://", "http://x:0x", "http://x:0", "http://x:65536", "http://a b", "http://u:p@x"),
    *("http://x?y", "http://x#y", "http://a..b", f"http://{'a' * 64}", "http://[::1", "http://[x]", "http://\xe4"),
]


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidInput):
        Client(url, CHAIN, MemoryJournal())


def test_expected_costs_of_the_next_request():
    world = World()
    with client_of(world) as client:
        assert client.expected_cost(private=True) == client.expected_cost(private=False) == 4
        client.get("alpha", private=True)
        assert client.expected_cost(private=True) == 4
        assert client.expected_cost(private=False, wait=False) is None  # it would have to be built
        table = onoff.design(CHAIN, "single")
        assert client.expected_cost(private=False) == table.cost < 4
        assert client.expected_cost(private=False, wait=False) == table.cost


def test_an_interrupt_leaves_the_client_where_its_journal_stands(tmp_path):
    world = World()
    interrupt = iter([False, True, False])

    def fault(request):
        if next(interrupt):
            raise KeyboardInterrupt

    with client_of(world, tmp_path / "journal", fault=queries_only(fault)) as client:
        client.get("alpha", private=True)
        with pytest.raises(KeyboardInterrupt):
            client.get("beta", private=False)
        assert client.pending
        assert client.get("beta", private=False).sent.step == 2  # what was stored counts as sent
    world.check()


def test_the_tables_are_those_that_queries_are_drawn_from():
    world = World()
    with client_of(world) as client:
        client.get("alpha", private=True)
        client.expected_cost(private=False)
        assert client.tables.has(client.core.session.memory)


def test_a_checkpoint_that_fails_does_not_keep_the_message_back(monkeypatch, tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("alpha", private=True)
        with monkeypatch.context() as broken:
            broken.setattr(Journal, "checkpoint", _no_room)
            assert client.get("beta", private=False) == b"first of beta"
        assert client.get("beta", private=False).sent.step == 2
    world.check()


def _no_room(journal):
    raise JournalWriteFailed("no room")


def test_progress_and_observer_tell_what_goes_on():
    world = World()
    sent: list[Any] = []
    progress: list[Any] = []
    with client_of(world, observe=sent.append, progress=progress.append) as client:
        client.get("alpha", private=True)
        client.get("beta", private=False)
    assert [(s.step, s.private) for s in sent] == [(0, True), (1, False)]
    assert [(p.state, p.sources) for p in progress] == [("building", 4), ("ready", 4)]


def test_the_next_table_is_built_in_the_background():
    world = World()
    ready = threading.Event()
    threads = []

    def progress(event):
        threads.append(threading.current_thread().name)
        if event.state == "ready":
            ready.set()

    with client_of(world, background=True, progress=progress) as client:
        client.get("alpha", private=True)
        assert ready.wait(PATIENCE)
        client.get("beta", private=False)
    assert set(threads) == {"onoff-client"}


def test_threads_share_a_client_and_every_request_is_a_step():
    world = World()
    wrong = []
    with client_of(world, background=True) as client:

        def work(name):
            for t in range(8):
                if client.get(name, private=t % 2 == 0) != f"first of {name}".encode():
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(name,)) for name in NAMES * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert [wire.decode_query_head(query).step for query in world.queries] == list(range(64))
    world.check()


def test_queries_wait_for_the_tick():
    world = World()
    waits: list[Any] = []
    now = iter([100.0, 100.013])
    with client_of(world, tick=0.05, clock=lambda: next(now), sleep=waits.append) as client:
        client.get("alpha", private=True)
    assert waits == [pytest.approx(0.037)]


def test_a_closed_client_says_so():
    client = client_of(World())
    client.close()
    client.close()
    with pytest.raises(OnOffError, match="closed"):
        client.get("alpha", private=True)


def test_over_tcp_the_request_is_these_bytes_and_no_others(tmp_path):
    world = World()
    with listening(world) as server:
        with Client(server.url, CHAIN, tmp_path / "journal", "single", tick=0, mirror=False) as client:
            assert client.get("alpha", private=True) == b"first of alpha"
        host = server.url.removeprefix("http://")
        query = world.queries[0]
        assert (
            server.raw[0]
            == (
                f"GET /v1/catalogue HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\n"
                "accept-encoding: identity\r\nuser-agent: onoff\r\n\r\n"
            ).encode()
        )
        head = (
            f"POST /v1/query HTTP/1.1\r\nhost: {host}\r\naccept: {wire.ANSWER_TYPE}\r\n"
            "accept-encoding: gzip\r\n"
            f"content-type: {wire.QUERY_TYPE}\r\nuser-agent: onoff\r\ncontent-length: {len(query)}\r\n\r\n"
        )
        assert server.raw[1] == head.encode() + query


def test_the_journal_of_a_server_is_in_the_state_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = default_journal("https://server.test")
    assert path.is_relative_to(tmp_path / "onoff")
    assert default_journal("https://server.test/") == path != default_journal("https://other.test")
    assert Client("https://server.test/", CHAIN).journal == path
