"""A budget of leakage: the odometer is never below what is found, never beyond the budget; broken twins are caught."""

from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from onoff.audit.client import AuditedClient, ClientRun, Fault
from onoff.audit.exact import audit_budget, audit_exact
from onoff.client.forecast import table_bytes
from onoff.errors import InvalidInput, PrivacyBreach
from onoff.model.certificate import LeakLimit, units_of_bits
from onoff.model.chain import MarkovChain
from onoff.model.contexts import RequestModel
from onoff.model.rows import UNIT
from onoff.session import Session, budget
from onoff.session.budget import Budgeted
from onoff.session.filter import ModelFilter
from onoff.session.seeded import SeededEntropy
from onoff.session.session import TableCache

BITS = 0.3
BUDGET = units_of_bits(BITS, "leak")
ON, OFF = True, False


def chain_of(n: int, seed: int = 0) -> MarkovChain:
    return MarkovChain(np.random.default_rng(seed).dirichlet(np.ones(n), size=n))


def patterns(longest: int) -> list[tuple[bool, ...]]:
    return [(ON, *rest) for length in range(longest) for rest in product((ON, OFF), repeat=length)]


@pytest.fixture(scope="module")
def tables() -> dict[Any, TableCache]:
    """By the digest of the model: tables are built once for all tests."""
    return {}


def session_of(model: Any, tables: dict[Any, TableCache], **options: Any) -> Any:
    shared = tables.setdefault(model.digest(), TableCache(model, "optimal"))
    return Session(model, tables=shared, leak=BITS, **options)


# -- what is told is counted -------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["last-query", "bayes-filter"])
@pytest.mark.parametrize("n", [2, 3])
def test_the_odometer_is_never_below_the_leak_nor_beyond_the_budget(n, memory, tables):
    chain = chain_of(n)
    for pattern in patterns(4):
        found = audit_budget(chain, session_of(chain, tables, memory=memory), pattern, BITS)
        found.require_kept()
        for told in found.told:
            assert told.found * UNIT <= told.odometer
        if pattern[-2:] == (ON, OFF):
            assert found.told[-1].found > 1.2  # it is spent


def two_types() -> RequestModel:
    """Two types of people, first order."""
    laws = np.random.default_rng(1).dirichlet(np.ones(2), size=(2, 3))
    return RequestModel(laws, [(), (0,), (1,)], weights=[0.4, 0.6])


@pytest.mark.parametrize("hide", [1, 2])
def test_a_model_with_types_keeps_its_budget(hide, tables):
    model = two_types()
    for pattern in patterns(4):
        found = audit_budget(model, session_of(model, tables, hide=hide), pattern, BITS)
        assert found.told[-1].odometer <= BUDGET
        assert found.told[-1].found * UNIT <= found.told[-1].odometer


IN_EVERY_RUN = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
OTHERS = (Fault.RESTART, Fault.LOST_ANSWER, Fault.GIVEN_UP, Fault.LOST)
FAULTS = [*IN_EVERY_RUN, *(pytest.param(fault, marks=pytest.mark.deep) for fault in OTHERS)]


class BudgetRun(ClientRun):
    hiding: ClassVar[dict[str, Any]] = {"leak": BITS}


class BudgetClient(AuditedClient):
    @property
    def _new_run(self) -> Any:
        return BudgetRun


@pytest.mark.slow(reason="the client is run once for each world")
@pytest.mark.parametrize("fault", [*FAULTS, pytest.param(Fault.RESTORED, marks=pytest.mark.deep)], ids=str)
def test_the_client_never_spends_twice_and_never_renews(fault):
    for pattern in ((ON, OFF, OFF), (ON, OFF, ON, OFF)):
        client = BudgetClient(chain_of(2), "optimal", (fault,))
        audit_budget(client.chain, client, pattern, BITS).require_kept()


class TopicsRun(ClientRun):
    hiding: ClassVar[dict[str, Any]] = {"topics": {"health": [0]}}


class TopicsClient(AuditedClient):
    @property
    def _new_run(self) -> Any:
        return TopicsRun


