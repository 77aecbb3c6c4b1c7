"""Real requests through sessions: a session of the wrong model is found out, one of the right model is not.

Readers are drawn from known models, so that what must come out is known too. Seeded; where a bound is statistical, the
distance is at least four standard errors.
"""

from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from tests.audit.test_observer import SESSIONS, chain_of, model_of
from tests.support.typed import as_a

from onoff.audit import cases as audited_cases
from onoff.audit import guesses, traces
from onoff.audit.cases import (
    Case,
    PrivateStarts,
    choose_cases,
    choose_known_cases,
    choose_pattern_cases,
    empirical_bounds,
    exact_gains,
    knows_the_person,
    starts_of,
)
from onoff.audit.traces import audit_pattern, audit_traces
from onoff.errors import InvalidInput
from onoff.information import mutual_information, table_chances
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.patterns import parse
from onoff.session import Session
from onoff.session.seeded import SeededEntropy
from onoff.tables.table import QueryTable

pytestmark = pytest.mark.slow(reason="every path of requests, draws and faults is enumerated")

N, AFTER = 3, 4


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """What is known here does not need many."""
    monkeypatch.setitem(guesses.TREES, "max_iter", 10)


@pytest.fixture(scope="module")
def people():
    """Two types with strong habits of second order."""
    rng = np.random.default_rng(7)
    plain = model_of(N, 2, 2, 7)
    laws = rng.dirichlet(np.full(N, 0.4), size=(2, len(plain.contexts)))
    laws = 0.95 * laws + 0.05 / N
    return RequestModel(laws, plain.contexts, weights=[0.5, 0.5])


def visits_of(people, count, length=8, seed=1):
    return people.sample_many(count, length, np.random.default_rng(seed)).tolist()


def chain_learnt(visits):
    counts, first = np.ones((N, N)), np.ones(N)
    for visit in visits:
        np.add.at(counts, (visit[:-1], visit[1:]), 1)
        first[visit[0]] += 1
    return MarkovChain(counts / counts.sum(axis=1, keepdims=True), initial=first / first.sum())


def audit(session, visits, attackers, before="private", users=600, **more):
    rng = np.random.default_rng(3)
    cases = choose_cases(enumerate(visits), AFTER, before, rng)
    return audit_traces(session, cases, attackers, users=users, entropy=lambda: SeededEntropy(rng), **more)


@pytest.mark.parametrize("before", ["private", pytest.param("open", marks=pytest.mark.deep), "nothing"])
def test_a_chain_is_found_out_by_who_knows_the_people(people, before):
    visits = visits_of(people, 800)
    found = audit(Session(chain_learnt(visits_of(people, 2000, seed=2)), "greedy"), visits, {"bayes": people}, before)
    last = found.steps[-1]
    assert last.bits > 4 * last.stderr > 0
    assert found.leak >= last.bits
    assert last.bits < last.naive_bits
    assert last.top1 > 0
    assert 0 < found.prior_bits < np.log2(N) + 0.05
    assert [step.k for step in found.steps] == [1, 2, 3, 4]
    assert all(abs(step.control_bits) < 4 * step.control_stderr + 0.001 for step in found.steps)


@pytest.fixture(scope="module")
def of_the_true_model(people):
    """The audit of a session of the readers' own model, made once for each kind of requests before."""

    @cache
    def found(before):
        visits = visits_of(people, 800)
        return audit(Session(people, "greedy"), visits, {"bayes": people}, before, 600 if before == "private" else 300)

    return found


@pytest.mark.parametrize("before", ["private", pytest.param("open", marks=pytest.mark.deep), "nothing"])
def test_a_session_of_the_true_model_gives_nothing_away(of_the_true_model, before):
    found = of_the_true_model(before)
    assert [step.attackers["bayes"] for step in found.steps] == pytest.approx([0] * AFTER, abs=1e-9)
    for step in found.steps:
        assert step.bits < 4 * step.stderr + 0.01
        assert step.naive_bits > 0.02
        assert 1 < step.cost < N


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_goes_on_where_others_have_been_private(name):
    """Whoever made the private requests before, the session stands where the reader's own would have led it."""
    start = SESSIONS[name]()
    starts, rng = PrivateStarts(start), np.random.default_rng(2)
    for _ in range(6):
        path = rng.integers(0, N, size=5).tolist()
        session, channels = starts.before(Case((*path, 0), (True,) * 6, 4, 0), SeededEntropy(rng))
        own = start.fork(SeededEntropy(rng))
        for t, x in enumerate(path):
            own.request(x, private=True)
            if t >= len(channels):
                session.request(x, private=True)
        assert len(channels) >= 3
        assert session.memory.secret_row == own.memory.secret_row
        assert session.memory.key == own.memory.key


