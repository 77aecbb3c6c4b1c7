"""A table as text: what is shown of probabilities that only roundings left behind."""

import numpy as np

from onoff.model.chain import MarkovChain
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.tables.table import QueryTable


def test_the_remains_of_roundings_are_not_written_out():
    """Two rows that differ by one unit: everything is asked with probability 2**-62, which nobody wants to read."""
    rows = Rows.from_integers([[UNIT // 2, UNIT // 2], [UNIT // 2 + 1, UNIT // 2 - 1]], 2)
    half = UNIT // 2
    cells = [
        (0, 0, 0, half),
        (1, 0, 1, half - 1),
        (2, 0, 1, 1),
        (0, 1, 0, half),
        (1, 1, 1, half - 1),
        (2, 1, 0, 1),
    ]
    table = QueryTable.from_cells(rows, [[0], [1], [0, 1]], cells)
    table.verify()
    assert "~0" in str(table)
    assert "0.5" in str(table)
    assert "e-19" not in str(table)


def test_sources_have_their_names_where_the_model_has_them():
    chain = MarkovChain([[0.75, 0.25], [0.25, 0.75]], names=["left", "a name that is far too long"])
    head, _, first, *_ = str(design(chain, "greedy")).splitlines()
    assert head.split(maxsplit=3) == ["u", "x", "{left}", "{a name that is …}  {left,a name that is …}    budget"]
    assert first.split()[:2] == ["left", "left"]
    unnamed = str(design(chain.dense(), "greedy")).splitlines()
    assert unnamed[0].split() == ["u", "x", "{1}", "{2}", "{1,2}", "budget"]


def test_rows_that_are_not_sources_are_numbered():
    table = design(MarkovChain(np.full((3, 3), 1 / 3), names=["a", "b", "c"]).rows([0, 2]), "greedy")
    assert str(table.labelled(names=("a", "b", "c"))).splitlines()[2].split()[:2] == ["1", "a"]


def test_a_notebook_shows_the_same_and_names_are_not_markup():
    chain = MarkovChain([[0.75, 0.25], [0.25, 0.75]], names=["<b>left", "right"])
    shown = design(chain, "greedy")._repr_html_()
    assert shown.startswith("<table><caption>&lt;QueryTable greedy: 3 queries")
    assert "<th>{&lt;b&gt;left}</th>" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 1 + 4 + 1
