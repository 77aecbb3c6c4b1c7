"""What may enter a person's public belief: exact enumerations, and a broken twin for every rule.

People are of types. The session's model is the population with its types weighted by the open history (`own_law` with
no weight on the own law), so that the truth is known and every path of requests and every draw can be enumerated. The
session is stopped and started after every request, from what is kept: model, memory and history. Leaks are
I(X ; Q_t | Q_[t-1]) in bits, X the last private request, summed over the steps after it.
"""

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.support.typed import as_a, present

from onoff.audit.exact import enumerate_branches
from onoff.errors import InvalidInput
from onoff.information import mutual_information
from onoff.model.context_tree import all_contexts
from onoff.model.contexts import RequestModel
from onoff.model.patterns import parse
from onoff.model.people import OpenHistory, own_law
from onoff.model.rows import Rows
from onoff.session import Query, Session
from onoff.session.filter import ModelFilter
from onoff.session.seeded import SeededEntropy
from onoff.session.session import LOST_PAST, history_after

pytestmark = pytest.mark.slow(reason="every path of requests and draws is enumerated")

NOTHING = 1e-12
LEAK = 1e-4


def people_of(n, order=1):
    """Two types that go to different places."""
    contexts = all_contexts(n, order)
    laws = np.random.default_rng(n).dirichlet(np.full(n, 0.8), size=(2, len(contexts)))
    return RequestModel(0.9 * laws + 0.1 / n, contexts, weights=[0.4, 0.6])


def knowing(people, history):
    """The population, its types weighted by the history. Nothing of it is drawn."""
    plain = SeededEntropy(np.random.default_rng(0))
    return own_law(people, history, cap=1, weight=0, trust=1, particles=1, entropy=plain)


class Person:
    """Sends requests by the rules, started anew for every one of them."""

    def __init__(self, people, server="here"):
        self.people = people
        self.history = OpenHistory(server, people.n)
        self.model = knowing(people, self.history)
        self.session = Session(self.model, "single", history=self.history)

    def request(self, x, private, entropy):
        self.restart(x, private)
        before = self.session.memory
        self.session = self.session.fork(entropy)
        query = self.session.request(x, private=private)
        self.note(before, query, x, private)
        return query.sources

    def restart(self, x, private):
        """While nothing is hidden, a model is made of the history; afterwards model and memory are carried on."""
        if self.history.hidden:
            kept = ModelFilter.start(self.model).restored((), 0, self.session.memory.stored())
            self.session = Session(self.model, "single", kept, history=self.history)
        else:
            self.model = knowing(self.people, self.history)
            self.session = Session(self.model, "single", history=self.history)

    def note(self, before, query, x, private):
        self.history = present(self.session.history)

    def rebuild(self, history, wanted):
        """A model made of a history, in the state after a private request, whatever the queries so far told."""
        self.model = knowing(self.people, replace(history, hidden=False))
        self.session = Session(self.model, "single", ModelFilter.after_everything(self.model, wanted))


class CountsPrivate(Person):
    def note(self, before, query, x, private):
        super().note(before, query, x, private)
        if private:
            self.history = replace(self.history, asked=(*self.history.asked, x))
            self.rebuild(self.history, x)


class LeavesSetsOut(Person):
    """At every ON the model is made of the open values alone."""

    def note(self, before, query, x, private):
        super().note(before, query, x, private)
        if private:
            self.rebuild(self.history, x)


class CountsSizeOne(Person):
    """At every ON after queries for one source each, these are counted as if they had been plain."""

    plain: tuple[int, ...] | None = ()

    def note(self, before, query, x, private):
        super().note(before, query, x, private)
        if private and self.plain:
            self.rebuild(OpenHistory("here", self.people.n, (None, *self.plain)), x)
        elif not private and before.rows.distinct > 1 and self.plain is not None:
            self.plain = (*self.plain, x) if len(query) == 1 else None


class RebuildsWhileHidden(Person):
    """Before every OFF request the model is made anew, and what it tells is taken for all that was said."""

    def restart(self, x, private):
        super().restart(x, private)
        if self.history.hidden and not private:
            memory = self.session.memory
            assert isinstance(memory, ModelFilter)
            self.rebuild(self.history, int(memory.us[memory.secret_row, -1]))
            self.session.history = self.history


class StartsAfresh(Person):
    def restart(self, x, private):
        self.session = Session(knowing(self.people, OpenHistory("here", self.people.n)), "single")
        self.session.history = self.history


@cache
def leak_of(kind, n, pattern, elsewhere=0):
    """Bits after the last ON. elsewhere: so many requests go openly to another server before, and are not seen."""
    people, statuses = people_of(n, 0 if elsewhere else 1), parse(pattern)
    last = max(t for t, on in enumerate(statuses) if on)
    law: dict[Any, Fraction] = defaultdict(Fraction)
    for path in product(range(n), repeat=elsewhere + len(statuses)):
        chance = Fraction(chance_of(people, path))

        def run(entropy, path=path):
            person = kind(people)
            for x in path[:elsewhere]:
                person.elsewhere(x)
            return tuple(person.request(x, on, entropy) for x, on in zip(path[elsewhere:], statuses, strict=True))

        for probability, queries in enumerate_branches(run):
            law[path[elsewhere + last], queries] += chance * probability
    return sum(told(law, t) - told(law, t - 1) for t in range(last + 1, len(statuses)))