def each_of(people, hide, pattern, count, session=None):
    rng = np.random.default_rng(3)
    cases = choose_pattern_cases(enumerate(visits_of(people, count)), parse(pattern), count)
    start = Session(people, "greedy", hide=hide) if session is None else session
    return audit_pattern(start, cases, {"bayes": people}, entropy=lambda: SeededEntropy(rng))


def test_every_private_request_of_a_pattern_is_judged(people):
    """A filter that hides one request lets the one before it show; one that hides two does not."""
    shown, last = each_of(people, 1, "ON ON OFF*4", 600)
    assert shown.bits > 4 * shown.stderr > 0
    assert last.bits < 4 * last.stderr + 0.01
    for step in each_of(people, 2, "ON ON OFF*4", 200):
        assert step.bits < 4 * step.stderr + 0.01
        assert abs(step.control_bits) < 4 * step.control_stderr + 0.01


def test_what_is_asked_between_two_private_requests_is_judged_too(people):
    """A chain leaves much of each; the last one is judged by the three requests after it alone."""
    wrong = each_of(
        people, 1, "ON OFF*2 ON OFF*3", 700, Session(chain_learnt(visits_of(people, 2000, seed=2)), "greedy")
    )
    assert [step.request for step in wrong] == [1, 2]
    assert all(step.bits > 3 * step.stderr for step in wrong)
    assert all(step.difference < 0 for step in wrong)
    with pytest.raises(InvalidInput, match="begins with OFF"):
        choose_pattern_cases([], parse("OFF ON"), 3)


def test_one_source_is_asked_about(people):
    """As an area under the curve: a chain tells much more than was known before, and less than naive switching."""
    found = audit(
        Session(chain_learnt(visits_of(people, 2000, seed=2)), "greedy"),
        visits_of(people, 800),
        {"bayes": people},
        sensitive=["source-2"],
    )
    (one,) = found.sensitive
    assert 0.4 < one.before < 0.7  # what is usual at that place of a visit is known
    assert one.before + 4 * one.stderr < one.after < one.naive
    with pytest.raises(InvalidInput, match="too few"):
        audit(Session(people, "greedy"), [[0] * 8] * 250, {"bayes": people}, sensitive=["source-2"], users=250)


def test_members_are_told_where_the_model_holds_them(people):
    """A model of which every person is a type knows its people; one of the whole population does not."""
    members, others = visits_of(people, 150, length=12), visits_of(people, 150, length=12, seed=9)
    shapes = people.contexts
    laws = []
    for visit in members:
        counts = np.full((len(shapes), N), 0.1)
        for t, x in enumerate(visit):
            counts[people.context_of(visit[:t]), x] += 1
        laws.append(counts / counts.sum(axis=1, keepdims=True))
    by_heart = RequestModel(np.array(laws), shapes)
    told, untold = (traces.membership_of(model, people, members, others) for model in (by_heart, people))
    assert told.area - 4 * told.stderr > 0.6
    assert untold.area == 0.5
    assert traces.bits_for(people, [0, 1]) == pytest.approx(
        -np.log2(
            sum(w * people.law(z, 0)[0] * people.law(z, people.next(0, 0))[1] for z, w in enumerate(people.weights))
        )
    )


def test_where_earlier_sets_are_known_a_session_that_is_carried_on_gives_nothing_away(people, monkeypatch):
    monkeypatch.setattr(audited_cases, "SETS_KNOWN", 5)
    rng, visits = np.random.default_rng(5), visits_of(people, 220, length=8)
    cases = choose_known_cases(enumerate(visits), 2, rng, 220, sets=True)
    assert all(case.switch == (True, *[False] * 4, True, False, False) for case in cases)
    options = {"users": 220, "history": "sets", "entropy": lambda: SeededEntropy(rng)}
    found = audit_traces(Session(people, "greedy"), cases, {"bayes": people}, **options)
    assert [step.attackers["bayes"] for step in found.steps] == pytest.approx([0] * 2, abs=1e-9)
    assert found.history == "sets"
    assert found.below_naive
    afresh = audit_traces(
        Session(people, "greedy"),
        cases,
        {"bayes": people},
        **options,
        begin=lambda case: StartsAfresh(people, "greedy"),
    )
    assert afresh.steps[-1].bits > 3 * afresh.steps[-1].stderr


class StartsAfresh(Session):
    """Forgets at the second private request what the sets before it have told: a broken twin."""

    asked_for = 0

    def request(self, source, *, private):
        if private and self.asked_for:
            self.memory = Session(self.model, "greedy").memory
        self.asked_for += 1
        return super().request(source, private=private)


