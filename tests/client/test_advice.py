"""The client heeds the advice of its model: where that is to stay ON, open requests are refused, and nothing leaves."""

import numpy as np
import pytest
from tests.model.test_advice import AUDIT
from tests.support.clients import Client

from onoff.audit.logs import URL, Recorder
from onoff.client.journal import MemoryJournal
from onoff.errors import InvalidInput
from onoff.model.chain import MarkovChain

NAMES = ("alpha", "beta", "gamma")
EVEN = np.full((3, 3), 1 / 3)


def client_of(about, **options):
    recorder = Recorder(NAMES)
    model = MarkovChain(EVEN, NAMES, about=about)
    settings = {"transport": recorder, "mirror": False, "background": False, "tick": 0}
    return Client(URL, model, MemoryJournal(), "greedy", **settings, **options), recorder


def test_stay_on_refuses_open_requests_before_anything_is_sent():
    client, recorder = client_of({"guess": "sticky"})
    with pytest.raises(InvalidInput, match="stay ON with this model: A guess") as refused:
        client.get("alpha", private=False)
    assert "accept_leak=True" in str(refused.value.hint)
    assert recorder.events == []
    assert client.get("alpha", private=True).sent.private


@pytest.mark.parametrize("about", [{}, {"measured": AUDIT}, {"measured": {**AUDIT, "bits": 0.5}}])
def test_off_and_warn_let_them_through(about):
    client, _ = client_of(about)
    assert client.get("alpha", private=False).source == "alpha"


def test_what_is_accepted_is_asked():
    client, _ = client_of({"guess": "sticky"}, accept_leak=True)
    assert client.advice.word == "stay-on"
    assert client.get("alpha", private=False).source == "alpha"


def test_a_kept_history_is_advised_by_the_audit_with_one():
    leaky, good = {**AUDIT, "difference": 0.5}, {**AUDIT, "history": "open"}
    constants = {"cap": 30.0, "weight": 0.8, "trust": 5.0}
    client, _ = client_of({"own_law": constants, "audits": {"none": leaky, "open": good}}, accept_leak=True)
    client.remember()
    for _ in range(20):
        assert client.advice.word == "stay-on"
        client.get("alpha", private=False)
    assert client.advice.word == "off"
