"""Topics: queries tell exactly nothing about the topics of private requests; broken twins are caught."""

from typing import Any

import numpy as np
import pytest

from onoff.audit import exact
from onoff.audit.exact import audit_exact, audit_patterns
from onoff.errors import InvalidInput, UnknownScheme, UnknownSource
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.session.topics import TopicRows, Topics, TopicsDrawn

ON, OFF = True, False
CASES = [
    (2, {"health": [0]}),
    (3, {"health": [0]}),
    (3, [{"health": [0]}, {"money": [1]}]),
    (4, {"health": [0, 1]}),
]


def chain_of(n: int, zeros: bool = False) -> MarkovChain:
    rng = np.random.default_rng(n)
    matrix = rng.dirichlet(np.ones(n), size=n)
    if zeros:
        matrix[np.arange(n), (np.arange(n) + 1) % n] = 0
        matrix /= matrix.sum(axis=1, keepdims=True)
    return MarkovChain(matrix)


def breaches(chain: MarkovChain, session: Any, longest: int) -> list[str]:
    return [breach for _, _, breach in audit_patterns(chain, session, longest) if breach is not None]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("n", "topics"), CASES, ids=str)
def test_nothing_is_told_about_the_topics_of_all_private_requests(n, topics, zeros):
    chain = chain_of(n, zeros)
    for _, step, breach in audit_patterns(chain, Session(chain, "optimal", topics=topics), 4 if n < 4 else 3):
        assert step.deviation == 0
        assert breach is None


def test_the_source_is_told_and_only_its_topic_is_hidden():
    chain = chain_of(4)
    plain = audit_exact(chain, "optimal", (ON, OFF), session=lambda: Session(chain, "optimal", topics={"a": [0, 1]}))
    assert plain.private
    session = Session(chain, "optimal", topics={"a": [0, 1]})
    assert {len(session.fork(SeededEntropy(np.random.default_rng(k))).request(0, private=ON)) for k in range(20)} == {2}


def test_a_private_request_costs_a_source_for_each_topic():
    chain = chain_of(6)
    session = Session(
        chain,
        "optimal",
        topics={"health": [0], "money": [1, 2]},
        entropy=SeededEntropy(rng := np.random.default_rng(0)),
    )
    assert session.expected_cost(private=ON) == 3
    assert len(session.request(2, private=ON)) == 3
    later = session.expected_cost(private=ON)
    assert 3 < later < 6
    sizes = [len(session.fork(SeededEntropy(rng)).request(0, private=ON)) for _ in range(4000)]
    assert np.mean(sizes) == pytest.approx(later, abs=0.12)  # 5 standard errors: at most 1.5 / sqrt(4000) each
    assert session.expected_cost(private=OFF) < Session(chain, "optimal").tables.of(session.memory.afresh(0)).cost


# -- broken twins ------------------------------------------------------------------------------------------


def test_decoys_that_are_drawn_uniformly_are_caught(monkeypatch):
    def uniform(self, table, entropy):
        return table.query(entropy.choose([1] * len(table)))

    monkeypatch.setattr(TopicRows, "draw_any", uniform)
    chain = chain_of(3)
    assert breaches(chain, Session(chain, "optimal", topics={"health": [0]}), 2)


def test_topics_that_are_forgotten_while_on_are_caught(monkeypatch):
    monkeypatch.setattr(TopicRows, "draw_any", lambda self, table, entropy: ())
    chain = chain_of(3)
    assert breaches(chain, Session(chain, "optimal", topics={"health": [0]}), 1)


def test_rounding_that_is_not_made_up_for_is_caught(monkeypatch):
    def rounded(self, table, hidden, wanted, weight, entropy):
        return table.draw(int(np.searchsorted(self.wanting, hidden)), wanted, entropy)

    monkeypatch.setattr(TopicRows, "draw", rounded)
    monkeypatch.setattr(
        TopicRows, "draw_any", lambda self, table, entropy: table.query(entropy.choose(table.mass.tolist()))
    )
    chain = chain_of(4)
    assert breaches(chain, Session(chain, "optimal", topics={"a": [0, 1]}), 3)


# -- with other dials, and what is refused -----------------------------------------------------------------


