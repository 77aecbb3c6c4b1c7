"""The evidence: what it says about a private scheme, and that it would say otherwise about a leaky one."""

import numpy as np
import pytest
from tests.support.typed import present
from tests.support.world import P4

from onoff.client import ServerView
from onoff.gateway.evidence import MOST_WEIGHED_SOURCES, Assessment, Evidence
from onoff.information import plain_request_leak
from onoff.model.chain import MarkovChain
from onoff.session import Session
from onoff.session.session import TableCache
from onoff.tables.table import QueryTable

CHAIN = MarkovChain(P4)


def follow(session, evidence, *requests):
    for step, (wanted, private) in enumerate(requests):
        query = session.request(wanted, private=private)
        yield evidence.add(ServerView("s", step, query.sources, 4, private), wanted)


@pytest.mark.parametrize("scheme", ["single", "greedy", "optimal"])
def test_a_private_session_costs_what_it_costs_and_tells_nothing(scheme):
    session = Session(CHAIN, scheme)
    evidence = Evidence(CHAIN, session.tables, None)
    first, second, third, _ = follow(session, evidence, (0, True), (1, False), (2, False), (2, False))
    assert (first.expected, first.lower, first.bits, first.naive) == (4, 4, 0, 0)
    assert 1 < second.lower <= second.expected < 4
    assert second.bits == third.bits == 0
    assert second.naive == pytest.approx(plain_request_leak(CHAIN, CHAIN.initial))
    assert third.naive == 0
    posterior = present(evidence.posterior)
    assert posterior["step"] == 0
    assert posterior["sources"] == [0, 1, 2, 3]
    np.testing.assert_allclose(posterior["ours"], 0.25, rtol=1e-12)
    column = np.array(P4)[:, 1]
    np.testing.assert_allclose(posterior["naive"], column / column.sum())


def leaky(rows, scheme):
    """The wanted source alone, always: naive switching as a table."""
    cells = [(k, r, k, int(w)) for r, row in enumerate(rows.weights) for k, w in zip(rows.columns, row, strict=True)]
    return QueryTable.from_cells(rows, [(x,) for x in range(rows.n)], cells)


def test_a_leaky_table_shows_in_bits_and_in_the_posterior(monkeypatch):
    monkeypatch.setattr("onoff.session.session.design", leaky)
    tables = TableCache(CHAIN, "single")
    evidence = Evidence(CHAIN, tables, None)
    evidence.add(ServerView("s", 0, (0, 1, 2, 3), 4, True), 0)
    weighed = evidence.add(ServerView("s", 1, (1,), 4, False), 1)
    assert weighed.bits == pytest.approx(plain_request_leak(CHAIN, np.full(4, 0.25)))
    np.testing.assert_allclose(present(evidence.posterior)["ours"], present(evidence.posterior)["naive"])
    assert max(present(evidence.posterior)["ours"]) > 0.5


def test_plain_requests_before_anything_is_private_have_nothing_to_tell():
    session = Session(CHAIN, "single")
    evidence = Evidence(CHAIN, session.tables, None)
    (weighed,) = follow(session, evidence, (1, False))
    assert (weighed.expected, weighed.lower, weighed.bits, weighed.naive) == (1, 1, 0, 0)
    assert evidence.posterior is None


def test_it_goes_on_after_a_restart_from_the_last_query():
    session = Session(CHAIN, "single")
    session.request(3, private=True)
    evidence = Evidence(CHAIN, session.tables, ("s", 0, (0, 1, 2, 3)))
    query = session.request(0, private=False)
    weighed = evidence.add(ServerView("s", 1, query.sources, 4, False), 0)
    assert 1 < present(weighed.expected) < 4
    assert evidence.posterior is None  # what was private is from before


def test_asking_for_everything_in_doubt_tells_nothing():
    evidence = Evidence(CHAIN, TableCache(CHAIN, "single"), None)
    evidence.add(ServerView("s", 0, (0, 1, 2, 3), 4, True), 0)
    weighed = evidence.add(ServerView("t", 0, (0, 1, 2, 3), 4, False, "lost: everything was asked"), 2)
    assert (weighed.expected, weighed.bits) == (4, 0)
    np.testing.assert_allclose(present(evidence.posterior)["ours"], 0.25, rtol=1e-12)


def test_a_query_drawn_without_a_table_is_not_weighed():
    session = Session(CHAIN, "race")
    evidence = Evidence(CHAIN, session.tables, None)
    *_, weighed = follow(session, evidence, (0, True), (1, False))
    assert (weighed.expected, weighed.lower, weighed.bits) == (None, None, None)
    assert weighed.naive > 0
    assert evidence.posterior is None


def test_too_many_sources_are_not_weighed():
    n = MOST_WEIGHED_SOURCES + 1
    chain = MarkovChain(np.full((n, n), 1 / n))
    evidence = Evidence(chain, TableCache(chain, "single"), None)
    assert evidence.add(ServerView("s", 0, tuple(range(n)), n, True), 0) == Assessment()


def test_with_zeros_only_what_was_asked_for_can_have_been_wanted():
    chain = MarkovChain([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1]])
    evidence = Evidence(chain, TableCache(chain, "single"), None)
    evidence.add(ServerView("s", 0, (0, 1), 4, True), 1)
    evidence.add(ServerView("s", 1, (0, 1, 2, 3), 4, False, "impossible: everything was asked"), 3)
    assert present(evidence.posterior)["sources"] == [0, 1]
    np.testing.assert_allclose(present(evidence.posterior)["ours"], 0.5)
    np.testing.assert_allclose(present(evidence.posterior)["naive"], 0.5)  # of the impossible it knows nothing
