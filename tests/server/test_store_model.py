"""Any interleaving of publishes, restarts, restores and changes of the catalogue on a store equals a dictionary."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from onoff.errors import InvalidWire, UnknownSource
from onoff.server.admin import edit_catalogue, open_store
from onoff.server.store import LastStep, Stamp
from onoff.wire import WireMessage

LIMIT = 200
NAMES = st.sampled_from(["a", "b", "ç", "d"])
SESSIONS = st.sampled_from([b"s" * 16, b"t" * 16])


class Model(RuleBasedStateMachine):
    """A store and the dictionary that it is to equal; `seen` is what a reader has, who takes only what is new."""

    def __init__(self, where):
        super().__init__()
        self.runner = asyncio.Runner()
        self.where, self.run = where, self.runner.run
        self.store = self.run(open_store(where, limit=LIMIT))
        self.names: list[str] = []
        self.messages: dict[str, WireMessage] = {}
        self.last: dict[bytes, LastStep] = {}
        self.saved: tuple[Any, dict[str, WireMessage]] | None = None
        self.stamp, self.seen = Stamp(), dict[str, WireMessage]()
        self.numbers = -1

    def teardown(self):
        self.run(self.store.close())
        self.runner.close()

    @rule(names=st.sets(NAMES))
    def change_catalogue(self, names):
        dropped = [name for name in self.names if name not in names]
        self.names = list((self.run(edit_catalogue(self.store, add=sorted(names), drop=dropped))).names)
        assert set(self.names) == names
        self.messages = {name: message for name, message in self.messages.items() if name in names}

    @rule(name=NAMES, body=st.binary(max_size=LIMIT + 1), time=st.integers(0, 1 << 40))
    def publish(self, name, body, time):
        if name not in self.names or len(body) > LIMIT:
            with pytest.raises((UnknownSource, InvalidWire)):
                self.run(self.store.publish(name, "a/b", body, time))
        else:
            version = self.messages[name].version + 1 if name in self.messages else 1
            self.messages[name] = WireMessage(version, time, "a/b", body)
            assert self.run(self.store.publish(name, "a/b", body, time)) == self.messages[name]

    @rule(bodies=st.lists(st.binary(max_size=9), min_size=2, max_size=5), name=NAMES)
    @precondition(lambda self: self.names)
    def publish_at_once(self, bodies, name):
        name = name if name in self.names else self.names[0]

        async def all_of_them():
            return await asyncio.gather(*(self.store.publish(name, "a/b", body, 1) for body in bodies))

        done = self.run(all_of_them())
        before = self.messages[name].version if name in self.messages else 0
        assert sorted(one.version for one in done) == list(range(before + 1, before + 1 + len(bodies)))
        self.messages[name] = max(done, key=lambda one: one.version)

    @rule()
    def restart(self):
        self.run(self.store.close())
        self.store = self.run(open_store(self.where))

    @rule()
    def save(self):
        self.saved = self.run(self.store.catalogue()), dict(self.messages)

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self):
        assert self.saved is not None
        catalogue, messages = self.saved
        self.run(self.store.restore(catalogue, messages))
        self.names, self.messages = list(catalogue.names), dict(messages)

    @rule(session=SESSIONS, step=st.integers(0, 3), digest=st.sampled_from([b"x" * 32, b"y" * 32]))
    def admit(self, session, step, digest):
        last, sent = self.last.get(session), LastStep(step, digest)
        good = last is None or step > last.step or sent == last
        stamp, conflict = self.run(self.store.admit(session, step, digest))
        assert conflict == (None if good else last)
        assert stamp == self.run(self.store.latest(Stamp())).stamp
        if good:
            self.last[session] = sent

    @invariant()
    def the_store_is_the_dictionary(self):
        new = self.run(self.store.latest(self.stamp))  # first: nothing else has looked at the store since
        whole = self.run(self.store.latest(Stamp()))
        assert (whole.messages, list(whole.catalogue.names)) == (self.messages, self.names)
        self.seen = dict(new.messages) if new.whole else {**self.seen, **new.messages}
        assert self.seen == self.messages
        assert whole.edition == new.edition
        assert (new.stamp == self.stamp) == (new.edition.number == self.numbers)
        assert new.edition.number >= self.numbers
        self.stamp, self.numbers = new.stamp, new.edition.number
        assert all(self.run(self.store.last_step(session)) == last for session, last in self.last.items())


FAST = settings(max_examples=40, stateful_step_count=20, deadline=None, database=None)


@pytest.fixture
def fresh(where, request):
    """An address of an empty store, another one for each call."""
    if "://" not in where:
        numbers = itertools.count()
        return lambda: f"{where}-{next(numbers)}"
    redis = request.getfixturevalue("shared_redis")
    return lambda: (redis.flush(), where)[1]


@pytest.mark.slow(reason="hundreds of publishes, each on disk")
def test_any_interleaving_equals_a_dictionary(fresh):
    run_state_machine_as_test(lambda: Model(fresh()), settings=FAST)
