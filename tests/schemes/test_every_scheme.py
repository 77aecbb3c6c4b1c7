"""Any rows of fractions, every scheme with a table: nothing leaks, all can be read, every bound is on its side."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.typed import as_a, present

from onoff.errors import OnOffError
from onoff.model.bounds import bounds, lambda_units, lower_bound, theta_units
from onoff.model.checker import check_certificate
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.tables.table import OPTIMAL_GAP, QueryTable

SCHEMES = ("full", "single", "greedy", "enumerated", "optimal")
COUNTS = st.one_of(st.just(0), st.integers(1, 3), st.integers(1, 10**9))
"""Zeros, ties and anything: over their sum, the fractions of a row."""


@st.composite
def fractions(draw):
    """Up to six rows over up to six sources, some of them equal."""
    n = draw(st.integers(1, 6))
    row = st.lists(COUNTS, min_size=n, max_size=n).filter(any)
    rows = draw(st.lists(row, min_size=1, max_size=5))
    rows += draw(st.lists(st.sampled_from(rows), max_size=1))
    return Rows.of([[Fraction(count, sum(row)) for count in row] for row in rows])


def holds(table: QueryTable, rows: Rows) -> bool:
    """The definition, by `==`, from the whole table as it is written to files: no code of its own check."""
    whole = table.as_dict()
    met = [[0] * rows.n for _ in range(rows.m)]
    for query, mass, joint in zip(whole["queries"], whole["mass"], whole["joint"], strict=True):
        for u, cells in enumerate(joint):
            if sum(cells) != mass or min(cells) < 0:
                return False  # p(q | u) is the same for every u
            for x, cell in zip(query, cells, strict=True):
                met[u][x] += cell
    return sum(whole["mass"]) == UNIT and met == [[rows.weight(u, x) for x in range(rows.n)] for u in range(rows.m)]


@settings(max_examples=150)
@given(fractions())
def test_every_table_is_private_and_within_its_bounds(rows):
    tables = {scheme: as_a(QueryTable, design(rows, scheme)) for scheme in SCHEMES}
    reach = tuple(rows.columns.tolist())
    for scheme, table in tables.items():
        table.verify()
        assert holds(table, rows)
        assert check_certificate(rows, present(table.certificate)) == present(table.proven_bound) <= table.exact_cost
        assert lower_bound(rows) <= table.exact_cost <= rows.n
        assert table.queries == sorted(table.queries, key=lambda q: (len(q), q))
        assert scheme == "full" or {x for q in table.queries for x in q} <= set(reach)
    cost = {scheme: table.exact_cost for scheme, table in tables.items()}
    slack = Fraction(1 + OPTIMAL_GAP)
    assert tables["optimal"].optimal
    assert tables["enumerated"].optimal
    assert cost["optimal"] <= cost["enumerated"] * slack <= min(cost.values()) * slack**2
    assert cost["greedy"] <= min(cost["single"], Fraction(inner_units(rows), UNIT))
    assert float(cost["greedy"]) <= bounds(rows).inner * (1 + 1e-15)  # of all rows, equal ones counted as they occur
    theta_1 = Fraction(sum(rows.weights.min(axis=0).tolist()), UNIT)
    assert cost["single"] == theta_1 + len(reach) * (1 - theta_1)
    assert all(len(q) == 1 or q == reach for q in tables["single"].queries)
    assert tables["full"].queries == [tuple(range(rows.n))]
    assert tables["full"].mass.tolist() == [UNIT]
    if rows.distinct == 1:
        assert cost["single"] == cost["greedy"] == cost["optimal"] == 1  # `enumerated` proposes masses in floats
    if rows.distinct <= 3:  # where Algorithm 1 is proved optimal
        assert cost["greedy"] <= cost["optimal"] * slack


def inner_units(rows: Rows) -> int:
    """The paper's inner bound of the distinct rows, in units: sum of min(i, N) theta_i."""
    thetas = theta_units(lambda_units(rows, distinct=True))
    return sum(min(i, len(rows.columns)) * units for i, units in enumerate(thetas, start=1))


@settings(max_examples=50)
@given(fractions().filter(lambda rows: rows.distinct > 1), st.data())
def test_one_unit_moved_is_seen(rows, data):
    """The broken twin: a unit of some cell goes to another cell of the same row, or of another query."""
    table = design(rows, "greedy")
    cells = table.weights.copy()
    giving = data.draw(st.sampled_from([c for c in range(len(cells)) if cells[c] > 1]))
    taking = data.draw(st.sampled_from([c for c in range(len(cells)) if c != giving]))
    cells[giving] -= 1
    cells[taking] += 1
    broken = replace(table, weights=cells)
    assert not holds(broken, rows)
    with pytest.raises(OnOffError):
        broken.verify()


def test_the_example_of_the_introduction():
    table = design([[0.75, 0.25], [0.25, 0.75]], "single")
    assert table.queries == [(0,), (1,), (0, 1)]
    assert [m * 4 // UNIT for m in table.mass.tolist()] == [1, 1, 2]
