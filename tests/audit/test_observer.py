"""The Bayes attacker: its posterior is that of an enumeration of all paths, whatever the session's memory."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from onoff.audit.exact import enumerate_branches
from onoff.audit.observer import Channel, Observer, channel_of, remembered
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.context_tree import all_contexts
from onoff.model.contexts import RequestModel
from onoff.session import Session
from onoff.session.seeded import SeededEntropy

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")


def model_of(n, order, types, seed, contexts=None):
    rng = np.random.default_rng(seed)
    contexts = all_contexts(n, order) if contexts is None else contexts
    laws = rng.dirichlet(np.ones(n), size=(types, len(contexts)))
    return RequestModel(laws, contexts, weights=rng.dirichlet(5 * np.ones(types)))


def chain_of(n, seed):
    rng = np.random.default_rng(seed)
    return MarkovChain(rng.dirichlet(np.ones(n), size=n), initial=rng.dirichlet(np.ones(n)))


SESSIONS = {
    "last query": lambda: Session(chain_of(3, 1), "greedy"),
    "the paper's filter": lambda: Session(chain_of(3, 1), "greedy", "bayes-filter"),
    "last two queries": lambda: Session(model_of(3, 2, 1, 2), "greedy", "last-query"),
    "filter": lambda: Session(model_of(3, 2, 2, 3), "greedy"),
    "filter that hides two": lambda: Session(model_of(3, 1, 2, 3), "greedy", hide=2),
}


def drive(start, path, pattern, rng):
    """The queries of one session, and how each was drawn."""
    session, queries, channels = start.fork(SeededEntropy(rng)), [], []
    for x, private in zip(path, pattern, strict=True):
        before = session.memory
        query = session.request(x, private=private)
        queries.append(query.sources)
        channels.append(channel_of(session, before, query, private=private))
    return queries, channels


def chances_of(start, pattern, queries):
    """p(queries | path) of every path, by the branches of the session itself; paths share their beginnings."""
    held = {(): [(Fraction(1), start.memory)]}
    for private, seen in zip(pattern, queries, strict=True):
        longer: dict[Any, Any] = {}
        for (path, worlds), x in product(held.items(), range(3)):
            after = longer[*path, x] = []
            for p, memory in worlds:

                def step(entropy, memory=memory, x=x, private=private):
                    session = start.fork(entropy)
                    session.memory = memory
                    return session.request(x, private=private).sources, session.memory

                after += [(p * chance, then) for chance, (query, then) in enumerate_branches(step) if query == seen]
        held = longer
    return {path: float(sum(p for p, _ in worlds)) for path, worlds in held.items()}


def path_law(model, path):
    total = 0.0
    for z, weight in enumerate(model.weights):
        p, context = weight, 0
        for x in path:
            p *= model.law(z, context)[x]
            context = model.next(context, x)
        total += p
    return total


ATTACKERS = {
    "more types, a longer memory": model_of(3, 2, 3, 9),
    # (0, 1) and what is not told apart from (1,) lead to the same contexts
    "some contexts missing": model_of(3, 2, 2, 9, [(), (0,), (1,), (2,), (0, 1), (2, 1)]),
}


PAIRS = [pair for pair in product(SESSIONS, ATTACKERS) if pair != ("last two queries", "some contexts missing")]
"""Without that one: an attacker who forgets what the session hides is refused."""


@pytest.mark.parametrize(("name", "attacker"), PAIRS)
@pytest.mark.parametrize("pattern", [(True, True, False, False), (False, True, False, False)])
def test_the_posterior_is_that_of_all_paths(name, pattern, attacker):
    """The attacker's model is another one than the session's."""
    start, model, rng = SESSIONS[name](), ATTACKERS[attacker], np.random.default_rng(4)
    observer = Observer(model)
    for _ in range(3):
        path = model.sample(len(pattern), rng).tolist()
        queries, channels = drive(start, path, pattern, rng)
        view = observer.start
        for channel, private in zip(channels, pattern, strict=True):
            view = observer.after(view, channel, private=private)
        chances = chances_of(start, pattern, queries)
        assert len(chances) == 3 ** len(pattern)
        weights = {path: path_law(model, path) * chance for path, chance in chances.items()}
        for place, t in enumerate([t for t, on in enumerate(pattern) if on]):
            law = np.zeros(3)
            for p, weight in weights.items():
                law[p[t]] += weight
            assert view.about(place, 3) == pytest.approx(law / law.sum(), abs=1e-12)


@pytest.mark.parametrize(("name", "model"), [("last query", chain_of(3, 1)), ("filter", model_of(3, 2, 2, 3))])
def test_who_knows_what_the_session_knows_learns_nothing(name, model):
    start, rng = SESSIONS[name](), np.random.default_rng(5)
    known = RequestModel.of(model) if isinstance(model, MarkovChain) else model
    observer, pattern = Observer(known), (True, False, False, False, False)
    for _ in range(5):
        _, channels = drive(start, known.sample(5, rng).tolist(), pattern, rng)
        view = before = observer.after(observer.start, channels[0], private=True)
        for channel in channels[1:]:
            view = observer.after(view, channel, private=False)
            assert view.about(0, 3) == pytest.approx(before.about(0, 3), abs=1e-12)


def test_a_plain_request_tells():
    """The control: what the observer does not learn from a private session it learns from naive switching."""
    chain = chain_of(3, 1)
    observer = Observer(RequestModel.of(chain))
    before = observer.after(observer.start, Channel((0, 1, 2)), private=True)
    told = observer.after(before, Channel((1,)), private=False).about(0, 3)
    expected = chain.initial * chain.dense()[:, 1]
    assert told == pytest.approx(expected / expected.sum())
    assert np.abs(told - before.about(0, 3)).max() > 0.05


def test_what_cannot_be_observed_is_refused():
    with pytest.raises(InvalidInput, match="keeps no table"):
        drive(Session(chain_of(3, 1), "race"), [0, 0], (True, False), np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="forgets the last request"):
        Observer(RequestModel(np.full((1, 1, 2), 0.5), [()]))
    start = SESSIONS["last two queries"]()
    assert remembered(start.memory) == 2
    _, channels = drive(start, [0, 1, 2], (True, True, False), np.random.default_rng(0))
    observer = Observer(RequestModel.of(chain_of(3, 1)))
    view = observer.start
    for channel, private in zip(channels[:2], (True, True), strict=True):
        view = observer.after(view, channel, private=private)
    with pytest.raises(InvalidInput, match="remembers fewer"):
        observer.after(view, channels[2], private=False)
