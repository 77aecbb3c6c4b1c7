"""Fetching a catalogue: the one way, and what each thing that is none is called."""

import pytest
from tests.support.world import NAMES, Direct, World

from onoff import wire
from onoff.client.catalogue import CATALOGUE_REQUEST, fetch_catalogue, require_sources
from onoff.client.exchange import Failure, Reply
from onoff.errors import BadAnswer, CatalogueMismatch, ServerUnreachable

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


def test_sources_that_are_missing_are_counted_and_not_named():
    require_sources(NAMES, World().catalogue)
    with pytest.raises(CatalogueMismatch, match=r"1 of the chain's 2 sources") as caught:
        require_sources(("alpha", "a secret"), World().catalogue)
    assert "a secret" not in str(caught.value)
