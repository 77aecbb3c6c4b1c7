"""Private requests by the mirror: remembered before they are answered, hidden by the next open request, no traffic."""

import asyncio
from typing import Any

import pytest
from tests.support.clients import AsyncClient, Client
from tests.support.typed import present
from tests.support.world import NAMES, P4, Direct, World

import onoff
from onoff import wire
from onoff.client import Doubt, Journal, MemoryJournal, MemoryMirror
from onoff.errors import (
    CatalogueMismatch,
    InvalidInput,
    JournalWriteFailed,
    MirrorEmpty,
    MirrorError,
    OnOffError,
    ServerUnreachable,
    UnknownSource,
)
from onoff.upstream.transport import Reply

CHAIN = onoff.MarkovChain(P4, names=NAMES)
EVERYTHING = (0, 1, 2, 3)


def client_of(world, journal=None, fault=lambda request: None, **options):
    settings = {"scheme": "single", "tick": 0, "sleep": lambda seconds: None, "background": False, "attempts": 2}
    journal = MemoryJournal() if journal is None else journal
    return Client("http://server.test", CHAIN, journal, transport=Direct(world, fault), **{**settings, **options})


def paths(world):
    return [path.partition("?")[0] for _, path, _, _ in world.requests]


def only(path, fault):
    return lambda request: fault if request.path.startswith(path) else None


def memory(client):
    return client.core.session.memory.last, client.core.session.memory.secret


# -- a private request -------------------------------------------------------------------------------------


def test_a_private_request_is_a_refresh_and_a_read(tmp_path):
    world = World()
    seen: list[Any] = []
    with client_of(world, tmp_path / "journal", observe=seen.append) as client:
        message = client.get("beta", private=True)
        assert (message, message.version, message.edition, message.messages) == (b"first of beta", 1, 4, 5)
        asked = [paths(world)[:2], paths(world)[2:]]
        assert asked == [[wire.CATALOGUE_PATH, wire.CHANGES_PATH], [wire.CATALOGUE_PATH, wire.QUERY_PATH]]
        replies = [len(world.answer(*request).body) for request in list(world.requests)]
        assert message.received == replies[0] + replies[1] + replies[3]
        assert memory(client) == (EVERYTHING, 1)
        assert seen[-1] == message.sent
        assert (message.sent.mirror, message.sent.sources, message.sent.cost) == (True, EVERYTHING, 0)
        world.publish("gamma", b"second of gamma")
        again = client.get("gamma", private=True)
        assert (again, again.edition, again.messages) == (b"second of gamma", 5, 1)
        assert not client.pending
    assert set(world.sets()) == {NAMES[:1]}
    assert (tmp_path / "journal.mirror").exists()


def test_what_the_server_sees_does_not_depend_on_what_is_read(tmp_path):
    seen = set()
    for name in NAMES:
        world = World()
        with client_of(world, tmp_path / name, new_session=lambda: bytes(16)) as client:
            client.get(name, private=True)
            world.publish("beta", b"second of beta")
            client.get(name, private=True)
            client.read(name)
        seen.add(tuple(world.requests))
    assert len(seen) == 1


