"""Public states: what follows from a state is what the session does there."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.support.typed import as_a

from onoff.lab.families import out_degree
from onoff.lab.walk import NOWHERE, NoTable, States
from onoff.model.chain import MarkovChain
from onoff.tables.table import QueryTable

CHAIN = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])


def test_the_start_sends_the_plain_request():
    states = States(CHAIN, "greedy")
    start = states[0]
    assert start.plain
    assert start.cost == 1
    assert start.row_of.tolist() == [0, 0, 0]
    chances, sizes, after = start.following
    assert chances == pytest.approx([1 / 3] * 3)
    assert sizes.tolist() == [1, 1, 1]
    assert [states[number].anchor for number in after] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("memory", ["last-query", "bayes-filter"])
def test_queries_lead_to_states_with_their_masses(memory):
    states = States(CHAIN, "greedy", memory)
    private = states[states[0].after_private]
    assert private.anchor == (0, 1, 2)
    assert private.cost == pytest.approx(1.6)
    chances, sizes, after = private.following
    assert chances @ sizes == pytest.approx(private.cost)
    assert chances.sum() == pytest.approx(1)
    for number, query in zip(after.tolist(), as_a(QueryTable, private.source).queries, strict=True):
        assert states[number].anchor == (query if memory == "last-query" else (0, 1, 2))
        assert states[number].plain == (len(query) == 1)


def test_tables_look_ahead_only_where_asked():
    assert States(CHAIN, "auto").tables.look_ahead is False
    assert States(CHAIN, "auto", look_ahead=True).tables.look_ahead is True


def test_the_same_state_has_one_number():
    states = States(CHAIN, "greedy")
    private = states[0].after_private
    assert states[private].after_private == private
    again = states.number(states[private].then((0, 1), private=False))
    assert again == states.number(states[again].then((0, 1), private=False))
    filtered = States(CHAIN, "greedy", "bayes-filter")
    first = filtered[0].after_private
    assert filtered[first].after_private == first


def test_what_cannot_be_is_nowhere():
    chain = MarkovChain(out_degree(5, 2, np.random.default_rng(0)))
    states = States(chain, "greedy")
    state = states[0].then((1, 3), private=False)
    reached = chain.successors([1, 3]).tolist()
    assert state.possible == tuple(reached)
    assert [x for x in range(5) if state.column_of[x] != NOWHERE] == reached
    assert [x for x in range(5) if state.row_of[x] != NOWHERE] == [1, 3]
    assert States(chain, "greedy", everything=True)[0].possible == (0, 1, 2, 3, 4)


def test_a_scheme_without_a_table_cannot_be_walked(monkeypatch):
    states = States(CHAIN, "greedy")
    private = states[states[0].after_private]
    monkeypatch.setattr(states.tables, "of", lambda memory: object())
    with pytest.raises(NoTable):
        _ = private.following


class WithoutTable:
    """A scheme that only draws."""

    def __init__(self, table):
        self.draw = table.draw


@pytest.mark.statistical
@pytest.mark.parametrize("without", [False, True])
def test_draws_follow_the_masses(without, monkeypatch):
    """Chi-square at alpha = 1e-9, with and without a table; the seed is fixed besides."""
    states = States(CHAIN, "greedy")
    private = states[states[0].after_private]
    chances, _, following = private.following
    if without:
        fresh = States(CHAIN, "greedy")
        private = fresh[fresh[0].after_private]
        table = private.source
        monkeypatch.setattr(fresh.tables, "of", lambda memory: WithoutTable(table))
    sets = Counter(query for query, _ in private.draws(5000, np.random.default_rng(3)))
    expected = [states[number].anchor for number in following.tolist()]
    assert set(sets) <= set(expected)
    assert chisquare([sets[query] for query in expected], 5000 * chances).pvalue > 1e-9
