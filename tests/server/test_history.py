"""The last editions: every one that can be known is found as it was, and none for longer than it must."""

import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.typed import present

from onoff import wire
from onoff.server import changes as module
from onoff.server.answers import Shelf
from onoff.server.changes import History
from onoff.server.store import Latest, Stamp

NAMES = ("a", "b", "c", "d")
LIFE = b"l" * 16


class World:
    """A store's editions, and a shelf that looks at them now and then."""

    def __init__(self, frame_size=None, **limits):
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
        self.history = History(self.shelf, clock=lambda: self.clock, **limits)

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
                past = self.history.past(number)
                frames = [past.get(s, frame) for s, frame in enumerate(self.history.frames)]
                if found.digest is not None:
                    digests = self.history.digests(found)
                    assert digests.digests == b"".join(map(wire.frame_digest, frames))
                    assert (digests.edition.number, digests.width) == (number, found.width)
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


@given(
    frame_size=st.sampled_from([None, 512]),
    events=st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=300), st.booleans()), max_size=40),
)
@settings(max_examples=100)
def test_whatever_is_published_and_whenever_it_looks_no_edition_is_wrong(frame_size, events):
    world = World(frame_size)
    for name, body, looks in events:
        world.publish(name, body)
        if looks:
            world.look()
            assert {0, world.number} <= set(world.held())
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


def test_memory_is_bounded():
    world = World(most_bytes=100_000)
    for _ in range(500):
        world.publish("a", bytes(900))
        world.look()
    assert 64 * 900 < world.history.bytes <= 101_100


def lines_for_the_oldest(editions):
    """How many lines of the module run to find the oldest edition and its frames."""
    world = World()
    for k in range(editions):
        world.publish(NAMES[k % 3], b"%d" % k)
        world.look()
    lines = 0

    def count(frame, event, argument):
        nonlocal lines
        lines += event == "line" and frame.f_code.co_filename == module.__file__
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found, past = world.history.find(0), world.history.past(0)
    finally:
        sys.settrace(before)
    assert found is not None
    assert [past.get(s, frame) for s, frame in enumerate(world.history.frames)] == world.editions[0]
    return lines


def test_an_old_edition_is_found_without_going_through_all_that_came_after():
    assert lines_for_the_oldest(2000) == lines_for_the_oldest(50) < 50


def test_what_was_let_go_of_takes_no_memory_and_the_rest_is_still_right():
    """Sources that change often and seldom: lists of their frames are cut now and then."""
    world = World(least=5, seconds=3.0)
    rng = random.Random(8)
    for k in range(400):
        world.clock = float(k)
        world.publish(rng.choice("aaaaaabbc") if k < 300 else "a", rng.randbytes(rng.randrange(100)))
        world.look()
        assert world.held() == list(range(max(0, k + 1 - 5), k + 2))
    kept = world.history._superseded
    assert set(kept) == {0}
    assert sum(len(superseded._frames) for superseded in kept.values()) <= 11
    assert world.history.bytes == sum(len(frame) for superseded in kept.values() for frame in superseded._frames)


def test_another_life_begins_anew():
    world = World()
    world.publish("a", b"1")
    world.look()
    before = world.history.life
    world.life, world.looked = b"m" * 16, -1
    world.look()
    assert world.history.life == before + 1
    assert world.held() == [1]
