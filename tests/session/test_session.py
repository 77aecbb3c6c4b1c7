"""Session: what is asked while ON and OFF, first requests, impossible ones, and who may draw."""

import hashlib
from fractions import Fraction

import pytest

import onoff
from onoff.audit.exact import ScriptedEntropy, enumerate_branches
from onoff.errors import InvalidInput, UnknownScheme, UnknownSource
from onoff.model.chain import MarkovChain, Names
from onoff.model.rows import UNIT
from onoff.session.memories import BayesFilter, LastQuery
from onoff.session.session import IMPOSSIBLE, MEMORIES, Query, Session, TableCache

P2 = MarkovChain([[0.8, 0.2], [0.2, 0.8]], names=["left", "right"])
# 0 -> {0, 1}, 1 -> {2}, 2 -> {0, 2}: with hard zeros
ZEROS = MarkovChain([[0.5, 0.5, 0], [0, 0, 1], [0.5, 0, 0.5]])
both = pytest.mark.parametrize("memory", MEMORIES)


@both
def test_a_first_request_that_is_off_is_sent_plainly_and_so_are_those_after_it(memory):
    session = Session(P2, "single", memory)
    assert session.request("right", private=False).sources == (1,)
    assert session.request("left", private=False).sources == (0,)
    assert session.expected_cost(private=False) == 1
    assert session.expected_cost(private=True) == 2


@both
def test_on_asks_for_everything_every_time(memory):
    session = Session(P2, "single", memory)
    for wanted in (0, 1, 1):
        query = session.request(wanted, private=True)
        assert query.sources == (0, 1)
        assert query.everything
        assert query.note is None
        assert wanted in query


@both
def test_off_after_on_is_drawn_from_the_table_of_the_rows(memory):
    session = Session(P2, "single", memory)
    session.request(0, private=True)
    law = {}
    for p, query in enumerate_branches(lambda entropy: session.fork(entropy).request(0, private=False).sources):
        law[query] = p
    kept = P2.rows().weight(1, 0)
    stay = P2.rows().weight(0, 0)
    assert law == {(0,): Fraction(kept, stay), (0, 1): 1 - Fraction(kept, stay)}
    assert session.expected_cost(private=False) == pytest.approx(1.6)


def test_a_singleton_query_frees_the_session_until_the_next_on():
    session = Session(P2, "single", entropy=ScriptedEntropy([0]))
    session.request(0, private=True)
    assert session.request(1, private=False).sources == (1,)
    assert session.memory.rows.distinct == 1
    assert session.request(0, private=False).sources == (0,)


def test_on_asks_only_for_what_can_follow_the_last_query():
    session = Session(ZEROS, "single")
    assert session.request(1, private=False).sources == (1,)
    assert session.request(2, private=True).sources == (2,)
    assert session.request(0, private=True).sources == (0, 2)
    assert session.request(0, private=True).sources == (0, 1, 2)


def test_everything_forces_all_sources():
    session = Session(ZEROS, "single", everything=True)
    session.request(1, private=False)
    assert session.request(2, private=True).sources == (0, 1, 2)


def test_on_starts_with_what_the_initial_law_allows():
    assert Session(MarkovChain([[0.5, 0.5], [0.5, 0.5]], initial=[1, 0])).request(0, private=True).sources == (0,)


@both
@pytest.mark.parametrize("private", [True, False])
def test_an_impossible_request_asks_for_everything_starts_afresh_and_says_so(memory, private):
    session = Session(ZEROS, "single", memory)
    session.request(1, private=False)
    query = session.request(0, private=private)
    assert query.everything
    assert query.note == IMPOSSIBLE
    assert session.memory.rows.m == 3
    assert session.memory.secret_row == 0


def test_a_request_that_is_possible_for_another_hidden_value_but_not_for_the_true_one():
    session = Session(ZEROS, "single")
    session.request(1, private=True)  # S is everything, the secret is 1, and only 2 can follow 1
    assert session.request(0, private=False).note == IMPOSSIBLE


