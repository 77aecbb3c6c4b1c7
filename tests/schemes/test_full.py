"""full: one query, all N sources, exact on every kind of rows."""

import pytest
from tests.support.matrices import many

from onoff.model.rows import UNIT
from onoff.schemes import design


@pytest.mark.parametrize("seed", range(4))
def test_everything_is_asked_always(seed):
    for rows in many(seed, 50, 12):
        table = design(rows, "full")
        table.verify()
        assert table.queries == [tuple(range(rows.n))]
        assert table.mass.tolist() == [UNIT]
        assert table.cost == rows.n
