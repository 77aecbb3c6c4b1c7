"""race: the same law of queries for every hidden value, the wanted source always in it, dense and sparse alike."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.optimal import million
from scipy.sparse import csr_array
from scipy.stats import chi2
from tests.support.typed import as_a, present

from onoff import MarkovChain, Session
from onoff.errors import InvalidChain, InvalidTable
from onoff.lab import families
from onoff.model.rows import Rows, SparseRows
from onoff.schemes import design
from onoff.schemes.race import Race, build
from onoff.session.seeded import SeededEntropy

ALPHA = 1e-6
"""The probability that a G-test here would reject a correct race, were its seed not fixed."""


def query_counts(race, p, samples, seed, draw=None):
    """How often each query was asked, for each hidden value: shape (rows, queries)."""
    rng = np.random.default_rng(seed)
    entropy = SeededEntropy(rng)
    drawn = [
        [(draw or race.draw)(u, int(x), entropy) for x in rng.choice(p.shape[1], size=samples, p=row)]
        for u, row in enumerate(p)
    ]
    counted = [Counter(queries) for queries in drawn]
    kinds = sorted(set().union(*counted))
    return np.array([[queries[kind] for kind in kinds] for queries in counted])


def g_test(counts):
    """The p-value of "all rows have the same law", queries rarer than 10 in all pooled."""
    rare = counts.sum(axis=0) < 10 * len(counts)
    pooled = np.column_stack([counts[:, ~rare], counts[:, rare].sum(axis=1)])
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    expected = pooled.sum(axis=1, keepdims=True) * pooled.sum(axis=0) / pooled.sum()
    positive = pooled > 0
    g = 2 * (pooled[positive] * np.log(pooled[positive] / expected[positive])).sum()
    return chi2.sf(g, (pooled.shape[0] - 1) * (pooled.shape[1] - 1))


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.statistical
@pytest.mark.parametrize(("name", "n"), [("dirichlet 1", 4), ("sticky", 6), ("out-degree 3", 6), ("ring", 5)])
def test_the_law_of_the_query_does_not_depend_on_the_hidden_value(name, n):
    p = families.FAMILIES[name](n, np.random.default_rng(1))
    assert g_test(query_counts(design(p, "race"), p, 4000, seed=2)) > ALPHA


@pytest.mark.statistical
def test_the_g_test_sees_a_leak():
    """The control: a race that forgets that x won only draws fresh arrivals, and the test must notice."""
    p = families.dirichlet(4, 1.0, np.random.default_rng(1))
    race = as_a(Race, design(p, "race"))

    def forgetful(u, x, entropy):
        hit = race._hit(-np.log(entropy.uniforms(4)))
        hit[x] = True
        return tuple(np.flatnonzero(hit).tolist())

    assert g_test(query_counts(race, p, 4000, seed=2, draw=forgetful)) < ALPHA


@pytest.mark.statistical
def test_the_winner_of_a_row_follows_that_row():
    """Chi-square of X_v against p_v for every row v, alpha = 1e-6 in all."""
    p = families.dirichlet(5, 1.0, np.random.default_rng(3))
    race, rng = design(p, "race"), np.random.default_rng(4)
    for v in range(5):
        alone = build(Rows.of(p[v : v + 1]))
        counts = sum(alone._hit(rng.exponential(size=5)).astype(int) for _ in range(4000))
        assert chi2.sf(((counts - 4000 * p[v]) ** 2 / (4000 * p[v])).sum(), 4) > ALPHA / 5
    assert race.rows.distinct == 5


@pytest.mark.parametrize("name", ["dirichlet 1", "sticky", "zipf", "out-degree 3", "ring"])
def test_dense_and_sparse_forms_find_the_winners_of_a_plain_argmin(name):
    p = families.FAMILIES[name](60, np.random.default_rng(5))
    dense = build(Rows.of(p))
    matrix = csr_array(p)
    matrix.sort_indices()
    sparse = build(SparseRows.of_csr(matrix, np.arange(60)))
    rng = np.random.default_rng(6)
    for _ in range(50):
        arrival = rng.exponential(size=60)
        with np.errstate(divide="ignore"):
            plain = set(np.argmin(arrival / p, axis=1).tolist())
        for race in (dense, sparse):
            assert set(race.rows.columns[race._hit(arrival[race.rows.columns])].tolist()) == plain


def test_the_wanted_source_is_always_asked_for_and_the_impossible_never():
    p = families.FAMILIES["out-degree 3"](12, np.random.default_rng(7))
    race, entropy = design(p, "race"), SeededEntropy(np.random.default_rng(8))
    for u in range(12):
        for x in range(12):
            if p[u, x] > 0:
                query = race.draw(u, x, entropy)
                assert x in query
                assert all(a < b for a, b in pairwise(query))
            else:
                with pytest.raises(InvalidTable):
                    race.draw(u, x, entropy)


def test_the_cost_of_two_rows_is_one_plus_the_chance_that_their_winners_differ():
    """Pr(same winner) = sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)). Within 5 standard errors."""
    p = families.dirichlet(4, 1.0, np.random.default_rng(9), rows=2)
    race = as_a(Race, design(p, "race"))
    same = sum(1 / np.maximum(p[0] / p[0, x], p[1] / p[1, x]).sum() for x in range(4))
    assert race.stderr < 0.02
    assert race.cost == pytest.approx(2 - same, abs=5 * race.stderr)
    assert race.cost > present(race.lower_bound) - 5 * race.stderr


@pytest.mark.parametrize(("name", "n"), [("sticky", 20), ("sticky", 50), ("browsing", 17)])
def test_costs_at_most_a_fifth_more_than_the_optimum_where_people_stay(name, n):
    p = families.FAMILIES[name](n, np.random.default_rng(10))
    assert design(p, "race").cost <= 1.2 * design(p, "optimal").cost


def test_sparse_rows_read_nothing_but_the_rows_they_are_made_of():
    matrix = families.sparse_out_degree(5000, 4, np.random.default_rng(11))
    states = np.array([17, 3, 4711])
    rows = SparseRows.of_csr(matrix, states)
    dense = matrix[states].toarray()
    assert rows.columns.tolist() == np.flatnonzero(dense.any(axis=0)).tolist()
    for u in range(3):
        for x in (*rows.columns.tolist(), 0):
            assert rows.weight(u, x) == dense[u, x]
    assert rows.reaches(np.array([0, 1]), np.array([0, 0])).tolist() == (dense[:2, rows.columns[0]] > 0).tolist()


def test_rows_too_many_for_a_table_say_so():
    rows = SparseRows.of_csr(families.sparse_out_degree(50, 3, np.random.default_rng(12)), np.arange(50))
    with pytest.raises(InvalidChain, match="too many"):
        design(rows, "optimal")
    assert design(rows, "auto").lower_bound == pytest.approx(design(rows, "race").lower_bound)


def test_a_session_on_a_sparse_chain_of_many_sources():
    """10**5 sources: exact rows would take 80 GB, the race touches half a million entries."""
    matrix = families.sparse_out_degree(100_000, 5, np.random.default_rng(13))
    chain = MarkovChain(matrix)
    session = Session(chain, scheme="auto")
    x = 7
    assert len(session.request(x, private=True)) == 100_000
    for _ in range(3):
        x = int(matrix.indices[matrix.indptr[x]])
        query = session.request(x, private=False)
        assert x in query
    assert len(query) < 60_000
    everything_after = session.request(int(matrix.indices[matrix.indptr[x]]), private=True)
    assert everything_after.sources == tuple(np.unique(matrix[list(query.sources)].indices).tolist())


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_step_over_a_million_sources_takes_a_small_multiple_of_the_rows_it_touches():
    """Out-degree 20: making the race and drawing from it, in bytes allocated at the peak."""
    assert 0.1 < million()["over_rows"] < 4
