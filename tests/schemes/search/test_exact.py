"""exact: a table whatever was proposed, as near to it as a maximum flow can bring it; repair; components."""

import networkx
import numpy as np
import pytest
from tests.support.matrices import many, random_rows

from onoff.lab import families
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design, greedy
from onoff.schemes.search.exact import (
    components,
    everything_left,
    joined,
    laid_together,
    rebuild,
    repaired,
    sets_of,
    table_of,
)
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


def test_a_proposal_of_nothing_becomes_algorithm_1():
    for rows in many(31, 40, 8):
        table = repaired(rebuild(rows, [], []))
        table.verify()
        assert abs(float(table.exact_cost - greedy.build(rows).exact_cost)) < 1e-9


def test_half_a_proposal_keeps_its_half():
    rows = Rows.of(families.dirichlet(12, 1.0, np.random.default_rng(1)))
    whole = greedy.build(rows)
    half = rebuild(rows, whole.queries, whole.mass / 2**61)
    mended = repaired(half)
    mended.verify()
    assert mended.exact_cost < half.exact_cost
    assert mended.cost < 1.2 * whole.cost


def test_three_tables_laid_together_are_the_first_two_and_then_the_third():
    rows = Rows.of(families.dirichlet(9, 1.0, np.random.default_rng(4)))
    one = rebuild(rows, [(0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 8)], [0.2, 0.3])
    rest = everything_left(one)
    two = rebuild(rest, [(1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5)], [0.1, 0.1])
    three = greedy.build(everything_left(two), int(two.mass[-1]))
    together = laid_together(rows, one, two, three)
    together.verify()
    assert together.as_dict() == laid_together(rows, one, laid_together(rest, two, three)).as_dict()
    assert together.exact_cost < one.exact_cost


def test_nothing_to_mend_is_left_alone():
    rows = Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(2)))
    table = rebuild(rows, greedy.build(rows).queries, greedy.build(rows).mass / 2**60)
    assert repaired(table) is table


def test_rows_too_many_for_algorithm_1_are_left_as_they_are(monkeypatch):
    rows = Rows.of(families.dirichlet(6, 1.0, np.random.default_rng(2)))
    table = rebuild(rows, [(0, 1, 2)], [0.3])
    assert repaired(table).cost < table.cost
    monkeypatch.setattr(greedy, "MOST_BYTES", 4 * 6**3 - 1)
    assert repaired(table) is table


def test_parts_are_what_hangs_together():
    assert components(Rows.of(families.torus(5))) == [tuple(range(25))]
    white, black = components(Rows.of(families.torus(4)))
    assert sorted(white + black) == list(range(len(white) + len(black)))


def test_joined_tables_cost_what_they_cost_together():
    rng = np.random.default_rng(0)
    matrix = np.zeros((7, 9))
    matrix[:3, :4], matrix[3:, 4:] = rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(5), 4)
    rows = Rows.of(matrix)
    tables = [design(rows.part(part), "greedy") for part in components(rows)]
    table = joined(rows, tables)
    table.verify()
    assert table.cost == pytest.approx(sum(each.cost for each in tables), abs=1e-12)
    assert len(table) <= sum(map(len, tables)) + 1


def test_the_queries_of_a_table_as_sets():
    rows = Rows.of([[0.5, 0.0, 0.25, 0.25], [0.25, 0.0, 0.25, 0.5]])
    table = greedy.build(rows)
    assert [tuple(rows.columns[chosen].tolist()) for chosen in sets_of(table)] == list(table.queries)


def test_the_masses_of_a_table_give_a_table_that_costs_no_more():
    for rows in many(17, 20, 6):
        table = greedy.build(rows)
        made = table_of(rows, sets_of(table), table.mass / UNIT)
        assert made is not None
        made.verify()
        assert float(made.exact_cost - table.exact_cost) < 1e-9


def test_a_repair_that_would_take_long_is_left_out():
    rows = Rows.of(families.dirichlet(12, 1.0, np.random.default_rng(1)))
    half = rebuild(rows, [(0, 1, 2, 3, 4, 5)], [0.3])
    assert repaired(half, 0.0) is half
    assert repaired(half, 10.0).cost < half.cost


def test_out_of_time_there_is_no_table():
    rows = Rows.of(families.dirichlet(12, 1.0, np.random.default_rng(1)))
    assert table_of(rows, np.eye(12, dtype=bool), np.full(12, 1 / 12), lambda: True) is None
