"""The client's machine by itself: which commands it gives, and what it makes of every journal and every reply."""

import itertools
import logging
from dataclasses import replace
from typing import Any

import pytest
from tests.support.chains import request_model
from tests.support.world import NAMES, P4, World

from onoff import wire
from onoff.client.core import HARMLESS, Build, Core, StoreRecord, Tick
from onoff.errors import BadAnswer, CatalogueMismatch, OnOffError, ServerUnreachable
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.session import LOST_PAST
from onoff.upstream import Doubt
from onoff.upstream.message_server import LARGEST_CATALOGUE, MessageServer
from onoff.upstream.transport import Failure, Reply, Request, Wait

CHAIN = MarkovChain(P4, names=NAMES)
URL = "http://server.test"
SESSIONS = itertools.count(1)
Fetch, Ask, SendQuery = wire.CATALOGUE_PATH, wire.SEEN_PATH, wire.QUERY_PATH
"""Requests, by where they go."""


def machine(attempts=1, *, chain=CHAIN, server=URL, backoff=1):
    return Core(
        Session(chain, "single"),
        MessageServer(server, attempts=attempts, backoff=backoff),
        origin="somewhere",
        new_session=lambda: next(SESSIONS).to_bytes(16),
    )


def carry_out(steps, world, instead=None, until=None):
    """Every command, and the message; `instead` gives events of its own for commands of some kinds, one by one.

    With `until` it ends at a command of that kind, as a crash would.
    """
    commands: list[Any] = []
    event = None
    instead = {key: iter(events) for key, events in (instead or {}).items()}
    try:
        while not commands or kind(commands[-1]) is not until:
            command = steps.send(event)
            commands.append(command)
            event = next(instead.get(kind(command), iter(())), None) or answered(command, world)
    except StopIteration as done:
        return commands, done.value
    return commands, None


def answered(command, world):
    if not isinstance(command, Request):
        return None
    return world.answer(command.method, command.path, command.headers, command.body)


def kind(command):
    """Where a request goes; of other commands the type."""
    return command.path if isinstance(command, Request) else type(command)


def kinds(commands):
    return [kind(command) for command in commands]


def after_one_request(**options):
    """A world, and the record of one answered private request for beta."""
    world, core = World(), machine(**options)
    core.opened(None, Doubt.NEW)
    carry_out(core.request(1, private=True), world)
    return world, core.record


# -- commands ----------------------------------------------------------------------------------------------


def test_commands_of_requests_in_order():
    world, core = World(), machine()
    core.opened(None, Doubt.NEW)
    commands, message = carry_out(core.request(1, private=True), world)
    assert kinds(commands) == [Fetch, StoreRecord, Tick, SendQuery]
    stored = commands[1].record
    assert stored.pending
    assert (stored.server, stored.chain, stored.origin) == (URL, CHAIN.digest(), "somewhere")
    assert (stored.step, stored.wanted, stored.private) == (0, 1, True)
    assert stored.note == message.sent.note == "there was no journal: everything was asked"
    assert commands[3].body == stored.query == world.queries[0]
    assert core.record == replace(stored, pending=False)
    assert (core.session.memory.last, core.session.memory.secret) == ((0, 1, 2, 3), 1)

    commands, _ = carry_out(core.request(2, private=False), world)
    assert kinds(commands) == [Build, StoreRecord, Tick, SendQuery]
    assert (commands[1].record.session, commands[1].record.step) == (stored.session, 1)

    commands, message = carry_out(core.request(3, private=True), world)
    assert kinds(commands) == [StoreRecord, Tick, SendQuery]
    assert message == b"first of delta"
    assert core.sent(core.record) == message.sent


