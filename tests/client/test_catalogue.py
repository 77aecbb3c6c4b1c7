"""Fetching a catalogue: the one way, and what each thing that is none is called."""

import pytest
from tests.support.world import NAMES, Direct, World

from onoff import wire
from onoff.errors import BadAnswer, CatalogueMismatch, ServerUnreachable
from onoff.model.chain import MarkovChain
from onoff.upstream.message_server import CATALOGUE_REQUEST, fetch_catalogue, require_sources
from onoff.upstream.transport import Failure, Reply

URL = "http://server.test"


class Says:
    """A transport that gives one answer."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    def exchange(self, request):
        self.requests.append(request)
        return self.answer


def test_it_is_what_the_server_has():
    world = World()
    assert fetch_catalogue(URL, Direct(world)) == world.catalogue
    assert world.requests == [("GET", wire.CATALOGUE_PATH, wire.CATALOGUE_HEADERS, b"")]


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (Failure("too slow"), ServerUnreachable, "too slow"),
        (Reply(404, (), b"<html>"), BadAnswer, "no catalogue, but HTTP 404"),
        (Reply(503, (), b""), BadAnswer, "HTTP 503"),
        (Reply(200, (), b"hello"), BadAnswer, "not JSON"),
    ],
    ids=["failure", "404", "503", "hello"],
)
def test_whatever_is_none_is_said_with_the_address(answer, error, says):
    transport = Says(answer)
    with pytest.raises(error, match=says) as caught:
        fetch_catalogue(URL, transport)
    assert URL in caught.value.message
    assert caught.value.hint
    assert transport.requests == [CATALOGUE_REQUEST]


def test_a_chain_that_names_no_sources_is_told_so():
    chain = MarkovChain([[0.5, 0.5], [0.5, 0.5]])
    catalogue = wire.Catalogue(("news", "weather"))
    with pytest.raises(CatalogueMismatch, match=r"does not name its 2 sources.*'news', 'weather'") as caught:
        require_sources(chain.names, catalogue)
    assert "names=[" in (caught.value.hint or "")
    require_sources(NAMES, World().catalogue)
    require_sources(chain.names, wire.Catalogue(chain.names))  # a server may call them so


def test_missing_sources_are_named_and_counted():
    with pytest.raises(CatalogueMismatch, match=r"7 of the chain's 8 .*: 'b', 'c', 'd', 'e', 'f' and 2 more") as caught:
        require_sources(tuple("abcdefgh"), wire.Catalogue(("a", "z")))
    assert "'a', 'z'" in (caught.value.hint or "")
