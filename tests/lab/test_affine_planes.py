"""What is proved about the last query: optimal for the strong criterion, and not for the paper's (affine planes)."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from onoff.lab.walk import Pattern, States, expected_costs
from onoff.model.chain import MarkovChain
from onoff.schemes import design

Line = frozenset[tuple[int, int]]


def classes_of(order: int) -> list[list[Line]]:
    """The parallel classes of lines of the affine plane over the integers modulo a prime."""
    field = range(order)
    slopes = [[frozenset((x, (a * x + b) % order) for x in field) for b in field] for a in field]
    return [*slopes, [frozenset((x, y) for y in field) for x in field]]


def chain_of(order: int, hidden: int) -> MarkovChain:
    """Each hidden value moves to a line of its own class, then to a point of it, which is absorbing."""
    lines = [line for one in classes_of(order)[:hidden] for line in one]
    points = sorted({point for line in lines for point in line})
    n = hidden + len(lines) + len(points)
    matrix = np.zeros((n, n))
    for u in range(hidden):
        matrix[u, hidden + u * order : hidden + (u + 1) * order] = 1 / order
    for at, line in enumerate(lines):
        for point in line:
            matrix[hidden + at, hidden + len(lines) + points.index(point)] = 1 / order
    absorbing = np.arange(hidden + len(lines), n)
    matrix[absorbing, absorbing] = 1
    return MarkovChain(matrix, initial=[1 / hidden] * hidden + [0.0] * (n - hidden))


def union(lines: tuple[Line, ...]) -> int:
    return len(frozenset().union(*lines))


@pytest.mark.parametrize(("order", "hidden"), [(2, 2), (5, 6)])
def test_after_two_steps_nothing_of_the_hidden_value_is_left(order, hidden):
    chain = chain_of(order, hidden)
    twice = np.linalg.matrix_power(chain.dense(), 2)[:hidden]
    assert np.abs(twice - twice[0]).max() < 1e-15
    classes = classes_of(order)[:hidden]
    meeting = {len(a & b) for i, one in enumerate(classes) for two in classes[:i] for a in one for b in two}
    assert meeting == {1}
    assert all(union(tuple(one)) == order**2 for one in classes)


def test_order_two_is_dearer_by_the_last_query_than_by_all_lines_once():
    """Eight steps: 12.5 by dynamic programming over last queries, 11 by asking for all four lines once."""
    chain = chain_of(2, 2)
    assert design(chain.rows([0, 1]), "enumerated").cost == pytest.approx(2, abs=1e-12)
    for lines in product(*[range(2 + 2 * u, 4 + 2 * u) for u in range(2)]):
        table = design(chain.rows(lines), "enumerated")
        assert table.optimal
        assert table.cost == pytest.approx(1.5, abs=1e-12)
    costs = [step.cost for step in expected_costs(States(chain, "optimal"), Pattern((True, *[False] * 8))) or []]
    assert costs[1:] == pytest.approx([2] + [1.5] * 7, abs=1e-9)
    assert sum(costs[1:]) == pytest.approx(12.5)
    assert sum(costs[1:]) > 4 + 7 * 1


def test_any_larger_query_for_lines_costs_more_later():
    """So that no other private query helps the last query: what it costs later only grows with the query."""
    chain = chain_of(2, 2)
    every = [design(chain.rows(lines), "enumerated").cost for lines in ((2, 4, 5), (2, 3, 4), (2, 3, 4, 5))]
    assert min(every) >= 1.5


def test_order_five_wins_from_twelve_requests_on():
    """One line of each of six classes covers 17 points at least: a 7-arc would be needed for 15, and there is none."""
    classes = classes_of(5)
    first = classes[0][0]  # translations move any line of a class to any other
    least = min(union((first, *rest)) for rest in product(*classes[1:]))
    assert least == 17
    later = Fraction(least, 5)
    assert later == Fraction(17, 5)
    by_last, by_lines = (lambda t: 6 + (t - 1) * later), (lambda t: 30 + (t - 1))
    assert [t for t in range(1, 30) if by_lines(t) < by_last(t)] == list(range(12, 30))


def test_order_five_costs_six_first():
    rows = chain_of(5, 6).rows(range(6))
    assert rows.probabilities().max(axis=0).sum() == pytest.approx(6)  # no table costs less
    assert rows.distinct == 6  # and one line of each class costs that
