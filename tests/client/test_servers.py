"""Several servers: right messages, one vector per server and step, all asked, agreement, and what goes wrong."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
from tests.support.chains import request_model
from tests.support.clients import Client
from tests.support.typed import present
from tests.support.world import NAMES, P4, Direct, World

import onoff
from onoff import wire
from onoff.client import Doubt, Journal, MemoryJournal
from onoff.errors import (
    BadAnswer,
    CatalogueMismatch,
    InvalidInput,
    ServerMissing,
    ServerUnreachable,
    UnknownSource,
)
from onoff.upstream.transport import Reply

CHAIN = onoff.MarkovChain(P4, names=NAMES)
URLS = tuple(f"http://server{place}.test" for place in range(4))


class Several:
    """Worlds that hold the same, and a fault for each."""

    def __init__(self, count=2, journal=None):
        self.worlds = [World(frame_size=None, journal=journal) for _ in range(count)]
        self.faults = [None] * count

    def publish(self, name, body, places=None):
        for world in self.worlds if places is None else [self.worlds[place] for place in places]:
            world.publish(name, body)

    def fault(self, place):
        def fault(request):
            found = self.faults[place]
            return found(request) if callable(found) else found

        return fault

    def client(self, journal=None, model=CHAIN, **options):
        settings = {"tick": 0, "sleep": lambda seconds: None, "background": False, "attempts": 2, **options}
        if model is not None:
            settings = {"scheme": "single", **settings}
        lines = [Direct(world, self.fault(place)) for place, world in enumerate(self.worlds)]
        journal = MemoryJournal() if journal is None else journal
        return Client(URLS[: len(lines)], model, journal, transport=lines, **settings)

    def check(self):
        for world in self.worlds:
            world.check()


def another_message(world, body, name):
    """A sum with the difference between the frame of a source and another valid frame of it."""
    if not body:
        return b""
    source, number = world.catalogue.index[name], world.editions[-1].number
    other = replace(world.messages[name], published=7)
    lie = wire.encode_frame(source, other, epoch=world.catalogue.epoch, frame_size=None)
    parts = (part.ljust(len(body), b"\0") for part in (body, world.frames(number)[source], lie))
    return bytes(a ^ b ^ c for a, b, c in zip(*parts, strict=True))


def paths(world):
    return [path.partition("?")[0] for _, path, _, _ in world.requests]


# -- messages ----------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("count", [2, 3, 4])
def test_messages_are_right_and_every_server_sees_every_request(count, tmp_path):
    servers = Several(count, journal=tmp_path / "journal")
    with servers.client(tmp_path / "journal") as client:
        for number in range(40):
            name = NAMES[number % 4]
            servers.publish(name, f"{number} of {name}".encode() * (number % 7 + 1))
            message = client.get(name, private=number % 3 == 0)
            assert message == servers.worlds[0].messages[name].body
            assert (message.version, message.source) == (servers.worlds[0].messages[name].version, name)
            assert message.edition == servers.worlds[0].editions[-1].number
            assert message.messages == message.sent.cost <= count / (count - 1)
    servers.check()
    assert [len(world.queries) for world in servers.worlds] == [40] * count
    assert len({tuple(paths(world)) for world in servers.worlds}) == 1


def test_what_is_asked_lies_within_the_set_and_differs_at_the_wanted_source_alone():
    servers = Several(2)
    with servers.client() as client:
        client.get("alpha", private=True)
        for _ in range(30):
            sent = client.get("gamma", private=False).sent
            first, second = sent.vectors
            assert [at for at in range(4) if first[at] != second[at]] == [2]
            assert {at for at in range(4) if first[at] or second[at]} <= set(sent.sources)
            assert sent.as_dict()["vectors"] == [list(first), list(second)]
    for place, world in enumerate(servers.worlds):
        assert all(sum(vector) % 2 == place for vector in world.vectors())


def test_an_empty_vector_is_sent_too():
    """One source out of one: server 0 gets zeros, and is asked all the same."""
    servers = Several(2)
    with servers.client() as client:
        client.get("alpha", private=True)
        while True:
            message = client.get("alpha", private=False)
            if len(message.sent.sources) == 1:
                break
        assert servers.worlds[0].vectors()[-1] == (0, 0, 0, 0)
        assert message == b"first of alpha"
        assert message.messages == 1


def test_each_server_sees_the_same_law_whatever_is_wanted():
    """Counted over all draws, which are enumerated: equal, not nearly."""
    for count in (2, 3):
        laws = []
        for wanted in range(4):
            seen: list[Any] = [Counter() for _ in range(count)]
            for draws in product(range(count), repeat=3):
                choices = iter(draws)
                vectors = wire.draw_vectors(
                    range(4),
                    wanted,
                    n=4,
                    servers=count,
                    randbelow=lambda k, choices=choices: next(choices),  # type: ignore[misc]
                )
                for place, vector in enumerate(vectors):
                    seen[place][vector] += 1
            laws.append(seen)
        assert all(law == laws[0] for law in laws)


# -- the journal -------------------------------------------------------------------------------------------


def test_all_vectors_are_durable_before_the_first_leaves(tmp_path):
    servers = Several(3, journal=tmp_path / "journal")
    durable: list[Any] = []

    def look(request):
        if request.path == wire.SUM_PATH:
            files = [path.read_bytes() for path in (tmp_path / "journal", tmp_path / "journal-wal") if path.exists()]
            queries = client.core.upstream.queries(client.core._outgoing(client.core.record))
            assert request.body in queries
            durable.append([any(query in file for file in files) for query in queries])

    servers.faults = [look] * 3  # type: ignore[list-item]
    with servers.client(tmp_path / "journal") as client:
        client.get("beta", private=True)
    servers.check()
    assert durable == [[True] * 3] * 3


def test_a_retry_sends_the_same_bytes_to_the_same_server(tmp_path):
    servers = Several(2, journal=tmp_path / "journal")
    with servers.client(tmp_path / "journal") as client:
        client.get("alpha", private=True)
        servers.faults[1] = lambda request: "after" if request.path == wire.SUM_PATH else None  # type: ignore[call-overload]
        with pytest.raises(ServerMissing, match=r"server1.*lost") as caught:
            client.get("beta", private=False)
        assert caught.value.answered == (0,)
        assert client.pending
    servers.faults[1] = None
    with servers.client(tmp_path / "journal") as client:
        assert client.pending
        assert client.retry() == b"first of beta"
        assert not client.pending
    servers.check()
    for world in servers.worlds:
        assert len({query for query in world.queries if wire.decode_sum_head(query).step == 1}) == 1
    assert len(servers.worlds[0].queries) == 3
    assert len(servers.worlds[1].queries) == 4  # two attempts were lost


def test_a_restart_goes_on_where_every_server_saw_it_last(tmp_path):
    servers = Several(2, journal=tmp_path / "journal")
    with servers.client(tmp_path / "journal") as client:
        client.get("alpha", private=True)
    with servers.client(tmp_path / "journal") as client:
        message = client.get("beta", private=False)
        assert (message.sent.step, message.sent.note) == (1, None)
    servers.check()
    assert [paths(world).count(wire.SEEN_PATH) for world in servers.worlds] == [1, 1]


@pytest.mark.parametrize("place", [0, 1])
def test_one_server_that_saw_something_else_is_a_doubt(tmp_path, place):
    servers = Several(2)
    with servers.client(tmp_path / "journal") as client:
        client.get("alpha", private=True)
    session, (step, digest) = next(iter(servers.worlds[place].seen.items()))
    cases = {
        Doubt.FORGOTTEN: {},
        Doubt.ROLLED_BACK: {session: (step + 1, digest)},
        Doubt.CONFLICT: {session: (step, "0" * 64)},
    }
    record = Journal(tmp_path / "journal")
    stored = present(record.found)
    record.close()
    for doubt, seen in cases.items():
        servers.worlds[place].seen = seen
        with servers.client(tmp_path / "journal") as client:
            assert client.get("beta", private=False).sent.note == f"{doubt}: everything was asked"
        journal = Journal(tmp_path / "journal")
        journal.store(stored)
        journal.close()
        servers.worlds[1 - place].seen[session] = (
            step,
            wire.sum_step_digest(stored.others if place == 0 else stored.query).hex(),
        )


@pytest.mark.parametrize(
    "change", [{"others": b""}, {"step": 5}, {"wanted": 0}, {"asked": b"\x02"}, {"query": b"x"}], ids=str
)
def test_a_record_whose_bytes_say_something_else_is_a_doubt(tmp_path, change):
    servers = Several(3)
    with servers.client(tmp_path / "journal") as client:
        while True:  # until more than one entry is not zero, so that another set or want shows
            client.get("beta", private=True)
            if sum(entry > 0 for entry in client.core.sent(client.core.record).vectors[0]) > 2:
                break
        record = client.core.record
    journal = Journal(tmp_path / "journal")
    journal.store(replace(record, **change))
    journal.close()
    with servers.client(tmp_path / "journal") as client:
        assert client.get("beta", private=False).sent.note == f"{Doubt.UNFIT}: everything was asked"


def test_other_servers_are_a_doubt(tmp_path):
    servers = Several(2)
    with servers.client(tmp_path / "journal") as client:
        client.get("alpha", private=True)
    three = Several(3)
    with three.client(tmp_path / "journal") as client:
        assert client.get("beta", private=False).sent.note == f"{Doubt.OTHER_SERVER}: everything was asked"


# -- editions ----------------------------------------------------------------------------------------------


def test_the_newest_edition_that_all_hold_is_asked_for():
    servers = Several(2)
    with servers.client() as client:
        servers.publish("beta", b"second of beta", [0])
        message = client.get("beta", private=True)
        assert (message, message.edition) == (b"first of beta", 4)
        servers.publish("beta", b"second of beta", [1])
        message = client.get("beta", private=True)
        assert (message, message.edition) == (b"second of beta", 5)


def test_an_edition_that_is_gone_is_replaced_with_the_same_vectors(tmp_path):
    servers = Several(2, journal=tmp_path / "journal")
    servers.worlds[1].held = 1
    published = iter([b"second", b"third"])

    def publish(request):
        if request.path == wire.SUM_PATH and (body := next(published, None)):
            servers.publish("gamma", body)

    servers.faults[1] = publish  # type: ignore[call-overload]  # between agreement and question
    with servers.client(tmp_path / "journal") as client:
        message = client.get("gamma", private=True)
        assert (message, message.edition) == (b"third", 6)
    servers.check()
    for world in servers.worlds:
        assert len(set(world.vectors())) == 1
        assert len({wire.decode_sum_head(query).edition for query in world.queries}) == 3
        assert len({wire.sum_step_digest(query) for query in world.queries}) == 1


def test_a_server_that_never_holds_an_edition_is_given_up():
    servers = Several(2)
    servers.worlds[1].held = 0
    waits: list[Any] = []
    with (
        servers.client(sleep=waits.append, backoff=0.5) as client,
        pytest.raises(BadAnswer, match="let go of every edition"),
    ):
        client.get("gamma", private=True)
    assert waits == [0.5, 1.0, 2.0, 4.0]  # the first other edition is asked for at once; then it has time to come


def test_servers_that_do_not_hold_the_same_are_named():
    servers = Several(2)
    servers.worlds[1].begin_life()
    with servers.client() as client, pytest.raises(BadAnswer, match="do not hold the same"):
        client.get("gamma", private=True)
    servers = Several(2)
    servers.publish("beta", b"one", [0])
    servers.publish("beta", b"two", [1])
    with servers.client() as client, pytest.raises(BadAnswer, match="disagree about edition 5"):
        client.get("gamma", private=True)
    servers = Several(2)
    servers.worlds[1].rename(NAMES[:3])
    with servers.client() as client, pytest.raises(CatalogueMismatch, match="different catalogues"):
        client.get("gamma", private=True)


def test_a_new_catalogue_starts_over(tmp_path):
    servers = Several(2)
    with servers.client(tmp_path / "journal") as client:
        client.get("alpha", private=True)
        for world in servers.worlds:
            world.rename(("zeta", *reversed(NAMES)))
        message = client.get("beta", private=False)
        assert message == b"first of beta"
        assert message.sent.note == f"{Doubt.OTHER_CATALOGUE}: everything was asked"


LIES: dict[str, Any] = {
    "noise": lambda world, body: b"\1" * len(body),
    "a bit after short messages": lambda world, body: body[:-1] + bytes(byte ^ 1 for byte in body[-1:]),
    "shorter": lambda world, body: body[:-1],
    "longer": lambda world, body: body + b"\0",
    **{f"another message of {name}": partial(another_message, name=name) for name in NAMES},
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liar", [0, 1])
def test_a_lie_is_refused_whatever_is_wanted(lie, liar):
    """The same error, the same bytes to every server, and the same request works once the lie has ended."""
    said = set()
    for name in NAMES:
        servers = Several(2)
        servers.publish("delta", b"longer than all the others")
        lying = iter([True])

        def told(request, servers=servers, lying=lying):
            reply = None
            if request.path == wire.SUM_PATH and next(lying, False):
                world = servers.worlds[liar]
                honest = Direct(world).exchange(request)
                reply = replace(honest, body=LIES[lie](world, honest.body) or b"\1")  # also where nothing was asked
            return reply

        servers.faults[liar] = told  # type: ignore[call-overload]
        with servers.client() as client:
            with pytest.raises(BadAnswer, match="do not fit together") as caught:
                client.get(name, private=True)
            assert client.pending
            assert all(len(world.vectors()) >= 1 for world in servers.worlds)
            said.add((caught.value.message, caught.value.hint))
            expected = servers.worlds[0].messages[name].body
            assert client.retry() == expected
        sums = [[query for query in world.queries if query[:2] == b"\0\2"] for world in servers.worlds]
        assert [len(set(queries)) for queries in sums] == [1, 1]
    assert len(said) == 1


def test_digests_come_first_and_only_what_changed_comes_again():
    servers = Several(2)
    with servers.client() as client:
        client.get("alpha", private=True)
        for world in servers.worlds:
            asked = paths(world)
            assert asked.index(wire.DIGESTS_PATH) < asked.index(wire.SUM_PATH)
        have = client.core.upstream.digests
        servers.publish("beta", b"new")
        client.get("alpha", private=True)
        for world in servers.worlds:
            assert world.requests[-2][1] == wire.digests_target(have)
        assert client.core.upstream.digests.of(0) == have.of(0)
        assert client.core.upstream.digests.of(1) != have.of(1)


@pytest.mark.parametrize("liar", [0, 1])
def test_servers_that_report_different_roots_are_not_asked(liar):
    """One of them has another frame under the same edition, or says that its frames are longer."""
    for change in ({"digests": b"x" * 128}, {"width": 900}):
        servers = Several(2)

        def told(request, servers=servers, change=change):
            if not request.path.startswith(wire.DIGESTS_PATH):
                return None
            honest = Direct(servers.worlds[liar]).exchange(request)
            digests = replace(wire.decode_digests(honest.body, servers.worlds[liar].catalogue, None), **change)
            return replace(honest, body=wire.encode_digests(digests, 0, ()))

        servers.faults[liar] = told  # type: ignore[call-overload]
        with servers.client() as client, pytest.raises(BadAnswer, match="disagree about edition 4"):
            client.get("alpha", private=True)
        assert [world.queries for world in servers.worlds] == [[], []]


def test_a_server_without_digests_is_of_an_older_version():
    servers = Several(2)
    servers.faults[1] = lambda request: Reply(404, (), b"") if request.path.startswith(wire.DIGESTS_PATH) else None  # type: ignore[call-overload]
    with servers.client() as client, pytest.raises(BadAnswer, match="no digests") as caught:
        client.get("alpha", private=True)
    assert "older version" in present(caught.value.hint)


def test_a_retry_after_a_publish_asks_for_the_same_of_the_new_edition(tmp_path):
    """The frames of the old edition cannot be told from others any more."""
    servers = Several(2, journal=tmp_path / "journal")
    with servers.client(tmp_path / "journal") as client:
        servers.faults[1] = lambda request: "after" if request.path == wire.SUM_PATH else None  # type: ignore[call-overload]
        with pytest.raises(ServerMissing):
            client.get("beta", private=True)
    servers.faults[1] = None
    servers.publish("beta", b"second of beta")
    with servers.client(tmp_path / "journal") as client:
        assert client.retry() == b"second of beta"
    servers.check()
    for world in servers.worlds:
        assert len({wire.sum_step_digest(query) for query in world.queries}) == 1


@pytest.mark.parametrize(
    "reply",
    [Reply(400, (), b""), Reply(200, (), b"x"), Reply(200, (*wire.SUM_HEADERS, ("content-encoding", "gzip")), b"x")],
    ids=["refused", "of no type", "encoded"],
)
def test_an_answer_of_another_kind_is_not_used(reply):
    servers = Several(2)
    servers.faults[0] = lambda request: reply if request.path == wire.SUM_PATH else None  # type: ignore[call-overload]
    with servers.client() as client, pytest.raises(BadAnswer):
        client.get("beta", private=True)


# -- a server that is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("private", [True, False], ids=["ON", "OFF"])
def test_without_one_server_there_is_an_error_and_the_request_counts(tmp_path, place, private):
    servers = Several(2, journal=tmp_path / "journal")
    with servers.client(tmp_path / "journal") as client:
        client.get("alpha", private=True)
        servers.faults[place] = "before"  # type: ignore[assignment]
        with pytest.raises(ServerMissing) as caught:
            client.get("gamma", private=private)
        assert caught.value.answered == (1 - place,)
        assert URLS[place] in caught.value.message
        assert (client.core.session.memory.secret, client.core.session.memory.last) == (2, (0, 1, 2, 3))
        servers.faults[place] = None
        assert client.retry() == b"first of gamma"
    servers.check()


@pytest.mark.parametrize("private", [True, False], ids=["ON", "OFF"])
def test_everything_comes_from_one_server_where_that_is_allowed(tmp_path, private):
    servers = Several(2, journal=tmp_path / "journal")
    with servers.client(tmp_path / "journal", on_missing="everything") as client:
        client.get("alpha", private=True)
        servers.faults[0] = "before"  # type: ignore[call-overload]
        message = client.get("gamma", private=private)
        assert (message, message.messages, message.sent.mirror) == (b"first of gamma", 4, True)
        assert not client.pending
        assert client.core.session.memory.secret == 2
        servers.faults[1] = "before"  # type: ignore[call-overload]
        with pytest.raises(ServerUnreachable):
            client.get("gamma", private=private)
        servers.faults = [None, None]
        assert client.get("beta", private=False) == b"first of beta"
    servers.check()
    assert wire.CHANGES_PATH in paths(servers.worlds[1])


@pytest.mark.parametrize("sent", [True, False], ids=["sent", "never sent"])
@pytest.mark.parametrize("private", [True, False], ids=["ON", "OFF"])
def test_a_request_that_is_answered_by_one_server_counts_once(tmp_path, private, sent):
    """A filter steps on with every request; everything from one server is the same request again."""
    servers = Several(2)
    model = request_model(P4, NAMES)
    with servers.client(tmp_path / "journal", model, scheme="greedy") as client:
        client.get("alpha", private=True)
        before = client.core.session.memory.stored()
        servers.faults[0] = lambda request: "before" if request.path == wire.SUM_PATH or not sent else None  # type: ignore[call-overload]
        with pytest.raises(ServerMissing):
            client.get("gamma", private=private)
        once = client.core.session.memory.stored()
    assert once != before
    with servers.client(tmp_path / "journal", model, scheme="greedy", on_missing="everything") as client:
        assert client.core.session.memory.stored() == once
        message = client.retry()
        assert (message, message.sent.mirror, message.sent.private) == (b"first of gamma", True, private)
        assert client.core.session.memory.stored() == once


# -- without a model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_without_a_model_every_request_is_private(tmp_path, count):
    servers = Several(count)
    with servers.client(tmp_path / "journal", model=None) as client:
        for name in (*NAMES, *NAMES):
            message = client.get(name, private=True)
            assert message == f"first of {name}".encode()
            assert message.sent.sources == (0, 1, 2, 3)
        with pytest.raises(InvalidInput, match="every request is private"):
            client.get("beta", private=False)
        with pytest.raises(UnknownSource):
            client.get("nobody", private=True)
        with pytest.raises(InvalidInput, match="no tables"):
            client.tables  # noqa: B018
        if count > 1:
            assert client.expected_cost(private=True) == float(wire.expected_cost(4, count))
    servers.check()


# -- what is known without asking --------------------------------------------------------------------------


def test_expected_costs_are_those_of_the_code():
    servers = Several(2)
    with servers.client(scheme="greedy") as client:
        assert client.expected_cost(private=True) == 2 - 2**-3
        client.get("alpha", private=True)
        assert client.expected_cost(private=True) == 2 - 2**-3
        table = client.tables.of(client.core.session.memory).as_dict()
        expected = sum(
            mass / table["unit"] * float(wire.expected_cost(len(query), 2))
            for query, mass in zip(table["queries"], table["mass"], strict=True)
        )
        assert client.expected_cost(private=False) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [2, 3])
def test_expected_bytes_are_messages_times_the_longest_frame_and_known_before_anything_is_asked(count):
    servers = Several(count)
    servers.publish("delta", b"x" * 500)
    chunk = wire.chunk_length(500 + wire.FRAME_OVERHEAD, count)
    with servers.client(scheme="greedy") as client:
        ahead = client.expected_bytes(private=True)
        assert ahead == pytest.approx(float(wire.expected_cost(4, count)) * (count - 1) * chunk)
        assert all(world.queries == [] for world in servers.worlds)
        for name, private in [("alpha", True), ("beta", False), ("delta", True)]:
            message = client.get(name, private=private)
            assert message.received == message.messages * (count - 1) * chunk
        expected = client.expected_cost(private=False) * (count - 1) * chunk
        assert client.expected_bytes(private=False) == pytest.approx(expected)
        told = client.forecast()
        assert (told.private_now, told.open_now) == pytest.approx((ahead, expected))
    with servers.client(model=None) as client:
        assert client.expected_bytes(private=False) == client.expected_bytes(private=True) == pytest.approx(ahead)
        told = client.forecast()
        assert (told.private_now, told.open_now) == pytest.approx((ahead, ahead))


def test_addresses_are_checked():
    for urls in ([], ["http://a.test", "http://a.test/"], [f"http://{n}.test" for n in range(17)]):
        with pytest.raises(InvalidInput):
            Client(urls, CHAIN, MemoryJournal())
    with pytest.raises(InvalidInput, match="on_missing"):
        Client(URLS[:2], CHAIN, MemoryJournal(), on_missing="never")
    assert repr(Client(URLS[:2], None, MemoryJournal())) == "<Client: no model>"
