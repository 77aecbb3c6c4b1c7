"""leak: tables within a budget of leakage, exactly; optimal, with a proof that the checker accepts; bad ones named."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.support.data import MSNBC, needs_msnbc
from tests.support.matrices import many

from onoff.errors import InvalidInput, InvalidTable, PrivacyBreach, Stopped, UnknownScheme
from onoff.lab import families
from onoff.model import checker
from onoff.model.certificate import WEIGHTS, LeakCertificate, LeakLimit
from onoff.model.checker import check_certificate
from onoff.model.learn import learn
from onoff.model.rows import UNIT, Rows
from onoff.model.traces import Trace
from onoff.schemes import design, leak
from onoff.tables.files import read_table, write_table

TENTH, HALF, ONE = (nats / math.log(2) for nats in (0.1, 0.5, 1.0))
"""Bits of 0.1, 0.5 and 1 nats."""
FIGURES = {
    "leak": {
        "dense": (families.dirichlet(10, 0.3, np.random.default_rng(0)), (3.12, 2.00, 1.21)),
        "sticky": (families.sticky(10, np.random.default_rng(0)), (4.49, 2.77, 1.71)),
        "ring": (families.ring(12), (5.12, 3.42, 2.14)),
    },
    "ratio": {"sticky": (families.sticky(10, np.random.default_rng(0)), (5.05, 4.10, 3.01))},
}
"""The costs that an independent program found, of which two decimals are known."""
TWO = [[0.75, 0.25], [0.25, 0.75]]


def designed(rows: Any, scheme: str = "optimal", **options: Any) -> Any:
    """A table, of which the tests know whether it has a limit and a certificate."""
    return design(rows, scheme, **options)


def naive_bits(rows):
    return math.log2(rows.probabilities().max(axis=0).sum())


@pytest.mark.parametrize(("dial", "family"), [(dial, family) for dial, of in FIGURES.items() for family in of])
def test_the_costs_of_an_independent_program_are_met_and_proved(dial, family):
    matrix, costs = FIGURES[dial][family]
    for bits, expected in zip((TENTH, HALF, ONE), costs, strict=True):
        table = designed(matrix, **{dial: bits})
        table.verify()
        assert table.cost == pytest.approx(expected, abs=0.0051)
        assert table.optimal
        assert table.leak <= bits
        assert table.worst_cost >= table.cost


@pytest.mark.slow(reason="the readers are learnt, and 17 sources take half a minute")
@needs_msnbc
@pytest.mark.parametrize(
    ("dial", "bits", "expected"),
    [
        ("leak", HALF, 5.82),
        pytest.param("leak", ONE, 3.36, marks=pytest.mark.deep),
        pytest.param("ratio", ONE, 7.59, marks=pytest.mark.deep),
    ],
)
def test_the_readers_of_msnbc(dial, bits, expected):
    table = designed(learn(Trace(MSNBC)).chain, **{dial: bits})
    table.verify()
    assert table.cost == pytest.approx(expected, rel=0.005)
    assert table.optimal


def test_two_sources_by_hand():
    # m({x}) = a for both x, m(both) = b: 2a + b = B, and a row places 0.25 + a in singletons, the rest in both.
    for bits in (0.1, 0.3, 0.5):
        alone = 2**bits - Fraction(3, 4)
        assert designed(TWO, leak=bits).cost == pytest.approx(float(1 + (Fraction(3, 4) - alone)), abs=1e-7)


def test_nothing_is_told_at_zero_and_enough_is_naive():
    for rows in many(7, 25, 6):
        zero, naive = designed(rows), naive_bits(rows)
        assert designed(rows, leak=0.0).exact_cost == zero.exact_cost
        assert designed(rows, leak=naive + 1e-6).cost == pytest.approx(1, abs=1e-6)
        half = designed(rows, leak=naive / 2) if naive > 1e-6 else zero
        assert 1 <= half.cost <= zero.cost + 1e-9


@pytest.mark.parametrize("dial", ["leak", "ratio"])
def test_every_table_keeps_its_limit_in_integers(dial):
    rng = np.random.default_rng(3)
    for rows in many(11, 40, 6):
        bits = float(rng.uniform(0.01, 1.5))
        table = designed(rows, weights=rng.random(rows.m) + 0.01, **{dial: bits})
        table.verify()
        assert table.gap < 1e-5
        masses = np.array([table.mass_seen_by(r) for r in range(rows.distinct)]).astype(object)
        if dial == "leak":
            assert sum(masses.max(axis=0)) <= table.limit.leak
        else:
            assert all(masses.max(axis=0) * UNIT <= masses.min(axis=0) * table.limit.ratio)


def test_a_budget_is_rounded_down_to_units():
    for eighths in range(1, 40):
        units = LeakLimit.of(Rows.of(TWO), eighths / 8).leak or 0
        assert units**8 <= 2**eighths * UNIT**8 < (units + 1) ** 8


def test_both_limits_at_once_cost_more_than_either():
    matrix = families.sticky(6, np.random.default_rng(1))
    leak, ratio = designed(matrix, leak=0.4), designed(matrix, ratio=1.2)
    both = designed(matrix, leak=0.4, ratio=1.2)
    both.verify()
    assert both.optimal
    assert both.cost > max(leak.cost, ratio.cost) + 1e-3


def test_weights_decide_the_cost_and_not_the_limit():
    matrix = families.dirichlet(5, 0.3, np.random.default_rng(2))
    tables = [designed(matrix, leak=0.5, weights=weights) for weights in (None, [1, 0, 0, 0, 0], [0.2] * 5)]
    assert tables[0].exact_cost == pytest.approx(float(tables[2].exact_cost), abs=1e-6)
    assert tables[1].cost < tables[0].cost - 0.1
    for table in tables:
        table.verify()
        assert table.leak <= 0.5


def test_equal_rows_share_their_weight():
    twice = designed([[0.75, 0.25], [0.25, 0.75], [0.75, 0.25]], leak=0.3)
    once = designed(TWO, leak=0.3, weights=[2, 1])
    assert twice.limit == once.limit
    assert twice.cost == pytest.approx(once.cost, abs=1e-7)


# -- what verify() must catch ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told():
    return designed(families.sticky(5, np.random.default_rng(4)), leak=0.4, ratio=2.0)


def test_a_table_that_tells_one_unit_more_is_a_breach(told):
    held = sum(told.mass.tolist())
    replace(told, limit=replace(told.limit, leak=held)).verify()
    with pytest.raises(PrivacyBreach, match="largest masses"):
        replace(told, limit=replace(told.limit, leak=held - 1)).verify()


def test_a_query_beyond_the_ratio_is_a_breach(told):
    least = np.min([told.mass_seen_by(r) for r in range(told.rows.distinct)], axis=0)
    ratios = [-(-int(high) * UNIT // int(low)) for low, high in zip(least, told.mass, strict=True)]
    replace(told, limit=replace(told.limit, ratio=max(ratios))).verify()
    with pytest.raises(PrivacyBreach, match="for one u"):
        replace(told, limit=replace(told.limit, ratio=max(ratios) - 1)).verify()


def test_masses_that_are_not_the_largest_are_refused(told):
    lower = told.mass.copy()
    lower[0] -= 1
    with pytest.raises(InvalidTable, match="largest over u"):
        replace(told, mass=lower).verify()


def test_a_table_without_a_limit_may_tell_nothing(told):
    with pytest.raises((PrivacyBreach, InvalidTable)):
        replace(told, limit=None, certificate=None).verify()


@pytest.mark.parametrize(
    "limit",
    [
        LeakLimit(None, None, (WEIGHTS // 2, WEIGHTS // 2)),
        LeakLimit(UNIT - 1, None, (WEIGHTS // 2, WEIGHTS // 2)),
        LeakLimit(2 * UNIT, UNIT - 1, (WEIGHTS // 2, WEIGHTS // 2)),
        LeakLimit(2 * UNIT, None, (WEIGHTS,)),
        LeakLimit(2 * UNIT, None, (WEIGHTS + 1, -1)),
        LeakLimit(2 * UNIT, None, (WEIGHTS, 1)),
    ],
    ids=str,
)
def test_what_is_no_limit_is_refused(limit):
    table = designed(TWO, leak=0.3)
    with pytest.raises(InvalidTable):
        replace(table, limit=limit, certificate=None).verify()
    with pytest.raises(InvalidTable):
        check_certificate(table.rows, replace(table.certificate, limit=limit))


# -- what the checker must catch ---------------------------------------------------------------------------


def largest_gain(certificate, columns):
    """The largest left side over all queries, by looking at each in exact arithmetic."""
    ratio = certificate.limit.ratio
    best = None
    for flags in product((False, True), repeat=columns):
        query = [x for x in range(columns) if flags[x]]
        if not query:
            continue
        total = Fraction(0)
        for line, weight in zip(certificate.prices, certificate.limit.weights, strict=True):
            s = max(line[x] for x in query) - weight * len(query)
            total += s if s > 0 else 0 if ratio is None else Fraction(s * UNIT, ratio)
        best = total if best is None else max(best, total)
    return best


@pytest.mark.parametrize("limits", [{"leak": 0.5}, {"ratio": 0.7}, {"leak": 0.5, "ratio": 1.5}], ids=str)
def test_accepted_certificates_hold_for_every_query(limits):
    for rows in many(5, 20, 5):
        table = designed(rows, **limits)
        certificate = table.certificate
        assert largest_gain(certificate, len(rows.columns)) <= certificate.allowance
        assert check_certificate(rows, certificate) <= table.exact_cost


def test_a_certificate_that_is_wrong_by_one_unit_is_refused():
    table = designed(families.sticky(6, np.random.default_rng(0)), leak=0.5)
    rows, right = table.rows, table.certificate
    check_certificate(rows, right)
    with pytest.raises(InvalidTable, match="wrong by"):
        check_certificate(rows, replace(right, allowance=right.allowance - 1))
    for u in range(rows.distinct):
        dearer = [list(line) for line in right.prices]
        dearer[u] = [price + WEIGHTS for price in dearer[u]]
        with pytest.raises(InvalidTable, match="wrong by"):
            check_certificate(rows, replace(right, prices=tuple(map(tuple, dearer))))


def test_a_certificate_for_a_ratio_has_no_allowance():
    table = designed(families.sticky(5, np.random.default_rng(0)), ratio=0.5)
    with pytest.raises(InvalidTable, match="allowance"):
        check_certificate(table.rows, replace(table.certificate, allowance=1))


@pytest.mark.parametrize(
    "change",
    [
        {"allowance": -1},
        {"prices": ((0, 0),)},
        {"prices": ((0,), (0,))},
        {"prices": ((2**62, 0), (0, 0))},
        {"thresholds": ((0,),)},
    ],
    ids=str,
)
def test_a_certificate_of_another_shape_is_refused(change):
    table = designed(TWO, leak=0.3)
    with pytest.raises(InvalidTable):
        check_certificate(table.rows, replace(table.certificate, **change))


def test_many_sources_are_checked_by_thresholds(monkeypatch):
    """By sizes, with any thresholds, never more is accepted than by looking at every query."""
    rng = np.random.default_rng(6)
    for limits in ({"leak": 0.5}, {"ratio": 0.7}):
        rows = Rows.of(families.dirichlet(6, 0.3, rng))
        table = designed(rows, **limits)
        for _ in range(30):
            thresholds = tuple(tuple(rng.integers(-WEIGHTS, WEIGHTS, rows.distinct).tolist()) for _ in range(3))
            gains = checker.size_gains(np.array(table.certificate.prices), table.limit, thresholds)
            assert max(gains) >= largest_gain(table.certificate, len(rows.columns))
    monkeypatch.setattr(checker, "FEW_SOURCES", 3)
    assert check_certificate(rows, LeakCertificate(table.limit, tuple([(0,) * 6] * 6), 0)) == 0
    with pytest.raises(InvalidTable, match="wrong by"):
        check_certificate(rows, LeakCertificate(table.limit, tuple([(WEIGHTS,) * 6] * 6), 0))


def test_a_table_takes_no_certificate_of_another_limit():
    table = designed(TWO, leak=0.3)
    for certificate in (designed(TWO, leak=0.4).certificate, designed(TWO).certificate):
        with pytest.raises(InvalidTable, match="another limit"):
            _ = replace(table, certificate=certificate).proven_bound
    with pytest.raises(InvalidTable, match="another limit"):
        _ = replace(designed(TWO), certificate=table.certificate).proven_bound


# -- around it ---------------------------------------------------------------------------------------------


def test_a_file_keeps_the_limit(tmp_path, told):
    write_table(tmp_path / "table.npz", told)
    found = read_table(tmp_path / "table.npz", told.rows)
    assert (found.limit, found.certificate, found.exact_cost) == (told.limit, told.certificate, told.exact_cost)


def test_what_is_shown_says_what_is_told(told):
    shown = told.as_dict()
    assert shown["leak"] == told.leak
    assert shown["limit"] == {"leak": told.limit.leak, "ratio": told.limit.ratio}
    assert "leak" not in designed(TWO).as_dict()
    held = told.posterior(told.queries[0])
    assert held.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"leak": -0.1},
        {"leak": math.inf},
        {"leak": math.nan},
        {"leak": 1e-20},
        {"leak": "much"},
        {"leak": True},
        {"ratio": -1},
        {"leak": 0.5, "weights": [1]},
        {"leak": 0.5, "weights": [0, 0]},
        {"leak": 0.5, "weights": [-1, 2]},
        {"leak": 0.5, "weights": [math.nan, 2]},
    ],
    ids=str,
)
def test_bad_budgets_are_named(wrong):
    with pytest.raises(InvalidInput):
        designed(TWO, **wrong)


def test_other_schemes_have_no_budget():
    with pytest.raises(UnknownScheme, match="no option 'leak'"):
        designed(TWO, "greedy", leak=0.5)


def test_a_search_that_is_told_to_stop_stops():
    with pytest.raises(Stopped):
        designed(families.sticky(6, np.random.default_rng(0)), leak=0.5, stop=lambda: True)


@pytest.mark.slow(reason="a search takes seconds")
@pytest.mark.parametrize("family", ["sticky", "ring"])
def test_fifty_sources_are_within_five_percent(family):
    matrices = {"sticky": families.sticky(50, np.random.default_rng(0)), "ring": families.ring(50)}
    table = designed(matrices[family], leak=HALF, budget=5.0)
    table.verify()
    assert table.gap < 0.05
    assert table.leak <= HALF


def test_a_ratio_among_many_sources_has_a_table_and_a_bound():
    table = designed(families.sticky(24, np.random.default_rng(0)), ratio=HALF, budget=2.0)
    table.verify()
    assert 1 < table.lower_bound <= table.cost


def test_the_program_over_sizes_agrees_with_pricing_all_queries(monkeypatch):
    matrix = families.sticky(10, np.random.default_rng(0))
    best = designed(matrix, leak=HALF)
    monkeypatch.setattr(leak, "MOST_PRICED", 0)
    table = designed(matrix, leak=HALF, budget=1.0)
    table.verify()
    assert 0.98 * best.cost < table.lower_bound <= best.cost * (1 + 1e-6)
    assert best.cost * (1 - 1e-6) <= table.cost < 1.02 * best.cost


def test_with_little_time_queries_are_sampled():
    matrix = families.sticky(14, np.random.default_rng(0))
    table = designed(matrix, leak=HALF, budget=2.0)
    table.verify()
    assert table.gap < 0.05  # pricing all queries leaves a fifth in this time


def test_little_time_gives_a_table_and_says_how_far_it_may_be_off():
    table = designed(families.sticky(9, np.random.default_rng(0)), leak=0.5, budget=0.0)
    table.verify()
    assert not table.optimal
    assert table.proven_bound < table.exact_cost