def test_bad_names_are_refused_before_anything_is_drawn():
    for arguments in ({"scheme": "gredy"}, {"memory": "last-qery"}):
        with pytest.raises(UnknownScheme, match="did you mean"):
            Session(P2, **arguments)
    session = Session(P2, "single", entropy=ScriptedEntropy([]))
    before = session.memory
    with pytest.raises(UnknownSource):
        session.request("lefty", private=True)
    assert session.memory is before


def test_proposing_does_not_adopt_and_preparing_builds_the_table():
    session = Session(P2, "single")
    session.request(0, private=True)
    before = session.memory
    session.prepare()
    assert len(session.tables) == 1
    session.propose(1, private=False)
    assert session.memory is before


def test_secrets_do_not_show_in_reprs():
    chain = MarkovChain([[0.8, 0.2], [0.2, 0.8]], names=["left", "marker-7777"])
    session = Session(chain, "single")
    session.request("marker-7777", private=True)
    assert repr(session.memory) == "LastQuery(last=(0, 1))"
    filtered = Session(chain, "single", "bayes-filter")
    filtered.request("marker-7777", private=True)
    assert "hidden" not in repr(filtered.memory)


def test_tables_are_kept_by_set_and_let_go_beyond_the_limit():
    chain = MarkovChain([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    tables = TableCache(chain, "single")
    whole = tables.of(LastQuery(chain, (0, 1, 2), 0))
    assert tables.of(LastQuery(chain, (0, 1, 2), 1)) is whole
    assert tables.of(LastQuery(chain, (0, 1), 1)) is not whole
    assert len(tables) == 2
    small = TableCache(chain, "single", limit_bytes=1)
    small.of(LastQuery(chain, (0, 1, 2), 0))
    small.of(LastQuery(chain, (0, 1), 0))
    assert len(small) == 1


def test_the_filter_is_bayes_rule():
    """p(x_2 | x_0, q_1) from the table of step 1, by hand, for the example with alpha = beta = 1/4."""
    chain = MarkovChain([[0.75, 0.25], [0.25, 0.75]])
    session = Session(chain, "single", "bayes-filter", entropy=ScriptedEntropy([1]))
    session.request(0, private=True)
    assert session.request(0, private=False).sources == (0, 1)
    # |Q_1| = 2 happens only when x_1 = x_0, so the rows of step 2 are the chain's own again
    assert isinstance(session.memory, BayesFilter)
    assert session.memory.rows.weights.tolist() == [[3 * UNIT // 4, UNIT // 4], [UNIT // 4, 3 * UNIT // 4]]


def test_a_query_is_a_set_with_a_length():
    query = Query((1, 4), 6)
    assert len(query) == 2
    assert 4 in query
    assert 3 not in query
    assert not query.everything


@both
def test_every_on_comes_back_to_the_same_table(memory):
    session = Session(P2, "single", memory)
    for source in (0, 1, 1):
        session.request(source, private=True)
        session.prepare()
    assert len(session.tables) == 1


def test_the_papers_filter_keeps_the_last_private_request_through_open_ones():
    """After ON its rows have one row for every value of X_tau, whatever is asked openly since."""
    chain = MarkovChain([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    session = Session(chain, "single", "bayes-filter", entropy=ScriptedEntropy([1, 0]))
    session.request(2, private=True)
    assert session.request(2, private=False).sources == (0, 1, 2)
    assert (session.memory.rows.m, session.memory.secret_row) == (3, 2)
    assert session.request(0, private=False).sources == (0,)
    session.request(1, private=False)
    assert (session.memory.rows.m, session.memory.secret_row, session.memory.rows.distinct) == (3, 2, 1)


def test_nothing_is_prepared_where_nothing_is_at_stake():
    session = Session(P2, "single")
    session.prepare()
    session.request(0, private=False)
    session.prepare()
    assert len(session.tables) == 0


def test_queries_are_values():
    assert Query((0,), 2, "why") == Query((0,), 2)
    with pytest.raises(AttributeError):
        Query((0,), 2).n = 3  # type: ignore[misc]


def test_a_memory_does_not_show_what_is_secret():
    chain = MarkovChain([[0.75, 0.25], [0.25, 0.75]])
    assert LastQuery(chain, (0, 1), 1) != LastQuery(chain, (0, 1), 0)
    assert repr(LastQuery(chain, (0, 1), 1)) == repr(LastQuery(chain, (0, 1), 0))
    assert (
        repr(BayesFilter(chain, chain.rows(), 1))
        == repr(BayesFilter(chain, chain.rows(), 0))
        == "BayesFilter(rounding=0)"
    )
    assert LastQuery(chain, (0, 1), None).secret_row == 0
    assert LastQuery(chain, None, 1).secret_row == 0


def test_the_filter_counts_its_rounding_keeps_zeros_and_needs_a_table():
    chain = MarkovChain([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]])
    session = Session(chain, "greedy", "bayes-filter")
    session.request(0, private=True)
    assert session.memory.rounding == 0
    query = session.request(0, private=False).sources
    assert len(query) > 1  # no source can follow every other
    assert session.memory.rounding == chain.n
    # from one of the four, two steps on: the source three ahead cannot be wanted
    rows = session.memory.rows
    for u in range(4):
        assert rows.weight(u, (u + 3) % 4) == 0
    again = session.request(1, private=False).sources
    assert session.memory.rounding == (2 * chain.n if len(again) > 1 else 0)
    with pytest.raises(UnknownScheme, match="needs a table"):
        BayesFilter(chain, chain.rows()).after((0, 1), 0, private=False, table=None)


def test_sessions_share_tables_of_their_own_chain_only():
    """The tables of another chain, found under the same sets, would hide nothing."""
    one, other = MarkovChain([[0.8, 0.2], [0.2, 0.8]]), MarkovChain([[0.6, 0.4], [0.4, 0.6]])
    tables = TableCache(one, "greedy")
    assert Session(one, tables=tables).tables is tables
    assert Session(MarkovChain(one.transition), "greedy", tables=tables).tables is tables
    with pytest.raises(InvalidInput, match="another model"):
        Session(other, tables=tables)
    with pytest.raises(InvalidInput, match="both tables"):
        Session(one, "optimal", tables=tables)
    with pytest.raises(InvalidInput, match="both tables"):
        Session(one, tables=tables, budget=1.0)


CONTENT = {"transition": [[0.5, 0.5], [0.2, 0.8]], "names": ["a", "b"]}


@pytest.mark.parametrize(
    "take",
    [onoff.Session, onoff.MarkovChain, onoff.design, onoff.bounds, lambda it: onoff.Client("http://127.0.0.1:1", it)],
    ids=["Session", "MarkovChain", "design", "bounds", "Client"],
)
def test_a_dict_for_a_chain_is_a_type_error_that_says_what_to_write(take):
    with pytest.raises(TypeError, match=r"MarkovChain\(\*\*content\)"):
        take(CONTENT)
    assert onoff.MarkovChain(**CONTENT).names == ("a", "b")


def test_a_matrix_for_a_model_is_a_type_error_that_says_what_to_write():
    with pytest.raises(TypeError, match=r"not a chain or model, but a list; .* onoff.MarkovChain\(matrix\)"):
        onoff.Session(CONTENT["transition"])


def test_a_session_without_a_model_asks_for_everything_always():
    names = Names(("alpha", "beta", "gamma"))
    session = Session(names)
    for source, private in ((0, True), ("beta", False), (2, False), (2, True)):
        query = session.request(source, private=private)
        assert query.everything
        assert (query.note is None) == private
        assert session.expected_cost(private=private) == 3
    assert session.memory.restored((0, 1, 2), 0, session.memory.stored()) == session.memory
    # as journals of clients without a model have held it since version 0.1
    assert names.digest() == hashlib.sha256(b"alpha\nbeta\ngamma").hexdigest()
