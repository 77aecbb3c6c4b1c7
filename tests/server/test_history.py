"""The last editions: every one that can be known is found as it was, and none for longer than it must."""

import random

import pytest
from tests.support.typed import present

from onoff import wire
from onoff.server import history as module
from onoff.server.history import History
from onoff.server.shelf import Shelf
from onoff.server.store import Latest, Stamp

NAMES = ("a", "b", "c", "d")
LIFE = b"l" * 16


class World:
    """A store's editions, and a shelf that looks at them now and then."""

    def __init__(self, frame_size=None):
        self.catalogue = wire.Catalogue(NAMES, frame_size) if frame_size else wire.Catalogue(NAMES, None, 1000)
        self.messages = {}
        self.changed = {}
        self.number = 0
        self.life = LIFE
        self.digests = [self.digest()]
        self.editions = [self.frames()]
        self.shelf = Shelf()
        self.looked = -1
        self.clock = 0.0
        self.look()
        self.history = History(self.shelf, clock=lambda: self.clock)

    def digest(self):
        return bytes([self.number % 256, self.number // 256]).ljust(32, b"d")

    def frames(self):
        return [
            wire.encode_frame(
                s, self.messages.get(name, wire.NOTHING), epoch=self.catalogue.epoch, frame_size=None, limit=1000
            )
            for s, name in enumerate(NAMES)
        ]

    def publish(self, name, body):
        self.number += 1
        self.messages[name] = wire.WireMessage(self.number, 1, "a/b", body)
        self.changed[name] = self.number
        self.digests.append(self.digest())
        self.editions.append(self.frames())

    def look(self):
        whole = self.looked < 0
        names = [name for name in self.messages if self.changed[name] > self.looked]
        edition = wire.Edition(self.catalogue.epoch, self.life, self.number, self.digest())
        self.shelf.take(
            Latest(
                Stamp(self.life, self.number),
                self.catalogue,
                {name: self.messages[name] for name in names},
                whole,
                edition,
                {name: self.changed[name] for name in names},
            )
        )
        self.looked = self.number

    def held(self):
        """The numbers of the editions that are found, each checked against what it was."""
        numbers = []
        for number in range(self.number + 2):
            found = self.history.find(number)
            if found is not None:
                frames = [found.past.get(s, frame) for s, frame in enumerate(self.history.frames)]
                assert frames == self.editions[number]
                assert found.width == max(map(len, frames))
                assert found.digest in {None, self.digests[number]}
                numbers.append(number)
        return numbers


@pytest.mark.parametrize("frame_size", [None, 512])
def test_editions_that_were_looked_at_are_found_as_they_were(frame_size):
    world = World(frame_size)
    rng = random.Random(1)
    for _ in range(30):
        world.publish(rng.choice(NAMES), rng.randbytes(rng.randrange(200)))
        world.look()
    assert world.held() == list(range(31))
    assert all(present(world.history.find(number)).digest == world.digests[number] for number in range(31))


def test_several_publishes_between_two_looks_are_told_apart_if_no_source_came_twice():
    world = World()
    for name in ["b", "a", "d"]:
        world.publish(name, name.encode() * 9)
    world.look()
    assert world.held() == [0, 1, 2, 3]
    assert present(world.history.find(2)).digest is None
    world.history.learn_digest(2, world.digests[2])
    assert present(world.history.find(2)).digest == world.digests[2]


@pytest.mark.parametrize(
    ("order", "held"),
    [
        ("aa", [0, 2]),
        ("aba", [0, 3]),
        ("abb", [0, 1, 3]),
        ("abcb", [0, 1, 4]),
        ("abcd", [0, 1, 2, 3, 4]),
        ("abcda", [0, 5]),
        ("abcdd", [0, 1, 2, 3, 5]),
    ],
)
def test_what_cannot_be_known_is_not_guessed(order, held):
    world = World()
    for k, name in enumerate(order):
        world.publish(name, b"%d" % k)
    world.look()
    assert world.held() == held


def test_random_looks_never_give_a_wrong_edition():
    rng = random.Random(5)
    for _ in range(30):
        world = World(rng.choice([None, 512]))
        for _ in range(40):
            world.publish(rng.choice(NAMES), rng.randbytes(rng.randrange(300)))
            if rng.randrange(2):
                world.look()
        world.look()
        assert {0, world.number} <= set(world.held())


def test_a_minute_and_at_least_64_editions_are_held():
    world = World()
    for k in range(200):
        world.clock = k * 0.1
        world.publish("a", b"%d" % k)
        world.look()
    assert len(world.held()) == 201  # all within a minute
    for k in range(100):
        world.clock = 100 + k
        world.publish("b", b"%d" % k)
        world.look()
    assert world.held() == list(range(300 - module.MIN_EDITIONS, 301))


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    world = World()
    for _ in range(500):
        world.publish("a", bytes(900))
        world.look()
    kept = world.history._bytes
    assert 64 * 900 < kept <= 101_100


def test_another_life_begins_anew():
    world = World()
    world.publish("a", b"1")
    world.look()
    before = world.history.life
    world.life, world.looked = b"m" * 16, -1
    world.look()
    assert world.history.life == before + 1
    assert world.held() == [1]
