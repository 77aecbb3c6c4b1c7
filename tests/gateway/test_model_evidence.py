"""The evidence of a session with a model: what a private scheme tells, and that a leaky one would show."""

from contextlib import contextmanager

import numpy as np
import pytest
from tests.support.chains import request_model
from tests.support.typed import as_a, present
from tests.support.waiting import PATIENCE
from tests.support.world import NAMES, P4, World, listening

from onoff.client import ServerView
from onoff.gateway.engine import Engine
from onoff.gateway.evidence import MOST_WEIGHED_SOURCES, Assessment, ModelEvidence
from onoff.model.contexts import RequestModel
from onoff.session import Session
from onoff.session.filter import ModelFilter
from onoff.session.session import LOST_PAST, TableCache
from onoff.tables.table import QueryTable
from onoff.upstream import Doubt

MODEL = request_model(P4, NAMES)
FIRST = "there was no journal: everything was asked"


def follow(session, evidence, *requests):
    """The first request as a client makes it: everything, whatever is wanted."""
    found = []
    for step, (wanted, private) in enumerate(requests):
        if step == 0:
            sources, session.memory = (0, 1, 2, 3), session.memory.afresh(wanted)
        else:
            sources = session.request(wanted, private=private).sources
        found.append(evidence.add(ServerView("s", step, sources, 4, private, None if step else FIRST), wanted))
    return found


@pytest.mark.parametrize("scheme", ["single", "greedy", "optimal"])
def test_a_private_session_costs_what_it_costs_and_tells_nothing(scheme):
    session = Session(MODEL, scheme)
    evidence = ModelEvidence(MODEL, session.tables)
    first, second, third, fourth = follow(session, evidence, (0, True), (1, False), (2, True), (2, False))
    assert (first.expected, first.lower, first.bits, first.naive) == (4, 4, 0, 0)
    assert 1 <= second.lower <= second.expected + 1e-9 <= 4
    assert second.bits == fourth.bits == 0
    assert second.naive > 0.1
    assert third.expected == 4
    posterior = present(evidence.posterior)
    assert (posterior["step"], posterior["sources"]) == (2, [0, 1, 2, 3])
    assert sum(posterior["ours"]) == pytest.approx(1)
    assert np.abs(np.array(posterior["ours"]) - posterior["naive"]).max() > 0.02
    assert len(session.tables) <= 3  # the tables that the session drew from, and no others


def test_the_posterior_stays_what_it_was_before_the_open_request():
    session = Session(MODEL, "greedy")
    evidence = ModelEvidence(MODEL, session.tables)
    follow(session, evidence, (3, True), (1, False), (1, False))
    np.testing.assert_allclose(
        present(evidence.posterior)["ours"], as_a(ModelFilter, session.memory.afresh(0)).weights, rtol=1e-12
    )


def leaky(rows, scheme):
    """The wanted source alone, always: naive switching as a table."""
    cells = [(k, r, k, int(w)) for r, row in enumerate(rows.weights) for k, w in zip(rows.columns, row, strict=True)]
    return QueryTable.from_cells(rows, [(x,) for x in range(rows.n)], cells)


def test_a_leaky_table_shows_in_bits_and_in_the_posterior(monkeypatch):
    monkeypatch.setattr("onoff.session.session.design", leaky)
    evidence = ModelEvidence(MODEL, TableCache(MODEL, "single"))
    evidence.add(ServerView("s", 0, (0, 1, 2, 3), 4, True, FIRST), 0)
    weighed = evidence.add(ServerView("s", 1, (1,), 4, False), 1)
    assert present(weighed.bits) > 0.1
    np.testing.assert_allclose(present(evidence.posterior)["ours"], present(evidence.posterior)["naive"])


def test_what_is_not_known_is_not_weighed():
    evidence = ModelEvidence(MODEL, TableCache(MODEL, "single"))
    assert evidence.add(ServerView("old", 7, (1,), 4, False), 1) == Assessment()  # nothing is known of this session
    assert evidence.posterior is None
    raced = ModelEvidence(MODEL, TableCache(MODEL, "race"))
    raced.add(ServerView("s", 0, (0, 1, 2, 3), 4, True, FIRST), 0)
    assert raced.add(ServerView("s", 1, (0, 1), 4, False), 1).expected is None
    large = RequestModel(np.full((1, 1, MOST_WEIGHED_SOURCES + 1), 1 / (MOST_WEIGHED_SOURCES + 1)), [()])
    assert ModelEvidence(large, TableCache(large, "race")).add(ServerView("s", 0, (0,), 300, True), 0) == Assessment()


def test_after_a_loss_it_weighs_from_the_next_private_request_on():
    evidence, everything = ModelEvidence(MODEL, TableCache(MODEL, "greedy")), (0, 1, 2, 3)
    session = Session(MODEL, tables=evidence._tables)
    session.memory = session.memory.forgotten(1, private=False)
    evidence.add(ServerView("s", 0, everything, 4, False, FIRST), 1)
    assert evidence.add(ServerView("s", 1, everything, 4, False, LOST_PAST), 2).bits == 0
    assert evidence.posterior is None
    session.request(3, private=True)
    evidence.add(ServerView("s", 2, everything, 4, True), 3)
    weighed = evidence.add(ServerView("s", 3, session.request(3, private=False).sources, 4, False), 3)
    assert weighed.expected == session.tables.of(ModelFilter.after_everything(MODEL, 3)).cost
    assert present(evidence.posterior)["sources"] == [0, 1, 2, 3]


@pytest.mark.parametrize("private", [True, False])
def test_after_a_doubt_that_leaves_the_memory_it_does_not_weigh(private):
    evidence, everything = ModelEvidence(MODEL, TableCache(MODEL, "greedy")), (0, 1, 2, 3)
    evidence.add(ServerView("s", 0, everything, 4, True, FIRST), 1)
    evidence.add(ServerView("t", 0, everything, 4, private, f"{Doubt.FORGOTTEN}: everything was asked"), 2)
    assert evidence.add(ServerView("t", 1, (1, 2), 4, False), 2) == Assessment()
    evidence.add(ServerView("t", 2, everything, 4, True), 2)
    assert evidence.add(ServerView("t", 3, (1, 2), 4, False), 2) == Assessment()
    assert evidence.posterior is None


def test_an_engine_takes_a_model(tmp_path):
    with listening(World()) as server:
        with ended(Engine(server.url, MODEL, tmp_path / "journal", scheme="greedy", tick=0)) as engine:
            assert engine.request("beta").result(timeout=PATIENCE) == b"first of beta"
            assert engine.request("gamma").result(timeout=PATIENCE) == b"first of gamma"
            assert isinstance(engine.evidence, ModelEvidence)
        with ended(Engine(server.url, MODEL, tmp_path / "journal", scheme="greedy", tick=0)) as again:
            assert again.request("delta").result(timeout=PATIENCE) == b"first of delta"


@contextmanager
def ended(engine):
    """Closed at the end, however long the last steps take to be weighed: the next engine needs the journal."""
    try:
        yield engine
    finally:
        engine.close(PATIENCE)
