"""Rows in parts: each alone, and the tables together."""

import numpy as np
import pytest

from onoff.lab import families
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.schemes.search.parts import joined, parts_of


def test_parts_are_what_hangs_together():
    assert parts_of(Rows.of(families.torus(5))) == [tuple(range(25))]
    white, black = parts_of(Rows.of(families.torus(4)))
    assert sorted(white + black) == list(range(len(white) + len(black)))


def test_joined_tables_cost_what_they_cost_together():
    rng = np.random.default_rng(0)
    matrix = np.zeros((7, 9))
    matrix[:3, :4], matrix[3:, 4:] = rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(5), 4)
    rows = Rows.of(matrix)
    tables = [design(rows.part(part), "greedy") for part in parts_of(rows)]
    table = joined(rows, tables)
    table.verify()
    assert table.cost == pytest.approx(sum(each.cost for each in tables), abs=1e-12)
    assert len(table) <= sum(map(len, tables)) + 1
