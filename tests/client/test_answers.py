"""Half, slow, split, damaged, reordered and wrong answers: delivered right or refused by name, then the same bytes."""

import itertools
import time

import pytest
from tests.support.clients import Client
from tests.support.waiting import PATIENCE
from tests.support.world import FRAME, NAMES, P4, Direct, World, encode_reply, listening

import onoff
from onoff import wire
from onoff.client import MemoryJournal
from onoff.errors import BadAnswer, ServerUnreachable
from onoff.upstream.transport import Reply

CHAIN = onoff.MarkovChain(P4, names=NAMES)
HEADERS = wire.ANSWER_HEADERS


def whole(world):
    """The answer to a query for all four sources, with its head."""
    epoch = world.catalogue.epoch
    frames = (wire.encode_frame(s, world.messages[name], epoch=epoch, frame_size=FRAME) for s, name in enumerate(NAMES))
    return encode_reply(Reply(200, HEADERS, wire.encode_answer(frames)))


LENGTH = len(whole(World()))


def cut(connection, raw, at):
    connection.sendall(raw[:at])


def split(connection, raw, at):
    connection.sendall(raw[:at])
    connection.sendall(raw[at:])


def flip(connection, raw, at):
    connection.sendall(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])


def lose(connection, raw, at):
    connection.sendall(raw[:at] + raw[at + 1 :])


def repeat(connection, raw, at):
    connection.sendall(raw[:at] + raw[at : at + 1] + raw[at:])


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("fault", [cut, split, flip, lose, repeat])
def test_a_fault_at_every_byte(fault):
    """All frames are asked for, so a fault in any of them is one; the first attempt meets it, the second does not."""
    world = World()
    at = None

    def deliver(connection, path, raw):
        if path == wire.QUERY_PATH and at is not None:
            assert len(raw) == LENGTH
            fault(connection, raw, at)
        else:
            connection.sendall(raw)

    refused = 0
    with listening(world, deliver) as server:
        settings = {"tick": 0, "attempts": 1, "background": False, "timeout": PATIENCE}
        with Client(server.url, CHAIN, MemoryJournal(), "single", mirror=False, **settings) as client:
            for offset in range(LENGTH):
                at = offset
                name = NAMES[offset % 4]
                try:
                    message = client.get(name, private=True)
                except ServerUnreachable:
                    refused += 1
                    at = None
                    message = client.retry()
                    assert world.queries[-1] == world.queries[-2]
                assert message == f"first of {name}".encode()
    world.check()
    if fault is cut:
        assert refused == LENGTH
    elif fault is split:
        assert refused == 0
    else:
        assert refused >= 4 * FRAME  # every byte of every frame, and much of the head


def test_an_answer_byte_by_byte_is_put_together():
    world = World()

    def deliver(connection, path, raw):
        for byte in raw:
            connection.sendall(bytes([byte]))

    with (
        listening(world, deliver) as server,
        Client(server.url, CHAIN, MemoryJournal(), "single", mirror=False, tick=0, attempts=1) as client,
    ):
        assert client.get("delta", private=True) == b"first of delta"


@pytest.mark.slow(reason="programs are started and waited for")
@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_never_ends_is_given_up_in_time(part):
    """One byte at a time keeps every single read alive; the deadline is for the whole."""
    world = World()

    def deliver(connection, path, raw):
        if path != wire.QUERY_PATH:
            connection.sendall(raw)
            return
        end = raw.index(b"\r\n\r\n") + 4 if part == "body" else 20
        connection.sendall(raw[:end])
        for byte in itertools.repeat(b"x" if part == "head" else b"\0", 400):
            connection.sendall(byte)
            time.sleep(0.02)

    with (
        listening(world, deliver) as server,
        Client(server.url, CHAIN, MemoryJournal(), "single", mirror=False, tick=0, attempts=1, timeout=1.5) as client,
    ):
        while not world.queries:  # on a machine so busy that catalogue or connection take as long, once more
            with pytest.raises(ServerUnreachable, match=r"no whole answer within 1\.5 s"):
                client.get("delta", private=True)
    assert len(set(world.queries)) == len(world.queries)  # given up, and not sent again


def frames_of(reply):
    return [reply.body[at : at + FRAME] for at in range(0, len(reply.body), FRAME)]


def as_reply(frames, headers=HEADERS):
    return Reply(200, headers, b"".join(frames))


WRONG = {
    "reordered": lambda f, w: as_reply([f[1], f[0], f[2], f[3]]),
    "turned round": lambda f, w: as_reply(f[::-1]),
    "one twice": lambda f, w: as_reply([f[0], f[0], f[2], f[3]]),
    "one missing": lambda f, w: as_reply(f[:3]),
    "one more": lambda f, w: as_reply([*f, f[3]]),
    "nothing": lambda f, w: as_reply([]),
    "half a frame more": lambda f, w: as_reply([*f, f[3][:100]]),
    "of another epoch": lambda f, w: as_reply(
        wire.encode_frame(s, w.messages[name], epoch=1, frame_size=FRAME) for s, name in enumerate(NAMES)
    ),
    "frames of another size": lambda f, w: as_reply(
        wire.encode_frame(s, w.messages[name], epoch=w.catalogue.epoch, frame_size=2 * FRAME)
        for s, name in enumerate(NAMES[:2])
    ),
    "HTML": lambda f, w: Reply(200, (("content-type", "text/html"),), b"<p>Sign in to this network</p>"),
    "no type": lambda f, w: as_reply(f, ()),
    "two types": lambda f, w: as_reply(f, HEADERS + HEADERS),
    "compressed": lambda f, w: as_reply(f, (*HEADERS, ("content-encoding", "gzip"))),
    "identity said": lambda f, w: as_reply(f, (*HEADERS, ("content-encoding", "identity"))),
    "a redirect": lambda f, w: Reply(302, (("location", "http://elsewhere.test/"),), b""),
    "no content": lambda f, w: Reply(204, HEADERS, b""),
    "part of it": lambda f, w: Reply(206, HEADERS, b"".join(f)),
    "not modified": lambda f, w: Reply(304, HEADERS, b""),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_answer_is_refused_by_name_and_the_same_bytes_are_sent_again(kind):
    world = World()
    wrong = True

    def fault(request):
        if request.path != wire.QUERY_PATH or not wrong:
            return None
        right = World().answer(request.method, request.path, request.headers, request.body)
        return WRONG[kind](frames_of(right), world)

    settings = {"tick": 0, "attempts": 1, "background": False, "transport": Direct(world, fault)}
    with Client("http://server.test", CHAIN, MemoryJournal(), "single", mirror=False, **settings) as client:
        with pytest.raises(BadAnswer):
            client.get("gamma", private=True)
        wrong = False
        assert client.retry() == b"first of gamma"
    assert len(set(world.queries)) == 1
    assert len(world.queries) == 2


def test_what_is_longer_than_any_answer_is_not_read_to_its_end():
    world = World()
    sent = 0

    def deliver(connection, path, raw):
        nonlocal sent
        if path != wire.QUERY_PATH:
            connection.sendall(raw)
            return
        connection.sendall(b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b"10000\r\n" + bytes(0x10000) + b"\r\n")
            sent += 0x10000

    with (
        listening(world, deliver) as server,
        Client(server.url, CHAIN, MemoryJournal(), "single", mirror=False, tick=0, attempts=1) as client,
        pytest.raises(ServerUnreachable, match="too long"),
    ):
        client.get("gamma", private=True)
    assert sent < 1000 * 0x10000