def test_after_opening_the_server_is_asked_once_where_it_saw_us_last():
    world, record = after_one_request()
    core = machine()
    core.opened(record, None)
    assert (core.session.memory.last, core.session.memory.secret) == ((0, 1, 2, 3), 1)
    commands, message = carry_out(core.request(2, private=False), world)
    assert kinds(commands) == [Fetch, Ask, Build, StoreRecord, Tick, SendQuery]
    assert commands[1].body == record.session
    assert (message.sent.session, message.sent.step, message.sent.note) == (record.session.hex(), 1, None)
    assert kinds(carry_out(core.request(2, private=True), world)[0]) == [StoreRecord, Tick, SendQuery]
    core.opened(core.record, None)
    assert kinds(carry_out(core.request(2, private=True), world)[0]) == [Ask, StoreRecord, Tick, SendQuery]


def test_a_retry_stores_nothing_and_asks_only_once():
    world, record = after_one_request()
    core = machine()
    core.opened(replace(record, pending=True), None)
    commands, message = carry_out(core.retry(), world)
    assert kinds(commands) == [Fetch, Ask, Tick, SendQuery]
    assert commands[-1].body == record.query
    assert message == b"first of beta"
    assert core.record == record
    assert kinds(carry_out(core.request(2, private=True), world)[0]) == [StoreRecord, Tick, SendQuery]


def test_a_retry_needs_something_that_waits():
    world, record = after_one_request()
    for found, doubt in ((None, Doubt.NEW), (None, None), (record, None)):
        core = machine()
        core.opened(found, doubt)
        with pytest.raises(OnOffError, match="nothing is waiting"):
            carry_out(core.retry(), world)
    core = machine()
    core.opened(replace(record, pending=True), Doubt.COPIED)
    with pytest.raises(OnOffError, match="cannot be repeated: the journal was copied"):
        carry_out(core.retry(), world)
    assert len(world.queries) == 1


def test_at_most_so_many_bytes_are_read():
    world, core = World(), machine()
    core.opened(None, Doubt.NEW)
    commands, _ = carry_out(core.request(0, private=True), world)
    assert commands[-1].limit == 64 * 1024  # room for a refusal, where the answer itself is smaller
    world = World(frame_size=64 * 1024)
    core = machine()
    core.opened(None, Doubt.NEW)
    commands, _ = carry_out(core.request(0, private=True), world)
    assert commands[-1].limit == wire.answer_length(4, 64 * 1024) > 64 * 1024
    assert LARGEST_CATALOGUE == 64 * 1024**2


def test_bytes_stay_out_of_repr():
    assert "secret" not in repr(Request("POST", "/", (), b"secret", 1)) + repr(Reply(200, (), b"secret"))


def test_log_lines_say_what_the_server_sees(caplog):
    caplog.set_level(logging.INFO, "onoff.client")
    core = machine(attempts=2)
    core.opened(None, Doubt.NEW)
    carry_out(core.request(2, private=True), World(), {SendQuery: [Failure("lost")]})
    assert [record.getMessage() for record in caplog.records] == ["step 0: 4 of 4 sources asked", "attempt 1 failed"]


# -- doubts ------------------------------------------------------------------------------------------------


def everything_was_asked(core, world, reason):
    before = {wire.decode_query_head(query).session for query in world.queries}
    commands, message = carry_out(core.request(2, private=False), world)
    assert message == b"first of gamma"
    assert message.sent.note == f"{reason}: everything was asked"
    assert (message.sent.step, message.sent.sources) == (0, (0, 1, 2, 3))
    assert bytes.fromhex(message.sent.session) not in before
    assert kinds(commands)[-3:] == [StoreRecord, Tick, SendQuery]
    assert core.doubt is None
    return commands


def test_a_doubt_of_the_journal_is_never_taken_back():
    world, record = after_one_request()
    core = machine()
    core.opened(record, Doubt.COPIED)
    assert core.doubt == Doubt.COPIED
    assert core.session.memory.last is None
    assert Ask not in kinds(everything_was_asked(core, world, Doubt.COPIED))
    core.opened(replace(record, chain="another"), Doubt.COPIED)
    assert core.doubt == Doubt.COPIED


