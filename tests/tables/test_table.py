"""QueryTable: the identities hold by ==, and every kind of broken table is caught."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from onoff.audit.exact import ScriptedEntropy, enumerate_branches
from onoff.errors import InvalidTable, PrivacyBreach
from onoff.model.certificate import SetCertificate, SimpleBound
from onoff.model.rows import UNIT, Rows
from onoff.tables.show import MOST_SHOWN
from onoff.tables.table import QueryTable

A, B = 0, 1
# The example of the paper with alpha = beta = 1/4, so that the integers are exact.
EIGHTH = UNIT // 8
ROWS = Rows.of([[0.75, 0.25], [0.25, 0.75]])
TWO = 2 * EIGHTH
FOUR = 4 * EIGHTH


def paper_table(rows=ROWS, shift=0):
    cells = [
        (0, 0, A, TWO - shift),
        (1, 0, B, TWO),
        (2, 0, A, FOUR + shift),
        (0, 1, A, TWO),
        (1, 1, B, TWO),
        (2, 1, B, FOUR),
    ]
    return QueryTable.from_cells(rows, [(A,), (B,), (B, A)], cells, scheme="by hand", certificate=SimpleBound("outer"))


def test_the_table_of_the_papers_example_verifies():
    table = paper_table()
    table.verify()
    assert table.queries == [(A,), (B,), (A, B)]
    assert table.exact_cost == Fraction(3, 2)
    assert table.rate == 1 / 1.5
    assert table.optimal
    assert table.gap == 0


def test_a_mass_that_is_off_by_one_unit_is_a_breach():
    with pytest.raises(PrivacyBreach, match="query"):
        paper_table(shift=1).verify()


def test_a_row_that_is_not_met_is_refused():
    other = Rows.of([[0.5, 0.5], [0.25, 0.75]])
    with pytest.raises(InvalidTable, match="source"):
        paper_table(other).verify()


def test_mass_outside_its_query_is_refused():
    with pytest.raises(InvalidTable, match="without asking"):
        QueryTable.from_cells(ROWS, [(A,)], [(0, 0, B, UNIT)])


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("items", [0, 1, 1, 0], "ascending"),
        ("items", [0, 0, 0, 1], "same set"),
        ("offsets", [0, 1, 2, 3], "offsets"),
        ("offsets", [0, 1, 1, 4], "asks for nothing"),
        ("mass", [TWO, TWO, FOUR - 1], "sum to one"),
        ("mass", [UNIT, 0, 0], "not positive"),
        ("weights", [TWO, TWO, FOUR, TWO, TWO, -FOUR], "not positive"),
    ],
)
def test_broken_shapes_are_refused(field, value, complaint):
    broken = replace(paper_table(), **{field: np.array(value, dtype=np.int64)})
    with pytest.raises(InvalidTable, match=complaint):
        broken.verify()


def test_mass_on_an_unreachable_source_is_refused():
    rows = Rows.of([[1.0, 0.0]])
    table = QueryTable.from_cells(rows, [(A, B)], [(0, 0, A, UNIT // 2), (0, 0, B, UNIT // 2)])
    with pytest.raises(InvalidTable, match="no row can reach"):
        table.verify()


def test_equal_queries_and_cells_are_merged():
    table = QueryTable.from_cells(
        Rows.of([[1.0, 0.0]]), [(A, B), (B, A)], [(0, 0, A, UNIT // 2), (1, 0, A, UNIT // 4), (0, 0, A, UNIT // 4)]
    )
    table.verify()
    assert table.queries == [(A, B)]


def test_drawing_has_exactly_the_conditional_law():
    table = paper_table()
    law = {q: p for p, q in enumerate_branches(lambda entropy: table.draw(0, A, entropy))}
    assert law == {(A,): Fraction(1, 3), (A, B): Fraction(2, 3)}
    assert table.draw(0, B, ScriptedEntropy([0])) == (B,)


def test_drawing_the_impossible_is_refused():
    table = QueryTable.from_cells(Rows.of([[1.0, 0.0]]), [(A,)], [(0, 0, A, UNIT)])
    with pytest.raises(InvalidTable, match="probability zero"):
        table.draw(0, B, ScriptedEntropy([0]))


def test_posterior_is_per_hidden_value():
    assert paper_table().posterior([B, A]).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(InvalidTable, match="not a query"):
        paper_table().posterior([7])


def test_as_dict_lists_every_original_row():
    rows = Rows.of([[0.75, 0.25], [0.25, 0.75], [0.75, 0.25]])
    found = paper_table(rows).as_dict()
    assert found["unit"] == UNIT
    assert found["queries"] == [[0], [1], [0, 1]]
    assert found["mass"] == [TWO, TWO, FOUR]
    assert found["joint"][2] == [[FOUR, 0], [0, FOUR], [FOUR, 0]]


def test_it_prints_as_the_paper_prints_it():
    text = str(paper_table()).splitlines()
    assert text[0].split() == ["u", "x", "{1}", "{2}", "{1,2}", "budget"]
    assert text[2].split() == ["1", "1", "0.25", ".", "0.5", "0.75"]
    assert text[3].split() == ["1", "2", ".", "0.25", "0", "0.25"]
    assert text[-1].split() == ["mass", "0.25", "0.25", "0.5", "cost", "1.5"]
    assert "cost=1.5, lower_bound=1.5" in repr(paper_table())


def test_a_large_table_prints_its_heaviest_queries_and_says_so():
    rows = Rows.of(np.full((1, 20), 0.05))
    table = QueryTable.from_cells(
        rows, [(x,) for x in range(20)], [(x, 0, x, int(rows.weights[0, x])) for x in range(20)]
    )
    text = str(table)
    assert "20 queries, 1 rows, 20 sources in all" in text
    assert text.splitlines()[0].count("{") == MOST_SHOWN


def test_errors_name_the_query_the_row_and_the_source_that_are_wrong():
    rows = Rows.of([[0.75, 0.25], [0.75, 0.25], [0.25, 0.75]])
    table = paper_table(rows)
    weights = table.weights.copy()
    at = int(table.starts[1])  # the second distinct row belongs to u = 2; its last cell is in query {0, 1}
    weights[-1] += 1
    weights[at] -= 1
    with pytest.raises(PrivacyBreach, match=r"query \(0,\) has mass \d+ when u = 2"):
        replace(table, weights=weights).verify()
    cells = [(0, 0, A, UNIT), (0, 1, A, UNIT - 5), (0, 1, B, 5)]
    with pytest.raises(InvalidTable, match="source 0 gets"):
        QueryTable.from_cells(Rows.of([[0.75, 0.25], [0.25, 0.75]]), [(A, B)], cells).verify()
    odd = Rows.of([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    with pytest.raises(InvalidTable, match="source 1 gets"):
        QueryTable.from_cells(odd, [(0, 1, 2)], [(0, 0, 0, UNIT // 2), (0, 0, 2, UNIT // 2)]).verify()


def test_mass_outside_a_query_in_the_middle_is_refused():
    with pytest.raises(InvalidTable, match="query 0 holds mass for source 1"):
        QueryTable.from_cells(ROWS, [(A,), (A, B)], [(0, 0, B, UNIT), (1, 1, A, UNIT)])


def test_cells_without_mass_are_left_out():
    table = QueryTable.from_cells(
        ROWS, [(A,), (A, B)], [(0, 0, A, 0), (1, 0, A, UNIT), (1, 1, B, 1), (1, 1, A, UNIT - 1)]
    )
    assert table.queries == [(A, B)]
    assert 1 in table.weights.tolist()
    assert len(table.starts) == table.rows.distinct + 1


def test_the_gap_and_what_is_called_optimal():
    table = paper_table().labelled(certificate=None)
    assert (table.lower_bound, table.gap, table.optimal) == (None, None, False)
    weak = table.labelled(
        certificate=SetCertificate(6, (), (), scale=5)
    )  # every query holds a source, and 6/5 is wrong
    with pytest.raises(InvalidTable, match="wrong by"):
        assert weak.optimal
    weak = table.labelled(certificate=SetCertificate(1, (), (), scale=1))
    assert (weak.lower_bound, weak.gap, weak.optimal) == (1.0, 0.5, False)
    assert table.labelled(certificate=SimpleBound("outer")).optimal


def test_a_slot_that_is_stored_twice_is_refused():
    table = paper_table()
    slots, weights, starts = table.slots.tolist(), table.weights.tolist(), table.starts.copy()
    half = weights[0] // 2
    starts[1:] += 1
    doubled = replace(
        table,
        slots=np.array([slots[0], *slots]),
        weights=np.array([half, weights[0] - half, *weights[1:]]),
        starts=starts,
    )
    with pytest.raises(InvalidTable, match="slots of a row"):
        doubled.verify()


def test_a_stored_mass_of_zero_is_refused():
    table = paper_table()
    kept = table.weights.copy()
    kept[0] = 0
    with pytest.raises(InvalidTable, match="not positive"):
        replace(table, weights=kept).verify()


def test_sums_that_only_meet_modulo_two_to_the_64_are_refused():
    """Every query of four of five sources holds 2**62 too many in each cell: 2**64 in each query and each source."""
    queries = list(combinations(range(5), 4))
    cells = [[k, 0, x, UNIT // 20] for k, query in enumerate(queries) for x in query]
    cells[0][3] += UNIT - 20 * (UNIT // 20)
    spent = [sum(weight for _, _, y, weight in cells if y == x) for x in range(5)]
    table = QueryTable.from_cells(Rows.from_integers([spent], 5), queries, cells)
    table.verify()
    with pytest.raises(InvalidTable, match="row 0 holds"):
        replace(table, weights=table.weights + 2**62).verify()


@pytest.mark.parametrize(
    ("field", "change", "complaint"),
    [
        ("slots", lambda slots, table: np.array([slots[-1] - len(table.items), *slots[1:]]), "outside every query"),
        ("slots", lambda slots, table: slots + len(table.items), "outside every query"),
        ("slots", lambda slots, table: np.array([*slots[:-1], len(table.items)]), "outside every query"),
        ("items", lambda items, table: np.array([*items[:-1], 7]), "no such source"),
        ("items", lambda items, table: np.array([*items[:-1], table.rows.n]), "no such source"),
        ("items", lambda items, table: np.array([*items[:-1], items[-2]]), "ascending order"),
        ("items", lambda items, table: np.array([*items[:-2], -1, items[-1]]), "no such source"),
        ("starts", lambda starts, table: starts[:-1], "do not fit the rows"),
        ("starts", lambda starts, table: starts + 1, "do not fit the rows"),
        ("starts", lambda starts, table: starts[::-1], "do not fit the rows"),
        ("weights", lambda weights, table: weights[:-1], "do not fit the rows"),
    ],
)
def test_places_that_are_not_there_are_refused(field, change, complaint):
    """A negative place would be counted from the end by numpy: as mass it verifies, and as a query it is empty."""
    table = paper_table()
    with pytest.raises(InvalidTable, match=complaint):
        replace(table, **{field: change(getattr(table, field), table)}).verify()


def test_a_place_counted_from_the_end_is_refused():
    table = QueryTable.from_cells(Rows.of([[1.0]]), [(A,)], [(0, 0, A, UNIT)])
    from_the_end = replace(table, slots=np.array([-1]))
    assert from_the_end.draw(0, A, ScriptedEntropy([0])) == ()
    with pytest.raises(InvalidTable, match="outside every query"):
        from_the_end.verify()