def test_by_counting_one_and_two_queries_are_judged_exactly(people):
    """Both halves of the readers alike: the attacker's gain is the mutual information, up to its one unit of prior."""
    session = Session(chain_of(N, 1), "greedy")
    visits = visits_of(people, 4000, length=5)
    cases = [
        Case(tuple(visit), (True, *[False] * 4), 0, half) for visit in visits for half in range(2)
    ]  # every reader in both halves
    found = exact_gains(session, cases)
    user = session.fork(SeededEntropy(np.random.default_rng(0)))
    user.request(0, private=True)
    table = as_a(QueryTable, user.tables.of(user.memory))
    joint: dict[Any, Any] = {}
    first = table_chances(table)
    for k, query in enumerate(table.queries):
        then = user.memory.after(query, query[0], private=False, table=table)
        nothing_hidden = then.rows.distinct == 1
        second = None if nothing_hidden else table_chances(as_a(QueryTable, user.tables.of(then)))
        for a, b, c in product(range(N), repeat=3):
            weight = sum(visit[:3] == [a, b, c] for visit in visits) * first[k, a, b]
            for j in range(N if second is None else len(second)):
                chance = float(j == c) if second is None else second[j, query.index(b), c] if b in query else 0.0
                joint[a, (k, j)] = joint.get((a, (k, j)), 0.0) + weight * chance
    after_one: dict[Any, Any] = {}
    for (a, (k, _)), weight in joint.items():
        after_one[a, k] = after_one.get((a, k), 0.0) + weight
    assert found[0] == pytest.approx(mutual_information(after_one), abs=2e-3)
    assert found[1] == pytest.approx(mutual_information(joint), abs=2e-3)
    assert found[1] > found[0] > 0.01


def test_by_counting_a_filter_of_the_true_model_gives_nothing_away(people):
    cases = choose_cases(enumerate(visits_of(people, 6000)), AFTER, "private", np.random.default_rng(0))
    right = exact_gains(Session(people, "greedy"), cases)
    wrong = exact_gains(Session(chain_of(N, 1), "greedy"), cases)
    assert max(right) < 0.002
    assert min(wrong) > 0.01
    openly = choose_cases(enumerate(visits_of(people, 100)), AFTER, "open", np.random.default_rng(0))
    assert exact_gains(Session(people, "greedy"), openly) == []
    assert exact_gains(Session(people, "greedy", hide=2), cases) == []


def test_the_empirical_bound_is_the_sum_of_counted_maxima():
    """Both halves alike: 3 of 4 from source 0 stay, all from source 1 stay; then all go to the other source."""
    kinds = [(0, 0, 1)] * 3 + [(0, 1, 1)] + [(1, 1, 0)] * 4
    cases = [Case(kind, (True, False, False), 0, half) for kind in kinds for half in range(2)]
    assert empirical_bounds(cases, 2) == pytest.approx([0.75 + 1, 2])


def test_chance_does_not_raise_the_empirical_bound():
    """Requests that depend on nothing cost one message; a bound by plain maxima would say far more with few readers."""
    rng = np.random.default_rng(0)
    cases = [Case(tuple(rng.integers(0, 5, size=2).tolist()), (True, False), 0, person) for person in range(200)]
    assert empirical_bounds(cases, 5)[0] < 1.15


def test_cases_are_chosen_where_there_is_room():
    rng, visits = np.random.default_rng(0), list(enumerate([[0] * 3, [1] * 4, [2] * 6, list(range(40))]))
    private = choose_cases(visits, 3, "private", rng)
    assert [(len(case.later), case.person) for case in private] == [(3, 2), (3, 3)]
    assert {case.asked for _ in range(50) for case in choose_cases([(0, [2] * 6)], 3, "open", rng)} == {1, 2}
    assert max(case.asked for _ in range(200) for case in choose_cases([(0, range(99))], 3, "open", rng)) == 20
    assert [case.asked for case in choose_cases(visits, 3, "nothing", rng)] == [0, 0, 0]
    assert list(private[0].switch) == [True] * (private[0].asked + 1) + [False] * 3
    assert sum(choose_cases(visits, 3, "open", rng)[0].switch) == 1


def test_where_there_are_few_people_long_visits_are_cut():
    """Everybody's first piece comes before anybody's second, pieces do not overlap, and it ends with enough."""
    visits = [(7, list(range(200))), (8, list(range(200))), (9, list(range(6)))]
    cases = choose_cases(visits, 3, "private", np.random.default_rng(0), enough=9)
    assert [case.person for case in cases] == [7, 8, 9, 7, 8, 7, 8, 7, 8]
    for person in (7, 8):
        mine = [case.requests for case in cases if case.person == person]
        assert all(one[-1] + 1 == two[0] for one, two in pairwise(mine))
    assert len(choose_cases(visits, 3, "nothing", np.random.default_rng(0), enough=9)) == 3