def test_an_impossible_request_asks_for_everything_and_says_so():
    chain = MarkovChain([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]], initial=[1.0, 0.0, 0.0])
    session = Session(chain, "optimal", topics={"health": [0]})
    query = session.request(1, private=ON)
    assert query.everything
    assert "probability zero" in str(query.note)


def test_a_budget_and_topics_go_together():
    chain = chain_of(4)
    session = Session(chain, "optimal", topics={"health": [0]}, leak=0.3)
    session.request(1, private=ON)
    session.request(2, private=OFF)
    assert 0 <= session.spent <= 0.3


def test_cells_of_several_lists():
    chain = chain_of(5)
    found = Topics.from_lists([{"health": [0, 1]}, {"money": [1, 2]}], chain)
    assert found.of == (0, 1, 2, 3, 3)
    assert found.names == ("health", "health and money", "money", "the rest")


@pytest.mark.parametrize(
    ("topics", "options", "error"),
    [
        ({"a": [0], "b": [0, 1]}, {}, InvalidInput),
        ({"a": []}, {}, InvalidInput),
        ({"a": [0, 1, 2]}, {}, InvalidInput),
        ({}, {}, InvalidInput),
        ({"a": ["nowhere"]}, {}, UnknownSource),
        ({"a": [7]}, {}, UnknownSource),
        ({"a": [0]}, {"everything": True}, InvalidInput),
        ({"a": [0]}, {"memory": "nothing"}, UnknownScheme),
    ],
    ids=str,
)
def test_what_are_no_topics_is_named(topics, options, error):
    with pytest.raises(error):
        Session(chain_of(3), topics=topics, **options)


# -- models, and the filter --------------------------------------------------------------------------------


def two_types() -> RequestModel:
    laws = np.random.default_rng(1).dirichlet(np.ones(3), size=(2, 4))
    return RequestModel(laws, [(), (0,), (1,), (2,)], weights=[0.4, 0.6])


@pytest.mark.parametrize("hide", [1, 2])
@pytest.mark.parametrize("model", [two_types(), chain_of(3)], ids=["model", "chain"])
def test_the_filter_hides_the_topics_of_the_last_private_requests(model, hide):
    session = Session(model, "optimal", "bayes-filter", hide=hide, topics={"health": [0]})
    assert session.expected_cost(private=ON) == 2
    for pattern in [(ON, OFF, OFF), (ON, ON, OFF), (OFF, ON, OFF), (ON, OFF, ON)]:
        audit = audit_exact(model, "optimal", pattern, session=lambda: session)
        assert audit.private, (pattern, audit.breach)
        assert audit.rounding < 1e-15


def test_the_filter_hides_no_older_topics():
    """In ON ON OFF the topic before the last shows, which the audit says; the last query hides both."""
    model = two_types()
    session = Session(model, "optimal", topics={"health": [0]})
    steps = audit_exact(model, "optimal", (ON, ON, OFF), session=lambda: session).steps
    assert sum(step.all_bits for step in steps) > 1e-4
    both = Session(model, "optimal", topics={"health": [0]}, hide=2)
    assert sum(step.all_bits for step in audit_exact(model, "", (ON, ON, OFF), session=lambda: both).steps) < 1e-12


def test_older_topics_that_are_called_hidden_are_caught(monkeypatch):
    """A filter that hides the last topic only, audited as if it hid all of them."""
    monkeypatch.setattr(exact, "_promised", lambda session: None)
    model = two_types()
    session = Session(model, "optimal", topics={"health": [0]})
    assert not audit_exact(model, "optimal", (ON, ON, OFF), session=lambda: session).private


def test_a_kernel_that_leaves_out_the_other_topics_is_caught(monkeypatch):
    monkeypatch.setattr(TopicsDrawn, "_by_mass", lambda self, query, but: 1)
    model = two_types()
    session = Session(model, "optimal", topics={"health": [0]})
    assert not audit_exact(model, "optimal", (ON, ON, OFF), session=lambda: session).private


def test_a_filter_is_not_restored_for_other_topics():
    model = two_types()
    session = Session(model, topics={"health": [0]})
    query = session.request(0, private=ON)
    kept = session.memory.stored()
    assert Session(model, topics={"health": [0]}).memory.restored(query.sources, 0, kept) is not None
    for other in ({"health": [1]}, None):
        assert Session(model, topics=other).memory.restored(query.sources, 0, kept) is None
