"""Several servers on a made-up data set: prices by the formula, and the same sets as with one server."""

import zipfile

import numpy as np
import pytest

from onoff.lab.families import browsing
from onoff.lab.results import msnbc
from onoff.model.chain import MarkovChain


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    chain = MarkovChain(browsing(5, rng))
    head = "% Different categories found in input file:\n\nfront news tech local travel\n\n\n% Sequences:\n\n"
    lines = "\n".join(" ".join(str(x + 1) for x in chain.sample(14, rng)) for _ in range(100))
    with zipfile.ZipFile(tmp_path / "small.zip", "w") as packed:
        packed.writestr("x.seq", head + lines)
    return tmp_path / "small.zip"


def test_more_servers_cost_less_and_a_private_request_costs_what_the_formula_says(data):
    text = msnbc.servers_section(data, 200).text
    lines = [line for line in text.splitlines() if line[:3] in ("| 1", "| 2", "| 3")]
    rows = [[float(cell) for cell in line.strip("| ").split("|")] for line in lines]
    assert [row[0] for row in rows] == [1, 2, 3]
    assert [row[1] for row in rows] == pytest.approx([5, 2 - 2**-4, (1 - 3**-5) * 1.5], abs=1e-3)
    assert rows[0][2] > rows[1][2] > rows[2][2] >= msnbc.OPEN_STEPS
    assert [row[3] for row in rows] == pytest.approx([11 * row[1] for row in rows], abs=0.01)
