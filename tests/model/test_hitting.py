"""How many sources meet every support, against looking at all sets."""

from itertools import combinations

import numpy as np
import pytest

from onoff.errors import InvalidTable
from onoff.lab import families
from onoff.model.certificate import HittingBound, PartsBound, SimpleBound, no_fewer_than
from onoff.model.checker import check_certificate
from onoff.model.rows import Rows


def smallest(supports):
    """The size of the smallest set that meets every line."""
    columns = range(supports.shape[1])
    return next(k for k in columns if any(supports[:, list(s)].any(axis=1).all() for s in combinations(columns, k)))


@pytest.mark.parametrize("seed", range(40))
def test_the_number_is_that_of_the_smallest_set(seed):
    rng = np.random.default_rng(seed)
    supports = rng.random((int(rng.integers(1, 14)), int(rng.integers(2, 11)))) < rng.uniform(0.15, 0.6)
    supports[np.arange(len(supports)), rng.integers(supports.shape[1] - 1, size=len(supports))] = True
    least = smallest(supports)
    assert [no_fewer_than(supports, h) for h in range(1, least + 3)] == [True] * least + [False, False]


def test_out_of_steps_it_says_nothing():
    supports = families.torus(5) > 0
    assert no_fewer_than(supports, 8) is True
    assert no_fewer_than(supports, 9) is False
    assert no_fewer_than(supports, 8, most_steps=50) is None


def test_the_checker_counts_for_itself():
    rows = Rows.of(families.torus(5))
    assert check_certificate(rows, HittingBound(8)) == 8
    with pytest.raises(InvalidTable, match="fewer than 9"):
        check_certificate(rows, HittingBound(9))


def test_parts_add_up_and_may_not_share_a_source():
    rows = Rows.of([[0.5, 0.5, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0, 0.5, 0.5]])
    alone = check_certificate(rows.part([0, 1]), SimpleBound("outer")) + check_certificate(
        rows.part([2, 3]), SimpleBound("outer")
    )
    proof = PartsBound(((0, 1), (2, 3)), (SimpleBound("outer"), SimpleBound("outer")))
    assert check_certificate(rows, proof) == alone == check_certificate(rows, SimpleBound("outer"))
    for parts in (((0,), (1, 2)), ((1, 0), (2, 3)), ((0, 1), (2, 4)), ((0, 1), ()), ((0, 1),)):
        with pytest.raises(InvalidTable):
            check_certificate(rows, PartsBound(parts, proof.proofs))
    with pytest.raises(InvalidTable, match="has parts"):
        check_certificate(rows, PartsBound(((0, 1), (2, 3)), (proof, SimpleBound("outer"))))