@pytest.mark.slow(reason="the client is run once for each world")
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_client_hides_topics_through_faults(fault):
    """What it hides are sources where it starts over by everything, and their topics else: never less."""
    for pattern in ((ON, OFF), (ON, ON), (ON, OFF, ON)):
        client = TopicsClient(chain_of(2), "optimal", (fault,))
        audit_exact(client.chain, "", pattern, session=lambda one=client: one).require_private()  # type: ignore[misc]


# -- broken twins ------------------------------------------------------------------------------------------


def caught(model, session, pattern):
    with pytest.raises(PrivacyBreach):
        audit_budget(model, session, pattern, BITS).require_kept()


def test_a_budget_that_an_open_request_renews_is_caught(monkeypatch, tables):
    right = Budgeted.after

    def renewing(self, query, wanted, *, private, table):
        after = right(self, query, wanted, private=private, table=table)
        return after if private else replace(after, odometers=(UNIT, *after.odometers[1:]))

    monkeypatch.setattr(Budgeted, "after", renewing)
    chain = chain_of(3)
    caught(chain, session_of(chain, tables, memory="bayes-filter"), (ON, OFF, OFF))


def test_a_budget_that_is_spent_at_every_open_request_is_caught(monkeypatch, tables):
    def always(self):
        return LeakLimit.of(self.inner.rows, self.bits)

    monkeypatch.setattr(Budgeted, "limit", property(always))
    chain = chain_of(3)
    caught(chain, session_of(chain, tables, memory="last-query"), (ON, OFF, OFF))


def test_an_odometer_that_counts_too_little_is_caught(monkeypatch, tables):
    monkeypatch.setattr(Budgeted, "spent", property(lambda self: tuple(UNIT for _ in self.odometers)))
    chain = chain_of(2)
    caught(chain, session_of(chain, tables), (ON, OFF))


def test_weights_that_are_not_updated_after_a_leak_are_caught(monkeypatch, tables):
    right = ModelFilter._told
    model = two_types()
    wrong = session_of(model, tables)
    audit_budget(model, wrong, (ON, OFF, ON, OFF), BITS).told[-1]

    def stale(self, belief):
        after = right(self, belief)
        kept = [row for row, u in enumerate(self.us.tolist()) if u in after.us.tolist()]
        return replace(after, weights=self.weights[kept] / self.weights[kept].sum())

    monkeypatch.setattr(ModelFilter, "_told", stale)
    found = audit_budget(model, session_of(model, {}), (ON, OFF, ON, OFF, OFF), BITS)
    assert found.told[-1].found * UNIT > found.told[-1].odometer


def test_a_session_restored_with_its_budget_full_is_caught(monkeypatch):
    right = Budgeted.restored

    def full(self, asked, wanted, stored):
        found = right(self, asked, wanted, stored)
        return found and replace(found, odometers=tuple(UNIT for _ in found.odometers))

    monkeypatch.setattr(Budgeted, "restored", full)
    client = BudgetClient(chain_of(3), "optimal", (Fault.RESTART,))
    caught(client.chain, client, (ON, OFF, OFF))


@pytest.mark.slow(reason="the client is run once for each world")
def test_a_budget_that_is_spent_twice_after_a_crash_is_caught(monkeypatch):
    """A twin that stores a query without what it spends: after the crash its next one spends the same again."""
    right = Budgeted.stored

    def uncounted(self):
        return right(replace(self, odometers=tuple(UNIT for _ in self.odometers)))

    monkeypatch.setattr(Budgeted, "stored", uncounted)
    client = BudgetClient(chain_of(3), "optimal", (Fault.CRASH_AFTER,))
    caught(client.chain, client, (ON, OFF, OFF))


# -- the odometer ------------------------------------------------------------------------------------------


