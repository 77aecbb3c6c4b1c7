"""The client's machine by itself: what it makes of a journal and of a server that is none."""

import pytest

from onoff.chain import MarkovChain
from onoff.client.core import Core, Fetch, Reply, Wait
from onoff.errors import BadAnswer
from onoff.session import Session
from onoff.wire import Catalogue

CHAIN = MarkovChain([[0.8, 0.2], [0.2, 0.8]])


def machine(attempts=1):
    session = Session(CHAIN, "single")
    return Core(session, server="http://s", origin="", new_session=lambda: bytes(16), attempts=attempts, backoff=1)


def test_a_doubt_of_the_journal_is_never_taken_back():
    core = machine()
    core.catalogue = Catalogue(CHAIN.names)
    record, _ = core._everything(1, True, "first")
    core.opened(record, "it was copied")
    assert core.doubt == "it was copied"
    assert core.session.memory.last is None
    core.opened(record, None)
    assert core.doubt is None
    assert (core.session.memory.last, core.session.memory.secret) == ((0, 1), 1)


def test_a_server_without_a_catalogue_is_none():
    steps = machine().request(0, private=True)
    assert isinstance(next(steps), Fetch)
    with pytest.raises(BadAnswer, match="no catalogue, but HTTP 404"):
        steps.send(Reply(404, (), b""))


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_a_server_that_is_busy_is_asked_again(status):
    steps = machine(attempts=2).request(0, private=True)
    next(steps)
    assert steps.send(Reply(status, (), b"")) == Wait(1)
    assert isinstance(steps.send(None), Fetch)
