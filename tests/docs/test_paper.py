"""The article: its drawings are made by its commands, its counterexample holds, and it becomes a PDF."""

import re
import shutil
from fractions import Fraction

import numpy as np
import pytest
from paper import build
from tests.support.pages import ROOT

from onoff import MarkovChain, design
from onoff.model.rows import UNIT, Rows
from onoff.tables.table import QueryTable

PAPER = ROOT / "paper"
TEXT = (PAPER / "onoff.md").read_text(encoding="utf-8")


def test_every_drawing_is_there_and_every_figure_of_the_results_is_what_they_say() -> None:
    drawings = re.findall(r"\]\(([^)]+\.(?:svg|png))\)", TEXT)
    assert len(drawings) == 4
    assert all((PAPER / path).exists() for path in drawings)
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    section = TEXT.partition("## 4.")[2].partition("## 5.")[0]
    figures = [*re.findall(r"\d\.\d{3} ± \d\.\d{3}", section), "10.686", "10.780", "11.114", "2.05 ± 0.04"]
    assert len(figures) > 7
    assert [figure for figure in figures if figure not in results] == []


@pytest.mark.slow(reason="searches tables")
def test_the_drawings_are_made_by_their_commands(tmp_path) -> None:
    build.draw(tmp_path, n=3, bits="0:0.5:0.5", budget="2")
    assert {path.name for path in tmp_path.iterdir()} == {"chain.json", "schemes.svg", "leak.svg"}


@pytest.mark.slow(reason="starts a browser")
@pytest.mark.browser
@pytest.mark.skipif(shutil.which("pandoc") is None, reason="pandoc is not installed: make system")
def test_the_article_becomes_a_pdf(tmp_path) -> None:
    assert build.write(tmp_path).read_bytes().startswith(b"%PDF")
    assert "not found" not in (tmp_path / "onoff.html").read_text()


def plane() -> MarkovChain:
    """States: two hidden values, the lines of their parallel classes (two each), the four points of the plane."""
    P = np.zeros((10, 10))
    lines = {2: (0, 1), 3: (2, 3), 4: (0, 2), 5: (1, 3)}
    P[0, [2, 3]] = P[1, [4, 5]] = 0.5
    for line, points in lines.items():
        P[line, [6 + point for point in points]] = 0.5
    P[range(6, 10), range(6, 10)] = 1.0
    return MarkovChain(P)


def test_the_last_query_is_not_optimal_for_the_last_private_request_alone() -> None:
    """2, then 1.5 at every step by the last query; 4 once, then 1, by asking for all lines: 12.5 and 11 in eight."""
    chain = plane()
    assert np.array_equal(np.linalg.matrix_power(chain.dense(), 2)[0], np.linalg.matrix_power(chain.dense(), 2)[1])

    def table(sources: tuple[int, ...]) -> QueryTable:
        built = design(Rows.of(chain.dense()[list(sources)]), "optimal")
        assert isinstance(built, QueryTable)
        assert built.optimal
        return built

    law: dict[tuple[int, ...], Fraction] = {(0, 1): Fraction(1)}
    costs = []
    for _ in range(8):
        after: dict[tuple[int, ...], Fraction] = {}
        for sources, weight in law.items():
            built = table(sources)
            for k, mass in enumerate(built.mass.tolist()):
                query = tuple(built.query(k))
                after[query] = after.get(query, Fraction(0)) + weight * Fraction(mass, UNIT)
        law = after
        costs.append(sum(len(query) * weight for query, weight in law.items()))
    assert costs == [2, *[Fraction(3, 2)] * 7]
    assert sum(costs) == Fraction(25, 2)
