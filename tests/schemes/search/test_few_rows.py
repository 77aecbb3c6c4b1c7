"""few_rows: the same optimum as the master program, at any number of sources, with a proof that is checked."""

import numpy as np
import pytest
from tests.support.matrices import many

from onoff.errors import InvalidTable
from onoff.lab import families
from onoff.model.bounds import lower_bound
from onoff.model.certificate import SCALE, RowCertificate
from onoff.model.checker import check_certificate
from onoff.model.rows import Rows
from onoff.schemes import optimal
from onoff.schemes.search import few_rows
from onoff.schemes.search.exact import rebuild
from onoff.schemes.search.proofs import from_coupling

SAME_COST = 1e-9


def by_partitions(rows):
    sets, masses, phi = few_rows.solve(rows)
    return rebuild(rows, [rows.columns[s].tolist() for s in sets], masses), from_coupling(phi)


@pytest.mark.slow(reason="many cases are worked out")
def test_equals_the_master_program():
    above = 0
    for rows in many(41, 40, 6):
        if rows.distinct <= 5:
            wanted = optimal.build(rows)
            table, proof = by_partitions(rows)
            table.verify()
            assert table.cost == pytest.approx(wanted.cost, abs=SAME_COST)
            assert float(check_certificate(rows, proof)) == pytest.approx(wanted.cost, abs=1e-7)
    for seed in range(25):  # weak correlation: the simple bounds are often not met
        rows = Rows.of(families.dirichlet(5, 10.0, np.random.default_rng(seed)))
        table, proof = by_partitions(rows)
        bound = check_certificate(rows, proof)
        assert table.cost == pytest.approx(optimal.build(rows).cost, abs=SAME_COST)
        assert float(bound) == pytest.approx(table.cost, abs=1e-7)
        above += bound > lower_bound(rows) + 1e-6
    assert above > 3


@pytest.mark.parametrize(("name", "n", "m"), [("dirichlet 1", 60, 4), ("zipf", 40, 5), ("dirichlet 0.1", 50, 6)])
def test_few_rows_over_many_sources_are_solved_outright(name, n, m):
    rows = Rows.of(families.FAMILIES[name](n, np.random.default_rng(1))[:m])
    table = optimal.build(rows)
    table.verify()
    assert table.optimal
    assert check_certificate(rows, table.certificate) == table.proven_bound


def test_a_proof_that_claims_too_much_is_refused():
    rows = Rows.of(families.dirichlet(5, 10.0, np.random.default_rng(2)))
    _, proof = by_partitions(rows)
    first, *others = proof.phi
    greedy = RowCertificate(proof.rows, (tuple(value + SCALE // 1000 for value in first), *others))
    with pytest.raises(InvalidTable, match="wrong by"):
        check_certificate(rows, greedy)


def test_partitions_are_counted_by_bell():
    assert [len(list(few_rows.partitions(range(m)))) for m in range(7)] == [1, 1, 2, 5, 15, 52, 203]
    assert all(sorted(u for block in part for u in block) == [0, 1, 2, 3] for part in few_rows.partitions(range(4)))