def chance_of(people, path):
    chances = people.weights.copy()
    for t, x in enumerate(path):
        chances = chances * [people.law(z, people.context_of(path[:t]))[x] for z in range(people.types)]
    return chances.sum()


def told(law, t):
    joint: dict[Any, Fraction] = defaultdict(Fraction)
    for (x, queries), chance in law.items():
        joint[x, queries[: t + 1]] += chance
    return mutual_information({key: float(chance) for key, chance in joint.items()})


@pytest.mark.parametrize(
    ("n", "pattern"),
    [(2, "OFF OFF ON OFF OFF"), (2, "OFF ON OFF ON OFF OFF"), (2, "ON OFF OFF ON OFF"), (3, "OFF ON OFF OFF")],
)
def test_by_the_rules_nothing_is_told_whenever_the_session_is_started_again(n, pattern):
    assert abs(leak_of(Person, n, pattern)) < NOTHING


@pytest.mark.parametrize(
    ("twin", "n", "pattern"),
    [
        (CountsPrivate, 2, "ON OFF OFF"),
        (CountsPrivate, 3, "ON OFF"),
        (LeavesSetsOut, 2, "ON OFF OFF ON OFF"),
        (LeavesSetsOut, 3, "ON OFF ON OFF"),
        (CountsSizeOne, 2, "ON OFF OFF ON OFF"),
        (CountsSizeOne, 3, "ON OFF ON OFF"),
        (RebuildsWhileHidden, 2, "ON OFF OFF OFF"),
        (RebuildsWhileHidden, 3, "ON OFF OFF"),
        (StartsAfresh, 2, "ON OFF OFF"),
        (StartsAfresh, 3, "ON OFF"),
    ],
)
def test_each_rule_broken_tells(twin, n, pattern):
    assert leak_of(twin, n, pattern) > LEAK
    assert abs(leak_of(Person, n, pattern)) < NOTHING


class AsksElsewhere(Person):
    """What another server was openly asked is no part of this one's history."""

    def elsewhere(self, x):
        """Nothing of it enters."""


class CountsElsewhere(Person):
    def elsewhere(self, x):
        self.history = self.history.after(x)


@pytest.mark.parametrize("n", [2, 3])
def test_another_servers_history_tells_and_this_ones_does_not(n):
    assert abs(leak_of(AsksElsewhere, n, "ON OFF OFF", elsewhere=1)) < NOTHING
    assert leak_of(CountsElsewhere, n, "ON OFF OFF", elsewhere=1) > LEAK


# -- what the session takes in and refuses -------------------------------------------------------------------


def test_only_what_was_plain_whatever_its_value_enters():
    people = people_of(3)
    start = Session(people, "single").memory
    empty = OpenHistory("here", 3)
    assert history_after(empty, start, Query((1,), 3), 1, private=False).asked == (1,)
    hiding = ModelFilter.after_everything(people, 0)
    assert history_after(empty.after(2), hiding, Query((1,), 3), 1, private=False).asked == (2, None)
    assert history_after(empty.after(2), start, Query((0, 1, 2), 3), 1, private=True).asked == (2, None)
    noted = history_after(empty, start, Query((0, 1, 2), 3, LOST_PAST), 1, private=False)
    assert (noted.asked, noted.hidden) == ((), True)
    blind = replace(as_a(ModelFilter, start), blind=True)
    assert history_after(empty, blind, Query((1,), 3), 1, private=False).asked == ()


def test_a_session_starts_where_the_history_ends_and_hands_it_on():
    people, history = people_of(3), OpenHistory("here", 3, (0, None, 1, 2))
    model = knowing(people, history)
    session = Session(model, "greedy", history=history)
    rows = model.weights @ np.array([model.law(z, model.context_of([1, 2])) for z in range(model.types)])
    found = as_a(Rows, session.memory.rows).weights[0]
    assert found / found.sum() == pytest.approx(rows, abs=1e-12)
    session.request(1, private=False)
    assert session.history == history.after(1)
    session.request(0, private=True)
    assert session.history == history.after(1).after(None, private=True)
    session.request(0, private=False)
    assert session.history == history.after(1).after(None, private=True)


def test_a_session_refuses_to_know_less_than_the_server_or_more():
    people, history = people_of(3), OpenHistory("here", 3, (0, 1))
    model = knowing(people, history)
    with pytest.raises(InvalidInput, match="not made of this history"):
        Session(people, history=history)
    with pytest.raises(InvalidInput, match="not made of this history"):
        Session(model, history=history.after(1))
    with pytest.raises(InvalidInput, match="another server"):
        Session(model, history=replace(history, server="there"))
    with pytest.raises(InvalidInput, match="another server"):
        Session(people, history=OpenHistory("here", 4))
    hidden = history.after(None, private=True)
    with pytest.raises(InvalidInput, match="memory of it is not given"):
        Session(model, history=hidden)
    kept = ModelFilter.after_everything(model, 0)
    assert Session(model, memory=kept, history=hidden).memory is kept
    assert Session(people, history=OpenHistory("here", 3)).history == OpenHistory("here", 3)