def test_without_a_record_everything_is_asked():
    core = machine()
    core.opened(None, None)
    everything_was_asked(core, World(), Doubt.NOTHING_STORED)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chain": "another"}, Doubt.OTHER_CHAIN),
        ({"server": "http://other.test"}, Doubt.OTHER_SERVER),
        ({"asked": b"\x1f"}, Doubt.UNFIT),
        ({"asked": b""}, Doubt.UNFIT),
        ({"wanted": 4}, Doubt.UNFIT),
        ({"wanted": 1, "asked": b"\x0d"}, Doubt.UNFIT),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_record_that_is_not_ours_is_a_doubt_at_once(change, reason):
    world, record = after_one_request()
    core = machine()
    core.opened(replace(record, **change), None)
    assert core.doubt == reason
    # what was wanted from another server is hidden from this one too
    assert core.session.memory.last == ((0, 1, 2, 3) if reason is Doubt.OTHER_SERVER else None)
    assert Ask not in kinds(everything_was_asked(core, world, reason))


@pytest.mark.parametrize(
    "change",
    [
        {"query": b"not a query"},
        {"step": 7},
        {"session": b"another session."},
        {"session": b"short"},
        {"asked": b"\x03"},
    ],
    ids=str,
)
def test_a_record_whose_bytes_say_something_else_is_a_doubt(change):
    world, record = after_one_request()
    core = machine()
    core.opened(replace(record, **change), None)
    assert core.doubt is None  # it takes the catalogue to tell
    assert Ask not in kinds(everything_was_asked(core, world, Doubt.UNFIT))


def test_bytes_of_the_wire_of_before_are_a_doubt_that_the_memory_survives():
    world, record = after_one_request()
    core = machine()
    core.opened(replace(record, query=b"\0\1" + record.query[2:]), None)
    assert Ask not in kinds(everything_was_asked(core, world, Doubt.OLDER_WIRE))
    assert Doubt.OLDER_WIRE in HARMLESS


def test_another_catalogue_is_a_doubt():
    world, record = after_one_request()
    world.rename(("zeta", *reversed(NAMES)))
    core = machine()
    core.opened(record, None)
    assert Ask not in kinds(everything_was_asked(core, world, Doubt.OTHER_CATALOGUE))


def test_what_the_server_saw_last_decides():
    world, record = after_one_request()
    step, digest = world.seen[record.session]
    ours = (step, digest)
    cases = {
        None: Doubt.FORGOTTEN,
        (step + 1, digest): Doubt.ROLLED_BACK,
        (step + 1, "0" * 64): Doubt.ROLLED_BACK,
        (step, "0" * 64): Doubt.CONFLICT,
        ours: None,
    }
    for seen, reason in cases.items():
        world.seen = {} if seen is None else {record.session: seen}
        core = machine()
        core.opened(record, None)
        if reason is not None:
            everything_was_asked(core, world, reason)
            continue
        _, message = carry_out(core.request(2, private=False), world)
        assert (message.sent.session, message.sent.step) == (record.session.hex(), 1)


def test_what_was_stored_and_never_sent_is_no_doubt():
    world, record = after_one_request()
    core = machine()
    core.opened(record, None)
    commands, _ = carry_out(core.request(2, private=True), world, until=StoreRecord)
    stored = commands[-1].record
    core = machine()
    core.opened(stored, None)
    commands, message = carry_out(core.request(2, private=True), world)
    assert Ask in kinds(commands)
    assert (message.sent.session, message.sent.step) == (record.session.hex(), 2)


@pytest.mark.parametrize("status", [201, 204, 301, 404])
def test_a_server_that_does_not_say_what_it_saw_is_a_doubt(status):
    world, record = after_one_request()
    core = machine()
    core.opened(record, None)
    said = Reply(status, (), wire.encode_seen(wire.Seen(*world.seen[record.session])))
    commands, message = carry_out(core.request(2, private=False), world, {Ask: [said]})
    assert message.sent.note == f"{Doubt.FORGOTTEN}: everything was asked"
    assert kinds(commands) == [Fetch, Ask, StoreRecord, Tick, SendQuery]


