"""The shipped client that keeps an open history, enumerated: by the rules nothing is told, and each rule broken tells.

People are of types, and the model of a person is the population with its types weighted by the open history (no weight
on the own law), so that the truth is known: see `test_open_history`, which enumerates sessions by the same rules.
"""

from dataclasses import dataclass, replace
from functools import partial

import pytest
from tests.audit.test_open_history import people_of
from tests.support.controls.clients import as_client
from tests.support.typed import as_a, present

from onoff import wire
from onoff.audit.client import AuditedClient, ClientRun, Fault
from onoff.audit.exact import audit_exact
from onoff.audit.logs import URL, Recorder
from onoff.client import upstream_of
from onoff.client.core import Core
from onoff.model.contexts import RequestModel
from onoff.model.patterns import parse
from onoff.session.filter import ModelFilter

pytestmark = pytest.mark.slow(reason="every path of requests and draws is enumerated")

LEAK = 1e-5
"""Bits; by the rules it is 0, decided by equality up to the rounding that is counted."""


def population(n, order=1):
    people = people_of(n, order)
    constants = {"cap": 1, "weight": 0, "trust": 1, "particles": 1}
    return RequestModel(people.laws, people.contexts, weights=people.weights, about={"own_law": constants})


class RememberingRun(ClientRun):
    """A user whose first requests go to another server, with the same journal, as many as `elsewhere` says."""

    def __init__(self, chain, tables, faults, recorder, *, elsewhere=0):
        self.elsewhere, self.steps = elsewhere, 0
        self.other = Recorder(chain.names, recorder.journal)
        super().__init__(chain, tables, faults, recorder)

    def _open(self):
        super()._open()
        if self.steps == 0:
            self.client.remember()

    def upstream(self):
        if self.steps < self.elsewhere:
            return upstream_of("http://there.invalid", transports=[self.other])
        return upstream_of(URL, transports=[self.recorder])

    def request(self, x, private, entropy, fault=None):
        if self.elsewhere and self.steps == self.elsewhere:
            self._reopen(Fault.RESTART)
        self.steps += 1
        return super().request(x, private, entropy, fault)

    def taken(self):
        self.other.take()
        return super().taken()


@dataclass
class Remembering(AuditedClient):
    elsewhere: int = 0

    @property
    def _new_run(self):
        return partial(RememberingRun, elsewhere=self.elsewhere)


def audited(core, n, pattern, *faults, elsewhere=0, order=1):
    model = population(n, order)
    user = partial(Remembering, model, "single", faults, elsewhere=elsewhere)
    with as_client(core):
        return audit_exact(model, "single", parse(pattern), session=user)


class CountsPrivate(Core):
    wanted: int | None = None

    def request(self, wanted, *, private):
        self.wanted = wanted
        return super().request(wanted, private=private)

    def _take_own_law(self, history):
        super()._take_own_law(history.after(self.wanted))


class Rebuilds(Core):
    """Makes the model anew, of a history that is said to be all that the server knows."""

    def rebuild(self, *more):
        history = present(self.history)
        seed = b"anew"
        assert self._own is not None
        self.session = self._own(replace(history, asked=(*history.asked, *more), hidden=False), seed)
        self._digest = self.session.model.digest()

    @property
    def hidden(self):
        return self.history is not None and self.history.hidden


class LeavesSetsOut(Rebuilds):
    def request(self, wanted, *, private):
        if private and self.hidden:
            self.rebuild()
        return super().request(wanted, private=private)


class CountsSizeOne(Rebuilds):
    counted: tuple[int, ...] | None = ()

    def request(self, wanted, *, private):
        if private and self.hidden and self.counted:
            self.rebuild(None, *self.counted)
        message = yield from super().request(wanted, private=private)
        if not private and self.hidden and self.counted is not None:
            one = present(self.record).asked == wire.encode_bitmap((wanted,), self.chain.n)
            self.counted = (*self.counted, wanted) if one else None
        return message


class RebuildsWhileHidden(Rebuilds):
    def request(self, wanted, *, private):
        if not private and self.hidden:
            before = as_a(ModelFilter, self.session.memory)
            self.rebuild()
            self.session.memory = self.session.memory.afresh(int(before.us[before.secret_row, -1]))
        return super().request(wanted, private=private)


class StartsAfresh(Core):
    """After a restart only what is hidden is known, and not what the queries since have told."""

    def opened(self, found, doubt):
        super().opened(found, doubt)
        if self.history is not None and self.history.hidden:
            before = as_a(ModelFilter, self.session.memory)
            self.session.memory = before.afresh(int(before.us[before.secret_row, -1]))


@pytest.mark.parametrize(
    ("n", "pattern", "faults"),
    [
        (2, "OFF OFF ON OFF OFF", ()),
        (2, "OFF ON OFF ON OFF", ()),
        (2, "OFF ON OFF OFF", (Fault.RESTART,)),
        (2, "OFF ON OFF OFF", (Fault.GIVEN_UP,)),
        (3, "OFF ON OFF", (Fault.RESTART,)),
    ],
)
def test_by_the_rules_nothing_is_told_over_restarts(n, pattern, faults):
    audit = audited(Core, n, pattern, *faults)
    audit.require_private()
    assert audit.leak == 0


@pytest.mark.parametrize(
    ("twin", "pattern", "faults"),
    [
        (CountsPrivate, "OFF ON OFF OFF", ()),
        (LeavesSetsOut, "ON OFF OFF ON OFF", ()),
        (CountsSizeOne, "ON OFF OFF ON OFF", ()),
        (RebuildsWhileHidden, "OFF ON OFF OFF", ()),
        (StartsAfresh, "OFF ON OFF OFF", (Fault.RESTART,)),
    ],
)
def test_each_rule_broken_tells(twin, pattern, faults):
    audit = audited(twin, 2, pattern, *faults)
    assert audit.leak > LEAK
    assert audit.breach is not None


class CountsElsewhere(Core):
    """Takes what another server saw for this one's history."""

    def opened(self, found, doubt):
        super().opened(found if found is None else replace(found, server=self.server), doubt)


def test_another_servers_history_tells_and_does_not_enter():
    audit = audited(Core, 2, "OFF ON OFF OFF", elsewhere=1, order=0)
    audit.require_private()
    assert audited(CountsElsewhere, 2, "OFF ON OFF OFF", elsewhere=1, order=0).leak > LEAK