def test_too_few_readers_and_impossible_requests(people, monkeypatch):
    visits = visits_of(people, 300)
    with pytest.raises(InvalidInput, match="too few"):
        audit(Session(people, "greedy"), visits[:100], {"bayes": people})
    zeros = MarkovChain([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    found = audit(Session(zeros, "greedy"), visits, {"bayes": people}, "nothing", users=300)
    assert found.impossible + found.users == 300
    assert 0 < found.impossible < 300
    assert found.as_dict()["impossible"] == found.impossible
    monkeypatch.setattr(traces, "FEWEST_CASES", 301)
    with pytest.raises(InvalidInput, match="at least 301"):
        audit(Session(people, "greedy"), visits, {"bayes": people})


# -- what the person openly asked before is known ------------------------------------------------------------


CONSTANTS = {"cap": 100.0, "weight": 0.95, "trust": 15.0}


def requests_of_one(rng, again):
    """120 requests of a person with places of their own, by a law that only the history tells; some are made again."""
    own = 0.85 * rng.dirichlet(np.full(6, 0.15)) + 0.15 / 6
    found = rng.choice(6, size=120, p=own).tolist()
    for t in range(1, 120):
        found[t] = found[t - 1] if rng.random() < again else found[t]
    return found


def known_audit(again, begin):
    population = MarkovChain(np.full((6, 6), 0.1) + 0.4 * np.eye(6))
    rng = np.random.default_rng(5)
    people = [requests_of_one(rng, again) for _ in range(100)]
    cases = choose_known_cases(enumerate(people), 3, rng, 360)
    return audit_traces(
        Session(population, "greedy"),
        cases,
        {"own law": knows_the_person(population, CONSTANTS, 0)},
        users=360,
        history="open",
        begin=begin(population, rng),
        entropy=lambda: SeededEntropy(rng),
    )


def test_a_session_that_knows_less_than_the_server_is_worse_than_naive():
    """Requests do not depend on each other: naive switching tells nothing to a server that knows the person."""
    found = known_audit(0, lambda population, rng: None)
    last = found.steps[-1]
    assert last.difference > 3 * last.difference_stderr > 0
    assert not found.below_naive
    assert found.history == "open"
    assert last.empirical_bound is None
    assert found.before_bits > 10 * found.before_stderr  # the history tells where the person goes
    assert abs(last.control_bits) < 4 * last.control_stderr + 0.01


def test_a_session_that_knows_as_much_as_the_server_is_below_naive():
    found = known_audit(0.25, lambda population, rng: starts_of(population, CONSTANTS, rng, "greedy"))
    last = found.steps[-1]
    assert last.difference < -3 * last.difference_stderr < 0
    assert found.below_naive
    assert last.bits < 3 * last.stderr
    assert found.cost < 4  # of 18; three are the least


def test_the_paired_difference_is_counted_case_by_case_and_by_person():
    person = np.array([0, 0, 1, 2])
    ours, theirs = (
        guesses.Judgement(person, np.array(bits)[:, None], [{}], np.zeros((4, 2), dtype=bool), np.zeros((4, 1)))
        for bits in ([0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.4, 0.3])
    )
    mean, error = guesses.difference(ours, theirs, 1)
    assert mean == pytest.approx(-0.1)
    off = np.array([-0.2, 0.0, 0.2])  # by person, about the mean
    assert error == pytest.approx(np.sqrt((off**2).sum() * 3 / 2) / 4)


def test_known_cases_have_twenty_open_requests_before_them_and_do_not_overlap():
    visits = [(1, range(15)), (2, range(30)), (1, range(15, 300)), (2, range(30, 32))]
    cases = choose_known_cases(visits, 3, np.random.default_rng(0), 9)
    assert {case.person for case in cases} == {1, 2}
    assert [case.person for case in cases[:4]] == [1, 2, 1, 2]
    for case in cases:
        assert case.asked == 0
        assert len(case.requests) == 4
        first = case.requests[0]
        assert first >= 20
        assert case.history == tuple(range(max(0, first - 200), first))
    firsts = sorted(case.requests[0] for case in cases if case.person == 1)
    assert all(b - a >= 4 for a, b in pairwise(firsts))
    assert choose_known_cases([(1, range(23))], 3, np.random.default_rng(0), 9) == []
    assert len(choose_known_cases([(1, range(24))], 3, np.random.default_rng(0), 9)) == 1