# -- replies -----------------------------------------------------------------------------------------------


def refused(status, body=b""):
    return Reply(status, (("content-type", wire.PROBLEM_TYPE),), body)


@pytest.mark.parametrize(
    ("body", "reason", "fetched"),
    [
        (wire.encode_problem(wire.Problem(409, "x", type=wire.EPOCH_CHANGED, epoch=1)), "OTHER_CATALOGUE", True),
        (
            wire.encode_problem(wire.Problem(409, "x", type=wire.STEP_CONFLICT, step=1, sha256="0" * 64)),
            "CONFLICT",
            False,
        ),
        (b"no problem", "CONFLICT", False),
    ],
    ids=["epoch", "conflict", "unreadable"],
)
def test_a_conflict_is_answered_with_everything_and_a_new_catalogue_where_that_is_why(body, reason, fetched):
    world, record = after_one_request()
    core = machine()
    core.opened(record, None)
    commands, message = carry_out(core.request(2, private=False), world, {SendQuery: [refused(409, body)]})
    assert message == b"first of gamma"
    assert message.sent.note == f"{Doubt[reason]}: everything was asked"
    assert kinds(commands)[6:] == [Fetch] * fetched + [StoreRecord, Tick, SendQuery]
    assert core.record.session != record.session


def test_a_server_that_refuses_three_sessions_is_given_up():
    world, core = World(), machine()
    core.opened(None, Doubt.NEW)
    with pytest.raises(BadAnswer, match="refuses every session"):
        carry_out(core.request(0, private=True), world, {SendQuery: [refused(409)] * 3})
    assert core.doubt == Doubt.CONFLICT
    assert world.queries == []
    everything_was_asked(core, world, Doubt.CONFLICT)


def test_a_server_without_a_catalogue_is_none():
    for status in (201, 404):
        steps = machine().request(0, private=True)
        assert kind(next(steps)) == Fetch
        with pytest.raises(BadAnswer, match=f"no catalogue, but HTTP {status}"):
            remembered(steps, Reply(status, (), wire.encode_catalogue(World().catalogue)))


def test_a_catalogue_without_our_sources_is_counted():
    with pytest.raises(CatalogueMismatch, match=r"2 of the chain's 4 sources"):
        carry_out(machine().request(0, private=True), World(NAMES[:2]))


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 599])
def test_a_server_that_is_busy_is_asked_again(status):
    world, record = after_one_request()
    core = machine(attempts=4, backoff=0.5)
    core.opened(record, None)
    commands, message = carry_out(core.request(1, private=False), world, {SendQuery: [refused(status)] * 3})
    assert [command for command in commands if isinstance(command, Wait)] == [Wait(0.5), Wait(1), Wait(2)]
    (stored,) = (command.record for command in commands if isinstance(command, StoreRecord))
    assert [command.body for command in commands if kind(command) == SendQuery] == [stored.query] * 4
    assert message == b"first of beta"


@pytest.mark.parametrize("status", [201, 301, 400, 407, 424, 426, 428, 430, 499])
def test_a_refusal_is_not_asked_again(status):
    world, core = World(), machine(attempts=4)
    core.opened(None, Doubt.NEW)
    with pytest.raises(BadAnswer, match=f"refused the query: HTTP {status}"):
        carry_out(core.request(0, private=True), world, {SendQuery: [refused(status)]})
    assert core.record.pending
    assert world.queries == []


OTHER_KINDS = {
    "of no type": (),
    "of another type": (("content-type", "text/html"),),
    "of two types": wire.ANSWER_HEADERS * 2,
    "encoded": (*wire.ANSWER_HEADERS, ("content-encoding", "gzip")),
}


