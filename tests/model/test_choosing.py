"""Choosing: order and types by people held out; what is asked for is done; too little is said."""

from typing import Any

import numpy as np
import pytest
from tests.model.test_fitting import two_kinds

from onoff.errors import InvalidModel
from onoff.model import choosing as module
from onoff.model.choosing import choose
from onoff.model.contexts import RequestModel
from onoff.model.fitting import RequestTokens


def test_types_are_chosen_where_people_differ_and_not_where_they_do_not():
    found = choose(RequestTokens.of(two_kinds(600), 2))
    assert found.types > 1
    bits = {(one.order, one.types): one.bits for one in found.tried}
    assert bits[found.order, 2] <= min(bits.values()) + module.LEAST_GAIN < bits[found.order, 1]
    assert found.types == 2
    rng = np.random.default_rng(0)
    alike = np.cumsum(rng.random((600, 12)) < 0.3, axis=1) % 2
    assert (choose(RequestTokens.of(alike, 2)).order, choose(RequestTokens.of(alike, 2)).types) == (1, 1)


def test_order_two_is_found():
    rng = np.random.default_rng(1)
    paths = rng.integers(3, size=(600, 12))
    for t in range(2, 12):
        paths[:, t] = np.where(rng.random(600) < 0.8, (paths[:, t - 1] + paths[:, t - 2]) % 3, paths[:, t])
    found = choose(RequestTokens.of(paths, 3))
    assert (found.order, found.types) == (2, 1)


def test_what_is_asked_for_is_done_and_scored():
    lines: list[Any] = []
    found = choose(RequestTokens.of(two_kinds(600), 2), 2, 3, progress=lines.append)
    assert (found.order, found.types, found.reason) == (2, 3, "as asked")
    assert [(one.order, one.types) for one in found.tried] == [(2, 3)]
    assert lines == ["trying order 2, 3 types", "fitting 3 types of order 2 to 600 people"]
    assert choose(RequestTokens.of(two_kinds(600), 2), "auto", 2).types == 2


def test_of_few_people_laws_are_shrunk_more_and_types_are_still_found():
    found = choose(RequestTokens.of(np.random.default_rng(0).permutation(two_kinds(60)), 2))
    assert found.types > 1
    assert {one.shrink for one in found.tried} <= {1.0, 4.0}
    assert all(0 < one.error < 0.2 for one in found.tried)
    assert found.reason == "fewest bits per request of 15 people held out"


def test_of_next_to_nobody_nobody_is_held_out():
    found = choose(RequestTokens.of(two_kinds(11), 2))
    assert (found.order, found.types, found.tried) == (1, 1, ())
    assert found.reason == "too few to hold anybody out: 11 people, and 12 are needed"


def residents(people):
    """People who go between two places of their own out of six."""
    rng = np.random.default_rng(0)
    own = np.array([rng.choice(6, size=2, replace=False) for _ in range(people)])
    return np.where(
        rng.random((people, 24)) < 0.9, own[np.arange(people)[:, None], rng.integers(2, size=(people, 24))], 0
    )


def test_anchors_are_found_where_people_have_places_of_their_own():
    found = choose(RequestTokens.of(residents(120), 6))
    assert found.family == "anchors"
    assert found.types >= 30


class Measured:
    """An audit that says what it is told."""

    def __init__(self, told):
        self.told = told

    def compare(self, models, knows, visits):
        assert all(person < 60 for person, _ in visits)
        return [self.told.get((model["order"], len(model["weights"]))) for model in models]

    def knowing(self, model, constants, knows, visits):
        return None


def test_the_cheapest_is_taken_whose_leak_is_not_above_the_least_by_more_than_its_error(monkeypatch):
    monkeypatch.setattr(module, "MOST_AUDITED", 99)

    def told(bits, cost):
        return {"bits": bits, "stderr": 0.02, "cost": cost, "naive_bits": 1.0}

    tokens = RequestTokens.of(two_kinds(600), 2)
    audit = Measured({(1, 1): told(0.5, 10.0), (1, 2): told(0.011, 20.0), (2, 1): told(0.0, 30.0)})
    found = choose(tokens, audit=audit)
    assert (found.order, found.types) == (1, 2)
    assert found.audit == audit.told[1, 2]
    audit.told[1, 2] = told(0.03, 20.0)
    assert choose(tokens, audit=audit).order == 2


def test_people_with_few_requests_are_left_out_where_the_others_suffice(monkeypatch):
    lines = [*two_kinds(600).tolist(), *[[0]] * 100, *[[0, 1]] * 100]
    assert choose(RequestTokens.of(lines, 2), 1, 1).left_out == 100  # who made a single request show nothing
    monkeypatch.setattr(module, "ENOUGH_LONG", 500)
    found = choose(RequestTokens.of(lines, 2), 1, 1)
    assert (found.people, found.left_out) == (600, 200)


def test_bad_input_is_named():
    with pytest.raises(InvalidModel, match="every person made only one"):
        choose(RequestTokens.of([[0], [1]], 2))
    for order, types, fault in (
        (9, 1, "order 9"),
        (1, 0, "0 types"),
        (1, 5, "5 types of only 2 people"),
    ):
        with pytest.raises(InvalidModel, match=fault):
            choose(RequestTokens.of([[0, 1], [1, 0]], 2), order, types)


def test_fit_gives_a_model():
    words = [["stay" if x else "leave" for x in line] for line in two_kinds(600).tolist()]
    model = RequestModel.fit(words, types=2)
    assert model.names == ("leave", "stay")
    assert model.types == 2
    assert model.about["chosen"].startswith("fewest bits")
    assert RequestModel.fit([[0, 1, 0], [1, 1]]).as_chain() is not None
