"""What one step tells: exactly nothing from a table; from naive switching what the exact audit says."""

import numpy as np
import pytest

from onoff.audit.exact import audit_exact
from onoff.information import NaiveObserver, plain_request_leak, table_leak
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.model.rows import Rows
from onoff.schemes import design
from onoff.tables.table import QueryTable

P3 = MarkovChain([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.2, 0.5, 0.3]])


def test_a_table_tells_nothing_and_a_broken_one_what_it_should():
    rows = Rows.of([[0.75, 0.25], [0.25, 0.75]])
    assert table_leak(design(rows, "single")) == 0
    plain = QueryTable.from_cells(
        rows, [(0,), (1,)], [(x, r, x, int(rows.weights[r, x])) for r in range(2) for x in range(2)]
    )
    assert table_leak(plain) == pytest.approx(1 + 0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))


def test_the_papers_example():
    chain = MarkovChain([[0.8, 0.2], [0.2, 0.8]])
    assert plain_request_leak(chain, chain.initial) == pytest.approx(0.278, abs=5e-4)
    assert plain_request_leak(P3, P3.stationary()) == pytest.approx(0.190, abs=5e-4)


def test_independent_requests_tell_nothing():
    assert plain_request_leak(MarkovChain([[0.3, 0.7]] * 2), np.array([0.5, 0.5])) == 0
    assert plain_request_leak(MarkovChain(np.eye(2)), np.array([0.5, 0.5])) == 1


@pytest.mark.parametrize("pattern", ["ON OFF OFF", "ON ON OFF", "ON OFF ON ON OFF"])
def test_the_mean_over_request_paths_is_the_exact_audits_figure(pattern):
    statuses = parse(pattern)
    exact = audit_exact(P3, "naive", statuses)
    means = np.zeros(len(statuses))

    def walk(t, probability, path):
        if t == len(statuses):
            observer = NaiveObserver(P3)
            means[:] += probability * np.array(
                [observer.request(x, private=f) for x, f in zip(path, statuses, strict=True)]
            )
            assert observer.total >= 0
            return
        law = P3.initial if t == 0 else P3.transition[path[-1]]
        for x in range(3):
            walk(t + 1, probability * law[x], [*path, x])

    walk(0, 1.0, [])
    assert means == pytest.approx([step.bits for step in exact.steps], abs=1e-12)