def test_all_is_spent_at_the_first_open_request(tables):
    chain = chain_of(3)
    session = session_of(chain, tables, entropy=SeededEntropy(np.random.default_rng(0)))
    assert session.spent == 0
    session.request(0, private=ON)
    assert session.spent == 0
    before = session.expected_cost(private=OFF)
    session.request(1, private=OFF)
    assert 0.99 * BITS < session.spent <= BITS
    spent = session.spent
    session.request(2, private=OFF)
    assert session.spent == spent
    session.request(0, private=ON)
    assert session.spent == 0
    assert before < Session(chain, memory=session.memory.inner, tables=session.tables).expected_cost(private=OFF)


def test_earlier_requests_count_what_is_spent_on_later_ones(tables):
    chain = chain_of(3)
    session = session_of(chain, tables, entropy=SeededEntropy(np.random.default_rng(0)))
    for private in (ON, OFF, ON, OFF, ON):
        session.request(0, private=private)
    newest, middle, oldest = session.memory.spent
    assert (newest, oldest) == (UNIT, -(-middle * middle // UNIT))


def test_what_is_stored_is_what_was_spent(tables):
    chain = chain_of(3)
    for memory in (None, ModelFilter.start(RequestModel.of(chain))):
        session = session_of(chain, tables, memory=memory, entropy=SeededEntropy(np.random.default_rng(0)))
        for private in (ON, OFF):
            query = session.request(0, private=private)
        kept = session.memory.stored()
        found = session_of(chain, tables, memory=memory).memory.restored(query.sources, 0, kept)
        assert found.odometers == session.memory.odometers
        assert found.limit is None
        for damaged in (kept[:6], kept[:9] + b"}" + kept[10:], budget.MARK):
            assert session_of(chain, tables, memory=memory).memory.restored(query.sources, 0, damaged) is None


def test_nothing_is_told_of_what_was_hidden_under_another_budget(tables):
    chain = chain_of(3)
    session = session_of(chain, tables)
    query = session.request(0, private=ON)
    larger: Any = Session(chain, leak=2 * BITS).memory
    for kept in (session.memory.stored(), session.memory.inner.stored()):
        found = larger.restored(query.sources, 0, kept)
        assert found.limit is None
        assert found.after((0, 1, 2), 1, private=ON, table=None).limit is not None


def test_a_doubt_counts_as_all_spent(tables):
    chain = chain_of(3)
    fresh = session_of(chain, tables).memory
    private = fresh.after((0, 1, 2), 0, private=ON, table=None)
    assert private.limit is not None
    for memory in (fresh, private):
        lost = memory.forgotten(0, private=OFF)
        assert (lost.limit, lost.spent[0]) == (None, BUDGET)
    assert private.afresh(0).odometers == private.again(0).odometers == private.odometers


def test_the_forecast_of_a_table_that_may_leak_is_its_mean_cost(tables):
    session = session_of(chain_of(3), tables)
    session.request(0, private=ON)
    table = session.tables.of(session.memory)
    assert table_bytes(table, [1, 1, 1]) == pytest.approx(table.cost)
    assert table.mean_masses.sum() == pytest.approx(1)


@pytest.mark.parametrize("wrong", [-0.5, float("inf"), float("nan"), 1e-20, "much"])
def test_a_budget_that_is_none_is_named(wrong):
    with pytest.raises(InvalidInput, match="leak"):
        Session(chain_of(2), leak=wrong)


def test_a_budget_smaller_than_the_rounding_of_a_filter_is_named():
    with pytest.raises(InvalidInput, match="rounding"):
        Session(chain_of(2), memory="bayes-filter", leak=1e-10)
    Session(chain_of(2), leak=1e-10)


def test_the_leak_table_after_everything_is_kept_on_disk(tmp_path):
    chain, stamps = chain_of(3), set()
    for _ in range(2):
        session = Session(chain, "optimal", leak=BITS, store=tmp_path)
        session.request(0, private=ON)
        assert session.expected_cost(private=OFF) < design_cost(chain)
        (file,) = tmp_path.iterdir()
        stamps.add(file.stat().st_mtime_ns)
    assert len(stamps) == 1


def design_cost(chain: MarkovChain) -> float:
    session = Session(chain, "optimal")
    session.request(0, private=ON)
    return session.expected_cost(private=OFF)
