"""rebuild: exact whatever was proposed, and as near to the proposal as a maximum flow can bring it."""

import networkx
import numpy as np
import pytest
from tests.support.matrices import many, random_rows

from onoff.model.rows import UNIT, Rows
from onoff.schemes.search.rebuild import rebuild
from onoff.schemes.single import build as single


def random_queries(rng, n, count):
    return [rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False).tolist() for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_any_proposal_becomes_an_exact_table(seed):
    rng = np.random.default_rng([seed, 1])
    for rows in many(seed, 60, 10):
        queries = random_queries(rng, rows.n, 12)
        masses = rng.dirichlet(np.full(12, 0.3)) * rng.choice([0.5, 1, 3])
        rebuild(rows, queries, masses).verify()


@pytest.mark.parametrize("masses", [[np.nan] * 3, [-1.0] * 3, [np.inf, -np.inf, 1e300], [0.0] * 3, [1.0] * 3])
def test_nonsense_is_survived(masses):
    rows = Rows.of([[0.5, 0.3, 0.2, 0.0], [0.1, 0.1, 0.8, 0.0]])
    table = rebuild(rows, [[0], [2, 1], [0, 3]], masses)
    table.verify()
    assert all(3 not in q for q in table.queries)  # no row can reach source 3: nobody asks for it


def test_equal_queries_are_added_up_and_their_sum_does_not_overflow():
    rows = Rows.of([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    table = rebuild(rows, [[0, 1]] * 24 + [[1, 0, 0]], [1.0] * 25)
    table.verify()
    assert table.queries == [(0, 1), (0, 1, 2)]
    assert table.mass.tolist() == [UNIT - int(rows.weights[1, 2]), int(rows.weights[1, 2])]
    halves = rebuild(rows, [[1, 0], [2, 1], [0, 1]], [0.05, 0.3, 0.05])
    assert int(halves.mass[halves.queries.index((0, 1))]) == 2 * int(0.05 * UNIT)


def test_a_private_proposal_is_met_to_the_unit():
    for rows in many(5, 100, 12):
        wanted = single(rows)
        table = rebuild(rows, wanted.queries, wanted.mass / UNIT)
        table.verify()
        loss = table.exact_cost - wanted.exact_cost
        assert 0 <= loss * UNIT <= len(wanted) * rows.n * 2**8  # a mass near 1 as a float is off by up to 2**7 units


def test_one_row_sends_a_maximum_flow():
    """The oracle is networkx: with one row nothing is cut, so what misses everything is the flow itself."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        rows = random_rows(rng, 1, int(rng.integers(2, 9)))
        reach = rows.columns.tolist()
        queries = [q for q in random_queries(rng, rows.n, 8) if 0 < len({*q} & {*reach}) < len(reach)]
        masses = rng.dirichlet(np.ones(8))[: len(queries)]
        graph = networkx.DiGraph()
        graph.add_nodes_from(["from", "to"])
        for x, weight in zip(reach, rows.weights[0].tolist(), strict=True):
            graph.add_edge("from", x, capacity=weight)
        for k, (query, mass) in enumerate(zip(queries, masses, strict=True)):
            graph.add_edge(("set", k), "to", capacity=int(mass * UNIT))
            for x in {*query} & {*reach}:
                graph.add_edge(x, ("set", k))
        wanted = networkx.maximum_flow_value(graph, "from", "to")
        table = rebuild(rows, queries, masses)
        table.verify()
        sent = sum(m for q, m in zip(table.queries, table.mass.tolist(), strict=True) if list(q) != reach)
        assert sent == wanted
