"""A table as text: what is shown of probabilities that only roundings left behind."""

from onoff.model.rows import UNIT, Rows
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
