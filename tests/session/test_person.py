"""The person: nothing is told about type and requests, or about the type alone; broken twins are caught."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from onoff.audit.exact import audit_budget, audit_exact, audit_patterns
from onoff.errors import InvalidInput, PrivacyBreach, UnknownScheme
from onoff.model.certificate import units_of_bits
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.rows import UNIT
from onoff.session import Session
from onoff.session.budget import Budgeted
from onoff.session.filter import TypeFilter
from onoff.session.seeded import SeededEntropy

ON, OFF = True, False
BITS = 0.3
BUDGET = units_of_bits(BITS, "leak")


def model_of(n: int, types: int = 2, seed: int = 1) -> RequestModel:
    """Types of people, first order."""
    laws = np.random.default_rng(seed).dirichlet(np.ones(n), size=(types, n + 1))
    return RequestModel(laws, [(), *((x,) for x in range(n))], weights=np.arange(1, types + 1) / sum(range(types + 1)))


def people(model: RequestModel, hide: str = "person", **options: Any) -> list[Session]:
    """A session of every type, which it knows."""
    return [Session(model, "optimal", hide=hide, person=z, **options) for z in range(model.types)]


def breaches(model: RequestModel, session: Any, longest: int) -> list[str]:
    return [breach for _, _, breach in audit_patterns(model, session, longest) if breach is not None]


@pytest.mark.parametrize(("n", "longest"), [(2, 3), pytest.param(2, 4, marks=pytest.mark.deep), (3, 2)])
def test_nothing_is_told_about_the_person_and_all_private_requests(n, longest):
    model = model_of(n)
    for _, step, breach in audit_patterns(model, people(model), longest):
        assert step.deviation == 0
        assert breach is None


def test_the_person_is_hidden_before_the_first_private_request_too():
    model = model_of(2)
    audit = audit_exact(model, "optimal", (OFF, OFF, ON, OFF), hide="person")
    assert audit.leak == 0
    assert all(step.deviation == 0 for step in audit.steps)
    assert audit.steps[0].cost > 1


@pytest.mark.parametrize("pattern", [(OFF, OFF, OFF), (ON, OFF, OFF), (OFF, ON, OFF)], ids=str)
def test_the_type_alone_is_hidden_but_for_rounding_that_is_counted(pattern):
    model = model_of(3)
    audit = audit_exact(model, "optimal", pattern, hide="type")
    assert audit.private
    assert 0 < audit.rounding < 1e-15
    person = audit_exact(model, "optimal", pattern[:2], hide="person")
    assert [step.cost for step in audit.steps[:2]] <= [step.cost for step in person.steps]


def test_with_topics_their_topics_and_the_person_are_hidden():
    model = model_of(3)
    assert not breaches(model, people(model, topics={"health": [0]}), 2)


# -- a budget for life -------------------------------------------------------------------------------------


def patterns() -> list[tuple[bool, ...]]:
    return [(OFF, OFF, ON), (ON, OFF, ON), (ON, OFF, OFF), (ON, ON, OFF)]


@pytest.mark.parametrize("hide", ["person", "type"])
@pytest.mark.parametrize("pattern", patterns(), ids=str)
def test_a_type_has_one_budget_for_life(hide, pattern):
    model = model_of(2)
    found = audit_budget(model, people(model, hide, leak=BITS), pattern, BITS)
    found.require_kept()
    assert found.person is not None
    assert found.person.found * UNIT <= found.person.odometer <= BUDGET + UNIT // 10**9
    assert found.person.odometer > UNIT  # it was spent


def test_a_budget_of_a_type_that_a_private_request_renews_is_caught(monkeypatch):
    right = Budgeted.after

    def renewing(self, query, wanted, *, private, table):
        after = right(self, query, wanted, private=private, table=table)
        return Budgeted(after.inner, after.bits, (UNIT,)) if private else after

    monkeypatch.setattr(Budgeted, "after", renewing)
    model = model_of(2)
    with pytest.raises(PrivacyBreach, match="person"):
        audit_budget(model, people(model, leak=BITS), (OFF, ON, OFF), BITS).require_kept()


# -- broken twins ------------------------------------------------------------------------------------------


def test_a_type_that_the_session_is_told_wrong_is_caught():
    model = model_of(2)
    assert breaches(model, people(model)[:1] * 2, 2)


def test_a_type_whose_belief_does_not_follow_the_queries_is_caught(monkeypatch):
    monkeypatch.setattr(TypeFilter, "after", lambda self, query, wanted, *, private, table: self)
    model = model_of(3)
    assert not audit_exact(model, "optimal", (OFF, OFF), hide="type").private


# -- what is stored, and what is refused -------------------------------------------------------------------


@pytest.mark.parametrize("hide", ["person", "type"])
def test_a_state_is_restored_as_it_was(hide):
    model = model_of(3)
    session = Session(model, hide=hide, person=1, entropy=SeededEntropy(np.random.default_rng(0)))
    for private in (OFF, ON, OFF):
        query = session.request(1, private=private)
    kept = session.memory.stored()
    found = Session(model, hide=hide, person=1).memory.restored(query.sources, 1, kept)
    assert found is not None
    assert found.stored() == kept
    assert Session(model, hide=hide, person=1).memory.restored(query.sources, 1, kept[: len(kept) // 2]) is None


def test_what_was_lost_makes_it_ask_for_everything_for_good_where_the_type_alone_is_hidden():
    session = Session(model_of(3), hide="type", person=0)
    session.memory = session.memory.forgotten(0, private=True)
    for private in (ON, OFF, OFF):
        query = session.request(0, private=private)
        assert query.everything
        assert "from now on" in str(query.note)


def test_the_likeliest_type_is_found():
    model = model_of(3, types=3)
    rng = np.random.default_rng(0)
    for z in range(3):
        requests = [0]
        for _ in range(300):
            requests.append(int(rng.choice(3, p=model.law(z, model.context_of(requests[-1:])))))
        assert model.likeliest_type(requests) == z


def test_under_a_chain_all_people_are_alike():
    chain = MarkovChain([[0.8, 0.2], [0.3, 0.7]])
    costs = [Session(chain, hide=hide, memory="last-query") for hide in (1, "person")]
    for session in costs:
        session.request(0, private=ON)
    assert all(a.expected_cost(private=OFF) == b.expected_cost(private=OFF) for a, b in pairwise(costs))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"hide": "everyone"}, InvalidInput),
        ({"hide": "person", "memory": "bayes-filter"}, InvalidInput),
        ({"hide": "type", "memory": "last-query"}, InvalidInput),
        ({"hide": "type", "topics": {"a": [0]}, "person": 0}, InvalidInput),
        ({"hide": "type"}, InvalidInput),
        ({"hide": "person"}, InvalidInput),
        ({"hide": "person", "person": 2}, InvalidInput),
        ({"person": 1}, InvalidInput),
        ({"memory": "last-query"}, UnknownScheme),
    ],
    ids=str,
)
def test_a_memory_that_cannot_serve_is_named(options, error):
    with pytest.raises(error):
        Session(model_of(3), **options)


def test_a_chain_has_no_types():
    with pytest.raises(InvalidInput, match="one type"):
        Session(MarkovChain([[0.8, 0.2], [0.3, 0.7]]), hide="type")
