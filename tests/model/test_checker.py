"""checker: the check is exact, agrees with looking at every set, and refuses what is wrong by one unit."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from tests.support.matrices import many

from onoff.errors import InvalidTable
from onoff.lab import families
from onoff.model import checker as module
from onoff.model.bounds import lambda_units, simplest
from onoff.model.certificate import (
    LEAF,
    SCALE,
    GroupCertificate,
    HittingBound,
    PartsBound,
    RowCertificate,
    RowGroup,
    SetCertificate,
    SimpleBound,
)
from onoff.model.checker import check_certificate, group_excess, row_excess
from onoff.model.rows import UNIT, Rows
from onoff.schemes import design
from onoff.schemes.search.proofs import Duals, best, branch, from_coupling, from_tree


def largest_violation(certificate, n):
    """max over all non-empty S of t - |S| - sum of y_A over A that contain S, by looking at each."""
    sets = [set(members) for members in certificate.sets]
    return max(
        certificate.t
        - size * certificate.scale
        - sum(y for inside, y in zip(sets, certificate.weights, strict=True) if inside.issuperset(chosen))
        for size in range(1, n + 1)
        for chosen in combinations(range(n), size)
    )


def test_the_simple_bounds_are_what_they_say():
    for rows in many(51, 60, 9):
        lambdas = lambda_units(rows)
        assert check_certificate(rows, SimpleBound("outer")) == Fraction(lambdas[-1], UNIT)
        assert check_certificate(rows, SimpleBound("doeblin")) == 2 - Fraction(lambdas[0], UNIT)
        if len(rows.columns) > 2:
            low = {
                (x, z): Fraction(int((rows.weights[:, x] + rows.weights[:, z]).min()), UNIT)
                for x, z in combinations(range(len(rows.columns)), 2)
            }
            assert check_certificate(rows, SimpleBound("pairs")) == 3 - sum(low.values())
            x = int(rows.columns[1])
            through = sum(value for pair, value in low.items() if 1 in pair)
            largest = Fraction(int(rows.weights[:, 1].max()), UNIT)
            assert check_certificate(rows, SimpleBound("pencil", x)) == 2 + largest - through


@pytest.mark.parametrize(
    "wrong",
    [SimpleBound("inner"), SimpleBound("pencil"), SimpleBound("pencil", 7), SimpleBound("outer", 1)],
    ids=str,
)
def test_a_bound_that_does_not_exist_is_refused(wrong):
    with pytest.raises(InvalidTable):
        check_certificate(Rows.of([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]), wrong)
    with pytest.raises(InvalidTable, match="2 sources"):
        check_certificate(Rows.of([[0.5, 0.5], [0.25, 0.75]]), SimpleBound("pairs"))


@pytest.fixture(params=[False, True], ids=["every set", "tree"])
def by_tree(request, monkeypatch):
    """With a tree and without: few sources are looked at one by one unless told otherwise."""
    if request.param:
        monkeypatch.setattr(module, "FEW_SOURCES", 0)
    return request.param


def with_tree(rows, certificate):
    """The certificate with a tree grown for it."""
    inside = np.array([np.isin(rows.columns, members) for members in certificate.sets], dtype=bool)
    duals = Duals(certificate.t / SCALE, np.array(certificate.weights) / SCALE, inside)
    grown = from_tree(rows, duals, branch(duals, lambda: False))
    return replace(certificate, tree=grown.tree, leaves=grown.leaves)


@pytest.mark.slow(reason="many cases are worked out")
def test_random_certificates_are_judged_as_by_looking_at_every_set(by_tree):
    rng = np.random.default_rng(2)
    verdicts = set()
    for _ in range(60):
        n = int(rng.integers(2, 8))
        rows = Rows.of(families.dirichlet(n, 1.0, rng))
        sets = tuple(tuple(np.flatnonzero(rng.random(n) < 0.6).tolist()) for _ in range(int(rng.integers(1, 9))))
        weights = tuple(int(y) for y in rng.integers(1, SCALE, size=len(sets)))
        shape = SetCertificate(0, sets, weights)
        right = replace(shape, t=-largest_violation(shape, n))  # the largest t for which it holds
        if by_tree:
            grown = with_tree(rows, right)
            slack = 100 * len(sets)  # the leaves are rounded
            assert check_certificate(rows, replace(grown, t=right.t - slack)) == replace(
                right, t=right.t - slack
            ).bound(rows)
            right = grown
        else:
            assert check_certificate(rows, right) <= design(rows, "optimal").exact_cost
        with pytest.raises(InvalidTable, match="wrong by"):
            check_certificate(rows, replace(right, t=right.t + 1))
        verdicts.add(right.t > 0)
    assert verdicts == {True}


def test_a_tree_that_is_none_is_refused(monkeypatch):
    monkeypatch.setattr(module, "FEW_SOURCES", 0)
    rows = Rows.of([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]])
    proof = with_tree(rows, SetCertificate(2 * SCALE, ((0,), (1,), (2,)), (SCALE, SCALE, SCALE)))
    assert proof.tree.count(LEAF) == len(proof.leaves) > 1
    check_certificate(rows, replace(proof, t=proof.t - 100))
    for broken in (
        replace(proof, tree=proof.tree[:-1]),
        replace(proof, tree=(*proof.tree, LEAF)),
        replace(proof, tree=(), leaves=()),
        replace(proof, leaves=proof.leaves[:-1]),
        replace(proof, leaves=(*proof.leaves, ())),
        replace(proof, tree=(3, *proof.tree[1:])),
        replace(proof, tree=(0, 0, LEAF, LEAF, LEAF), leaves=((), (), ())),
        replace(proof, leaves=(((3, 1),), *proof.leaves[1:])),
        replace(proof, leaves=(((0, -1),), *proof.leaves[1:])),
        replace(proof, leaves=(((0, SCALE + 1),), *proof.leaves[1:])),
        replace(proof, weights=proof.weights[:-1]),
        replace(proof, scale=0),
    ):
        with pytest.raises(InvalidTable):
            check_certificate(rows, replace(broken, t=broken.t - 100))


def test_couplings_are_judged_alike_by_sources_by_rows_and_by_looking(monkeypatch):
    rng = np.random.default_rng(4)
    for _ in range(40):
        m, n = rng.integers(1, 5, size=2).tolist()
        phi = rng.integers(-SCALE, 2 * SCALE, size=(m, n))
        taken = product(range(n), repeat=m)
        worst = max(sum(int(phi[u, x]) for u, x in enumerate(one)) - SCALE * len(set(one)) for one in taken)
        assert row_excess(phi, SCALE) == worst
        with monkeypatch.context() as patched:
            patched.setattr(module, "MOST_CERTIFIED_ROWS", 0)
            assert row_excess(phi, SCALE) == worst
        held = np.array(from_coupling(phi / SCALE).phi)
        assert -m < row_excess(held, SCALE) <= 0 if worst > 0 else np.array_equal(held, phi)


def test_a_proof_of_some_rows_holds_for_all():
    rows = Rows.of(families.dirichlet(5, 10.0, np.random.default_rng(3)))
    part = RowCertificate((1, 3), ((SCALE, 0, 0, 0, SCALE), (0, SCALE, SCALE, 0, 0)))
    assert check_certificate(rows, part) <= design(rows, "optimal").exact_cost
    for wrong in ((1, 1), (1, 5), (-1, 3), ()):
        with pytest.raises(InvalidTable):
            check_certificate(rows, replace(part, rows=wrong))
    with pytest.raises(InvalidTable, match="does not fit"):
        check_certificate(rows, replace(part, phi=part.phi[:1]))
    with pytest.raises(InvalidTable, match="does not fit"):
        check_certificate(rows, replace(part, phi=((0,), (0,))))


@pytest.mark.parametrize("many_want", [0.3, 0.9], ids=["few blocks", "many blocks"])
def test_groups_are_judged_as_by_looking_at_every_way(many_want):
    rng = np.random.default_rng(5)
    for _ in range(60):
        m, n = rng.integers(1, 6, size=2).tolist()
        able = rng.random((m, n)) < many_want
        able[np.arange(m), rng.integers(0, n, size=m)] = True
        phi, shares = rng.integers(-SCALE, 2 * SCALE, size=(m, n)), rng.integers(0, SCALE, size=n)
        ways = (way for way in product(range(n), repeat=m) if all(able[u, x] for u, x in enumerate(way)))
        worst = max(
            sum(int(phi[u, x]) for u, x in enumerate(way)) - sum(int(shares[x]) for x in set(way)) for way in ways
        )
        assert group_excess(phi, able, shares) == worst


THREE = Rows.of([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
"""Each row wants two of three sources, so that no source serves all of them: 2 are needed, the outer bound is 1.5."""


def of_three(*shares, phi=SCALE // 3, rows=(0, 1, 2)):
    """One group of all of `THREE`, where each row counts two thirds of a source, whatever it takes."""
    lines = ((2 * phi, 2 * phi, 0), (0, 2 * phi, 2 * phi), (2 * phi, 0, 2 * phi))
    return RowGroup(rows, (0, 1, 2), shares, lines)


def test_a_group_proves_what_no_sum_of_masses_does():
    proof = GroupCertificate((of_three(SCALE, SCALE, SCALE),))
    assert check_certificate(THREE, SimpleBound("outer")) == Fraction(3, 2)
    assert check_certificate(THREE, proof) == Fraction(6 * (SCALE // 3), SCALE)  # 2, but for the rounding
    assert design(THREE, "optimal").cost == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((of_three(SCALE, SCALE, SCALE, phi=SCALE // 3 + 1),), "wrong by"),
        ((of_three(SCALE, SCALE, SCALE - 3),), "wrong by"),
        ((of_three(SCALE, SCALE, SCALE), of_three(SCALE, 0, 0, phi=0)), "more than the whole"),
        ((of_three(SCALE, SCALE, -1, phi=0),), "negative"),
        ((of_three(SCALE, SCALE, SCALE, rows=(0, 2, 1)),), "ascending"),
        ((of_three(SCALE, SCALE, SCALE, rows=(0, 1, 3)),), "ascending"),
        ((of_three(SCALE, SCALE, SCALE, rows=(0, 1)),), "fit its rows"),
        ((of_three(SCALE, SCALE),), "fit its rows"),
        ((replace(of_three(SCALE, SCALE, SCALE), phi=((1, 2),) * 3),), "fit its sources"),
        ((RowGroup((0,), (0,), (SCALE,), ((SCALE,),)),), "are not those that its rows want"),
        ((RowGroup((), (), (), ()),), "ascending"),
        ((of_three(2**62, SCALE, SCALE),), "too large"),
        ((of_three(2**61, SCALE, SCALE),), "too large"),  # three blocks may each pay it on the way
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_groups_that_prove_nothing_are_refused(wrong, said):
    with pytest.raises(InvalidTable, match=said):
        check_certificate(THREE, GroupCertificate(wrong))
    with pytest.raises(InvalidTable, match="scale"):
        check_certificate(THREE, GroupCertificate((of_three(0, 0, 0, phi=0),), 0))


def test_groups_share_a_source_and_add_up():
    """Two groups of one row each pay half of the source that both want."""
    rows = Rows.of([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    half = SCALE // 2
    first = RowGroup((0,), (0, 1), (SCALE, half), ((SCALE, half),))
    second = RowGroup((1,), (1, 2), (half, SCALE), ((half, SCALE),))
    assert check_certificate(rows, GroupCertificate((first, second))) == Fraction(3, 2)
    with pytest.raises(InvalidTable, match="more than the whole"):
        check_certificate(rows, GroupCertificate((first, replace(second, shares=(half + 1, SCALE)))))


def test_numbers_that_would_overflow_prove_nothing():
    rows = Rows.of([[0.5, 0.5], [0.25, 0.75]])
    with pytest.raises(InvalidTable, match="too large"):
        check_certificate(rows, RowCertificate((0, 1), ((2**62, 0), (2**62, 0))))
    with pytest.raises(InvalidTable, match="too large"):
        check_certificate(rows, SetCertificate(2**62, ((0,),), (2**61,)))


class Two(int):
    """An integer that calculates as it likes."""

    def __mul__(self, other):
        return 2 * other

    __rmul__ = __mul__


class Generous(SimpleBound):
    """A certificate with a word of its own."""

    kind = "hits"


@pytest.mark.parametrize(
    "false",
    [
        RowCertificate((0, 1, 2), ((Fraction(99, 100),) * 3,) * 3, scale=1),  # cut to 0 where it was checked
        RowCertificate((0, 1, 2), ((0.99,) * 3,) * 3, scale=1),
        RowCertificate((0, 1, 2), ((np.int64(2**62),) * 3,) * 3, scale=1),  # wraps around in sums
        RowCertificate((0, 1, 2), ((Two(0),) * 3,) * 3, scale=1),
        RowCertificate((0, 1, 2), ((0,) * 3,) * 3, scale=Fraction(1, 2)),
        SetCertificate(Fraction(5, 2), (), (), scale=1),
        SetCertificate(np.int64(1), (), (), scale=1),
        SetCertificate(1, (), (), scale=True),
        GroupCertificate((RowGroup((0, 1, 2), (0, 1, 2), (1, 1, 1), ((Fraction(99, 100),) * 3,) * 3),), scale=1),
        HittingBound(Fraction(3, 2)),
        HittingBound(10**30),
        HittingBound(-(10**5000)),
        GroupCertificate((), scale=10**5000),
        SimpleBound("pencil", 1.5),
        SimpleBound("pencil", 10**30),
        PartsBound(((0, 1, 2),), (RowCertificate((0, 1, 2), ((Fraction(99, 100),) * 3,) * 3, scale=1),)),
        Generous("outer"),
        Fraction(7),
        None,
    ],
)
def test_nothing_but_whole_numbers_of_python_proves_anything(false):
    """On rows whose optimum is 1.5; the first of them passed as a proof of 2.97."""
    rows = Rows.of([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    with pytest.raises(InvalidTable):
        check_certificate(rows, false)


def test_a_certificate_that_proves_0_says_nothing_of_the_cost():
    table = design([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]], "greedy")
    nothing = table.labelled(certificate=RowCertificate((0, 1, 2), ((0,) * 3,) * 3))
    assert (nothing.lower_bound, nothing.gap, nothing.optimal) == (0.0, None, False)
    assert table.optimal
    assert "lower_bound=0" in repr(nothing)


def test_more_rows_than_can_be_looked_at_prove_nothing():
    m = module.MOST_CERTIFIED_ROWS + 1
    rows = Rows.of(families.dirichlet(module.FEW_SOURCES + 1, 1.0, np.random.default_rng(1), rows=m))
    nothing = ((0,) * len(rows.columns),) * m
    with pytest.raises(InvalidTable, match="too many"):
        check_certificate(rows, RowCertificate(tuple(range(m)), nothing))


def test_negative_weights_prove_nothing():
    rows = Rows.of([[0.5, 0.5], [0.25, 0.75]])
    with pytest.raises(InvalidTable, match="negative"):
        check_certificate(rows, SetCertificate(SCALE, ((0,),), (-1,)))


def test_the_best_that_the_checker_accepts_is_taken():
    rows = Rows.of([[0.5, 0.5], [0.25, 0.75]])
    wrong, weak = SetCertificate(9 * SCALE, (), ()), SetCertificate(SCALE, (), ())
    assert best(rows, [wrong, weak]) == SimpleBound("outer")
    assert best(rows, [wrong, SimpleBound("doeblin"), weak]) == SimpleBound("doeblin")  # both are 1.25; the first


def test_duals_of_a_program_above_the_simple_bounds_are_proved():
    found = 0
    for seed in range(30):
        rows = Rows.of(families.dirichlet(6, 50.0, np.random.default_rng(seed)))
        table = design(rows, "optimal")
        if isinstance(table.certificate, SetCertificate):
            found += 1
            assert largest_violation(table.certificate, 6) <= 0
            assert float(check_certificate(rows, table.certificate)) == pytest.approx(table.cost, abs=1e-8)
    assert found > 3


def birth_and_death(n, rng):
    """A walk on a line with random chances to go left, stay and go right."""
    matrix = np.zeros((n, n))
    for x, chances in enumerate(rng.dirichlet(np.ones(3), size=n)):
        for step, chance in zip((-1, 0, 1), chances, strict=True):
            matrix[x, min(max(x + step, 0), n - 1)] += chance
    return matrix


@pytest.mark.slow(reason="many cases are worked out")
@pytest.mark.parametrize("n", [30, pytest.param(60, marks=pytest.mark.deep)])
def test_a_birth_and_death_chain_is_proved(n):
    table = design(birth_and_death(n, np.random.default_rng(0)), "optimal")
    assert isinstance(table.certificate, SetCertificate)
    assert len(table.certificate.tree) > 1
    assert table.optimal


def test_the_simplest_is_accepted_whatever_the_rows():
    for rows in many(52, 60, 9):
        assert check_certificate(rows, simplest(rows)) <= design(rows, "greedy").exact_cost