def test_a_read_causes_no_traffic_and_is_durable_before_the_message_is_there(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        asked = len(world.requests)
        order = []
        mirror, store = client.mirror.mirror, client._runner.open()[1].store
        client._runner.open()[1].store = lambda record: (order.append(record.wanted), store(record))  # type: ignore[func-returns-value]
        read = mirror.message
        mirror.message = lambda name: (order.append(name), read(name))[1]  # type: ignore[func-returns-value]
        message = client.read("gamma")
        assert order[:2] == [2, "gamma"]
        assert (message, message.messages, message.received, message.sent.mirror) == (b"first of gamma", 0, 0, True)
        assert len(world.requests) == asked
        assert memory(client) == (EVERYTHING, 2)
    journal = Journal(tmp_path / "journal")
    found = present(journal.found)
    assert (found.wanted, found.mirror, found.pending) == (2, True, False)
    journal.close()


def test_a_copy_and_a_list_are_no_requests(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("beta", private=True)
        record, asked = client.core.record, len(world.requests)
        assert [client.copy(name).payload for name in NAMES] == [world.messages[name].body for name in NAMES]
        assert [state.name for state in client.sources()] == list(NAMES)
        assert client.core.record is record
        assert len(world.requests) == asked


def test_a_mirror_that_is_fresh_enough_is_not_refreshed():
    world, moment = World(), 1000.0
    with client_of(world, now=lambda: moment, max_age=60) as client:
        client.get("beta", private=True)
        moment += 59
        message = client.get("gamma", private=True)
        assert (message, message.age, message.messages) == (b"first of gamma", 59, 0)
        assert paths(world).count(wire.CHANGES_PATH) == 1
        assert client.get("gamma", private=True, max_age=59).age == 0
        moment += 61
        client.get("gamma", private=True)
    assert paths(world).count(wire.CHANGES_PATH) == 3


# -- the open request after it -----------------------------------------------------------------------------


def test_the_open_request_after_a_read_hides_it_in_the_same_session(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("alpha", private=False)
        client.get("beta", private=True)
        client.read("gamma")
        assert client.core.record.step == 0
        assert client.tables.of(client.core.session.memory).cost < 4
        message = client.get("delta", private=False)
        assert (message.sent.step, message.sent.note) == (1, None)
        assert "delta" in world.sets()[-1]
    world.check()


def test_a_session_that_begins_with_reads_begins_on_the_wire_with_the_open_request(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        client.read("alpha")
        assert client.core.record.step == -1
        message = client.get("beta", private=False)
        assert (message.sent.step, message.sent.note) == (0, None)
    assert len(world.queries) == 1


@pytest.mark.parametrize("wanted", NAMES)
def test_the_open_request_after_a_private_one_is_drawn_in_another_process_too(tmp_path, wanted):
    """The private request opens the session by one message, the same one whatever is wanted."""
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get(wanted, private=True)
        assert world.sets() == [NAMES[:1]]
        client.get(wanted, private=True)
    assert world.sets() == [NAMES[:1]]
    with client_of(world, tmp_path / "journal") as client:
        assert memory(client) == (EVERYTHING, NAMES.index(wanted))
        message = client.get("gamma", private=False)
        assert (message, message.sent.step, message.sent.note) == (b"first of gamma", 1, None)
    world.check()


def test_a_copy_that_is_fresh_enough_is_read_without_opening_a_session(tmp_path):
    """It would tell when something was read."""
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        before = len(world.requests)
        assert client.get("alpha", private=True, max_age=1e9).messages == 0
        assert len(world.requests) == before


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_session_whose_opening_was_lost_is_a_doubt_only_if_it_did_not_arrive(tmp_path, fault):
    world = World()
    with client_of(world, tmp_path / "journal", only(wire.QUERY_PATH, fault)) as client:
        assert client.get("beta", private=True) == b"first of beta"
    with client_of(world, tmp_path / "journal") as client:
        note = client.get("gamma", private=False).sent.note
        assert note == (f"{Doubt.FORGOTTEN}: everything was asked" if fault == "before" else None)
    world.check()


def test_a_journal_restored_to_when_its_session_was_opened_is_found_out(tmp_path):
    world, journal = World(), tmp_path / "journal"
    with client_of(world, journal) as client:
        client.get("alpha", private=True)
    older = journal.read_bytes()
    with client_of(world, journal) as client:
        client.get("gamma", private=False)
    journal.write_bytes(older)
    with client_of(world, journal) as client:
        assert client.get("delta", private=False).sent.note == f"{Doubt.ROLLED_BACK}: everything was asked"


def test_another_catalogue_is_a_doubt_for_a_session_that_was_opened_and_not_used(tmp_path):
    """Else a journal from before the change would pass for one that was never used."""
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("alpha", private=True)
    world.rename(("zeta", *NAMES))
    with client_of(world, tmp_path / "journal") as client:
        assert client.get("delta", private=False).sent.note == f"{Doubt.OTHER_CATALOGUE}: everything was asked"


def test_after_a_restart_a_session_that_the_server_never_saw_is_a_doubt(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        client.read("alpha")
    with client_of(world, tmp_path / "journal") as client:
        assert client.status()["doubt"] is None  # it takes the server to tell
        client.get("beta", private=True)  # which does not matter while ON, and opens nothing that may be an old session
        message = client.get("gamma", private=False)
        assert message.sent.note == f"{Doubt.FORGOTTEN}: everything was asked"
        assert (message.sent.step, message.sent.sources) == (0, EVERYTHING)


def test_after_a_restart_a_session_that_the_server_saw_goes_on(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("alpha", private=False)
        client.get("beta", private=True)
    with client_of(world, tmp_path / "journal") as client:
        assert memory(client) == (EVERYTHING, 1)
        message = client.get("gamma", private=False)
        assert (message.sent.step, message.sent.note) == (1, None)
    world.check()


def test_an_older_journal_is_found_out_by_what_was_sent_since(tmp_path):
    world, journal = World(), tmp_path / "journal"
    with client_of(world, journal) as client:
        client.get("alpha", private=False)
        client.get("beta", private=True)
    older = journal.read_bytes()
    with client_of(world, journal) as client:
        client.get("gamma", private=False)
    journal.write_bytes(older)
    with client_of(world, journal) as client:
        assert client.get("delta", private=False).sent.note == f"{Doubt.ROLLED_BACK}: everything was asked"


def test_a_source_that_the_model_does_not_have_is_read_and_leaves_what_is_hidden_as_it_was(tmp_path):
    world = World()
    world.rename((*NAMES, "epsilon"))
    world.publish("epsilon", b"first of epsilon")
    with client_of(world, tmp_path / "journal") as client:
        client.refresh()
        assert client.read_unmodelled("epsilon") == b"first of epsilon"
        assert client.core.record is None  # in doubt as before
        client.get("beta", private=False)
        message = client.get("gamma", private=False)
        assert memory(client)[0] == message.sent.sources
        before = len(world.requests)
        assert client.read_unmodelled("epsilon") == b"first of epsilon"
        assert len(world.requests) == before
        assert memory(client) == (EVERYTHING, 2)  # as after any other read, and still the last request of the model
        with pytest.raises(UnknownSource):
            client.read_unmodelled("omega")
    with client_of(world, tmp_path / "journal") as client:
        assert memory(client) == (EVERYTHING, 2)
        assert client.get("delta", private=False).sent.note is None
    world.check()


def test_another_catalogue_is_a_doubt_for_what_was_sent_and_not_for_reading(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("alpha", private=False)
        client.get("beta", private=True)
        world.rename(("zeta", *reversed(NAMES)))
        assert client.get("beta", private=True) == b"first of beta"
    with client_of(world, tmp_path / "journal") as client:
        assert client.get("beta", private=False).sent.note == f"{Doubt.OTHER_CATALOGUE}: everything was asked"


def test_bytes_of_another_step_in_the_record_are_a_doubt(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("alpha", private=False)
        client.get("beta", private=True)
        record = client.core.record
    from dataclasses import replace

    journal = Journal(tmp_path / "journal")
    journal.store(replace(record, step=7))
    journal.close()
    with client_of(world, tmp_path / "journal") as client:
        assert client.get("beta", private=False).sent.note == f"{Doubt.UNFIT}: everything was asked"


# -- what fails --------------------------------------------------------------------------------------------


def test_a_private_request_that_fails_counts_and_can_be_repeated(tmp_path):
    world, fault = World(), "before"
    with client_of(world, tmp_path / "journal", lambda request: fault) as client:
        with pytest.raises(ServerUnreachable):
            client.get("beta", private=True)
        assert client.pending
        assert memory(client) == (EVERYTHING, 1)
        fault = None  # type: ignore[assignment]
        assert client.retry() == b"first of beta"
        assert not client.pending
        with pytest.raises(OnOffError, match="nothing is waiting"):
            client.retry()


def test_after_a_crash_a_private_request_can_be_repeated(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal", lambda request: "before") as client, pytest.raises(ServerUnreachable):
        client.get("beta", private=True)
    with client_of(world, tmp_path / "journal") as client:
        assert client.pending
        assert client.retry() == b"first of beta"
    with client_of(world, tmp_path / "journal") as client:
        assert not client.pending


def test_a_journal_that_cannot_be_written_sends_and_shows_nothing(tmp_path, monkeypatch):
    world = World()
    with client_of(world, tmp_path / "journal") as client:
        client.get("alpha", private=True)
        asked = len(world.requests)

        def full(self, record):
            raise JournalWriteFailed("no room")

        monkeypatch.setattr(Journal, "store", full)
        for act in (lambda: client.get("beta", private=True), lambda: client.read("beta")):
            with pytest.raises(JournalWriteFailed):
                act()
        assert len(world.requests) == asked


def test_a_mirror_that_cannot_be_opened_is_an_error_of_private_requests_alone(tmp_path):
    world = World()
    (tmp_path / "journal.mirror").mkdir()
    with client_of(world, tmp_path / "journal") as client:
        with pytest.raises(MirrorError, match="not an ordinary file"):
            client.get("beta", private=True)
        assert client.get("beta", private=False) == b"first of beta"


def test_a_read_before_the_first_refresh_counts_and_says_so():
    with client_of(World()) as client:
        with pytest.raises(MirrorEmpty):
            client.read("beta")
        assert memory(client) == (EVERYTHING, 1)
        with pytest.raises(UnknownSource):
            client.read("nobody")


def test_a_server_without_our_sources_is_named():
    world = World()
    with client_of(world) as client:
        client.get("alpha", private=True)
        world.rename(NAMES[:2])
        with pytest.raises(CatalogueMismatch, match=r"2 of the chain's 4"):
            client.get("alpha", private=True)


def test_a_client_without_a_mirror_says_so():
    with client_of(World(), mirror=False) as client:
        assert client.mirror is None
        for act in (client.refresh, client.sources, client.forecast, lambda: client.read("beta")):
            with pytest.raises(InvalidInput, match="no mirror"):
                act()


# -- servers of an older version ---------------------------------------------------------------------------


def test_a_server_that_does_not_tell_what_changed_is_asked_for_everything(tmp_path):
    world = World()
    world.tells_changes = False
    with client_of(world, tmp_path / "journal") as client:
        message = client.get("beta", private=True)
        assert (message, message.messages, message.edition) == (b"first of beta", 4, None)
        assert (message.sent.mirror, message.sent.sources, message.sent.step) == (False, EVERYTHING, 0)
        client.get("gamma", private=True)
        assert paths(world).count(wire.CHANGES_PATH) == 1  # asked once
    assert world.sets() == [NAMES] * 2
    with client_of(world, tmp_path / "journal") as client:
        assert client.get("gamma", private=True).sent.note is None
    world.check()


def test_what_was_not_answered_by_a_mirror_is_repeated_by_a_query(tmp_path):
    world = World()
    with client_of(world, tmp_path / "journal", lambda request: "before") as client, pytest.raises(ServerUnreachable):
        client.get("beta", private=True)
    world.tells_changes = False
    with (
        client_of(world, tmp_path / "journal", mirror=False) as client,
        pytest.raises(OnOffError, match=f"cannot be repeated: {Doubt.FORGOTTEN}"),
    ):
        client.retry()
    with client_of(world, tmp_path / "journal") as client:
        assert client.retry() == b"first of beta"
        assert not client.pending
    assert world.sets() == [NAMES]


# -- forecast ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_size", [None, 512], ids=["own length", "padded"])
def test_the_forecast_is_in_bytes(frame_size):
    world, moment = World(frame_size=frame_size), 1000.0
    with client_of(world, now=lambda: moment, scheme="greedy") as client:
        before = client.forecast()
        assert (before.hour_on, before.refresh_now, before.open_now, before.everything) == (3600, None, None, None)
        received = client.get("beta", private=True).received
        moment += 100
        after = client.forecast()
        sizes = [frame_size or wire.FRAME_OVERHEAD + len(world.messages[name].body) for name in NAMES]
        assert (after.refresh_now, after.everything, after.used_today) == (100, sum(sizes), received)
        table = client.tables.of(client.core.session.memory).as_dict()
        expected = sum(
            mass / table["unit"] * sum(sizes[source] for source in query)
            for query, mass in zip(table["queries"], table["mass"], strict=True)
        )
        changed = 1 if frame_size else 100 / sum(sizes)
        assert after.open_now == pytest.approx(expected * changed, rel=1e-12)
        moment += 1e9
        assert client.forecast().refresh_now == sum(sizes)
        message = client.get("gamma", private=False)
        assert client.forecast().used_today == message.received
    assert paths(world).count(wire.EDITION_PATH) == 4


def test_a_forecast_in_doubt_is_everything():
    with client_of(World()) as client:
        client.refresh()
        assert client.forecast().open_now == client.forecast().everything > 0


# -- from an event loop ------------------------------------------------------------------------------------


def test_the_same_from_an_event_loop():
    world = World()

    async def session():
        settings = {"tick": 0, "transport": Direct(world), "mirror": MemoryMirror()}
        async with AsyncClient("http://server.test", CHAIN, MemoryJournal(), "single", **settings) as client:
            assert (await client.refresh()).changed == NAMES
            assert await client.read("beta") == b"first of beta"
            assert await client.copy("gamma") == b"first of gamma"
            assert len(await client.sources()) == 4
            assert (await client.get("beta", private=True, max_age=1e9)).messages == 0
            assert present((await client.forecast()).everything) > 0

    asyncio.run(session())
    assert paths(world) == [wire.CATALOGUE_PATH, wire.CHANGES_PATH, wire.EDITION_PATH]


def test_a_refusal_of_changes_is_named():
    with (
        client_of(World(), fault=only(wire.CHANGES_PATH, Reply(400, (), b""))) as client,
        pytest.raises(ServerUnreachable, match="no changes, but HTTP 400"),
    ):
        client.refresh()