@pytest.mark.parametrize("headers", OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_an_answer_of_another_kind_is_not_read_and_asked_for_again(headers):
    world, record = after_one_request()
    reply = replace(world.answer("POST", wire.QUERY_PATH, (), record.query), headers=headers)
    core = machine(attempts=2)
    core.opened(replace(record, pending=True), None)
    with pytest.raises(BadAnswer, match="an answer of another kind"):
        carry_out(core.retry(), world, {SendQuery: [reply] * 2})
    commands, message = carry_out(core.retry(), world, {SendQuery: [reply]})
    assert kinds(commands) == [Tick, SendQuery, Wait, SendQuery]
    assert message == b"first of beta"


def test_no_reply_is_named():
    for event, reason in ((Failure("too slow"), "too slow"), (None, "nothing came back")):
        steps = machine().request(0, private=True)
        next(steps)
        with pytest.raises(ServerUnreachable, match=f"{URL}: {reason}"):
            remembered(steps, event)
    with pytest.raises(ServerUnreachable, match="no attempt was allowed"):
        remembered(machine(attempts=0).request(0, private=True), None)


def remembered(steps, event):
    """What fails before a query was made counts as a request all the same: somebody wanted it."""
    command = steps.send(event)
    assert (command.record.wanted, command.record.mirror, command.record.pending) == (0, True, True)
    assert set(wire.decode_bitmap(command.record.asked, 4)) == {0, 1, 2, 3}
    steps.send(None)


def test_a_header_that_comes_twice_is_none():
    reply = Reply(200, (("a", "1"), ("b", "2"), ("b", "2")), b"")
    assert (reply.header("a"), reply.header("b"), reply.header("c")) == ("1", None, None)


def test_nothing_is_composed_before_the_catalogue_is_known():
    core = machine()
    with pytest.raises(RuntimeError, match="catalogue"):
        core._start_over(0, True, Doubt.NEW)


# -- models ------------------------------------------------------------------------------------------------

MODEL = request_model(P4, NAMES)


def after_three_requests():
    """A world, and a core with a model after a private and two open requests."""
    world, core = World(), machine(chain=MODEL)
    core.opened(None, Doubt.NEW)
    for wanted, private in ((1, True), (2, False), (2, False)):
        carry_out(core.request(wanted, private=private), world)
    return world, core


def test_a_filter_is_stored_before_the_query_leaves_and_goes_on_where_it_was():
    world, core = after_three_requests()
    commands, _ = carry_out(core.request(3, private=False), world)
    assert kinds(commands) == [Build, StoreRecord, Tick, SendQuery]
    stored = commands[1].record
    again = machine(chain=MODEL)
    again.opened(stored, None)
    assert again.doubt is None
    one, other = core.session.memory, again.session.memory
    assert (one.key, one.secret_row, one.rounding) == (other.key, other.secret_row, other.rounding)
    assert one.us[one.secret_row].tolist() == [1]
    assert 0 < len(stored.memory) < 2000
    commands, _ = carry_out(again.request(0, private=False), world)
    assert kinds(commands) == [Fetch, Ask, Build, StoreRecord, Tick, SendQuery]


def test_reading_from_the_mirror_is_a_private_request_to_the_filter():
    world, core = after_three_requests()
    carry_out(core.remember(3, pending=False), world)
    memory = core.session.memory
    assert memory.us[memory.secret_row].tolist() == [3]
    again = machine(chain=MODEL)
    again.opened(core.record, None)
    assert (again.session.memory.key, again.session.memory.secret_row) == (memory.key, memory.secret_row)


@pytest.mark.parametrize("change", ["model", "hide", "bytes", "no bytes", "cut short"])
def test_another_model_and_a_memory_that_does_not_fit_are_doubts(change):
    world, core = after_three_requests()
    record, model, hide = core.record, MODEL, 1
    if change == "model":
        model = request_model([[0.25] * 4] * 4, NAMES)
    elif change == "hide":
        hide = 2
    else:
        broken = {"bytes": b"\0" * 50, "no bytes": b"", "cut short": record.memory[:-3]}[change]
        record = replace(record, memory=broken)
    other = Core(
        Session(model, "single", hide=hide),
        MessageServer(URL, attempts=1, backoff=1),
        origin="somewhere",
        new_session=lambda: next(SESSIONS).to_bytes(16),
    )
    other.opened(record, None)
    assert other.doubt is (Doubt.OTHER_CHAIN if change == "model" else Doubt.UNFIT)
    carry_out(other.request(2, private=False), world)
    assert len(other.sent(other.record).sources) == 4
    assert other.session.memory.blind


def test_after_a_loss_everything_is_asked_until_privacy_is_on():
    world, core = after_three_requests()
    lost = machine(chain=MODEL)
    lost.opened(None, Doubt.NEW)
    for note in ("there was no journal: everything was asked", LOST_PAST, LOST_PAST):
        _, message = carry_out(lost.request(2, private=False), world)
        assert (message.sent.cost, message.sent.note) == (4, note)
        again = machine(chain=MODEL)
        again.opened(lost.record, None)
        assert again.session.memory.blind
        assert again.doubt is None
        lost = again
    _, message = carry_out(lost.request(3, private=True), world)
    assert (message.sent.cost, message.sent.note) == (4, None)
    memory = lost.session.memory
    assert not memory.blind
    assert memory.us[memory.secret_row].tolist() == [3]
    commands, _ = carry_out(lost.request(3, private=False), world)
    assert kinds(commands) == [Build, StoreRecord, Tick, SendQuery]
    assert core.record.session != lost.record.session


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("doubt", sorted(HARMLESS))
def test_a_harmless_doubt_asks_for_everything_and_goes_on_from_what_is_hidden(doubt, private):
    world, core = after_three_requests()
    before = core.session.memory
    core.doubt, core.upstream.catalogue = doubt, None
    _, message = carry_out(core.request(3, private=private), world)
    assert (message.sent.step, message.sent.cost) == (0, 4)
    expected = before.after((0, 1, 2, 3), 3, private=private, table=None)
    memory = core.session.memory
    assert memory.us[memory.secret_row].tolist() == ([3] if private else [1])
    assert (memory.key, memory.secret_row) == (expected.key, expected.secret_row)


def test_a_request_that_was_refused_counts_once():
    """The server has another catalogue and says so: the same request again, as everything."""
    world, core = after_three_requests()
    changed = refused(409, wire.encode_problem(wire.Problem(409, "x", type=wire.EPOCH_CHANGED, epoch=1)))
    commands, message = carry_out(core.request(3, private=False), world, {SendQuery: [changed]})
    stored = [command.record for command in commands if isinstance(command, StoreRecord)]
    assert message.sent.note == f"{Doubt.OTHER_CATALOGUE}: everything was asked"
    assert stored[0].memory == stored[1].memory == core.record.memory


def test_an_open_request_that_cannot_be_made_leaves_hidden_what_was():
    world, core = after_three_requests()
    again = machine(chain=MODEL)
    again.opened(core.record, None)
    with pytest.raises(ServerUnreachable):
        carry_out(again.request(3, private=False), world, {Fetch: [Failure("down")]})
    memory = again.session.memory
    assert memory.us[memory.secret_row].tolist() == [1]
    commands, _ = carry_out(again.retry(), world)
    assert again.record.memory == commands[-3].record.memory == memory.stored()
    assert len(again.sent(again.record).sources) == 4


def test_a_state_too_large_for_the_journal_is_not_kept(monkeypatch):
    monkeypatch.setattr("onoff.session.filter.LARGEST_STORED", 10)
    world, core = after_three_requests()
    assert core.record.memory == b""
    carry_out(core.request(3, private=False), world)  # the process that lives goes on
    again = machine(chain=MODEL)
    again.opened(core.record, None)
    assert again.doubt is Doubt.UNFIT
