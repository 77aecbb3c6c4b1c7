"""Large chains: every table met is verified, and one wrong unit or wrong row is found."""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.support.chains import P3
from tests.support.typed import as_a

from onoff.audit.identities import audit_identities
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain
from onoff.model.patterns import parse
from onoff.session import Query, Session
from onoff.session.session import TableCache
from onoff.tables.table import QueryTable

LARGE = MarkovChain(np.random.default_rng(30).dirichlet(np.full(30, 0.2), size=30))


def test_every_table_met_is_sound():
    met = audit_identities(LARGE, "greedy", parse("ON OFF*4"), 20)
    assert met.private
    assert met.sessions == 20
    assert met.requests == 100
    assert met.tables >= 10
    assert met.cells > met.largest > 30


class OneUnitOff(TableCache):
    """Moves one unit of the first row of every table to another query."""

    def of(self, memory):
        table = as_a(QueryTable, super().of(memory))
        weights = table.weights.copy()
        weights[0] += 1
        weights[1] -= 1
        return replace(table, weights=weights)


class OtherRows(TableCache):
    """A sound table, but of rows that are not the chain's."""

    def of(self, memory):
        last = memory.last
        return super().of(replace(memory, last=(*last[:-1], (last[-1] + 1) % 30), secret=last[0]))


class AllButOne(Session):
    def request(self, source, *, private):
        query = super().request(source, private=private)
        if not private:
            return query
        left_out = next(x for x in query.sources if x != source)
        return Query(tuple(x for x in query.sources if x != left_out), query.n)


class AskedForAnother(Session):
    def request(self, source, *, private):
        super().request(source, private=private)
        return Query(((source + 1) % self.chain.n,), self.chain.n)


class OffTheTable(Session):
    def request(self, source, *, private):
        query = super().request(source, private=private)
        return query if private else Query(tuple(range(self.chain.n - 1)), self.chain.n)


def single(chain, tables):
    return lambda: Session(chain, tables=tables(chain, "single"))


@pytest.mark.parametrize(
    ("session", "breach"),
    [
        (single(LARGE, OneUnitOff), "step 1: the table of .* has mass"),
        (single(LARGE, OtherRows), "not built from the chain's rows"),
        (lambda: AllButOne(LARGE, "single"), "step 0: ON, but only 29 of 30"),
        (lambda: AskedForAnother(LARGE, "single"), "step 0: the query did not contain"),
    ],
)
def test_what_is_wrong_is_found(session, breach):
    met = audit_identities(LARGE, "single", parse("ON OFF OFF"), 5, session=session)
    assert not met.private
    assert re.search(breach, met.breach)


def test_a_query_off_its_table_is_found():
    chain = MarkovChain(np.full((3, 3), 0.25) + 0.25 * np.eye(3))
    met = audit_identities(chain, "single", parse("ON OFF"), 50, session=lambda: OffTheTable(chain, "single"))
    assert "not in the table" in (met.breach or "") or "did not contain" in (met.breach or "")


def test_other_memories_are_refused():
    with pytest.raises(InvalidInput, match="last-query"):
        audit_identities(P3, "greedy", parse("ON"), 1, session=lambda: Session(P3, "greedy", "bayes-filter"))
